//! The checker: judges a history with the database's tables, by eleven rules.
//!
//! It shares no code with the server: it knows what callers sent and were told, what the tables hold, and what must be true of
//! both.

mod acts;
mod effects;
mod entries;
mod forms;
mod late;
mod order;
mod statuses;
mod stops;
mod stored;
mod tables;
#[cfg(test)]
mod tests;
mod told;
mod twins;

use serde::Serialize;

use self::acts::Acts;
use self::order::Delays;
use super::history::Record;

pub use self::tables::{Tables, Window};

/// The rules, in the order of their numbers.
pub const RULES: [&str; 11] = [
    "at most one effect per request, exactly one where a caller was told done, and it is what was sent",
    "all results told for one request are the same, at most one of them fresh, and say truly by which way it was first saved and what it \
     may duplicate",
    "a conflict has no effect, and an attempt that lost its lease has none",
    "every result told is in the ledger and stays true; whatever is done in the ledger has the effect that it tells of; and every effect \
     belongs to a request in it that was sent",
    "no caller waits past its limit, and no claim stays unsettled",
    "a destination that takes no keys is called at most once per request",
    "every call has one end, and every answer is one that the service has and fits what was sent; no 5xx but 502 and 503",
    "of an entry that was deleted a record is left and nothing else, and whoever asks from then on is told deleted",
    "nothing is added to a question that is out of sight, and whoever repeats a post is told whether its entry is",
    "nothing is saved while writes are stopped, and what every answer refused is not done",
    "no more is saved in an hour, and no source calls for more, than the limits allow",
];

/// A rule that was broken.
#[derive(Debug, Clone, Serialize)]
pub struct Violation {
    /// 1 to 11.
    pub rule: usize,
    /// The request, or several of them.
    pub request: String,
    /// What was found.
    pub found: String,
}

/// A verdict in a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The run came to its end and no rule was broken.
    Held,
    /// A rule was broken.
    Broken,
    /// No rule was broken in what there is, and the run did not come to its end.
    Incomplete,
    /// No rule was broken, and of too many requests nobody learnt what became of them, so little has been shown.
    Unsettled,
    /// No call was answered, so nothing has been shown.
    Nothing,
}

/// What the checker found.
#[derive(Debug, Default, Serialize)]
pub struct Verdict {
    /// Every violation.
    pub violations: Vec<Violation>,
    /// Requests judged.
    pub requests: usize,
    /// Calls judged: those that have an end.
    pub calls: usize,
    /// Those that were answered.
    pub answered: usize,
    /// Requests of which a caller learnt what became of them: done, deleted, failed, or refused for good.
    pub settled: usize,
    /// Requests that had no final answer when their caller's patience ended.
    pub given_up: usize,
    /// Rows of the ledger that the run left.
    pub rows: usize,
    /// Effects found in the tables.
    pub effects: usize,
    /// Entries that were deleted.
    pub deleted: usize,
    /// Whether the history came to its end.
    pub complete: bool,
}

impl Verdict {
    /// The verdict in a word.
    pub fn outcome(&self) -> Outcome {
        if !self.violations.is_empty() {
            Outcome::Broken
        } else if self.answered == 0 {
            Outcome::Nothing
        } else if !self.complete {
            Outcome::Incomplete
        } else if self.given_up > 0 || self.settled < self.requests / 2 {
            // Callers who leave for good, and hear nothing, are a few in a hundred.
            Outcome::Unsettled
        } else {
            Outcome::Held
        }
    }
}

/// Judges.
pub struct Checker<'a> {
    records: &'a [Record],
    tables: &'a Tables,
    verdict: Verdict,
    lease_us: u64,
    work_us: u64,
    wait_us: u64,
    limit_us: u64,
    /// How many replicas a call may be put to.
    tries: u64,
    /// Whether a balancer stood between, whose own pages count as no answer.
    balanced: bool,
    /// Whether nobody but the load test has to do with the database.
    is_private: bool,
    /// Whether the load test started the replicas, and so knows how they are set.
    is_own: bool,
    /// How many writes a source may call for in an hour, 0 for any number, where it is known.
    limit_per_source: Option<u64>,
    /// How many writes may be saved in an hour, the same.
    limit_global: Option<u64>,
}

/// Room for the load test's own slowness: it shares its processors with what it tests.
const SLACK_US: u64 = 3_000_000;

impl<'a> Checker<'a> {
    /// A checker of this history and these tables.
    pub fn new(records: &'a [Record], tables: &'a Tables) -> Self {
        let mut checker = Self {
            records,
            tables,
            verdict: Verdict::default(),
            lease_us: 0,
            work_us: 0,
            wait_us: 0,
            limit_us: u64::MAX,
            tries: 1,
            balanced: false,
            is_private: false,
            is_own: false,
            limit_per_source: None,
            limit_global: None,
        };
        for record in records {
            if let Record::Start {
                lease_ms,
                wait_ms,
                work_ms,
                tries,
                data_dir,
                limit_per_source,
                limit_global,
                ..
            } = record
            {
                // Whatever a history says, the sums of these must not overflow.
                let us = |ms: &u64| ms.saturating_mul(1_000).min(u64::MAX / 16);
                checker.lease_us = us(lease_ms);
                checker.work_us = us(work_ms);
                checker.wait_us = us(wait_ms);
                // A balancer gives up on a silent replica 5 s after its wait and asks the next one.
                let limit_us = tries.saturating_mul(checker.wait_us + 5_000_000);
                checker.limit_us = limit_us.saturating_add(SLACK_US);
                checker.tries = *tries;
                checker.balanced = *tries > 1;
                checker.is_private = data_dir.is_some();
                checker.is_own = limit_per_source.is_some();
                checker.limit_per_source = limit_per_source.map(u64::from);
                checker.limit_global = limit_global.map(u64::from);
            }
        }
        checker
    }

    /// Judges by all rules.
    pub fn judge(mut self) -> Verdict {
        let told = self.collect();
        let acts = Acts::of(self.records);
        let delays = Delays::of(self.records);
        self.verdict.settled = told.values().filter(|told| told.is_settled(self.is_own)).count();
        self.verdict.requests = told.len();
        self.verdict.rows = self.tables.rows.len();
        self.verdict.effects = self.tables.effects.values().map(Vec::len).sum();
        self.verdict.deleted = self.tables.deletions.values().map(Vec::len).sum();
        for (request, told) in &told {
            self.effects_of(request, told);
            self.results_of(request, told);
            self.conflicts_of(request, told, &acts);
            self.ledger_of(request, told);
            self.twin_of(request, told);
            self.order_of(request, told, &delays);
            self.failures_of(request, told);
            self.entry_of(request, told, &acts);
            self.stops_of(request, told, &acts);
        }
        self.orphans();
        self.stored();
        self.unasked(&told);
        self.strays(&told, &acts);
        self.statuses();
        self.late_joins(&told);
        self.unsettled(&told, &acts);
        self.refusals(&told);
        self.limits(&told);
        self.verdict.violations.sort_by_key(|violation| violation.rule);
        self.verdict
    }

    fn broken(&mut self, rule: usize, request: &str, found: impl Into<String>) {
        self.verdict.violations.push(Violation {
            rule,
            request: request.to_owned(),
            found: found.into(),
        });
    }
}
