//! The states of a request, and the words in which the ledger speaks of them.
//!
//! ```text
//!                    claim                       settle
//!   (no row) ───────────────────────▶ running ───────────▶ done
//!      │                              │  ▲  │
//!      │ claim, act and settle        │  │  │ the fifth lapse
//!      │ in one statement             │  │  └─────────────────▶ failed
//!      ▼                      release │  │ take over, reclaim     │
//!     done                            ▼  │                        │ admin retry
//!                                  released ◀ ─ ─ ─ running ◀─────┘
//! ```
//!
//! `done` never changes again, until retention drops its result and later its row.

use std::sync::Arc;
use std::time::Duration;

use super::effect::Refused;

/// How many lapses of its lease a request survives; with the last one it is `failed`, so that one poisonous request does not
/// take every replica down in turn.
pub const MOST_LAPSES: i32 = 5;

/// A fencing token.
pub type Token = i64;

/// A version byte and the SHA-256 of an operation's name and its canonical arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint(pub [u8; 33]);

impl Fingerprint {
    /// The version this program writes.
    pub const VERSION: u8 = 1;
}

/// Names one request.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Key {
    /// Who calls.
    pub principal: Arc<str>,
    /// The caller's name for its intent.
    pub request_id: Arc<str>,
}

impl Key {
    /// The key in 64 bits: for advisory locks and notifications, where a collision costs a moment and decides nothing.
    pub fn hash64(&self) -> i64 {
        use sha2::{Digest, Sha256};
        let digest = Sha256::new()
            .chain_update(self.principal.as_bytes())
            .chain_update([0])
            .chain_update(self.request_id.as_bytes())
            .finalize();
        i64::from_be_bytes(digest.first_chunk().copied().unwrap_or_default())
    }
}

/// A request as its row shows it.
#[derive(Debug, Clone)]
pub struct Seen {
    /// The operation that claimed it.
    pub operation: String,
    /// Version byte and hash, in the row's own version.
    pub fingerprint: Vec<u8>,
    /// The token of the attempt that holds or held it.
    pub token: Token,
    /// How often it was claimed or taken over.
    pub attempt: i32,
    /// Since it was first claimed.
    pub age: Duration,
    /// The attempt that holds or held it last.
    pub ran: Ran,
    /// What it is doing.
    pub phase: Phase,
}

/// What a request is doing, by the database's clock.
#[derive(Debug, Clone)]
pub enum Phase {
    /// Claimed and not settled.
    Running {
        /// Until the lease lapses; zero when it has.
        lease_left: Duration,
        /// Whether a waiter asked for a notification.
        waiters: bool,
    },
    /// Settled, with its answer.
    Done(Settled),
    /// Settled longer ago than results are kept.
    Expired,
    /// Refused or failed without a trace: free for any arguments.
    Released,
    /// Its lease lapsed [`MOST_LAPSES`] times; a person has to look.
    Failed,
    /// In a state that only a newer release knows, beside which this one runs during an update.
    Newer,
}

/// Which attempt did or does the work, for people and traces; nothing is decided by it.
#[derive(Debug, Clone, PartialEq)]
pub struct Ran {
    /// The replica's name.
    pub replica: Arc<str>,
    /// Counted from 1.
    pub attempt: i32,
    /// Its place in its trace, as `traceparent`; `None` where its spans went nowhere.
    pub place: Option<Arc<str>>,
}

/// What woke a waiter whose request another attempt settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Join {
    /// The attempt ran on the same replica.
    Memory,
    /// A notification.
    Notify,
    /// It looked by itself.
    Poll,
}

impl Join {
    /// Its name in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Notify => "notify",
            Self::Poll => "poll",
        }
    }
}

/// A stored answer: the same bytes for everybody, for ever.
#[derive(Debug, Clone, PartialEq)]
pub struct Settled {
    /// The operation's result as JSON text.
    pub result: Arc<str>,
    /// JSON `{request_id, result_id}` of an earlier request that created the same, if one was found.
    pub duplicate_of: Option<Arc<str>>,
    /// When it was settled: RFC 3339, UTC, milliseconds, the database's clock.
    pub answered_at: Arc<str>,
    /// How long ago that was when the row was read.
    pub age: Duration,
    /// The attempt that did the work.
    pub ran: Ran,
}

/// What a caller is told about its request.
#[derive(Debug, Clone)]
pub enum Verdict {
    /// Done and recorded.
    Settled {
        /// The stored answer.
        settled: Settled,
        /// False once, for the caller whose attempt did the work.
        replayed: bool,
        /// For a caller that waited for another attempt: what woke it.
        joined: Option<Join>,
    },
    /// The operation refused; nothing was changed and the key is free.
    Refused(Refused),
    /// The key was used for something else. Nothing of it is told.
    Conflict,
    /// Five leases lapsed.
    Failed,
    /// Too old to tell.
    Expired {
        /// False when nothing was ever recorded, as far as the ledger can know.
        recorded: bool,
    },
    /// Not known: wholly done or not begun.
    Unavailable(Unavailable),
    /// Not finished within the caller's time; the work goes on.
    InProgress {
        /// Until the running attempt's lease lapses, as far as known.
        lease_left: Option<Duration>,
        /// The running attempt, as far as known.
        runs: Option<Ran>,
    },
    /// This replica is stopping; another one can answer.
    HandedBack,
}

/// Why the ledger cannot tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unavailable {
    /// Postgres is out of reach or overloaded.
    Database,
    /// The row was written by a newer release, whose fingerprints or states this one does not know.
    NewerRelease,
    /// The operation's code failed; nothing was changed.
    Fault,
    /// This replica has as many calls as it may.
    Overloaded,
}
