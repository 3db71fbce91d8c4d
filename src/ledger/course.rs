//! The course of a flight: entering the ledger, reading what is in the way, waiting, taking over.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures_util::FutureExt;
use tracing::{Instrument, debug_span, info, warn};

use super::batch::{Entered, enter_one};
use super::claim::{Claimed, Look, TakeOver, claim, look, reclaim, register_waiter, take_over};
use super::effect::{NotPrepared, Refused};
use super::flight::{End, Flight, Patience, backoff};
use super::settle::Outcome;
use super::state::{Fingerprint, Join, Phase, Seen, Token, Unavailable, Verdict};
use crate::clock::Moment;
use crate::telemetry::metrics::instruments;
use crate::telemetry::trace;
use crate::{sabotage, unpoisoned};

/// Pauses between looks at a key whose rival claimer has not committed yet.
const POLL_INVISIBLE: (Duration, Duration) = (Duration::from_millis(4), Duration::from_millis(100));
/// Pause between looks at a running request: behind a good listener, and without one.
const POLL_HEARING: Duration = Duration::from_secs(2);
const POLL_DEAF: Duration = Duration::from_millis(150);
/// Pause between looks at a claim that lapsed and cannot be taken over yet.
const POLL_LAPSED: Duration = Duration::from_millis(200);
/// A lease is taken over this long after it lapsed at the earliest, so that the statement finds it lapsed.
const AFTER_LAPSE: Duration = Duration::from_millis(10);

/// What a flight does next.
pub(super) enum Step {
    Enter,
    Look,
    Attempt { token: Token, sent: Moment },
}

/// What entering came to.
enum Entry {
    Verdict(Verdict),
    Claimed { token: Token, sent: Moment },
    Look(Look),
}

/// What a flight remembers between its steps.
#[derive(Default)]
pub(super) struct Memory {
    /// Tokens under which this flight sent a claim, and when: a row that carries one is its own, also when the
    /// acknowledgement was lost.
    mine: Vec<(Token, Moment)>,
    /// A waiter takes over at most once.
    took_over: bool,
    unseen_polls: u32,
    /// What ended its last wait for another attempt.
    woken: Option<Join>,
}

impl Memory {
    fn sent(&self, token: Token) -> Option<Moment> {
        self.mine.iter().find(|(mine, _)| *mine == token).map(|(_, sent)| *sent)
    }
}

impl Flight {
    pub(super) async fn course(&self, mut memory: Memory, mut step: Step) -> Result<Verdict, End> {
        loop {
            let seen = match step {
                Step::Enter => match self.enter(&mut memory).instrument(debug_span!("ledger.claim")).await? {
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
        let made = match AssertUnwindSafe(self.act().prepare(&self.intent.arguments, &stop))
            .catch_unwind()
            .await
        {
            Ok(Ok(made)) => made,
            Ok(Err(NotPrepared::Refused(refused))) => return self.unless_recorded(Verdict::Refused(refused)).await,
            Ok(Err(NotPrepared::Failed(reason))) => return self.unless_recorded(self.fault_verdict(&reason)).await,
            Err(_) => {
                let verdict = self.fault_verdict("the operation panicked");
                return self.unless_recorded(verdict).await;
            }
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
                        joined: None,
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

    /// The verdict of a call that came to nothing before it entered, unless the ledger knows better: what is recorded is
    /// replayed, or is in conflict, whether or not it could be done again.
    async fn unless_recorded(&self, verdict: Verdict) -> Result<Entry, End> {
        match self.look().await? {
            Look::Nothing { too_old: false } => Err(verdict.into()),
            Look::Row(seen) if matches!(seen.phase, Phase::Released) => Err(verdict.into()),
            recorded => Ok(Entry::Look(recorded)),
        }
    }

    async fn enter_with_claim(&self, memory: &mut Memory, token: Token) -> Result<Entry, End> {
        let mut patience = Patience::default();
        let sent = Moment::now();
        memory.mine.push((token, sent));
        loop {
            match claim(self.store(), &self.wanted(token)).await {
                Ok(Claimed::Ours) => return Ok(Entry::Claimed { token, sent }),
                Ok(Claimed::Stopped) => return self.unless_recorded(Verdict::Refused(Refused::stopped())).await,
                Ok(Claimed::NotFree) => return Ok(Entry::Look(self.look().await?)),
                Err(error) => self.bear(&mut patience, error).await?,
            }
        }
    }

    pub(super) async fn look(&self) -> Result<Look, End> {
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
                self.pause_unseen(memory).await?;
                return Ok(Step::Enter);
            }
        };
        if let Phase::Released = seen.phase {
            return self.reclaim(memory, seen.token).await;
        }
        memory.unseen_polls = 0;
        if matches!(seen.phase, Phase::Newer) || seen.fingerprint.first() != Some(&Fingerprint::VERSION) {
            return Err(Verdict::Unavailable(Unavailable::NewerRelease).into());
        }
        if seen.fingerprint != self.intent.fingerprint.0 {
            return Err(Verdict::Conflict.into());
        }
        match seen.phase {
            Phase::Done(settled) => {
                let replayed = memory.sent(seen.token).is_none();
                let joined = memory.woken.filter(|_| replayed);
                Err(Verdict::Settled {
                    settled,
                    replayed,
                    joined,
                }
                .into())
            }
            Phase::Expired => Err(Verdict::Expired { recorded: true }.into()),
            Phase::Failed => Err(Verdict::Failed.into()),
            // Both were dealt with above.
            Phase::Released | Phase::Newer => Ok(Step::Enter),
            Phase::Running { lease_left, waiters } => match memory.sent(seen.token) {
                // The claim was committed and its acknowledgement lost.
                Some(sent) => Ok(Step::Attempt {
                    token: seen.token,
                    sent,
                }),
                None => {
                    let wait = self.wait(memory, &seen, lease_left, waiters);
                    wait.instrument(debug_span!("ledger.wait")).await
                }
            },
        }
    }

    /// Waits a little before another look at what a rival holds, longer each time.
    async fn pause_unseen(&self, memory: &mut Memory) -> Result<(), End> {
        let pause = backoff(POLL_INVISIBLE, memory.unseen_polls);
        memory.unseen_polls += 1;
        self.pause(pause).await
    }

    async fn reclaim(&self, memory: &mut Memory, released: Token) -> Result<Step, End> {
        if self.ledger.retire_if_unwanted(self) {
            // Whoever wanted it has left, and may have been told elsewhere that it was refused.
            return Err(End::Unwanted);
        }
        let token = self.draw().await?;
        let sent = Moment::now();
        memory.mine.push((token, sent));
        let mut patience = Patience::default();
        loop {
            match reclaim(self.store(), &self.wanted(token), released).await {
                Ok(Claimed::Ours) => return Ok(Step::Attempt { token, sent }),
                // Whatever was seen under this key is settled by now, or still released: a look tells.
                Ok(Claimed::Stopped) => {
                    return match self.unless_recorded(Verdict::Refused(Refused::stopped())).await? {
                        Entry::Look(seen) => self.resolve_boxed(memory, seen).await,
                        _ => Ok(Step::Look),
                    };
                }
                Ok(Claimed::NotFree) => {
                    // Locked, or somebody else's by now.
                    self.pause_unseen(memory).await?;
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
        self.note_runs(seen.ran.clone());
        if lease_left.is_zero() && !memory.took_over {
            trace::link(&self.span, seen.ran.place.as_deref());
            if let Some(step) = self.take_over(memory, seen.token, "waiter").await? {
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
        if sabotage::is(sabotage::Kind::NoNotify) {
            pause = Duration::MAX;
        }
        tokio::select! {
            () = woken => {
                memory.woken = Some(place.woken_by());
                Ok(Step::Look)
            }
            end = self.pause(pause) => {
                memory.woken = Some(Join::Poll);
                end.map(|()| Step::Look)
            }
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

    /// `by` is a `waiter` or the `scan`.
    pub(super) async fn take_over(
        &self,
        memory: &mut Memory,
        lapsed: Token,
        by: &'static str,
    ) -> Result<Option<Step>, End> {
        let steady = self.store().database.reach().steady_for();
        if steady.is_some_and(|steady| steady < self.store().limits.lease) {
            // Postgres was out of reach a moment ago. Live holders renew first.
            return Ok(None);
        }
        let token = sabotage::token(self.draw().await?, lapsed);
        let sent = Moment::now();
        memory.mine.push((token, sent));
        let mut patience = Patience::default();
        loop {
            let taken = take_over(
                self.store(),
                &self.intent.key,
                self.key_hash,
                lapsed,
                token,
                self.place.as_deref(),
            )
            .await;
            match taken {
                Ok(TakeOver::Taken) => {
                    memory.took_over = true;
                    instruments().took_over(by);
                    info!(request_id = %self.intent.key.request_id, "took a lapsed claim over");
                    return Ok(Some(Step::Attempt { token, sent }));
                }
                Ok(TakeOver::Failed) => {
                    instruments().failed_for_good();
                    warn!(request_id = %self.intent.key.request_id, "failed: its lease lapsed too often");
                    return Err(Verdict::Failed.into());
                }
                // Not ours, or ours by a statement whose acknowledgement was lost: the row's token tells.
                Ok(TakeOver::NotNow) if patience.has_failed() => return Ok(Some(Step::Look)),
                Ok(TakeOver::NotNow) => return Ok(None),
                Err(error) => self.bear(&mut patience, error).await?,
            }
        }
    }
}
