//! The same operations over HTTP: statuses, headers and paths.

use serde_json::{Value, json};

use crate::support::calls::{Answer, ticket};
use crate::support::raw::Raw;
use crate::support::scene::Scene;

fn header<'a>(answer: &'a Answer, name: &str) -> Option<&'a str> {
    answer.headers.get(name).map(|value| value.to_str().expect("a text"))
}

#[tokio::test]
async fn what_is_created_is_201_and_its_replay_is_200_with_a_header() {
    let scene = Scene::new().await;
    let [replica] = scene.replicas().await;
    let created = replica.create("first", "A title").await;
    assert_eq!(
        (created.status, header(&created, "idempotency-replayed")),
        (201, None),
        "{created:?}"
    );
    assert_eq!(header(&created, "content-type"), Some("application/json"));
    assert_eq!(header(&created, "cache-control"), Some("no-store"));
    let replayed = replica.create("first", "A title").await;
    assert_eq!(
        (replayed.status, header(&replayed, "idempotency-replayed")),
        (200, Some("true"))
    );
    let mut expected = created.body.clone();
    expected["replayed"] = json!(true);
    assert_eq!(replayed.body, expected);

    let id = created.text("ticket_id");
    let path = format!("/tickets/{id}/comments");
    let comment = json!({ "request_id": "second", "body": "A comment." });
    assert_eq!(replica.post(&path, &comment).await.status, 201);
    assert_eq!(replica.post(&path, &comment).await.status, 200);
    let path = format!("/tickets/{id}/status");
    let set = json!({ "request_id": "third", "ticket_status": "done" });
    let first = replica.http("PUT", &path, Some(&set)).await.expect("an answer");
    assert_eq!(
        (first.status, header(&first, "idempotency-replayed")),
        (200, None),
        "{first:?}"
    );
    let again = replica.http("PUT", &path, Some(&set)).await.expect("an answer");
    assert_eq!(
        (again.status, header(&again, "idempotency-replayed")),
        (200, Some("true"))
    );
    let minted = Raw::new("POST", "/api/v1/request-ids").send(&replica).await;
    assert_eq!(minted.status, 200, "{minted:?}");
    assert_eq!(minted.text("request_id").len(), 36);
}

#[tokio::test]
async fn a_conflict_is_409_and_tells_nothing_of_the_first() {
    let scene = Scene::new().await;
    let [replica] = scene.replicas().await;
    replica.create("taken", "A secret title").await;
    let other = replica.create("taken", "Another title").await;
    assert_eq!((other.status, other.code()), (409, "conflict"), "{other:?}");
    assert!(!other.body.to_string().contains("secret"), "{other:?}");
    let other_tool = json!({ "request_id": "taken", "ticket_id": "T-000000000000", "body": "b" });
    let over_mcp = replica.tool("add_comment", other_tool).await;
    assert_eq!(over_mcp["error"]["code"], "conflict", "{over_mcp:?}");
    assert_eq!(scene.tickets().await, 1);
}

#[tokio::test]
async fn what_is_missing_is_404_and_what_was_not_expected_is_409() {
    let scene = Scene::new().await;
    let [replica] = scene.replicas().await;
    let id = replica.create("first", "A title").await.text("ticket_id").to_owned();
    let nowhere = replica.get("/tickets/T-000000000000").await;
    assert_eq!((nowhere.status, nowhere.code()), (404, "not_found"));
    let comment = json!({ "request_id": "c", "body": "b" });
    let nowhere = replica.post("/tickets/T-000000000000/comments", &comment).await;
    assert_eq!((nowhere.status, nowhere.code()), (404, "not_found"));
    let set = json!({ "request_id": "s", "ticket_status": "done", "expected_status": "closed" });
    let path = format!("/tickets/{id}/status");
    let unexpected = replica.http("PUT", &path, Some(&set)).await.expect("an answer");
    assert_eq!((unexpected.status, unexpected.code()), (409, "precondition_failed"));
}

#[tokio::test]
async fn an_unfinished_call_is_202_with_the_time_to_come_back() {
    let scene = Scene::new().await;
    let replica = scene
        .replica()
        .with("WORK_MS", 600_000)
        .with("WAIT_MS", 300)
        .ready()
        .await;
    let answer = replica.create("slow", "Slow").await;
    assert_eq!(
        (answer.status, &answer.body["status"]),
        (202, &json!("in_progress")),
        "{answer:?}"
    );
    let seconds = answer.body["retry_after_seconds"].as_u64().expect("a number");
    assert!((1..=5).contains(&seconds));
    assert_eq!(header(&answer, "retry-after"), Some(seconds.to_string().as_str()));
    assert_eq!(header(&answer, "idempotency-replayed"), None);
    assert!(answer.text("next").contains("same request_id"));
    let other = replica.create("slow", "Another").await;
    assert_eq!((other.status, other.code()), (409, "conflict"), "{other:?}");
}

#[tokio::test]
async fn what_is_too_old_is_410() {
    let scene = Scene::new().await;
    let [replica] = scene.replicas().await;
    let old = replica.create("01900000-0000-7000-8000-000000000000", "Old").await;
    assert_eq!((old.status, old.code()), (410, "expired"), "{old:?}");
    assert_eq!(old.body["error"]["recorded"], false);
    let message = old.body["error"]["message"].as_str().expect("a message");
    assert!(
        message.contains("nothing is stored under this id and nothing was run"),
        "{message}"
    );

    replica.create("kept", "Kept").await;
    sqlx::query("update requests set result = null where request_id = 'kept'")
        .execute(&scene.sql)
        .await
        .expect("as the sweep does");
    let swept = replica.create("kept", "Kept").await;
    assert_eq!(
        (swept.status, &swept.body["error"]["recorded"]),
        (410, &json!(true)),
        "{swept:?}"
    );
    assert_eq!(scene.tickets().await, 1);
}

#[tokio::test]
async fn a_wrong_method_is_405_and_says_which_are_right() {
    let scene = Scene::new().await;
    let [replica] = scene.replicas().await;
    for (method, path, allowed) in [
        ("DELETE", "/api/v1/tickets", "GET,HEAD,POST"),
        ("POST", "/api/v1/requests", "GET,HEAD"),
        ("GET", "/api/v1/tickets/T-000000000000/status", "PUT"),
        ("GET", "/mcp", "POST"),
    ] {
        let answer = Raw::new(method, path).send(&replica).await;
        assert_eq!(answer.status, 405, "{answer:?}");
        let mut methods: Vec<_> = header(&answer, "allow")
            .expect("Allow")
            .split([',', ' '])
            .filter(|m| !m.is_empty())
            .collect();
        methods.sort_unstable();
        assert_eq!(methods.join(","), allowed, "{method} {path}");
    }
}

#[tokio::test]
async fn a_key_in_the_header_is_the_key_in_the_body() {
    let scene = Scene::new().await;
    let [replica] = scene.replicas().await;
    let post = |key: &str, body: &str| Raw::api("POST", "/tickets", body).header("idempotency-key", key);
    let bare = r#"{"title":"A title","body":"A body."}"#;
    let created = post("the-key", bare).send(&replica).await;
    assert_eq!(
        (created.status, created.text("request_id")),
        (201, "the-key"),
        "{created:?}"
    );
    for (key, body) in [
        ("\"the-key\"", bare.to_owned()),
        ("the-key", ticket("the-key", "A title").to_string()),
        ("\"the-key\"", ticket("the-key", "A title").to_string()),
        ("the-key", bare.replace('{', r#"{"request_id":null,"#)),
    ] {
        let again = post(key, &body).send(&replica).await;
        assert_eq!(
            (again.status, &again.body["replayed"]),
            (200, &json!(true)),
            "{key} {body}: {again:?}"
        );
    }
    // One pair of quotes is taken off and no more; a key in several bytes a character is one too.
    for (key, means) in [("\"\"the-key\"\"", "\"the-key\""), ("\"", "\""), ("ключ", "ключ")] {
        let other = post(key, bare).send(&replica).await;
        assert_eq!(
            (other.status, other.text("request_id")),
            (201, means),
            "{key}: {other:?}"
        );
        assert_eq!(replica.find(means).await["status"], "done");
    }
    let different = post("another", &ticket("the-key", "A title").to_string())
        .send(&replica)
        .await;
    assert_eq!(
        (different.status, different.code()),
        (400, "invalid_argument"),
        "{different:?}"
    );
    assert_eq!(replica.find("another").await["status"], "unknown");
}

#[tokio::test]
async fn an_argument_in_the_path_is_the_argument_in_the_body() {
    let scene = Scene::new().await;
    let [replica] = scene.replicas().await;
    let id = replica.create("first", "A title").await.text("ticket_id").to_owned();
    let path = format!("/tickets/{id}/comments");
    let with = |ticket_id: Value| json!({ "request_id": "c", "ticket_id": ticket_id, "body": "b" });
    assert_eq!(
        replica
            .post(&path, &json!({ "request_id": "c", "body": "b" }))
            .await
            .status,
        201
    );
    assert_eq!(replica.post(&path, &with(json!(id))).await.status, 200);
    assert_eq!(replica.post(&path, &with(Value::Null)).await.status, 200);
    let escaped = path.replace("T-", "%54%2D");
    assert_eq!(
        replica
            .post(&escaped, &json!({ "request_id": "c", "body": "b" }))
            .await
            .status,
        200
    );
    let other = replica.post(&path, &with(json!("T-000000000000"))).await;
    assert_eq!((other.status, other.code()), (400, "invalid_argument"), "{other:?}");
}

#[tokio::test]
async fn json_is_answered_to_all_that_take_it() {
    let scene = Scene::new().await;
    let [replica] = scene.replicas().await;
    let get = || Raw::new("GET", "/api/v1/tickets");
    for accept in [
        "application/json",
        "*/*",
        "application/*;q=0.1",
        "text/html, */*;q=0.8",
        "text/html, APPLICATION/JSON",
    ] {
        assert_eq!(
            get().header("accept", accept).send(&replica).await.status,
            200,
            "{accept}"
        );
    }
    for accept in ["text/html", "application/xml, text/*", "application/json;q=0", ""] {
        let answer = get().header("accept", accept).send(&replica).await;
        let expected = if accept.is_empty() { 200 } else { 406 };
        assert_eq!(answer.status, expected, "{accept}: {answer:?}");
    }
    for kind in [
        "application/json",
        "Application/JSON; charset=utf-8",
        "application/json ;x=y",
    ] {
        let post = Raw::api("POST", "/tickets", ticket("kinds", "A title").to_string()).header("content-type", kind);
        assert!(post.send(&replica).await.status < 300, "{kind}");
    }
    let head = Raw::new("HEAD", "/api/v1/tickets").send(&replica).await;
    assert_eq!((head.status, &head.body), (200, &json!("")));
}

#[tokio::test]
async fn the_last_of_two_members_counts_for_the_effect_and_for_the_comparison() {
    let scene = Scene::new().await;
    let [replica] = scene.replicas().await;
    let twice = r#"{"request_id":"x","request_id":"twice","title":"first","title":"last","body":"b"}"#;
    let created = Raw::api("POST", "/tickets", twice).send(&replica).await;
    assert_eq!(
        (created.text("request_id"), created.text("title")),
        ("twice", "last"),
        "{created:?}"
    );
    let once = json!({ "request_id": "twice", "title": "last", "body": "b" });
    assert_eq!(replica.post("/tickets", &once).await.body["replayed"], true);
    assert_eq!(replica.find("x").await["status"], "unknown");
}
