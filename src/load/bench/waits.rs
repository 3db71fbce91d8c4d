//! How long waiters wait: across replicas after a settlement, and after a replica was killed.
//!
//! Moments by the database's clock are compared with moments of this process: both read the clock of one machine.

use std::time::Duration;

use nix::sys::signal::Signal;
use nix::time::{ClockId, clock_gettime};
use sqlx::{Connection, PgConnection};
use tokio::time::{Instant, sleep};
use uuid::Uuid;

use super::caller::Caller;
use crate::load::fleet::Replica;

/// How long a claim that was just sent may take to be seen.
const SEEN_LIMIT: Duration = Duration::from_secs(10);
/// Calls that lose their replica at each kill.
const CALLS_A_KILL: usize = 8;

/// What waiters waited, in microseconds.
#[derive(Debug, Default)]
pub struct Waited {
    /// From the settlement, or from SIGKILL, to the answer.
    pub us: Vec<u64>,
    /// From the moment at which the dead replica's lease lapsed to the answer, without the work that was done again.
    pub beyond_us: Vec<u64>,
}

fn now_us() -> i64 {
    clock_gettime(ClockId::CLOCK_REALTIME)
        .map(|now| now.tv_sec() * 1_000_000 + now.tv_nsec() / 1_000)
        .unwrap_or(0)
}

/// Calls on one replica, and joins on another before it is settled; `rounds` times, one after the other.
///
/// # Errors
/// A sentence.
pub async fn joins(url: &str, holder: u16, joiner: u16, rounds: usize) -> Result<Waited, String> {
    let mut database = connect(url).await?;
    let mut holder = Caller::connect(holder).await?;
    let mut joiner = Caller::connect(joiner).await?;
    let mut waited = Waited::default();
    for _ in 0..rounds {
        let key = Uuid::now_v7();
        let join = async {
            until_seen(&mut database, key, CLAIMED).await?;
            let sent = now_us();
            let replayed = joiner.create_ticket(key).await?;
            Ok::<_, String>((sent, replayed, now_us()))
        };
        let (first, joined) = tokio::join!(holder.create_ticket(key), join);
        first?;
        let (sent, replayed, answered) = joined?;
        let settled = moment(&mut database, key, SETTLED_AT).await?;
        // One that came too late was a replay and waited for nothing.
        if replayed && sent < settled {
            waited.us.push((answered - settled).max(1).unsigned_abs());
        }
    }
    database.close().await.map_err(|error| error.to_string())?;
    Ok(waited)
}

/// Kills the replica that works on calls for which another replica's callers wait.
///
/// # Errors
/// A sentence.
pub async fn takeovers(url: &str, victim: &Replica, heir: u16, work: Duration, kills: usize) -> Result<Waited, String> {
    let mut database = connect(url).await?;
    let mut waited = Waited::default();
    let work_us = i64::try_from(work.as_micros()).unwrap_or(0);
    for _ in 0..kills {
        let keys: Vec<_> = (0..CALLS_A_KILL).map(|_| Uuid::now_v7()).collect();
        let port = victim.port;
        let doomed: Vec<_> = keys
            .iter()
            .map(|key| (*key, port))
            .map(|(key, port)| tokio::spawn(async move { Caller::connect(port).await?.create_ticket(key).await }))
            .collect();
        let mut waiting = Vec::new();
        for key in keys.clone() {
            until_seen(&mut database, key, CLAIMED).await?;
            waiting.push(tokio::spawn(async move {
                Caller::connect(heir).await?.create_ticket(key).await?;
                Ok::<_, String>(now_us())
            }));
        }
        for key in &keys {
            until_seen(&mut database, *key, AWAITED).await?;
        }
        victim.signal(Signal::SIGKILL).await;
        let killed = now_us();
        victim.end(Duration::from_secs(10)).await;
        let mut lapses = Vec::new();
        for key in &keys {
            lapses.push(moment(&mut database, *key, LAPSES_AT).await?);
        }
        for (waiter, lapsed) in waiting.into_iter().zip(lapses) {
            let answered = waiter.await.map_err(|error| error.to_string())??;
            // What was settled before the signal came has no lease any more, and is no takeover.
            if lapsed > 0 {
                waited.us.push((answered - killed).max(1).unsigned_abs());
                waited
                    .beyond_us
                    .push((answered - lapsed - work_us).max(1).unsigned_abs());
            }
        }
        for call in doomed {
            let _ = call.await;
        }
        victim.start().await?;
    }
    database.close().await.map_err(|error| error.to_string())?;
    Ok(waited)
}

async fn connect(url: &str) -> Result<PgConnection, String> {
    PgConnection::connect(url).await.map_err(|error| error.to_string())
}

const CLAIMED: &str = "select count(*) from requests where principal = 'anonymous' and request_id = $1";
const AWAITED: &str = "select count(*) from requests where principal = 'anonymous' and request_id = $1 and (waiters or status <> 'running')";
const SETTLED_AT: &str = "
    select (extract(epoch from settled_at) * 1000000)::bigint from requests
    where principal = 'anonymous' and request_id = $1 and settled_at is not null";
const LAPSES_AT: &str = "
    select coalesce((extract(epoch from lease_until) * 1000000)::bigint, 0) from requests
    where principal = 'anonymous' and request_id = $1";

async fn until_seen(database: &mut PgConnection, key: Uuid, sql: &'static str) -> Result<(), String> {
    let began = Instant::now();
    while began.elapsed() < SEEN_LIMIT {
        if moment(database, key, sql).await? > 0 {
            return Ok(());
        }
        sleep(Duration::from_millis(2)).await;
    }
    Err("a call did not arrive in the ledger".to_owned())
}

async fn moment(database: &mut PgConnection, key: Uuid, sql: &'static str) -> Result<i64, String> {
    sqlx::query_scalar(sql)
        .bind(key.to_string())
        .fetch_one(database)
        .await
        .map_err(|error| format!("a row of the ledger cannot be read: {error}"))
}
