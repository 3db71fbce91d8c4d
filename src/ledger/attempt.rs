//! An attempt: the work under a claim, and its end.

use std::panic::AssertUnwindSafe;
use std::sync::atomic::Ordering;

use futures_util::FutureExt;
use tokio::time::sleep;
use tracing::{Instrument, debug_span, warn};

use super::claim::Look;
use super::effect::NotPrepared;
use super::flight::{End, Flight, Patience};
use super::lease::{Kept, Leases};
use super::settle::{Item, Outcome, hand_back, release, settle};
use super::state::{Phase, Token, Unavailable, Verdict};
use crate::clock::Moment;
use crate::postgres::DatabaseError;
use crate::sabotage;
use crate::telemetry::metrics::instruments;

impl Flight {
    /// `None` when the claim was lost: somebody else's answer is this caller's answer.
    pub(super) async fn attempt(&self, token: Token, sent: Moment) -> Result<Option<Verdict>, End> {
        let kept = Leases::keep(self.store(), self.intent.key.clone(), token, sent);
        *crate::unpoisoned(self.lapses_at.lock()) = Some(Moment::now().after(self.store().limits.lease));
        let stop = kept.lost().child_token();
        self.working.store(true, Ordering::Relaxed);
        let prepared = tokio::select! {
            biased;
            () = kept.lost().cancelled() => {
                // From here on this flight waits like any other.
                self.working.store(false, Ordering::Relaxed);
                return Ok(None);
            }
            prepared = AssertUnwindSafe(self.act().prepare(&self.intent.arguments, &stop))
                .catch_unwind()
                .instrument(debug_span!("ledger.work")) => prepared,
            () = self.ledger.hand_back.cancelled() => return self.give_back(&kept, token).await,
            () = self.unwanted(), if sabotage::is(sabotage::Kind::ReleaseOnDisconnect) => {
                return self.free(&kept, token, Verdict::InProgress { lease_left: None, runs: None }).await;
            }
        };
        self.working.store(false, Ordering::Relaxed);
        crate::fault::point("work.done");
        let failed = match prepared {
            Ok(Ok(made)) => {
                let finish = self.finish(&kept, self.item(token, made));
                return finish.instrument(debug_span!("ledger.settle")).await;
            }
            Ok(Err(NotPrepared::Refused(refused))) => Verdict::Refused(refused),
            Ok(Err(NotPrepared::Failed(reason))) => self.fault_verdict(&reason),
            Err(_) => self.fault_verdict("the operation panicked"),
        };
        self.free(&kept, token, failed).await
    }

    /// Acts and settles, however often Postgres has to be asked.
    async fn finish(&self, kept: &Kept, item: Item) -> Result<Option<Verdict>, End> {
        let mut patience = Patience::default();
        loop {
            let settled = match kept.confirm().await {
                Ok(true) => settle(self.store(), self.act(), &item).await,
                Ok(false) => return Ok(None),
                Err(error) => Err(error),
            };
            match settled {
                Ok(Some(Outcome::Settled(settled))) => {
                    self.store().waiters.settled_here(self.key_hash);
                    return Ok(Some(Verdict::Settled {
                        settled,
                        replayed: false,
                        joined: None,
                    }));
                }
                Ok(Some(Outcome::Refused(refused))) => return Ok(Some(Verdict::Refused(refused))),
                // Lost to another attempt, or settled already by a statement whose answer did not arrive.
                Ok(None) => return Ok(None),
                Err(error) if error.is_transient() => {
                    if let Some(end) = self.hold_on(&mut patience, kept, item.token, &error).await? {
                        return Ok(end);
                    }
                }
                Err(error) => {
                    let verdict = self.refused_by_schema(&error);
                    return self.free(kept, item.token, verdict).await;
                }
            }
        }
    }

    /// A transient failure while a claim is held: callers are told after a while, the attempt goes on.
    async fn hold_on(
        &self,
        patience: &mut Patience,
        kept: &Kept,
        token: Token,
        error: &DatabaseError,
    ) -> Result<Option<Option<Verdict>>, End> {
        if patience.is_over(self.store()) {
            warn!(%error, request_id = %self.intent.key.request_id, "cannot settle yet");
            self.tell(Verdict::Unavailable(Unavailable::Database));
        }
        tokio::select! {
            () = sleep(patience.pause()) => Ok(None),
            () = kept.lost().cancelled() => Ok(Some(None)),
            () = self.ledger.hand_back.cancelled() => self.give_back(kept, token).await.map(Some),
        }
    }

    /// Releases the claim of an attempt that changed nothing.
    async fn free(&self, kept: &Kept, token: Token, verdict: Verdict) -> Result<Option<Verdict>, End> {
        let mut patience = Patience::default();
        loop {
            match release(self.store(), &self.intent.key, self.key_hash, token).await {
                Ok(true) => {
                    instruments().released();
                    return Ok(Some(verdict));
                }
                // Released by a statement whose answer did not arrive, or lost: then it may be done by now, and its caller
                // is a waiter like any other.
                Ok(false) => {
                    let is_ours = match self.look().await? {
                        Look::Row(seen) => seen.token == token && matches!(seen.phase, Phase::Released),
                        Look::Nothing { .. } => false,
                    };
                    return Ok(is_ours.then_some(verdict));
                }
                Err(error) => {
                    if let Some(end) = self.hold_on(&mut patience, kept, token, &error).await? {
                        return Ok(end);
                    }
                }
            }
        }
    }

    async fn give_back(&self, kept: &Kept, token: Token) -> Result<Option<Verdict>, End> {
        let mut patience = Patience::default();
        while let Err(error) = hand_back(self.store(), &self.intent.key, self.key_hash, token).await {
            if patience.is_over(self.store()) || kept.lost().is_cancelled() {
                warn!(%error, "a claim was not handed back; its lease has to lapse");
                break;
            }
            sleep(patience.pause()).await;
        }
        instruments().handed_back();
        Ok(Some(Verdict::HandedBack))
    }
}
