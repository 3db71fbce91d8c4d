//! An answer that was recorded never changes.

use serde_json::{Value, json};
use ticket_ledger::operation::answer::{Code, Refusal};

use crate::support::calls::{client, ticket};
use crate::support::in_process::{InProcess, Knobs, note, notes};
use crate::support::replica::Replica;
use crate::support::scene::Scene;

/// create_ticket over HTTP: the bytes of the answer and whether the header says that it is a replay.
async fn bytes_of(replica: &Replica, body: &Value) -> (String, bool) {
    let response = client()
        .post(format!("http://{}/api/v1/tickets", replica.address))
        .json(body)
        .send()
        .await
        .expect("an answer");
    let replayed = response
        .headers()
        .get("idempotency-replayed")
        .is_some_and(|value| value == "true");
    (response.text().await.expect("a body"), replayed)
}

#[tokio::test]
async fn first_answer_and_replays_are_the_same_bytes_but_for_replayed() {
    let scene = Scene::new().await;
    let [a, b] = scene.replicas().await;
    let body = ticket("k", "Čeština, 한국어, \u{1f600} and \"quotes\"\\");
    let (first, replayed) = bytes_of(&a, &body).await;
    assert!(!replayed && first.contains("\"replayed\":false"), "{first}");
    for replica in [&a, &b, &a] {
        let (again, replayed) = bytes_of(replica, &body).await;
        assert!(replayed);
        assert_eq!(again, first.replace("\"replayed\":false", "\"replayed\":true"));
    }
    // The stored text is what is told, and over MCP it is told too.
    let told: Value = serde_json::from_str(&first).expect("JSON");
    let stored: String = sqlx::query_scalar("select result from requests")
        .fetch_one(&scene.sql)
        .await
        .expect("a result");
    let stored: Value = serde_json::from_str(&stored).expect("JSON");
    let over_mcp = b.tool("create_ticket", body).await;
    for (name, value) in stored.as_object().expect("an object") {
        assert_eq!((&told[name], &over_mcp[name]), (value, value));
    }
    assert_eq!(over_mcp["answered_at"], told["answered_at"]);
    assert_eq!(over_mcp["replayed"], true);
    assert_eq!(scene.tickets().await, 1);
}

#[tokio::test]
async fn a_replay_is_the_first_answer_whatever_happened_to_the_resource_since() {
    let scene = Scene::new().await;
    let [a, b] = scene.replicas().await;
    let created = a.create("create", "t").await;
    let path = format!("/tickets/{}/status", created.text("ticket_id"));
    let set = |replica, request_id, status| {
        let (body, path) = (json!({ "request_id": request_id, "ticket_status": status }), &path);
        async move {
            let replica: &Replica = replica;
            replica.http("PUT", path, Some(&body)).await.expect("an answer")
        }
    };
    let done = set(&a, "first", "done").await;
    assert_eq!(done.text("previous_status"), "open");
    assert_eq!(set(&b, "second", "closed").await.text("previous_status"), "done");
    // The repeat of a settled request never acts.
    let again = set(&b, "first", "done").await;
    assert_eq!(again.text("previous_status"), "open");
    assert_eq!(again.body["replayed"], true);
    let read = b.get(&format!("/tickets/{}", created.text("ticket_id"))).await;
    assert_eq!(read.text("ticket_status"), "closed");
    let recreated = b.create("create", "t").await;
    assert_eq!(recreated.text("ticket_status"), "open");
    sqlx::raw_sql("delete from tickets")
        .execute(&scene.sql)
        .await
        .expect("deletes");
    let recreated = a.create("create", "t").await;
    assert_eq!(
        (recreated.status, recreated.text("ticket_id")),
        (200, created.text("ticket_id"))
    );
    assert_eq!(scene.tickets().await, 0);
}

#[tokio::test]
async fn falsy_results_are_replayed_and_found_as_they_are() {
    let scene = Scene::new().await;
    let (here, there) = (
        InProcess::start(&scene, Knobs::default()).await,
        InProcess::start(&scene, Knobs::default()).await,
    );
    let falsy = [
        json!(0),
        json!(false),
        json!([]),
        json!({}),
        json!(""),
        json!(0.0),
        json!([null]),
    ];
    let mut done = 0;
    for tool in ["note", "note_slowly"] {
        for (place, result) in falsy.iter().enumerate() {
            let id = format!("{tool}-{place}");
            let arguments = json!({ "request_id": id, "text": id, "result": result });
            let first = here.call("anna", tool, arguments.clone()).await;
            let mut again = there.call("anna", tool, arguments).await;
            assert_eq!((first.what, again.what), ("done", "replayed"), "{result}");
            if result.is_object() {
                assert_eq!(first.body.get("result"), None);
            } else {
                assert_eq!(&first.body["result"], result);
            }
            assert_eq!(
                again.body.as_object_mut().and_then(|body| body.remove("visible")),
                Some(json!(true))
            );
            again.body["replayed"] = json!(false);
            assert_eq!(first.body, again.body);
            assert_eq!(&there.find("anna", &id).await["result"], result);
            done += 1;
        }
    }
    assert_eq!(notes(&scene).await, done);
}

#[tokio::test]
async fn a_replay_over_an_hour_old_says_that_another_intent_needs_a_new_request_id() {
    let scene = Scene::new().await;
    let [replica] = scene.replicas().await;
    let first = replica.create("k", "t").await;
    for (age, warns) in [("59 minutes", false), ("61 minutes", true), ("6 days", true)] {
        sqlx::raw_sql(sqlx::AssertSqlSafe(format!(
            "update requests set settled_at = clock_timestamp() - interval '{age}'"
        )))
        .execute(&scene.sql)
        .await
        .expect("time passes");
        let again = replica.create("k", "t").await;
        assert_eq!(again.text("ticket_id"), first.text("ticket_id"));
        let next = again.body.get("next").and_then(Value::as_str);
        assert_eq!(
            next.is_some_and(|next| next.contains("new request_id")),
            warns,
            "{age}: {again:?}"
        );
    }
    assert_eq!(first.body.get("next"), None);
}

#[tokio::test]
async fn the_replay_check_runs_on_every_replay_and_on_find_request_and_may_refuse() {
    let scene = Scene::new().await;
    let house = InProcess::start(&scene, Knobs::default()).await;
    let first = house.call("anna", "note", note("k")).await;
    assert_eq!(
        (first.what, first.body.get("visible")),
        ("done", None),
        "nothing is checked at first"
    );
    let again = house.call("anna", "note", note("k")).await;
    assert_eq!((again.what, &again.body["visible"]), ("replayed", &json!(true)));
    let found = house.find("anna", "k").await;
    assert_eq!(
        (&found["visible"], &found["result"]["text"]),
        (&json!(true), &json!("k"))
    );
    let refusal = Refusal::new(Code::Forbidden, "You may not see it any more.", "Ask for the right to.");
    *house.script.hidden.lock().expect("the script") = Some(refusal);
    let refused = house.call("anna", "note", note("k")).await;
    assert_eq!(refused.what, "forbidden");
    let found = house.find("anna", "k").await;
    assert_eq!(found["error"]["code"], "forbidden");
    for told in [refused.body.to_string(), found.to_string()] {
        assert!(!told.contains("\"text\"") && !told.contains("answered_at"), "{told}");
    }
    *house.script.hidden.lock().expect("the script") = None;
    assert_eq!(
        house.call("anna", "note", note("k")).await,
        again,
        "the ledger itself never changed"
    );
    assert_eq!(notes(&scene).await, 1);
}
