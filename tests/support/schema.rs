//! Databases whose schema is older than this program's, or newer.

use std::path::Path;
use std::process::Output;

use sqlx::migrate::{Migration, MigrationType, Migrator};
use sqlx::postgres::PgPoolOptions;
use sqlx::{Connection, PgConnection, SqlStr};

use super::cluster::TestCluster;
use super::scene::Scene;

/// This program's migrations, the oldest first.
pub async fn migrations() -> Vec<Migration> {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/migrations"));
    let all = Migrator::new(folder).await.expect("migrations");
    all.iter().cloned().collect()
}

/// A migration that is not in the folder.
pub fn made_up(version: i64, sql: &'static str) -> Migration {
    let sql = SqlStr::from_static(sql);
    Migration::new(version, "made up".into(), MigrationType::Simple, sql, false)
}

/// A database without a schema; its URL.
pub async fn empty_database() -> String {
    let url = TestCluster::shared().database().await;
    let mut connection = PgConnection::connect(&url).await.expect("connects");
    sqlx::raw_sql("drop schema public cascade; create schema public")
        .execute(&mut connection)
        .await
        .expect("empties");
    url
}

/// A database as it was after the first `count` migrations.
pub async fn scene_after(count: usize) -> Scene {
    let url = empty_database().await;
    let mut known = migrations().await;
    known.truncate(count);
    apply(&url, known).await.expect("migrates");
    let sql = PgPoolOptions::new().max_connections(3).connect(&url).await;
    Scene {
        sql: sql.expect("connects"),
        url,
    }
}

/// What `ticket-ledger migrate` of a release with these migrations does.
pub async fn apply(url: &str, known: Vec<Migration>) -> Result<(), sqlx::migrate::MigrateError> {
    let mut connection = PgConnection::connect(url).await.expect("connects");
    Migrator::with_migrations(known).run(&mut connection).await
}

/// `ticket-ledger migrate`.
pub async fn migrate(url: &str) -> Output {
    let run = tokio::process::Command::new(env!("CARGO_BIN_EXE_ticket-ledger"))
        .arg("migrate")
        .env("DATABASE_URL", url)
        .kill_on_drop(true)
        .output();
    tokio::time::timeout(super::DEADLINE, run)
        .await
        .expect("it ends in time")
        .expect("it runs")
}
