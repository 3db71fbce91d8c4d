//! A replica that starts, or stops: what it takes, finishes and hands back.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::support::calls::ticket;
use crate::support::eventually;
use crate::support::replica::{Replica, Start};
use crate::support::scene::Scene;
use crate::support::schema::empty_database;

/// Longer than any test.
const FOR_EVER_MS: u64 = 60_000;

async fn until_draining(replica: &Replica) {
    eventually("it drains", || async { replica.logged("draining").then_some(()) }).await;
}

#[tokio::test]
async fn after_sigterm_running_calls_finish_within_the_grace_period_and_no_new_ones_are_taken() {
    let scene = Scene::new().await;
    let mut a = scene
        .replica()
        .with("WORK_MS", 2_000)
        .with("GRACE_MS", 30_000)
        .ready()
        .await;
    let body = ticket("running", "Drain");
    let call = a.http("POST", "/tickets", Some(&body));
    let drain = async {
        scene.until("running", "running").await;
        a.terminate();
        until_draining(&a).await;
        let ready = a.admin("/readyz").await;
        assert_eq!((ready.status, &ready.body["stage"]), (503, &json!("draining")));
        assert_eq!(a.admin("/livez").await.status, 200);
        eventually("new connections are refused", || async {
            let new = a.http("POST", "/tickets", Some(&ticket("new", "Drain"))).await;
            new.err().filter(|error| error.is_connect()).map(|_| ())
        })
        .await;
    };
    let (answer, ()) = tokio::join!(call, drain);
    let answer = answer.expect("an answer");
    assert_eq!(
        (answer.status, &answer.body["replayed"]),
        (201, &Value::from(false)),
        "{answer:?}"
    );
    assert!(a.ended().await.success());
    assert!(scene.row("new").await.is_none());
    assert_eq!(scene.tickets().await, 1);
}

#[tokio::test]
async fn past_the_grace_period_a_claim_is_handed_back_and_its_callers_get_502_over_http_and_over_mcp() {
    let scene = Scene::new().await;
    let grace = Duration::from_secs(6);
    let mut a = scene
        .replica()
        .with("WORK_MS", FOR_EVER_MS)
        .with("GRACE_MS", grace.as_millis())
        .ready()
        .await;
    let body = ticket("by-http", "Drain");
    let http = a.http("POST", "/tickets", Some(&body));
    let mcp = a.mcp("create_ticket", ticket("by-mcp", "Drain"));
    let drain = async {
        scene.until("by-http", "running").await;
        scene.until("by-mcp", "running").await;
        a.terminate();
        Instant::now()
    };
    let (http, mcp, told) = tokio::join!(http, mcp, drain);
    let http = http.expect("an answer");
    assert_eq!((http.status, http.code()), (502, "unavailable"), "{http:?}");
    assert_eq!((mcp.status, mcp.code()), (502, "unavailable"), "{mcp:?}");
    assert!(a.ended().await.success());
    assert!(told.elapsed() < grace, "it left after {:?}", told.elapsed());
    for request_id in ["by-http", "by-mcp"] {
        let row = scene.row(request_id).await.expect("it is never deleted");
        assert_eq!(
            (row.status.as_str(), row.lapsed, row.lapses),
            ("running", Some(true), 0)
        );
    }
    assert_eq!(
        scene
            .count("select count(*) from requests where lease_until = '-infinity'")
            .await,
        2
    );
    // The balancer's repeat, on another replica, takes it over without waiting for a lease.
    let b = scene.replica().with("WORK_MS", 10).ready().await;
    let answer = b.create("by-http", "Drain").await;
    assert_eq!(
        (answer.status, &answer.body["replayed"]),
        (201, &Value::from(false)),
        "{answer:?}"
    );
    let row = scene.row("by-http").await.expect("a row");
    assert_eq!((row.attempt, row.lapses), (2, 0));
}

#[tokio::test]
async fn a_waiter_on_another_replica_takes_what_is_handed_back_at_once() {
    let scene = Scene::new().await;
    // A lease that nobody would wait for.
    let long = || scene.replica().with("LEASE_MS", 60_000).with("WAIT_MS", 50_000);
    let a = long().with("WORK_MS", FOR_EVER_MS).with("GRACE_MS", 500).ready().await;
    let b = long().with("WORK_MS", 10).ready().await;
    eventually("b listens", || async { b.logged("listening").then_some(()) }).await;
    let body = ticket("handed", "Drain");
    let holder = a.http("POST", "/tickets", Some(&body));
    let waiter = async {
        scene.until("handed", "running").await;
        (b.create("handed", "Drain").await, Instant::now())
    };
    let drain = async {
        scene.until_waited_for("handed").await;
        a.terminate();
        Instant::now()
    };
    let (holder, (answer, answered), told) = tokio::join!(holder, waiter, drain);
    assert_eq!(holder.expect("an answer").status, 502);
    assert_eq!(
        (answer.status, &answer.body["replayed"]),
        (201, &Value::from(false)),
        "{answer:?}"
    );
    // The grace period, and what a slow machine needs; by no means a lease.
    assert!(answered - told < Duration::from_secs(15), "{:?}", answered - told);
    let row = scene.row("handed").await.expect("a row");
    assert_eq!((row.attempt, row.lapses), (2, 0));
    assert_eq!(scene.tickets().await, 1);
}

#[tokio::test]
async fn a_waiter_on_a_replica_that_stops_gets_502_and_the_holder_works_on() {
    let scene = Scene::new().await;
    let a = scene.replica().with("WORK_MS", 3_000).ready().await;
    let mut b = scene.replica().with("GRACE_MS", 100).ready().await;
    let body = ticket("elsewhere", "Drain");
    let holder = a.http("POST", "/tickets", Some(&body));
    let waiter = async {
        scene.until("elsewhere", "running").await;
        b.create("elsewhere", "Drain").await
    };
    let drain = async {
        scene.until_waited_for("elsewhere").await;
        b.terminate();
    };
    let (holder, waiter, ()) = tokio::join!(holder, waiter, drain);
    assert_eq!(waiter.status, 502, "{waiter:?}");
    assert_eq!(holder.expect("an answer").status, 201);
    assert!(b.ended().await.success());
    assert_eq!(scene.row("elsewhere").await.expect("a row").attempt, 1);
}

#[tokio::test]
async fn a_call_whose_body_arrives_after_the_drain_is_not_begun_but_sent_to_another_replica() {
    let scene = Scene::new().await;
    let mut a = scene
        .replica()
        .with("WORK_MS", FOR_EVER_MS)
        .with("GRACE_MS", 5_000)
        .ready()
        .await;
    let body = ticket("late", "Drain").to_string();
    let mut connection = tokio::net::TcpStream::connect(&a.address).await.expect("connects");
    let head = format!(
        "POST /api/v1/tickets HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
         Expect: 100-continue\r\n\r\n",
        body.len()
    );
    connection.write_all(head.as_bytes()).await.expect("writes");
    let mut interim = [0; 25];
    connection.read_exact(&mut interim).await.expect("reads");
    assert_eq!(&interim, b"HTTP/1.1 100 Continue\r\n\r\n", "the call has been let in");
    a.terminate();
    until_draining(&a).await;
    eventually("nothing runs any more", || async { a.logged("drained").then_some(()) }).await;
    connection.write_all(body.as_bytes()).await.expect("writes");
    let mut answer = String::new();
    let _ = connection.read_to_string(&mut answer).await;
    assert!(answer.starts_with("HTTP/1.1 502 "), "{answer:?}");
    assert!(a.ended().await.success());
    assert_eq!(scene.count("select count(*) from requests").await, 0);
}

#[tokio::test]
async fn a_call_on_a_connection_that_was_open_before_the_drain_is_sent_to_another_replica() {
    let scene = Scene::new().await;
    let mut a = scene
        .replica()
        .with("WORK_MS", 1_000)
        .with("GRACE_MS", 20_000)
        .ready()
        .await;
    // The head is on its way, as from a balancer that keeps its connections, when the replica is told to stop.
    let body = ticket("kept-open", "Drain").to_string();
    let mut connection = tokio::net::TcpStream::connect(&a.address).await.expect("connects");
    let head = "POST /api/v1/tickets HTTP/1.1\r\nHost: localhost\r\n";
    connection.write_all(head.as_bytes()).await.expect("writes");
    let running = ticket("running", "Drain");
    let running = a.http("POST", "/tickets", Some(&running));
    let drain = async {
        scene.until("running", "running").await;
        a.terminate();
        until_draining(&a).await;
        let rest = format!(
            "Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        connection.write_all(rest.as_bytes()).await.expect("writes");
        let mut answer = String::new();
        let _ = connection.read_to_string(&mut answer).await;
        answer
    };
    let (running, answer) = tokio::join!(running, drain);
    // Closed, or told 502: either way a balancer asks another replica, which it does not after a 503.
    let told = answer.starts_with("HTTP/1.1 502 ") && answer.to_lowercase().contains("\r\nconnection: close");
    assert!(answer.is_empty() || told, "{answer:?}");
    assert_eq!(running.expect("an answer").status, 201);
    assert!(a.ended().await.success());
    assert!(scene.row("kept-open").await.is_none());
}

#[tokio::test]
async fn a_replica_that_waits_for_its_schema_stops_when_it_is_told() {
    let mut replica = Start::on(&empty_database().await).bound().await;
    eventually("it says why", || async {
        replica.logged("not ready yet").then_some(())
    })
    .await;
    replica.terminate();
    assert!(replica.ended().await.success());
}
