//! What can be read back, and what is told of entries that an operator or time has taken away.

use serde_json::{Value, json};

use super::super::{Told, Way, all_replies, follow, ids, question, reply};
use super::{Ground, Rule, rule};

/// What find_request says of a request.
async fn find(ground: &Ground, request: &Value) -> Value {
    let arguments = json!({ "request_id": request["request_id"] });
    Value::Object(ground.replicas[2].tool("find_request", arguments).await)
}

/// Everything that reads a thread is 404.
async fn is_unreadable(ground: &Ground, way: Way, question: &str, reply: &str) {
    for (tool, arguments) in [
        ("get_thread", json!({ "id": question })),
        ("list_replies", json!({ "thread_id": question })),
        ("read_thread", json!({ "id": question })),
        ("get_reply", json!({ "thread_id": question, "reply_id": reply })),
    ] {
        ground.call(way, tool, arguments).await.refused(404, "not_found");
    }
}

/// Lets an entry have been posted more than a year ago, when its request has been forgotten already or not.
async fn age(ground: &Ground, id: &str) {
    let sql = "update entries set created_at = created_at - interval '366 days' where entry_id = $1";
    ground.run(sql, id).await;
}

/// A question and a reply to it, and what was sent.
async fn thread(ground: &Ground, way: Way) -> (Value, Told, Value, Told) {
    let asked = question(&ground.key());
    let posted = ground.post(way, asked.clone()).await.fresh();
    let answered = reply(&ground.key(), posted.id());
    let replied = ground.post(way, answered.clone()).await.fresh();
    (asked, posted, answered, replied)
}

pub const RULES: &[Rule] = &[
    rule(
        "After success the returned url, and a reply's bookmark_url, are read back.",
        |ground, way| {
            Box::pin(async move {
                let (_, posted, _, replied) = thread(ground, way).await;
                assert_eq!(follow(posted.text("url")).await.read().id(), posted.id());
                assert_eq!(follow(replied.text("url")).await.read().id(), posted.id());
                assert_eq!(follow(replied.text("bookmark_url")).await.read().id(), replied.id());
            })
        },
    ),
    rule(
        "A question is read back by get_thread with the returned id; a reply is looked for, by its id, in list_replies of its parent_id, page \
         by page.",
        |ground, way| {
            Box::pin(async move {
                let (_, posted, answered, replied) = thread(ground, way).await;
                let read = ground
                    .call(way, "get_thread", json!({ "id": posted.id() }))
                    .await
                    .read();
                assert_eq!((read.id(), read.text("title")), (posted.id(), read.text("title")));
                for _ in 0..51 {
                    ground.post(way, reply(&ground.key(), posted.id())).await.fresh();
                }
                let last = ground.post(way, reply(&ground.key(), posted.id())).await.fresh();
                let parent = answered["parent_id"].as_str().expect("a text");
                let first_page = ground
                    .call(way, "list_replies", json!({ "thread_id": parent }))
                    .await
                    .read();
                let first_page = ids(first_page.data["replies"].as_array().expect("replies"));
                assert!(first_page.contains(&replied.id().to_owned()) && !first_page.contains(&last.id().to_owned()));
                assert!(ids(&all_replies(&ground.replicas[1], way, parent).await).contains(&last.id().to_owned()));
            })
        },
    ),
    rule(
        "The repeat of a post that the operator has deleted does not make it again, and is told deleted; its stored answer is gone.",
        |ground, way| {
            Box::pin(async move {
                let (asked, posted, answered, replied) = thread(ground, way).await;
                for id in [replied.id(), posted.id()] {
                    ground.admin(&["delete", "--yes", id]).await;
                }
                for request in [asked, answered] {
                    for _ in 0..3 {
                        let told = ground.post(way, request.clone()).await.refused(410, "deleted");
                        let message = told.data["error"]["message"].as_str().expect("a message");
                        assert!(
                            message.contains("was saved") && message.contains("not made again"),
                            "{message}"
                        );
                        let over_http = ground.call(
                            Way::Http,
                            "find_request",
                            json!({ "request_id": request["request_id"] }),
                        );
                        over_http.await.refused(410, "deleted");
                    }
                    // Another content under the same request_id is a conflict as ever.
                    let mut other = request.clone();
                    other["body"] = json!("Another.");
                    ground.post(way, other).await.refused(409, "conflict");
                    let key = request["request_id"].as_str().expect("a text");
                    assert_eq!(ground.entries(key).await, 0);
                    let sql = "update requests set result = result where request_id = $1 and result is null and duplicate_of is null";
                    ground.run(sql, key).await;
                }
            })
        },
    ),
    rule(
        "It is told deleted too when the ledger has forgotten the request, as long as the deletion is known.",
        |ground, way| {
            Box::pin(async move {
                let (asked, posted, answered, replied) = thread(ground, way).await;
                for id in [replied.id(), posted.id()] {
                    ground.admin(&["delete", "--yes", id]).await;
                }
                for request in [asked, answered] {
                    let key = request["request_id"].as_str().expect("a text");
                    ground.run("delete from requests where request_id = $1", key).await;
                    ground.post(way, request.clone()).await.refused(410, "deleted");
                    let found = ground
                        .call(Way::Http, "find_request", json!({ "request_id": key }))
                        .await;
                    found.refused(410, "deleted");
                    assert_eq!(ground.entries(key).await, 0);
                }
            })
        },
    ),
    rule(
        "The repeat of a post that is hidden has visible false: it is saved. Shown again, it has none.",
        |ground, way| {
            Box::pin(async move {
                let (asked, posted, answered, replied) = thread(ground, way).await;
                for (request, id) in [(&answered, replied.id()), (&asked, posted.id())] {
                    ground.admin(&["hide", id]).await;
                    let again = ground.post(way, request.clone()).await.replayed();
                    assert_eq!((again.id(), &again.data["visible"]), (id, &json!(false)));
                    let found = find(ground, request).await;
                    assert_eq!((&found["status"], &found["visible"]), (&json!("done"), &json!(false)));
                    ground.admin(&["unhide", id]).await;
                    let again = ground.post(way, request.clone()).await.replayed();
                    assert_eq!(again.data.get("visible"), None);
                    assert_eq!(find(ground, request).await.get("visible"), None);
                }
            })
        },
    ),
    rule(
        "A hidden or deleted question cannot be read, nor its list or its document; its replies, which are saved, are visible false.",
        |ground, way| {
            Box::pin(async move {
                let (_, posted, answered, replied) = thread(ground, way).await;
                ground.admin(&["hide", posted.id()]).await;
                is_unreadable(ground, way, posted.id(), replied.id()).await;
                let again = ground.post(way, answered.clone()).await.replayed();
                assert_eq!(again.data["visible"], false);
                ground.admin(&["unhide", posted.id()]).await;
                ground
                    .call(way, "get_thread", json!({ "id": posted.id() }))
                    .await
                    .read();
                assert_eq!(
                    ids(&all_replies(&ground.replicas[0], way, posted.id()).await),
                    [replied.id()]
                );
                ground.admin(&["delete", "--yes", posted.id()]).await;
                is_unreadable(ground, way, posted.id(), replied.id()).await;
                let again = ground.post(way, answered).await.replayed();
                assert_eq!(again.data["visible"], false);
            })
        },
    ),
    rule(
        "Of a question that can be read, the list stays 200 when a reply is hidden or deleted, and lacks that reply alone.",
        |ground, way| {
            Box::pin(async move {
                let (_, posted, _, first) = thread(ground, way).await;
                let second = ground.post(way, reply(&ground.key(), posted.id())).await.fresh();
                let third = ground.post(way, reply(&ground.key(), posted.id())).await.fresh();
                ground.admin(&["hide", first.id()]).await;
                ground.admin(&["delete", "--yes", second.id()]).await;
                assert_eq!(
                    ids(&all_replies(&ground.replicas[1], way, posted.id()).await),
                    [third.id()]
                );
                let document = ground
                    .call(way, "read_thread", json!({ "id": posted.id() }))
                    .await
                    .read();
                let document = document.data.as_str().expect("a text");
                let shown = [&first, &second, &third].map(|told| document.contains(told.id()));
                assert_eq!(shown, [false, false, true], "{document}");
                for gone in [&first, &second] {
                    let arguments = json!({ "thread_id": posted.id(), "reply_id": gone.id() });
                    ground.call(way, "get_reply", arguments).await.refused(404, "not_found");
                }
                ground
                    .call(way, "get_thread", json!({ "id": posted.id() }))
                    .await
                    .read();
            })
        },
    ),
    rule(
        "That it cannot be read does not prove that it was not saved: what refuses says so, and find_request tells.",
        |ground, way| {
            Box::pin(async move {
                let (asked, posted, ..) = thread(ground, way).await;
                ground.admin(&["hide", posted.id()]).await;
                let told = ground.call(way, "get_thread", json!({ "id": posted.id() })).await;
                let told = told.refused(404, "not_found");
                let next = told.data["error"]["next"].as_str().expect("a next");
                assert!(
                    next.contains("does not prove") && next.contains("find_request"),
                    "{next}"
                );
                assert_eq!(find(ground, &asked).await["status"], "done");
            })
        },
    ),
    rule(
        "Posts are not kept for ever: past their retention they cannot be read, and a repeat is told expired, removed or not.",
        |ground, way| {
            Box::pin(async move {
                let (asked, posted, answered, replied) = thread(ground, way).await;
                age(ground, posted.id()).await;
                is_unreadable(ground, way, posted.id(), replied.id()).await;
                ground
                    .post(way, reply(&ground.key(), posted.id()))
                    .await
                    .refused(404, "not_found");
                let expired = |request: Value| async {
                    let told = ground.post(way, request).await.refused(410, "expired");
                    assert_eq!(told.data["error"]["recorded"], true);
                };
                expired(asked.clone()).await;
                // The reply is younger.
                assert_eq!(
                    ground.post(way, answered.clone()).await.replayed().data["visible"],
                    false
                );
                age(ground, replied.id()).await;
                expired(answered.clone()).await;
                ground.run("delete from entries where entry_id = $1", posted.id()).await;
                expired(asked.clone()).await;
                let found = ground.call(Way::Http, "find_request", json!({ "request_id": asked["request_id"] }));
                found.await.refused(410, "expired");
            })
        },
    ),
    rule(
        "Nor are deletions known for ever: then an old request_id, unless it is a UUIDv7 that says its age, saves a new post.",
        |ground, way| {
            Box::pin(async move {
                let (asked, posted, ..) = thread(ground, way).await;
                let key = asked["request_id"].as_str().expect("a text");
                ground.admin(&["delete", "--yes", posted.id()]).await;
                ground.run("delete from requests where request_id = $1", key).await;
                ground
                    .run("delete from deleted_entries where request_id = $1", key)
                    .await;
                assert_ne!(ground.post(way, asked).await.fresh().id(), posted.id());
                let old = question("01900000-0000-7000-8000-000000000000");
                let told = ground.post(way, old).await.refused(410, "expired");
                assert_eq!(told.data["error"]["recorded"], false);
            })
        },
    ),
];
