//! The scan: finishing claims whose caller left and whose replica died.
//!
//! Every replica looks once a lease, so an abandoned claim waits for two leases at most.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use sqlx::FromRow;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::state::{Fingerprint, Key, Ran, Token};
use super::{Intent, Ledger};
use crate::postgres::DatabaseError;

/// Most claims taken up in one scan; the next one comes before another lease has passed.
const MOST_FOUND: i64 = 64;

#[derive(FromRow)]
struct Lapsed {
    principal: String,
    request_id: String,
    operation: String,
    fingerprint: Vec<u8>,
    token: Token,
    arguments: String,
    origin: String,
    replica: String,
    attempt: i32,
    trace: Option<String>,
}

/// Scans until `stop`.
pub(super) async fn scan_for_ever(ledger: Weak<Ledger>, stop: CancellationToken) {
    loop {
        let Some(lease) = ledger.upgrade().map(|ledger| ledger.store.limits.lease) else {
            return;
        };
        // Not all replicas at the same moment, and never more than a lease apart.
        let jitter = f64::from(uuid::Uuid::new_v4().as_bytes()[0]) / 255.0;
        tokio::select! {
            () = sleep(lease.mul_f64(0.7 + 0.25 * jitter)) => {}
            () = stop.cancelled() => return,
        }
        let Some(ledger) = ledger.upgrade() else { return };
        if ledger.tasks.is_closed() {
            // Draining: what this replica cannot finish is not started.
            continue;
        }
        let steady = ledger.store.database.reach().steady_for();
        if steady.is_some_and(|steady| steady < lease) {
            continue;
        }
        match oldest_running(&ledger).await {
            Ok(age_ms) => ledger.store.oldest_running_ms.store(age_ms, Ordering::Relaxed),
            Err(error) => warn!(%error, "the age of the oldest running request is not known"),
        }
        match find_lapsed(&ledger).await {
            Ok(found) => found.into_iter().for_each(|lapsed| take_up(&ledger, lapsed)),
            Err(error) => warn!(%error, "the scan for lapsed claims failed"),
        }
    }
}

fn take_up(ledger: &Arc<Ledger>, lapsed: Lapsed) {
    let Some(act) = ledger.acts.get(&*lapsed.operation) else {
        return;
    };
    let Ok(fingerprint) = <[u8; 33]>::try_from(lapsed.fingerprint) else {
        return;
    };
    let intent = Intent {
        key: Key {
            principal: lapsed.principal.into(),
            request_id: lapsed.request_id.into(),
        },
        fingerprint: Fingerprint(fingerprint),
        arguments: lapsed.arguments,
        minted_ms: None,
        origin: lapsed.origin.into(),
        act: Arc::clone(act),
    };
    let ran = Ran {
        replica: lapsed.replica.into(),
        attempt: lapsed.attempt,
        place: lapsed.trace.map(Into::into),
    };
    ledger.adopt(intent, lapsed.token, ran);
}

/// How long ago the oldest request that is not settled was first claimed, in ms; 0 when all are settled.
async fn oldest_running(ledger: &Ledger) -> Result<u64, DatabaseError> {
    const SQL: &str = "
        select (extract(epoch from clock_timestamp() - min(r.created_at)) * 1000)::bigint
        from unsettled u
        join requests r using (principal, request_id)
        where r.status = 'running'";
    let store = &ledger.store;
    let mut lent = store.database.lend().await?;
    let statement = sqlx::query_scalar::<_, Option<i64>>(SQL);
    let answer = store
        .database
        .within("oldest_running", statement.fetch_one(lent.connection()))
        .await;
    let age_ms = lent.answered(answer)?;
    Ok(u64::try_from(age_ms.unwrap_or(0)).unwrap_or(0))
}

/// Reads claims that have lapsed, the longest lapsed first.
///
/// Left out is what this program cannot finish, so that it does not take the place of what it can: operations of another
/// deployment's toolset, and arguments that another release wrote. Their own replicas finish them.
async fn find_lapsed(ledger: &Ledger) -> Result<Vec<Lapsed>, DatabaseError> {
    const SQL: &str = "
        select r.principal, r.request_id, r.operation, r.fingerprint, r.token, r.arguments,
               coalesce(r.origin, '') as origin, r.replica, r.attempt, r.trace
        from unsettled u
        join requests r using (principal, request_id)
        where r.status = 'running' and r.lease_until < clock_timestamp()
          and r.operation = any ($2::text[]) and get_byte(r.fingerprint, 0) = $3
        order by r.lease_until
        limit $1";
    let operations: Vec<&str> = ledger.acts.keys().copied().collect();
    let store = &ledger.store;
    let mut lent = store.database.lend().await?;
    let statement = sqlx::query_as(SQL)
        .bind(MOST_FOUND)
        .bind(operations)
        .bind(i32::from(Fingerprint::VERSION));
    let answer = store
        .database
        .within("find_lapsed", statement.fetch_all(lent.connection()))
        .await;
    lent.answered(answer)
}
