//! The two roles of deploy/postgres/roles.sql: the owner migrates, the application only reads and writes rows.

use std::sync::Arc;
use std::time::Duration;

use sqlx::{AssertSqlSafe, Connection, PgConnection};
use ticket_ledger::postgres::{Database, Reach, Settings, connections};
use tokio::process::Command;

use crate::support::calls::ticket;
use crate::support::cluster::TestCluster;
use crate::support::eventually;
use crate::support::replica::{Replica, Start};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/postgres/roles.sql");

/// A Postgres with the two roles and the schema, made as the runbook says.
struct Roles {
    cluster: TestCluster,
    owner_url: String,
    app_url: String,
}

impl Roles {
    async fn new() -> Self {
        let cluster = TestCluster::own(&[]).await;
        let administrator = cluster.cluster.database_url("postgres");
        let psql = cluster.cluster.bindir().join("psql");
        let made = Command::new(psql)
            .args(["-v", "ON_ERROR_STOP=1", "--no-psqlrc", "-f", SCRIPT, &administrator])
            .env("OWNER_PASSWORD", "the owner's")
            .env("APP_PASSWORD", "the application's")
            .output();
        let made = made.await.expect("psql runs");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let url = |role: &str| {
            let url = cluster.cluster.database_url("ticket_ledger");
            url.replacen("postgres@", &format!("{role}@"), 1)
        };
        let (owner_url, app_url) = (url("ticket_ledger_owner"), url("ticket_ledger"));
        for attempt in ["first", "second"] {
            let migrated = migrate(&owner_url).await;
            assert!(migrated.0, "{attempt}: {}", migrated.1);
        }
        Self {
            cluster,
            owner_url,
            app_url,
        }
    }
}

async fn migrate(url: &str) -> (bool, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_ticket-ledger"))
        .arg("migrate")
        .env("DATABASE_URL", url)
        .output()
        .await
        .expect("it runs");
    (
        output.status.success(),
        String::from_utf8_lossy(&output.stderr).into_owned(),
    )
}

/// Every tool that writes, in one step and in two, and what its replica complains of.
async fn use_it(replica: &Replica) {
    let created = replica.create("by-the-application", "Two roles").await;
    assert_eq!(created.status, 201, "{created:?}");
    let id = created.text("ticket_id");
    let comment = serde_json::json!({ "request_id": "comment", "body": "It may." });
    let commented = replica.post(&format!("/tickets/{id}/comments"), &comment).await;
    assert_eq!(commented.status, 201, "{commented:?}");
    let set = serde_json::json!({ "request_id": "set", "ticket_status": "done" });
    let set = replica
        .http("PUT", &format!("/tickets/{id}/status"), Some(&set))
        .await
        .expect("an answer");
    assert_eq!(set.status, 200, "{set:?}");
    let replayed = replica
        .post("/tickets", &ticket("by-the-application", "Two roles"))
        .await;
    assert_eq!((replayed.status, replayed.text("ticket_id")), (200, id));
    let found = replica.get("/requests?request_id=by-the-application").await;
    assert_eq!(found.text("status"), "done", "{found:?}");
    eventually("it listens", || async {
        (replica.admin("/readyz").await.body["listener"] == "listening").then_some(())
    })
    .await;
    let denied = replica
        .log()
        .into_iter()
        .find(|line| line.to_string().contains("permission denied"));
    assert_eq!(denied, None);
}

#[tokio::test]
async fn the_application_role_serves_and_can_change_nothing_but_rows() {
    let roles = Roles::new().await;
    for work_ms in [0, 20] {
        let replica = Start::on(&roles.app_url).with("WORK_MS", work_ms).ready().await;
        use_it(&replica).await;
        let mut sql = PgConnection::connect(&roles.app_url).await.expect("connects");
        sqlx::raw_sql("delete from comments; delete from tickets; delete from requests")
            .execute(&mut sql)
            .await
            .expect("rows are its own to change");
    }
    let mut sql = PgConnection::connect(&roles.app_url).await.expect("connects");
    sqlx::raw_sql("select * from sweep_requests(3600000, 3600000, 8, 1)")
        .execute(&mut sql)
        .await
        .expect("it sweeps");
    for statement in [
        "create table spare (id integer)",
        "create temporary table spare (id integer)",
        "drop table requests",
        "truncate requests",
        "alter table requests add column spare integer",
        "create index on requests (status)",
        "drop function rfc3339",
        "create schema spare",
        "set role ticket_ledger_owner",
    ] {
        let refused = sqlx::raw_sql(AssertSqlSafe(statement))
            .execute(&mut sql)
            .await
            .expect_err(statement);
        let code = refused
            .as_database_error()
            .and_then(|error| error.code())
            .unwrap_or_default();
        assert_eq!(code, "42501", "{statement}: {refused}");
    }
    // A second role takes the first one's place while its password is changed.
    let url = roles.app_url.replacen("ticket_ledger@", "ticket_ledger_2@", 1);
    let administrator = roles.cluster.cluster.database_url("postgres");
    let mut super_user = PgConnection::connect(&administrator).await.expect("connects");
    sqlx::raw_sql("create role ticket_ledger_2 login in role ticket_ledger")
        .execute(&mut super_user)
        .await
        .expect("a second role");
    use_it(&Start::on(&url).ready().await).await;
    let (migrated, said) = migrate(&roles.app_url).await;
    assert!(!migrated && said.contains("permission denied"), "{said}");
    let mut owner = PgConnection::connect(&roles.owner_url).await.expect("connects");
    sqlx::raw_sql("alter table requests add column spare integer")
        .execute(&mut owner)
        .await
        .expect("the owner may");
}

#[tokio::test]
async fn the_application_role_joins_takes_over_and_issues_tokens() {
    let roles = Roles::new().await;
    let token = issue_token(&roles.app_url).await;
    let start = || Start::on(&roles.app_url).with("AUTH", "token");
    let dying = start().with("WORK_MS", 600_000).ready().await;
    let living = start().with("WORK_MS", 300).ready().await;
    let call = ticket("k", "Taken over");
    let url = format!("http://{}/api/v1/tickets", dying.address);
    let lost = tokio::spawn(
        crate::support::calls::client()
            .post(url)
            .bearer_auth(&token)
            .json(&call)
            .send(),
    );
    let mut sql = PgConnection::connect(&roles.app_url).await.expect("connects");
    let mut running = async || {
        let query = sqlx::query_scalar("select count(*) from requests where status = 'running' and attempt = 1");
        let count: i64 = query.fetch_one(&mut sql).await.expect("a number");
        count == 1
    };
    let began = std::time::Instant::now();
    while !running().await {
        assert!(began.elapsed() < crate::support::DEADLINE, "it is not claimed");
    }
    dying.kill().await;
    assert!(lost.await.expect("it ends").is_err());
    let caller = living.by(&token);
    let (one, two) = tokio::join!(caller.create("k", "Taken over"), caller.create("k", "Taken over"));
    let mut replayed = [&one, &two].map(|answer| answer.body["replayed"].as_bool());
    replayed.sort();
    assert_eq!(replayed, [Some(false), Some(true)], "{one:?} {two:?}");
    let denied = living
        .log()
        .into_iter()
        .find(|line| line.to_string().contains("permission denied"));
    assert_eq!(denied, None);
}

async fn issue_token(url: &str) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_ticket-ledger"))
        .args([
            "admin",
            "token",
            "issue",
            "ci",
            "--scopes",
            "tickets:read,tickets:write",
        ])
        .env("DATABASE_URL", url)
        .output();
    let output = output.await.expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

#[tokio::test]
async fn the_application_role_counts_the_sessions_of_other_roles_too() {
    let roles = Roles::new().await;
    let settings = Settings {
        url: roles.app_url.clone(),
        pool_size: 1,
        acquire_limit: Duration::from_secs(5),
        statement_limit: Duration::from_secs(5),
        lock_limit: Duration::from_secs(1),
    };
    let database = Database::new(&settings, Arc::new(Reach::default())).expect("a pool");
    let before = connections(&database).await.expect("counts");
    let mut others = Vec::new();
    for _ in 0..5 {
        let url = roles.cluster.cluster.database_url("postgres");
        others.push(PgConnection::connect(&url).await.expect("connects"));
    }
    let during = connections(&database).await.expect("counts");
    // An autovacuum worker may come or go meanwhile; the role is not told that it is none of the clients.
    assert!((3..=7).contains(&(before.free - during.free)), "{before:?} {during:?}");
    assert_eq!((before.allowed, during.allowed), (197, 197));
}
