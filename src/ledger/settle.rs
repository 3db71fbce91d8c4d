//! The ends of an attempt: settled together with its effect, released without a trace, or handed back.

use std::sync::Arc;

use serde_json::Value;
use sqlx::FromRow;
use tracing::Span;
use uuid::Uuid;

use super::Store;
use super::effect::{Act, Refused};
use super::state::{Fingerprint, Key, Ran, Settled, Token};
use crate::postgres::DatabaseError;
use crate::sabotage;

/// One request that is to be claimed, acted on and settled in one statement.
#[derive(Debug, Clone)]
pub(super) struct Item {
    pub key: Key,
    pub key_hash: i64,
    pub fingerprint: Fingerprint,
    pub token: Token,
    pub arguments: String,
    pub made: Value,
    pub minted_ms: Option<i64>,
    pub origin: Arc<str>,
    /// The place of the attempt in its trace.
    pub place: Option<Arc<str>>,
    /// The flight that brought it, for the statement's span.
    pub span: Span,
}

/// What a settling statement says of one item.
#[derive(Debug, Clone)]
pub(super) enum Outcome {
    /// Done and recorded.
    Settled(Settled),
    /// Refused by the operation; nothing changed.
    Refused(Refused),
}

#[derive(FromRow)]
struct Row {
    ord: i64,
    refusal: Option<String>,
    detail: Option<String>,
    result: Option<String>,
    duplicate_of: Option<String>,
    answered_at: Option<String>,
    attempt: i32,
}

impl Row {
    /// `None` for an item that a rival claimed meanwhile.
    fn into_outcome(self, store: &Store, item: &Item) -> Option<Outcome> {
        if let Some(code) = self.refusal {
            return Some(Outcome::Refused(Refused {
                code,
                detail: self.detail.unwrap_or_default(),
            }));
        }
        Some(Outcome::Settled(Settled {
            result: self.result?.into(),
            duplicate_of: self.duplicate_of.map(Into::into),
            answered_at: self.answered_at?.into(),
            age: std::time::Duration::ZERO,
            ran: Ran {
                replica: Arc::clone(&store.replica),
                attempt: self.attempt,
                place: item.place.clone(),
            },
        }))
    }
}

/// A digest of who created what, to recognise the same creation under another request_id.
pub(super) fn creation_digest(principal: &str, fingerprint: &Fingerprint) -> Uuid {
    use sha2::{Digest, Sha256};
    let digest = Sha256::new()
        .chain_update(principal.as_bytes())
        .chain_update([0])
        .chain_update(fingerprint.0)
        .finalize();
    Uuid::from_bytes(digest.first_chunk().copied().unwrap_or_default())
}

/// (no row) → done, for every item that is free, with its effect, in one statement. `None` stands for an item that has a row,
/// is locked by another claimer, or is too old to be run. Items must be sorted by key and every key must occur once.
pub(super) async fn claim_act_settle(
    store: &Store,
    act: &dyn Act,
    items: &[&Item],
) -> Result<Vec<Option<Outcome>>, DatabaseError> {
    debug_assert!(
        items.is_sorted_by(|a, b| { (&a.key.principal, &a.key.request_id) < (&b.key.principal, &b.key.request_id) })
    );
    let digest = |item: &&Item| {
        (store.limits.tell_duplicates && act.effect().creates)
            .then(|| creation_digest(&item.key.principal, &item.fingerprint))
    };
    let text = |of: fn(&Item) -> &str| items.iter().map(|item| of(item)).collect::<Vec<_>>();
    let statement = sqlx::query_as::<_, Row>(sabotage::sql(act.effect().one_step))
        .bind(text(|item| &item.key.principal))
        .bind(text(|item| &item.key.request_id))
        .bind(items.iter().map(|item| item.key_hash).collect::<Vec<_>>())
        .bind(
            items
                .iter()
                .map(|item| item.fingerprint.0.as_slice())
                .collect::<Vec<_>>(),
        )
        .bind(items.iter().map(|item| item.token).collect::<Vec<_>>())
        .bind(text(|item| &item.arguments))
        .bind(items.iter().map(|item| item.made.to_string()).collect::<Vec<_>>())
        .bind(items.iter().map(digest).collect::<Vec<_>>())
        .bind(items.iter().map(|item| item.minted_ms).collect::<Vec<_>>())
        .bind(store.limits.oldest_key_ms())
        .bind(act.name())
        .bind(&*store.replica)
        .bind(text(|item| &item.origin))
        .bind(store.limits.most_writes_per_hour)
        .bind(items.iter().map(|item| item.place.as_deref()).collect::<Vec<_>>());
    let mut lent = store.database.lend().await?;
    crate::fault::point("one_step.before_commit");
    let answer = store
        .database
        .within("claim_act_settle", statement.fetch_all(lent.connection()))
        .await;
    crate::fault::point("one_step.after_commit");
    let rows = lent.answered(answer)?;
    let mut outcomes: Vec<Option<Outcome>> = items.iter().map(|_| None).collect();
    for row in rows {
        let place = usize::try_from(row.ord - 1).unwrap_or(usize::MAX);
        if let (Some(outcome), Some(item)) = (outcomes.get_mut(place), items.get(place)) {
            *outcome = row.into_outcome(store, item);
        }
    }
    Ok(outcomes)
}

/// running → done with its effect, or → released when the operation refuses. `None` means *lost*: the row is no longer this
/// attempt's, and nothing was changed.
pub(super) async fn settle(store: &Store, act: &dyn Act, item: &Item) -> Result<Option<Outcome>, DatabaseError> {
    let digest = (store.limits.tell_duplicates && act.effect().creates)
        .then(|| creation_digest(&item.key.principal, &item.fingerprint));
    let statement = |sql: &'static str| {
        sqlx::query_as::<_, Row>(sql)
            .bind(&*item.key.principal)
            .bind(&*item.key.request_id)
            .bind(item.token)
            .bind(&item.arguments)
            .bind(item.made.to_string())
            .bind(digest)
            .bind(item.key_hash)
            .bind(store.limits.most_writes_per_hour)
    };
    if sabotage::is(sabotage::Kind::EffectOutside) {
        let effect = statement(sabotage::effect_alone(act.effect().two_step));
        let mut lent = store.database.lend().await?;
        let answer = store
            .database
            .within("settle", effect.fetch_optional(lent.connection()))
            .await;
        lent.answered(answer)?;
    }
    let statement = statement(sabotage::sql(act.effect().two_step));
    let mut lent = store.database.lend().await?;
    crate::fault::point("settle.before_commit");
    let answer = store
        .database
        .within("settle", statement.fetch_optional(lent.connection()))
        .await;
    crate::fault::point("settle.after_commit");
    let row = lent.answered(answer)?;
    Ok(row.and_then(|row| row.into_outcome(store, item)))
}

/// running → released: the attempt failed and changed nothing. False means *lost*.
pub(super) async fn release(store: &Store, key: &Key, key_hash: i64, token: Token) -> Result<bool, DatabaseError> {
    const SQL: &str = "
        with held as materialized (
            select principal, request_id, waiters from requests
            where principal = $1 and request_id = $2 and token = $3 and status = 'running'
            for no key update
        ),
        released as (
            update requests r
            set status = 'released', lease_until = null, arguments = null, waiters = false,
                settled_at = clock_timestamp()
            from held
            where r.principal = held.principal and r.request_id = held.request_id
              and r.token = $3 and r.status = 'running'
            returning r.principal, r.request_id
        ),
        unlisted as (
            delete from unsettled u using released
            where u.principal = released.principal and u.request_id = released.request_id
        ),
        announced as materialized (
            select pg_notify('ticket_ledger', $4::bigint::text) from held where waiters
        )
        select (select count(*) from released), (select count(*) from announced)";
    let mut lent = store.database.lend().await?;
    let statement = sqlx::query_as::<_, (i64, i64)>(SQL)
        .bind(&*key.principal)
        .bind(&*key.request_id)
        .bind(token)
        .bind(key_hash);
    crate::fault::point("release.before_commit");
    let answer = store
        .database
        .within("release", statement.fetch_one(lent.connection()))
        .await;
    crate::fault::point("release.after_commit");
    lent.answered(answer).map(|(released, _)| released == 1)
}

/// running → running, lapsed at once: this replica stops and another one may go on. The row stays, and its waiters are told.
/// False means *lost*.
pub(super) async fn hand_back(store: &Store, key: &Key, key_hash: i64, token: Token) -> Result<bool, DatabaseError> {
    const SQL: &str = "
        with held as materialized (
            select principal, request_id, waiters from requests
            where principal = $1 and request_id = $2 and token = $3 and status = 'running'
            for no key update
        ),
        handed_back as (
            update requests r set lease_until = '-infinity'
            from held
            where r.principal = held.principal and r.request_id = held.request_id
              and r.token = $3 and r.status = 'running'
            returning r.token
        ),
        announced as materialized (
            select pg_notify('ticket_ledger', $4::bigint::text) from held where waiters
        )
        select (select count(*) from handed_back), (select count(*) from announced)";
    let mut lent = store.database.lend().await?;
    let statement = sqlx::query_as::<_, (i64, i64)>(SQL)
        .bind(&*key.principal)
        .bind(&*key.request_id)
        .bind(token)
        .bind(key_hash);
    crate::fault::point("hand_back.before_commit");
    let answer = store
        .database
        .within("hand_back", statement.fetch_one(lent.connection()))
        .await;
    crate::fault::point("hand_back.after_commit");
    lent.answered(answer).map(|(handed_back, _)| handed_back == 1)
}
