//! A transaction that is stuck on somebody's row holds up nobody else.

use std::time::Instant;

use serde_json::{Value, json};
use sqlx::{Postgres, Transaction};
use ticket_ledger::ledger::Key;

use crate::support::calls::{Answer, ticket};
use crate::support::eventually;
use crate::support::replica::{LEASE_MS, Replica};
use crate::support::scene::Scene;

async fn lock<'a>(scene: &Scene, sql: &'static str, id: &str) -> Transaction<'a, Postgres> {
    let mut stuck = scene.sql.begin().await.expect("begins");
    let locked = sqlx::query(sql).bind(id).execute(&mut *stuck).await.expect("locks");
    assert_eq!(locked.rows_affected(), 1);
    stuck
}

const LOCK_REQUEST: &str = "select from requests where request_id = $1 for update";
const LOCK_WAITS: &str = "
    select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'";
const LOCK_TICKET: &str = "select from tickets where ticket_id = $1 for update";

fn assert_fresh(answer: &Answer) {
    assert_eq!(
        (answer.status, &answer.body["replayed"]),
        (201, &Value::from(false)),
        "{answer:?}"
    );
}

#[tokio::test]
async fn a_locked_request_delays_neither_other_calls_nor_other_claims_renewals() {
    let scene = Scene::new().await;
    let a = scene.replica().with("WORK_MS", LEASE_MS * 2).ready().await;
    let b = scene.replica().ready().await;
    // Sorted before the other one, so that a statement in key order comes to it first.
    let (locked_body, other_body) = (ticket("a-locked", "Locks"), ticket("b-other", "Locks"));
    let locked = a.http("POST", "/tickets", Some(&locked_body));
    let other = a.http("POST", "/tickets", Some(&other_body));
    let meanwhile = async {
        scene.until("a-locked", "running").await;
        scene.until("b-other", "running").await;
        let stuck = lock(&scene, LOCK_REQUEST, "a-locked").await;
        for call in 0..5 {
            // Many at once share statements with each other, and none with the locked one.
            let calls = (0..8).map(|many| {
                let (b, request_id) = (&b, format!("call-{call}-{many}"));
                async move { b.create(&request_id, "Locks").await }
            });
            for answer in futures_util::future::join_all(calls).await {
                assert_fresh(&answer);
            }
        }
        // Renewed while its neighbour cannot be, until that one has lapsed, and after it.
        eventually("the locked claim lapses", || async {
            scene.row("a-locked").await.filter(|row| row.lapsed == Some(true))
        })
        .await;
        scene.until_renewed("b-other").await;
        assert_eq!(scene.row("b-other").await.expect("a row").lapsed, Some(false));
        stuck.rollback().await.expect("rolls back");
    };
    // A call of the locked request itself joins and waits.
    let joined = async {
        scene.until("a-locked", "running").await;
        b.create("a-locked", "Locks").await
    };
    let (locked, other, joined, ()) = tokio::join!(locked, other, joined, meanwhile);
    assert_fresh(&other.expect("an answer"));
    let row = scene.row("b-other").await.expect("a row");
    assert_eq!((row.attempt, row.lapses), (1, 0));
    // Nobody could renew the locked one for a whole lease: its holder or its waiter finishes it, whoever comes first.
    let locked = locked.expect("an answer");
    let (fresh, replay) = match locked.status {
        201 => (locked, joined),
        _ => (joined, locked),
    };
    assert_fresh(&fresh);
    assert_eq!(
        (replay.status, &replay.body["replayed"]),
        (200, &Value::from(true)),
        "{replay:?}"
    );
    assert_eq!(replay.body["ticket_id"], fresh.body["ticket_id"]);
    let row = scene.row("a-locked").await.expect("a row");
    assert_eq!((row.status.as_str(), row.lapses), ("done", row.attempt - 1));
    assert_eq!(scene.tickets().await, 42);
    assert!(a.logged("a claim was not renewed: locked, or past its work limit"));
}

#[tokio::test]
async fn a_rival_that_has_claimed_and_not_committed_delays_its_own_key_alone_and_the_loser_executes() {
    let scene = Scene::new().await;
    let [b] = scene.replicas().await;
    let key = Key {
        principal: "anonymous".into(),
        request_id: "rival".into(),
    };
    // As a replica does that stands still between its claim and the commit.
    let mut stuck = scene.sql.begin().await.expect("begins");
    sqlx::query("select pg_advisory_xact_lock($1)")
        .bind(key.hash64())
        .execute(&mut *stuck)
        .await
        .expect("locks");
    sqlx::raw_sql(
        "insert into requests (principal, request_id, operation, fingerprint, status, token, attempt, created_at, claimed_at,
                               settled_at, replica)
         values ('anonymous', 'rival', 'create_ticket', '', 'done', -1, 1, now(), now(), now(), 'rival')",
    )
    .execute(&mut *stuck)
    .await
    .expect("inserts");
    let body = ticket("rival", "Locks");
    let loser = b.http("POST", "/tickets", Some(&body));
    let others = async {
        let mut waits = 0;
        for call in 0..40 {
            let calls = (0..8).map(|many| {
                let (b, request_id) = (&b, format!("beside-{call}-{many}"));
                async move { b.create(&request_id, "Locks").await }
            });
            for answer in futures_util::future::join_all(calls).await {
                assert_fresh(&answer);
            }
            waits += scene.count(LOCK_WAITS).await;
        }
        assert_eq!(waits, 0, "a statement waited for the rival");
        assert!(scene.row("rival").await.is_none());
        stuck.rollback().await.expect("rolls back");
    };
    let (loser, ()) = tokio::join!(loser, others);
    assert_fresh(&loser.expect("an answer"));
    assert_eq!(scene.tickets().await, 321);
}

async fn set_status(replica: &Replica, request_id: &str, ticket_id: &str) -> Answer {
    let body = json!({ "request_id": request_id, "ticket_status": "done" });
    replica
        .http("PUT", &format!("/tickets/{ticket_id}/status"), Some(&body))
        .await
        .expect("an answer")
}

#[tokio::test]
async fn a_locked_ticket_makes_setting_its_status_unavailable_and_delays_nothing_else() {
    let scene = Scene::new().await;
    let [a, b] = scene.replicas().await;
    let locked = a.create("one", "Locks").await.text("ticket_id").to_owned();
    let other = a.create("two", "Locks").await.text("ticket_id").to_owned();
    let stuck = lock(&scene, LOCK_TICKET, &locked).await;
    let asked = Instant::now();
    let others = async {
        let answer = set_status(&a, "set-other", &other).await;
        assert_eq!(
            (answer.status, &answer.body["status"]),
            (200, &Value::from("done")),
            "{answer:?}"
        );
        assert_fresh(&a.create("three", "Locks").await);
        let comment = json!({ "request_id": "comment", "body": "On the other." });
        assert_fresh(&a.post(&format!("/tickets/{other}/comments"), &comment).await);
        let read = a.get(&format!("/tickets/{locked}")).await;
        assert_eq!(read.body["ticket_status"], "open", "{read:?}");
    };
    let (answer, ()) = tokio::join!(set_status(&a, "set-locked", &locked), others);
    assert_eq!((answer.status, answer.code()), (503, "unavailable"), "{answer:?}");
    assert!(asked.elapsed().as_secs() < 15, "{:?}", asked.elapsed());
    assert_eq!(scene.row("set-locked").await, None, "nothing half done");
    stuck.rollback().await.expect("rolls back");
    let answer = set_status(&b, "set-locked", &locked).await;
    assert_eq!(
        (answer.status, &answer.body["previous_status"]),
        (200, &Value::from("open")),
        "{answer:?}"
    );
}

#[tokio::test]
async fn a_ticket_that_is_unlocked_in_time_has_its_status_set_by_the_call_that_waited() {
    let scene = Scene::new().await;
    let [a] = scene.replicas().await;
    let locked = a.create("one", "Locks").await.text("ticket_id").to_owned();
    let stuck = lock(&scene, LOCK_TICKET, &locked).await;
    let release = async {
        eventually("somebody waits for the lock", || async {
            (scene.count(LOCK_WAITS).await > 0).then_some(())
        })
        .await;
        stuck.rollback().await.expect("rolls back");
    };
    let (answer, ()) = tokio::join!(set_status(&a, "set", &locked), release);
    assert_eq!(
        (answer.status, &answer.body["replayed"]),
        (200, &Value::from(false)),
        "{answer:?}"
    );
}
