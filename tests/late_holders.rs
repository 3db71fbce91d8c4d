//! A holder that was displaced and comes back while its successor works: nothing it still sends touches the successor's claim.

use serde_json::Value;

use crate::support::calls::{Answer, ticket};
use crate::support::eventually;
use crate::support::replica::{LEASE_MS, Replica};
use crate::support::scene::Scene;

/// Work during which the successor's lease has to be renewed.
const SUCCESSORS_WORK_MS: u64 = LEASE_MS * 2;

/// A holder that stands still just before it sends its statement at `point`, until its successor works.
async fn displaced_at(point: &str, work_ms: u64) {
    let scene = Scene::new().await;
    let late = scene
        .replica()
        .with("TICKET_LEDGER_FAULT", format!("{point}:stop"))
        .with("WORK_MS", work_ms)
        .with("GRACE_MS", 100)
        .ready()
        .await;
    let successor = scene.replica().with("WORK_MS", SUCCESSORS_WORK_MS).ready().await;
    if point.starts_with("release") {
        refuse_tickets(&scene, true).await;
    }
    let body = ticket("late", "Late");
    let first = late.http("POST", "/tickets", Some(&body));
    let second = async {
        scene.until("late", "running").await;
        if point.starts_with("hand_back") {
            late.terminate();
        }
        late.stopped().await;
        if point.starts_with("release") {
            refuse_tickets(&scene, false).await;
        }
        let answer = successor.http("POST", "/tickets", Some(&body));
        let (answer, token) = tokio::join!(answer, resume_beside_the_successor(&scene, &late));
        (answer.expect("an answer"), token)
    };
    let (first, (second, token)) = tokio::join!(first, second);
    assert_eq!(
        (second.status, &second.body["replayed"]),
        (201, &Value::from(false)),
        "{point}: {second:?}"
    );
    if point.starts_with("hand_back") {
        // Told to ask another replica, or cut off: it stood still for longer than it had left.
        assert!(first.as_ref().map_or(true, |first| first.status == 502), "{first:?}");
    } else {
        told_after_all(point, &first.expect("an answer"), &second);
        let metrics = late.admin("/metrics").await;
        let text = metrics.body.as_str().expect("text");
        let fenced = text
            .lines()
            .find(|line| line.starts_with("ticket_ledger_fenced_total{"));
        assert!(fenced.is_some_and(|line| line.ends_with(" 1")), "{point}: {fenced:?}");
        assert!(
            late.logged("a claim was lost to another attempt; its own work changes nothing"),
            "{point}"
        );
    }
    let row = scene.row("late").await.expect("a row");
    assert_eq!(
        (row.status.as_str(), row.attempt, row.lapses),
        ("done", 2, 1),
        "{point}"
    );
    assert_eq!(row.token, token, "{point}: settled under the successor's token");
    assert_eq!(scene.tickets().await, 1);
}

/// What the displaced holder's caller is told: it is a waiter now, also if its own attempt failed.
fn told_after_all(point: &str, first: &Answer, second: &Answer) {
    assert_eq!(
        (first.status, &first.body["ticket_id"]),
        (200, &second.body["ticket_id"]),
        "{point}: {first:?}"
    );
    assert_eq!(first.body["replayed"], true);
}

/// Lets the displaced holder go on while the successor works; returns the successor's token.
async fn resume_beside_the_successor(scene: &Scene, late: &Replica) -> i64 {
    let row = eventually("the successor works", || async {
        scene.row("late").await.filter(|row| row.attempt == 2)
    })
    .await;
    assert_eq!(row.status, "running");
    late.resume();
    row.token
}

async fn refuse_tickets(scene: &Scene, refuse: bool) {
    let sql = if refuse {
        "alter table tickets add constraint refuses_all check (false) not valid"
    } else {
        "alter table tickets drop constraint refuses_all"
    };
    sqlx::raw_sql(sql).execute(&scene.sql).await.expect("alters");
}

#[tokio::test]
async fn a_late_settlement_changes_nothing_while_its_successor_works() {
    displaced_at("settle.before_commit", 10).await;
}

#[tokio::test]
async fn a_late_release_changes_nothing_while_its_successor_works() {
    displaced_at("release.before_commit", 10).await;
}

#[tokio::test]
async fn a_late_renewal_changes_nothing_and_ends_the_work_while_its_successor_works() {
    displaced_at("renew.before_commit", 60_000).await;
}

#[tokio::test]
async fn a_late_hand_back_changes_nothing_while_its_successor_works() {
    displaced_at("hand_back.before_commit", 60_000).await;
}
