//! A clock for durations that goes on while the machine or the process is suspended.
//!
//! It compares nothing with anybody else's time: stamps are the database's.

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

/// A moment on this machine's suspend-proof clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(Duration);

// `CLOCK_MONOTONIC` stands still while Linux is suspended, and a lease does not. Elsewhere it runs on.
#[cfg(target_os = "linux")]
const CLOCK: ClockId = ClockId::CLOCK_BOOTTIME;
#[cfg(not(target_os = "linux"))]
const CLOCK: ClockId = ClockId::CLOCK_MONOTONIC;

impl Moment {
    /// This moment.
    pub fn now() -> Self {
        // The clocks named above exist on every system this builds for, so the fallback, which makes every lease look
        // run out (the safe side), is never taken.
        Self(clock_gettime(CLOCK).map_or(Duration::MAX, Duration::from))
    }

    /// Time since this moment; zero when it lies ahead.
    pub fn elapsed(self) -> Duration {
        Self::now().0.saturating_sub(self.0)
    }

    /// This moment and `span` later.
    pub fn after(self, span: Duration) -> Self {
        Self(self.0.saturating_add(span))
    }

    /// Time left until this moment; zero when it has passed.
    pub fn left(self) -> Duration {
        self.0.saturating_sub(Self::now().0)
    }
}
