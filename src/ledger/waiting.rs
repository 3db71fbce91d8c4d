//! Waiting for another attempt, until it settles, or its lease lapses and this flight takes over.

use std::time::Duration;

use tracing::{Instrument, debug_span, info, warn};

use super::claim::{Look, TakeOver, register_waiter, take_over};
use super::course::{Memory, Step};
use super::flight::{End, Flight, Patience};
use super::state::{Join, Phase, Ran, Seen, Token, Verdict};
use crate::clock::Moment;
use crate::telemetry::metrics::instruments;
use crate::telemetry::trace;
use crate::{sabotage, unpoisoned};

/// Pause between looks at a running request: behind a good listener, and without one.
const POLL_HEARING: Duration = Duration::from_secs(2);
const POLL_DEAF: Duration = Duration::from_millis(150);
/// Pause between looks at a claim that lapsed and cannot be taken over yet.
const POLL_LAPSED: Duration = Duration::from_millis(200);
/// A lease is taken over this long after it lapsed at the earliest, so that the statement finds it lapsed.
const AFTER_LAPSE: Duration = Duration::from_millis(10);

/// What a wait came to.
pub(super) enum Waited {
    /// The claim lapsed, and is this flight's now.
    Took(Step),
    /// What was waited for is no more.
    Saw(Look),
}

/// What a round of a wait came to.
enum Round {
    Took(Step),
    Saw(Look),
    Again,
}

impl Flight {
    /// Waits for the attempt that holds the claim, and for its successors. One span, however often this looks meanwhile.
    pub(super) async fn wait(&self, memory: &mut Memory, seen: Box<Seen>) -> Result<Waited, End> {
        let span = debug_span!("ledger.wait");
        let mut looks = 0;
        self.begin_wait();
        let waited = self
            .wait_in_rounds(memory, seen, &mut looks)
            .instrument(span.clone())
            .await;
        self.end_wait();
        let ended = match &waited {
            Ok(Waited::Took(_)) => "lapsed",
            Ok(Waited::Saw(_)) => match memory.woken {
                Some(Join::Memory) => "memory",
                Some(Join::Notify) => "notified",
                Some(Join::Poll) | None => "polled",
            },
            Err(End::Unwanted) if self.is_past_deadline() => "deadline",
            Err(End::Unwanted) => "left",
            Err(End::Verdict(Verdict::HandedBack)) => "handed_back",
            Err(End::Verdict(Verdict::Failed)) => "failed",
            Err(End::Verdict(_)) => "unavailable",
        };
        trace::say_on(&span, "ticket_ledger.wait.ended", ended);
        trace::say_on(&span, "ticket_ledger.wait.looks", looks);
        if let Some(ran) = self.runs() {
            trace::say_on(&span, "ticket_ledger.wait.for_replica", ran.replica.to_string());
            trace::say_on(&span, "ticket_ledger.wait.for_attempt", i64::from(ran.attempt));
        }
        waited
    }

    async fn wait_in_rounds(&self, memory: &mut Memory, mut seen: Box<Seen>, looks: &mut i64) -> Result<Waited, End> {
        loop {
            let Phase::Running { lease_left, waiters } = seen.phase else {
                return Ok(Waited::Saw(Look::Row(seen)));
            };
            if memory.sent(seen.token).is_some() || seen.fingerprint != self.intent.fingerprint.0 {
                // Its own after all, or claimed anew for something else.
                return Ok(Waited::Saw(Look::Row(seen)));
            }
            let now = match self.round(memory, &seen, lease_left, waiters).await? {
                Round::Took(step) => return Ok(Waited::Took(step)),
                Round::Saw(now) => now,
                Round::Again => self.look().await?,
            };
            *looks += 1;
            match now {
                Look::Row(now) => seen = now,
                nothing @ Look::Nothing { .. } => return Ok(Waited::Saw(nothing)),
            }
        }
    }

    async fn round(
        &self,
        memory: &mut Memory,
        seen: &Seen,
        lease_left: Duration,
        registered: bool,
    ) -> Result<Round, End> {
        *unpoisoned(self.lapses_at.lock()) = Some(Moment::now().after(lease_left));
        self.note_runs(seen.ran.clone());
        if lease_left.is_zero() && !memory.took_over {
            return match self.take_over(memory, seen.token, &seen.ran, "waiter").await? {
                Some(step @ Step::Attempt { .. }) => Ok(Round::Took(step)),
                Some(_) => Ok(Round::Again),
                None => self.pause(POLL_LAPSED).await.map(|()| Round::Again),
            };
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
                _ => return Ok(Round::Saw(Look::Row(now))),
            },
            nothing => return Ok(Round::Saw(nothing)),
        }
        if sabotage::is(sabotage::Kind::NoNotify) {
            pause = Duration::MAX;
        }
        tokio::select! {
            () = woken => {
                memory.woken = Some(place.woken_by());
                Ok(Round::Again)
            }
            end = self.pause(pause) => {
                memory.woken = Some(Join::Poll);
                end.map(|()| Round::Again)
            }
        }
    }

    /// Takes a claim over that lapsed under this token, and that `ran` was the attempt of. `by` is a `waiter` or the `scan`.
    pub(super) async fn take_over(
        &self,
        memory: &mut Memory,
        lapsed: Token,
        ran: &Ran,
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
                    self.say_took_over(ran);
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

    /// From whom: on the span that goes on with the work, not on that of a rival who came too late.
    fn say_took_over(&self, from: &Ran) {
        trace::link(&self.span, from.place.as_deref());
        trace::say_on(
            &self.span,
            "ticket_ledger.took_over_from.replica",
            from.replica.to_string(),
        );
        trace::say_on(
            &self.span,
            "ticket_ledger.took_over_from.attempt",
            i64::from(from.attempt),
        );
        info!(
            request_id = %self.intent.key.request_id,
            from = &*from.replica,
            attempt = from.attempt,
            "took a lapsed claim over"
        );
    }
}
