//! Claiming: making one execution, an attempt, the only one.
//!
//! Each function is one statement, named after its transition. No statement waits for another request: a claim first tries
//! an advisory lock on its key, and everything that takes over an existing row skips rows that are locked.

use std::time::Duration;

use sqlx::FromRow;

use super::Store;
use super::state::{Fingerprint, Key, MOST_LAPSES, Phase, Ran, Seen, Settled, Token};
use crate::postgres::DatabaseError;
use crate::sabotage;

/// A claim to be made.
pub(super) struct Wanted<'a> {
    pub key: &'a Key,
    pub key_hash: i64,
    pub operation: &'a str,
    pub fingerprint: &'a Fingerprint,
    pub arguments: &'a str,
    pub token: Token,
    /// When a UUIDv7 key says that it was made, in milliseconds since 1970.
    pub minted_ms: Option<i64>,
    pub origin: &'a str,
    /// The place of the attempt in its trace.
    pub place: Option<&'a str>,
}

/// What came of an attempt to claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Claimed {
    /// The claim is ours.
    Ours,
    /// The key is not free, or not in the state that it was seen in.
    NotFree,
    /// Nothing new is begun: an operator has stopped writes.
    Stopped,
}

impl Claimed {
    fn from_row((claimed, stopped): (i64, bool)) -> Self {
        match (claimed, stopped) {
            (1, _) => Self::Ours,
            (_, true) => Self::Stopped,
            _ => Self::NotFree,
        }
    }
}

/// (no row) → running, unless the key has a row, is locked by another claimer, or is too old to be run.
pub(super) async fn claim(store: &Store, wanted: &Wanted<'_>) -> Result<Claimed, DatabaseError> {
    const SQL: &str = "
        with free as materialized (
            select clock_timestamp() as now
            where (select 1 from requests r where r.principal = $1 and r.request_id = $2) is null
              and ($8::bigint is null
                   or to_timestamp($8 / 1000.0) > clock_timestamp() - $9::bigint * interval '1 millisecond')
              and not (select stopped from write_stop)
              and pg_try_advisory_xact_lock($3)
        ),
        claimed as (
            insert into requests (principal, request_id, operation, fingerprint, status, token, attempt, lease_until,
                                  arguments, created_at, claimed_at, replica, origin, trace)
            select $1, $2, $4, $5, 'running', $6, 1, free.now + $10::bigint * interval '1 millisecond',
                   $7, free.now, free.now, $11, $12, $13
            from free
            on conflict (principal, request_id) do nothing
            returning principal, request_id
        ),
        listed as (
            insert into unsettled select principal, request_id from claimed on conflict do nothing
        )
        select (select count(*) from claimed), stopped from write_stop";
    let mut lent = store.database.lend().await?;
    let statement = sqlx::query_as::<_, (i64, bool)>(SQL)
        .bind(&*wanted.key.principal)
        .bind(&*wanted.key.request_id)
        .bind(wanted.key_hash)
        .bind(wanted.operation)
        .bind(wanted.fingerprint.0.as_slice())
        .bind(wanted.token)
        .bind(wanted.arguments)
        .bind(wanted.minted_ms)
        .bind(store.limits.oldest_key_ms())
        .bind(store.limits.lease_ms())
        .bind(&*store.replica)
        .bind(wanted.origin)
        .bind(wanted.place);
    crate::fault::point("claim.before_commit");
    let answer = store
        .database
        .within("claim", statement.fetch_one(lent.connection()))
        .await;
    crate::fault::point("claim.after_commit");
    let claimed = lent.answered(answer).map(Claimed::from_row)?;
    if sabotage::is(sabotage::Kind::NoRowCheck) {
        return Ok(Claimed::Ours);
    }
    Ok(claimed)
}

/// released → running, for any operation and arguments, unless the row changed since `released` was seen.
pub(super) async fn reclaim(store: &Store, wanted: &Wanted<'_>, released: Token) -> Result<Claimed, DatabaseError> {
    const SQL: &str = "
        with free as materialized (
            select principal, request_id, clock_timestamp() as now, attempt, replica, claimed_at, token
            from requests
            where principal = $1 and request_id = $2 and token = $3 and status = 'released'
              and not (select stopped from write_stop)
            for no key update skip locked
        ),
        claimed as (
            update requests r
            set status = 'running', operation = $4, fingerprint = $5, token = $6, arguments = $7,
                attempt = r.attempt + 1, lapses = 0, waiters = false, settled_at = null, claimed_at = free.now,
                lease_until = free.now + $8::bigint * interval '1 millisecond', replica = $9, origin = $10, trace = $11
            from free
            where r.principal = free.principal and r.request_id = free.request_id
              and r.token = $3 and r.status = 'released'
            returning r.principal, r.request_id
        ),
        ended as (
            insert into past_attempts (token, principal, request_id, attempt, replica, claimed_at, ended_at, ending)
            select token, principal, request_id, attempt, replica, claimed_at, now, 'released'
            from free join claimed using (principal, request_id)
            on conflict do nothing
        ),
        listed as (
            insert into unsettled select principal, request_id from claimed on conflict do nothing
        )
        select (select count(*) from claimed), stopped from write_stop";
    let mut lent = store.database.lend().await?;
    let statement = sqlx::query_as::<_, (i64, bool)>(SQL)
        .bind(&*wanted.key.principal)
        .bind(&*wanted.key.request_id)
        .bind(released)
        .bind(wanted.operation)
        .bind(wanted.fingerprint.0.as_slice())
        .bind(wanted.token)
        .bind(wanted.arguments)
        .bind(store.limits.lease_ms())
        .bind(&*store.replica)
        .bind(wanted.origin)
        .bind(wanted.place);
    crate::fault::point("claim.before_commit");
    let answer = store
        .database
        .within("reclaim", statement.fetch_one(lent.connection()))
        .await;
    crate::fault::point("claim.after_commit");
    lent.answered(answer).map(Claimed::from_row)
}

/// What came of an attempt to take a lapsed claim over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TakeOver {
    /// The claim is ours, under the new token.
    Taken,
    /// It had lapsed too often; the request is failed now.
    Failed,
    /// Not lapsed, not the same attempt any more, or locked.
    NotNow,
}

/// running, lapsed → running under a new token, or → failed with the last lapse that a request survives.
///
/// A server that started less than a lease ago counts nobody's lease as lapsed, unless it was handed back: its holder may be
/// alive and had no chance to renew.
pub(super) async fn take_over(
    store: &Store,
    key: &Key,
    key_hash: i64,
    lapsed: Token,
    token: Token,
    place: Option<&str>,
) -> Result<TakeOver, DatabaseError> {
    const SQL: &str = "
        with lapsed as materialized (
            select principal, request_id, waiters, clock_timestamp() as now, attempt, replica, claimed_at, token, lease_until,
                   lapses + case when lease_until = '-infinity' then 0 else 1 end as lapses
            from requests
            where principal = $1 and request_id = $2 and token = $3 and status = 'running'
              and lease_until < clock_timestamp()
              and (lease_until = '-infinity'
                   or pg_postmaster_start_time() < clock_timestamp() - $5::bigint * interval '1 millisecond')
            for no key update skip locked
        ),
        taken as (
            update requests r
            set status = case when lapsed.lapses >= $6 then 'failed' else 'running' end,
                lapses = lapsed.lapses, token = $4, replica = $7,
                trace = case when lapsed.lapses >= $6 then r.trace else $9 end,
                attempt = r.attempt + case when lapsed.lapses >= $6 then 0 else 1 end,
                claimed_at = case when lapsed.lapses >= $6 then r.claimed_at else lapsed.now end,
                settled_at = case when lapsed.lapses >= $6 then lapsed.now end,
                waiters = lapsed.waiters and lapsed.lapses < $6,
                lease_until = case when lapsed.lapses < $6
                                   then lapsed.now + $5::bigint * interval '1 millisecond' end
            from lapsed
            where r.principal = lapsed.principal and r.request_id = lapsed.request_id
              and r.token = $3 and r.status = 'running'
            returning r.principal, r.request_id, r.status
        ),
        ended as (
            insert into past_attempts (token, principal, request_id, attempt, replica, claimed_at, ended_at, ending)
            select token, principal, request_id, attempt, lapsed.replica, claimed_at, now,
                   case when lease_until = '-infinity' then 'handed back' else 'lapsed' end
            from lapsed join taken using (principal, request_id)
            where taken.status = 'running'
            on conflict do nothing
        ),
        unlisted as (
            delete from unsettled u using taken
            where taken.status = 'failed' and u.principal = taken.principal and u.request_id = taken.request_id
        ),
        announced as materialized (
            select pg_notify('ticket_ledger', $8::bigint::text)
            from taken join lapsed using (principal, request_id)
            where taken.status = 'failed' and lapsed.waiters
        )
        select status, (select count(*) from announced) as announced from taken";
    let mut lent = store.database.lend().await?;
    let statement = sqlx::query_as::<_, (String, i64)>(SQL)
        .bind(&*key.principal)
        .bind(&*key.request_id)
        .bind(lapsed)
        .bind(token)
        .bind(store.limits.lease_ms())
        .bind(MOST_LAPSES)
        .bind(&*store.replica)
        .bind(key_hash)
        .bind(place);
    crate::fault::point("take_over.before_commit");
    let answer = store
        .database
        .within("take_over", statement.fetch_optional(lent.connection()))
        .await;
    crate::fault::point("take_over.after_commit");
    Ok(match lent.answered(answer)? {
        Some((status, _)) if status == "failed" => TakeOver::Failed,
        Some(_) => TakeOver::Taken,
        None => TakeOver::NotNow,
    })
}

/// What reading a key's row shows.
#[derive(Debug, Clone)]
pub(super) enum Look {
    /// The row.
    Row(Box<Seen>),
    /// There is none.
    Nothing {
        /// The key is a UUIDv7 too old to be run: had there been a row, it might be gone.
        too_old: bool,
    },
}

#[derive(FromRow)]
struct Row {
    ord: i64,
    too_old: bool,
    operation: Option<String>,
    fingerprint: Option<Vec<u8>>,
    status: Option<String>,
    token: Option<i64>,
    attempt: Option<i32>,
    waiters: Option<bool>,
    result: Option<String>,
    duplicate_of: Option<String>,
    answered_at: Option<String>,
    age_ms: Option<i64>,
    settled_age_ms: Option<i64>,
    lease_left_ms: Option<i64>,
    replica: Option<String>,
    trace: Option<String>,
}

impl Row {
    /// `None` when there is no row, or one that breaks the schema's own checks.
    fn into_seen(self, keep_results: Duration) -> Option<Seen> {
        let milliseconds = |value: i64| Duration::from_millis(value.max(0).unsigned_abs());
        let settled_age = milliseconds(self.settled_age_ms.unwrap_or(0));
        let ran = Ran {
            replica: self.replica?.into(),
            attempt: self.attempt?,
            place: self.trace.map(Into::into),
        };
        let phase = match self.status.as_deref()? {
            "running" => Phase::Running {
                lease_left: milliseconds(self.lease_left_ms.unwrap_or(0)),
                waiters: self.waiters?,
            },
            "done" => match self.result {
                Some(result) if settled_age <= keep_results => Phase::Done(Settled {
                    result: result.into(),
                    duplicate_of: self.duplicate_of.map(Into::into),
                    answered_at: self.answered_at?.into(),
                    age: settled_age,
                    ran: ran.clone(),
                }),
                _ => Phase::Expired,
            },
            "failed" => Phase::Failed,
            "released" => Phase::Released,
            _ => Phase::Newer,
        };
        Some(Seen {
            operation: self.operation?,
            fingerprint: self.fingerprint?,
            token: self.token?,
            attempt: self.attempt?,
            age: milliseconds(self.age_ms.unwrap_or(0)),
            ran,
            phase,
        })
    }
}

/// A key to be read, and when it says that it was made.
pub(super) type Asked<'a> = (&'a Key, Option<i64>);

/// Reads the rows of `keys`, in their order. A statement of its own, after whatever did not find its way in: in the same
/// statement the older snapshot would not show the rival that was in the way.
pub(super) async fn look(store: &Store, keys: &[Asked<'_>]) -> Result<Vec<Look>, DatabaseError> {
    const SQL: &str = "
        select input.ord, r.operation, r.fingerprint, r.status, r.token, r.attempt, r.waiters, r.result, r.duplicate_of,
               r.replica, r.trace,
               rfc3339(r.settled_at) as answered_at,
               (extract(epoch from now - r.created_at) * 1000)::bigint as age_ms,
               (extract(epoch from now - r.settled_at) * 1000)::bigint as settled_age_ms,
               (extract(epoch from greatest(r.lease_until, now) - now) * 1000)::bigint as lease_left_ms,
               coalesce(to_timestamp(minted_ms / 1000.0) < now - $4::bigint * interval '1 millisecond', false) as too_old
        from unnest($1::text[], $2::text[], $3::bigint[]) with ordinality
             as input (principal, request_id, minted_ms, ord)
        cross join (select clock_timestamp() as now) clock
        left join requests r on r.principal = input.principal and r.request_id = input.request_id
        order by input.ord";
    let principals: Vec<&str> = keys.iter().map(|(key, _)| &*key.principal).collect();
    let request_ids: Vec<&str> = keys.iter().map(|(key, _)| &*key.request_id).collect();
    let minted: Vec<Option<i64>> = keys.iter().map(|(_, minted)| *minted).collect();
    let mut lent = store.database.lend().await?;
    let statement = sqlx::query_as::<_, Row>(SQL)
        .bind(principals)
        .bind(request_ids)
        .bind(minted)
        .bind(store.limits.oldest_key_ms());
    let answer = store
        .database
        .within("look", statement.fetch_all(lent.connection()))
        .await;
    let rows = lent.answered(answer)?;
    debug_assert!(rows.iter().map(|row| row.ord).eq(1..=keys.len() as i64));
    Ok(rows
        .into_iter()
        .map(|row| {
            let too_old = row.too_old;
            match row.into_seen(store.limits.keep_results) {
                Some(seen) => Look::Row(Box::new(seen)),
                None => Look::Nothing { too_old },
            }
        })
        .collect())
}

/// Asks the holder for a notification. Does nothing when the row is not running or is locked; whoever calls this reads the
/// row afterwards, and knows.
pub(super) async fn register_waiter(store: &Store, key: &Key) -> Result<(), DatabaseError> {
    const SQL: &str = "
        update requests r set waiters = true
        from (
            select principal, request_id, token from requests
            where principal = $1 and request_id = $2 and status = 'running' and not waiters
            for no key update skip locked
        ) running
        where r.principal = running.principal and r.request_id = running.request_id
          and r.token = running.token and r.status = 'running'";
    let mut lent = store.database.lend().await?;
    let statement = sqlx::query(SQL).bind(&*key.principal).bind(&*key.request_id);
    let answer = store
        .database
        .within("register_waiter", statement.execute(lent.connection()))
        .await;
    lent.answered(answer).map(|_| ())
}
