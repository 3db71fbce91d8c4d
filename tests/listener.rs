//! LISTEN is cut, or silently deaf: joins go on.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::calls::{Answer, ticket};
use crate::support::cluster::TestCluster;
use crate::support::daemons::PgBouncer;
use crate::support::eventually;
use crate::support::replica::Replica;
use crate::support::scene::Scene;

const NOT_LISTENING: &str = "not listening: waiters poll until the listener is back";

async fn until_listening(replica: &Replica) {
    eventually("it listens", || async {
        (replica.admin("/readyz").await.body["listener"] == "listening").then_some(())
    })
    .await;
}

/// How often it has said that it listens.
fn times_listening(replica: &Replica) -> usize {
    replica
        .log()
        .iter()
        .filter(|line| line["message"] == "listening")
        .count()
}

/// Ends the listening connections of every replica of a database.
async fn cut_listeners(scene: &Scene) {
    let cut = "
        select count(pg_terminate_backend(pid)) from pg_stat_activity
        where datname = current_database() and application_name = 'ticket-ledger listener'";
    assert!(scene.count(cut).await > 0, "nobody listens");
}

/// A call on one replica, joined on another: both answers, and how much later the second one came.
async fn join(scene: &Scene, request_id: &str, holder: &Replica, waiter: &Replica) -> (Answer, Answer, Duration) {
    let body = ticket(request_id, "Joined");
    let first = async {
        let answer = holder.http("POST", "/tickets", Some(&body)).await.expect("an answer");
        (answer, Instant::now())
    };
    let second = async {
        scene.until(request_id, "running").await;
        let answer = waiter.http("POST", "/tickets", Some(&body)).await.expect("an answer");
        (answer, Instant::now())
    };
    let ((first, settled), (second, answered)) = tokio::join!(first, second);
    assert_eq!(
        (first.status, &first.body["replayed"]),
        (201, &Value::from(false)),
        "{first:?}"
    );
    assert_eq!(
        (second.status, &second.body["replayed"]),
        (200, &Value::from(true)),
        "{second:?}"
    );
    assert_eq!(second.body["ticket_id"], first.body["ticket_id"]);
    (first, second, answered.saturating_duration_since(settled))
}

#[tokio::test]
async fn a_listener_that_is_cut_is_logged_its_waiters_are_answered_and_it_comes_back_by_itself() {
    let scene = Scene::new().await;
    // A lease so long that no waiter looks because of it, and work shorter than the slow poll of two seconds.
    let start = || scene.replica().with("LEASE_MS", 10_000).with("WORK_MS", 1_000);
    let a = start().ready().await;
    let b = start().ready().await;
    until_listening(&a).await;
    until_listening(&b).await;
    let cut = async {
        scene.until_waited_for("cut").await;
        cut_listeners(&scene).await;
    };
    let (_, ()) = tokio::join!(join(&scene, "cut", &a, &b), cut);
    for replica in [&a, &b] {
        eventually("it is logged", || async { replica.logged(NOT_LISTENING).then_some(()) }).await;
        eventually("it listens again", || async {
            (times_listening(replica) >= 2).then_some(())
        })
        .await;
        until_listening(replica).await;
    }
    // Within less than the slow poll: by notification.
    let (_, _, later) = join(&scene, "again", &a, &b).await;
    assert!(later < Duration::from_millis(800), "{later:?}");
    assert_eq!(scene.tickets().await, 2);
}

#[tokio::test]
async fn what_was_announced_while_the_listener_was_away_is_found_when_it_is_back() {
    let scene = Scene::new().await;
    let start = || scene.replica().with("LEASE_MS", 10_000).with("WORK_MS", 1_500);
    let a = start().ready().await;
    let b = start().ready().await;
    until_listening(&b).await;
    // Cut again and again, also while the attempt settles.
    let settled = async {
        scene.until_waited_for("missed").await;
        while scene.row("missed").await.is_some_and(|row| row.status == "running") {
            let cut = "
                select count(pg_terminate_backend(pid)) from pg_stat_activity
                where datname = current_database() and application_name = 'ticket-ledger listener'";
            scene.count(cut).await;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let ((_, _, later), ()) = tokio::join!(join(&scene, "missed", &a, &b), settled);
    // The slow poll, and a slow machine.
    assert!(later < Duration::from_secs(8), "{later:?}");
}

#[tokio::test]
async fn listen_through_a_transaction_pooler_is_noticed_and_joins_go_on_by_polling() {
    let scene = Scene::new().await;
    let pooler = PgBouncer::before(TestCluster::shared()).await;
    let start = || scene.replica().with("LEASE_MS", 10_000).with("WORK_MS", 1_000);
    let direct = start().ready().await;
    let deaf = start()
        .with("LISTEN_DATABASE_URL", pooler.url(&scene.url))
        .ready()
        .await;
    let said = eventually("it is logged", || async { deaf.find_log(NOT_LISTENING) }).await;
    assert!(
        said["reason"]
            .as_str()
            .expect("a reason")
            .contains("LISTEN hears nothing"),
        "{said}"
    );
    let ready = deaf.admin("/readyz").await;
    assert_eq!((ready.status, &ready.body["listener"]), (200, &Value::from("polling")));
    assert_eq!(times_listening(&deaf), 0);
    until_listening(&direct).await;
    // Polls are a good many times quicker than the slow ones behind a listener; what is asked for here is an answer.
    for (request_id, holder, waiter) in [("there", &direct, &deaf), ("back", &deaf, &direct)] {
        let (_, _, later) = join(&scene, request_id, holder, waiter).await;
        assert!(later < Duration::from_secs(8), "{later:?}");
    }
    assert_eq!(scene.tickets().await, 2);
}
