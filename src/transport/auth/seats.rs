//! How many calls each principal has under way on this replica: nobody's calls keep out another's.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex};

use crate::unpoisoned;

/// The calls under way, by principal.
#[derive(Clone)]
pub struct Seats {
    most: usize,
    taken: Arc<Mutex<HashMap<Arc<str>, usize>>>,
}

/// One call under way; it is over when this is dropped.
pub struct Seat {
    seats: Seats,
    principal: Arc<str>,
    /// Whether there were too many before it.
    pub crowded: bool,
}

impl Seats {
    /// `most` for each principal, and as many again that are told what is recorded.
    pub fn new(most: usize) -> Self {
        Self {
            most,
            taken: Arc::default(),
        }
    }

    /// A seat; `None` when there are too many even for being told what is recorded.
    pub fn take(&self, principal: &Arc<str>) -> Option<Seat> {
        let mut taken = unpoisoned(self.taken.lock());
        let count = taken.entry(Arc::clone(principal)).or_default();
        if *count >= self.most.saturating_mul(2) {
            return None;
        }
        *count += 1;
        Some(Seat {
            seats: self.clone(),
            principal: Arc::clone(principal),
            crowded: *count > self.most,
        })
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut taken = unpoisoned(self.seats.taken.lock());
        if let Entry::Occupied(mut count) = taken.entry(Arc::clone(&self.principal)) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::Seats;

    #[test]
    fn one_principals_calls_leave_anothers_their_seats_and_nobody_is_remembered() {
        let seats = Seats::new(2);
        let (anna, bert): (Arc<str>, Arc<str>) = ("anna".into(), "bert".into());
        let taken: Vec<_> = (0..6).map_while(|_| seats.take(&anna)).collect();
        let crowded: Vec<_> = taken.iter().map(|seat| seat.crowded).collect();
        assert_eq!(crowded, [false, false, true, true]);
        assert!(!seats.take(&bert).expect("a seat").crowded);
        drop(taken);
        assert!(seats.taken.lock().expect("unpoisoned").is_empty());
        assert!(!seats.take(&anna).expect("a seat").crowded);
    }
}
