//! Named crash points before and after every commit.
//!
//! In a debug build `TICKET_LEDGER_FAULT=settle.before_commit:exit` ends the process at that point, without any clean-up,
//! and `…:stop` stops all of it there, as SIGSTOP does, until somebody continues it; both the first time it comes by. In a
//! release build a point is nothing.

/// The names, in the order in which a request passes them; the tests walk all of them.
pub const POINTS: &[&str] = &[
    "one_step.before_commit",
    "one_step.after_commit",
    "claim.before_commit",
    "claim.after_commit",
    "renew.before_commit",
    "renew.after_commit",
    "work.done",
    "settle.before_commit",
    "settle.after_commit",
    "release.before_commit",
    "release.after_commit",
    "hand_back.before_commit",
    "hand_back.after_commit",
    "take_over.before_commit",
    "take_over.after_commit",
];

/// A crash point.
#[cfg(debug_assertions)]
pub fn point(name: &str) {
    debug_assert!(POINTS.contains(&name), "{name} is not listed");
    active::reached(name);
}

/// A crash point.
#[cfg(not(debug_assertions))]
#[inline(always)]
pub fn point(_name: &str) {}

#[cfg(debug_assertions)]
mod active {
    use std::sync::LazyLock;
    use std::sync::atomic::{AtomicBool, Ordering};

    use nix::sys::signal::{Signal, raise};

    static WANTED: LazyLock<Option<(String, Signal)>> = LazyLock::new(|| {
        let setting = std::env::var("TICKET_LEDGER_FAULT").ok()?;
        let (name, effect) = setting.split_once(':')?;
        // Not `std::process::exit`: nothing may be cleaned up on the way out.
        let signal = match effect {
            "exit" => Signal::SIGKILL,
            _ => Signal::SIGSTOP,
        };
        Some((name.to_owned(), signal))
    });
    static SPENT: AtomicBool = AtomicBool::new(false);

    pub(super) fn reached(name: &str) {
        let Some((wanted, signal)) = &*WANTED else {
            return;
        };
        if wanted != name || SPENT.swap(true, Ordering::SeqCst) {
            return;
        }
        tracing::warn!(name, "crash point");
        let _ = raise(*signal);
    }
}
