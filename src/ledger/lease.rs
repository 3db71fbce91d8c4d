//! Leases: keeping the claims of this replica alive while their work runs.
//!
//! One task renews all of them with one statement, on a connection of its own, so that neither a busy pool nor a locked row
//! lets a live holder lapse.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sqlx::{Connection, PgConnection};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::Store;
use super::state::{Key, Token};
use crate::clock::Moment;
use crate::postgres::{DatabaseError, connect_options};
use crate::telemetry::metrics::instruments;
use crate::{sabotage, unpoisoned};

/// Renewals per lease: under a third of the lease passes between two of them, so two may fail before a claim lapses.
const RENEWALS_PER_LEASE: u32 = 4;

/// Past this a round is given up: a server that fell silent is to be noticed within seconds, whatever the lease.
const LONGEST_ROUND: Duration = Duration::from_secs(2);

/// The claims that this replica holds.
#[derive(Debug, Default)]
pub(super) struct Leases {
    held: Mutex<HashMap<Token, Arc<Hold>>>,
}

/// One claim, as its holder sees it.
#[derive(Debug)]
pub(super) struct Hold {
    key: Key,
    token: Token,
    /// When the attempt began; past the work limit its lease is not renewed.
    since: Moment,
    /// Until when the lease certainly holds, counted from when its last good claim or renewal was *sent*.
    certain_until: Mutex<Moment>,
    lost: CancellationToken,
}

impl Hold {
    /// Cancelled when the claim is somebody else's now.
    pub(super) fn lost(&self) -> &CancellationToken {
        &self.lost
    }

    /// Whether its attempt has worked for so long that its lease is not renewed any more.
    fn is_overdue(&self, store: &Store) -> bool {
        self.since.elapsed() >= store.limits.work_limit
    }

    /// Whether the lease certainly holds at this moment.
    pub(super) fn is_certain(&self) -> bool {
        !self.lost.is_cancelled() && !unpoisoned(self.certain_until.lock()).left().is_zero()
    }
}

/// Keeps a claim alive until it is dropped.
pub(super) struct Kept {
    store: Arc<Store>,
    hold: Arc<Hold>,
}

impl std::ops::Deref for Kept {
    type Target = Hold;
    fn deref(&self) -> &Hold {
        &self.hold
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        unpoisoned(self.store.leases.held.lock()).remove(&self.hold.token);
    }
}

impl Leases {
    /// Whether an attempt of this replica works under this token.
    pub(super) fn holds(&self, token: Token) -> bool {
        let held = unpoisoned(self.held.lock());
        held.get(&token).is_some_and(|hold| !hold.lost.is_cancelled())
    }

    /// Starts to keep a claim that was sent at `sent` and is committed.
    pub(super) fn keep(store: &Arc<Store>, key: Key, token: Token, sent: Moment) -> Kept {
        let hold = Arc::new(Hold {
            key,
            token,
            since: Moment::now(),
            certain_until: Mutex::new(sent.after(store.limits.certain_lease())),
            lost: CancellationToken::new(),
        });
        unpoisoned(store.leases.held.lock()).insert(token, Arc::clone(&hold));
        Kept {
            store: Arc::clone(store),
            hold,
        }
    }

    /// How many claims are held.
    pub(super) fn len(&self) -> usize {
        unpoisoned(self.held.lock()).len()
    }

    /// What is still held, in key order.
    fn due(&self) -> Vec<Arc<Hold>> {
        let mut due: Vec<_> = unpoisoned(self.held.lock())
            .values()
            .filter(|hold| !hold.lost.is_cancelled())
            .cloned()
            .collect();
        due.sort_by(|a, b| (&a.key.principal, &a.key.request_id).cmp(&(&b.key.principal, &b.key.request_id)));
        due
    }
}

/// Renews until `stop`.
pub(super) async fn renew_for_ever(store: Arc<Store>, stop: CancellationToken) {
    let period = store.limits.lease / RENEWALS_PER_LEASE;
    let mut connection = None;
    let mut next = Instant::now() + period;
    // By a clock that runs through suspension: a replica that stood still is to know how late it is.
    let mut due_at = Moment::now().after(period);
    // An outage is said when it begins and when it is over, not several times a second.
    let mut failing = false;
    loop {
        tokio::select! {
            () = sleep_until(next) => {}
            () = stop.cancelled() => return,
        }
        // From when the round was due, not from when it began: a process that stood still began late.
        let was_due = std::mem::replace(&mut due_at, Moment::now().after(period));
        next = Instant::now() + period;
        let due = store.leases.due();
        // With nothing to renew the connection is still tried, so that an outage is noticed while it lasts.
        let round = timeout(period.min(LONGEST_ROUND), renew_round(&store, &mut connection, &due));
        match round.await {
            Ok(Ok(())) => {
                store.database.reach().answered();
                // Late when half a lease and more has passed since the round before.
                instruments().renewed(if was_due.elapsed() > period { "late" } else { "renewed" });
                if std::mem::take(&mut failing) {
                    info!("leases are renewed again");
                }
            }
            Ok(Err(error)) => {
                connection = None;
                instruments().renewed("failed");
                store.database.reach().failed();
                // Try again soon: a lease has room for more than one failure only if they are short.
                next = Instant::now() + period / 4;
                due_at = Moment::now().after(period / 4);
                if !std::mem::replace(&mut failing, true) {
                    warn!(%error, claims = due.len(), "leases were not renewed");
                }
            }
            Err(_) => {
                connection = None;
                instruments().renewed("failed");
                store.database.reach().failed();
                if !std::mem::replace(&mut failing, true) {
                    warn!(claims = due.len(), "renewing the leases had no answer");
                }
            }
        }
    }
}

async fn renew_round(store: &Store, kept: &mut Option<PgConnection>, due: &[Arc<Hold>]) -> Result<(), DatabaseError> {
    // Taken out, so that a round that is dropped halfway does not leave a connection behind that owes an answer.
    let mut connection = match kept.take() {
        Some(connection) => connection,
        None => {
            let options = connect_options(&store.url)?.application_name("ticket-ledger leases");
            PgConnection::connect_with(&options).await?
        }
    };
    if due.is_empty() {
        connection.ping().await?;
    } else {
        renew_and_note(store, &mut connection, due).await?;
    }
    *kept = Some(connection);
    Ok(())
}

async fn renew_and_note(store: &Store, connection: &mut PgConnection, due: &[Arc<Hold>]) -> Result<(), DatabaseError> {
    let (due, overdue): (Vec<_>, Vec<_>) = due.iter().cloned().partition(|hold| !hold.is_overdue(store));
    // Past the work limit a claim is only watched: its attempt stops when somebody else has it.
    let mut missed = overdue;
    if !due.is_empty() {
        let sent = Moment::now();
        let renewed = renew(connection, &due, store.limits.lease_ms()).await?;
        for hold in due {
            if renewed.contains(&hold.token) {
                *unpoisoned(hold.certain_until.lock()) = sent.after(store.limits.certain_lease());
            } else {
                missed.push(hold);
            }
        }
    }
    if missed.is_empty() {
        return Ok(());
    }
    // Skipped because its row is locked, for its own settlement most likely, or lost? Only the row can tell.
    let still = holders(connection, &missed).await?;
    for hold in missed {
        if still.contains(&hold.token) || sabotage::is(sabotage::Kind::NoFence) {
            debug!(request_id = %hold.key.request_id, "a claim was not renewed: locked, or past its work limit");
        } else {
            hold.lost.cancel();
        }
    }
    Ok(())
}

/// running → running, for all claims at once, in key order; rows that are locked are skipped. Returns the tokens renewed.
async fn renew(connection: &mut PgConnection, due: &[Arc<Hold>], lease_ms: i64) -> Result<Vec<Token>, DatabaseError> {
    const SQL: &str = "
        with held as materialized (
            select r.principal, r.request_id, r.token
            from unnest($1::text[], $2::text[], $3::bigint[]) as input (principal, request_id, token)
            join requests r on r.principal = input.principal and r.request_id = input.request_id
            where r.token = input.token and r.status = 'running' and r.lease_until > '-infinity'
            order by r.principal, r.request_id
            for no key update of r skip locked
        )
        update requests r
        set lease_until = clock_timestamp() + $4::bigint * interval '1 millisecond'
        from held
        where r.principal = held.principal and r.request_id = held.request_id
          and r.token = held.token and r.status = 'running'
        returning r.token";
    let (principals, request_ids, tokens) = columns(due);
    crate::fault::point("renew.before_commit");
    let renewed = sqlx::query_scalar(SQL)
        .bind(principals)
        .bind(request_ids)
        .bind(tokens)
        .bind(lease_ms)
        .fetch_all(connection)
        .await?;
    crate::fault::point("renew.after_commit");
    Ok(renewed)
}

/// Which of these claims are still their holder's, locked or not.
async fn holders(connection: &mut PgConnection, holds: &[Arc<Hold>]) -> Result<Vec<Token>, DatabaseError> {
    const SQL: &str = "
        select r.token
        from unnest($1::text[], $2::text[], $3::bigint[]) as input (principal, request_id, token)
        join requests r on r.principal = input.principal and r.request_id = input.request_id
        where r.token = input.token and r.status = 'running'";
    let (principals, request_ids, tokens) = columns(holds);
    Ok(sqlx::query_scalar(SQL)
        .bind(principals)
        .bind(request_ids)
        .bind(tokens)
        .fetch_all(connection)
        .await?)
}

fn columns(holds: &[Arc<Hold>]) -> (Vec<&str>, Vec<&str>, Vec<Token>) {
    (
        holds.iter().map(|hold| &*hold.key.principal).collect(),
        holds.iter().map(|hold| &*hold.key.request_id).collect(),
        holds.iter().map(|hold| hold.token).collect(),
    )
}

/// Renews one claim at once, on the pool, unless it is past its work limit: an attempt whose lease is no longer certain asks before it acts.
///
/// # Errors
/// Postgres cannot be reached, or the row is locked.
pub(super) async fn confirm(store: &Store, hold: &Arc<Hold>) -> Result<bool, DatabaseError> {
    if hold.is_certain() || sabotage::is(sabotage::Kind::NoFence) {
        return Ok(true);
    }
    if hold.lost.is_cancelled() {
        return Ok(false);
    }
    let mut lent = store.database.lend().await?;
    let answer = timeout(
        store.limits.lease,
        renew_and_note(store, lent.connection(), std::slice::from_ref(hold)),
    )
    .await
    .unwrap_or_else(|_| Err(DatabaseError::no_answer(store.limits.lease)));
    lent.answered(answer)?;
    if hold.lost.is_cancelled() {
        return Ok(false);
    }
    // Past the work limit nothing makes it certain again, but the row was this attempt's a moment ago, and the statement
    // that settles looks at the fence itself.
    if hold.is_certain() || hold.is_overdue(store) {
        return Ok(true);
    }
    Err(DatabaseError::Retryable("the claim's row is locked".to_owned()))
}

impl Kept {
    /// See [`confirm`].
    pub(super) async fn confirm(&self) -> Result<bool, DatabaseError> {
        confirm(&self.store, &self.hold).await
    }
}
