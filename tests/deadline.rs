//! Every caller is answered within the wait, and the work goes on.

use std::time::{Duration, Instant};

use futures_util::future::join_all;

use crate::support::calls::{Answer, ticket};
use crate::support::in_process::{Ending, InProcess, Knobs, note, notes};
use crate::support::scene::Scene;
use crate::support::stuck::Stuck;

const WAIT: Duration = Duration::from_millis(600);
/// An answer this long after its deadline is late even on a busy machine; what it must not wait for takes far longer.
const LATE: Duration = Duration::from_secs(10);

/// A replica whose work takes longer than any test waits for.
fn slow(scene: &Scene) -> crate::support::replica::Start {
    scene
        .replica()
        .with("WAIT_MS", WAIT.as_millis())
        .with("WORK_MS", 90_000)
}

fn assert_in_progress(answer: &Answer, request_id: &str) {
    assert_eq!(answer.status, 202, "{answer:?}");
    assert_eq!(answer.text("status"), "in_progress");
    assert_eq!(answer.text("request_id"), request_id);
    let seconds = answer.body["retry_after_seconds"].as_u64().expect("seconds");
    assert!((1..=5).contains(&seconds), "{answer:?}");
    assert_eq!(answer.headers["retry-after"], seconds.to_string().as_str());
    let next = answer.text("next");
    assert!(next.contains("same request_id"), "{next}");
    for final_member in ["error", "replayed", "answered_at", "ticket_id"] {
        assert_eq!(answer.body.get(final_member), None);
    }
}

#[tokio::test]
async fn the_executing_caller_and_every_waiter_are_told_in_progress_at_the_end_of_their_wait() {
    let scene = Scene::new().await;
    let (a, b) = (slow(&scene).ready().await, slow(&scene).ready().await);
    let began = Instant::now();
    let calls = [&a, &a, &b, &b].map(|replica| async move {
        let began = Instant::now();
        let answer = replica.create("k", "t").await;
        (answer, began.elapsed())
    });
    for (answer, took) in join_all(calls).await {
        assert_in_progress(&answer, "k");
        assert!(took >= WAIT, "it was answered after {took:?}, before its time");
        assert!(took < WAIT + LATE, "it was answered after {took:?}");
    }
    assert!(began.elapsed() < Duration::from_secs(60));
    assert_eq!(scene.row("k").await.expect("a row").status, "running");
    // Over MCP it is no error.
    let answer = b.mcp("create_ticket", ticket("k", "t")).await;
    assert_eq!(answer.status, 200);
    assert_ne!(answer.body["result"]["isError"], true);
    assert_eq!(answer.body["result"]["structuredContent"]["status"], "in_progress");
}

#[tokio::test]
async fn the_work_goes_on_after_in_progress_and_the_repeat_replays_its_answer() {
    let scene = Scene::new().await;
    let knobs = || Knobs {
        wait: WAIT,
        ..Knobs::default()
    };
    let (here, there) = (
        InProcess::start(&scene, knobs()).await,
        InProcess::start(&scene, knobs()).await,
    );
    here.script.tell("k", Ending::Holds);
    for house in [&here, &here, &there] {
        assert_eq!(house.call("anna", "note_slowly", note("k")).await.what, "in_progress");
    }
    assert_eq!(here.find("anna", "k").await["status"], "running");
    here.script.tell("k", Ending::Goes);
    scene.until("k", "done").await;
    for house in [&there, &here] {
        let told = house.call("anna", "note_slowly", note("k")).await;
        assert_eq!((told.what, &told.body["text"]), ("replayed", &"k".into()));
    }
    assert_eq!(
        (here.script.begun(), there.script.begun(), notes(&scene).await),
        (1, 0, 1)
    );
}

#[tokio::test]
async fn the_deadline_holds_while_a_rival_holds_the_key_and_nobody_sees_a_row() {
    let scene = Scene::new().await;
    let replica = scene.replica().with("WAIT_MS", WAIT.as_millis()).ready().await;
    let mut rival = Stuck::on(&scene).await;
    rival.lock(ticket_ledger::operation::caller::ANONYMOUS, "k").await;
    let calls = (0..8).map(|_| async {
        let began = Instant::now();
        (replica.create("k", "t").await, began.elapsed())
    });
    for (answer, took) in join_all(calls).await {
        assert_in_progress(&answer, "k");
        assert!(took < WAIT + LATE, "it was answered after {took:?}");
    }
    rival.run("rollback").await;
    // The callers left; their key is nobody's, and the repeat does the work once.
    let answer = replica.create("k", "t").await;
    assert!([200, 201].contains(&answer.status), "{answer:?}");
    assert_eq!(scene.tickets().await, 1);
}

#[tokio::test]
async fn the_deadline_holds_while_every_statement_is_stuck_and_the_pool_is_used_up() {
    let scene = Scene::new().await;
    let house = InProcess::start(
        &scene,
        Knobs {
            wait: WAIT,
            pool_size: 2,
            ..Knobs::default()
        },
    )
    .await;
    let mut stuck = Stuck::on(&scene).await;
    stuck.run("lock table requests in access exclusive mode").await;
    let began = Instant::now();
    let ids: Vec<_> = (0..60).map(|id| format!("k{id}")).collect();
    let calls = ids
        .iter()
        .enumerate()
        .map(|(place, id)| house.call("anna", ["note", "note_slowly"][place % 2], note(id)));
    let told = join_all(calls).await;
    assert!(
        began.elapsed() < WAIT + LATE,
        "the last one was answered after {:?}",
        began.elapsed()
    );
    assert!(told.iter().all(|told| told.what == "in_progress"), "{told:?}");
    stuck.run("rollback").await;
    for (place, id) in ids.iter().enumerate() {
        scene.until(id, "done").await;
        let told = house.call("anna", ["note", "note_slowly"][place % 2], note(id)).await;
        assert_eq!(told.what, "replayed");
    }
    assert_eq!(notes(&scene).await, 60);
}

#[tokio::test]
async fn retry_after_follows_from_the_lease_that_is_left() {
    let scene = Scene::new().await;
    let long = || slow(&scene).with("LEASE_MS", 20_000);
    let (a, b) = (long().ready().await, long().ready().await);
    for replica in [&a, &b] {
        let answer = replica.create("long", "t").await;
        assert_eq!(answer.body["retry_after_seconds"], 5, "{answer:?}");
    }
    let short = || slow(&scene).with("LEASE_MS", 1_000);
    let (c, d) = (short().ready().await, short().ready().await);
    for replica in [&c, &d] {
        let answer = replica.create("short", "t").await;
        let seconds = answer.body["retry_after_seconds"].as_u64().expect("seconds");
        assert!((1..=2).contains(&seconds), "{answer:?}");
    }
}
