//! A claim whose holder died, stands still or works for long: who finishes it, and when.

use std::time::Instant;

use serde_json::Value;

use crate::support::calls::ticket;
use crate::support::cluster::TestCluster;
use crate::support::proxy::Proxy;
use crate::support::replica::{LEASE_MS, Replica, Start};
use crate::support::scene::Scene;
use crate::support::{eventually, lease};

/// Longer than any test.
const FOR_EVER_MS: u64 = 60_000;

/// A call that somebody kills, so that nothing comes back.
async fn call_and_strike(scene: &Scene, replica: &Replica, request_id: &str) {
    let body = ticket(request_id, "Struck");
    let strike = async {
        scene.until(request_id, "running").await;
        replica.strike();
    };
    let (lost, ()) = tokio::join!(replica.http("POST", "/tickets", Some(&body)), strike);
    assert!(lost.is_err(), "a killed replica answered: {lost:?}");
}

#[tokio::test]
async fn a_waiter_answers_when_the_killed_holders_lease_lapses() {
    let scene = Scene::new().await;
    let a = scene.replica().with("WORK_MS", FOR_EVER_MS).ready().await;
    let b = scene.replica().with("WORK_MS", 10).ready().await;
    let body = ticket("killed", "Killed");
    let kill = async {
        scene.until_waited_for("killed").await;
        a.strike();
        Instant::now()
    };
    let first = a.http("POST", "/tickets", Some(&body));
    let second = async {
        scene.until("killed", "running").await;
        let answer = b.create("killed", "Killed").await;
        (answer, Instant::now())
    };
    let (lost, (answer, answered), killed) = tokio::join!(first, second, kill);
    assert!(lost.is_err());
    assert_eq!(answer.body["status"], "done", "{answer:?}");
    assert_eq!(answer.body["replayed"], false);
    // A lease after its last renewal, which was before the kill; the rest is the work, and a slow machine.
    let waited = answered - killed;
    assert!(waited < lease() * 3, "{waited:?}");
    let row = scene.row("killed").await.expect("a row");
    assert_eq!((row.status.as_str(), row.attempt, row.lapses), ("done", 2, 1));
    assert_eq!(scene.tickets().await, 1);
}

#[tokio::test]
async fn a_holder_that_stood_still_past_its_lease_changes_nothing_and_its_caller_gets_the_other_answer() {
    let scene = Scene::new().await;
    let a = scene.replica().with("WORK_MS", 1_000).ready().await;
    let b = scene.replica().with("WORK_MS", 10).ready().await;
    let body = ticket("paused", "Paused");
    let first = a.http("POST", "/tickets", Some(&body));
    let meanwhile = async {
        scene.until("paused", "running").await;
        a.pause();
        a.stopped().await;
        let answer = b.create("paused", "Paused").await;
        let settled: (i64, String, String) =
            sqlx::query_as("select token, result, settled_at::text from requests where request_id = 'paused'")
                .fetch_one(&scene.sql)
                .await
                .expect("a row");
        a.resume();
        (answer, settled)
    };
    let (late, (answer, settled)) = tokio::join!(first, meanwhile);
    let late = late.expect("an answer");
    assert_eq!(
        (&answer.body["status"], &answer.body["replayed"]),
        (&Value::from("done"), &Value::from(false))
    );
    assert_eq!(
        (late.status, &late.body["replayed"]),
        (200, &Value::from(true)),
        "{late:?}"
    );
    for member in ["ticket_id", "created_at", "answered_at", "title"] {
        assert_eq!(late.body[member], answer.body[member]);
    }
    let after: (i64, String, String) =
        sqlx::query_as("select token, result, settled_at::text from requests where request_id = 'paused'")
            .fetch_one(&scene.sql)
            .await
            .expect("a row");
    assert_eq!(after, settled, "a late settle changed the row");
    assert_eq!(scene.tickets().await, 1);
}

#[tokio::test]
async fn a_claim_that_nobody_waits_for_is_finished_by_a_scan_within_two_leases_and_its_work() {
    let scene = Scene::new().await;
    let _b = scene.replica().with("WORK_MS", 10).ready().await;
    let _c = scene.replica().with("WORK_MS", 10).ready().await;
    let a = scene.replica().with("WORK_MS", FOR_EVER_MS).ready().await;
    call_and_strike(&scene, &a, "abandoned").await;
    let killed = Instant::now();
    let row = scene.until("abandoned", "done").await;
    let took = killed.elapsed();
    // Two leases as the specification says, and one for a slow machine.
    assert!(took < lease() * 3, "{took:?}");
    assert_eq!((row.attempt, row.lapses), (2, 1));
    assert_eq!(scene.tickets().await, 1);
}

#[tokio::test]
async fn abandoned_claims_of_operations_that_are_not_offered_here_do_not_keep_the_scan_from_others() {
    let scene = Scene::new().await;
    let b = scene.replica().with("WORK_MS", 10).ready().await;
    let foreign = "
        with foreign_claims as (
            insert into requests (principal, request_id, operation, fingerprint, status, token, attempt, lease_until,
                                  arguments, created_at, claimed_at, replica)
            select 'somebody', 'foreign-' || n, 'not_offered_here', '\\x01'::bytea || sha256('\\x'), 'running', -n, 1,
                   now() - interval '1 hour', '{}', now(), now(), 'gone'
            from generate_series(1, 100) n
            returning principal, request_id
        )
        insert into unsettled select * from foreign_claims";
    sqlx::raw_sql(foreign).execute(&scene.sql).await.expect("inserts");
    let a = scene.replica().with("WORK_MS", FOR_EVER_MS).ready().await;
    call_and_strike(&scene, &a, "mine").await;
    let row = scene.until("mine", "done").await;
    assert_eq!((row.attempt, row.lapses), (2, 1));
    assert_eq!(b.find("mine").await["status"], "done");
}

#[tokio::test]
async fn a_claim_of_a_newer_release_is_left_to_its_replicas_by_the_scan() {
    let scene = Scene::new().await;
    let b = scene.replica().with("WORK_MS", 10).ready().await;
    let newer = "
        with newer as (
            insert into requests (principal, request_id, operation, fingerprint, status, token, attempt, lease_until,
                                  arguments, created_at, claimed_at, replica)
            values ('somebody', 'newer', 'create_ticket', '\\x02'::bytea || sha256('\\x'), 'running', -1, 1,
                    now() - interval '1 hour', '{\"title\": \"t\", \"body\": \"b\", \"colour\": \"red\"}', now(), now(), 'gone')
            returning principal, request_id
        )
        insert into unsettled select * from newer";
    sqlx::raw_sql(newer).execute(&scene.sql).await.expect("inserts");
    // A claim of this release's, abandoned after it, shows that the scan has been here.
    let a = scene.replica().with("WORK_MS", FOR_EVER_MS).ready().await;
    call_and_strike(&scene, &a, "mine").await;
    scene.until("mine", "done").await;
    let row = scene.row("newer").await.expect("a row");
    assert_eq!((row.status.as_str(), row.token, row.lapses), ("running", -1, 0));
    drop(b);
}

#[tokio::test]
async fn a_request_whose_lease_lapsed_five_times_is_failed_until_an_operator_allows_a_retry() {
    let scene = Scene::new().await;
    let a = scene.replica().with("WORK_MS", FOR_EVER_MS).ready().await;
    call_and_strike(&scene, &a, "poison").await;
    for lapses in 1..5 {
        let next = scene.replica().with("WORK_MS", FOR_EVER_MS).ready().await;
        let body = ticket("poison", "Struck");
        let call = next.http("POST", "/tickets", Some(&body));
        let strike = async {
            eventually("the claim is taken over", || async {
                scene
                    .row("poison")
                    .await
                    .filter(|row| row.lapses == lapses && row.lapsed == Some(false))
            })
            .await;
            next.strike();
        };
        let (lost, ()) = tokio::join!(call, strike);
        assert!(lost.is_err(), "{lost:?}");
    }
    let last = scene.replica().with("WORK_MS", 10).ready().await;
    let answer = last.create("poison", "Struck").await;
    assert_eq!((answer.status, answer.code()), (409, "failed"), "{answer:?}");
    let row = scene.row("poison").await.expect("a row");
    assert_eq!((row.status.as_str(), row.attempt, row.lapses), ("failed", 5, 5));
    assert_eq!(
        (
            scene.tickets().await,
            scene.count("select count(*) from unsettled").await
        ),
        (0, 0)
    );
    assert_eq!(last.find("poison").await["status"], "failed");

    let (status, _, said) = scene.admin(&["retry", "poison"]).await;
    assert_eq!(status, 0, "{said}");
    let answer = last.create("poison", "Struck").await;
    assert_eq!(answer.body["status"], "done", "{answer:?}");
    assert_eq!(scene.tickets().await, 1);
}

#[tokio::test]
async fn a_living_holder_is_not_displaced_however_long_it_works_and_though_renewals_fail_briefly() {
    let scene = Scene::new().await;
    let proxy = Proxy::before(TestCluster::shared()).await;
    let a = Start::on(&proxy.url(&scene.url))
        .with("WORK_MS", LEASE_MS * 4)
        .ready()
        .await;
    let b = scene.replica().with("WORK_MS", 10).ready().await;
    let c = scene.replica().with("WORK_MS", 10).ready().await;
    let body = ticket("long", "Long");
    let holder = a.http("POST", "/tickets", Some(&body));
    let waiter = async {
        scene.until("long", "running").await;
        b.create("long", "Long").await
    };
    let cuts = async {
        scene.until_waited_for("long").await;
        for _ in 0..3 {
            // Renewed after the last cut; then every connection is lost, and for a moment no new one is let through.
            scene.until_renewed("long").await;
            proxy.down();
            tokio::time::sleep(lease() / 5).await;
            proxy.up();
        }
    };
    let (first, second, ()) = tokio::join!(holder, waiter, cuts);
    let first = first.expect("an answer");
    assert_eq!(
        (first.status, &first.body["replayed"]),
        (201, &Value::from(false)),
        "{first:?}"
    );
    assert_eq!(
        (second.status, &second.body["ticket_id"]),
        (200, &first.body["ticket_id"]),
        "{second:?}"
    );
    assert!(a.logged("leases were not renewed"), "no renewal failed");
    let row = scene.row("long").await.expect("a row");
    assert_eq!((row.attempt, row.lapses), (1, 0));
    assert_eq!(scene.tickets().await, 1);
    drop(c);
}

#[tokio::test]
async fn an_attempt_past_its_work_limit_is_not_renewed_and_another_replica_takes_over() {
    let scene = Scene::new().await;
    // A lease in which a stuck attempt looks at its claim many times.
    let limited = || {
        scene
            .replica()
            .with("LEASE_MS", 4_000)
            .with("WORK_MS", 10)
            .with("WORK_LIMIT_MS", 4_000)
    };
    let a = limited().ready().await;
    let b = limited().ready().await;
    // Settling cannot succeed, so the attempt goes on and on.
    let mut stuck = scene.sql.begin().await.expect("begins");
    sqlx::raw_sql("lock table tickets in exclusive mode")
        .execute(&mut *stuck)
        .await
        .expect("locks");
    let body = ticket("endless", "Endless");
    let release = async {
        let row = eventually("another attempt begins", || async {
            scene.row("endless").await.filter(|row| row.attempt > 1)
        })
        .await;
        assert_eq!(row.lapses, row.attempt - 1);
        stuck.rollback().await.expect("rolls back");
    };
    let (_, ()) = tokio::join!(a.http("POST", "/tickets", Some(&body)), release);
    scene.until("endless", "done").await;
    let answer = b.create("endless", "Endless").await;
    assert_eq!((answer.status, &answer.body["replayed"]), (200, &Value::from(true)));
    assert_eq!(scene.tickets().await, 1);
}

#[tokio::test]
async fn a_listener_that_cannot_connect_does_not_keep_claims_from_being_taken_over() {
    let scene = Scene::new().await;
    let a = scene.replica().with("WORK_MS", FOR_EVER_MS).ready().await;
    let b = scene
        .replica()
        .with("WORK_MS", 10)
        // It tries again more often than once in a lease.
        .with("LEASE_MS", 4_000)
        .with(
            "LISTEN_DATABASE_URL",
            TestCluster::shared().cluster.database_url("no_such_database"),
        )
        .ready()
        .await;
    call_and_strike(&scene, &a, "deaf").await;
    let answer = b.create("deaf", "Struck").await;
    assert_eq!(answer.body["status"], "done", "{answer:?}");
    assert_eq!(scene.row("deaf").await.expect("a row").attempt, 2);
}

#[tokio::test]
async fn a_takeover_whose_acknowledgement_was_lost_is_recognised_by_its_token() {
    let scene = Scene::new().await;
    let a = scene.replica().with("WORK_MS", FOR_EVER_MS).ready().await;
    call_and_strike(&scene, &a, "unheard").await;
    let proxy = Proxy::before(TestCluster::shared()).await;
    let b = Start::on(&proxy.url(&scene.url))
        .with("TICKET_LEDGER_FAULT", "take_over.before_commit:stop")
        .with("WORK_MS", 10)
        .ready()
        .await;
    b.stopped().await;
    proxy.cut_at_reply(b"SELECT 1");
    b.resume();
    let row = scene.until("unheard", "done").await;
    // Nobody else was there: it was finished under the very token, not after another lapse.
    assert!(proxy.has_cut_at_reply());
    assert_eq!((row.attempt, row.lapses), (2, 1));
    assert_eq!(scene.tickets().await, 1);
}
