//! Answers that are asked for and not read: they take up their caller's seats, and for a while at most.

use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::scene::Scene;
use crate::support::{DEADLINE, eventually};

const IDLE: Duration = Duration::from_secs(2);

/// A frame of HTTP/2.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("short").to_be_bytes();
    let mut bytes = vec![length[1], length[2], length[3], kind, flags];
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// The beginning of a connection on which no answer may have a body yet.
fn no_window() -> Vec<u8> {
    let settings = frame(4, 0, 0, &[0, 4, 0, 0, 0, 0]);
    [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".as_slice(), &settings].concat()
}

/// A GET on a stream of its own; HPACK with names from its table and texts as they are.
fn get(stream: u32, path: &str, token: &str) -> Vec<u8> {
    let mut head = vec![0x82, 0x86];
    for (name, value) in [
        (&[0x04][..], path.to_owned()),
        (&[0x01], "localhost".to_owned()),
        (&[0x0f, 0x08], format!("Bearer {token}")),
    ] {
        head.extend(name);
        head.push(u8::try_from(value.len()).expect("short"));
        head.extend(value.as_bytes());
    }
    frame(1, 5, stream, &head)
}

#[tokio::test]
async fn an_answer_that_is_not_read_keeps_its_callers_seat_and_costs_its_connection() {
    let scene = Scene::new().await;
    let token = scene.token("anna", &["--scopes", "tickets:read"]).await;
    let replica = scene
        .replica()
        .with("AUTH", "token")
        .with("MAX_CALLS_PER_PRINCIPAL", 2)
        .with("IDLE_TIMEOUT_MS", IDLE.as_millis())
        .ready()
        .await;
    let anna = replica.by(&token);
    let stream = TcpStream::connect(&replica.address).await.expect("connects");
    let (mut reading, mut writing) = stream.into_split();
    let asked = (0..4).flat_map(|number| get(2 * number + 1, "/api/v1/tickets", &token));
    writing
        .write_all(&[no_window(), asked.collect()].concat())
        .await
        .expect("sent");
    let began = Instant::now();
    let crowded = eventually("every seat is taken", || async {
        let answer = anna.http("GET", "/tickets", None).await;
        (answer.status == 503).then_some(answer)
    })
    .await;
    assert_eq!(crowded.code(), "unavailable", "{crowded:?}");
    // Whatever else is asked for meanwhile.
    let busy = tokio::spawn(async move {
        for stream in (9..).step_by(2) {
            let more = [get(stream, "/nosuch", "none"), frame(3, 0, stream, &[0, 0, 0, 8])].concat();
            if writing.write_all(&more).await.is_err() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });
    let mut said = Vec::new();
    let closed = tokio::time::timeout(DEADLINE, reading.read_to_end(&mut said)).await;
    let _ = closed.expect("it is closed");
    let after = began.elapsed();
    assert!(after > IDLE / 2 && after < IDLE + Duration::from_secs(3), "{after:?}");
    busy.abort();
    eventually("the seats are free", || async {
        (anna.http("GET", "/tickets", None).await.status == 200).then_some(())
    })
    .await;
}
