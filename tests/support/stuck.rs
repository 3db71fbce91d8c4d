//! Rivals that are stuck in the middle of a transaction.

use sqlx::{Connection, PgConnection};
use ticket_ledger::ledger::Key;

use super::scene::Scene;

/// A transaction by hand, as a rival that is stuck in the middle of one would hold it.
pub struct Stuck(pub PgConnection);

impl Stuck {
    pub async fn on(scene: &Scene) -> Self {
        let mut connection = PgConnection::connect(&scene.url).await.expect("connects");
        sqlx::raw_sql("begin").execute(&mut connection).await.expect("begins");
        Self(connection)
    }

    pub async fn run(&mut self, sql: &'static str) {
        sqlx::raw_sql(sql).execute(&mut self.0).await.expect("runs");
    }

    /// Takes the lock that every claimer of this key tries.
    pub async fn lock(&mut self, principal: &str, request_id: &str) {
        let key = Key {
            principal: principal.into(),
            request_id: request_id.into(),
        };
        sqlx::query("select pg_advisory_xact_lock($1)")
            .bind(key.hash64())
            .execute(&mut self.0)
            .await
            .expect("locks");
    }
}
