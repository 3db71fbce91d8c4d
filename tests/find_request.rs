//! find_request says what became of a write, and what to do, in each of its statuses.

use serde_json::{Value, json};

use crate::support::calls::ticket;
use crate::support::eventually;
use crate::support::replica::{LEASE_MS, Replica};
use crate::support::scene::Scene;

/// The same by both ways.
async fn find(replica: &Replica, request_id: &str) -> Value {
    let over_http = replica.find(request_id).await;
    let mut over_mcp = Value::Object(replica.tool("find_request", json!({ "request_id": request_id })).await);
    // What moves between two looks.
    for moving in ["age_seconds", "lease_left_seconds"] {
        assert_eq!(
            over_http.get(moving).is_some(),
            over_mcp.get(moving).is_some(),
            "{over_http} {over_mcp}"
        );
        over_mcp[moving] = over_http[moving].clone();
        if over_mcp[moving].is_null() {
            over_mcp.as_object_mut().expect("an object").remove(moving);
        }
    }
    assert_eq!(over_http, over_mcp);
    assert_eq!(over_http["request_id"], request_id);
    over_http
}

fn next(found: &Value) -> &str {
    found["next"].as_str().unwrap_or_else(|| panic!("no next: {found}"))
}

#[tokio::test]
async fn what_is_done_is_found_with_its_result() {
    let scene = Scene::new().await;
    let [replica] = scene.replicas().await;
    let created = replica.tool("create_ticket", ticket("done", "Done")).await;
    let found = find(&replica, "done").await;
    assert_eq!(
        (&found["status"], &found["operation"]),
        (&json!("done"), &json!("create_ticket")),
        "{found}"
    );
    assert_eq!(found["answered_at"], created["answered_at"]);
    for member in ["ticket_id", "title", "ticket_status", "created_at"] {
        assert_eq!(found["result"][member], created[member]);
    }
    assert_eq!(found["attempt"], 1);
    assert!(next(&found).contains("nothing to repeat"));
}

#[tokio::test]
async fn what_is_not_recorded_is_unknown_and_may_be_called_again() {
    let scene = Scene::new().await;
    let [replica] = scene.replicas().await;
    let found = find(&replica, "never").await;
    assert_eq!(found["status"], "unknown", "{found}");
    assert!(
        next(&found).contains("may still be on its way") && next(&found).contains("same request_id"),
        "{found}"
    );
    // Refused without a trace: nothing is recorded.
    let arguments = json!({ "request_id": "refused", "ticket_id": "T-000000000000", "body": "b" });
    replica.tool("add_comment", arguments).await;
    assert_eq!(find(&replica, "refused").await["status"], "unknown");
    assert_eq!(
        scene
            .count("select count(*) from requests where status <> 'released'")
            .await,
        0
    );
}

#[tokio::test]
async fn what_is_too_old_is_expired_whether_it_was_recorded_or_not() {
    let scene = Scene::new().await;
    let [replica] = scene.replicas().await;
    let found = find(&replica, "01900000-0000-7000-8000-000000000000").await;
    assert_eq!(
        (&found["status"], &found["recorded"]),
        (&json!("expired"), &json!(false)),
        "{found}"
    );
    assert!(next(&found).contains("new request_id"));
    replica.create("kept", "Kept").await;
    let sql = "update requests set result = null where request_id = 'kept'";
    sqlx::query(sql).execute(&scene.sql).await.expect("as the sweep does");
    let found = find(&replica, "kept").await;
    assert_eq!(
        (&found["status"], &found["recorded"]),
        (&json!("expired"), &json!(true)),
        "{found}"
    );
    assert_eq!(found.get("result"), None);
    assert!(next(&found).contains("do not repeat"));
    // The ledger may forget a key before what was made with it is gone: a repeat and a look say the same of it.
    replica.create("forgotten", "Forgotten").await;
    let sql = "delete from requests where request_id = 'forgotten'";
    sqlx::query(sql).execute(&scene.sql).await.expect("as the sweep does");
    let repeated = replica.create("forgotten", "Forgotten").await;
    assert_eq!((repeated.status, repeated.code()), (410, "expired"), "{repeated:?}");
    assert_eq!(repeated.body["error"]["recorded"], true, "{repeated:?}");
    let found = find(&replica, "forgotten").await;
    assert_eq!(
        (&found["status"], &found["recorded"]),
        (&json!("expired"), &json!(true)),
        "{found}"
    );
    assert!(next(&found).contains("do not repeat"));
}

#[tokio::test]
async fn what_runs_is_running_what_lost_its_replica_is_abandoned_and_what_kept_dying_is_failed() {
    let scene = Scene::new().await;
    // This one takes nothing over while the test lasts: it scans once a lease.
    let reader = scene.replica().with("LEASE_MS", 300_000).ready().await;
    let worker = scene
        .replica()
        .with("WORK_MS", 600_000)
        .with("WAIT_MS", 200)
        .ready()
        .await;
    let unfinished = worker.create("slow", "Slow").await;
    assert_eq!(unfinished.status, 202, "{unfinished:?}");
    let running = find(&reader, "slow").await;
    assert_eq!(
        (&running["status"], &running["operation"]),
        (&json!("running"), &json!("create_ticket")),
        "{running}"
    );
    let lease_left = running["lease_left_seconds"].as_f64().expect("a number");
    assert!(lease_left > 0.0 && lease_left <= LEASE_MS as f64 / 1_000.0, "{running}");
    assert!(running["age_seconds"].as_f64().is_some_and(|age| age > 0.0));
    assert_eq!((running.get("result"), &running["attempt"]), (None, &json!(1)));

    worker.kill().await;
    let abandoned = eventually("it is abandoned", || async {
        let found = reader.find("slow").await;
        (found["status"] == "abandoned").then_some(found)
    })
    .await;
    assert!(next(&abandoned).contains("same request_id"), "{abandoned}");
    assert_eq!(abandoned.get("lease_left_seconds"), None);

    let sql =
        "with gone as (delete from unsettled) update requests set status = 'failed', lapses = 5, lease_until = null";
    sqlx::query(sql)
        .execute(&scene.sql)
        .await
        .expect("as after the fifth lapse");
    let failed = find(&reader, "slow").await;
    assert_eq!(failed["status"], "failed", "{failed}");
    assert!(next(&failed).contains("Ask a person"));
    let repeated = reader.create("slow", "Slow").await;
    assert_eq!((repeated.status, repeated.code()), (409, "failed"), "{repeated:?}");
}

#[tokio::test]
async fn what_is_done_between_two_looks_is_done_and_not_long_ago() {
    let scene = Scene::new().await;
    let [replica] = scene.replicas().await;
    let created = replica.tool("create_ticket", ticket("late", "Late")).await;
    for sql in ["create table kept as select * from requests", "delete from requests"] {
        sqlx::query(sql).execute(&scene.sql).await.expect("it is not recorded");
    }
    // It has found no row when it comes to the tickets, and has to wait there until both are committed.
    let mut settling = scene.sql.acquire().await.expect("a connection");
    sqlx::raw_sql("begin; lock table tickets in access exclusive mode")
        .execute(&mut *settling)
        .await
        .expect("it is locked");
    let settles = async {
        let waiting =
            "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'";
        eventually("find_request looks at the tickets", || async {
            (scene.count(waiting).await == 1).then_some(())
        })
        .await;
        sqlx::raw_sql("insert into requests select * from kept; commit")
            .execute(&mut *settling)
            .await
            .expect("it is settled");
    };
    let (found, ()) = tokio::join!(replica.find("late"), settles);
    assert_eq!(found["status"], "done", "{found}");
    assert_eq!(found["result"]["ticket_id"], created["ticket_id"]);
}

#[tokio::test]
async fn minted_request_ids_are_new_in_order_and_recorded_nowhere() {
    let scene = Scene::new().await;
    let [replica] = scene.replicas().await;
    let mut ids = Vec::new();
    for _ in 0..20 {
        let minted = replica.tool("new_request_id", json!({})).await;
        ids.push(minted["request_id"].as_str().expect("a text").to_owned());
    }
    assert!(ids.iter().all(|id| id.len() == 36 && &id[14..15] == "7"), "{ids:?}");
    assert!(ids.is_sorted_by(|a, b| a < b), "{ids:?}");
    assert_eq!(scene.count("select count(*) from requests").await, 0);
    let created = replica.tool("create_ticket", ticket(&ids[0], "Minted")).await;
    assert_eq!(created["status"], "done", "{created:?}");
}
