//! What makes two calls the same call.

use futures_util::future::join;
use proptest::prelude::*;
use serde_json::{Map, Value, json};
use ticket_ledger::operation::key::{canonical, fingerprint};
use ticket_ledger::operation::text::{normalise, normalise_arguments};
use unicode_normalization::UnicodeNormalization;

use crate::support::calls::{client, ticket};
use crate::support::in_process::{Ending, InProcess, Knobs, notes};
use crate::support::replica::Replica;
use crate::support::scene::Scene;

/// POST of a body exactly as it is written here: its status and its error code.
async fn post_raw(replica: &Replica, path: &str, body: &'static str) -> (u16, Value) {
    let response = client()
        .post(format!("http://{}/api/v1{path}", replica.address))
        .header("content-type", "application/json")
        .body(body)
        .send()
        .await
        .expect("an answer");
    let status = response.status().as_u16();
    let text = response.text().await.expect("a body");
    (status, serde_json::from_str(&text).expect("JSON"))
}

#[test]
fn the_fingerprint_is_a_version_byte_and_the_sha_256_of_name_and_canonical_arguments() {
    let arguments = json!({ "title": "Café \"é\"", "body": "line\none" });
    let text = canonical(&arguments);
    assert_eq!(text, r#"{"body":"line\none","title":"Café \"é\""}"#);
    let bytes = fingerprint("create_ticket", &text).0;
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    // Computed by another program: sha256("create_ticket" NUL text). It must never change within version 1.
    assert_eq!(
        hex,
        "019cf55294f0a8c836020b0875e82f6710daa39c2afd6b55ba5fef1852e5503779"
    );
    let nested = json!({ "b": [2, 1, { "z": null, "a": 1.5 }], "a": { "d": true, "c": 9_007_199_254_740_993_u64 } });
    assert_eq!(
        canonical(&nested),
        r#"{"a":{"c":9007199254740993,"d":true},"b":[2,1,{"a":1.5,"z":null}]}"#
    );
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        "\\PC{0,6}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec(("[a-eé]{1,2}", inner), 0..4)
                .prop_map(|members| Value::Object(Map::from_iter(members))),
        ]
    })
}

/// The same JSON, written by hand with the members of every object in reverse.
fn written_backwards(value: &Value) -> String {
    match value {
        Value::Object(members) => {
            let members = members.iter().rev();
            let members = members.map(|(name, value)| format!(" {} : {}", json!(name), written_backwards(value)));
            format!("{{{}\n}}", members.collect::<Vec<_>>().join(","))
        }
        Value::Array(items) => {
            let items: Vec<_> = items.iter().map(written_backwards).collect();
            format!("[{}]", items.join(" , "))
        }
        scalar => scalar.to_string(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(500) })]

    #[test]
    fn the_order_of_keys_and_white_space_between_them_make_no_difference(value in any_json()) {
        let backwards: Value = serde_json::from_str(&written_backwards(&value)).expect("JSON");
        prop_assert_eq!(canonical(&backwards), canonical(&value));
        // And the canonical form says all of it.
        prop_assert_eq!(serde_json::from_str::<Value>(&canonical(&value)).expect("JSON"), value);
    }

    #[test]
    fn different_arguments_have_different_canonical_forms(one in any_json(), other in any_json()) {
        prop_assert_eq!(canonical(&one) == canonical(&other), one == other);
    }

    #[test]
    fn composed_and_decomposed_text_and_every_kind_of_line_end_are_the_same(
        text in "[a-zA-Zäöüéñ한\u{1e69}\u{212b} \n]{0,12}",
        ends in prop::collection::vec(0..3_usize, 12),
    ) {
        let mut ends = ends.into_iter().cycle();
        let mut other = String::new();
        for point in text.nfd() {
            match ends.next() {
                // After a lone CR a lone LF would be the second half of one line end.
                Some(0) if point == '\n' && !other.ends_with('\r') => other.push('\n'),
                Some(1) if point == '\n' => other.push('\r'),
                _ if point == '\n' => other.push_str("\r\n"),
                _ => other.push(point),
            }
        }
        prop_assert_eq!(normalise(&other), normalise(&text));
        // Once is enough: what is saved is what was compared.
        prop_assert_eq!(normalise(&normalise(&text)), normalise(&text));
    }

    #[test]
    fn a_null_member_is_as_good_as_none(value in any_json(), name in "[f-i]{1,2}") {
        let Value::Object(without) = json!({ "inner": value }) else { unreachable!() };
        let mut with = without.clone();
        with.insert(name, Value::Null);
        prop_assert_eq!(normalise_arguments(with), normalise_arguments(without));
    }
}

#[tokio::test]
async fn calls_that_mean_the_same_are_one_request_over_the_wire() {
    let scene = Scene::new().await;
    let [a, b] = scene.replicas().await;
    // Composed and LF; decomposed and CRLF with its members in another order; the same with CR.
    let bodies = [
        r#"{"request_id":"k","title":"Caf\u00e9","body":"one\ntwo\n"}"#,
        r#"{ "body":"one\r\ntwo\r\n", "title":"Cafe\u0301", "request_id":"k" }"#,
        r#"{"title":"Caf\u00e9","request_id":"k","body":"one\rtwo\r"}"#,
    ];
    let (status, first) = post_raw(&a, "/tickets", bodies[0]).await;
    assert_eq!(status, 201, "{first}");
    for body in &bodies[1..] {
        let (status, again) = post_raw(&b, "/tickets", body).await;
        assert_eq!((status, &again["ticket_id"]), (200, &first["ticket_id"]), "{again}");
    }
    // What is read back is what was compared.
    let (status, decomposed) = post_raw(
        &b,
        "/tickets",
        r#"{"request_id":"k2","title":"Cafe\u0301","body":"one\r\ntwo\r"}"#,
    )
    .await;
    assert_eq!((status, decomposed["title"].as_str()), (201, Some("Caf\u{e9}")));
    let read = a
        .get(&format!(
            "/tickets/{}",
            decomposed["ticket_id"].as_str().expect("an id")
        ))
        .await;
    assert_eq!((read.text("title"), read.text("body")), ("Caf\u{e9}", "one\ntwo\n"));
    // Null is absent.
    let id = first["ticket_id"].as_str().expect("an id");
    let path = format!("/tickets/{id}/status");
    let set = |body| {
        let (b, path) = (&b, &path);
        async move { b.http("PUT", path, Some(&body)).await.expect("an answer") }
    };
    let first = set(json!({ "request_id": "s", "ticket_status": "done" })).await;
    let null = set(json!({ "request_id": "s", "ticket_status": "done", "expected_status": null })).await;
    assert_eq!(
        (first.body["replayed"].as_bool(), null.body["replayed"].as_bool()),
        (Some(false), Some(true))
    );
    let other = set(json!({ "request_id": "s", "ticket_status": "done", "expected_status": "open" })).await;
    assert_eq!((other.status, other.code()), (409, "conflict"));
}

#[tokio::test]
async fn defaults_are_absent_and_arrays_and_large_integers_are_told_apart() {
    let scene = Scene::new().await;
    let house = InProcess::start(&scene, Knobs::default()).await;
    let note = |id: &str, more: Value| {
        let mut arguments = json!({ "request_id": id, "text": "n" });
        arguments
            .as_object_mut()
            .expect("an object")
            .extend(more.as_object().expect("an object").clone());
        house.call("anna", "note", arguments)
    };
    let (large, larger) = (9_007_199_254_740_992_u64, 9_007_199_254_740_993_u64);
    let cases = [
        (json!({}), json!({ "copies": 1 }), "replayed"),
        (
            json!({ "copies": 1 }),
            json!({ "copies": null, "result": null }),
            "replayed",
        ),
        (json!({}), json!({ "result": null }), "replayed"),
        (json!({}), json!({ "copies": 2 }), "conflict"),
        (json!({ "result": [1, 2] }), json!({ "result": [2, 1] }), "conflict"),
        (
            json!({ "result": { "a": 1, "b": 2 } }),
            json!({ "result": { "b": 2, "a": 1 } }),
            "replayed",
        ),
        (json!({ "result": large }), json!({ "result": larger }), "conflict"),
        (
            json!({ "result": u64::MAX }),
            json!({ "result": u64::MAX - 1 }),
            "conflict",
        ),
        (json!({ "result": "1" }), json!({ "result": 1 }), "conflict"),
        (json!({ "result": [null] }), json!({ "result": [] }), "conflict"),
    ];
    for (place, (first, second, expected)) in cases.into_iter().enumerate() {
        let id = format!("k{place}");
        assert_eq!(note(&id, first.clone()).await.what, "done", "{first}");
        assert_eq!(note(&id, second.clone()).await.what, expected, "{first} and {second}");
    }
}

#[tokio::test]
async fn unknown_arguments_are_refused_and_leave_the_key_free() {
    let scene = Scene::new().await;
    let [replica] = scene.replicas().await;
    let mut extra = ticket("k", "t");
    extra["priority"] = json!("high");
    for wrong in [extra.clone(), {
        extra["priority"] = json!({ "nested": [1] });
        extra
    }] {
        let answer = replica.post("/tickets", &wrong).await;
        assert_eq!((answer.status, answer.code()), (400, "invalid_argument"), "{wrong}");
        assert!(
            answer.body["error"]["message"]
                .as_str()
                .expect("a message")
                .contains("priority")
        );
    }
    assert_eq!(replica.create("k", "t").await.status, 201);
}

#[tokio::test]
async fn another_fingerprint_is_a_conflict_that_stores_and_tells_nothing() {
    let scene = Scene::new().await;
    let [a, b] = scene.replicas().await;
    let first = a.create("k", "The first title").await;
    let path = format!("/tickets/{}/comments", first.text("ticket_id"));
    let before = scene.row("k").await;
    let other_arguments = b.create("k", "Another title").await;
    let other_tool = b.post(&path, &json!({ "request_id": "k", "body": "A comment." })).await;
    for conflict in [other_arguments, other_tool] {
        assert_eq!((conflict.status, conflict.code()), (409, "conflict"));
        let told = conflict.body.to_string();
        for secret in [
            "The first title",
            first.text("ticket_id"),
            "create_ticket",
            first.text("answered_at"),
        ] {
            assert!(!told.contains(secret), "{told} tells {secret}");
        }
    }
    assert_eq!(scene.row("k").await, before);
    assert_eq!(
        (
            scene.tickets().await,
            scene.count("select count(*) from comments").await
        ),
        (1, 0)
    );
    assert_eq!(
        b.create("k", "The first title").await.text("ticket_id"),
        first.text("ticket_id")
    );
}

#[tokio::test]
async fn another_fingerprint_is_a_conflict_while_the_first_still_runs() {
    let scene = Scene::new().await;
    let (here, there) = (
        InProcess::start(&scene, Knobs::default()).await,
        InProcess::start(&scene, Knobs::default()).await,
    );
    here.script.tell("first", Ending::Holds);
    let first = here.spawn("anna", "note_slowly", json!({ "request_id": "k", "text": "first" }));
    scene.until("k", "running").await;
    for house in [&here, &there] {
        for tool in ["note_slowly", "note"] {
            let other = house
                .call("anna", tool, json!({ "request_id": "k", "text": "second" }))
                .await;
            assert_eq!(other.what, "conflict", "{tool}: {other:?}");
        }
        let other_tool = house.call("anna", "create_ticket", ticket("k", "t")).await;
        assert_eq!(other_tool.what, "conflict");
    }
    assert_eq!(scene.row("k").await.expect("a row").status, "running");
    here.script.tell("first", Ending::Goes);
    assert_eq!(first.await.expect("an answer").what, "done");
    assert_eq!(notes(&scene).await, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_fingerprints_in_flight_at_once_one_is_done_and_the_other_a_conflict() {
    let scene = Scene::new().await;
    let (here, there) = (
        InProcess::start(&scene, Knobs::default()).await,
        InProcess::start(&scene, Knobs::default()).await,
    );
    for round in 0..20 {
        let tool = ["note", "note_slowly"][round % 2];
        let other = if round % 4 < 2 { &there } else { &here };
        let call = |house: &InProcess, text| {
            house.spawn("anna", tool, json!({ "request_id": format!("k{round}"), "text": text }))
        };
        let (one, two) = join(call(&here, "one"), call(other, "two")).await;
        let mut told = [one.expect("an answer").what, two.expect("an answer").what];
        told.sort_unstable();
        assert_eq!(told, ["conflict", "done"], "round {round}");
    }
    assert_eq!(notes(&scene).await, 20);
}

#[tokio::test]
async fn a_row_in_an_unknown_version_is_unavailable_and_never_a_conflict() {
    let scene = Scene::new().await;
    let [replica] = scene.replicas().await;
    replica.create("k", "t").await;
    sqlx::query("update requests set fingerprint = set_byte(fingerprint, 0, 2)")
        .execute(&scene.sql)
        .await
        .expect("a newer release's row");
    for title in ["t", "another"] {
        let answer = replica.create("k", title).await;
        assert_eq!((answer.status, answer.code()), (503, "unavailable"), "{answer:?}");
    }
    assert_eq!(scene.tickets().await, 1);
    assert_eq!(replica.find("k").await["status"], "done");
}
