//! Rules 1 to 4: what was told, what the ledger holds, and what is there.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::Checker;
use super::acts::Acts;
use super::tables::Effect;
use super::told::{Done, Sent, Told};

impl Sent {
    /// Whether a row in a table is its effect.
    fn creates(&self) -> bool {
        matches!(self.tool.as_str(), "create_ticket" | "add_comment" | "post_entry")
    }
}

/// A result as find_request tells it: alone, without what an answer puts around it.
fn bare(result: &BTreeMap<String, Value>) -> BTreeMap<String, Value> {
    let mut bare = result.clone();
    bare.remove("answered_at");
    bare.remove("possible_duplicate_of");
    // Rule 9's.
    bare.remove("visible");
    bare
}

impl Checker<'_> {
    /// Rule 1.
    pub(super) fn effects_of(&mut self, request: &str, told: &Told) {
        let tables = self.tables;
        let effects = tables.effects.get(request).map_or(&[][..], Vec::as_slice);
        if effects.len() > 1 {
            let ids: Vec<_> = effects.iter().map(|effect| effect.id.as_str()).collect();
            self.broken(1, request, format!("{} effects: {}", effects.len(), ids.join(", ")));
        }
        let creates = |done: &Done| done.sent.as_ref().is_some_and(Sent::creates);
        // Of an entry that was deleted, rule 8 says what there must be.
        if told.done.iter().any(creates) && effects.is_empty() && !tables.deletions.contains_key(request) {
            self.broken(1, request, "a caller was told done, and there is no effect");
        }
        for done in &told.done {
            let (Some(sent), [effect]) = (&done.sent, effects) else {
                continue;
            };
            if sent.creates() && !effect.carries(&sent.mark) {
                let found = format!("the effect {} is not of the call that was told done", effect.id);
                self.broken(1, request, found);
            }
        }
        for effect in effects {
            self.content_of(request, told, effect);
        }
    }

    /// Whether an effect is what was sent.
    fn content_of(&mut self, request: &str, told: &Told, effect: &Effect) {
        let Some(sent) = told.sent.iter().find(|sent| effect.carries(&sent.mark)) else {
            if self.verdict.complete {
                self.broken(
                    1,
                    request,
                    format!("the effect {} is of no call that was sent", effect.id),
                );
            }
            return;
        };
        if sent.body_sha256.as_ref() != Some(&effect.body_sha256) {
            self.broken(
                1,
                request,
                format!("the body of {} is not the one that was sent", effect.id),
            );
        }
        if effect.entry != sent.entry {
            let found = format!("{} is {:?}, and {:?} was sent", effect.id, effect.entry, sent.entry);
            self.broken(1, request, found);
        }
        if effect.ticket != sent.ticket {
            let found = format!(
                "{} is under {}, and was sent for {}",
                effect.id,
                effect.ticket.as_deref().unwrap_or("no ticket"),
                sent.ticket.as_deref().unwrap_or("no ticket")
            );
            self.broken(1, request, found);
        }
    }

    /// Rule 2.
    pub(super) fn results_of(&mut self, request: &str, told: &Told) {
        let fresh = told.done.iter().filter(|done| done.fresh).count();
        if fresh > 1 {
            self.broken(2, request, format!("{fresh} answers with replayed: false"));
        }
        let moments: BTreeSet<_> = told
            .done
            .iter()
            .filter_map(|done| done.result.get("answered_at")?.as_str())
            .collect();
        if moments.len() > 1 {
            let moments: Vec<_> = moments.into_iter().collect();
            self.broken(2, request, format!("answered at {}", moments.join(" and at ")));
        }
        let mut different = told.done.iter().map(|done| bare(&done.result)).collect::<Vec<_>>();
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
    pub(super) fn conflicts_of(&mut self, request: &str, told: &Told, acts: &Acts) {
        let tables = self.tables;
        let conflicts = || told.calls.iter().filter(|heard| heard.outcome == "conflict");
        if conflicts().next().is_some() && told.sent.len() < 2 && self.verdict.complete {
            self.broken(
                7,
                request,
                "answered with conflict, and nothing else was sent under this request_id",
            );
        }
        // A refusal frees the key: what was in conflict with a call that was refused afterwards may be done by a repeat.
        let may_be_freed = told.may_have_been_refused(acts) || self.limit_global != Some(0);
        for heard in conflicts() {
            let Some(refused) = &heard.sent else { continue };
            let done = told
                .calls
                .iter()
                .filter(|call| call.outcome == "done" && call.sent == heard.sent);
            let first_done_us = done.map(|call| call.ended_us).min().unwrap_or(u64::MAX);
            if may_be_freed && heard.sent_us < first_done_us {
                continue;
            }
            let effects = tables.effects.get(request).map_or(&[][..], Vec::as_slice);
            if let Some(effect) = effects.iter().find(|effect| effect.carries(&refused.mark)) {
                self.broken(
                    3,
                    request,
                    format!("a call was refused with conflict, and has the effect {}", effect.id),
                );
            }
            if told.done.iter().any(|done| done.sent.as_ref() == Some(refused)) {
                self.broken(3, request, "the same call was told conflict and done");
            }
        }
    }

    /// Rule 4, from what was told to the ledger.
    pub(super) fn ledger_of(&mut self, request: &str, told: &Told) {
        if told.done.is_empty() {
            return;
        }
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
        let told_at = |done: &Done| {
            done.result
                .get("answered_at")
                .is_some_and(|at| at.as_str() != row.answered_at.as_deref())
        };
        if row.status != "done" {
            self.broken(
                4,
                request,
                format!("a result was told, and the ledger says {}", row.status),
            );
        } else if told.done.iter().any(told_at) {
            self.broken(4, request, "the answered_at told is not when the ledger settled it");
        } else if row.result.is_none() && (tables.deletions.contains_key(request) || row.may_be_retired()) {
            // Scrubbed, or dropped for its age.
        } else if told.done.iter().any(|done| bare(&done.result) != stored) {
            self.broken(4, request, "the result told is not the one in the ledger");
        }
    }

    /// Rule 4, from the effects to the ledger; and rule 3 for attempts that lost their lease: their effect is not the one
    /// that the ledger tells of.
    pub(super) fn orphans(&mut self) {
        let tables = self.tables;
        for (request, effects) in &tables.effects {
            let row = tables.rows.get(request).filter(|row| row.status == "done");
            if row.is_some_and(|row| row.result.is_none() && row.may_be_retired()) {
                continue;
            }
            let told = row.and_then(|row| row.result.as_deref());
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
