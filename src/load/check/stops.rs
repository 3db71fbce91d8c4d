//! Rules 10 and 11: an operator's stop, refusals, and limits.

use std::collections::{BTreeMap, HashMap};

use super::Checker;
use super::acts::Acts;
use super::late::Disturbances;
use super::told::{Heard, Told};
use crate::load::history::Record;

const HOUR_MS: u64 = 3_600_000;
/// How near to the end of an hour it is not known to which one a write counts: its statement may have waited.
const BORDER_MS: u64 = 60_000;

impl Heard {
    /// Whether an answer says that this call has done nothing, and will not.
    fn was_refused(&self) -> bool {
        matches!(
            self.outcome.as_str(),
            "writes_disabled" | "not_found" | "conflict" | "rate_limited"
        )
    }

    /// Whether the call surely used up a unit of its source.
    fn took_a_unit(&self) -> bool {
        match self.outcome.as_str() {
            "lost" | "none" | "unavailable" => false,
            "rate_limited" => self.limit.as_deref() == Some("global"),
            _ => true,
        }
    }
}

impl Checker<'_> {
    /// Rule 10.
    pub(super) fn stops_of(&mut self, request: &str, told: &Told, acts: &Acts) {
        let saved = |heard: &&Heard| heard.outcome == "done";
        let inside = |heard: &Heard| acts.surely_stopped(told.saved_since(heard), heard.ended_us);
        if told.calls.iter().filter(saved).any(inside) {
            self.broken(10, request, "it was saved while writes were stopped");
        }
        let without_reason =
            |heard: &&Heard| heard.outcome == "writes_disabled" && !acts.perhaps_stopped(heard.sent_us, heard.ended_us);
        // Elsewhere another operator may have stopped writes.
        if self.is_private && told.calls.iter().any(|heard| without_reason(&heard)) {
            self.broken(
                10,
                request,
                "a caller was told writes_disabled, and nobody had stopped writes",
            );
        }
    }

    /// Rule 10, for what is done although nobody was told anything but that it is not. A balancer asks twice when a replica does
    /// not answer, and that one may carry out later what the other one refused.
    pub(super) fn refusals(&mut self, told: &BTreeMap<String, Told>) {
        let disturbed = Disturbances::of(self.records, |_| true);
        let recovery_us = 3 * self.lease_us;
        let tables = self.tables;
        for (request, told) in told {
            if tables.rows.get(request).is_none_or(|row| row.status != "done") {
                continue;
            }
            let balanced = self.balanced;
            let once = |heard: &Heard| !balanced || !disturbed.touch(heard.sent_us, heard.ended_us, recovery_us);
            let mut calls = told.calls.iter().filter(|heard| heard.sent.is_some()).peekable();
            if calls.peek().is_some() && calls.all(|heard| heard.was_refused() && once(heard)) {
                self.broken(10, request, "every call was refused, and it is done all the same");
            }
        }
    }

    /// Rule 11.
    pub(super) fn limits(&mut self, told: &BTreeMap<String, Told>) {
        if let Some(most) = self.limit_global.filter(|most| *most > 0) {
            self.saves_per_hour(most);
        }
        let mut sources: BTreeMap<&str, Vec<&Heard>> = BTreeMap::new();
        for (request, told) in told {
            for heard in &told.calls {
                let limit = match heard.limit.as_deref() {
                    Some("source") => self.limit_per_source,
                    Some("global") => self.limit_global,
                    _ => None,
                };
                if limit == Some(0) {
                    self.broken(11, request, "a caller was told rate_limited by a limit that is not set");
                }
                if let Some(source) = &heard.source {
                    sources.entry(source).or_default().push(heard);
                }
            }
        }
        let Some(most) = self.limit_per_source.filter(|most| *most > 0) else {
            return;
        };
        let began_ms = self.began_ms(told);
        for (source, calls) in sources {
            self.units_of(source, &calls, most, began_ms);
        }
    }

    fn saves_per_hour(&mut self, most: u64) {
        let mut hours: HashMap<u64, u64> = HashMap::new();
        for row in self.tables.rows.values() {
            let Some(settled_ms) = row.settled_ms.filter(|_| row.status == "done") else {
                continue;
            };
            let settled_ms = settled_ms.unsigned_abs();
            if settled_ms % HOUR_MS < HOUR_MS - BORDER_MS {
                *hours.entry(settled_ms / HOUR_MS).or_default() += 1;
            }
        }
        if let Some(saved) = hours.into_values().max().filter(|saved| *saved > most) {
            self.broken(
                11,
                "(all)",
                format!("{saved} writes were saved in an hour, and {most} are allowed"),
            );
        }
    }

    /// When the run began, in milliseconds since 1970 by the database's clock: no write was told before it was settled.
    fn began_ms(&self, told: &BTreeMap<String, Told>) -> Option<i64> {
        let begins = told.iter().filter_map(|(request, told)| {
            let settled_ms = self.tables.rows.get(request)?.settled_ms?;
            Some(settled_ms - i64::try_from(told.first_done_us? / 1_000).ok()?)
        });
        begins.max()
    }

    fn units_of(&mut self, source: &str, calls: &[&Heard], most: u64, began_ms: Option<i64>) {
        let first_us = calls.iter().map(|heard| heard.sent_us).min().unwrap_or(0);
        let ends = calls.iter().map(|heard| heard.ended_us).filter(|us| *us < u64::MAX);
        let last_us = ends.max().unwrap_or(first_us);
        // The units are in a table that a crash of Postgres empties.
        let resets = self.records.iter().filter(|record| {
            matches!(record, Record::Fault { fault, at_us, phase, .. }
                if fault == "pg-immediate" && phase == "begin" && (first_us..=last_us).contains(at_us))
        });
        let resets = resets.count() as u64;
        let units = calls.iter().filter(|heard| heard.took_a_unit()).count() as u64;
        if let Some(began_ms) = began_ms {
            let hour = |us: u64, border_ms: i64| {
                let at_ms = began_ms + i64::try_from(us / 1_000).unwrap_or(0) + border_ms;
                at_ms.unsigned_abs() / HOUR_MS
            };
            let border_ms = BORDER_MS as i64;
            let hours = 1 + hour(last_us, border_ms) - hour(first_us, -border_ms);
            let allowed = most * (hours + resets);
            if units > allowed {
                let found = format!("{units} calls were let in of a source that may make {allowed}");
                self.broken(11, source, found);
            }
        }
        // Each call is at most one unit for each replica that a balancer asks.
        let refused = |heard: &&&Heard| heard.limit.as_deref() == Some("source");
        if calls.len() as u64 * self.tries <= most && calls.iter().any(|heard| refused(&heard)) {
            let found = format!(
                "a call was refused of a source that made {} calls and may make {most}",
                calls.len()
            );
            self.broken(11, source, found);
        }
    }
}
