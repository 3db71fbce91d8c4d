//! Callers whose token is none, or cannot be looked up: they are answered, and keep nobody else out.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::tokens::replica;
use super::{TICKETS, is_unauthenticated};
use crate::support::cluster::TestCluster;
use crate::support::eventually;
use crate::support::proxy::Proxy;
use crate::support::raw::Raw;
use crate::support::replica::Start;
use crate::support::scene::Scene;

#[tokio::test]
async fn a_large_body_without_a_token_is_answered_and_not_cut_off() {
    let scene = Scene::new().await;
    let replica = replica(&scene).await;
    let body = json!({ "request_id": "k", "title": "Large", "body": "x".repeat(900_000) }).to_string();
    is_unauthenticated(&Raw::api("POST", "/tickets", body.clone()).send(&replica).await, None);
    // A client that sends all before it reads, and takes a moment to, is neither answered nor closed on meanwhile.
    let mut stream = TcpStream::connect(&replica.address).await.expect("connects");
    let length = body.len();
    let head = format!(
        "POST /api/v1/tickets HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.expect("sent");
    let early = timeout(Duration::from_millis(300), stream.readable()).await;
    assert!(early.is_err(), "it was answered before its body was read");
    stream.write_all(body.as_bytes()).await.expect("taken");
    let mut answer = [0_u8; 12];
    stream.read_exact(&mut answer).await.expect("an answer");
    assert_eq!(&answer, b"HTTP/1.1 401");
}

#[tokio::test]
async fn an_outage_of_postgres_lets_nobody_in_and_calls_nobody_a_stranger() {
    let scene = Scene::new().await;
    let proxy = Proxy::before(TestCluster::shared()).await;
    let replica = Start::on(&proxy.url(&scene.url)).with("AUTH", "token").ready().await;
    let token = scene.token("ci", &TICKETS).await;
    assert_eq!(replica.by(&token).http("GET", "/tickets", None).await.status, 200);
    proxy.down();
    eventually("what was remembered is forgotten", || async {
        let answer = replica.by(&token).mcp("new_request_id", json!({})).await;
        assert!([200, 503].contains(&answer.status), "{answer:?}");
        (answer.status == 503).then_some(())
    })
    .await;
    let answer = replica.by(&token).create("k", "Out").await;
    assert_eq!((answer.status, answer.code()), (503, "unavailable"), "{answer:?}");
    assert!(
        answer.headers.contains_key("retry-after") && answer.challenge().is_empty(),
        "{answer:?}"
    );
    proxy.up();
    eventually("it is let in again", || async {
        (replica.by(&token).create("k", "Out").await.status < 300).then_some(())
    })
    .await;
}

#[tokio::test]
async fn strangers_tokens_do_not_keep_good_ones_from_being_looked_up() {
    let scene = Scene::new().await;
    let token = scene.token("ci", &TICKETS).await;
    let replica = replica(&scene).await;
    // Every look-up takes a tenth of a second, so that those of forty strangers fill the time that each waits for its turn.
    let slow = "alter table tokens rename to kept_tokens;
        create view tokens as with slow as materialized (select pg_sleep(0.1)) select kept_tokens.* from slow, kept_tokens";
    sqlx::raw_sql(slow)
        .execute(&scene.sql)
        .await
        .expect("look-ups are slow");
    assert_eq!(replica.by(&token).create("k", "Good").await.status, 201);
    let good = AtomicBool::new(true);
    let strangers = join_all((0..60).map(|number| {
        let (replica, good) = (&replica, &good);
        async move {
            while good.load(Ordering::Relaxed) {
                let token = format!("ticketledger_unknown{number}");
                let answer = replica.by(&token).http("GET", "/tickets", None).await;
                assert!([401, 503].contains(&answer.status), "{answer:?}");
            }
        }
    }));
    let caller = async {
        eventually("strangers are turned away", || async {
            replica.logged("more tokens that were not good lately are being looked up than there are turns for; some callers get 503").then_some(())
        })
        .await;
        // Far longer than a token is remembered.
        let began = Instant::now();
        while began.elapsed() < Duration::from_secs(2) {
            let answer = replica.by(&token).http("GET", "/tickets", None).await;
            assert_eq!(answer.status, 200, "{answer:?}");
        }
        good.store(false, Ordering::Relaxed);
    };
    tokio::join!(strangers, caller);
}
