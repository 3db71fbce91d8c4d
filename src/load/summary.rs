//! A run in figures, from its history.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt::{self, Display, Formatter};
use std::path::PathBuf;

use serde::Serialize;

use super::check::{Outcome, RULES, Verdict};
use super::history::Record;

/// The figures.
#[derive(Debug, Serialize)]
pub struct Summary {
    /// What was tested: versions, replicas, balancer, Postgres.
    pub about: String,
    /// The history's file.
    pub history: PathBuf,
    /// Makes the same workload again.
    pub seed: u64,
    /// The command that makes the same workload and the same faults again.
    pub again: String,
    /// From the first call to the last answer, in seconds.
    pub seconds: f64,
    pub calls: u64,
    /// How many answers of each kind there were.
    pub answers: BTreeMap<String, u64>,
    /// Calls whose answer was lost, without those whose caller left or was cut off by the load test.
    pub lost: u64,
    /// Calls whose caller left or was cut off by the load test.
    pub left: u64,
    pub replays: u64,
    /// Replays that were sent before the request's first answer: they waited for it.
    pub joins: u64,
    /// Attempts that took a lapsed claim over.
    pub takeovers: i64,
    /// How often each fault was injected.
    pub faults: BTreeMap<String, u64>,
    /// Whether the next one waited until no call suffered from the last.
    pub one_at_a_time: bool,
    /// Calls that a fault made visible to their client: no answer, `unavailable`, or a balancer's page.
    pub visible: u64,
    /// Of answered calls, in milliseconds.
    pub latency_ms: Quantiles,
    /// Requests whose caller had no final answer when its patience ended.
    pub given_up: u64,
    /// Requests that no caller was told done of, and a caller was refused: by a limit, a stop, or a question out of sight.
    pub refused: u64,
    /// The verdict in a word.
    pub outcome: Outcome,
    pub verdict: Verdict,
}

/// Quantiles, in milliseconds.
#[derive(Debug, Default, Serialize)]
pub struct Quantiles {
    pub p50: f64,
    pub p90: f64,
    pub p99: f64,
    pub max: f64,
}

impl Quantiles {
    /// Of microseconds.
    pub fn of(mut durations_us: Vec<u64>) -> Self {
        durations_us.sort_unstable();
        let at = |share: f64| {
            let place = ((durations_us.len() as f64 * share) as usize).min(durations_us.len().saturating_sub(1));
            durations_us.get(place).map_or(0.0, |us| *us as f64 / 1_000.0)
        };
        Self {
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            max: at(1.0),
        }
    }
}

impl Summary {
    /// Adds a history up.
    pub fn of(records: &[Record], verdict: Verdict, takeovers: i64, history: PathBuf) -> Self {
        let mut summary = Self {
            about: String::new(),
            history,
            seed: 0,
            again: String::new(),
            seconds: 0.0,
            calls: 0,
            answers: BTreeMap::new(),
            lost: 0,
            left: 0,
            replays: 0,
            joins: 0,
            takeovers,
            faults: BTreeMap::new(),
            one_at_a_time: false,
            visible: 0,
            latency_ms: Quantiles::default(),
            given_up: verdict.given_up as u64,
            refused: 0,
            outcome: verdict.outcome(),
            verdict,
        };
        let mut invoked: HashMap<u64, (u64, &str)> = HashMap::new();
        let mut first_answer: HashMap<&str, u64> = HashMap::new();
        let mut refused: HashSet<&str> = HashSet::new();
        let mut replays = Vec::new();
        let mut durations = Vec::new();
        for record in records {
            match record {
                Record::Start {
                    seed,
                    about,
                    again,
                    one_at_a_time,
                    ..
                } => {
                    summary.seed = *seed;
                    summary.one_at_a_time = *one_at_a_time;
                    summary.about.clone_from(about);
                    summary.again.clone_from(again);
                }
                Record::Invoked {
                    call, at_us, request, ..
                } => {
                    summary.calls += 1;
                    invoked.insert(*call, (*at_us, request));
                }
                Record::Answered {
                    call,
                    at_us,
                    outcome,
                    replayed,
                    ..
                } => {
                    *summary.answers.entry(outcome.clone()).or_default() += 1;
                    summary.seconds = *at_us as f64 / 1e6;
                    if matches!(outcome.as_str(), "unavailable" | "none") {
                        summary.visible += 1;
                    }
                    let Some((sent, request)) = invoked.get(call) else {
                        continue;
                    };
                    durations.push(at_us.saturating_sub(*sent));
                    match outcome.as_str() {
                        "done" => {
                            first_answer.entry(request).or_insert(*at_us);
                        }
                        "rate_limited" | "writes_disabled" | "not_found" => {
                            refused.insert(request);
                        }
                        _ => {}
                    }
                    if *replayed == Some(true) {
                        replays.push((*sent, *request));
                    }
                }
                Record::Lost { cut: true, .. } => summary.left += 1,
                Record::Lost { cut: false, .. } => {
                    summary.lost += 1;
                    summary.visible += 1;
                }
                Record::Fault { fault, phase, .. } if phase != "end" => {
                    *summary.faults.entry(fault.clone()).or_default() += 1;
                }
                Record::Acted { act, phase, .. }
                    if phase == "begin" && !matches!(act.as_str(), "unhide" | "allow-writes") =>
                {
                    *summary.faults.entry(act.clone()).or_default() += 1;
                }
                _ => {}
            }
        }
        refused.retain(|request| !first_answer.contains_key(request));
        summary.refused = refused.len() as u64;
        summary.replays = replays.len() as u64;
        let waited = |(sent, request): &&(u64, &str)| first_answer.get(request).is_some_and(|first| sent < first);
        summary.joins = replays.iter().filter(waited).count() as u64;
        summary.latency_ms = Quantiles::of(durations);
        summary
    }
}

/// For a terminal.
impl Display for Summary {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let list = |counts: &BTreeMap<String, u64>| {
            let parts: Vec<_> = counts.iter().map(|(name, count)| format!("{name} {count}")).collect();
            if parts.is_empty() {
                "none".to_owned()
            } else {
                parts.join(", ")
            }
        };
        writeln!(f, "\ntested      {}", self.about)?;
        writeln!(f, "history     {}", self.history.display())?;
        writeln!(f, "seed        {}", self.seed)?;
        writeln!(
            f,
            "calls       {} in {:.1} s, for {} requests",
            self.calls, self.seconds, self.verdict.requests
        )?;
        writeln!(f, "answers     {}", list(&self.answers))?;
        writeln!(
            f,
            "no answer   {} lost, {} whose caller left or was cut off",
            self.lost, self.left
        )?;
        writeln!(
            f,
            "replays     {}, of which {} waited for the first answer",
            self.replays, self.joins
        )?;
        writeln!(f, "takeovers   {}", self.takeovers)?;
        let how = if self.one_at_a_time { ", one at a time" } else { "" };
        writeln!(f, "faults      {}{how}", list(&self.faults))?;
        writeln!(
            f,
            "visible     {} whose client saw anything but an answer",
            counted(self.visible, "call")
        )?;
        let latency = &self.latency_ms;
        writeln!(
            f,
            "latency     p50 {:.1} ms, p90 {:.1} ms, p99 {:.1} ms, longest {:.1} ms",
            latency.p50, latency.p90, latency.p99, latency.max
        )?;
        writeln!(
            f,
            "refused     {} never done: a limit, a stop, or a question out of sight",
            counted(self.refused, "request")
        )?;
        if self.given_up > 0 {
            writeln!(
                f,
                "given up    {} without a final answer",
                counted(self.given_up, "request")
            )?;
        }
        write!(f, "\n{}", self.verdict)
    }
}

impl Verdict {
    /// Why too little has been shown.
    pub fn unsettled(&self) -> String {
        format!(
            "too little was settled to say anything: of {}, callers learnt what became of {}, and gave {} up without a final answer. \
             No rule was seen broken; see that the service is well, and run it again",
            counted(self.requests as u64, "request"),
            self.settled,
            self.given_up
        )
    }
}

/// A number of things, in the singular if it is one.
pub fn counted(count: u64, what: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {what}{plural}")
}

/// For a terminal: each violation with its request, then one line.
impl Display for Verdict {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        const MOST_SHOWN: usize = 50;
        for violation in self.violations.iter().take(MOST_SHOWN) {
            writeln!(f, "rule {}  {}: {}", violation.rule, violation.request, violation.found)?;
        }
        if self.violations.len() > MOST_SHOWN {
            writeln!(f, "… and {} more", self.violations.len() - MOST_SHOWN)?;
        }
        if !self.complete {
            writeln!(f, "The history does not come to its end; what there is was judged.")?;
        }
        match self.outcome() {
            Outcome::Broken => {
                let mut broken: Vec<_> = self.violations.iter().map(|violation| violation.rule).collect();
                broken.dedup();
                writeln!(f, "VERDICT     {}", counted(self.violations.len() as u64, "violation"))?;
                for rule in broken {
                    writeln!(f, "  rule {rule}: {}", RULES.get(rule.saturating_sub(1)).unwrap_or(&""))?;
                }
                Ok(())
            }
            Outcome::Unsettled => writeln!(f, "VERDICT     {}", self.unsettled()),
            Outcome::Nothing => writeln!(f, "VERDICT     nothing to judge: no call was answered"),
            Outcome::Held | Outcome::Incomplete => {
                let so_far = if self.complete { "" } else { " so far" };
                writeln!(
                    f,
                    "VERDICT     no violation{so_far}: {}, {}, {} and {} deleted",
                    counted(self.requests as u64, "request"),
                    counted(self.calls as u64, "call"),
                    counted(self.effects as u64, "effect"),
                    self.deleted
                )
            }
        }
    }
}
