//! What a collector is told of a call: its spans, and the links between those of several replicas.

use std::time::Duration;

use serde_json::json;

use crate::support::calls::{Answer, client, ticket};
use crate::support::eventually;
use crate::support::otlp::{Collector, Span};
use crate::support::replica::Replica;
use crate::support::scene::Scene;

async fn replica(scene: &Scene, collector: &Collector, name: &str, work_ms: u64) -> Replica {
    let start = collector.watching(scene.replica(), name).with("WORK_MS", work_ms);
    start.ready().await
}

/// The attempt of a call: what is kept beside the row, and linked to.
async fn attempt(collector: &Collector, call: &Span) -> Span {
    collector.below(call, "ledger.request").await
}

#[tokio::test]
async fn a_first_call_is_a_server_span_with_claim_and_statement_below_and_a_replay_elsewhere_links_to_it() {
    let (scene, collector) = (Scene::new().await, Collector::start().await);
    let a = replica(&scene, &collector, "a", 0).await;
    let b = replica(&scene, &collector, "b", 0).await;
    a.tool("create_ticket", ticket("k", "Traced")).await;
    let first = collector.call("k", "a", "done").await;
    assert_eq!(first.name, "tools/call create_ticket");
    assert_eq!(first.attribute("mcp.method.name"), "tools/call");
    assert_eq!(first.attribute("gen_ai.tool.name"), "create_ticket");
    assert_eq!(first.attribute("gen_ai.operation.name"), "execute_tool");
    assert_eq!(first.attribute("mcp.protocol.version"), "2026-07-28");
    assert_eq!(first.attribute("jsonrpc.request.id"), "1");
    assert_eq!(first.attribute("ticket_ledger.replayed"), "false");
    assert_eq!(first.attribute("ticket_ledger.ran_by"), "a");
    let http = collector.span("the HTTP request", |span| span.id == first.parent).await;
    assert_eq!(http.name, "POST /mcp");
    collector.below(&first, "ledger.claim").await;
    let statement = collector.below(&first, "claim_act_settle").await;
    assert_eq!(statement.attribute("db.system.name"), "postgresql");

    b.create("k", "Traced").await;
    let replay = collector.call("k", "b", "replayed").await;
    assert_eq!(replay.name, "POST /api/v1/tickets");
    assert_eq!(replay.attribute("ticket_ledger.ran_by"), "a");
    assert_eq!(replay.attribute("ticket_ledger.replayed"), "true");
    assert_ne!(replay.trace, first.trace);
    assert!(replay.links_to(&attempt(&collector, &first).await), "{replay:#?}");
    // Neither arguments nor results.
    let everything = format!("{:?}", collector.spans());
    assert!(
        !everything.contains("Traced") && !everything.contains("A body."),
        "{everything}"
    );
}

#[tokio::test]
async fn a_join_on_another_replica_waits_and_links_to_the_attempt_that_it_waited_for() {
    let (scene, collector) = (Scene::new().await, Collector::start().await);
    let a = replica(&scene, &collector, "a", 1_000).await;
    let b = replica(&scene, &collector, "b", 1_000).await;
    let first = a.create("k", "Joined");
    let second = async {
        scene.until("k", "running").await;
        b.create("k", "Joined").await
    };
    let (_, joined) = tokio::join!(first, second);
    assert_eq!(joined.body["replayed"], true);
    let first = collector.call("k", "a", "done").await;
    let join = collector.call("k", "b", "replayed").await;
    assert!(join.links_to(&attempt(&collector, &first).await));
    assert!(
        join.attribute("ticket_ledger.waited_ms")
            .parse::<u64>()
            .expect("a number")
            > 0
    );
    collector.below(&join, "ledger.wait").await;
    for name in ["ledger.work", "ledger.settle", "claim", "settle"] {
        collector.below(&first, name).await;
    }
    let metrics = b.admin("/metrics").await;
    let text = metrics.body.as_str().expect("text");
    let joins = |line: &&str| line.starts_with("ticket_ledger_joins_total{") && line.contains("by=\"notify\"");
    assert!(text.lines().any(|line| joins(&line)), "{text}");
}

#[tokio::test]
async fn a_takeover_after_sigkill_links_to_the_attempt_that_died() {
    let (scene, collector) = (Scene::new().await, Collector::start().await);
    let a = replica(&scene, &collector, "a", 60_000).await;
    let b = replica(&scene, &collector, "b", 10).await;
    let body = ticket("k", "Taken over");
    let strike = async {
        scene.until_waited_for("k").await;
        // What a dead replica has not sent is lost with it: its statement's span is enough to know its place.
        collector
            .span("the claim", |span| span.name == "claim" && span.replica == "a")
            .await;
        a.strike();
    };
    let second = async {
        scene.until("k", "running").await;
        b.create("k", "Taken over").await
    };
    let (lost, answer, ()) = tokio::join!(a.http("POST", "/tickets", Some(&body)), second, strike);
    assert!(lost.is_err());
    assert_eq!(answer.body["replayed"], false, "{answer:?}");
    let taker = collector.call("k", "b", "done").await;
    assert_eq!(taker.attribute("ticket_ledger.attempt"), "2");
    assert_eq!(taker.attribute("ticket_ledger.ran_by"), "b");
    let taking = attempt(&collector, &taker).await;
    let claim = collector
        .span("the claim", |span| span.name == "claim" && span.replica == "a")
        .await;
    let claiming = collector
        .span("what claimed", |span| span.id == claim.parent && span.replica == "a")
        .await;
    let died: Vec<_> = taking.links.iter().filter(|(trace, _)| *trace == claim.trace).collect();
    assert_eq!(died.len(), 1, "{taking:#?}");
    // The place that was kept is that of the attempt, which is what the claim was below.
    assert_eq!(died[0].1, claiming.parent);
    collector.below(&taker, "take_over").await;
    let metrics = b.admin("/metrics").await;
    let text = metrics.body.as_str().expect("text");
    let takeovers = |line: &&str| line.starts_with("ticket_ledger_takeovers_total{") && line.contains("by=\"waiter\"");
    assert!(text.lines().any(|line| takeovers(&line)), "{text}");
}

#[tokio::test]
async fn a_conflict_is_told_as_one_and_links_to_nothing() {
    let (scene, collector) = (Scene::new().await, Collector::start().await);
    let a = replica(&scene, &collector, "a", 0).await;
    let b = replica(&scene, &collector, "b", 0).await;
    a.create("k", "First").await;
    let refused = b.mcp("create_ticket", ticket("k", "Second")).await;
    assert_eq!(refused.body["result"]["isError"], true);
    let conflict = collector.call("k", "b", "conflict").await;
    assert_eq!(conflict.attribute("error.type"), "tool_error");
    assert!(conflict.links.is_empty(), "{conflict:#?}");
    let text = b.admin("/metrics").await.body.as_str().expect("text").to_owned();
    let conflicts =
        |line: &&str| line.starts_with("ticket_ledger_calls_total{") && line.contains("outcome=\"conflict\"");
    assert!(text.lines().any(|line| conflicts(&line)), "{text}");
}

#[tokio::test]
async fn a_call_is_below_the_span_in_its_meta_and_linked_to_the_http_request_and_its_log_line_names_both() {
    let (scene, collector) = (Scene::new().await, Collector::start().await);
    let a = replica(&scene, &collector, "a", 0).await;
    let traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let body = json!({
        "jsonrpc": "2.0", "id": "seven", "method": "tools/call",
        "params": {
            "name": "create_ticket", "arguments": ticket("k", "Below"),
            "_meta": {
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientCapabilities": {},
                "traceparent": traceparent,
            },
        },
    });
    let request = client()
        .post(format!("http://{}/mcp", a.address))
        .header("accept", "application/json, text/event-stream")
        .header("mcp-protocol-version", "2026-07-28")
        .header("mcp-method", "tools/call")
        .header("mcp-name", "create_ticket")
        .json(&body);
    Answer::read(request.send().await.expect("an answer")).await;
    let call = collector.call("k", "a", "done").await;
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    assert_eq!(hex(&call.trace), "0af7651916cd43dd8448eb211c80319c");
    assert_eq!(hex(&call.parent), "b7ad6b7169203331");
    let http = collector
        .span("the HTTP request", |span| span.name == "POST /mcp")
        .await;
    assert!(call.links_to(&http), "{call:#?}");
    let line = eventually("the call's log line", || async { a.find_log("call") }).await;
    assert_eq!(line["trace_id"], hex(&call.trace).as_str());
    assert_eq!(line["span_id"], hex(&call.id).as_str());
    // From the header, where _meta has none.
    let request = client()
        .post(format!("http://{}/api/v1/tickets", a.address))
        .header("traceparent", traceparent)
        .json(&ticket("h", "Below"));
    Answer::read(request.send().await.expect("an answer")).await;
    let call = collector.call("h", "a", "done").await;
    assert_eq!(hex(&call.parent), "b7ad6b7169203331");
}

#[tokio::test]
async fn request_ids_can_be_hashed_and_a_traceparent_that_is_none_is_not_believed() {
    let (scene, collector) = (Scene::new().await, Collector::start().await);
    let start = collector.watching(scene.replica(), "a").with("HASH_REQUEST_IDS", true);
    let a = start.ready().await;
    for broken in [
        "",
        "00-0-0-01",
        &"0".repeat(10_000),
        "00-00000000000000000000000000000000-b7ad6b7169203331-01",
    ] {
        let request = client()
            .post(format!("http://{}/api/v1/tickets", a.address))
            .header("traceparent", broken)
            .json(&ticket("secret-name", "Hashed"));
        assert!(request.send().await.expect("an answer").status().is_success());
    }
    let call = collector
        .span("the call", |span| span.attribute("ticket_ledger.outcome") == "done")
        .await;
    assert_eq!(call.attribute("ticket_ledger.request_id_hash").len(), 32);
    assert!(call.parent.is_empty());
    assert!(!format!("{:?}", collector.spans()).contains("secret-name"));
}

#[tokio::test]
async fn a_collector_that_is_down_costs_calls_nothing_and_is_said_once() {
    let scene = Scene::new().await;
    let start = scene
        .replica()
        .with("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
        .with("OTEL_BSP_SCHEDULE_DELAY", 50)
        .with("OTEL_METRICS_EXPORTER", "none");
    let a = start.ready().await;
    let complaint = "telemetry cannot be exported and is dropped; calls go on";
    for call in 0..20 {
        let answer = a.create(&format!("k-{call}"), "Down").await;
        assert_eq!(answer.status, 201);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    eventually("it is said", || async { a.logged(complaint).then_some(()) }).await;
    for call in 20..40 {
        assert_eq!(a.create(&format!("k-{call}"), "Down").await.status, 201);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let said = a.log().iter().filter(|line| line["message"] == complaint).count();
    assert_eq!(said, 1);
    a.terminate();
    let mut a = a;
    assert!(a.ended().await.success());
}

#[tokio::test]
async fn metrics_are_scraped_without_a_collector_and_name_what_the_alerts_ask_for() {
    let scene = Scene::new().await;
    let a = scene.replica().ready().await;
    a.create("k", "Counted").await;
    a.create("k", "Counted").await;
    eventually("leases were renewed", || async {
        let text = a.admin("/metrics").await.body.as_str().map(str::to_owned)?;
        text.contains("ticket_ledger_renewals_total").then_some(())
    })
    .await;
    let answer = a.admin("/metrics").await;
    assert_eq!(answer.status, 200);
    let text = answer.body.as_str().expect("text");
    for name in [
        "ticket_ledger_calls_total",
        "http_server_request_duration_seconds_bucket",
        "ticket_ledger_batch_size_bucket",
        "ticket_ledger_waiters",
        "ticket_ledger_claims",
        "ticket_ledger_listening",
        "ticket_ledger_database_reachable",
        "ticket_ledger_oldest_running_seconds",
        "ticket_ledger_pool_size",
        "ticket_ledger_pool_in_use",
        "ticket_ledger_pool_waiting",
        "ticket_ledger_renewals_total",
    ] {
        assert!(text.contains(name), "no {name} in {text}");
    }
    assert!(text.contains("outcome=\"replayed\""), "{text}");
    // What a caller chooses is no label.
    let hostile = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/mischief", "params": { "name": "mischief" } });
    let request = client()
        .post(format!("http://{}/mcp", a.address))
        .header("accept", "application/json, text/event-stream")
        .json(&hostile);
    let _ = request.send().await;
    let text = a.admin("/metrics").await.body.as_str().expect("text").to_owned();
    assert!(!text.contains("mischief"), "{text}");
}
