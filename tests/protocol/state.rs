//! What there is in the model of the ledger's protocol: keys with their rows, replicas with their flights, statements under way.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

/// How long a claim holds unrenewed, in ticks. Its holder counts on one tick less.
pub const LEASE: u8 = 2;
/// The lapses that make a request `failed`: two of the five, so that few faults get there.
pub const MOST_LAPSES: u8 = 2;
pub const KEYS: usize = 2;
pub const REPLICAS: usize = 3;

/// A fencing token; 0 is nobody's.
pub type Token = u8;

/// How an operation gets to its effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// Claim, effect and settlement are one statement.
    OneStep,
    /// A claim, the work, then effect and settlement.
    TwoStep,
}

/// What is broken on purpose, to see which property notices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Broken {
    Nothing,
    /// Settling looks neither at the token nor at the status.
    Fence,
    /// An attempt's number stands in for the token, and a released row counts from 1 again.
    AttemptNumber,
    /// A lost acknowledgement is taken for a commit, and the row not read again.
    RereadAfterLoss,
    /// A claim that met a row takes it for its own, and does not read it.
    RereadAfterConflict,
    /// Replicas stamp and compare leases by clocks of their own; the first one's is a lease ahead.
    Clock,
    /// A waiter reads, then registers, and does not read again.
    RegisterBeforeRead,
    /// An attempt that failed tells so without a look at who has the claim by now.
    LookAfterFailure,
    /// A flight that nobody waits on claims a released request again.
    ReclaimForCallers,
}

/// What is to be checked.
#[derive(Debug, Clone)]
pub struct Protocol {
    pub replicas: usize,
    pub ways: Vec<Way>,
    pub faults: u8,
    pub broken: Broken,
    /// Whether a waiter looks by itself, without being woken.
    pub polls: bool,
    /// Whether notifications get lost.
    pub lossy: bool,
    /// Takes states for one that differ in names alone. Off where steps are to be read: on, replicas swap names on the way.
    pub nameless: bool,
    /// Ticks until everything is over, of states that were left alone already.
    pub left_alone: Arc<Mutex<HashMap<u64, u8>>>,
}

/// What a flight does next. `Enter` to `HandBack` but `Wait` are statements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub enum Step {
    /// No flight.
    #[default]
    Rest,
    Enter,
    Reclaim,
    TakeOver,
    Look,
    Register,
    /// The look after registering.
    Read,
    Wait,
    /// Holds a claim and works; what comes next is to settle.
    Work,
    /// Settles again, because the first time had no answer.
    Settle,
    Release,
    HandBack,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub enum Caller {
    #[default]
    NotYet,
    /// The flight was started for it.
    First,
    /// It boarded a flight that had been started by the scan.
    Joined,
    /// Answered, or left.
    Gone,
}

/// A replica's flight for one key, and its caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Flight {
    pub caller: Caller,
    pub step: Step,
    pub took_over: bool,
    /// Ticks for which it counts on its lease.
    pub certain: u8,
    /// A notification is on its way to it.
    pub note: bool,
    /// What the next statement carries, and the token that it expects in the row.
    pub token: Token,
    pub expected: Token,
    /// Tokens under which it sent a claim, a bit each.
    pub mine: u32,
}

impl Flight {
    pub fn has_caller(&self) -> bool {
        matches!(self.caller, Caller::First | Caller::Joined)
    }
    pub fn holds(&self) -> bool {
        matches!(self.step, Step::Work | Step::Settle | Step::Release | Step::HandBack)
    }
    pub fn claims(&mut self, step: Step, expected: Token, token: Token) {
        (self.step, self.expected, self.token) = (step, expected, token);
        self.mine |= 1 << token;
    }
    pub fn end(&mut self) {
        let caller = if self.has_caller() { Caller::Gone } else { self.caller };
        *self = Self {
            caller,
            ..Self::default()
        };
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub enum Condition {
    Up,
    /// SIGSTOP, or merely slow: it knows less and less.
    Paused,
    Draining,
    #[default]
    Dead,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Replica {
    pub condition: Condition,
    pub flights: [Flight; KEYS],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub enum Status {
    /// No row.
    #[default]
    Free,
    Running,
    Done,
    Released,
    Failed,
}

/// A key's row, and what an onlooker remembers of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Key {
    pub status: Status,
    pub token: Token,
    /// Who settled it stands for what it answered.
    pub result: Token,
    pub lease: u8,
    pub handed_back: bool,
    pub waiters: bool,
    pub lapses: u8,
    /// The sequence.
    pub drawn: Token,
    pub effects: u8,
    pub fresh: u8,
    pub told: Token,
    pub is_told_otherwise: bool,
    pub is_stale: bool,
    pub is_denied: bool,
    pub is_unasked: bool,
    pub is_reclaimed: bool,
}

/// A statement whose sender has given up on it. Postgres may execute it at any time, or never: if at once, only its
/// acknowledgement was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Late {
    pub replica: usize,
    pub key: usize,
    pub flight: Flight,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct State {
    pub keys: [Key; KEYS],
    pub replicas: [Replica; REPLICAS],
    pub late: Option<Late>,
    pub faults: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    Call(usize, usize),
    /// The caller goes; the flight may not notice before it waits.
    Leave(usize, usize),
    /// The flight's next statement is executed and answered.
    Next(usize, usize),
    Wake(usize, usize),
    Scan(usize, usize),
    HandBack(usize, usize),
    /// All that is awake renews its claims, a tick passes, and waiters poll.
    Tick,
    Late,
    Resume(usize),
    Restart(usize),
    Stop(usize),
    // Faults.
    Crash(usize),
    Pause(usize),
    Drain(usize),
    /// The work fails or is refused.
    Fail(usize, usize),
    /// A statement has no answer: it is sent again.
    Lose(usize, usize),
    /// A statement has no answer: the caller is told `unavailable`.
    GiveUp(usize, usize),
    LoseNote(usize, usize),
}
