//! What an operator did during a run, and when it was so: surely, or perhaps.

use std::collections::{BTreeMap, HashMap};

use crate::load::history::Record;

/// A time during which something was so: surely since `told_us`, when the act that began it had been done, until
/// `ending_us`, when the act that ended it was begun; perhaps since `begun_us` and until `ended_us`. What is not in the history
/// is `u64::MAX`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Spell {
    begun_us: u64,
    told_us: u64,
    ending_us: u64,
    ended_us: u64,
}

impl Spell {
    fn begun(at_us: u64) -> Self {
        Self {
            begun_us: at_us,
            told_us: u64::MAX,
            ending_us: u64::MAX,
            ended_us: u64::MAX,
        }
    }

    /// Whether it was so during all of this time.
    fn surely_was(&self, from_us: u64, to_us: u64) -> bool {
        self.told_us <= from_us && to_us <= self.ending_us
    }

    /// Whether it may have been so at some moment of this time.
    fn perhaps_was(&self, from_us: u64, to_us: u64) -> bool {
        self.begun_us <= to_us && from_us <= self.ended_us
    }
}

/// An operator's acts.
#[derive(Debug, Default)]
pub(super) struct Acts {
    stops: Vec<Spell>,
    hidden: HashMap<String, Vec<Spell>>,
    deleted: BTreeMap<String, Spell>,
    /// Entries of which an operator was told that there are none.
    unknown: Vec<String>,
}

impl Acts {
    /// Reads them from a history.
    pub fn of(records: &[Record]) -> Self {
        let mut acts = Self::default();
        for record in records {
            if let Record::Acted {
                at_us,
                act,
                entry,
                phase,
                outcome,
            } = record
            {
                let entry = entry.clone().unwrap_or_default();
                if outcome.as_deref() == Some("unknown") {
                    acts.unknown.push(entry.clone());
                }
                acts.note(*at_us, act, entry, phase == "begin");
            }
        }
        acts
    }

    fn note(&mut self, at_us: u64, act: &str, entry: String, begins: bool) {
        let spells = match act {
            "hide" | "unhide" => self.hidden.entry(entry).or_default(),
            "delete" if begins => {
                self.deleted.entry(entry).or_insert_with(|| Spell::begun(at_us));
                return;
            }
            "delete" => {
                if let Some(spell) = self.deleted.get_mut(&entry) {
                    spell.told_us = spell.told_us.min(at_us);
                }
                return;
            }
            _ => &mut self.stops,
        };
        let starts = matches!(act, "hide" | "stop-writes");
        if starts && begins {
            spells.push(Spell::begun(at_us));
            return;
        }
        let Some(last) = spells.last_mut() else { return };
        match (starts, begins) {
            (true, _) => last.told_us = at_us,
            (false, true) => last.ending_us = at_us,
            (false, false) => last.ended_us = at_us,
        }
    }

    /// The deletions, by the entries' ids, and whether an operator was told that they are done.
    pub fn deletions(&self) -> impl Iterator<Item = (&str, bool)> {
        self.deleted
            .iter()
            .map(|(id, spell)| (id.as_str(), spell.told_us < u64::MAX))
    }

    /// Entries of which an operator was told that there are none.
    pub fn unknown(&self) -> &[String] {
        &self.unknown
    }

    /// Whether this entry was surely deleted before this moment.
    pub fn surely_deleted(&self, id: &str, before_us: u64) -> bool {
        self.deleted.get(id).is_some_and(|spell| spell.told_us <= before_us)
    }

    /// Whether the deletion of this entry had been begun by this moment.
    pub fn perhaps_deleted(&self, id: &str, by_us: u64) -> bool {
        self.deleted.get(id).is_some_and(|spell| spell.begun_us <= by_us)
    }

    /// Whether this entry was surely hidden or deleted during all of this time.
    pub fn surely_out_of_sight(&self, id: &str, from_us: u64, to_us: u64) -> bool {
        self.surely_deleted(id, from_us) || self.spells(id).any(|spell| spell.surely_was(from_us, to_us))
    }

    /// Whether this entry may have been hidden or deleted at some moment of this time.
    pub fn perhaps_out_of_sight(&self, id: &str, from_us: u64, to_us: u64) -> bool {
        self.perhaps_deleted(id, to_us) || self.spells(id).any(|spell| spell.perhaps_was(from_us, to_us))
    }

    /// Whether writes were surely stopped during all of this time.
    pub fn surely_stopped(&self, from_us: u64, to_us: u64) -> bool {
        self.stops.iter().any(|spell| spell.surely_was(from_us, to_us))
    }

    /// Whether writes may have been stopped at some moment of this time.
    pub fn perhaps_stopped(&self, from_us: u64, to_us: u64) -> bool {
        self.stops.iter().any(|spell| spell.perhaps_was(from_us, to_us))
    }

    fn spells(&self, id: &str) -> impl Iterator<Item = &Spell> {
        self.hidden.get(id).into_iter().flatten()
    }
}
