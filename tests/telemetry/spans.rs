//! Spans that answer what an operator asks: who was waited for, how that ended, whom somebody took over from.

use std::time::Duration;

use super::metrics;
use crate::support::calls::{Answer, client, ticket};
use crate::support::eventually;
use crate::support::otlp::{Collector, Span};
use crate::support::raw::Raw;
use crate::support::scene::Scene;

/// Longer than any test.
const FOR_EVER_MS: u64 = 60_000;

fn waited_ms(call: &Span) -> u64 {
    call.attribute("ticket_ledger.waited_ms").parse().expect("a number")
}

#[tokio::test]
async fn a_call_that_is_handed_back_is_502_on_its_spans() {
    let (scene, collector) = (Scene::new().await, Collector::start().await);
    let start = collector.watching(scene.replica(), "a");
    let start = start.with("WORK_MS", FOR_EVER_MS).with("GRACE_MS", 3_000);
    let mut a = start.ready().await;
    let body = ticket("by-http", "Handed back");
    let drain = async {
        scene.until("by-http", "running").await;
        scene.until("by-mcp", "running").await;
        a.terminate();
    };
    let (http, mcp, ()) = tokio::join!(
        a.http("POST", "/tickets", Some(&body)),
        a.mcp("create_ticket", ticket("by-mcp", "Handed back")),
        drain
    );
    assert_eq!((http.expect("an answer").status, mcp.status), (502, 502));
    assert!(a.ended().await.success());
    for name in ["POST /api/v1/tickets", "POST /mcp"] {
        let span = collector.span(name, |span| span.name == name).await;
        assert_eq!(span.attribute("http.response.status_code"), "502", "{span:#?}");
        assert_eq!(span.attribute("error.type"), "502");
        assert!(span.failed);
    }
    let call = collector.call("by-mcp", "a", "handed_back").await;
    assert_eq!(call.attribute("error.type"), "502");
}

#[tokio::test]
async fn a_wait_is_one_span_that_says_for_whom_and_how_it_ended() {
    let (scene, collector) = (Scene::new().await, Collector::start().await);
    let start = || scene.replica().with("LEASE_MS", 3_000).with("WORK_MS", 5_000);
    let a = collector.watching(start(), "a").ready().await;
    let b = collector.watching(start(), "b").ready().await;
    let first = a.create("k", "Waited for");
    let beside = async {
        scene.until("k", "running").await;
        tokio::join!(a.create("k", "Waited for"), b.create("k", "Waited for"))
    };
    tokio::join!(first, beside);
    let first = collector.call("k", "a", "done").await;
    assert!(first.links.is_empty(), "it waited for nobody: {first:#?}");
    assert_eq!(waited_ms(&first), 0);
    for (replica, ended) in [("a", "memory"), ("b", "notified")] {
        let join = collector.call("k", replica, "replayed").await;
        assert!(waited_ms(&join) > 1_000, "{join:#?}");
        let wait = collector.below(&join, "ledger.wait").await;
        assert_eq!(wait.attribute("ticket_ledger.wait.ended"), ended, "{wait:#?}");
        let spans = collector.spans();
        let waits = spans
            .iter()
            .filter(|span| span.name == "ledger.wait" && span.trace == join.trace);
        assert_eq!(waits.count(), 1);
    }
    let join = collector.call("k", "b", "replayed").await;
    let wait = collector.below(&join, "ledger.wait").await;
    assert_eq!(wait.attribute("ticket_ledger.wait.for_replica"), "a");
    assert_eq!(wait.attribute("ticket_ledger.wait.for_attempt"), "1");
    // It looked by itself at least once in the five seconds, and its looks are below it.
    let looks: u64 = wait.attribute("ticket_ledger.wait.looks").parse().expect("a number");
    assert!(looks >= 2, "{wait:#?}");
    collector.below(&wait, "look").await;
    let request = collector.below(&join, "ledger.request").await;
    assert_eq!(request.attribute("ticket_ledger.request_id"), "k");
}

#[tokio::test]
async fn a_wait_that_its_callers_deadline_ends_says_so_and_links_to_what_goes_on() {
    let (scene, collector) = (Scene::new().await, Collector::start().await);
    let start = || scene.replica().with("WORK_MS", FOR_EVER_MS).with("WAIT_MS", 2_000);
    let a = collector.watching(start(), "a").ready().await;
    let b = collector.watching(start(), "b").ready().await;
    let second = async {
        scene.until("k", "running").await;
        b.create("k", "Goes on").await
    };
    let (first, second) = tokio::join!(a.create("k", "Goes on"), second);
    assert_eq!((first.status, second.status), (202, 202));
    let first = collector.call("k", "a", "in_progress").await;
    // As long as its caller waited, not as long as its attempt goes on.
    assert!(first.took < Duration::from_secs(20), "{first:#?}");
    assert_eq!(waited_ms(&first), 0, "its own attempt runs: {first:#?}");
    let second = collector.call("k", "b", "in_progress").await;
    assert!(waited_ms(&second) > 500, "{second:#?}");
    assert_eq!(second.attribute("ticket_ledger.ran_by"), "a");
    assert_eq!(second.links.len(), 1);
    let wait = collector.below(&second, "ledger.wait").await;
    assert_eq!(wait.attribute("ticket_ledger.wait.ended"), "deadline", "{wait:#?}");
    a.mcp("create_ticket", ticket("l", "Goes on")).await;
    let by_mcp = collector.call("l", "a", "in_progress").await;
    assert!(by_mcp.took < Duration::from_secs(20), "{by_mcp:#?}");
}

#[tokio::test]
async fn whoever_takes_over_names_the_replica_and_the_attempt_that_it_took_over_from() {
    let (scene, collector) = (Scene::new().await, Collector::start().await);
    let start = |work_ms: u64| scene.replica().with("WORK_MS", work_ms);
    let a = collector.watching(start(FOR_EVER_MS), "a").ready().await;
    let b = collector.watching(start(10), "b").ready().await;
    let c = collector.watching(start(10), "c").ready().await;
    let body = ticket("waited-for", "Taken over");
    let alone = ticket("alone", "Taken over");
    let strike = async {
        scene.until("alone", "running").await;
        scene.until_waited_for("waited-for").await;
        a.strike();
    };
    let waiters = async {
        scene.until("waited-for", "running").await;
        tokio::join!(
            b.create("waited-for", "Taken over"),
            c.create("waited-for", "Taken over")
        )
    };
    let (_, _, (of_b, of_c), ()) = tokio::join!(
        a.http("POST", "/tickets", Some(&body)),
        a.http("POST", "/tickets", Some(&alone)),
        waiters,
        strike
    );
    let first_of = |answer: &Answer| answer.body["replayed"] == false;
    assert!(first_of(&of_b) || first_of(&of_c), "{of_b:?} {of_c:?}");
    scene.until("alone", "done").await;
    for (name, request_id) in [("ledger.request", "waited-for"), ("ledger.adopt", "alone")] {
        let span = collector
            .span(name, |span| {
                span.name == name
                    && span.attribute("ticket_ledger.request_id") == request_id
                    && !span.attribute("ticket_ledger.took_over_from.replica").is_empty()
            })
            .await;
        assert_eq!(span.attribute("ticket_ledger.took_over_from.replica"), "a", "{span:#?}");
        assert_eq!(span.attribute("ticket_ledger.took_over_from.attempt"), "1");
        assert_eq!(span.links.len(), 1);
    }
    // Whoever came too late took nothing over, and says nothing of the kind.
    for replica in ["b", "c"] {
        collector
            .span("the flights", |span| {
                span.name == "ledger.request"
                    && span.replica == replica
                    && span.attribute("ticket_ledger.request_id") == "waited-for"
            })
            .await;
    }
    let spans = collector.spans();
    let takers = spans.iter().filter(|span| {
        span.attribute("ticket_ledger.request_id") == "waited-for"
            && span.name.starts_with("ledger.")
            && !span.links.is_empty()
    });
    assert_eq!(takers.count(), 1);
    let taker = if first_of(&of_b) { "b" } else { "c" };
    let call = collector.call("waited-for", taker, "done").await;
    let wait = collector.below(&call, "ledger.wait").await;
    assert_eq!(wait.attribute("ticket_ledger.wait.ended"), "lapsed", "{wait:#?}");
    assert!(waited_ms(&call) > 0);
}

#[tokio::test]
async fn what_a_replica_does_by_itself_makes_no_traces() {
    let (scene, collector) = (Scene::new().await, Collector::start().await);
    let a = collector.watching(scene.replica(), "a").ready().await;
    // It writes its row every three seconds, and scans once a lease.
    eventually("two of its rows have been written", || async {
        let beats = "select count(*) from replicas where seen_at > started_at + interval '5 seconds'";
        (scene.count(beats).await > 0).then_some(())
    })
    .await;
    a.create("k", "Called").await;
    collector.call("k", "a", "done").await;
    let spans = collector.spans();
    let roots: Vec<_> = spans.iter().filter(|span| span.parent.is_empty()).collect();
    assert_eq!(roots.len(), 1, "{roots:#?}");
}

#[tokio::test]
async fn what_a_stranger_invents_is_no_name_and_every_request_over_http_is_counted() {
    let (scene, collector) = (Scene::new().await, Collector::start().await);
    let a = collector.watching(scene.replica(), "a").ready().await;
    let invented = Raw::new("MISCHIEF", "/api/v1/tickets?request_id=canary-query")
        .send(&a)
        .await;
    assert_eq!(invented.status, 405);
    let elsewhere = Raw::new("GET", "/nowhere").send(&a).await;
    assert_eq!(elsewhere.status, 404);
    let refused = Raw::new("GET", "/api/v1/tickets")
        .header("host", "evil.example.org")
        .send(&a)
        .await;
    assert_eq!(refused.status, 403);
    let span = collector.span("the invented method", |span| span.name == "HTTP").await;
    assert_eq!(span.attribute("http.request.method"), "_OTHER");
    assert_eq!(span.attribute("url.path"), "/api/v1/tickets");
    assert_eq!(span.attribute("url.scheme"), "http");
    a.tool("create_ticket", ticket("k", "By MCP")).await;
    let mcp = collector.span("MCP's own", |span| span.name == "POST /mcp").await;
    assert_eq!(mcp.attribute("http.route"), "/mcp");
    let text = metrics(&a).await;
    for labels in [
        vec!["http_request_method=\"_OTHER\"", "http_response_status_code=\"405\""],
        vec!["http_request_method=\"GET\"", "http_response_status_code=\"404\""],
        vec!["http_request_method=\"GET\"", "http_response_status_code=\"403\""],
        vec!["http_request_method=\"POST\"", "http_route=\"/mcp\""],
    ] {
        let counted = super::number(&text, "http_server_request_duration_seconds_count", &labels);
        assert_eq!(counted, Some(1.0), "{labels:?} in {text}");
    }
    let everything = format!("{:?}", collector.spans());
    for word in ["MISCHIEF", "canary-query", "busy_ns", "idle_ns"] {
        assert!(!everything.contains(word), "{word} in {everything}");
    }
}

#[tokio::test]
async fn a_request_id_that_is_hashed_is_hashed_on_every_span() {
    let (scene, collector) = (Scene::new().await, Collector::start().await);
    let start = collector.watching(scene.replica(), "a").with("HASH_REQUEST_IDS", true);
    let a = start.ready().await;
    let request = client().get(format!("http://{}/api/v1/requests?request_id=secret-name", a.address));
    a.create("secret-name", "Hashed").await;
    Answer::read(request.send().await.expect("an answer")).await;
    let request = collector.span("the flight", |span| span.name == "ledger.request").await;
    assert_eq!(request.attribute("ticket_ledger.request_id_hash").len(), 32);
    collector
        .span("the look-up", |span| span.name == "GET /api/v1/requests")
        .await;
    assert!(!format!("{:?}", collector.spans()).contains("secret-name"));
}
