//! The retention sweep: results go first, keys and fingerprints later.
//!
//! It walks the heap page by page and starts again at its end, so it needs no index, and a row that it cannot handle stops
//! nothing. What is past its retention is `expired` for every reader at once; the sweep only gives the space back.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use sqlx::FromRow;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::{Store, milliseconds};
use crate::postgres::{Database, DatabaseError};
use crate::telemetry::metrics::instruments;

/// How often a replica offers to sweep. One of them does.
const EVERY: Duration = Duration::from_secs(60);
/// The least pages (8 KiB each) that one round walks, and in how many rounds the whole table is walked at most.
const LEAST_PAGES: i64 = 2_048;
const ROUNDS: i64 = 720;

/// What is to be done from time to time beside the sweep. Every replica does it, several perhaps at once.
#[async_trait]
pub trait Upkeep: Send + Sync {
    /// Its name in logs.
    fn name(&self) -> &'static str;

    /// Does a bounded piece of it; returns how many rows that changed.
    ///
    /// # Errors
    /// Postgres cannot be reached, or refuses.
    async fn run(&self, database: &Database) -> Result<u64, DatabaseError>;
}

/// Sweeps until `stop`.
pub(super) async fn sweep_for_ever(store: Arc<Store>, upkeep: Vec<Arc<dyn Upkeep>>, stop: CancellationToken) {
    let every = EVERY.min(store.limits.keep_results / 4);
    loop {
        // Not all replicas at the same moment.
        let jitter = f64::from(uuid::Uuid::new_v4().as_bytes()[0]) / 255.0;
        tokio::select! {
            () = sleep(every.mul_f64(0.75 + 0.5 * jitter)) => {}
            () = stop.cancelled() => return,
        }
        match sweep(&store.database, store.limits.keep_results, store.limits.keep_keys).await {
            Ok(Swept {
                scrubbed: 0,
                deleted: 0,
                set_aside: 0,
            }) => {}
            Ok(swept) => {
                instruments().swept("scrubbed", swept.scrubbed);
                instruments().swept("deleted", swept.deleted);
                instruments().swept("set_aside", swept.set_aside);
                info!(
                    scrubbed = swept.scrubbed,
                    deleted = swept.deleted,
                    set_aside = swept.set_aside,
                    "swept"
                );
            }
            Err(error) => warn!(%error, "the retention sweep failed"),
        }
        for chore in &upkeep {
            match chore.run(&store.database).await {
                Ok(0) => {}
                Ok(rows) => info!(chore = chore.name(), rows, "kept up"),
                Err(error) => warn!(%error, chore = chore.name(), "upkeep failed"),
            }
        }
    }
}

/// What a round did, in rows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, FromRow)]
pub struct Swept {
    /// Results dropped.
    pub scrubbed: i64,
    /// Rows deleted.
    pub deleted: i64,
    /// Rows that could not be handled and were left as they are.
    pub set_aside: i64,
}

/// One round: walks the next pages of `requests`, unless another replica is at it or was a moment ago.
///
/// # Errors
/// Postgres cannot be reached, or refuses the whole round.
pub async fn sweep(database: &Database, keep_results: Duration, keep_keys: Duration) -> Result<Swept, DatabaseError> {
    forget_past_attempts(database, keep_keys).await?;
    let mut lent = database.lend().await?;
    let statement = sqlx::query_as("select scrubbed, deleted, set_aside from sweep_requests($1, $2, $3, $4)")
        .bind(milliseconds(keep_results))
        .bind(milliseconds(keep_keys))
        .bind(LEAST_PAGES)
        .bind(ROUNDS);
    let answer = database.within("sweep", statement.fetch_one(lent.connection())).await;
    lent.answered(answer)
}

/// Forgets attempts that ended before anybody's key is kept; a few at a time, because nobody waits for it.
async fn forget_past_attempts(database: &Database, keep_keys: Duration) -> Result<(), DatabaseError> {
    const SQL: &str = "
        delete from past_attempts where token in (
            select token from past_attempts
            where ended_at < clock_timestamp() - $1::bigint * interval '1 millisecond'
            limit 10000
            for update skip locked)";
    let mut lent = database.lend().await?;
    let statement = sqlx::query(SQL).bind(milliseconds(keep_keys));
    let answer = database
        .within("forget_past_attempts", statement.execute(lent.connection()))
        .await;
    lent.answered(answer).map(|_| ())
}
