//! When two posts are one.

use std::collections::HashSet;
use std::time::Duration;

use futures_util::future::join_all;
use serde_json::{Value, json};
use uuid::Uuid;

use super::super::{WAYS, question, reply};
use super::{Rule, rule};
use crate::support::eventually;

pub const RULES: &[Rule] = &[
    rule(
        "Over MCP http_status and data are what HTTP answers, and retry_after_seconds is its Retry-After.",
        |ground, way| {
            Box::pin(async move {
                let asked = question(&ground.key());
                let first = ground.post(way, asked.clone()).await.fresh();
                let mut again = ground.post(way.other(), asked.clone()).await.replayed();
                assert_eq!(ground.post(way, asked.clone()).await, again);
                again.data["replayed"] = json!(false);
                assert_eq!(again.data, first.data);
                let mut other = asked;
                other["body"] = json!("Something else.");
                let refused = ground.post(way, other.clone()).await.refused(409, "conflict");
                assert_eq!(ground.post(way.other(), other).await, refused);
            })
        },
    ),
    rule(
        "new_request_id gives a UUID before the post; a new post takes a new one.",
        |ground, way| {
            Box::pin(async move {
                let mut ids = HashSet::new();
                for _ in 0..2 {
                    let minted = ground.replicas[0].tool("new_request_id", json!({})).await;
                    let id = minted["request_id"].as_str().expect("a text").to_owned();
                    assert!(Uuid::parse_str(&id).is_ok(), "{id}");
                    ground.post(way, question(&id)).await.fresh();
                    ids.insert(id);
                }
                assert_eq!(ids.len(), 2);
            })
        },
    ),
    rule(
        "In doubt the same post with the same request_id: nothing is saved anew, and the first id comes back with replayed true, with 200 \
         in place of 201.",
        |ground, way| {
            Box::pin(async move {
                let asked = ground.ask(way).await;
                let answered = reply(&ground.key(), asked.id());
                let first = ground.post(way, answered.clone()).await.fresh();
                for _ in 0..3 {
                    let again = ground.post(way, answered.clone()).await.replayed();
                    assert_eq!(again.id(), first.id());
                }
                assert_eq!(
                    ground.entries(answered["request_id"].as_str().expect("a text")).await,
                    1
                );
            })
        },
    ),
    rule(
        "The same are type, parent_id, title, body, the actor's name, model and trigger, and submission_mode, all of them; if one differs it \
         is a conflict, and nothing is saved.",
        |ground, way| {
            Box::pin(async move {
                let (one, two) = (ground.ask(way).await, ground.ask(way).await);
                let asked = question(&ground.key());
                let answered = reply(&ground.key(), one.id());
                ground.post(way, asked.clone()).await.fresh();
                ground.post(way, answered.clone()).await.fresh();
                let changed = |base: &Value, pointer: &str, value: &str| {
                    let mut changed = base.clone();
                    *changed.pointer_mut(pointer).expect("a member") = json!(value);
                    changed
                };
                let mut others = vec![
                    changed(&answered, "/parent_id", two.id()),
                    changed(&asked, "/title", "Another title"),
                    reply(asked["request_id"].as_str().expect("a text"), one.id()),
                ];
                for base in [&asked, &answered] {
                    for pointer in [
                        "/body",
                        "/actor/name",
                        "/actor/model",
                        "/actor/trigger",
                        "/submission_mode",
                    ] {
                        others.push(changed(base, pointer, "other"));
                    }
                }
                let before = ground.scene.count("select count(*) from entries").await;
                for other in others {
                    ground.post(way, other).await.refused(409, "conflict");
                }
                assert_eq!(ground.scene.count("select count(*) from entries").await, before);
            })
        },
    ),
    rule(
        "They are compared after Unicode NFC and the unification of line ends, as they are saved.",
        |ground, way| {
            Box::pin(async move {
                let mut asked = question(&ground.key());
                asked["title"] = json!("Cafe\u{301} が");
                asked["body"] = json!("a\r\nb\rc");
                let first = ground.post(way, asked.clone()).await.fresh();
                asked["title"] = json!("Café か\u{3099}");
                asked["body"] = json!("a\nb\nc");
                assert_eq!(ground.post(way, asked.clone()).await.replayed().id(), first.id());
                asked["body"] = json!("a\n\nb\nc");
                ground.post(way, asked).await.refused(409, "conflict");
            })
        },
    ),
    rule(
        "After a conflict the first content, with the same request_id, is the first post; only another post takes a new request_id.",
        |ground, way| {
            Box::pin(async move {
                let asked = question(&ground.key());
                let first = ground.post(way, asked.clone()).await.fresh();
                let mut other = asked.clone();
                other["title"] = json!("Another post");
                let refused = ground.post(way, other.clone()).await.refused(409, "conflict");
                let next = refused.data["error"]["next"].as_str().expect("a next");
                assert!(
                    next.contains("first arguments") && next.contains("new request_id"),
                    "{next}"
                );
                assert_eq!(ground.post(way, asked).await.replayed().id(), first.id());
                other["request_id"] = json!(ground.key());
                assert_ne!(ground.post(way, other).await.fresh().id(), first.id());
            })
        },
    ),
    rule(
        "Requests that arrive at the same time are saved once.",
        |ground, way| {
            Box::pin(async move {
                let asked = ground.ask(way).await;
                for arguments in [question(&ground.key()), reply(&ground.key(), asked.id())] {
                    let calls = (0..12).map(|number| ground.post(WAYS[number % 2], arguments.clone()));
                    let told = join_all(calls).await;
                    let ids: HashSet<_> = told.iter().map(|told| told.id().to_owned()).collect();
                    let fresh = told.iter().filter(|told| told.status == 201).count();
                    assert_eq!((ids.len(), fresh), (1, 1), "{told:#?}");
                    told.into_iter().filter(|told| told.status != 201).for_each(|told| {
                        told.replayed();
                    });
                    assert_eq!(
                        ground.entries(arguments["request_id"].as_str().expect("a text")).await,
                        1
                    );
                }
            })
        },
    ),
    rule(
        "What went by HTTP and is repeated by MCP, or the reverse, is one entry, and says by which way it was first saved.",
        |ground, way| {
            Box::pin(async move {
                let asked = question(&ground.key());
                let first = ground.post(way, asked.clone()).await.fresh();
                let again = ground.post(way.other(), asked.clone()).await.replayed();
                for told in [&first, &again] {
                    assert_eq!((told.id(), told.text("saved_via")), (first.id(), way.name()));
                }
                let read = ground
                    .call(way.other(), "get_thread", json!({ "id": first.id() }))
                    .await
                    .read();
                assert_eq!(read.text("saved_via"), way.name());
                assert_eq!(ground.entries(asked["request_id"].as_str().expect("a text")).await, 1);
            })
        },
    ),
    rule(
        "A caller that stopped waiting says nothing about the service: the post may be saved, and the repeat tells.",
        |ground, way| {
            Box::pin(async move {
                let asked = question(&ground.key());
                for _ in 0..5 {
                    let call = ground.post(way, asked.clone());
                    let _ = tokio::time::timeout(Duration::from_millis(2), call).await;
                }
                let told = ground.post(way, asked.clone()).await;
                assert!([200, 201].contains(&told.status), "{told:?}");
                assert_eq!(ground.entries(asked["request_id"].as_str().expect("a text")).await, 1);
            })
        },
    ),
    rule(
        "To look whether it was saved there is a tool that reads, by the request_id.",
        |ground, way| {
            Box::pin(async move {
                let asked = question(&ground.key());
                let find = || async {
                    let arguments = json!({ "request_id": asked["request_id"] });
                    ground.replicas[1].tool("find_request", arguments).await
                };
                assert_eq!(find().await["status"], "unknown");
                let posted = ground.post(way, asked.clone()).await.fresh();
                let found = eventually("it is found", || async {
                    Some(find().await).filter(|found| found["status"] == "done")
                });
                let found = found.await;
                assert_eq!(
                    Value::from(found.clone())["result"]["id"],
                    posted.data["id"],
                    "{found:?}"
                );
            })
        },
    ),
    rule(
        "Whoever did not note the request_id has nothing to compare by: with a new one the same text is saved twice.",
        |ground, way| {
            Box::pin(async move {
                let first = question(&ground.key());
                let mut second = first.clone();
                second["request_id"] = json!(ground.key());
                let one = ground.post(way, first.clone()).await.fresh();
                let two = ground.post(way, second).await.fresh();
                assert_ne!(one.id(), two.id());
                let twin = json!({ "request_id": first["request_id"], "result_id": one.id() });
                assert_eq!(two.data["possible_duplicate_of"], twin);
            })
        },
    ),
    rule("An answer with isError is no success.", |ground, way| {
        Box::pin(async move {
            let asked = question(&ground.key());
            let posted = ground.post(way, asked.clone()).await;
            assert!(!posted.is_error);
            let mut wrong = asked.clone();
            wrong["body"] = json!("");
            for refused in [
                ground.post(way, wrong).await,
                ground.post(way, reply(&ground.key(), "E-000000000000")).await,
                ground.call(way, "get_thread", json!({ "id": "E-000000000000" })).await,
            ] {
                assert!(refused.is_error && refused.status >= 400, "{refused:?}");
            }
        })
    }),
];
