//! What an operator may do by hand: to a request, and to all writes.

use super::state::Key;
use crate::postgres::{Database, DatabaseError};

/// What came of [`retry`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retried {
    /// It was failed; it will be run again, by a caller or by the next scan.
    Freed,
    /// It is not failed.
    NotFailed,
    /// There is no such request.
    Unknown,
}

/// failed → running, lapsed and with all its lapses forgiven. Leaves an audit row.
///
/// # Errors
/// Postgres cannot be reached.
pub async fn retry(database: &Database, key: &Key, actor: &str) -> Result<Retried, DatabaseError> {
    const SQL: &str = "
        with failed as materialized (
            select principal, request_id, status from requests where principal = $1 and request_id = $2
            for no key update
        ),
        freed as (
            update requests r set status = 'running', lease_until = '-infinity', lapses = 0, settled_at = null
            from failed
            where r.principal = failed.principal and r.request_id = failed.request_id and r.status = 'failed'
            returning r.principal, r.request_id
        ),
        listed as (
            insert into unsettled select principal, request_id from freed on conflict do nothing
        ),
        audited as (
            insert into audit (actor, action, subject, outcome)
            select $3, 'retry', $2, case when exists (select from freed) then 'freed' else 'not failed' end
        )
        select exists (select from failed), exists (select from freed)";
    let mut lent = database.lend().await?;
    let statement = sqlx::query_as::<_, (bool, bool)>(SQL)
        .bind(&*key.principal)
        .bind(&*key.request_id)
        .bind(actor);
    let answer = database.within("retry", statement.fetch_one(lent.connection())).await;
    Ok(match lent.answered(answer)? {
        (false, _) => Retried::Unknown,
        (true, false) => Retried::NotFailed,
        (true, true) => Retried::Freed,
    })
}

/// Stops all writes, or allows them again, on every replica. Returns once no write that came before the change is under way:
/// after a stop nothing new is saved. False when it was so already. Leaves an audit row.
///
/// # Errors
/// Postgres cannot be reached, or a write that is under way does not end in time; then nothing is changed.
pub async fn set_write_stop(database: &Database, stopped: bool, actor: &str) -> Result<bool, DatabaseError> {
    const SQL: &str = "
        with switched as materialized (
            select set_write_stop($1) as changed
        ),
        audited as (
            insert into audit (actor, action, subject, outcome)
            select $2, case when $1 then 'stop-writes' else 'allow-writes' end, 'writes',
                   case when changed then 'changed' else 'already so' end
            from switched
        )
        select changed from switched";
    let mut lent = database.lend().await?;
    let statement = sqlx::query_scalar(SQL).bind(stopped).bind(actor);
    let answer = database
        .within("set_write_stop", statement.fetch_one(lent.connection()))
        .await;
    lent.answered(answer)
}
