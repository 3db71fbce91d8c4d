//! A caller that leaves stops waiting and nothing else.

use std::time::Duration;

use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::support::calls::ticket;
use crate::support::eventually;
use crate::support::in_process::{Ending, InProcess, Knobs, note, notes};
use crate::support::replica::Replica;
use crate::support::scene::Scene;
use crate::support::stuck::Stuck;

/// Sends a request and hands the connection out, to be dropped.
async fn send(replica: &Replica, path: &str, headers: &str, body: &serde_json::Value) -> TcpStream {
    let body = body.to_string();
    let request = format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\n{headers}\r\n{body}",
        body.len()
    );
    let mut connection = TcpStream::connect(&replica.address).await.expect("connects");
    connection.write_all(request.as_bytes()).await.expect("sends");
    connection
}

#[tokio::test]
async fn a_caller_leaves_over_http_or_mcp_and_the_work_finishes_and_is_replayed_to_its_repeat() {
    let scene = Scene::new().await;
    let start = || scene.replica().with("WORK_MS", 1_000);
    let (a, b) = (start().ready().await, start().ready().await);
    let over_http = send(&a, "/api/v1/tickets", "", &ticket("http", "http")).await;
    let call = json!({
        "jsonrpc": "2.0", "id": 7, "method": "tools/call",
        "params": { "name": "create_ticket", "arguments": ticket("mcp", "mcp") },
    });
    let headers = "accept: application/json, text/event-stream\r\nmcp-protocol-version: 2025-06-18\r\n";
    let over_mcp = send(&a, "/mcp", headers, &call).await;
    for id in ["http", "mcp"] {
        scene.until(id, "running").await;
    }
    drop((over_http, over_mcp));
    // A protocol message that cancels says no more than a connection that ends.
    let cancelled = json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 7 } });
    drop(send(&a, "/mcp", headers, &cancelled).await);
    for id in ["http", "mcp"] {
        let row = scene.until(id, "done").await;
        assert_eq!(
            (row.attempt, row.lapses),
            (1, 0),
            "the attempt that began it finished it"
        );
        for replica in [&a, &b] {
            let again = replica.create(id, id).await;
            assert_eq!((again.status, &again.body["replayed"]), (200, &json!(true)));
        }
    }
    assert_eq!(scene.tickets().await, 2);
}

#[tokio::test]
async fn a_caller_that_leaves_ends_nothing_that_another_one_waits_for() {
    let scene = Scene::new().await;
    let (here, there) = (
        InProcess::start(&scene, Knobs::default()).await,
        InProcess::start(&scene, Knobs::default()).await,
    );
    here.script.tell("k", Ending::Holds);
    let first = here.spawn("anna", "note_slowly", note("k"));
    scene.until("k", "running").await;
    let stays = here.spawn("anna", "note_slowly", note("k"));
    let waits = there.spawn("anna", "note_slowly", note("k"));
    let leaves = there.spawn("anna", "note_slowly", note("k"));
    scene.until_waited_for("k").await;
    for caller in [first, leaves] {
        caller.abort();
        assert!(caller.await.expect_err("it left").is_cancelled());
    }
    here.script.tell("k", Ending::Goes);
    assert_eq!(stays.await.expect("an answer").what, "replayed");
    assert_eq!(waits.await.expect("an answer").what, "replayed");
    assert_eq!(
        (here.script.begun(), there.script.begun(), notes(&scene).await),
        (1, 0, 1)
    );
}

#[tokio::test]
async fn the_work_finishes_when_every_caller_has_left() {
    let scene = Scene::new().await;
    let house = InProcess::start(&scene, Knobs::default()).await;
    house.script.tell("k", Ending::Holds);
    let calls = [0, 1, 2].map(|_| house.spawn("anna", "note_slowly", note("k")));
    scene.until("k", "running").await;
    for call in &calls {
        call.abort();
    }
    for call in calls {
        assert!(call.await.expect_err("it left").is_cancelled());
    }
    // It is renewed although nobody waits: two leases later it is the same attempt.
    eventually("its lease was renewed", || async {
        let renewed = "select count(*) from requests where lease_until > claimed_at + interval '3 seconds'";
        (scene.count(renewed).await == 1).then_some(())
    })
    .await;
    let kept = "select count(*) from requests where arguments = '{\"text\":\"k\"}'";
    assert_eq!(scene.count(kept).await, 1, "any replica could finish it");
    house.script.tell("k", Ending::Goes);
    let row = scene.until("k", "done").await;
    assert_eq!((row.attempt, row.lapses), (1, 0));
    assert_eq!(house.call("anna", "note_slowly", note("k")).await.what, "replayed");
}

/// A running request whose holder is gone and whose lease has lapsed; the ledger that began it will not look for a long time.
async fn abandoned(scene: &Scene) -> InProcess {
    let mut knobs = Knobs::default();
    knobs.limits.lease = Duration::from_secs(300);
    let gone = InProcess::start(scene, knobs).await;
    gone.script.tell("k", Ending::Holds);
    let call = gone.spawn("anna", "note_slowly", note("k"));
    scene.until("k", "running").await;
    call.abort();
    sqlx::raw_sql("update requests set token = -token, lease_until = clock_timestamp() - interval '1 ms'")
        .execute(&scene.sql)
        .await
        .expect("lapses");
    gone
}

#[tokio::test]
async fn a_claim_whose_caller_left_and_whose_holder_is_gone_is_finished_without_a_call() {
    let scene = Scene::new().await;
    let _gone = abandoned(&scene).await;
    let house = InProcess::start(&scene, Knobs::default()).await;
    let row = scene.until("k", "done").await;
    assert_eq!((row.attempt, row.lapses), (2, 1));
    assert_eq!(notes(&scene).await, 1);
    assert_eq!(house.call("anna", "note_slowly", note("k")).await.what, "replayed");
}

#[tokio::test]
async fn a_caller_that_joins_what_a_scan_takes_up_waits_on_when_another_replica_was_quicker() {
    let scene = Scene::new().await;
    let _gone = abandoned(&scene).await;
    let mut quicker = Stuck::on(&scene).await;
    quicker.run("lock table requests in exclusive mode").await;
    let house = InProcess::start(&scene, Knobs::default()).await;
    eventually("the scan tries to take it over", || async {
        let waiting = "select count(*) from pg_stat_activity
                       where datname = current_database() and wait_event_type = 'Lock'";
        (scene.count(waiting).await == 1).then_some(())
    })
    .await;
    let call = house.spawn("anna", "note_slowly", note("k"));
    tokio::task::yield_now().await;
    quicker
        .run(
            "update requests set token = -token, lease_until = clock_timestamp() + interval '1 hour', attempt = 2;
             commit",
        )
        .await;
    scene.until_waited_for("k").await;
    assert!(
        !call.is_finished(),
        "it was told something although its wait is not over"
    );
    sqlx::raw_sql(
        "update requests set status = 'done', result = '{\"text\": \"k\"}', settled_at = clock_timestamp(),
                             lease_until = null, arguments = null",
    )
    .execute(&scene.sql)
    .await
    .expect("the other replica settles");
    let told = call.await.expect("an answer");
    assert_eq!((told.what, &told.body["text"]), ("replayed", &json!("k")));
    assert_eq!(house.script.begun(), 0);
}

#[tokio::test]
async fn a_panic_in_an_operation_is_an_answer_and_not_a_silence() {
    let scene = Scene::new().await;
    let house = InProcess::start(&scene, Knobs::default()).await;
    for tool in ["note", "note_slowly"] {
        house.script.tell(tool, Ending::Panics);
        let told = house.call("anna", tool, note(tool)).await;
        assert_eq!(told.what, "unavailable");
        let message = told.body["error"]["message"].as_str().expect("a message");
        assert!(message.contains("wholly done or not begun"), "{message}");
        assert!(
            !told.body.to_string().contains("as told"),
            "the panic's own words are not the caller's"
        );
        house.script.tell(tool, Ending::Goes);
        assert_eq!(house.call("anna", tool, note(tool)).await.what, "done", "{tool}");
    }
    assert_eq!(notes(&scene).await, 2);
}
