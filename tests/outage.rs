//! Postgres goes away and comes back, or answers and is not heard: nothing half done, nothing displaced, and callers know in
//! seconds that nothing is known.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use serde_json::Value;
use ticket_ledger::cluster::StopMode;

use crate::support::calls::{Answer, ticket};
use crate::support::cluster::TestCluster;
use crate::support::proxy::Proxy;
use crate::support::replica::{LEASE_MS, Replica, Start};
use crate::support::scene::Scene;
use crate::support::{DEADLINE, eventually};

/// What "within seconds" is taken for here; far below the replicas' wait of 20 s, at which they would say `in_progress`.
const SECONDS: Duration = Duration::from_secs(15);

async fn eventually_done(replica: &Replica, request_id: &str) -> Answer {
    eventually(&format!("{request_id} is done"), || async {
        let answer = replica
            .http("POST", "/tickets", Some(&ticket(request_id, "Outage")))
            .await;
        answer.ok().filter(|answer| answer.body["status"] == "done")
    })
    .await
}

fn assert_fresh(answer: &Answer) {
    assert_eq!(
        (answer.status, &answer.body["replayed"]),
        (201, &Value::from(false)),
        "{answer:?}"
    );
}

fn assert_unavailable_within_seconds(answer: &Answer, took: Duration) {
    assert_eq!((answer.status, answer.code()), (503, "unavailable"), "{answer:?}");
    assert!(took < SECONDS, "{took:?}");
    assert!(answer.headers.contains_key("retry-after"));
}

/// What takes Postgres away.
enum Way {
    /// The server ends as in a crash.
    Server(TestCluster),
    /// The server runs on, and no replica reaches it.
    Network(Proxy),
}

impl Way {
    async fn down(&self) {
        match self {
            Self::Server(server) => server.cluster.stop_now().await.expect("stops"),
            Self::Network(proxy) => proxy.down(),
        }
    }

    async fn up(&self) {
        match self {
            Self::Server(server) => server.cluster.start_again().await.expect("starts"),
            Self::Network(proxy) => proxy.up(),
        }
    }
}

/// Two leases without Postgres. When it is back, a waiter elsewhere sees a lapsed claim while its holder, who lives, has not
/// renewed it yet.
async fn down_for_two_leases_and_back(scene: &Scene, way: &Way, url: &str) {
    let lease = Duration::from_secs(3);
    let start = |work_ms: u128| {
        Start::on(url)
            .with("LEASE_MS", lease.as_millis())
            .with("WAIT_MS", 40_000)
            .with("WORK_MS", work_ms)
    };
    let a = start(lease.as_millis() * 4).ready().await;
    let b = start(10).ready().await;
    let body = ticket("alive", "Outage");
    let holder = a.http("POST", "/tickets", Some(&body));
    let outage = async {
        scene.until("alive", "running").await;
        scene.until_renewed("alive").await;
        let before = scene.row("alive").await.expect("a row");
        way.down().await;
        let down = Instant::now();
        let refused = b.create("during", "Outage").await;
        assert_unavailable_within_seconds(&refused, down.elapsed());
        eventually("the replica is not ready", || async {
            (b.admin("/readyz").await.status == 503).then_some(())
        })
        .await;
        assert_eq!(b.admin("/livez").await.status, 200);
        tokio::time::sleep((lease * 2).saturating_sub(down.elapsed())).await;
        a.pause();
        way.up().await;
        let slow_holder = async {
            // A part of the lease for which nothing is taken over.
            tokio::time::sleep(lease / 4).await;
            let seen = scene.row("alive").await.expect("a row");
            assert_eq!((seen.token, seen.lapsed), (before.token, Some(true)));
            a.resume();
        };
        let waiter = eventually_done(&b, "alive");
        let (waiter, ()) = tokio::join!(waiter, slow_holder);
        (waiter, before)
    };
    let (first, (second, before)) = tokio::join!(holder, outage);
    let first = first.expect("an answer");
    assert_fresh(&first);
    assert_eq!(second.body["ticket_id"], first.body["ticket_id"], "{second:?}");
    let after = scene.row("alive").await.expect("a row");
    assert_eq!((after.token, after.attempt, after.lapses), (before.token, 1, 0));
    for (replica, request_id) in [(&b, "during"), (&a, "later")] {
        eventually_done(replica, request_id).await;
    }
    eventually("the replica is ready", || async {
        (b.admin("/readyz").await.status == 200).then_some(())
    })
    .await;
    assert_eq!(scene.tickets().await, 3);
}

#[tokio::test]
async fn postgres_down_for_two_leases_and_back_displaces_nothing_that_lives() {
    let cluster = TestCluster::own(&[]).await;
    let scene = Scene::on(&cluster).await;
    let url = scene.url.clone();
    down_for_two_leases_and_back(&scene, &Way::Server(cluster), &url).await;
}

#[tokio::test]
async fn a_network_that_is_down_for_two_leases_and_back_displaces_nothing_that_lives() {
    let scene = Scene::new().await;
    let proxy = Proxy::before(TestCluster::shared()).await;
    let url = proxy.url(&scene.url);
    down_for_two_leases_and_back(&scene, &Way::Network(proxy), &url).await;
}

#[tokio::test]
async fn restarts_of_postgres_leave_every_call_done_once() {
    let cluster = TestCluster::own(&[]).await;
    let scene = Scene::on(&cluster).await;
    let quick = scene.replica().ready().await;
    let slow = scene.replica().with("WORK_MS", 100).ready().await;
    let other = scene.replica().with("WORK_MS", 100).ready().await;
    let replicas = [&quick, &slow, &other];
    let callers = (0..6).map(|caller| async move {
        let mut ids = Vec::new();
        for call in 0..20 {
            let request_id = format!("restart-{caller}-{call}");
            let first = eventually_done(replicas[caller % 3], &request_id).await;
            let again = eventually_done(replicas[(caller + 1) % 3], &request_id).await;
            assert_eq!(again.body["replayed"], true, "{again:?}");
            assert_eq!(again.body["ticket_id"], first.body["ticket_id"]);
            ids.push(first.text("ticket_id").to_owned());
        }
        ids
    });
    let restarts = async {
        for mode in [StopMode::Immediate, StopMode::Fast, StopMode::Immediate, StopMode::Fast] {
            cluster.cluster.restart(mode).await.expect("restarts");
        }
    };
    let (ids, ()) = tokio::join!(join_all(callers), restarts);
    let ids: std::collections::HashSet<_> = ids.into_iter().flatten().collect();
    assert_eq!(ids.len(), 120);
    assert_eq!(scene.tickets().await, 120);
    assert_eq!(
        scene.count("select count(*) from requests where status = 'done'").await,
        120
    );
    assert_eq!(scene.count("select count(*) from requests").await, 120);
}

/// A replica behind a proxy that has its first token and its statements prepared.
async fn behind_proxy(scene: &Scene, work_ms: u64) -> (Proxy, Replica) {
    let proxy = Proxy::before(TestCluster::shared()).await;
    let replica = Start::on(&proxy.url(&scene.url))
        .with("WORK_MS", work_ms)
        .with("POOL_SIZE", 2)
        .ready()
        .await;
    assert_fresh(&replica.create("first", "Outage").await);
    (proxy, replica)
}

#[tokio::test]
async fn connections_cut_before_the_statement_are_not_noticed_by_the_caller() {
    for work_ms in [0, 10] {
        let scene = Scene::new().await;
        let (proxy, replica) = behind_proxy(&scene, work_ms).await;
        for call in 0..5 {
            proxy.cut();
            assert_fresh(&replica.create(&format!("cut-{call}"), "Outage").await);
        }
        assert_eq!(scene.tickets().await, 6);
    }
}

#[tokio::test]
async fn connections_cut_after_any_reply_byte_leave_a_fresh_answer_and_one_ticket() {
    let walks = [0, 10].map(|work_ms| async move {
        let scene = Scene::new().await;
        let (proxy, replica) = behind_proxy(&scene, work_ms).await;
        let mut calls = 1;
        for bytes in (0..1_600).step_by(23) {
            proxy.cut_after_reply_bytes(bytes);
            assert_fresh(&replica.create(&format!("cut-after-{bytes}"), "Outage").await);
            calls += 1;
            assert_eq!(scene.tickets().await, calls, "{work_ms} {bytes}");
        }
        assert_eq!(
            scene.count("select count(*) from requests where attempt = 1").await,
            calls
        );
    });
    join_all(walks).await;
}

#[tokio::test]
async fn a_lost_acknowledgement_of_any_commit_leaves_a_fresh_answer_and_one_ticket() {
    let walks = [("one_step", 0), ("claim", 10), ("settle", 10)];
    let walks = walks.map(|(family, work_ms)| async move {
        let scene = Scene::new().await;
        let proxy = Proxy::before(TestCluster::shared()).await;
        let replica = Start::on(&proxy.url(&scene.url))
            .with("WORK_MS", work_ms)
            .with("TICKET_LEDGER_FAULT", format!("{family}.before_commit:stop"))
            .ready()
            .await;
        let cut = async {
            replica.stopped().await;
            proxy.cut_at_reply(b"SELECT 1");
            replica.resume();
        };
        let (answer, ()) = tokio::join!(replica.create("lost", "Outage"), cut);
        assert!(proxy.has_cut_at_reply(), "{family}");
        assert_fresh(&answer);
        let again = replica.create("lost", "Outage").await;
        assert_eq!(
            (again.status, &again.body["ticket_id"]),
            (200, &answer.body["ticket_id"])
        );
        let row = scene.row("lost").await.expect("a row");
        assert_eq!(
            (row.status.as_str(), row.attempt, row.lapses),
            ("done", 1, 0),
            "{family}"
        );
        assert_eq!(scene.tickets().await, 1);
    });
    join_all(walks).await;
}

#[tokio::test]
async fn a_postgres_that_falls_silent_makes_every_call_unavailable_within_seconds() {
    for work_ms in [0, 10] {
        let scene = Scene::new().await;
        let (proxy, replica) = behind_proxy(&scene, work_ms).await;
        proxy.silence(true);
        // Once it is noticed nothing that is kept in memory helps a call any further.
        eventually("the silence is noticed", || async {
            (replica.admin("/readyz").await.status == 503).then_some(())
        })
        .await;
        let asked = Instant::now();
        let calls = (0..16).map(|call| {
            let replica = &replica;
            async move {
                let answer = replica.create(&format!("silent-{call}"), "Outage").await;
                (answer, asked.elapsed())
            }
        });
        for (answer, took) in join_all(calls).await {
            assert_unavailable_within_seconds(&answer, took);
        }
        proxy.silence(false);
        for call in 0..16 {
            eventually_done(&replica, &format!("silent-{call}")).await;
        }
        assert_eq!(scene.tickets().await, 17);
    }
}

#[tokio::test]
async fn an_attempt_that_cannot_settle_tells_its_caller_and_settles_when_postgres_is_back() {
    let scene = Scene::new().await;
    let (proxy, replica) = behind_proxy(&scene, LEASE_MS).await;
    let silence = async {
        scene.until("unsettled", "running").await;
        // Once it is renewed the attempt knows of its claim.
        scene.until_renewed("unsettled").await;
        proxy.silence(true);
        Instant::now()
    };
    let (answer, silent) = tokio::join!(replica.create("unsettled", "Outage"), silence);
    assert_unavailable_within_seconds(&answer, silent.elapsed());
    // Nobody is there to take it over, and nobody calls: it goes on by itself.
    proxy.silence(false);
    let row = scene.until("unsettled", "done").await;
    assert_eq!((row.attempt, row.lapses), (1, 0));
    let again = replica.create("unsettled", "Outage").await;
    assert_eq!((again.status, &again.body["replayed"]), (200, &Value::from(true)));
    assert_eq!(scene.tickets().await, 2);
    assert!(silent.elapsed() < DEADLINE);
}
