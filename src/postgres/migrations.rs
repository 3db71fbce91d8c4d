//! The schema: making it as new as this program needs, and asking whether it is.

use std::time::Duration;

use sqlx::migrate::Migrator;
use sqlx::{Connection, PgConnection};

use super::error::DatabaseError;
use super::pool::{Database, connect_options};

static MIGRATIONS: Migrator = sqlx::migrate!();

/// Whether the schema is as new as this program needs. A newer one is fine: migrations expand before they contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SchemaState {
    /// Every migration this program knows has been applied.
    Ready,
    /// At least one is missing; `ticket-ledger migrate` applies it.
    Behind,
}

/// Applies what is missing. Safe to run from several places at once: an advisory lock lets one of them do it.
///
/// # Errors
/// The server cannot be reached within `limit`, the database is not in UTF-8, or a migration fails.
pub async fn migrate(url: &str, limit: Duration) -> Result<(), DatabaseError> {
    let options = connect_options(url)?.application_name("ticket-ledger migrate");
    let mut connection = tokio::time::timeout(limit, PgConnection::connect_with(&options))
        .await
        .map_err(|_| DatabaseError::no_answer(limit))??;
    check_encoding(&mut connection).await?;
    let mut migrator = Migrator::with_migrations(MIGRATIONS.iter().cloned().collect());
    // An older program beside a newer schema: what it does not know was made so that it can go on.
    migrator.set_ignore_missing(true);
    let applied = migrator.run(&mut connection).await;
    crate::sabotage::prepare(&mut connection).await;
    let _ = connection.close().await;
    applied.map_err(|error| match error {
        sqlx::migrate::MigrateError::Execute(error) => DatabaseError::from(error),
        other => DatabaseError::Fatal(other.to_string()),
    })
}

/// Refuses a database that would count and cut text by bytes.
async fn check_encoding(connection: &mut PgConnection) -> Result<(), DatabaseError> {
    let encoding: String = sqlx::query_scalar("show server_encoding").fetch_one(connection).await?;
    match &*encoding {
        "UTF8" => Ok(()),
        _ => Err(DatabaseError::Encoding(encoding)),
    }
}

/// Asks how new the schema is.
///
/// # Errors
/// The server cannot be reached.
pub async fn schema_state(database: &Database) -> Result<SchemaState, DatabaseError> {
    let newest = MIGRATIONS.iter().map(|migration| migration.version).max();
    let mut lent = database.lend().await?;
    let statement =
        sqlx::query_scalar::<_, bool>("select exists (select from _sqlx_migrations where version >= $1 and success)")
            .bind(newest);
    let answer = database
        .within("schema_state", statement.fetch_one(lent.connection()))
        .await;
    match lent.answered(answer) {
        Ok(true) => Ok(SchemaState::Ready),
        Ok(false) => Ok(SchemaState::Behind),
        // The table of migrations itself does not exist yet.
        Err(DatabaseError::Fatal(message)) if message.starts_with("42P01") => Ok(SchemaState::Behind),
        Err(error) => Err(error),
    }
}

/// Makes a database on a private cluster if it is not there yet. `name` is this program's own, never a caller's.
///
/// # Errors
/// The server cannot be reached, or refuses.
pub async fn make_database(maintenance_url: &str, name: &'static str) -> Result<(), DatabaseError> {
    let mut connection = PgConnection::connect_with(&connect_options(maintenance_url)?).await?;
    let there: bool = sqlx::query_scalar("select exists (select from pg_database where datname = $1)")
        .bind(name)
        .fetch_one(&mut connection)
        .await?;
    if !there {
        // An identifier cannot be a parameter.
        let statement = format!("create database \"{name}\"");
        sqlx::raw_sql(sqlx::AssertSqlSafe(statement))
            .execute(&mut connection)
            .await?;
    }
    let _ = connection.close().await;
    Ok(())
}
