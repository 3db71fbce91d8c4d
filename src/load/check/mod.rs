//! The checker: judges a history with the database's tables, by six rules.
//!
//! It shares no code with the server: it knows what callers were told, what the tables hold, and what must be true of both.

mod late;
mod tables;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde::Serialize;
use serde_json::Value;

use super::history::Record;

pub use self::tables::Tables;

/// The rules, in the order of their numbers.
pub const RULES: [&str; 6] = [
    "at most one effect per request, and exactly one where a caller was told done",
    "all results told for one request are the same, at most one of them fresh",
    "a conflict has no effect, and an attempt that lost its lease has none",
    "every result told is in the ledger, and every effect belongs to a request in it",
    "no caller waits past its limit, and no claim stays unsettled",
    "a destination that takes no keys is called at most once per request",
];

/// A rule that was broken.
#[derive(Debug, Clone, Serialize)]
pub struct Violation {
    /// 1 to 6.
    pub rule: usize,
    /// The request.
    pub request: String,
    /// What was found.
    pub found: String,
}

/// What the checker found.
#[derive(Debug, Default, Serialize)]
pub struct Verdict {
    /// Every violation.
    pub violations: Vec<Violation>,
    /// Requests judged.
    pub requests: usize,
    /// Calls judged.
    pub calls: usize,
    /// Effects found in the tables.
    pub effects: usize,
    /// Whether the history came to its end.
    pub complete: bool,
}

/// A call as the history shows it.
struct Call {
    at_us: u64,
    request: String,
    tool: String,
    mark: String,
}

/// What callers were told of one request.
#[derive(Default)]
struct Told {
    /// (mark, result, fresh) of every answer `done`; find_request's without a mark.
    done: Vec<(Option<String>, BTreeMap<String, Value>, bool)>,
    tool: String,
    /// Marks of calls that were refused with conflict.
    conflicts: Vec<String>,
    /// When the first caller was told done.
    first_done_us: Option<u64>,
    /// Every answer: when its call was sent, when it came, what it said.
    answers: Vec<(u64, u64, String)>,
    /// Whether a caller was told that it was not done: a refusal of the operation, or `unavailable`.
    refused: bool,
}

/// Judges.
pub struct Checker<'a> {
    records: &'a [Record],
    tables: &'a Tables,
    verdict: Verdict,
    lease_us: u64,
    work_us: u64,
    limit_us: u64,
}

/// Room for the load test's own slowness: it shares its processors with what it tests.
const SLACK_US: u64 = 3_000_000;

impl<'a> Checker<'a> {
    /// A checker of this history and these tables.
    pub fn new(records: &'a [Record], tables: &'a Tables) -> Self {
        let (lease_ms, wait_ms, work_ms, tries) = records
            .iter()
            .find_map(|record| match record {
                Record::Start {
                    lease_ms,
                    wait_ms,
                    work_ms,
                    tries,
                    ..
                } => Some((*lease_ms, *wait_ms, *work_ms, *tries)),
                _ => None,
            })
            .unwrap_or((10_000, 20_000, 0, 1));
        Self {
            records,
            tables,
            verdict: Verdict::default(),
            lease_us: lease_ms * 1_000,
            work_us: work_ms * 1_000,
            // A balancer gives up on a silent replica 5 s after its wait and asks the next one.
            limit_us: tries * (wait_ms * 1_000 + 5_000_000) + SLACK_US,
        }
    }

    /// Judges by all rules.
    pub fn judge(mut self) -> Verdict {
        let told = self.collect();
        self.verdict.requests = told.len();
        self.verdict.effects = self.tables.effects.values().map(Vec::len).sum();
        for (request, told) in &told {
            self.effects_of(request, told);
            self.results_of(request, told);
            self.conflicts_of(request, told);
            self.ledger_of(request, told);
        }
        self.orphans();
        self.late_joins(&told);
        self.unsettled(&told);
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

    fn collect(&mut self) -> BTreeMap<String, Told> {
        let mut calls: HashMap<u64, Call> = HashMap::new();
        let mut told: BTreeMap<String, Told> = BTreeMap::new();
        for record in self.records {
            match record {
                Record::Invoked {
                    call,
                    at_us,
                    request,
                    tool,
                    mark,
                    ..
                } => {
                    let known = told.entry(request.clone()).or_default();
                    if known.tool.is_empty() {
                        known.tool.clone_from(tool);
                    }
                    let (request, tool, mark) = (request.clone(), tool.clone(), mark.clone());
                    calls.insert(
                        *call,
                        Call {
                            at_us: *at_us,
                            request,
                            tool,
                            mark,
                        },
                    );
                }
                Record::Answered {
                    call,
                    at_us,
                    outcome,
                    replayed,
                    result,
                    ..
                } => {
                    self.verdict.calls += 1;
                    let Some(call) = calls.get(call) else { continue };
                    let took = at_us.saturating_sub(call.at_us);
                    if took > self.limit_us {
                        let found = format!("a call was answered with {outcome} after {} ms", took / 1_000);
                        self.broken(5, &call.request.clone(), found);
                    }
                    let known = told.entry(call.request.clone()).or_default();
                    known.answers.push((call.at_us, *at_us, outcome.clone()));
                    match outcome.as_str() {
                        "done" => {
                            known.first_done_us.get_or_insert(*at_us);
                            known.tool.clone_from(&call.tool);
                            let result = result.clone().unwrap_or_default();
                            known
                                .done
                                .push((Some(call.mark.clone()), result, *replayed == Some(false)));
                        }
                        "conflict" => known.conflicts.push(call.mark.clone()),
                        "in_progress" | "none" => {}
                        _ => known.refused = true,
                    }
                }
                Record::Lost { .. } => self.verdict.calls += 1,
                Record::Found {
                    request,
                    status,
                    result: Some(result),
                    ..
                } if status == "done" => {
                    told.entry(request.clone())
                        .or_default()
                        .done
                        .push((None, result.clone(), false));
                }
                Record::End { interrupted, .. } => self.verdict.complete = !interrupted,
                _ => {}
            }
        }
        told
    }

    /// Rule 1.
    fn effects_of(&mut self, request: &str, told: &Told) {
        let tables = self.tables;
        let effects = tables.effects.get(request).map_or(&[][..], Vec::as_slice);
        if effects.len() > 1 {
            let ids: Vec<_> = effects.iter().map(|effect| effect.id.as_str()).collect();
            self.broken(1, request, format!("{} effects: {}", effects.len(), ids.join(", ")));
        }
        let creates = told.tool == "create_ticket" || told.tool == "add_comment";
        if creates && !told.done.is_empty() && effects.is_empty() {
            self.broken(1, request, "a caller was told done, and there is no effect");
        }
        for (mark, ..) in &told.done {
            let (Some(mark), [effect]) = (mark, effects) else {
                continue;
            };
            if creates && !effect.carries(mark) {
                self.broken(
                    1,
                    request,
                    format!("the effect {} is not of the call that was told done", effect.id),
                );
            }
        }
    }

    /// Rule 2.
    fn results_of(&mut self, request: &str, told: &Told) {
        let fresh = told.done.iter().filter(|(_, _, fresh)| *fresh).count();
        if fresh > 1 {
            self.broken(2, request, format!("{fresh} answers with replayed: false"));
        }
        let bare = |result: &BTreeMap<String, Value>| {
            // find_request tells the result alone, without what an answer puts around it.
            let mut bare = result.clone();
            bare.remove("answered_at");
            bare.remove("possible_duplicate_of");
            bare
        };
        let moments: BTreeSet<_> = told
            .done
            .iter()
            .filter_map(|(_, result, _)| result.get("answered_at")?.as_str())
            .collect();
        if moments.len() > 1 {
            let moments: Vec<_> = moments.into_iter().collect();
            self.broken(2, request, format!("answered at {}", moments.join(" and at ")));
        }
        let mut different = told.done.iter().map(|(_, result, _)| bare(result)).collect::<Vec<_>>();
        different.dedup();
        if different.len() > 1 {
            let texts: Vec<_> = different
                .iter()
                .map(|result| serde_json::json!(result).to_string())
                .collect();
            self.broken(2, request, format!("different results: {}", texts.join(" and ")));
        }
    }

    /// Rule 3.
    fn conflicts_of(&mut self, request: &str, told: &Told) {
        let tables = self.tables;
        for mark in &told.conflicts {
            let effects = tables.effects.get(request).map_or(&[][..], Vec::as_slice);
            if let Some(effect) = effects.iter().find(|effect| effect.carries(mark)) {
                self.broken(
                    3,
                    request,
                    format!("a call was refused with conflict, and has the effect {}", effect.id),
                );
            }
            if told.done.iter().any(|(done, ..)| done.as_ref() == Some(mark)) {
                self.broken(3, request, "the same call was told conflict and done");
            }
        }
    }

    /// Rule 4, from what was told to the ledger.
    fn ledger_of(&mut self, request: &str, told: &Told) {
        let Some((_, result, _)) = told.done.first() else {
            return;
        };
        let tables = self.tables;
        let Some(row) = tables.rows.get(request) else {
            self.broken(4, request, "a result was told, and the ledger has no row");
            return;
        };
        let stored: BTreeMap<String, Value> = row
            .result
            .as_deref()
            .and_then(|text| serde_json::from_str(text).ok())
            .unwrap_or_default();
        if row.status != "done" {
            self.broken(
                4,
                request,
                format!("a result was told, and the ledger says {}", row.status),
            );
        } else if stored.iter().any(|(name, value)| result.get(name) != Some(value)) {
            self.broken(4, request, "the result told is not the one in the ledger");
        }
    }

    /// Rule 4, from the effects to the ledger; and rule 3 for attempts that lost their lease: their effect is not the one
    /// that the ledger tells of.
    fn orphans(&mut self) {
        let tables = self.tables;
        for (request, effects) in &tables.effects {
            let row = tables.rows.get(request);
            let told = row
                .filter(|row| row.status == "done")
                .and_then(|row| row.result.as_deref());
            for effect in effects {
                match told {
                    None => self.broken(4, request, format!("{} belongs to no request that is done", effect.id)),
                    Some(result) if !result.contains(&effect.id) => {
                        self.broken(
                            3,
                            request,
                            format!("{} is another attempt's than the ledger tells of", effect.id),
                        );
                    }
                    Some(_) => {}
                }
            }
        }
    }
}
