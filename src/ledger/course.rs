//! The course of a flight: entering the ledger, and resolving what is in the way.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures_util::FutureExt;
use tracing::{Instrument, debug_span, warn};

use super::batch::{Entered, enter_one};
use super::claim::{Claimed, Look, claim, look, reclaim};
use super::effect::{NotPrepared, Refused};
use super::flight::{End, Flight, Patience, backoff};
use super::settle::Outcome;
use super::state::{Fingerprint, Join, Phase, Token, Unavailable, Verdict};
use super::waiting::Waited;
use crate::clock::Moment;
use crate::telemetry::metrics::instruments;
use crate::telemetry::trace;

/// Pauses between looks at a key whose rival claimer has not committed yet.
const POLL_INVISIBLE: (Duration, Duration) = (Duration::from_millis(4), Duration::from_millis(100));
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
    pub(super) mine: Vec<(Token, Moment)>,
    /// A waiter takes over at most once.
    pub(super) took_over: bool,
    unseen_polls: u32,
    /// What ended its last wait for another attempt.
    pub(super) woken: Option<Join>,
}

impl Memory {
    pub(super) fn sent(&self, token: Token) -> Option<Moment> {
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
                    None => {
                        let seen = self.look().await?;
                        self.note_loss(token, &seen);
                        seen
                    }
                },
                Step::Look => self.look().await?,
            };
            step = self.resolve(&mut memory, seen).await?;
        }
    }

    /// An attempt ended without a verdict. Its row tells whether another one has its claim, or its own settlement was not
    /// acknowledged.
    fn note_loss(&self, token: Token, seen: &Look) {
        let taken_by = match seen {
            Look::Row(seen) if seen.token == token => return,
            Look::Row(seen) => &*seen.ran.replica,
            Look::Nothing { .. } => "nobody",
        };
        instruments().fenced();
        trace::say_on(&self.span, "ticket_ledger.fenced", true);
        warn!(
            request_id = %self.intent.key.request_id,
            operation = self.act().name(),
            taken_by,
            "a claim was lost to another attempt; its own work changes nothing"
        );
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
            Phase::Running { .. } => match memory.sent(seen.token) {
                // The claim was committed and its acknowledgement lost.
                Some(sent) => Ok(Step::Attempt {
                    token: seen.token,
                    sent,
                }),
                None => match self.wait(memory, seen).await? {
                    Waited::Took(step) => Ok(step),
                    Waited::Saw(seen) => self.resolve_boxed(memory, seen).await,
                },
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

    /// `resolve`, where it is reached from within itself; never deep, because what it resolves is not running any more or
    /// was claimed anew.
    fn resolve_boxed<'a>(
        &'a self,
        memory: &'a mut Memory,
        seen: Look,
    ) -> futures_util::future::BoxFuture<'a, Result<Step, End>> {
        Box::pin(self.resolve(memory, seen))
    }
}
