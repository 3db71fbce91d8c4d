//! Rule 2 for `possible_duplicate_of`: every caller of a request is told of the same twin, which is in the ledger.

use serde_json::Value;

use super::Checker;
use super::tables::Row;
use super::told::Told;

/// The request that a row names as its twin.
pub(super) fn named(row: &Row) -> Option<String> {
    let twin: Value = serde_json::from_str(row.duplicate_of.as_deref()?).ok()?;
    twin["request_id"].as_str().map(str::to_owned)
}

impl Checker<'_> {
    /// Of one request.
    pub(super) fn twin_of(&mut self, request: &str, told: &Told) {
        let tables = self.tables;
        let Some(row) = tables.rows.get(request) else { return };
        // find_request tells the result without it.
        let answers = told.done.iter().filter(|done| done.sent.is_some());
        let mut twins: Vec<_> = answers.map(|done| done.result.get("possible_duplicate_of")).collect();
        twins.dedup();
        if twins.len() > 1 {
            self.broken(
                2,
                request,
                "not all of its callers were told of the same possible_duplicate_of",
            );
        }
        // With a result its twin is dropped.
        let Some(twin) = twins.first().filter(|_| row.result.is_some()) else {
            return;
        };
        let stored = row.duplicate_of.as_deref().map(serde_json::from_str::<Value>);
        let stored = stored.transpose().unwrap_or_default();
        if stored.as_ref() != *twin {
            self.broken(
                2,
                request,
                "the possible_duplicate_of that was told is not the one in the ledger",
            );
        } else if let Some(twin) = twin
            && !named(row).is_some_and(|named| tables.twins.contains(&named))
        {
            let found = format!("the possible_duplicate_of that was told is nothing that was done: {twin}");
            self.broken(2, request, found);
        }
    }
}
