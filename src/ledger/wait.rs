//! Waking the waiters of this replica: from memory when the attempt ran here, from a notification when it ran elsewhere.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use tokio::sync::Notify;
use tokio::sync::futures::OwnedNotified;

use crate::postgres::Heard;
use crate::unpoisoned;

/// Who waits for which key, by the key's hash.
#[derive(Debug, Default)]
pub(super) struct Waiters(Mutex<HashMap<i64, (usize, Arc<Notify>)>>);

impl Waiters {
    /// Registers. Whoever registers before it reads misses no wake-up.
    pub(super) fn register(self: &Arc<Self>, key_hash: i64) -> Registered {
        let mut waiters = unpoisoned(self.0.lock());
        let (count, notify) = waiters.entry(key_hash).or_default();
        *count += 1;
        Registered {
            waiters: Arc::clone(self),
            key_hash,
            notify: Arc::clone(notify),
        }
    }

    /// How many wait.
    pub(super) fn len(&self) -> usize {
        unpoisoned(self.0.lock()).values().map(|(count, _)| count).sum()
    }
}

impl Heard for Waiters {
    fn key(&self, key_hash: i64) {
        if let Some((_, notify)) = unpoisoned(self.0.lock()).get(&key_hash) {
            notify.notify_waiters();
        }
    }

    fn everything(&self) {
        for (_, notify) in unpoisoned(self.0.lock()).values() {
            notify.notify_waiters();
        }
    }
}

/// A place among the waiters, given up when dropped.
pub(super) struct Registered {
    waiters: Arc<Waiters>,
    key_hash: i64,
    notify: Arc<Notify>,
}

impl Registered {
    /// A wake-up that counts from this call on, not from its first poll.
    pub(super) fn next(&self) -> OwnedNotified {
        Arc::clone(&self.notify).notified_owned()
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
