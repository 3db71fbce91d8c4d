//! Rule 4 in time: what was told stays true.
//!
//! Only who asked after somebody had been told *done* can be wrong to be told something else: what was under way at the same time
//! may have been first.

use super::Checker;
use super::late::{Disturbances, JOIN_US};
use super::told::{Heard, Told};
use crate::load::history::Record;

/// Before a caller has waited so long, no replica has run out of patience.
const EARLY_US: u64 = 1_000_000;

/// What may hold an old answer up.
pub(super) struct Delays {
    /// A replica stands still, or its database's answers come late: it may tell what was true before.
    stale: Disturbances,
    /// A replica does not hear of what others settled.
    deaf: Disturbances,
}

impl Delays {
    /// Reads them from a history.
    pub fn of(records: &[Record]) -> Self {
        Self {
            stale: Disturbances::of(records, |fault| matches!(fault, "pause" | "db-delay")),
            deaf: Disturbances::of(records, |fault| {
                fault.starts_with("pg-") || fault.starts_with("db-") || matches!(fault, "pause" | "rolling")
            }),
        }
    }
}

impl Checker<'_> {
    /// What was told of one request after somebody had been told that it is done.
    pub(super) fn order_of(&mut self, request: &str, told: &Told, delays: &Delays) {
        let done = told.calls.iter().filter(|heard| heard.outcome == "done");
        let Some(done_us) = done.map(|heard| heard.ended_us).min() else {
            return;
        };
        let mut contradicted = false;
        for heard in told.calls.iter().filter(|heard| heard.sent_us > done_us) {
            if !contradicted && self.contradicts(heard, delays) {
                contradicted = true;
                let who = if heard.sent.is_some() { "a call" } else { "find_request" };
                let later_ms = (heard.sent_us - done_us) / 1_000;
                let found = format!(
                    "{who} that was sent {later_ms} ms after a caller had been told done was answered with {}",
                    heard.outcome
                );
                self.broken(4, request, found);
            }
        }
    }

    fn contradicts(&self, heard: &Heard, delays: &Delays) -> bool {
        let (from_us, to_us) = (heard.sent_us, heard.ended_us);
        if heard.sent.is_none() {
            // It reads what is recorded, and nothing else.
            return matches!(heard.outcome.as_str(), "running" | "abandoned" | "unknown" | "failed");
        }
        match heard.outcome.as_str() {
            "failed" => true,
            // Replays go on under every stop and limit of all; a call may meet one that is on its way with an older answer.
            "writes_disabled" | "not_found" => !delays.stale.touch(from_us, to_us, EARLY_US),
            "rate_limited" => heard.limit.as_deref() == Some("global") && !delays.stale.touch(from_us, to_us, EARLY_US),
            // It may meet one that still waits, and is told nothing before that one gives up.
            "in_progress" => {
                let took_us = to_us.saturating_sub(from_us);
                let shortest_us = if self.is_own {
                    self.wait_us.saturating_sub(EARLY_US).max(self.wait_us.min(EARLY_US))
                } else {
                    self.wait_us.min(EARLY_US)
                };
                took_us < shortest_us || took_us > JOIN_US && !delays.deaf.touch(from_us, to_us, 3 * self.lease_us)
            }
            _ => false,
        }
    }

    /// Told that it has failed for good, and the ledger says something else, though no operator let it be tried again.
    pub(super) fn failures_of(&mut self, request: &str, told: &Told) {
        let status = self.tables.rows.get(request).map(|row| row.status.as_str());
        let mut told_failed = told.calls.iter().filter(|heard| heard.outcome == "failed");
        let is_retried = self.tables.retried.contains(request);
        if !is_retried && status != Some("failed") && told_failed.next().is_some() {
            let found = match status {
                Some(status) => format!("a caller was told failed, and the ledger says {status}"),
                None => "a caller was told failed, and the ledger has no row".to_owned(),
            };
            self.broken(4, request, found);
        }
    }
}
