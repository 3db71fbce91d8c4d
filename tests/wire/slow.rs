//! Connections that stay silent, trickle, linger or are too many.

use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::calls::ticket;
use crate::support::raw::{Raw, parse};
use crate::support::replica::Replica;
use crate::support::scene::Scene;
use crate::support::{DEADLINE, eventually};

const HEADER: Duration = Duration::from_millis(400);
const IDLE: Duration = Duration::from_millis(1_200);

async fn replica(scene: &Scene) -> Replica {
    scene
        .replica()
        .with("HEADER_TIMEOUT_MS", HEADER.as_millis())
        .with("IDLE_TIMEOUT_MS", IDLE.as_millis())
        .ready()
        .await
}

/// Reads until the other end closes or resets; returns what came and after how long it ended.
async fn until_closed(stream: &mut TcpStream) -> (Vec<u8>, Duration) {
    let began = Instant::now();
    let mut bytes = Vec::new();
    let _ = tokio::time::timeout(DEADLINE, stream.read_to_end(&mut bytes))
        .await
        .expect("it is closed");
    (bytes, began.elapsed())
}

/// Reads one answer and leaves the connection open.
async fn one_answer(stream: &mut TcpStream) -> u16 {
    let mut bytes = Vec::new();
    loop {
        stream.read_buf(&mut bytes).await.expect("it answers");
        if bytes.ends_with(b"}") {
            return parse(&bytes).status;
        }
    }
}

#[tokio::test]
async fn silent_and_trickling_connections_are_cut_and_steady_ones_are_not() {
    let scene = Scene::new().await;
    let replica = replica(&scene).await;
    let beginnings = ["", "G", "POST /mcp HTTP/1.1\r\nhost: localhost\r\n", "PRI * HT"];
    let addresses = [&replica.address, &replica.admin_address];
    for (first, address) in beginnings
        .into_iter()
        .flat_map(|first| addresses.map(|address| (first, address)))
    {
        let mut stream = TcpStream::connect(address).await.expect("connects");
        let (reading, mut writing) = stream.split();
        let _ = reading;
        writing.write_all(first.as_bytes()).await.expect("sent");
        let (said, after) = until_closed(&mut stream).await;
        assert!(said.is_empty(), "{first:?}: {said:?}");
        let longest = if first.starts_with("PRI") { IDLE } else { HEADER };
        assert!(after < longest + Duration::from_secs(2), "{first:?}: {after:?}");
        assert!(after > HEADER / 2, "{first:?}: {after:?}");
    }
    // A byte at a time does not make a head last longer.
    let stream = TcpStream::connect(&replica.address).await.expect("connects");
    let began = Instant::now();
    let cut = eventually("it is cut", || {
        let sent = stream.try_write(b"x");
        async move {
            tokio::time::sleep(Duration::from_millis(20)).await;
            sent.is_err().then(|| began.elapsed())
        }
    })
    .await;
    assert!(cut < HEADER + Duration::from_secs(2), "{cut:?}");
    // A call that takes longer than either limit is no slow client.
    let slow = scene
        .replica()
        .with("HEADER_TIMEOUT_MS", 200)
        .with("IDLE_TIMEOUT_MS", 200)
        .with("WORK_MS", 900)
        .ready()
        .await;
    assert_eq!(slow.create("k", "Slow work").await.status, 201);
}

#[tokio::test]
async fn a_connection_is_kept_between_requests_and_closed_when_it_is_idle() {
    let scene = Scene::new().await;
    let replica = replica(&scene).await;
    let request = Raw::new("GET", "/api/v1/tickets").header("connection", "keep-alive");
    let mut stream = request.begin(&replica).await;
    assert_eq!(one_answer(&mut stream).await, 200);
    // Longer than a head may take, because nothing has begun.
    tokio::time::sleep(HEADER + HEADER / 2).await;
    let again = b"GET /api/v1/tickets HTTP/1.1\r\nhost: localhost\r\n\r\n";
    stream.write_all(again).await.expect("it is open");
    assert_eq!(one_answer(&mut stream).await, 200);
    let (said, after) = until_closed(&mut stream).await;
    assert!(said.is_empty());
    assert!(after > IDLE / 2 && after < IDLE + Duration::from_secs(2), "{after:?}");
}

#[tokio::test]
async fn an_answer_that_nobody_reads_is_not_kept_for_ever() {
    let scene = Scene::new().await;
    let replica = replica(&scene).await;
    for number in 0..40 {
        let body =
            serde_json::json!({ "request_id": format!("k-{number}"), "title": "Large", "body": "x".repeat(60_000) });
        assert_eq!(replica.post("/tickets", &body).await.status, 201);
    }
    let first = replica.get("/tickets").await.body["tickets"][0]["ticket_id"]
        .as_str()
        .expect("an id")
        .to_owned();
    let request = Raw::new("GET", &format!("/api/v1/tickets/{first}")).header("connection", "keep-alive");
    let socket = tokio::net::TcpSocket::new_v4().expect("a socket");
    socket.set_recv_buffer_size(2_048).expect("a small window");
    let mut stream = socket
        .connect(replica.address.parse().expect("an address"))
        .await
        .expect("connects");
    // More answers than the buffers between here and there hold, and none of them is read.
    for _ in 0..200 {
        if stream.write_all(&request.bytes()).await.is_err() {
            break;
        }
    }
    let address = stream.local_addr().expect("an address").port();
    eventually("the replica has let it go", || async {
        (!established(&replica, address)).then_some(())
    })
    .await;
    assert_eq!(replica.get("/tickets").await.status, 200);
}

/// Whether the replica still has a connection to this port, by the kernel's own table.
fn established(replica: &Replica, port: u16) -> bool {
    let own: u16 = replica
        .address
        .rsplit_once(':')
        .expect("a port")
        .1
        .parse()
        .expect("a port");
    let table = std::fs::read_to_string("/proc/net/tcp").expect("the table");
    let (local, remote) = (format!(":{own:04X} "), format!(":{port:04X} 01 "));
    table
        .lines()
        .any(|line| line.contains(&local) && line.contains(&remote))
}

#[tokio::test]
async fn callers_past_the_limit_of_connections_are_told_so_and_let_in_when_there_is_room() {
    let scene = Scene::new().await;
    let replica = scene
        .replica()
        .with("MAX_CONNECTIONS", 2)
        .with("WORK_MS", 2_000)
        .ready()
        .await;
    let working = Raw::api("POST", "/tickets", ticket("k", "Working").to_string()).header("connection", "keep-alive");
    let mut held = [working.begin(&replica).await, working.begin(&replica).await];
    scene.until("k", "running").await;
    let began = Instant::now();
    let refused = replica.create("other", "No room").await;
    assert_eq!((refused.status, refused.code()), (503, "unavailable"), "{refused:?}");
    assert!(refused.headers.contains_key("retry-after"), "{refused:?}");
    assert!(began.elapsed() < Duration::from_secs(1), "at once");
    for stream in &mut held {
        assert!([200, 201].contains(&one_answer(stream).await));
    }
    drop(held);
    eventually("there is room", || async {
        let answer = replica.http("POST", "/tickets", Some(&ticket("other", "Room"))).await;
        answer.is_ok_and(|answer| answer.status == 201).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_head_that_is_too_large_is_refused() {
    let scene = Scene::new().await;
    let replica = scene.replica().with("MAX_HEADER_BYTES", 8_192).ready().await;
    let with = |bytes: usize| Raw::new("GET", "/api/v1/tickets").header("x-filler", "x".repeat(bytes));
    assert_eq!(with(6_000).send(&replica).await.status, 200);
    assert_eq!(with(12_000).send(&replica).await.status, 431);
}

#[tokio::test]
async fn a_body_that_is_nested_too_deeply_is_refused_before_it_is_looked_at() {
    let scene = Scene::new().await;
    let replica = scene.replica().with("MAX_JSON_DEPTH", 10).ready().await;
    let nested = |depth: usize| {
        let (open, close) = ("[".repeat(depth), "]".repeat(depth));
        format!(r#"{{"request_id":"k","title":"t","body":"[[[[[[[[[[[[[[[[","odd":{open}{close}}}"#)
    };
    for (depth, words) in [(9, "unknown field"), (10, "nested deeper than 10")] {
        let answer = Raw::api("POST", "/tickets", nested(depth)).send(&replica).await;
        assert_eq!((answer.status, answer.code()), (400, "invalid_argument"), "{answer:?}");
        assert!(answer.body.to_string().contains(words), "{answer:?}");
    }
    let call = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"create_ticket","arguments":{}}}}}"#,
        nested(9)
    );
    let answer = Raw::mcp(call).send(&replica).await;
    assert_eq!(
        (answer.status, &answer.body["error"]["code"]),
        (400, &serde_json::json!(-32_600)),
        "{answer:?}"
    );
    assert!(answer.body.to_string().contains("nested deeper than 10"), "{answer:?}");
}
