//! Batches: what arrived while the last batch was in flight shares one statement and one commit.
//!
//! There is no timer: a single call goes at once, and costs what a batch of one costs. Items whose key did not come back
//! from the statement have a row, or a rival that claims; they are read by a second statement, which sees what the first
//! one's snapshot did not.

use std::collections::HashSet;
use std::sync::Arc;

use tokio::sync::{Mutex, mpsc, oneshot};
use tokio_util::task::TaskTracker;
use tracing::{Instrument, Span, debug_span, warn};

use super::Store;
use super::claim::{Look, look};
use super::effect::Act;
use super::settle::{Item, Outcome, claim_act_settle};
use crate::postgres::DatabaseError;
use crate::telemetry::metrics::instruments;
use crate::telemetry::trace;

/// Most items in one statement: past this the statement's own time outweighs the commits saved.
const MOST_ITEMS: usize = 256;
/// Most requests that a batch's span links to.
const MOST_LINKS: usize = 32;
/// Statements in flight for one operation: one is applied while the next one is parsed.
const WORKERS: usize = 2;
/// Items that may queue for one operation before its callers have to wait to queue.
const QUEUE: usize = 4 * MOST_ITEMS;

/// What became of an item.
#[derive(Debug)]
pub(super) enum Entered {
    /// The statement settled or refused it.
    Outcome(Outcome),
    /// It was left out, and this is why.
    Look(Look),
}

type Answer = Result<Entered, DatabaseError>;

/// The queue of one operation.
#[derive(Debug)]
pub(super) struct Batcher {
    queue: mpsc::Sender<(Item, oneshot::Sender<Answer>)>,
}

impl Batcher {
    /// Starts the workers; they end when the batcher is dropped.
    pub(super) fn start(store: &Arc<Store>, act: &Arc<dyn Act>, tasks: &TaskTracker) -> Self {
        let (queue, arrivals) = mpsc::channel(QUEUE);
        let arrivals = Arc::new(Mutex::new(arrivals));
        for _ in 0..WORKERS {
            tasks.spawn(work(Arc::clone(store), Arc::clone(act), Arc::clone(&arrivals)));
        }
        Self { queue }
    }

    /// Claims, acts and settles one item together with others.
    pub(super) async fn enter(&self, item: Item) -> Answer {
        let (answer, answered) = oneshot::channel();
        let gone = || DatabaseError::Unreachable("the replica is stopping".to_owned());
        self.queue.send((item, answer)).await.map_err(|_| gone())?;
        answered.await.map_err(|_| gone())?
    }
}

type Arrivals = Arc<Mutex<mpsc::Receiver<(Item, oneshot::Sender<Answer>)>>>;

async fn work(store: Arc<Store>, act: Arc<dyn Act>, arrivals: Arrivals) {
    let mut arrived = Vec::new();
    loop {
        if arrivals.lock().await.recv_many(&mut arrived, MOST_ITEMS).await == 0 {
            return;
        }
        // The same key twice in one statement would be two effects: the second one waits for the next round.
        while !arrived.is_empty() {
            let mut keys = HashSet::new();
            let (mut round, later): (Vec<_>, Vec<_>) =
                arrived.drain(..).partition(|(item, _)| keys.insert(item.key.clone()));
            arrived = later;
            // In key order, because overlapping batches that are not sorted deadlock.
            round.sort_by(|(a, _), (b, _)| {
                (&a.key.principal, &a.key.request_id).cmp(&(&b.key.principal, &b.key.request_id))
            });
            let (items, answers): (Vec<_>, Vec<_>) = round.into_iter().unzip();
            instruments().batch(act.name(), items.len());
            let span = span_of(&items);
            let outcomes = enter_all(&store, act.as_ref(), &items).instrument(span).await;
            for (answer, outcome) in answers.into_iter().zip(outcomes) {
                // A caller that is gone needs no answer; the work is done and recorded.
                let _ = answer.send(outcome);
            }
        }
    }
}

/// Below the flight that came first, with links to the others: a statement is one span, however many it serves.
fn span_of(items: &[Item]) -> Span {
    let Some((first, others)) = items.split_first() else {
        return Span::none();
    };
    let span = debug_span!(parent: &first.span, "ledger.batch", ticket_ledger.batch_size = items.len());
    if !span.is_disabled() {
        for other in others.iter().take(MOST_LINKS) {
            trace::link_to(&span, &other.span);
        }
    }
    span
}

async fn enter_all(store: &Store, act: &dyn Act, items: &[Item]) -> Vec<Answer> {
    let all: Vec<&Item> = items.iter().collect();
    match claim_act_settle(store, act, &all).await {
        Ok(outcomes) => read_left_out(store, items, outcomes).await,
        Err(DatabaseError::Unreachable(reason)) => items
            .iter()
            .map(|_| Err(DatabaseError::Unreachable(reason.clone())))
            .collect(),
        Err(error) if items.len() == 1 => vec![Err(error)],
        Err(error) => {
            // One bad row fails alone.
            warn!(%error, items = items.len(), "a batch failed; its items go one by one");
            let mut answers = Vec::with_capacity(items.len());
            for item in items {
                answers.push(enter_one(store, act, item).await);
            }
            answers
        }
    }
}

/// Claims, acts and settles one item by itself.
pub(super) async fn enter_one(store: &Store, act: &dyn Act, item: &Item) -> Answer {
    let outcomes = claim_act_settle(store, act, &[item]).await?;
    match outcomes.into_iter().next().flatten() {
        Some(outcome) => Ok(Entered::Outcome(outcome)),
        None => look_again(store, item).await,
    }
}

async fn look_again(store: &Store, item: &Item) -> Answer {
    let looks = look(store, &[(&item.key, item.minted_ms)]).await?;
    Ok(Entered::Look(
        looks.into_iter().next().unwrap_or(Look::Nothing { too_old: false }),
    ))
}

async fn read_left_out(store: &Store, items: &[Item], outcomes: Vec<Option<Outcome>>) -> Vec<Answer> {
    let left_out: Vec<_> = items
        .iter()
        .zip(&outcomes)
        .filter(|(_, outcome)| outcome.is_none())
        .map(|(item, _)| (&item.key, item.minted_ms))
        .collect();
    let mut looks = if left_out.is_empty() {
        Ok(Vec::new().into_iter())
    } else {
        look(store, &left_out).await.map(Vec::into_iter)
    };
    outcomes
        .into_iter()
        .map(|outcome| match (outcome, &mut looks) {
            (Some(outcome), _) => Ok(Entered::Outcome(outcome)),
            (None, Ok(looks)) => Ok(Entered::Look(looks.next().unwrap_or(Look::Nothing { too_old: false }))),
            (None, Err(error)) => Err(error.clone()),
        })
        .collect()
}
