//! The database's tables, as far as they are judged.

use std::collections::HashMap;

use sqlx::{Connection, PgConnection};

use crate::load::history::Entry;

/// A row of the ledger, as far as it is judged.
#[derive(Debug, sqlx::FromRow)]
pub(super) struct Row {
    pub request_id: String,
    pub operation: String,
    pub status: String,
    pub result: Option<String>,
    /// When it was settled, in milliseconds since 1970.
    pub settled_ms: Option<i64>,
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
}

/// An effect in the tables.
#[derive(Debug, sqlx::FromRow)]
pub(super) struct Effect {
    pub request_id: String,
    pub id: String,
    /// The text that carries the mark of the arguments.
    pub text: String,
    /// The SHA-256 of its body, in hex.
    pub body_sha256: String,
    /// Of a comment: its ticket.
    pub ticket: Option<String>,
    /// Of an entry: what it is beside its body.
    #[sqlx(skip)]
    pub entry: Option<Entry>,
    /// Of a ticket: the status that it has now.
    pub status: Option<String>,
}

impl Effect {
    /// Whether it is of the call with this mark.
    pub fn carries(&self, mark: &str) -> bool {
        self.text
            .lines()
            .next()
            .is_some_and(|line| line == format!("load {mark}"))
    }
}

impl From<Saved> for Effect {
    fn from(saved: Saved) -> Self {
        Self {
            request_id: saved.request_id,
            id: saved.entry_id,
            text: saved.title.clone().unwrap_or(saved.text),
            body_sha256: saved.body_sha256,
            ticket: None,
            status: None,
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

/// The tables of a run.
pub struct Tables {
    pub(super) rows: HashMap<String, Row>,
    pub(super) effects: HashMap<String, Vec<Effect>>,
    pub(super) deletions: HashMap<String, Vec<Deletion>>,
}

impl Tables {
    /// Reads the tables of the run whose request_ids begin with `run`.
    ///
    /// # Errors
    /// The database cannot be read.
    pub async fn read(database_url: &str, run: &str) -> Result<Self, sqlx::Error> {
        let mut connection = PgConnection::connect(database_url).await?;
        // One snapshot: after a run that was interrupted, replicas may still be settling.
        sqlx::raw_sql("begin transaction isolation level repeatable read read only")
            .execute(&mut connection)
            .await?;
        let rows: Vec<Row> = sqlx::query_as(
            "select request_id, operation, status, result, (extract(epoch from settled_at) * 1000)::bigint as settled_ms
             from requests where starts_with(request_id, $1)",
        )
        .bind(run)
        .fetch_all(&mut connection)
        .await?;
        let mut effects: Vec<Effect> = sqlx::query_as(
            "select request_id, ticket_id as id, title as text, encode(sha256(convert_to(body, 'UTF8')), 'hex') as body_sha256,
                    null as ticket, ticket_status as status
             from tickets where starts_with(request_id, $1)
             union all
             select request_id, comment_id, left(body, 200), encode(sha256(convert_to(body, 'UTF8')), 'hex'), ticket_id, null
             from comments where starts_with(request_id, $1)",
        )
        .bind(run)
        .fetch_all(&mut connection)
        .await?;
        let entries: Vec<Saved> = sqlx::query_as(
            "select request_id, entry_id, type as kind, parent_id, title, left(body, 200) as text,
                    encode(sha256(convert_to(body, 'UTF8')), 'hex') as body_sha256,
                    actor_name, actor_model, actor_trigger, submission_mode
             from entries where starts_with(request_id, $1)",
        )
        .bind(run)
        .fetch_all(&mut connection)
        .await?;
        effects.extend(entries.into_iter().map(Effect::from));
        let deletions: Vec<Deletion> = sqlx::query_as(
            "select request_id, entry_id, type as kind, parent_id from deleted_entries where starts_with(request_id, $1)",
        )
        .bind(run)
        .fetch_all(&mut connection)
        .await?;
        connection.close().await?;
        Ok(Self::of(rows, effects, deletions))
    }

    pub(super) fn of(rows: Vec<Row>, effects: Vec<Effect>, deletions: Vec<Deletion>) -> Self {
        Self {
            rows: rows.into_iter().map(|row| (row.request_id.clone(), row)).collect(),
            effects: by_request(effects, |effect| &effect.request_id),
            deletions: by_request(deletions, |deletion| &deletion.request_id),
        }
    }
}

fn by_request<T>(rows: Vec<T>, request: impl Fn(&T) -> &String) -> HashMap<String, Vec<T>> {
    let mut by_request: HashMap<String, Vec<T>> = HashMap::new();
    for row in rows {
        by_request.entry(request(&row).clone()).or_default().push(row);
    }
    by_request
}
