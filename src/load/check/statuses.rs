//! Rule 1 for what leaves no row of its own: a ticket's status must be explained by the requests that are done.
//!
//! Each of them tells which status it overwrote. So those of one ticket are steps from status to status, which must be one
//! way, in some order, from *open* to the status that the ticket has, with every step taken once. That there is such a way is
//! seen by counting: every status is left as often as it is entered, but for the first and the last; and all steps hang
//! together.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use super::Checker;

/// What a request that is done says of the ticket that it set.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Step {
    ticket_id: String,
    ticket_status: String,
    previous_status: String,
}

/// The status of a ticket that was just created.
const FIRST: &str = "open";

impl Checker<'_> {
    pub(super) fn statuses(&mut self) {
        let tables = self.tables;
        let mut steps: BTreeMap<String, Vec<(&str, Step)>> = BTreeMap::new();
        for (request, row) in &tables.rows {
            if row.operation != "set_ticket_status" || row.status != "done" {
                continue;
            }
            // Without all the steps there is no way to be found.
            if row.result.is_none() && row.may_be_retired() {
                return;
            }
            let told = row.result.as_deref().map(serde_json::from_str::<Step>);
            match told {
                Some(Ok(step)) => steps.entry(step.ticket_id.clone()).or_default().push((request, step)),
                _ => self.broken(4, request, "its result in the ledger cannot be read"),
            }
        }
        let tickets: BTreeMap<&str, &str> = tables
            .effects
            .values()
            .flatten()
            .filter_map(|effect| Some((effect.id.as_str(), effect.status.as_deref()?)))
            .collect();
        for (ticket, steps) in &steps {
            if !tickets.contains_key(ticket.as_str()) {
                let found = format!("it set {ticket}, and there is no such ticket");
                self.broken(4, &requests(steps), found);
            }
        }
        for (request, effects) in &tables.effects {
            for effect in effects {
                let Some(last) = effect.status.as_deref() else {
                    continue;
                };
                let steps = steps.get(&effect.id).map_or(&[][..], Vec::as_slice);
                if !is_one_way(last, steps) {
                    let of = if steps.is_empty() {
                        request.clone()
                    } else {
                        requests(steps)
                    };
                    let found = format!(
                        "{} is {last}, and that is not where {FIRST}{} leads",
                        effect.id,
                        listed(steps)
                    );
                    self.broken(1, &of, found);
                }
            }
        }
    }
}

/// Whether these steps, in some order and each taken once, lead from the first status to `last`.
fn is_one_way(last: &str, steps: &[(&str, Step)]) -> bool {
    let mut left_over: BTreeMap<&str, i64> = BTreeMap::new();
    // As if a last step led back to the beginning.
    *left_over.entry(last).or_default() += 1;
    *left_over.entry(FIRST).or_default() -= 1;
    for (_, step) in steps {
        *left_over.entry(&step.previous_status).or_default() += 1;
        *left_over.entry(&step.ticket_status).or_default() -= 1;
    }
    let mut reached = BTreeSet::from([FIRST]);
    loop {
        let known = reached.len();
        for (_, step) in steps {
            if reached.contains(step.previous_status.as_str()) {
                reached.insert(&step.ticket_status);
            }
        }
        if reached.len() == known {
            break;
        }
    }
    let hang_together = steps
        .iter()
        .all(|(_, step)| reached.contains(step.previous_status.as_str()));
    hang_together && left_over.values().all(|left_over| *left_over == 0)
}

/// The requests of some steps, by name.
fn requests(steps: &[(&str, Step)]) -> String {
    let mut names: Vec<_> = steps.iter().map(|(request, _)| *request).collect();
    names.sort_unstable();
    names.join(", ")
}

fn listed(steps: &[(&str, Step)]) -> String {
    steps
        .iter()
        .map(|(_, step)| format!(", {} → {}", step.previous_status, step.ticket_status))
        .collect()
}
