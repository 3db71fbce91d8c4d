//! Behind a balancer that repeats a POST elsewhere, a client does not notice what happens to a replica.

use std::collections::HashSet;

use futures_util::future::join_all;
use serde_json::Value;

use crate::support::calls::{client, ticket};
use crate::support::daemons::Nginx;
use crate::support::eventually;
use crate::support::replica::Replica;
use crate::support::scene::Scene;

const NAMES: [&str; 3] = ["one", "two", "three"];

/// Three replicas whose names tell who holds a claim.
async fn three(scene: &Scene, work_ms: u64) -> Vec<Replica> {
    let starts = NAMES.map(|name| {
        scene
            .replica()
            .with("REPLICA_NAME", name)
            .with("WORK_MS", work_ms)
            .with("GRACE_MS", 200)
            .ready()
    });
    join_all(starts).await
}

async fn call(nginx: &Nginx, request_id: &str) -> (u16, Value) {
    let url = format!("http://{}/api/v1/tickets", nginx.address);
    let request = client().post(url).json(&ticket(request_id, "Balanced"));
    let answer = request.send().await.expect("nginx answers");
    (answer.status().as_u16(), answer.json().await.expect("JSON"))
}

async fn holder<'a>(scene: &Scene, replicas: &'a [Replica], request_id: &str) -> &'a Replica {
    let row = scene.until(request_id, "running").await;
    let place = NAMES.iter().position(|name| *name == row.replica);
    &replicas[place.expect("one of them")]
}

#[tokio::test]
async fn a_replica_killed_during_a_call_is_not_noticed_by_the_client() {
    let scene = Scene::new().await;
    let replicas = three(&scene, 1_000).await;
    let nginx = Nginx::before(&replicas.iter().collect::<Vec<_>>()).await;
    let kill = async { holder(&scene, &replicas, "killed").await.strike() };
    let ((status, answer), ()) = tokio::join!(call(&nginx, "killed"), kill);
    assert_eq!((status, &answer["status"]), (201, &Value::from("done")), "{answer}");
    let row = scene.row("killed").await.expect("a row");
    assert_eq!((row.attempt, row.lapses), (2, 1));
    assert_eq!(scene.tickets().await, 1);
}

#[tokio::test]
async fn a_replica_stopped_during_a_call_is_not_noticed_by_the_client() {
    let scene = Scene::new().await;
    let replicas = three(&scene, 1_000).await;
    let nginx = Nginx::before(&replicas.iter().collect::<Vec<_>>()).await;
    let stop = async { holder(&scene, &replicas, "stopped").await.terminate() };
    let ((status, answer), ()) = tokio::join!(call(&nginx, "stopped"), stop);
    assert_eq!((status, &answer["status"]), (201, &Value::from("done")), "{answer}");
    let row = scene.row("stopped").await.expect("a row");
    assert_eq!((row.attempt, row.lapses), (2, 0));
    assert_eq!(scene.tickets().await, 1);
}

#[tokio::test]
async fn calls_under_way_while_a_replica_is_killed_all_succeed_once() {
    let scene = Scene::new().await;
    let replicas = three(&scene, 100).await;
    let nginx = Nginx::before(&replicas.iter().collect::<Vec<_>>()).await;
    let callers = (0..6).map(|caller| {
        let nginx = &nginx;
        async move {
            let mut ids = Vec::new();
            for turn in 0..10 {
                let (status, answer) = call(nginx, &format!("under-way-{caller}-{turn}")).await;
                assert!(matches!(status, 200 | 201), "{status} {answer}");
                ids.push(answer["ticket_id"].to_string());
            }
            ids
        }
    });
    let kill = async {
        eventually("calls are under way", || async {
            scene.row("under-way-0-3").await.map(drop)
        })
        .await;
        replicas[1].strike();
    };
    let (ids, ()) = tokio::join!(join_all(callers), kill);
    let ids: HashSet<_> = ids.into_iter().flatten().collect();
    assert_eq!((ids.len(), scene.tickets().await), (60, 60));
}
