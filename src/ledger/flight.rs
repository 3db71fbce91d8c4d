//! A flight: one request on its way through this replica, whoever and how many wait for it.
//!
//! It claims, or joins the attempt that holds the claim, or takes over one that lapsed, until it knows a verdict. Callers
//! board it and leave it as they like; an attempt that has a claim goes on without them.

use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt;
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use tracing::{Span, error, warn};

use super::claim::Wanted;
use super::course::{Memory, Step};
use super::effect::Act;
use super::settle::Item;
use super::state::{Fingerprint, Key, Ran, Token, Unavailable, Verdict};
use super::{Ledger, Store};
use crate::clock::Moment;
use crate::postgres::DatabaseError;
use crate::telemetry::trace;
use crate::{sabotage, unpoisoned};

/// Pauses between attempts to reach Postgres.
const RETRY: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(500));

/// One call of a write, ready for the ledger.
#[derive(Clone)]
pub struct Intent {
    /// Whose request it is.
    pub key: Key,
    /// What it asks for.
    pub fingerprint: Fingerprint,
    /// The canonical arguments as JSON text.
    pub arguments: String,
    /// When a UUIDv7 key says that it was made, in milliseconds since 1970; `None` for any other key.
    pub minted_ms: Option<i64>,
    /// By which way it came, for operations that tell; nothing is decided by it and a repeat may come by another.
    pub origin: Arc<str>,
    /// The operation.
    pub act: Arc<dyn Act>,
}

/// The flight has a verdict, or nobody wants one any more.
pub(super) enum End {
    Verdict(Verdict),
    Unwanted,
}

impl From<Verdict> for End {
    fn from(verdict: Verdict) -> Self {
        Self::Verdict(verdict)
    }
}

/// Where a caller awaits the verdict.
pub(super) type Seat = watch::Receiver<Option<Verdict>>;

pub(super) struct Flight {
    pub(super) intent: Intent,
    pub(super) key_hash: i64,
    pub(super) ledger: Arc<Ledger>,
    verdict: watch::Sender<Option<Verdict>>,
    /// When the lease of the attempt that is waited for lapses, as far as known.
    pub(super) lapses_at: Mutex<Option<Moment>>,
    /// The attempt that is waited for, as far as known.
    runs: Mutex<Option<Ran>>,
    /// Everything that this flight does is below it.
    pub(super) span: Span,
    /// The span's place in its trace, which is kept beside what this flight does.
    pub(super) place: Option<Arc<str>>,
    /// Whether an attempt of this replica is at work under its claim.
    pub(super) working: AtomicBool,
    /// Whether a caller was told at its deadline that the request is in progress.
    past_deadline: AtomicBool,
    waits: Mutex<Waits>,
}

/// How long a flight has waited for other attempts.
#[derive(Default)]
struct Waits {
    over: Duration,
    since: Option<Instant>,
}

impl Flight {
    /// `span` is the caller's, or a root of its own where nobody called.
    pub(super) fn new(ledger: &Arc<Ledger>, intent: Intent, span: Span) -> Self {
        Self {
            runs: Mutex::new(None),
            place: trace::place(&span).map(Into::into),
            span,
            key_hash: intent.key.hash64(),
            intent,
            ledger: Arc::clone(ledger),
            verdict: watch::Sender::new(None),
            lapses_at: Mutex::new(None),
            working: AtomicBool::new(false),
            past_deadline: AtomicBool::new(false),
            waits: Mutex::default(),
        }
    }

    pub(super) fn note_deadline(&self) {
        self.past_deadline.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_past_deadline(&self) -> bool {
        self.past_deadline.load(Ordering::Relaxed)
    }

    pub(super) fn begin_wait(&self) {
        unpoisoned(self.waits.lock()).since = Some(Instant::now());
    }

    pub(super) fn end_wait(&self) {
        let mut waits = unpoisoned(self.waits.lock());
        if let Some(since) = waits.since.take() {
            waits.over += since.elapsed();
        }
    }

    /// How long it has waited for other attempts so far.
    pub(super) fn waited(&self) -> Duration {
        let waits = unpoisoned(self.waits.lock());
        waits.over + waits.since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// A seat from which the verdict can be awaited.
    pub(super) fn board(&self) -> Seat {
        self.verdict.subscribe()
    }

    pub(super) fn has_callers(&self) -> bool {
        self.verdict.receiver_count() > 0
    }

    pub(super) fn is_working(&self) -> bool {
        self.working.load(Ordering::Relaxed)
    }

    /// The attempt that is waited for, as far as known.
    pub(super) fn runs(&self) -> Option<Ran> {
        unpoisoned(self.runs.lock()).clone()
    }

    pub(super) fn note_runs(&self, ran: Ran) {
        *unpoisoned(self.runs.lock()) = Some(ran);
    }

    pub(super) fn lease_left(&self) -> Option<Duration> {
        unpoisoned(self.lapses_at.lock()).map(Moment::left)
    }

    /// Flies for its callers.
    pub(super) async fn fly(self: Arc<Self>) {
        self.land(self.course(Memory::default(), Step::Enter)).await;
    }

    /// Takes over a lapsed claim that the scan found.
    pub(super) async fn adopt(self: Arc<Self>, lapsed: Token, ran: Ran) {
        let course = async {
            let mut memory = Memory::default();
            match self.take_over(&mut memory, lapsed, &ran, "scan").await? {
                Some(step) => self.course(memory, step).await,
                // Somebody else was quicker. Whoever boarded meanwhile waits for that one.
                None if self.ledger.retire_if_unwanted(&self) => Err(End::Unwanted),
                None => self.course(memory, Step::Look).await,
            }
        };
        self.land(course).await;
    }

    /// Tells the verdict of a course, whatever happens on it.
    async fn land(&self, course: impl Future<Output = Result<Verdict, End>>) {
        let end = AssertUnwindSafe(course).catch_unwind().await;
        match end {
            Ok(Ok(verdict) | Err(End::Verdict(verdict))) => self.tell(verdict),
            Ok(Err(End::Unwanted)) => self.tell(Verdict::InProgress {
                lease_left: None,
                runs: None,
            }),
            Err(_) => self.tell(Verdict::Unavailable(Unavailable::Fault)),
        }
    }

    /// Tells everybody on board. Later callers start a flight of their own.
    pub(super) fn tell(&self, verdict: Verdict) {
        self.ledger.retire(self);
        self.verdict.send_if_modified(|told| {
            let first = told.is_none();
            if first {
                *told = Some(verdict);
            }
            first
        });
    }

    pub(super) fn store(&self) -> &Arc<Store> {
        &self.ledger.store
    }

    pub(super) fn act(&self) -> &dyn Act {
        self.intent.act.as_ref()
    }

    pub(super) async fn draw(&self) -> Result<Token, End> {
        let mut patience = Patience::default();
        loop {
            match self.store().tokens.draw(&self.store().database).await {
                Ok(token) => return Ok(sabotage::token(token, 0)),
                Err(error) => self.bear(&mut patience, error).await?,
            }
        }
    }

    /// Waits before another attempt at a statement, or ends the flight when there is no use or no patience left.
    pub(super) async fn bear(&self, patience: &mut Patience, error: DatabaseError) -> Result<(), End> {
        if !error.is_transient() {
            return Err(self.refused_by_schema(&error).into());
        }
        if patience.is_over(self.store()) {
            warn!(%error, request_id = %self.intent.key.request_id, "Postgres gives no answer");
            return Err(Verdict::Unavailable(Unavailable::Database).into());
        }
        tokio::select! {
            () = sleep(patience.pause()) => Ok(()),
            () = self.ledger.hand_back.cancelled() => Err(Verdict::HandedBack.into()),
        }
    }

    /// Waits while somebody waits for the verdict.
    pub(super) async fn pause(&self, pause: Duration) -> Result<(), End> {
        tokio::select! {
            () = sleep(pause) => Ok(()),
            () = self.ledger.hand_back.cancelled() => Err(Verdict::HandedBack.into()),
            () = self.unwanted() => Err(End::Unwanted),
        }
    }

    /// Completes when every caller has left, and makes sure that no new one boards.
    pub(super) async fn unwanted(&self) {
        loop {
            self.verdict.closed().await;
            if self.ledger.retire_if_unwanted(self) {
                return;
            }
        }
    }

    pub(super) fn fault_verdict(&self, reason: &str) -> Verdict {
        let key = &self.intent.key;
        error!(operation = self.act().name(), request_id = %key.request_id, reason, "an attempt failed");
        Verdict::Unavailable(Unavailable::Fault)
    }

    /// A constraint or a fault stood in the way; the statement changed nothing.
    pub(super) fn refused_by_schema(&self, error: &DatabaseError) -> Verdict {
        match error {
            // The second guard: this request has its effect, though the ledger has forgotten it.
            DatabaseError::Constraint { constraint } if constraint == self.act().effect().guard => {
                Verdict::Expired { recorded: true }
            }
            _ => self.fault_verdict(&error.to_string()),
        }
    }

    pub(super) fn wanted(&self, token: Token) -> Wanted<'_> {
        Wanted {
            key: &self.intent.key,
            key_hash: self.key_hash,
            operation: self.act().name(),
            fingerprint: &self.intent.fingerprint,
            arguments: &self.intent.arguments,
            token,
            minted_ms: self.intent.minted_ms,
            origin: &self.intent.origin,
            place: self.place.as_deref(),
        }
    }

    pub(super) fn item(&self, token: Token, made: Value) -> Item {
        Item {
            key: self.intent.key.clone(),
            key_hash: self.key_hash,
            fingerprint: self.intent.fingerprint,
            token,
            arguments: self.intent.arguments.clone(),
            made,
            minted_ms: self.intent.minted_ms,
            origin: Arc::clone(&self.intent.origin),
            place: self.place.clone(),
            span: self.span.clone(),
        }
    }
}

/// How long a flight has been trying to get a statement answered.
pub(super) struct Patience {
    since: Instant,
    tries: u32,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            since: Instant::now(),
            tries: 0,
        }
    }
}

impl Patience {
    /// Counted from the first try, because a silent server uses up most of it before that one fails; but everything is
    /// tried twice.
    pub(super) fn is_over(&self, store: &Store) -> bool {
        self.tries > 0 && self.since.elapsed() > store.limits.patience
    }

    /// Whether a statement failed before the one that was answered.
    pub(super) fn has_failed(&self) -> bool {
        self.tries > 0
    }

    pub(super) fn pause(&mut self) -> Duration {
        self.tries += 1;
        backoff(RETRY, self.tries)
    }
}

/// Doubles from the first pause to the longest.
pub(super) fn backoff((first, most): (Duration, Duration), tries: u32) -> Duration {
    first.saturating_mul(1 << tries.min(10)).min(most)
}
