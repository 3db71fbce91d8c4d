//! Waking the waiters of this replica: from memory when the attempt ran here, from a notification when it ran elsewhere.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use tokio::sync::Notify;
use tokio::sync::futures::OwnedNotified;

use super::state::Join;
use crate::postgres::Heard;
use crate::unpoisoned;

/// Who waits for which key, by the key's hash.
#[derive(Debug, Default)]
pub(super) struct Waiters(Mutex<HashMap<i64, (usize, Arc<Bell>)>>);

/// What wakes the waiters of one key, and what rang it last.
#[derive(Debug, Default)]
struct Bell {
    notify: Arc<Notify>,
    rung_here: AtomicBool,
}

impl Waiters {
    /// Registers. Whoever registers before it reads misses no wake-up.
    pub(super) fn register(self: &Arc<Self>, key_hash: i64) -> Registered {
        let mut waiters = unpoisoned(self.0.lock());
        let (count, bell) = waiters.entry(key_hash).or_default();
        *count += 1;
        Registered {
            waiters: Arc::clone(self),
            key_hash,
            bell: Arc::clone(bell),
        }
    }

    /// An attempt of this replica settled the request with this key hash.
    pub(super) fn settled_here(&self, key_hash: i64) {
        self.ring(key_hash, true);
    }

    fn ring(&self, key_hash: i64, here: bool) {
        if let Some((_, bell)) = unpoisoned(self.0.lock()).get(&key_hash) {
            bell.rung_here.fetch_or(here, Ordering::Relaxed);
            bell.notify.notify_waiters();
        }
    }

    /// How many wait.
    pub(super) fn len(&self) -> usize {
        unpoisoned(self.0.lock()).values().map(|(count, _)| count).sum()
    }
}

impl Heard for Waiters {
    fn key(&self, key_hash: i64) {
        self.ring(key_hash, false);
    }

    fn everything(&self) {
        for (_, bell) in unpoisoned(self.0.lock()).values() {
            bell.notify.notify_waiters();
        }
    }
}

/// A place among the waiters, given up when dropped.
pub(super) struct Registered {
    waiters: Arc<Waiters>,
    key_hash: i64,
    bell: Arc<Bell>,
}

impl Registered {
    /// A wake-up that counts from this call on, not from its first poll.
    pub(super) fn next(&self) -> OwnedNotified {
        Arc::clone(&self.bell.notify).notified_owned()
    }

    /// What woke it.
    pub(super) fn woken_by(&self) -> Join {
        if self.bell.rung_here.load(Ordering::Relaxed) {
            Join::Memory
        } else {
            Join::Notify
        }
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        let mut waiters = unpoisoned(self.waiters.0.lock());
        if let Some((count, _)) = waiters.get_mut(&self.key_hash) {
            *count -= 1;
            if *count == 0 {
                waiters.remove(&self.key_hash);
            }
        }
    }
}
