//! The database's tables, as far as they are judged.

use std::collections::{HashMap, HashSet};

use sqlx::{Connection, PgConnection};

use super::twins;
use crate::load::history::Entry;
use crate::load::workload::names_of;

/// A row of the ledger, as far as it is judged.
#[derive(Debug, Clone, sqlx::FromRow)]
pub(super) struct Row {
    pub request_id: String,
    pub principal: String,
    pub operation: String,
    pub status: String,
    pub result: Option<String>,
    /// The earlier request that created the same.
    pub duplicate_of: Option<String>,
    /// How many leases lapsed.
    pub lapses: i32,
    /// When it was settled, in milliseconds since 1970.
    pub settled_ms: Option<i64>,
    /// The same as callers are told it.
    pub answered_at: Option<String>,
    /// How long ago that was when the tables were read, in milliseconds.
    pub age_ms: Option<i64>,
}

impl Row {
    /// Whether a deployment may have dropped the answer, or an entry, for its age: none may do so within an hour.
    pub fn may_be_retired(&self) -> bool {
        const LEAST_KEPT_MS: i64 = 3_600_000;
        self.age_ms.is_some_and(|age| age > LEAST_KEPT_MS)
    }
}

/// The record of an entry that was deleted.
#[derive(Debug, sqlx::FromRow)]
pub(super) struct Deletion {
    pub request_id: String,
    pub entry_id: String,
    pub kind: String,
    pub parent_id: Option<String>,
}

/// An entry in its table.
#[derive(Debug, sqlx::FromRow)]
struct Saved {
    request_id: String,
    principal: String,
    entry_id: String,
    kind: String,
    parent_id: Option<String>,
    title: Option<String>,
    text: String,
    body_sha256: String,
    actor_name: String,
    actor_model: String,
    actor_trigger: String,
    submission_mode: String,
    saved_via: String,
    created_at: String,
}

/// An effect in the tables.
#[derive(Debug, sqlx::FromRow)]
pub(super) struct Effect {
    pub request_id: String,
    pub principal: String,
    pub id: String,
    /// The text that carries the mark of the arguments: a whole title, or the beginning of a body.
    pub text: String,
    /// The SHA-256 of its body, in hex.
    pub body_sha256: String,
    /// As callers are told it.
    pub created_at: String,
    /// Of a comment: its ticket.
    pub ticket: Option<String>,
    /// Of an entry: what it is beside its body.
    #[sqlx(skip)]
    pub entry: Option<Entry>,
    /// Of an entry: by which way it was first saved.
    #[sqlx(skip)]
    pub saved_via: Option<String>,
    /// Of a ticket: the status that it has now.
    pub status: Option<String>,
}

impl Effect {
    /// Whether it is of the call with this mark.
    pub fn carries(&self, mark: &str) -> bool {
        let has_title = self.status.is_some() || self.entry.as_ref().is_some_and(|entry| entry.title.is_some());
        let carrier = if has_title {
            Some(self.text.as_str())
        } else {
            self.text.lines().next()
        };
        carrier.is_some_and(|text| text == format!("load {mark}"))
    }
}

impl From<Saved> for Effect {
    fn from(saved: Saved) -> Self {
        Self {
            request_id: saved.request_id,
            principal: saved.principal,
            id: saved.entry_id,
            text: saved.title.clone().unwrap_or(saved.text),
            body_sha256: saved.body_sha256,
            created_at: saved.created_at,
            ticket: None,
            status: None,
            saved_via: Some(saved.saved_via),
            entry: Some(Entry {
                kind: saved.kind,
                parent_id: saved.parent_id,
                title: saved.title,
                actor_name: saved.actor_name,
                actor_model: saved.actor_model,
                actor_trigger: saved.actor_trigger,
                submission_mode: saved.submission_mode,
            }),
        }
    }
}

/// A row or an effect that is not the run's and came to be during it.
#[derive(Debug, sqlx::FromRow)]
pub(super) struct Stranger {
    pub request_id: String,
    /// `the ledger's row`, or the effect's id.
    pub what: String,
}

/// A time by the database's clock, in microseconds since 1970, both ends in it.
pub type Window = (i64, i64);

/// The tables of a run.
pub struct Tables {
    pub(super) rows: HashMap<String, Row>,
    /// Requests that have more than one row, and those rows' principals.
    pub(super) crowded: Vec<(String, Vec<String>)>,
    pub(super) effects: HashMap<String, Vec<Effect>>,
    pub(super) deletions: HashMap<String, Vec<Deletion>>,
    pub(super) strangers: Vec<Stranger>,
    /// Of the requests that rows name as their twins, those that are in the ledger.
    pub(super) twins: HashSet<String>,
    /// Requests that an operator let be tried again.
    pub(super) retried: HashSet<String>,
}

impl Tables {
    /// Reads the tables of this run, and of the time in which nobody else had to do with them.
    ///
    /// # Errors
    /// The database cannot be read.
    pub async fn read(database_url: &str, run: &str, alone: Option<Window>) -> Result<Self, sqlx::Error> {
        let names = names_of(run);
        let mut connection = PgConnection::connect(database_url).await?;
        // One snapshot: after a run that was interrupted, replicas may still be settling.
        sqlx::raw_sql("begin transaction isolation level repeatable read read only")
            .execute(&mut connection)
            .await?;
        let rows = rows(&mut connection, &names).await?;
        let mut effects = tickets_and_comments(&mut connection, &names).await?;
        effects.extend(entries(&mut connection, &names).await?.into_iter().map(Effect::from));
        let deletions = deletions(&mut connection, &names).await?;
        let mut tables = Self::of(rows, effects, deletions);
        if let Some(window) = alone {
            tables.strangers = strangers(&mut connection, &names, window).await?;
        }
        let named: Vec<String> = tables.rows.values().filter_map(twins::named).collect();
        tables.twins = known(&mut connection, &named).await?.into_iter().collect();
        tables.retried = retried(&mut connection, &names).await?.into_iter().collect();
        connection.close().await?;
        Ok(tables)
    }

    pub(super) fn of(rows: Vec<Row>, effects: Vec<Effect>, deletions: Vec<Deletion>) -> Self {
        let mut by_name = by_request(rows, |row| &row.request_id);
        let principals = |rows: &Vec<Row>| rows.iter().map(|row| row.principal.clone()).collect();
        let crowded = by_name.iter().filter(|(_, rows)| rows.len() > 1);
        Self {
            crowded: crowded
                .map(|(request, rows)| (request.clone(), principals(rows)))
                .collect(),
            rows: by_name
                .drain()
                .filter_map(|(request, mut rows)| Some((request, rows.pop()?)))
                .collect(),
            effects: by_request(effects, |effect| &effect.request_id),
            deletions: by_request(deletions, |deletion| &deletion.request_id),
            strangers: Vec::new(),
            twins: HashSet::new(),
            retried: HashSet::new(),
        }
    }
}

async fn rows(connection: &mut PgConnection, names: &str) -> Result<Vec<Row>, sqlx::Error> {
    const SQL: &str = r#"
        select request_id, principal, operation, status, result, duplicate_of, lapses,
               (extract(epoch from settled_at) * 1000)::bigint as settled_ms,
               to_char(settled_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as answered_at,
               (extract(epoch from clock_timestamp() - settled_at) * 1000)::bigint as age_ms
        from requests where starts_with(request_id, $1)"#;
    sqlx::query_as(SQL).bind(names).fetch_all(connection).await
}

async fn tickets_and_comments(connection: &mut PgConnection, names: &str) -> Result<Vec<Effect>, sqlx::Error> {
    const SQL: &str = r#"
        select request_id, principal, id, text, encode(sha256(convert_to(body, 'UTF8')), 'hex') as body_sha256,
               to_char(created_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as created_at, ticket, status
        from (
            select request_id, principal, ticket_id as id, title as text, body, created_at, null as ticket,
                   ticket_status as status
            from tickets
            union all
            select request_id, principal, comment_id, left(body, 200), body, created_at, ticket_id, null from comments
        ) effects
        where starts_with(request_id, $1)"#;
    sqlx::query_as(SQL).bind(names).fetch_all(connection).await
}

async fn entries(connection: &mut PgConnection, names: &str) -> Result<Vec<Saved>, sqlx::Error> {
    const SQL: &str = r#"
        select request_id, principal, entry_id, type as kind, parent_id, title, left(body, 200) as text,
               encode(sha256(convert_to(body, 'UTF8')), 'hex') as body_sha256,
               actor_name, actor_model, actor_trigger, submission_mode, saved_via,
               to_char(created_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as created_at
        from entries where starts_with(request_id, $1)"#;
    sqlx::query_as(SQL).bind(names).fetch_all(connection).await
}

async fn deletions(connection: &mut PgConnection, names: &str) -> Result<Vec<Deletion>, sqlx::Error> {
    const SQL: &str = "
        select request_id, entry_id, type as kind, parent_id from deleted_entries where starts_with(request_id, $1)";
    sqlx::query_as(SQL).bind(names).fetch_all(connection).await
}

/// What came to be in this time under other names. A claim that an earlier run has left is finished by whoever starts next, and is
/// no stranger.
async fn strangers(
    connection: &mut PgConnection,
    names: &str,
    (from_us, to_us): Window,
) -> Result<Vec<Stranger>, sqlx::Error> {
    const SQL: &str = "
        with made as (
            select request_id, principal, created_at, 'the ledger''s row' as what from requests
            union all select request_id, principal, created_at, ticket_id from tickets
            union all select request_id, principal, created_at, comment_id from comments
            union all select request_id, principal, created_at, entry_id from entries
        ),
        alone as (
            select timestamptz 'epoch' + $2 * interval '1 microsecond' as begun,
                   timestamptz 'epoch' + $3 * interval '1 microsecond' as ended
        )
        select made.request_id, made.what
        from made join alone on made.created_at between alone.begun and alone.ended
        where not starts_with(made.request_id, $1)
          and not exists (select from requests r
                          where r.principal = made.principal and r.request_id = made.request_id and r.created_at < alone.begun)
        order by made.request_id, made.what";
    sqlx::query_as(SQL)
        .bind(names)
        .bind(from_us)
        .bind(to_us)
        .fetch_all(connection)
        .await
}

async fn known(connection: &mut PgConnection, requests: &[String]) -> Result<Vec<String>, sqlx::Error> {
    sqlx::query_scalar("select distinct request_id from requests where request_id = any ($1) and status = 'done'")
        .bind(requests)
        .fetch_all(connection)
        .await
}

async fn retried(connection: &mut PgConnection, names: &str) -> Result<Vec<String>, sqlx::Error> {
    sqlx::query_scalar("select subject from audit where action = 'retry' and starts_with(subject, $1)")
        .bind(names)
        .fetch_all(connection)
        .await
}

fn by_request<T>(rows: Vec<T>, request: impl Fn(&T) -> &String) -> HashMap<String, Vec<T>> {
    let mut by_request: HashMap<String, Vec<T>> = HashMap::new();
    for row in rows {
        by_request.entry(request(&row).clone()).or_default().push(row);
    }
    by_request
}
