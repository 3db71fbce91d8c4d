//! The database's tables, as far as they are judged.

use std::collections::HashMap;

use sqlx::{Connection, PgConnection};

/// A row of the ledger, as far as it is judged.
#[derive(Debug, sqlx::FromRow)]
pub(super) struct Row {
    pub request_id: String,
    pub operation: String,
    pub status: String,
    pub result: Option<String>,
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

/// The tables of a run.
pub struct Tables {
    pub(super) rows: HashMap<String, Row>,
    pub(super) effects: HashMap<String, Vec<Effect>>,
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
            "select request_id, operation, status, result from requests where starts_with(request_id, $1)",
        )
        .bind(run)
        .fetch_all(&mut connection)
        .await?;
        let effects: Vec<Effect> = sqlx::query_as(
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
        connection.close().await?;
        Ok(Self::of(rows, effects))
    }

    pub(super) fn of(rows: Vec<Row>, effects: Vec<Effect>) -> Self {
        let mut by_request: HashMap<String, Vec<Effect>> = HashMap::new();
        for effect in effects {
            by_request.entry(effect.request_id.clone()).or_default().push(effect);
        }
        Self {
            rows: rows.into_iter().map(|row| (row.request_id.clone(), row)).collect(),
            effects: by_request,
        }
    }
}
