//! When Postgres was last out of reach.
//!
//! After an outage every lease has lapsed although its holder may be alive. A replica therefore takes nothing over until it
//! has reached Postgres for one lease without a failure, so that live holders renew first.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::clock::Moment;

/// Shared by everything in a replica that talks to Postgres.
#[derive(Debug, Default)]
pub struct Reach {
    last_failure: Mutex<Option<Moment>>,
    /// Since when nothing has answered.
    unreachable_since: Mutex<Option<Moment>>,
    answered_once: AtomicBool,
    losses: AtomicU64,
}

impl Reach {
    /// Notes that Postgres could not be reached just now.
    pub fn failed(&self) {
        let now = Moment::now();
        *crate::unpoisoned(self.last_failure.lock()) = Some(now);
        crate::unpoisoned(self.unreachable_since.lock()).get_or_insert(now);
        self.losses.fetch_add(1, Ordering::Relaxed);
    }

    /// How often a connection failed so far.
    pub fn losses(&self) -> u64 {
        self.losses.load(Ordering::Relaxed)
    }

    /// Notes that Postgres answered just now.
    pub fn answered(&self) {
        self.answered_once.store(true, Ordering::Relaxed);
        *crate::unpoisoned(self.unreachable_since.lock()) = None;
    }

    /// Whether Postgres answered the last time that it was asked.
    pub fn is_reachable(&self) -> bool {
        self.answered_once.load(Ordering::Relaxed) && self.unreachable_for().is_none()
    }

    /// How long nothing has answered; `None` when the last attempt succeeded.
    pub fn unreachable_for(&self) -> Option<Duration> {
        crate::unpoisoned(self.unreachable_since.lock()).map(Moment::elapsed)
    }

    /// How long Postgres has been reached without a failure; `None` when it never failed.
    pub fn steady_for(&self) -> Option<Duration> {
        crate::unpoisoned(self.last_failure.lock()).map(|failure| failure.elapsed())
    }
}
