//! A refusal or a failure that changed nothing frees the key, for other arguments too.

use std::time::Duration;

use serde_json::json;

use crate::support::DEADLINE;
use crate::support::calls::ticket;
use crate::support::in_process::{Ending, InProcess, Knobs, note, notes};
use crate::support::scene::Scene;

#[tokio::test]
async fn a_refused_call_leaves_no_row_and_its_key_serves_another_tool_and_other_arguments() {
    let scene = Scene::new().await;
    let [a, b] = scene.replicas().await;
    let comment = json!({ "request_id": "k", "body": "A comment." });
    for replica in [&a, &b, &a] {
        let missing = replica.post("/tickets/T-000000000000/comments", &comment).await;
        assert_eq!((missing.status, missing.code()), (404, "not_found"));
    }
    assert_eq!(scene.row("k").await, None);
    assert_eq!(b.find("k").await["status"], "unknown");
    // Another tool, under the same key.
    let created = b.create("k", "t").await;
    assert_eq!((created.status, &created.body["replayed"]), (201, &json!(false)));
    let path = format!("/tickets/{}/status", created.text("ticket_id"));
    let set = |expected| {
        let body = json!({ "request_id": "s", "ticket_status": "done", "expected_status": expected });
        let (a, path) = (&a, &path);
        async move { a.http("PUT", path, Some(&body)).await.expect("an answer") }
    };
    let refused = set("closed").await;
    assert_eq!((refused.status, refused.code()), (409, "precondition_failed"));
    assert!(
        refused.body["error"]["message"]
            .as_str()
            .expect("a message")
            .contains("open")
    );
    assert_eq!(set("open").await.text("previous_status"), "open");
    // Now the key is used, and the refused arguments are another intent.
    assert_eq!(set("closed").await.code(), "conflict");
}

#[tokio::test]
async fn a_refusal_that_was_true_once_is_judged_anew_by_the_repeat() {
    let scene = Scene::new().await;
    let [replica] = scene.replicas().await;
    let created = replica.create("t", "t").await;
    let path = format!("/tickets/{}/status", created.text("ticket_id"));
    let close = json!({ "request_id": "s", "ticket_status": "closed", "expected_status": "done" });
    let close = || replica.http("PUT", &path, Some(&close));
    assert_eq!(close().await.expect("an answer").code(), "precondition_failed");
    let done = json!({ "request_id": "d", "ticket_status": "done" });
    replica.http("PUT", &path, Some(&done)).await.expect("an answer");
    assert_eq!(close().await.expect("an answer").text("previous_status"), "done");
}

#[tokio::test]
async fn a_failure_of_any_kind_frees_the_key_for_any_tool_and_arguments() {
    let scene = Scene::new().await;
    let (here, there) = (
        InProcess::start(&scene, Knobs::default()).await,
        InProcess::start(&scene, Knobs::default()).await,
    );
    let endings = [
        (Ending::Refuses, "precondition_failed"),
        (Ending::Fails, "unavailable"),
        (Ending::Panics, "unavailable"),
    ];
    let mut done = 0;
    for (ending, told) in endings {
        for tool in ["note", "note_slowly"] {
            let id = format!("{tool}-{ending:?}");
            here.script.tell(&id, ending);
            for _ in 0..2 {
                assert_eq!(here.call("anna", tool, note(&id)).await.what, told, "{id}");
            }
            assert_eq!(here.find("anna", &id).await["status"], "unknown");
            // Other arguments, another replica; then another tool is a conflict, because this one was done.
            let other = json!({ "request_id": id, "text": "other" });
            assert_eq!(there.call("anna", tool, other.clone()).await.what, "done", "{id}");
            assert_eq!(here.call("anna", tool, other).await.what, "replayed", "{id}");
            assert_eq!(
                here.call("anna", "create_ticket", ticket(&id, "t")).await.what,
                "conflict"
            );
            done += 1;
            // Another tool right after the failure.
            let id = format!("{id}-2");
            here.script.tell(&id, ending);
            assert_eq!(here.call("anna", tool, note(&id)).await.what, told);
            assert_eq!(there.call("anna", "create_ticket", ticket(&id, &id)).await.what, "done");
        }
    }
    assert_eq!(notes(&scene).await, done);
    assert_eq!(scene.tickets().await, done);
}

#[tokio::test]
async fn what_is_recorded_is_replayed_though_it_could_not_be_done_again() {
    let scene = Scene::new().await;
    let house = InProcess::start(&scene, Knobs::default()).await;
    for tool in ["note", "note_slowly"] {
        assert_eq!(house.call("anna", tool, note(tool)).await.what, "done");
        for ending in [Ending::Refuses, Ending::Fails, Ending::Panics] {
            house.script.tell(tool, ending);
            house.script.tell("other", ending);
            assert_eq!(
                house.call("anna", tool, note(tool)).await.what,
                "replayed",
                "{tool}, {ending:?}"
            );
            let other = json!({ "request_id": tool, "text": "other" });
            assert_eq!(
                house.call("anna", tool, other).await.what,
                "conflict",
                "{tool}, {ending:?}"
            );
        }
    }
}

#[tokio::test]
async fn a_constraint_that_refuses_the_effect_frees_the_key_on_both_ways() {
    let scene = Scene::new().await;
    let house = InProcess::start(&scene, Knobs::default()).await;
    for tool in ["note", "note_slowly"] {
        let bad = json!({ "request_id": tool, "text": "bad" });
        assert_eq!(house.call("anna", tool, bad).await.what, "unavailable");
        assert_eq!(house.find("anna", tool).await["status"], "unknown");
        assert_eq!(house.call("anna", tool, note(tool)).await.what, "done", "{tool}");
    }
    assert_eq!(notes(&scene).await, 2);
    assert_eq!(scene.count("select count(*) from unsettled").await, 0);
}

#[tokio::test]
async fn a_released_row_keeps_no_arguments_and_counts_its_attempts_on() {
    let scene = Scene::new().await;
    let house = InProcess::start(&scene, Knobs::default()).await;
    house.script.tell("k", Ending::Refuses);
    house.call("anna", "note_slowly", note("k")).await;
    let released = scene.row("k").await.expect("a row until the sweep");
    assert_eq!((released.status.as_str(), released.attempt), ("released", 1));
    let kept = "select count(*) from requests where arguments is not null or lease_until is not null";
    assert_eq!(scene.count(kept).await, 0);
    house.script.tell("k", Ending::Goes);
    assert_eq!(house.call("anna", "note_slowly", note("k")).await.what, "done");
    let done = scene.row("k").await.expect("a row");
    assert_eq!((done.attempt, done.lapses), (2, 0));
    assert!(done.token > released.token, "a token is never used twice");
}

#[tokio::test]
async fn a_failure_before_the_claim_is_not_told_of_a_request_that_is_done() {
    let scene = Scene::new().await;
    let house = InProcess::start(&scene, Knobs::default()).await;
    let first = house.call("anna", "note", note("k")).await;
    assert_eq!(first.what, "done");
    for ending in [Ending::Refuses, Ending::Fails, Ending::Panics] {
        house.script.tell("k", ending);
        let again = house.call("anna", "note", note("k")).await;
        assert_eq!(
            (again.what, &again.body["text"]),
            ("replayed", &json!("k")),
            "{ending:?}"
        );
    }
}

/// What somebody else does to a claim whose holder is cut off from its row.
async fn behind_its_back(scene: &Scene, sql: &'static str) {
    sqlx::raw_sql(sql).execute(&scene.sql).await.expect("a change");
}

/// A ledger that will not look after its leases for a long time.
async fn unsuspecting(scene: &Scene) -> InProcess {
    let mut knobs = Knobs::default();
    knobs.limits.lease = Duration::from_secs(300);
    let house = InProcess::start(scene, knobs).await;
    house.script.tell("k", Ending::Holds);
    house
}

#[tokio::test]
async fn an_attempt_that_fails_after_it_lost_its_claim_tells_what_the_other_one_did() {
    let scene = Scene::new().await;
    let here = unsuspecting(&scene).await;
    let late = here.spawn("anna", "note_slowly", note("k"));
    scene.until("k", "running").await;
    behind_its_back(
        &scene,
        "update requests set lease_until = clock_timestamp() - interval '1 ms'",
    )
    .await;
    let there = InProcess::start(&scene, Knobs::default()).await;
    assert_eq!(
        there.call("anna", "note_slowly", note("k")).await.body["status"],
        "done"
    );
    here.script.tell("k", Ending::Refuses);
    let told = late.await.expect("an answer");
    assert_eq!((told.what, &told.body["text"]), ("replayed", &json!("k")));
    assert_eq!(notes(&scene).await, 1);
}

#[tokio::test]
async fn a_request_that_was_refused_elsewhere_is_not_run_again_for_callers_that_have_left() {
    let scene = Scene::new().await;
    let here = unsuspecting(&scene).await;
    let call = here.spawn("anna", "note_slowly", note("k"));
    scene.until("k", "running").await;
    call.abort();
    assert!(call.await.is_err(), "its caller has left");
    behind_its_back(
        &scene,
        "update requests set token = -token, status = 'released', settled_at = clock_timestamp(),
                             lease_until = null, arguments = null",
    )
    .await;
    here.script.tell("k", Ending::Goes);
    // Comes back when every flight has ended.
    here.service.ledger.drain(DEADLINE).await;
    assert_eq!(here.script.begun(), 1);
    assert_eq!(scene.row("k").await.expect("a row").status, "released");
    assert_eq!(notes(&scene).await, 0);
}
