//! One principal's calls on one replica.

use futures_util::future::join_all;
use serde_json::json;

use crate::support::calls::ticket;
use crate::support::eventually;
use crate::support::scene::Scene;

const TICKETS: [&str; 2] = ["--scopes", "tickets:read,tickets:write"];

#[tokio::test]
async fn a_principal_with_too_many_calls_under_way_is_told_what_is_recorded_and_keeps_nobody_out() {
    let scene = Scene::new().await;
    let (anna, bert) = (scene.token("anna", &TICKETS).await, scene.token("bert", &TICKETS).await);
    let start = || scene.replica().with("AUTH", "token").with("MAX_CALLS_PER_PRINCIPAL", 2);
    let quick = start().ready().await;
    let replica = start().with("WORK_MS", 4_000).ready().await;
    assert_eq!(quick.by(&anna).create("done", "Done before").await.status, 201);
    let (by_anna, by_bert) = (replica.by(&anna), replica.by(&bert));
    let working = join_all((0..2).map(|number| {
        let request_id = format!("work-{number}");
        async move { by_anna.create(&request_id, "Working").await }
    }));
    let meanwhile = async {
        for number in 0..2 {
            scene.until(&format!("work-{number}"), "running").await;
        }
        // A third: nothing new, and all that is recorded.
        for answer in [
            by_anna.create("new", "New").await,
            by_anna.http("GET", "/tickets", None).await,
        ] {
            assert_eq!((answer.status, answer.code()), (503, "unavailable"), "{answer:?}");
            assert!(answer.headers.contains_key("retry-after"), "{answer:?}");
        }
        let refused = by_anna.mcp("create_ticket", ticket("new", "New")).await;
        assert_eq!(
            refused.body["result"]["structuredContent"]["error"]["code"], "unavailable",
            "{refused:?}"
        );
        let replayed = by_anna.create("done", "Done before").await;
        assert_eq!(
            (replayed.status, &replayed.body["replayed"]),
            (200, &json!(true)),
            "{replayed:?}"
        );
        let other = by_anna.create("done", "Something else").await;
        assert_eq!((other.status, other.code()), (503, "unavailable"), "{other:?}");
        assert_eq!(by_anna.find("work-0").await["status"], "running");
        // Somebody else has seats of their own.
        let read = by_bert.http("GET", "/tickets", None).await;
        assert_eq!(read.status, 200, "{read:?}");
    };
    let (worked, ()) = tokio::join!(working, meanwhile);
    assert!(worked.iter().all(|answer| answer.status == 201), "{worked:?}");
    assert!(scene.row("new").await.is_none());
    assert_eq!(by_anna.http("GET", "/tickets", None).await.status, 200);
}

#[tokio::test]
async fn past_twice_its_calls_a_principal_is_answered_503_before_its_body_is_read() {
    let scene = Scene::new().await;
    let anna = scene.token("anna", &TICKETS).await;
    let replica = scene
        .replica()
        .with("AUTH", "token")
        .with("MAX_CALLS_PER_PRINCIPAL", 1)
        .ready()
        .await;
    let by_anna = replica.by(&anna);
    // Two calls whose bodies never come hold both seats.
    let head = |name: &str| {
        crate::support::raw::Raw::api("POST", "/tickets", "{")
            .header("content-length", "100")
            .header("authorization", format!("Bearer {name}"))
    };
    // One more each time: a look of ours may have had the seat that one of them came for.
    let held = tokio::sync::Mutex::new(Vec::new());
    let refused = eventually("both are seated", || async {
        held.lock().await.push(head(&anna).begin(&replica).await);
        let answer = by_anna.mcp("new_request_id", json!({})).await;
        (answer.status == 503).then_some(answer)
    })
    .await;
    assert_eq!(refused.code(), "unavailable", "{refused:?}");
    assert!(refused.headers.contains_key("retry-after"), "{refused:?}");
    drop(held);
    eventually("whoever leaves gives up the seat", || async {
        (by_anna.http("GET", "/tickets", None).await.status == 200).then_some(())
    })
    .await;
}
