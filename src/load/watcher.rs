//! Looks at the claims from outside while a run lasts, and at its end.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use sqlx::{Connection, PgConnection};
use tokio::time::{Instant, sleep, timeout};

use super::Options;
use super::driver::Driver;
use super::history::Record;
use super::workload::names_of;

/// A claim: its request, its token, and for how long it has been lapsed, by the database's clock.
type Claim = (String, i64, i64);

/// Looks at the run's unsettled claims, twice a second, until the run is stopping: at the one that lapsed the longest ago, and at
/// those that one attempt has held for longer than `usual`, by the load test's own clock. Others' claims have others' leases.
pub(super) async fn watch_claims(url: String, run: String, driver: Arc<Driver>, usual: Duration) {
    let mut seen: HashMap<(String, i64), Instant> = HashMap::new();
    while !driver.stopping.load(Ordering::Relaxed) {
        sleep(Duration::from_millis(500)).await;
        // While Postgres is down there is nothing to look at.
        let Ok(Ok(claims)) = timeout(Duration::from_secs(2), claims(&url, &run)).await else {
            continue;
        };
        let ms = |span: Duration| u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
        if let Some((request, _, lapsed_ms)) = claims.iter().max_by_key(|(_, _, lapsed_ms)| *lapsed_ms)
            && *lapsed_ms > 0
        {
            driver.history.write(&Record::Watched {
                at_us: driver.history.now_us(),
                lapsed_ms: lapsed_ms.unsigned_abs(),
                request: Some(request.clone()),
            });
        }
        let now = Instant::now();
        seen = claims
            .into_iter()
            .map(|(request, token, _)| {
                let claim = (request, token);
                let since = seen.get(&claim).copied().unwrap_or(now);
                (claim, since)
            })
            .collect();
        for ((request, _), since) in &seen {
            if now - *since > usual {
                driver.history.write(&Record::Held {
                    at_us: driver.history.now_us(),
                    request: request.clone(),
                    held_ms: ms(now - *since),
                });
            }
        }
    }
}

async fn claims(url: &str, run: &str) -> Result<Vec<Claim>, sqlx::Error> {
    const SQL: &str = "
        select r.request_id, r.token,
               case when r.lease_until > '-infinity'
                    then (extract(epoch from clock_timestamp() - r.lease_until) * 1000)::bigint else 0 end
        from unsettled u join requests r using (principal, request_id)
        where r.status = 'running' and starts_with(r.request_id, $1)";
    let mut connection = PgConnection::connect(url).await?;
    let claims = sqlx::query_as(SQL)
        .bind(names_of(run))
        .fetch_all(&mut connection)
        .await?;
    connection.close().await?;
    Ok(claims)
}

/// Waits until nothing of the run is unsettled any more, for as long as an abandoned claim may take.
pub(super) async fn quiesce(url: &str, run: &str, options: &Options) {
    let limit = options.lease * 4 + options.work + Duration::from_secs(5);
    let began = Instant::now();
    while began.elapsed() < limit {
        let unsettled = async {
            let mut connection = PgConnection::connect(url).await?;
            let unsettled: i64 = sqlx::query_scalar("select count(*) from unsettled where starts_with(request_id, $1)")
                .bind(names_of(run))
                .fetch_one(&mut connection)
                .await?;
            connection.close().await?;
            Ok::<_, sqlx::Error>(unsettled)
        };
        if matches!(unsettled.await, Ok(0)) {
            return;
        }
        sleep(Duration::from_millis(100)).await;
    }
}

/// The database's clock, in microseconds since 1970; `None` while it cannot be asked.
pub(super) async fn database_us(url: &str) -> Option<i64> {
    let mut connection = PgConnection::connect(url).await.ok()?;
    let now = sqlx::query_scalar("select (extract(epoch from clock_timestamp()) * 1000000)::bigint")
        .fetch_one(&mut connection)
        .await
        .ok();
    // It has been asked; how the connection ends is of no importance.
    let _ = connection.close().await;
    now
}
