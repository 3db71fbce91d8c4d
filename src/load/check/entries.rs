//! Rules 8 and 9, and what rules 1 and 2 ask of entries alone.

use std::collections::BTreeMap;

use super::Checker;
use super::acts::Acts;
use super::tables::Deletion;
use super::told::{Heard, Told};

impl Checker<'_> {
    /// All that is asked of a request's entry.
    pub(super) fn entry_of(&mut self, request: &str, told: &Told, acts: &Acts) {
        self.record_of(request, told, acts);
        for heard in &told.calls {
            match heard.outcome.as_str() {
                "done" => self.done_entry(request, told, heard, acts),
                "deleted" => self.told_deleted(request, told, heard, acts),
                "not_found" => self.told_not_found(request, heard, acts),
                _ => {}
            }
        }
    }

    /// Deletions of which nothing else in the history tells, and entries that an operator did not find.
    pub(super) fn strays(&mut self, told: &BTreeMap<String, Told>, acts: &Acts) {
        let tables = self.tables;
        for request in tables.deletions.keys() {
            if self.verdict.complete && !told.contains_key(request) {
                self.broken(8, request, "an entry was deleted that nobody had posted");
            }
        }
        let told_of = |id: &str| {
            let tells = |told: &Told| told.calls.iter().any(|heard| heard.id.as_deref() == Some(id));
            told.iter().find(|(_, told)| tells(told)).map(|(request, _)| request)
        };
        for id in acts.unknown() {
            if let Some(request) = told_of(id) {
                self.broken(
                    1,
                    request,
                    format!("an operator did not find {id}, which a caller was told of"),
                );
            }
        }
        for (id, is_done) in acts.deletions() {
            let recorded = |request: &String| {
                let records = tables.deletions.get(request);
                records.is_some_and(|records| records.iter().any(|record| record.entry_id == id))
            };
            if let Some(request) = told_of(id)
                && is_done
                && !recorded(request)
            {
                self.broken(8, request, format!("{id} was deleted, and there is no record of it"));
            }
        }
    }

    /// Rule 8: what is left of an entry that was deleted.
    fn record_of(&mut self, request: &str, told: &Told, acts: &Acts) {
        let tables = self.tables;
        let records = tables.deletions.get(request).map_or(&[][..], Vec::as_slice);
        let Some(record) = records.first() else { return };
        if records.len() > 1 {
            self.broken(8, request, format!("{} records of deletions", records.len()));
        }
        let id = &record.entry_id;
        for effect in tables.effects.get(request).into_iter().flatten() {
            self.broken(8, request, format!("{id} was deleted, and {} is there", effect.id));
        }
        if told
            .calls
            .iter()
            .any(|heard| heard.id.as_ref().is_some_and(|told| told != id))
        {
            self.broken(
                8,
                request,
                format!("{id} was deleted, and a caller was told of another entry"),
            );
        }
        if !told
            .sent
            .iter()
            .any(|sent| sent.entry.as_ref().is_some_and(|entry| record.is_of(entry)))
        {
            self.broken(
                8,
                request,
                format!("the record of {id} is not of an entry that was sent"),
            );
        }
        if !acts.perhaps_deleted(id, u64::MAX) {
            self.broken(
                8,
                request,
                format!("{id} is recorded as deleted, and no operator deleted it"),
            );
        }
        match tables.rows.get(request) {
            Some(row) if row.status == "done" && row.result.is_none() => {}
            Some(row) if row.status == "done" => {
                self.broken(
                    8,
                    request,
                    format!("{id} was deleted, and its answer is still in the ledger"),
                );
            }
            _ => self.broken(
                8,
                request,
                format!("{id} was deleted, and the ledger does not have it as done"),
            ),
        }
    }

    /// What somebody was told who was told done: rules 8 and 9, and rule 2 for the way by which it was saved.
    fn done_entry(&mut self, request: &str, told: &Told, heard: &Heard, acts: &Acts) {
        let Some(id) = heard.id.as_deref() else { return };
        let (from_us, to_us) = (heard.sent_us, heard.ended_us);
        if acts.surely_deleted(id, from_us) {
            self.broken(
                8,
                request,
                format!("a caller was told done after {id} had been deleted"),
            );
        }
        let parent = heard.parent.as_deref();
        if let Some(parent) = parent
            && acts.surely_out_of_sight(parent, told.saved_since(heard), to_us)
        {
            self.broken(
                9,
                request,
                format!("{id} was saved while {parent} was hidden or deleted"),
            );
        }
        if !heard.is_fresh {
            let either = |is: &dyn Fn(&str) -> bool| is(id) || parent.is_some_and(is);
            if !heard.is_hidden && either(&|id| acts.surely_out_of_sight(id, from_us, to_us)) {
                self.broken(
                    9,
                    request,
                    format!("{id} was out of sight, and a caller was not told so"),
                );
            }
            if heard.is_hidden && !either(&|id| acts.perhaps_out_of_sight(id, from_us, to_us)) {
                self.broken(
                    9,
                    request,
                    format!("a caller was told that {id} is out of sight, and it was not"),
                );
            }
        }
        let (Some(way), Some(first_us)) = (heard.saved_via.as_deref(), told.first_done_us) else {
            return;
        };
        let came = |call: &Heard| call.sent.is_some() && call.sent_us <= first_us && call.origin() == way;
        // With one post under this request_id it is never claimed beforehand: whoever is told of it afresh has saved it.
        let saved_it = heard.is_fresh && told.sent.len() == 1;
        if !told.calls.iter().any(came) || saved_it && heard.origin() != way {
            self.broken(
                2,
                request,
                format!("{id} is said to be first saved by {way}, and that was not so"),
            );
        }
    }

    fn told_deleted(&mut self, request: &str, told: &Told, heard: &Heard, acts: &Acts) {
        let recorded = self.tables.deletions.get(request).into_iter().flatten();
        let known = recorded
            .map(|record| record.entry_id.as_str())
            .chain(told.calls.iter().filter_map(|heard| heard.id.as_deref()));
        let mut is_deleted = false;
        for id in known {
            is_deleted |= acts.perhaps_deleted(id, heard.ended_us);
        }
        if !is_deleted {
            self.broken(8, request, "a caller was told deleted, and no operator had deleted it");
        }
    }

    fn told_not_found(&mut self, request: &str, heard: &Heard, acts: &Acts) {
        if let Some(parent) = heard.parent.as_deref()
            && !acts.perhaps_out_of_sight(parent, heard.sent_us, heard.ended_us)
        {
            self.broken(
                9,
                request,
                format!("a reply was refused with not_found, and {parent} was in sight"),
            );
        }
    }
}

impl Deletion {
    fn is_of(&self, entry: &crate::load::history::Entry) -> bool {
        self.kind == entry.kind && self.parent_id == entry.parent_id
    }
}
