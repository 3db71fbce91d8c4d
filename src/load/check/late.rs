//! Rule 5: no caller waits past its limit, and no claim stays unsettled.

use std::collections::{BTreeMap, HashMap};

use super::acts::Acts;
use super::told::Told;
use super::{Checker, SLACK_US};
use crate::load::history::Record;

/// How long a waiter may wait after somebody was told done: a notification takes no time, the poll behind it 2 s.
pub(super) const JOIN_US: u64 = 2_000_000 + 2 * SLACK_US;

/// When something other than a replica's death was wrong, in microseconds.
pub(super) struct Disturbances(Vec<(u64, u64)>);

impl Disturbances {
    /// Reads them from a history. What only some faults do, `counts` says.
    pub(super) fn of(records: &[Record], counts: impl Fn(&str) -> bool) -> Self {
        let mut begun: HashMap<(&str, &str), u64> = HashMap::new();
        let mut spans = Vec::new();
        for record in records {
            let Record::Fault {
                at_us,
                fault,
                target,
                phase,
            } = record
            else {
                continue;
            };
            if !counts(fault) {
                continue;
            }
            match phase.as_str() {
                "begin" => {
                    begun.insert((fault, target), *at_us);
                }
                "end" => spans.push((begun.remove(&(fault.as_str(), target.as_str())).unwrap_or(0), *at_us)),
                _ => spans.push((*at_us, *at_us)),
            }
        }
        // One that the history shows no end of lasted until the end.
        spans.extend(begun.into_values().map(|from| (from, u64::MAX)));
        Self(spans)
    }

    /// Whether one of them lay within this time, or had ended less than `after` before.
    pub(super) fn touch(&self, from_us: u64, to_us: u64, after_us: u64) -> bool {
        self.0
            .iter()
            .any(|(begin, end)| *begin <= to_us && end.saturating_add(after_us) >= from_us)
    }
}

/// Postgres out of reach, for one replica or for all.
fn is_of_postgres(fault: &str) -> bool {
    fault.starts_with("pg-") || fault.starts_with("db-")
}

impl Checker<'_> {
    /// Callers that waited on although the answer was there.
    pub(super) fn late_joins(&mut self, told: &BTreeMap<String, Told>) {
        // A waiter on a replica that stands still, or that hears of nothing, is told when that is over.
        let disturbed = Disturbances::of(self.records, |fault| {
            is_of_postgres(fault) || matches!(fault, "pause" | "rolling")
        });
        let recovery_us = 3 * self.lease_us;
        for (request, told) in told {
            let Some(settled_us) = told.first_done_us else { continue };
            for (sent_us, answered_us, outcome) in &told.answers {
                let waited_us = answered_us.saturating_sub(settled_us);
                if *sent_us <= settled_us
                    && waited_us > JOIN_US
                    && !disturbed.touch(*sent_us, *answered_us, recovery_us)
                {
                    let found = format!(
                        "a caller was answered with {outcome} {} ms after another one was told done",
                        waited_us / 1_000
                    );
                    self.broken(5, request, found);
                }
            }
        }
    }

    /// Claims that nobody finished.
    pub(super) fn unsettled(&mut self, told: &BTreeMap<String, Told>, acts: &Acts) {
        let tables = self.tables;
        let limited = self.limit_global != Some(0);
        // Where there was a reason to refuse it, whoever was to be told so may have left.
        let told_why = |told: &Told| told.refused || limited || told.may_have_been_refused(acts);
        for (request, row) in &tables.rows {
            if !self.verdict.complete {
                break;
            }
            match row.status.as_str() {
                "running" => self.broken(5, request, "its claim is still unsettled at the end of the run"),
                // A claim is let go of only by an attempt that refuses or fails, and then its callers are told so.
                "released" if told.get(request).is_some_and(|told| !told_why(told)) => {
                    self.broken(5, request, "its claim was let go of, and nobody was told why");
                }
                _ => {}
            }
        }
        // While Postgres is disturbed nothing is taken over, on purpose; and for a lease afterwards.
        let disturbed = Disturbances::of(self.records, is_of_postgres);
        let quiet_us = 3 * self.lease_us;
        let mut reported = std::collections::HashSet::new();
        for record in self.records {
            let (at_us, request, over_us, found) = match record {
                Record::Watched {
                    at_us,
                    lapsed_ms,
                    request: Some(request),
                } => {
                    let found = format!("its claim had lapsed for {lapsed_ms} ms and was not taken over");
                    (*at_us, request, lapsed_ms.saturating_mul(1_000), found)
                }
                Record::Held {
                    at_us,
                    held_ms,
                    request,
                } => {
                    let found = format!("one attempt held its claim for {held_ms} ms without an end");
                    (
                        *at_us,
                        request,
                        held_ms.saturating_mul(1_000).saturating_sub(self.work_us),
                        found,
                    )
                }
                _ => continue,
            };
            let late = over_us > (2 * self.lease_us).saturating_add(SLACK_US);
            let began_us = at_us.saturating_sub(over_us);
            if late && !disturbed.touch(began_us, at_us, quiet_us) && reported.insert(request.as_str()) {
                self.broken(5, request, found);
            }
        }
    }
}
