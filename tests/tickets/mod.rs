//! Tickets: what is put in is what comes out, in order, page by page.

mod pages;

use futures_util::future::join_all;
use serde_json::{Map, Value, json};

use crate::support::replica::Replica;
use crate::support::scene::Scene;

async fn make(replica: &Replica, request_id: &str, title: &str, body: &str) -> Map<String, Value> {
    let arguments = json!({ "request_id": request_id, "title": title, "body": body });
    replica.tool("create_ticket", arguments).await
}

async fn comment(replica: &Replica, request_id: &str, ticket_id: &Value, body: &str) -> Map<String, Value> {
    let arguments = json!({ "request_id": request_id, "ticket_id": ticket_id, "body": body });
    replica.tool("add_comment", arguments).await
}

async fn titles(replica: &Replica, arguments: Value) -> Vec<String> {
    let page = replica.tool("list_tickets", arguments).await;
    let tickets = page["tickets"].as_array().expect("tickets");
    let title = |ticket: &Value| ticket["title"].as_str().expect("a title").to_owned();
    tickets.iter().map(title).collect()
}

fn is_a_time(value: &Value) -> bool {
    let form = "0000-00-00T00:00:00.000Z";
    let text = value.as_str().unwrap_or_default();
    text.len() == form.len()
        && text
            .chars()
            .zip(form.chars())
            .all(|(is, form)| if form == '0' { is.is_ascii_digit() } else { is == form })
}

#[tokio::test]
async fn a_ticket_is_read_back_as_it_was_written() {
    let scene = Scene::new().await;
    let [replica] = scene.replicas().await;
    let title = "日本語のチケット 👩‍👩‍👧‍👦 — \"quotes\" \\ <b> %s";
    let body = "一行目\n二行目 🎉\ttab\n\n'; drop table tickets; -- \u{feff}\u{200b} \u{1}\n";
    let created = make(&replica, "round-trip", title, body).await;
    let id = created["ticket_id"].as_str().expect("an id");
    assert!(id.len() == 14 && id.starts_with("T-"), "{id}");
    assert!(
        id[2..].chars().all(|c| "0123456789ABCDEFGHJKMNPQRSTVWXYZ".contains(c)),
        "{id}"
    );
    assert!(
        is_a_time(&created["created_at"]) && is_a_time(&created["answered_at"]),
        "{created:?}"
    );
    assert_eq!(
        (&created["title"], &created["ticket_status"]),
        (&json!(title), &json!("open"))
    );

    let comment = comment(&replica, "round-trip-2", &created["ticket_id"], body).await;
    let over_mcp = replica.tool("get_ticket", json!({ "ticket_id": id })).await;
    let over_http = replica.get(&format!("/tickets/{id}")).await;
    assert_eq!(Value::Object(over_mcp.clone()), over_http.body);
    assert_eq!((&over_mcp["title"], &over_mcp["body"]), (&json!(title), &json!(body)));
    assert_eq!(over_mcp["created_at"], created["created_at"]);
    let shown = json!([{ "comment_id": comment["comment_id"], "body": body, "created_at": comment["created_at"] }]);
    assert_eq!(over_mcp["comments"], shown);
}

#[tokio::test]
async fn text_is_put_into_one_form_before_it_is_compared_and_saved() {
    let scene = Scene::new().await;
    let [replica] = scene.replicas().await;
    let decomposed = make(&replica, "form", "Cafe\u{301} \u{1100}\u{1161}", "a\r\nb\rc\n").await;
    assert_eq!(decomposed["title"], "Café 가", "{decomposed:?}");
    let read = replica
        .tool("get_ticket", json!({ "ticket_id": decomposed["ticket_id"] }))
        .await;
    assert_eq!(read["body"], "a\nb\nc\n");
    let composed = make(&replica, "form", "Café 가", "a\nb\nc\n").await;
    assert_eq!(composed["replayed"], true, "{composed:?}");
    let other = make(&replica, "form", "Café 가", "a\n\nb\nc\n").await;
    assert_eq!(other["error"]["code"], "conflict", "{other:?}");
}

#[tokio::test]
async fn a_request_id_is_compared_byte_for_byte() {
    let scene = Scene::new().await;
    let [replica] = scene.replicas().await;
    let ids = [
        "key",
        "Key",
        "k\u{e9}y",
        "ke\u{301}y",
        "k y",
        "k  y",
        "😀",
        "\u{fffd}",
        "%ff",
        "\"key\"",
    ];
    for id in ids {
        let created = make(&replica, id, "Keys", "b").await;
        assert_eq!(
            (&created["replayed"], &created["request_id"]),
            (&json!(false), &json!(id)),
            "{created:?}"
        );
    }
    let longest = "😀".repeat(64);
    assert_eq!(make(&replica, &longest, "Keys", "b").await["status"], "done");
    assert_eq!(scene.tickets().await, 11);
    for id in ids {
        assert_eq!(replica.find(id).await["status"], "done", "{id}");
    }
}

#[tokio::test]
async fn limits_count_characters_of_a_title_and_bytes_of_a_body_in_their_saved_form() {
    let scene = Scene::new().await;
    let [replica] = scene.replicas().await;
    let fits = [
        ("😀".repeat(200), "b".repeat(65_536)),
        ("e\u{301}".repeat(200), "e\u{301}".repeat(32_768)),
        ("t".to_owned(), "\r\n".repeat(65_536)),
        ("t".to_owned(), "語".repeat(21_845)),
        ("t".to_owned(), String::new()),
    ];
    for (place, (title, body)) in fits.iter().enumerate() {
        let created = make(&replica, &format!("fits-{place}"), title, body).await;
        assert_eq!(created["status"], "done", "{place}: {created:?}");
    }
    let misfits = [
        ("😀".repeat(201), String::new()),
        ("e\u{301}".repeat(201), String::new()),
        ("t".to_owned(), "語".repeat(21_846)),
        ("t".to_owned(), "e\u{301}".repeat(32_769)),
    ];
    for (place, (title, body)) in misfits.iter().enumerate() {
        let refused = make(&replica, &format!("misfit-{place}"), title, body).await;
        assert_eq!(refused["error"]["code"], "invalid_argument", "{place}: {refused:?}");
    }
    let ticket_id = make(&replica, "fits-0", &fits[0].0, &fits[0].1).await["ticket_id"].clone();
    for (body, fits) in [
        ("語".repeat(21_845), true),
        ("語".repeat(21_846), false),
        (" \n".to_owned(), false),
    ] {
        let answer = comment(&replica, &format!("comment-{}", body.len()), &ticket_id, &body).await;
        assert_eq!(
            answer.contains_key("comment_id"),
            fits,
            "{} bytes: {answer:?}",
            body.len()
        );
    }
    assert_eq!(scene.tickets().await, 5);
}

#[tokio::test]
async fn a_query_is_a_literal_text_in_any_case() {
    let scene = Scene::new().await;
    let [replica] = scene.replicas().await;
    let tickets = [
        ("100% sure", "x"),
        ("a_b", "x"),
        ("axb", "\\ and *"),
        ("ÄRGER in МОСКВА", "ΣΊΣΥΦΟΣ"),
        ("plain", "Café"),
    ];
    for (title, body) in tickets {
        make(&replica, title, title, body).await;
    }
    let cases: [(&str, &[&str]); 11] = [
        ("%", &["100% sure"]),
        ("_", &["a_b"]),
        ("a_b", &["a_b"]),
        ("\\", &["axb"]),
        ("*", &["axb"]),
        ("SURE", &["100% sure"]),
        ("ärger", &["ÄRGER in МОСКВА"]),
        ("москва", &["ÄRGER in МОСКВА"]),
        ("σίσυφ", &["ÄRGER in МОСКВА"]),
        ("CAFE\u{301}", &["plain"]),
        ("not there", &[]),
    ];
    for (query, expected) in cases {
        assert_eq!(titles(&replica, json!({ "query": query })).await, expected, "{query}");
    }
    let set = json!({ "request_id": "set", "ticket_id": make(&replica, "plain", "plain", "Café").await["ticket_id"],
        "ticket_status": "in_progress" });
    replica.tool("set_ticket_status", set).await;
    assert_eq!(
        titles(&replica, json!({ "ticket_status": "in_progress" })).await,
        ["plain"]
    );
    assert_eq!(titles(&replica, json!({ "ticket_status": "open" })).await.len(), 4);
    assert!(
        titles(&replica, json!({ "ticket_status": "open", "query": "plain" }))
            .await
            .is_empty()
    );
    let over_http = replica.get("/tickets?query=caf%C3%89&ticket_status=in_progress").await;
    assert_eq!(over_http.body["tickets"][0]["title"], "plain", "{over_http:?}");
}

#[tokio::test]
async fn concurrent_changes_of_a_status_form_one_chain() {
    let scene = Scene::new().await;
    let replicas = scene.replicas::<2>().await;
    let id = make(&replicas[0], "chain", "Chain", "b").await["ticket_id"].clone();
    let statuses = ["in_progress", "done", "closed", "open"];
    let sets = (0..24).map(|number| {
        let arguments =
            json!({ "request_id": format!("set-{number}"), "ticket_id": id, "ticket_status": statuses[number % 4] });
        replicas[number % 2].tool("set_ticket_status", arguments)
    });
    let answers = join_all(sets).await;
    // What was overwritten, and by what: every status is left as often as it was reached, the first and the last but once.
    let mut balance = std::collections::HashMap::from([("open".to_owned(), 1)]);
    for answer in &answers {
        let status = |member: &str| {
            answer[member]
                .as_str()
                .unwrap_or_else(|| panic!("{answer:?}"))
                .to_owned()
        };
        *balance.entry(status("ticket_status")).or_default() += 1;
        *balance.entry(status("previous_status")).or_default() -= 1;
    }
    balance.retain(|_, count| *count != 0);
    let last = replicas[1].tool("get_ticket", json!({ "ticket_id": id })).await["ticket_status"].clone();
    assert_eq!(
        balance,
        [(last.as_str().expect("a status").to_owned(), 1)].into(),
        "{answers:#?}"
    );
}

#[tokio::test]
async fn of_those_that_expect_a_status_one_finds_it_and_a_refusal_frees_the_key() {
    let scene = Scene::new().await;
    let [replica] = scene.replicas().await;
    let id = make(&replica, "expect", "Expect", "b").await["ticket_id"].clone();
    let set = |key: &str, status: &str, expected: Value| json!({ "request_id": key, "ticket_id": id, "ticket_status": status, "expected_status": expected });
    let keys: Vec<_> = (0..8).map(|number| format!("set-{number}")).collect();
    let calls = keys
        .iter()
        .map(|key| replica.tool("set_ticket_status", set(key, "in_progress", json!("open"))));
    let answers = join_all(calls).await;
    let done: Vec<_> = answers
        .iter()
        .filter(|answer| answer.contains_key("previous_status"))
        .collect();
    assert_eq!(done.len(), 1, "{answers:#?}");
    assert_eq!(done[0]["previous_status"], "open");
    let refused = answers
        .iter()
        .position(|answer| {
            answer
                .get("error")
                .is_some_and(|error| error["code"] == "precondition_failed")
        })
        .expect("one");
    assert_eq!(answers.iter().filter(|answer| answer.get("error").is_some()).count(), 7);
    let message = answers[refused]["error"]["message"].as_str().expect("a message");
    assert!(
        message.contains("in_progress") && message.contains("Nothing was changed"),
        "{message}"
    );

    // Its key is free, for other arguments too; null is the same as absent.
    let again = replica
        .tool("set_ticket_status", set(&keys[refused], "closed", Value::Null))
        .await;
    assert_eq!(
        (&again["previous_status"], &again["replayed"]),
        (&json!("in_progress"), &json!(false))
    );
    let absent = json!({ "request_id": keys[refused], "ticket_id": id, "ticket_status": "closed" });
    assert_eq!(replica.tool("set_ticket_status", absent).await["replayed"], true);
}

#[tokio::test]
async fn a_repeat_of_a_settled_change_never_acts() {
    let scene = Scene::new().await;
    let [replica] = scene.replicas().await;
    let id = make(&replica, "repeat", "Repeat", "b").await["ticket_id"].clone();
    let set = |key: &str, status: &str| json!({ "request_id": key, "ticket_id": id, "ticket_status": status });
    let first = replica.tool("set_ticket_status", set("first", "done")).await;
    replica.tool("set_ticket_status", set("second", "closed")).await;
    let repeated = replica.tool("set_ticket_status", set("first", "done")).await;
    assert_eq!(
        (&repeated["previous_status"], &repeated["answered_at"]),
        (&json!("open"), &first["answered_at"])
    );
    let ticket = replica.tool("get_ticket", json!({ "ticket_id": id })).await;
    assert_eq!(ticket["ticket_status"], "closed");
    for tool in ["set_ticket_status", "add_comment"] {
        let mut arguments = json!({ "request_id": "missing", "ticket_id": "T-000000000000" });
        let (member, value) = if tool == "add_comment" {
            ("body", "b")
        } else {
            ("ticket_status", "open")
        };
        arguments[member] = json!(value);
        assert_eq!(replica.tool(tool, arguments).await["error"]["code"], "not_found");
    }
    assert_eq!(comment(&replica, "missing", &id, "b").await["status"], "done");
}
