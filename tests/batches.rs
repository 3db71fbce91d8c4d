//! What arrives together is settled together, and fails alone.

use std::collections::HashSet;

use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::support::calls::ticket;
use crate::support::eventually;
use crate::support::in_process::{InProcess, Knobs, Told, note, notes};
use crate::support::scene::Scene;
use crate::support::stuck::Stuck;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn overlapping_batches_of_several_replicas_never_deadlock_and_have_one_effect_each() {
    let scene = Scene::new().await;
    let knobs = || Knobs {
        pool_size: 3,
        ..Knobs::default()
    };
    let houses = [
        InProcess::start(&scene, knobs()).await,
        InProcess::start(&scene, knobs()).await,
        InProcess::start(&scene, knobs()).await,
    ];
    for round in 0..5 {
        let calls = (0..180).map(|call| {
            // Every replica goes through the same sixty keys in an order of its own.
            let house = call % 3;
            let key = (call / 3 * [7, 13, 29][house]) % 60;
            houses[house].call("anna", "note", note(&format!("{round}-{key:02}")))
        });
        let told = join_all(calls).await;
        let done = told.iter().filter(|told| told.what == "done").count();
        let replayed = told.iter().filter(|told| told.what == "replayed").count();
        assert_eq!((done, replayed), (60, 120), "round {round}");
    }
    assert_eq!(notes(&scene).await, 300);
    let deadlocks = "select deadlocks from pg_stat_database where datname = current_database()";
    assert_eq!(scene.count(deadlocks).await, 0);
}

/// Holds the effects' table so that what is called meanwhile gathers in the queue, calls, and lets go.
async fn gathered(scene: &Scene, house: &InProcess, calls: Vec<(&str, Value)>) -> Vec<Told> {
    let mut held = Stuck::on(scene).await;
    held.run("lock table notes in share mode").await;
    // Both workers are busy with a batch of one each before the others come.
    let mut busy = Vec::new();
    for first in 1..=2 {
        busy.push(house.spawn("zoe", "note", note(&format!("busy-{first}"))));
        eventually("the workers are busy", || async {
            let waiting = "select count(*) from pg_stat_activity
                           where datname = current_database() and wait_event_type = 'Lock'";
            (scene.count(waiting).await == first).then_some(())
        })
        .await;
    }
    let begun = house.script.begun();
    let number = calls.len();
    let calls: Vec<_> = calls
        .into_iter()
        .map(|(principal, arguments)| house.spawn(principal, "note", arguments))
        .collect();
    house.script.until_begun(begun + number).await;
    held.run("rollback").await;
    for call in busy {
        assert_eq!(call.await.expect("an answer").what, "done");
    }
    let told = join_all(calls).await;
    told.into_iter().map(|told| told.expect("an answer")).collect()
}

/// The sizes of the transactions that made the rows of `requests`, the largest first.
async fn batches(scene: &Scene) -> Vec<i64> {
    sqlx::query_scalar("select count(*) from requests group by xmin::text order by 1 desc")
        .fetch_all(&scene.sql)
        .await
        .expect("sizes")
}

#[tokio::test]
async fn what_arrives_while_a_batch_is_in_flight_shares_one_transaction() {
    let scene = Scene::new().await;
    let house = InProcess::start(&scene, Knobs::default()).await;
    let ids: Vec<_> = (0..30).map(|id| format!("k{id}")).collect();
    let calls = ids.iter().map(|id| ("anna", note(id))).collect();
    let told = gathered(&scene, &house, calls).await;
    assert!(told.iter().all(|told| told.what == "done"));
    assert_eq!(batches(&scene).await, [30, 1, 1]);
    assert_eq!(notes(&scene).await, 32);
}

#[tokio::test]
async fn one_bad_row_in_a_batch_fails_alone() {
    let scene = Scene::new().await;
    let house = InProcess::start(&scene, Knobs::default()).await;
    let ids: Vec<_> = (0..10).map(|id| format!("k{id}")).collect();
    let mut calls: Vec<_> = ids.iter().map(|id| ("anna", note(id))).collect();
    // A constraint refuses the statement; a refusal by the effect does not.
    calls.push(("anna", json!({ "request_id": "k5-bad", "text": "bad" })));
    calls.push((
        "anna",
        json!({ "request_id": "k5-refused", "text": "refused by its effect" }),
    ));
    let told: Vec<_> = gathered(&scene, &house, calls).await;
    let told: Vec<_> = told.into_iter().map(|told| told.what).collect();
    assert!(told[..10].iter().all(|what| *what == "done"), "{told:?}");
    assert_eq!(told[10..], ["unavailable", "precondition_failed"]);
    assert_eq!(notes(&scene).await, 12);
    // Nothing of either is left, and both keys are free.
    for id in ["k5-bad", "k5-refused"] {
        assert_eq!(scene.row(id).await, None);
        assert_eq!(house.call("anna", "note", note(id)).await.what, "done");
    }
}

#[tokio::test]
async fn one_key_twice_in_a_batch_is_one_effect() {
    let scene = Scene::new().await;
    let house = InProcess::start(&scene, Knobs::default()).await;
    let calls = vec![
        ("anna", json!({ "request_id": "twice", "text": "one" })),
        ("ben", json!({ "request_id": "twice", "text": "one" })),
        ("anna", json!({ "request_id": "twice", "text": "two" })),
        ("anna", note("another")),
    ];
    let told: Vec<_> = gathered(&scene, &house, calls).await;
    let told: HashSet<_> = told.iter().enumerate().map(|(call, told)| (call, told.what)).collect();
    let either = [
        [(0, "done"), (1, "done"), (2, "conflict"), (3, "done")],
        [(0, "conflict"), (1, "done"), (2, "done"), (3, "done")],
    ];
    assert!(
        either.into_iter().any(|either| told == HashSet::from(either)),
        "{told:?}"
    );
    assert_eq!(notes(&scene).await, 5);
}

#[tokio::test]
async fn a_batch_of_one_is_claimed_carried_out_and_settled_in_one_transaction() {
    let scene = Scene::new().await;
    let [replica] = scene.replicas().await;
    assert_eq!(replica.create("k", "t").await.status, 201);
    let one_transaction = "
        select count(*) from requests r join tickets t using (principal, request_id)
        where r.xmin = t.xmin and r.status = 'done' and r.attempt = 1 and r.ctid = '(0,1)'";
    assert_eq!(scene.count(one_transaction).await, 1);
    assert_eq!(scene.count("select count(*) from unsettled").await, 0);
    // A creation that waits for a timer would be one whose siblings share its transaction.
    for call in 0..5 {
        assert_eq!(replica.create(&format!("k{call}"), "t").await.status, 201);
    }
    assert_eq!(batches(&scene).await, [1; 6]);
}

#[tokio::test]
async fn what_updates_a_shared_row_goes_alone_and_every_previous_status_is_the_one_overwritten() {
    let scene = Scene::new().await;
    let house = InProcess::start(&scene, Knobs::default()).await;
    let created = house.call("anna", "create_ticket", ticket("t", "t")).await;
    let id = created.body["ticket_id"].as_str().expect("an id").to_owned();
    let calls = (0..40).map(|call| {
        let status = ["open", "in_progress", "done", "closed"][call % 4];
        let arguments = json!({ "request_id": format!("s{call}"), "ticket_id": id, "ticket_status": status });
        house.call("anna", "set_ticket_status", arguments)
    });
    let told = join_all(calls).await;
    assert!(told.iter().all(|told| told.what == "done"), "{told:?}");
    // As often as a status was left it had been entered, but for where it all began and ended.
    let now = house.call("anna", "get_ticket", json!({ "ticket_id": id })).await;
    for status in ["open", "in_progress", "done", "closed"] {
        let count = |member: &str| told.iter().filter(|told| told.body[member] == status).count();
        let begun = usize::from(status == "open");
        let ended = usize::from(now.body["ticket_status"] == status);
        assert_eq!(
            count("previous_status") + ended,
            count("ticket_status") + begun,
            "{status}"
        );
    }
    assert_eq!(batches(&scene).await, [1; 41]);
}
