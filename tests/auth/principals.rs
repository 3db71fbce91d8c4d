//! Two principals that use one request_id do not share it, wait for each other, or learn of each other.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use serde_json::{Value, json};

use super::TICKETS;
use crate::support::calls::{Answer, ticket};
use crate::support::replica::Replica;
use crate::support::scene::Scene;

/// A scene with three replicas, and the tokens of Anna, Bert, and of a script of Anna's.
struct House {
    scene: Scene,
    replicas: [Replica; 3],
    anna: String,
    bert: String,
}

impl House {
    async fn with(work_ms: u64) -> Self {
        let scene = Scene::new().await;
        let start = || scene.replica().with("AUTH", "token").with("WORK_MS", work_ms);
        let replicas = [start().ready().await, start().ready().await, start().ready().await];
        let (anna, bert) = (scene.token("anna", &TICKETS).await, scene.token("bert", &TICKETS).await);
        Self {
            scene,
            replicas,
            anna,
            bert,
        }
    }
}

/// An answer without what differs between any two requests.
fn kind(answer: &Answer) -> (u16, Vec<String>, Vec<String>, Value) {
    let members = answer.body.as_object().expect("an object");
    let names = members.keys().cloned().collect();
    let headers = answer.headers.keys().map(|name| name.as_str().to_owned()).collect();
    (
        answer.status,
        names,
        headers,
        members.get("replayed").cloned().unwrap_or_default(),
    )
}

#[tokio::test]
async fn what_one_principal_did_changes_nothing_in_what_another_is_told_in_any_order() {
    let house = House::with(0).await;
    let [a, b, c] = &house.replicas;
    for (round, order) in [[a, b, c], [b, c, a], [c, a, b], [a, a, a]].into_iter().enumerate() {
        // Bert's answers to a key that nobody has used, and to one that Anna has used for something else.
        let (free, taken) = (format!("free-{round}"), format!("taken-{round}"));
        let anna = order[0].by(&house.anna);
        assert_eq!(anna.create(&taken, "Anna's").await.status, 201);
        for key in [&free, &taken] {
            let unknown = order[1].by(&house.bert).find(key).await;
            assert_eq!(unknown["status"], "unknown", "{unknown}");
        }
        let mut told = Vec::new();
        for key in [&free, &taken] {
            // A title for each, because Bert is told when he creates the same thing twice.
            let title = format!("Bert's {key}");
            let first = order[1].by(&house.bert).create(key, &title).await;
            let again = order[2].by(&house.bert).create(key, &title).await;
            let other = order[0].by(&house.bert).create(key, "Another").await;
            let found = order[0].by(&house.bert).find(key).await;
            told.push((kind(&first), kind(&again), kind(&other), found["status"].clone()));
            assert_eq!(first.body["title"], title);
        }
        assert_eq!(told[0], told[1]);
        let (first, again, other, _) = &told[0];
        assert_eq!((first.0, again.0, other.0), (201, 200, 409));
        // And Anna's is as it was.
        let replayed = order[2].by(&house.anna).create(&taken, "Anna's").await;
        assert_eq!((replayed.status, replayed.text("title")), (200, "Anna's"));
    }
    assert_eq!(house.scene.tickets().await, 12);
}

#[tokio::test]
async fn two_principals_at_the_same_moment_each_do_their_own_once() {
    let house = House::with(0).await;
    for round in 0..10 {
        let key = format!("k-{round}");
        let calls = (0..12).map(|call| {
            let (replica, key) = (&house.replicas[call % 3], &key);
            let (token, title) = if call % 2 == 0 {
                (&house.anna, "Anna's")
            } else {
                (&house.bert, "Bert's")
            };
            async move { (title, replica.by(token).create(key, title).await) }
        });
        let answers = join_all(calls).await;
        for title in ["Anna's", "Bert's"] {
            let own: Vec<_> = answers
                .iter()
                .filter(|(whose, _)| *whose == title)
                .map(|(_, answer)| answer)
                .collect();
            assert!(own.iter().all(|answer| answer.body["title"] == title), "{own:?}");
            assert_eq!(own.iter().filter(|answer| answer.status == 201).count(), 1, "{own:?}");
            assert_eq!(own.iter().filter(|answer| answer.status == 200).count(), 5, "{own:?}");
            assert!(
                own.iter()
                    .all(|answer| answer.body["ticket_id"] == own[0].body["ticket_id"])
            );
        }
    }
    assert_eq!(house.scene.tickets().await, 20);
}

#[tokio::test]
async fn a_principal_does_not_wait_for_anothers_work_under_the_same_request_id() {
    let house = House::with(3_000).await;
    let [a, b, _] = &house.replicas;
    let anna = async { a.by(&house.anna).create("k", "Anna's").await };
    let bert = async {
        house.scene.until("k", "running").await;
        // A comment takes no time, whoever works under this request_id meanwhile; nor is its tool or its fingerprint a conflict.
        let comment = json!({ "request_id": "k", "ticket_id": "T-000000000000", "body": "Bert's" });
        let began = Instant::now();
        let answer = b.by(&house.bert).mcp("add_comment", comment).await;
        let same = a.by(&house.bert).find("k").await;
        (answer, same, began.elapsed())
    };
    let (anna, (bert, found, took)) = tokio::join!(anna, bert);
    assert_eq!(anna.status, 201);
    assert_eq!(
        bert.body["result"]["structuredContent"]["error"]["code"], "not_found",
        "{bert:?}"
    );
    assert_eq!(found["status"], "unknown", "{found}");
    assert!(took < Duration::from_millis(2_000), "{took:?}");
}

#[tokio::test]
async fn a_token_for_somebody_is_the_same_principal_as_they_are() {
    let house = House::with(0).await;
    let [a, b, c] = &house.replicas;
    let speaks_for = |issuer, subject| [&TICKETS[..], &["--for", issuer, subject]].concat();
    let one = house.scene.token("one", &speaks_for("https://id", "s|x")).await;
    let two = house.scene.token("two", &speaks_for("https://id", "s|x")).await;
    let split = house.scene.token("split", &speaks_for("https://id|s", "x")).await;
    assert_eq!(a.by(&one).create("k", "Shared").await.status, 201);
    assert_eq!(b.by(&two).create("k", "Shared").await.status, 200);
    let own = c.by(&split).tool("create_ticket", ticket("k", "Shared")).await;
    assert_eq!(own["replayed"], false, "{own}");
    assert_eq!(
        house
            .scene
            .count("select count(distinct principal) from requests")
            .await,
        2
    );
}
