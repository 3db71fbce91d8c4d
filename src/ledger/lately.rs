//! What happened on this replica lately, in memory: for people who look, by way of its row in `replicas`.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Mutex;

use serde::Serialize;
use tokio::time::Instant;

use super::state::Verdict;
use crate::unpoisoned;

/// Minutes that are remembered.
const MINUTES: usize = 60;
/// Conflicts, and possible duplicates, that are remembered.
const MOST_REMEMBERED: usize = 20;

/// What is remembered.
#[derive(Debug)]
pub(super) struct Lately {
    began: Instant,
    memory: Mutex<Memory>,
}

#[derive(Debug, Default)]
struct Memory {
    /// (minute since the start, calls by outcome), oldest first.
    minutes: VecDeque<(u64, BTreeMap<&'static str, u64>)>,
    conflicts: VecDeque<Happening>,
    duplicates: VecDeque<Happening>,
}

#[derive(Debug, Clone)]
struct Happening {
    at: Instant,
    request_id: String,
    operation: &'static str,
}

/// What is told of it.
#[derive(Debug, Serialize)]
pub(super) struct Told {
    /// Calls by outcome, for each minute that had any: `ago` minutes back.
    minutes: Vec<Minute>,
    conflicts: Vec<ToldHappening>,
    duplicates: Vec<ToldHappening>,
}

#[derive(Debug, Serialize)]
struct Minute {
    ago: u64,
    calls: BTreeMap<&'static str, u64>,
}

#[derive(Debug, Serialize)]
struct ToldHappening {
    ago_s: u64,
    request_id: String,
    operation: &'static str,
}

impl Default for Lately {
    fn default() -> Self {
        Self {
            began: Instant::now(),
            memory: Mutex::default(),
        }
    }
}

impl Lately {
    /// A call of a write came to its verdict.
    pub(super) fn note(&self, request_id: &str, operation: &'static str, verdict: &Verdict) {
        let mut memory = unpoisoned(self.memory.lock());
        let minute = self.minute();
        if memory.minutes.back().is_none_or(|(last, _)| *last != minute) {
            memory.minutes.push_back((minute, BTreeMap::new()));
            if memory.minutes.len() > MINUTES {
                memory.minutes.pop_front();
            }
        }
        if let Some((_, calls)) = memory.minutes.back_mut() {
            *calls.entry(outcome(verdict)).or_default() += 1;
        }
        let happening = || Happening {
            at: Instant::now(),
            request_id: request_id.to_owned(),
            operation,
        };
        match verdict {
            Verdict::Conflict => remember(&mut memory.conflicts, happening()),
            Verdict::Settled {
                settled,
                replayed: false,
                ..
            } if settled.duplicate_of.is_some() => {
                remember(&mut memory.duplicates, happening());
            }
            _ => {}
        }
    }

    /// What is told of the last hour.
    pub(super) fn told(&self) -> Told {
        let memory = unpoisoned(self.memory.lock());
        let now = self.minute();
        let happenings = |list: &VecDeque<Happening>| {
            let told = list.iter().map(|happening| ToldHappening {
                ago_s: happening.at.elapsed().as_secs(),
                request_id: happening.request_id.clone(),
                operation: happening.operation,
            });
            told.collect()
        };
        let minutes = memory.minutes.iter().map(|(minute, calls)| Minute {
            ago: now - minute,
            calls: calls.clone(),
        });
        Told {
            minutes: minutes.filter(|minute| minute.ago < MINUTES as u64).collect(),
            conflicts: happenings(&memory.conflicts),
            duplicates: happenings(&memory.duplicates),
        }
    }

    fn minute(&self) -> u64 {
        self.began.elapsed().as_secs() / 60
    }
}

fn remember(list: &mut VecDeque<Happening>, happening: Happening) {
    list.push_back(happening);
    if list.len() > MOST_REMEMBERED {
        list.pop_front();
    }
}

fn outcome(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Settled { replayed: false, .. } => "done",
        Verdict::Settled { replayed: true, .. } => "replayed",
        Verdict::InProgress { .. } => "in_progress",
        Verdict::Conflict => "conflict",
        Verdict::Refused(_) | Verdict::Expired { .. } | Verdict::Failed => "refused",
        Verdict::Unavailable(_) => "unavailable",
        Verdict::HandedBack => "handed_back",
    }
}
