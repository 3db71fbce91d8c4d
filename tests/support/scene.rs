//! A database of a test's own, with what a test asks of it.

use sqlx::postgres::{PgPool, PgPoolOptions};

use super::cluster::TestCluster;
use super::eventually;
use super::replica::{Replica, Start};

/// A database and the way to look into it.
pub struct Scene {
    pub url: String,
    pub sql: PgPool,
}

/// A request's row.
#[derive(Debug, Clone, PartialEq, sqlx::FromRow)]
pub struct Row {
    pub status: String,
    pub token: i64,
    pub attempt: i32,
    pub lapses: i32,
    pub waiters: bool,
    pub replica: String,
    pub lapsed: Option<bool>,
}

impl Scene {
    /// On the Postgres that all tests share.
    pub async fn new() -> Self {
        Self::on(TestCluster::shared()).await
    }

    /// On a Postgres of the test's own.
    pub async fn on(cluster: &TestCluster) -> Self {
        let url = cluster.database().await;
        let sql = PgPoolOptions::new()
            .max_connections(3)
            .connect(&url)
            .await
            .expect("connects");
        Self { url, sql }
    }

    /// How a replica on this database is started.
    pub fn replica(&self) -> Start {
        Start::on(&self.url)
    }

    /// Some replicas that take calls.
    pub async fn replicas<const N: usize>(&self) -> [Replica; N] {
        let mut replicas = Vec::new();
        for _ in 0..N {
            replicas.push(self.replica().ready().await);
        }
        replicas.try_into().ok().expect("as many as were started")
    }

    /// `ticket-ledger admin …` on this database: its exit status, and what it printed to standard output and error.
    pub async fn admin(&self, arguments: &[&str]) -> (i32, String, String) {
        let run = tokio::process::Command::new(env!("CARGO_BIN_EXE_ticket-ledger"))
            .arg("admin")
            .args(arguments)
            .env("DATABASE_URL", &self.url)
            .kill_on_drop(true)
            .output();
        let output = tokio::time::timeout(super::DEADLINE, run)
            .await
            .expect("it ends in time")
            .expect("it runs");
        let text = |bytes| String::from_utf8(bytes).expect("text").trim().to_owned();
        (
            output.status.code().expect("a status"),
            text(output.stdout),
            text(output.stderr),
        )
    }

    /// One number.
    pub async fn count(&self, sql: &'static str) -> i64 {
        sqlx::query_scalar(sql).fetch_one(&self.sql).await.expect("a number")
    }

    /// How many tickets there are.
    pub async fn tickets(&self) -> i64 {
        self.count("select count(*) from tickets").await
    }

    /// A request's row, whoever its principal is.
    pub async fn row(&self, request_id: &str) -> Option<Row> {
        sqlx::query_as(
            "select status, token, attempt, lapses, waiters, replica, lease_until < clock_timestamp() as lapsed
             from requests where request_id = $1",
        )
        .bind(request_id)
        .fetch_optional(&self.sql)
        .await
        .expect("a row or none")
    }

    /// Waits until a request has this status.
    pub async fn until(&self, request_id: &str, status: &str) -> Row {
        eventually(&format!("{request_id} is {status}"), || async {
            self.row(request_id).await.filter(|row| row.status == status)
        })
        .await
    }

    /// Waits until somebody on another replica waits for a request.
    pub async fn until_waited_for(&self, request_id: &str) {
        eventually(&format!("{request_id} is waited for"), || async {
            self.row(request_id).await.filter(|row| row.waiters)
        })
        .await;
    }

    /// Waits until the lease of a running request has been renewed once more.
    pub async fn until_renewed(&self, request_id: &str) {
        let before = self.lease_until(request_id).await;
        eventually(&format!("{request_id} is renewed"), || async {
            (self.lease_until(request_id).await != before).then_some(())
        })
        .await;
    }

    async fn lease_until(&self, request_id: &str) -> Option<String> {
        sqlx::query_scalar("select lease_until::text from requests where request_id = $1")
            .bind(request_id)
            .fetch_one(&self.sql)
            .await
            .expect("a row")
    }
}
