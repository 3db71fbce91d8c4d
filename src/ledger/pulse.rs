//! A replica's row among the others', for people who look. Nothing is decided by it.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::debug;
use uuid::Uuid;

use super::Ledger;
use crate::postgres::DatabaseError;

/// How often a replica writes its row.
const EVERY: Duration = Duration::from_secs(3);

impl Ledger {
    /// Writes this replica's row until `stop`, and once more at the end. `stage` says where it stands.
    pub async fn beat(self: Arc<Self>, stage: impl Fn() -> &'static str + Send, stop: CancellationToken) {
        let instance = Uuid::new_v4();
        loop {
            // An outage has been said already, where calls meet it.
            if let Err(error) = beat(&self, instance, stage()).await {
                debug!(%error, "the replica's row was not written");
            }
            tokio::select! {
                () = sleep(EVERY) => {}
                () = stop.cancelled() => break,
            }
        }
        let _ = beat(&self, instance, "stopped").await;
    }
}

async fn beat(ledger: &Ledger, instance: Uuid, stage: &str) -> Result<(), DatabaseError> {
    const SQL: &str = "
        with gone as (
            delete from replicas where seen_at < clock_timestamp() - interval '15 minutes' and instance <> $1
        )
        insert into replicas as r (instance, name, version, started_at, seen_at, stage, listening, claims, waiters, lately)
        values ($1, $2, $3, clock_timestamp(), clock_timestamp(), $4, $5, $6, $7, $8::text::jsonb)
        on conflict (instance) do update
        set seen_at = excluded.seen_at, stage = excluded.stage, listening = excluded.listening,
            claims = excluded.claims, waiters = excluded.waiters, lately = excluded.lately";
    let store = &ledger.store;
    let count = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
    let lately = serde_json::to_string(&store.lately.told()).unwrap_or_else(|_| "{}".to_owned());
    let statement = sqlx::query(SQL)
        .bind(instance)
        .bind(&*store.replica)
        .bind(env!("CARGO_PKG_VERSION"))
        .bind(stage)
        .bind(ledger.is_listening())
        .bind(count(store.leases.len()))
        .bind(count(store.waiters.len()))
        .bind(lately);
    let mut lent = store.database.lend().await?;
    let answer = store
        .database
        .within("beat", statement.execute(lent.connection()))
        .await;
    lent.answered(answer).map(|_| ())
}
