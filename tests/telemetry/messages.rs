//! Messages that do not fit, and failures: each is told for what it is.

use serde_json::{Value, json};

use super::{metrics, number};
use crate::support::calls::ticket;
use crate::support::eventually;
use crate::support::otlp::Collector;
use crate::support::raw::Raw;
use crate::support::scene::Scene;
use crate::support::stuck::Stuck;

fn message(id: Option<u64>, method: &str, params: Value) -> Raw {
    let mut message = json!({ "jsonrpc": "2.0", "method": method, "params": params });
    if let Some(id) = id {
        message["id"] = json!(id);
    }
    Raw::mcp(message.to_string())
}

#[tokio::test]
async fn a_meta_that_does_not_fit_takes_nothing_else_away() {
    let (scene, collector) = (Scene::new().await, Collector::start().await);
    let a = collector.watching(scene.replica(), "a").ready().await;
    let metas = [
        json!({ "traceparent": 5 }),
        json!({ "traceparent": { "a": 1 }, "tracestate": [1] }),
        json!({ "io.modelcontextprotocol/protocolVersion": 7 }),
    ];
    for (number, meta) in metas.into_iter().enumerate() {
        let told = message(None, "notifications/initialized", json!({ "_meta": meta }))
            .send(&a)
            .await;
        assert_eq!(told.status, 202, "{meta}: {told:?}");
        let request_id = format!("k-{number}");
        let arguments = ticket(&request_id, "Fits");
        let params = json!({ "name": "create_ticket", "arguments": arguments, "_meta": meta });
        let told = message(Some(7), "tools/call", params).send(&a).await;
        assert_eq!(
            told.body["result"]["structuredContent"]["status"], "done",
            "{meta}: {told:?}"
        );
        let call = collector.call(&request_id, "a", "done").await;
        assert_eq!(call.name, "tools/call create_ticket", "{meta}");
        assert_eq!(call.attribute("jsonrpc.request.id"), "7", "{meta}");
    }
    // A request without an id is none, whatever stands in it.
    let told = message(None, "tools/list", json!({ "_meta": { "traceparent": 5 } }))
        .send(&a)
        .await;
    assert_eq!(told.status, 400, "{told:?}");
}

#[tokio::test]
async fn a_refusal_in_json_rpcs_words_is_a_failed_span_a_line_and_a_label() {
    let (scene, collector) = (Scene::new().await, Collector::start().await);
    let a = collector.watching(scene.replica(), "a").ready().await;
    message(Some(1), "tools/destroy", json!({})).send(&a).await;
    message(Some(2), "tools/call", json!({ "name": "drop_tables" }))
        .send(&a)
        .await;
    for (id, code) in [("1", "-32601"), ("2", "-32602")] {
        let span = collector
            .span(code, |span| span.attribute("jsonrpc.request.id") == id)
            .await;
        assert!(span.failed, "{span:#?}");
        assert_eq!(span.attribute("error.type"), code);
        assert_eq!(span.attribute("rpc.response.status_code"), code);
        let labels = [&*format!("error_type=\"{code}\"")];
        let counted = number(
            &metrics(&a).await,
            "mcp_server_operation_duration_seconds_count",
            &labels,
        );
        assert_eq!(counted, Some(1.0));
        eventually("its line", || async {
            a.log()
                .into_iter()
                .find(|line| line["code"] == code.parse::<i64>().expect("a number"))
        })
        .await;
    }
    a.create("k", "First").await;
    a.mcp("create_ticket", ticket("k", "Second")).await;
    let labels = ["error_type=\"tool_error\"", "gen_ai_tool_name=\"create_ticket\""];
    let counted = number(
        &metrics(&a).await,
        "mcp_server_operation_duration_seconds_count",
        &labels,
    );
    assert_eq!(counted, Some(1.0));
}

#[tokio::test]
async fn a_statement_that_fails_says_so_on_its_span() {
    let (scene, collector) = (Scene::new().await, Collector::start().await);
    let a = collector.watching(scene.replica(), "a").ready().await;
    sqlx::raw_sql("alter table tickets add constraint refuses_all check (false) not valid")
        .execute(&scene.sql)
        .await
        .expect("alters");
    assert_eq!(a.create("k", "Refused").await.code(), "unavailable");
    let span = collector
        .span("the statement", |span| span.name == "claim_act_settle")
        .await;
    assert!(span.failed, "{span:#?}");
    assert_eq!(span.attribute("error.type"), "23514");
    assert_eq!(span.attribute("db.response.status_code"), "23514");
}

#[tokio::test]
async fn waiting_for_a_connection_of_the_pool_is_a_span() {
    let (scene, collector) = (Scene::new().await, Collector::start().await);
    let start = scene.replica().with("LEASE_MS", 10_000).with("POOL_SIZE", 2);
    let a = collector.watching(start, "a").ready().await;
    let created = a.create("k", "Read").await;
    let path = format!("/tickets/{}", created.text("ticket_id"));
    let mut stuck = Stuck::on(&scene).await;
    stuck.run("lock table tickets in access exclusive mode").await;
    let release = async {
        eventually("one waits for a connection", || async {
            let waiting = number(&metrics(&a).await, "ticket_ledger_pool_waiting", &[]);
            waiting.filter(|waiting| *waiting >= 1.0)
        })
        .await;
        stuck.run("commit").await;
    };
    tokio::join!(a.get(&path), a.get(&path), a.get(&path), release);
    let wait = collector
        .span("the wait", |span| span.name == "wait for a connection")
        .await;
    collector
        .span("the call that waited", |span| span.id == wait.parent)
        .await;
}
