//! This release on the schema of the one before it, whose migration has not run yet.

use std::sync::Arc;

use serde_json::json;
use ticket_ledger::postgres::{Database, Reach, SchemaState, Settings, schema_state};

use super::{is_replayed, start, use_everything};
use crate::support::calls::ticket;
use crate::support::cluster::TestCluster;
use crate::support::replica::{Replica, Start};
use crate::support::scene::Scene;
use crate::support::schema::{empty_database, migrate, migrations, scene_after};
use crate::support::{DEADLINE, eventually};

/// Its connections are refused, so that a balancer asks another replica, and its log and admin address tell why.
async fn waits_for_its_schema(replica: &Replica) {
    let said = eventually("it says why", || async { replica.find_log("not ready yet") }).await;
    let reason = said["reason"].as_str().expect("a reason");
    assert_eq!(
        reason,
        "the schema is older than this program needs; run ticket-ledger migrate"
    );
    let early = replica.http("POST", "/tickets", Some(&ticket("early", "Early"))).await;
    assert!(early.as_ref().is_err_and(reqwest::Error::is_connect), "{early:?}");
    assert_eq!(replica.admin("/livez").await.status, 200);
    let ready = replica.admin("/readyz").await;
    assert_eq!((ready.status, &ready.body["stage"]), (503, &json!("starting")));
}

#[tokio::test]
async fn a_replica_on_an_empty_database_refuses_connections_until_it_is_migrated_also_by_two_at_once() {
    let url = empty_database().await;
    let replica = Start::on(&url).bound().await;
    waits_for_its_schema(&replica).await;
    let (one, two) = tokio::join!(migrate(&url), migrate(&url));
    assert!(one.status.success() && two.status.success(), "{one:?} {two:?}");
    eventually("it is ready", || async { replica.logged("ready").then_some(()) }).await;
    assert_eq!(replica.create("early", "Early").await.status, 201);
    assert!(migrate(&url).await.status.success(), "again is fine");
}

#[tokio::test]
async fn a_replica_on_the_schema_before_its_own_takes_no_calls_says_so_and_is_ready_by_itself_after_migrate() {
    let all = migrations().await.len();
    let scene = scene_after(all - 1).await;
    let (one, two) = (start(&scene).bound().await, start(&scene).bound().await);
    waits_for_its_schema(&one).await;
    waits_for_its_schema(&two).await;
    // What waits writes nothing into a schema that it does not know.
    assert_eq!(scene.count("select count(*) from requests").await, 0);
    assert!(migrate(&scene.url).await.status.success());
    for replica in [&one, &two] {
        eventually("it is ready", || async { replica.logged("ready").then_some(()) }).await;
    }
    let writes = use_everything(&one, "now").await;
    is_replayed(&two, &writes).await;
}

#[tokio::test]
async fn migrate_refuses_a_database_whose_text_is_not_utf_8_and_says_how_to_make_one_that_is() {
    let scene = Scene::new().await;
    let name = "not_utf_8";
    let make = "create database not_utf_8 encoding 'SQL_ASCII' locale 'C' template template0";
    sqlx::raw_sql(make).execute(&scene.sql).await.expect("makes a database");
    let output = migrate(&TestCluster::shared().cluster.database_url(name)).await;
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(
        said.contains("encoding is SQL_ASCII") && said.contains("encoding 'UTF8' template template0"),
        "{said}"
    );
}

#[tokio::test]
async fn every_schema_before_this_releases_own_is_too_old() {
    let all = migrations().await.len();
    for count in 1..=all {
        let scene = scene_after(count).await;
        let settings = Settings {
            url: scene.url.clone(),
            pool_size: 1,
            acquire_limit: DEADLINE,
            statement_limit: DEADLINE,
            lock_limit: DEADLINE,
        };
        let database = Database::new(&settings, Arc::new(Reach::default())).expect("a pool");
        let state = schema_state(&database).await.expect("an answer");
        let expected = if count == all {
            SchemaState::Ready
        } else {
            SchemaState::Behind
        };
        assert_eq!(state, expected, "after {count} of {all} migrations");
    }
}
