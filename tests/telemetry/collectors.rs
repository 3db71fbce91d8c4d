//! Collectors that are slow, silent or for ever at it: what they cost is said, and it is no call and no exit.

use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::until_at_least;
use crate::support::eventually;
use crate::support::otlp::Collector;
use crate::support::replica::Start;
use crate::support::scene::Scene;

/// A server that does the same with every connection.
async fn server<F>(serve: fn(TcpStream) -> F) -> String
where
    F: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("binds");
    let address = listener.local_addr().expect("an address").to_string();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream));
        }
    });
    address
}

/// Answers with a body that never ends, a byte at a time.
async fn drip(mut stream: TcpStream) {
    let mut some = [0; 1024];
    let _ = stream.read(&mut some).await;
    let head = b"HTTP/1.1 200 OK\r\ncontent-type: application/x-protobuf\r\ncontent-length: 1000000\r\n\r\n";
    let mut going = stream.write_all(head).await;
    while going.is_ok() {
        tokio::time::sleep(Duration::from_millis(100)).await;
        going = stream.write_all(b"\0").await;
    }
}

/// Takes everything and says nothing.
async fn swallow(mut stream: TcpStream) {
    let mut some = [0; 1024];
    while stream.read(&mut some).await.is_ok_and(|read| read > 0) {}
}

fn exporting(start: Start, address: &str) -> Start {
    start
        .with("OTEL_EXPORTER_OTLP_ENDPOINT", format!("http://{address}"))
        .with("OTEL_BSP_SCHEDULE_DELAY", 50)
}

#[tokio::test]
async fn spans_that_a_slow_collector_costs_are_counted_and_said() {
    let scene = Scene::new().await;
    let collector = Collector::slow(Duration::from_millis(500)).await;
    let start = collector
        .watching(scene.replica(), "a")
        .with("OTEL_BSP_MAX_QUEUE_SIZE", 8)
        .with("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", 4)
        .with("OTEL_METRICS_EXPORTER", "none");
    let a = start.ready().await;
    for call in 0..20 {
        assert_eq!(a.create(&format!("k-{call}"), "Slow").await.status, 201);
    }
    until_at_least(&a, "ticket_ledger_spans_dropped_total", &["reason=\"queue_full\""], 1.0).await;
    let line = eventually("it is said", || async {
        a.find_log("spans came faster than they could be exported and were dropped; calls go on")
    })
    .await;
    assert!(line["dropped"].as_u64().expect("a number") > 0, "{line}");
}

#[tokio::test]
async fn an_export_that_drips_is_given_up_in_time_and_its_spans_are_counted() {
    let scene = Scene::new().await;
    let address = server(drip).await;
    let start = exporting(scene.replica(), &address)
        .with("OTEL_EXPORTER_OTLP_TIMEOUT", 300)
        .with("OTEL_METRICS_EXPORTER", "none");
    let a = start.ready().await;
    let began = Instant::now();
    a.create("k", "Drips").await;
    until_at_least(
        &a,
        "ticket_ledger_spans_dropped_total",
        &["reason=\"export_failed\""],
        1.0,
    )
    .await;
    eventually("it is said", || async {
        a.find_log("telemetry cannot be exported and is dropped; calls go on")
    })
    .await;
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
}

#[tokio::test]
async fn a_replica_leaves_soon_though_its_collector_says_nothing() {
    let scene = Scene::new().await;
    let address = server(swallow).await;
    let mut a = exporting(scene.replica(), &address).ready().await;
    a.create("k", "Leaves").await;
    a.terminate();
    eventually("it has stopped", || async { a.logged("stopped").then_some(()) }).await;
    let stopped = Instant::now();
    assert!(a.ended().await.success());
    assert!(stopped.elapsed() < Duration::from_secs(4), "{:?}", stopped.elapsed());
}

#[tokio::test]
async fn telemetry_is_compressed_as_asked_or_the_start_is_refused() {
    let scene = Scene::new().await;
    let collector = Collector::start().await;
    let start = collector.watching(scene.replica(), "a");
    let a = start.with("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip").ready().await;
    a.create("k", "Compressed").await;
    eventually("a compressed export", || async {
        collector.was_compressed().then_some(())
    })
    .await;
    let refused = tokio::process::Command::new(env!("CARGO_BIN_EXE_ticket-ledger"))
        .args(["serve", "--database-url", &scene.url])
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", format!("http://{}", collector.address))
        .env("OTEL_EXPORTER_OTLP_TRACES_COMPRESSION", "zstd")
        .kill_on_drop(true)
        .output();
    let refused = tokio::time::timeout(crate::support::DEADLINE, refused).await;
    let refused = refused.expect("it ends in time").expect("it runs");
    assert!(!refused.status.success());
    let says = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        says.contains("OTEL_EXPORTER_OTLP_TRACES_COMPRESSION is \"zstd\""),
        "{says}"
    );
    assert!(says.contains("gzip or none"), "{says}");
}
