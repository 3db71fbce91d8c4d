//! Rule 4, from the ledger to the effects: whatever is done has its effect, and its result says what that is. And nothing is there
//! that nobody sent.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::Checker;
use super::tables::{Effect, Row};
use super::told::Told;

type Members = BTreeMap<String, Value>;

impl Checker<'_> {
    /// What the ledger holds, whether or not anybody was told of it.
    pub(super) fn stored(&mut self) {
        let tables = self.tables;
        for (request, row) in &tables.rows {
            match row.status.as_str() {
                "done" => self.done_row(request, row),
                // Only a request whose attempts died fails.
                "failed" if row.lapses == 0 => {
                    self.broken(4, request, "the ledger says failed, and no attempt of it has died");
                }
                _ => {}
            }
            for effect in tables.effects.get(request).into_iter().flatten() {
                if effect.principal != row.principal {
                    let found = format!(
                        "{} is {}'s, and its request {}'s",
                        effect.id, effect.principal, row.principal
                    );
                    self.broken(4, request, found);
                }
            }
        }
        // No caller says who it is, or all of them say the same.
        let callers: BTreeSet<&str> = tables.rows.values().map(|row| row.principal.as_str()).collect();
        if callers.len() > 1 {
            let callers: Vec<_> = callers.into_iter().collect();
            self.broken(
                4,
                "(all)",
                format!("the ledger has its requests as of {}", callers.join(", ")),
            );
        }
        for (request, principals) in &tables.crowded {
            let found = format!(
                "the ledger has it {} times: of {}",
                principals.len(),
                principals.join(", ")
            );
            self.broken(4, request, found);
        }
    }

    fn done_row(&mut self, request: &str, row: &Row) {
        let tables = self.tables;
        // Rule 8 says what is left of a deleted entry, and rule 1 what a status must be.
        if tables.deletions.contains_key(request) || row.operation == "set_ticket_status" {
            return;
        }
        let Some(text) = &row.result else {
            if !row.may_be_retired() {
                self.broken(4, request, "the ledger says done, and its result is gone");
            }
            return;
        };
        let Ok(result) = serde_json::from_str::<Members>(text) else {
            self.broken(4, request, "its result in the ledger cannot be read");
            return;
        };
        let effects = tables.effects.get(request).map_or(&[][..], Vec::as_slice);
        let id = |effect: &&Effect| result.get(effect.member()).and_then(Value::as_str) == Some(&effect.id);
        match effects.iter().find(id) {
            Some(effect) if !effect.is_told_by(&result) => {
                let found = format!("its result in the ledger does not say what {} is: {text}", effect.id);
                self.broken(4, request, found);
            }
            // Entries are kept for a while only.
            None if effects.is_empty() && !(row.operation == "post_entry" && row.may_be_retired()) => {
                self.broken(
                    4,
                    request,
                    format!("the ledger says done, and there is no effect: {text}"),
                );
            }
            // That of another attempt, or of none: told elsewhere.
            Some(_) | None => {}
        }
    }

    /// What is there and was never sent. A history that was cut short does not name all that was.
    pub(super) fn unasked(&mut self, told: &BTreeMap<String, Told>) {
        let tables = self.tables;
        if !self.verdict.complete {
            return;
        }
        let was_sent = |request: &String| told.get(request).is_some_and(|told| !told.sent.is_empty());
        let there: BTreeSet<&String> = tables.rows.keys().chain(tables.effects.keys()).collect();
        for request in there {
            if !was_sent(request) {
                let effects = tables.effects.get(request).into_iter().flatten();
                let ids: Vec<_> = effects.map(|effect| effect.id.as_str()).collect();
                let what = if ids.is_empty() {
                    "the ledger's row".to_owned()
                } else {
                    ids.join(", ")
                };
                self.broken(4, request, format!("{what} is of a request that nobody sent"));
                continue;
            }
            let sent = told.get(request).map_or(&[][..], |told| told.sent.as_slice());
            if let Some(row) = tables.rows.get(request)
                && !sent.iter().any(|sent| sent.tool == row.operation)
            {
                let found = format!("the ledger has it as {}, which was not called", row.operation);
                self.broken(4, request, found);
            }
        }
        for stranger in &tables.strangers {
            let found = format!(
                "{} came to be during the run, on a Postgres of its own, and is of a request that nobody sent",
                stranger.what
            );
            self.broken(4, &stranger.request_id, found);
        }
    }
}

impl Effect {
    /// The member of a result that names it.
    fn member(&self) -> &'static str {
        match (&self.entry, &self.status) {
            (Some(_), _) => "id",
            (None, Some(_)) => "ticket_id",
            (None, None) => "comment_id",
        }
    }

    /// Whether a result says of it what it is, and nothing else.
    fn is_told_by(&self, result: &Members) -> bool {
        let mut told = result.clone();
        let says = |(name, value): (&str, Value)| (name.to_owned(), value);
        let mut is = BTreeMap::from([
            says((self.member(), json!(self.id))),
            says(("created_at", json!(self.created_at))),
        ]);
        if let Some(entry) = &self.entry {
            is.insert("type".to_owned(), json!(entry.kind));
            is.insert("saved_via".to_owned(), json!(self.saved_via));
            is.extend(entry.parent_id.iter().map(|parent| says(("parent_id", json!(parent)))));
            // Where it is read depends on the deployment; rule 7 has the forms.
            let mut has_place = told.remove("url").is_some_and(|url| url.is_string());
            if entry.kind == "reply" {
                has_place &= told.remove("bookmark_url").is_some_and(|url| url.is_string());
            }
            return has_place && told == is;
        }
        if self.status.is_some() {
            is.insert("title".to_owned(), json!(self.text));
            is.insert("ticket_status".to_owned(), json!("open"));
        } else {
            is.insert("ticket_id".to_owned(), json!(self.ticket));
        }
        told == is
    }
}
