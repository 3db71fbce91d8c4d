//! A flight: one request on its way through this replica, whoever and how many wait for it.
//!
//! It claims, or joins the attempt that holds the claim, or takes over one that lapsed, until it knows a verdict. Callers
//! board it and leave it as they like; an attempt that has a claim goes on without them.

use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt;
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use tracing::{error, info, warn};

use super::batch::{Entered, enter_one};
use super::claim::{Look, TakeOver, Wanted, claim, look, reclaim, register_waiter, take_over};
use super::effect::{Act, NotPrepared};
use super::settle::{Item, Outcome};
use super::state::{Fingerprint, Key, Phase, Seen, Token, Unavailable, Verdict};
use super::{Ledger, Store};
use crate::clock::Moment;
use crate::postgres::DatabaseError;
use crate::unpoisoned;

/// Pauses between looks at a key whose rival claimer has not committed yet.
const POLL_INVISIBLE: (Duration, Duration) = (Duration::from_millis(4), Duration::from_millis(100));
/// Pause between looks at a running request: behind a good listener, and without one.
const POLL_HEARING: Duration = Duration::from_secs(2);
const POLL_DEAF: Duration = Duration::from_millis(150);
/// Pause between looks at a claim that lapsed and cannot be taken over yet.
const POLL_LAPSED: Duration = Duration::from_millis(200);
/// A lease is taken over this long after it lapsed at the earliest, so that the statement finds it lapsed.
const AFTER_LAPSE: Duration = Duration::from_millis(10);
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
    /// The operation.
    pub act: Arc<dyn Act>,
}

/// What a flight does next.
enum Step {
    Enter,
    Look,
    Attempt { token: Token, sent: Moment },
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

pub(super) struct Flight {
    pub(super) intent: Intent,
    pub(super) key_hash: i64,
    pub(super) ledger: Arc<Ledger>,
    verdict: watch::Sender<Option<Verdict>>,
    /// When the lease of the attempt that is waited for lapses, as far as known.
    pub(super) lapses_at: Mutex<Option<Moment>>,
}

/// What a flight remembers between its steps.
#[derive(Default)]
struct Memory {
    /// Tokens under which this flight sent a claim, and when: a row that carries one is its own, also when the
    /// acknowledgement was lost.
    mine: Vec<(Token, Moment)>,
    /// A waiter takes over at most once.
    took_over: bool,
    invisible_polls: u32,
}

impl Memory {
    fn sent(&self, token: Token) -> Option<Moment> {
        self.mine.iter().find(|(mine, _)| *mine == token).map(|(_, sent)| *sent)
    }
}

impl Flight {
    pub(super) fn new(ledger: &Arc<Ledger>, intent: Intent) -> Self {
        Self {
            key_hash: intent.key.hash64(),
            intent,
            ledger: Arc::clone(ledger),
            verdict: watch::Sender::new(None),
            lapses_at: Mutex::new(None),
        }
    }

    /// A seat from which the verdict can be awaited.
    pub(super) fn board(&self) -> watch::Receiver<Option<Verdict>> {
        self.verdict.subscribe()
    }

    pub(super) fn has_callers(&self) -> bool {
        self.verdict.receiver_count() > 0
    }

    pub(super) fn lease_left(&self) -> Option<Duration> {
        unpoisoned(self.lapses_at.lock()).map(Moment::left)
    }

    /// Flies for its callers.
    pub(super) async fn fly(self: Arc<Self>) {
        self.land(self.course(Memory::default(), Step::Enter)).await;
    }

    /// Takes a lapsed claim over that nobody here waits for.
    pub(super) async fn adopt(self: Arc<Self>, lapsed: Token) {
        let course = async {
            let mut memory = Memory::default();
            match self.take_over(&mut memory, lapsed).await? {
                Some(step) => self.course(memory, step).await,
                None => Err(End::Unwanted),
            }
        };
        self.land(course).await;
    }

    /// Tells the verdict of a course, whatever happens on it.
    async fn land(&self, course: impl Future<Output = Result<Verdict, End>>) {
        let end = AssertUnwindSafe(course).catch_unwind().await;
        match end {
            Ok(Ok(verdict) | Err(End::Verdict(verdict))) => self.tell(verdict),
            Ok(Err(End::Unwanted)) => self.tell(Verdict::InProgress { lease_left: None }),
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

    async fn course(&self, mut memory: Memory, mut step: Step) -> Result<Verdict, End> {
        loop {
            let seen = match step {
                Step::Enter => match self.enter(&mut memory).await? {
                    Entry::Verdict(verdict) => return Ok(verdict),
                    Entry::Claimed { token, sent } => {
                        step = Step::Attempt { token, sent };
                        continue;
                    }
                    Entry::Look(seen) => seen,
                },
                Step::Attempt { token, sent } => match self.attempt(token, sent).await? {
                    Some(verdict) => return Ok(verdict),
                    None => self.look().await?,
                },
                Step::Look => self.look().await?,
            };
            step = self.resolve(&mut memory, seen).await?;
        }
    }

    // Entering: claim, act and settle at once, or claim only.

    async fn enter(&self, memory: &mut Memory) -> Result<Entry, End> {
        let token = self.draw().await?;
        if self.act().takes_time() {
            return self.enter_with_claim(memory, token).await;
        }
        let stop = self.ledger.hand_back.child_token();
        let arguments = self.arguments()?;
        let made = match AssertUnwindSafe(self.act().prepare(&arguments, &stop))
            .catch_unwind()
            .await
        {
            Ok(Ok(made)) => made,
            Ok(Err(NotPrepared::Refused(refused))) => return Err(Verdict::Refused(refused).into()),
            Ok(Err(NotPrepared::Failed(reason))) => return Err(self.fault(&reason)),
            Err(_) => return Err(self.fault("the operation panicked")),
        };
        let item = self.item(token, made);
        memory.mine.push((token, Moment::now()));
        let mut patience = Patience::default();
        loop {
            let entered = match self.ledger.batcher(self.act().name()) {
                Some(batcher) => batcher.enter(item.clone()).await,
                None => enter_one(self.store(), self.act(), &item).await,
            };
            match entered {
                Ok(Entered::Outcome(Outcome::Settled(settled))) => {
                    return Ok(Entry::Verdict(Verdict::Settled {
                        settled,
                        replayed: false,
                    }));
                }
                Ok(Entered::Outcome(Outcome::Refused(refused))) => {
                    return Ok(Entry::Verdict(Verdict::Refused(refused)));
                }
                Ok(Entered::Look(seen)) => return Ok(Entry::Look(seen)),
                Err(error) => self.bear(&mut patience, error).await?,
            }
        }
    }

    async fn enter_with_claim(&self, memory: &mut Memory, token: Token) -> Result<Entry, End> {
        let mut patience = Patience::default();
        let sent = Moment::now();
        memory.mine.push((token, sent));
        loop {
            match claim(self.store(), &self.wanted(token)).await {
                Ok(true) => return Ok(Entry::Claimed { token, sent }),
                Ok(false) => return Ok(Entry::Look(self.look().await?)),
                Err(error) => self.bear(&mut patience, error).await?,
            }
        }
    }

    async fn look(&self) -> Result<Look, End> {
        let mut patience = Patience::default();
        loop {
            match look(self.store(), &[(&self.intent.key, self.intent.minted_ms)]).await {
                Ok(looks) => {
                    let seen = looks.into_iter().next();
                    return Ok(seen.unwrap_or(Look::Nothing { too_old: false }));
                }
                Err(error) => self.bear(&mut patience, error).await?,
            }
        }
    }

    // Resolving what was seen into the next step.

    async fn resolve(&self, memory: &mut Memory, seen: Look) -> Result<Step, End> {
        let seen = match seen {
            Look::Row(seen) => seen,
            Look::Nothing { too_old: true } => {
                return Err(Verdict::Expired { recorded: false }.into());
            }
            Look::Nothing { too_old: false } => {
                // A rival holds the key's lock and has not committed, or a row was swept between two statements.
                let pause = backoff(POLL_INVISIBLE, memory.invisible_polls);
                memory.invisible_polls += 1;
                self.pause(pause).await?;
                return Ok(Step::Enter);
            }
        };
        memory.invisible_polls = 0;
        if let Phase::Released = seen.phase {
            return self.reclaim(memory, seen.token).await;
        }
        if seen.fingerprint.first() != Some(&Fingerprint::VERSION) {
            return Err(Verdict::Unavailable(Unavailable::NewerRelease).into());
        }
        if seen.fingerprint != self.intent.fingerprint.0 {
            return Err(Verdict::Conflict.into());
        }
        match seen.phase {
            Phase::Done(settled) => {
                let replayed = memory.sent(seen.token).is_none();
                Err(Verdict::Settled { settled, replayed }.into())
            }
            Phase::Expired => Err(Verdict::Expired { recorded: true }.into()),
            Phase::Failed => Err(Verdict::Failed.into()),
            Phase::Released => Ok(Step::Enter),
            Phase::Running { lease_left, waiters } => match memory.sent(seen.token) {
                // The claim was committed and its acknowledgement lost.
                Some(sent) => Ok(Step::Attempt {
                    token: seen.token,
                    sent,
                }),
                None => self.wait(memory, &seen, lease_left, waiters).await,
            },
        }
    }

    async fn reclaim(&self, memory: &mut Memory, released: Token) -> Result<Step, End> {
        let token = self.draw().await?;
        let sent = Moment::now();
        memory.mine.push((token, sent));
        let mut patience = Patience::default();
        loop {
            match reclaim(self.store(), &self.wanted(token), released).await {
                Ok(true) => return Ok(Step::Attempt { token, sent }),
                Ok(false) => {
                    // Locked, or somebody else's by now.
                    self.pause(POLL_INVISIBLE.0).await?;
                    return Ok(Step::Look);
                }
                Err(error) => self.bear(&mut patience, error).await?,
            }
        }
    }

    async fn wait(
        &self,
        memory: &mut Memory,
        seen: &Seen,
        lease_left: Duration,
        registered: bool,
    ) -> Result<Step, End> {
        *unpoisoned(self.lapses_at.lock()) = Some(Moment::now().after(lease_left));
        if lease_left.is_zero() && !memory.took_over {
            if let Some(step) = self.take_over(memory, seen.token).await? {
                return Ok(step);
            }
            self.pause(POLL_LAPSED).await?;
            return Ok(Step::Look);
        }
        // Register here, then at the row, then read: whatever settles afterwards wakes this flight.
        let place = self.store().waiters.register(self.key_hash);
        let woken = place.next();
        let hearing = self.store().hearing.is_good();
        if !registered && hearing {
            let mut patience = Patience::default();
            while let Err(error) = register_waiter(self.store(), &self.intent.key).await {
                self.bear(&mut patience, error).await?;
            }
        }
        let mut pause = if hearing { POLL_HEARING } else { POLL_DEAF };
        match self.look().await? {
            Look::Row(now) => match now.phase {
                Phase::Running { lease_left, waiters } if now.token == seen.token => {
                    if !waiters {
                        // Its row was locked just then: nobody would tell.
                        pause = POLL_DEAF;
                    }
                    if !memory.took_over {
                        pause = pause.min(lease_left + AFTER_LAPSE);
                    }
                }
                _ => return self.resolve_boxed(memory, Look::Row(now)).await,
            },
            nothing => return self.resolve_boxed(memory, nothing).await,
        }
        tokio::select! {
            () = woken => Ok(Step::Look),
            end = self.pause(pause) => end.map(|()| Step::Look),
        }
    }

    /// `resolve`, where it is reached from within itself; never deep, because what it resolves is not running any more or
    /// was claimed anew.
    fn resolve_boxed<'a>(
        &'a self,
        memory: &'a mut Memory,
        seen: Look,
    ) -> futures_util::future::BoxFuture<'a, Result<Step, End>> {
        Box::pin(self.resolve(memory, seen))
    }

    async fn take_over(&self, memory: &mut Memory, lapsed: Token) -> Result<Option<Step>, End> {
        let steady = self.store().database.reach().steady_for();
        if steady.is_some_and(|steady| steady < self.store().limits.lease) {
            // Postgres was out of reach a moment ago. Live holders renew first.
            return Ok(None);
        }
        let token = self.draw().await?;
        let sent = Moment::now();
        memory.mine.push((token, sent));
        let mut patience = Patience::default();
        loop {
            let taken = take_over(self.store(), &self.intent.key, self.key_hash, lapsed, token).await;
            match taken {
                Ok(TakeOver::Taken) => {
                    memory.took_over = true;
                    info!(request_id = %self.intent.key.request_id, "took a lapsed claim over");
                    return Ok(Some(Step::Attempt { token, sent }));
                }
                Ok(TakeOver::Failed) => {
                    warn!(request_id = %self.intent.key.request_id, "failed: its lease lapsed too often");
                    return Err(Verdict::Failed.into());
                }
                Ok(TakeOver::NotNow) => return Ok(None),
                Err(error) => self.bear(&mut patience, error).await?,
            }
        }
    }

    // Small things.

    async fn draw(&self) -> Result<Token, End> {
        let mut patience = Patience::default();
        loop {
            match self.store().tokens.draw(&self.store().database).await {
                Ok(token) => return Ok(token),
                Err(error) => self.bear(&mut patience, error).await?,
            }
        }
    }

    /// Waits before another attempt at a statement, or ends the flight when there is no use or no patience left.
    async fn bear(&self, patience: &mut Patience, error: DatabaseError) -> Result<(), End> {
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
    async fn pause(&self, pause: Duration) -> Result<(), End> {
        tokio::select! {
            () = sleep(pause) => Ok(()),
            () = self.ledger.hand_back.cancelled() => Err(Verdict::HandedBack.into()),
            () = self.unwanted() => Err(End::Unwanted),
        }
    }

    /// Completes when every caller has left, and makes sure that no new one boards.
    async fn unwanted(&self) {
        loop {
            self.verdict.closed().await;
            if self.ledger.retire_if_unwanted(self) {
                return;
            }
        }
    }

    pub(super) fn fault(&self, reason: &str) -> End {
        self.fault_verdict(reason).into()
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

    pub(super) fn arguments(&self) -> Result<Value, End> {
        serde_json::from_str(&self.intent.arguments).map_err(|error| self.fault(&error.to_string()))
    }

    fn wanted(&self, token: Token) -> Wanted<'_> {
        Wanted {
            key: &self.intent.key,
            key_hash: self.key_hash,
            operation: self.act().name(),
            fingerprint: &self.intent.fingerprint,
            arguments: &self.intent.arguments,
            token,
            minted_ms: self.intent.minted_ms,
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
        }
    }
}

/// What entering came to.
enum Entry {
    Verdict(Verdict),
    Claimed { token: Token, sent: Moment },
    Look(Look),
}

/// How long a flight has been failing to reach Postgres.
#[derive(Default)]
pub(super) struct Patience {
    since: Option<Instant>,
    tries: u32,
}

impl Patience {
    pub(super) fn is_over(&mut self, store: &Store) -> bool {
        self.since.get_or_insert_with(Instant::now).elapsed() > store.limits.patience
    }

    pub(super) fn pause(&mut self) -> Duration {
        self.tries += 1;
        backoff(RETRY, self.tries)
    }
}

/// Doubles from the first pause to the longest.
fn backoff((first, most): (Duration, Duration), tries: u32) -> Duration {
    first.saturating_mul(1 << tries.min(10)).min(most)
}
