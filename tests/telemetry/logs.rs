//! Log lines: one for each call, with nothing of what callers say.

use std::path::Path;
use std::process::Stdio;

use serde_json::{Value, json};
use tokio::process::Command;

use crate::support::calls::{Answer, client, ticket};
use crate::support::eventually;
use crate::support::replica::Replica;
use crate::support::scene::Scene;

/// What callers say, and are told, and nobody else.
const SAID: [&str; 3] = ["canary-title", "canary-body", "canary-query"];

async fn ended(mut replica: Replica) -> Vec<Value> {
    replica.terminate();
    assert!(replica.ended().await.success());
    eventually("its last line is read", || async {
        replica.logged("stopped").then_some(())
    })
    .await;
    replica.log()
}

#[tokio::test]
async fn whatever_rust_log_says_nothing_of_arguments_results_and_tokens_is_logged() {
    let scene = Scene::new().await;
    let token = scene.token("canary", &["--scopes", "tickets:read,tickets:write"]).await;
    let start = scene.replica().with("AUTH", "token").with("RUST_LOG", "trace");
    let a = start.ready().await;
    let caller = a.by(&token);
    let mut said = ticket("k", SAID[0]);
    said["body"] = json!(SAID[1]);
    assert_eq!(caller.http("POST", "/tickets", Some(&said)).await.status, 201);
    said["request_id"] = json!("l");
    let told = caller.mcp("create_ticket", said.clone()).await;
    assert_eq!(told.status, 200, "{told:?}");
    let result = &told.body["result"]["structuredContent"];
    let id = result["ticket_id"].as_str().expect("an id").to_owned();
    assert_eq!(caller.mcp("get_ticket", json!({ "ticket_id": id })).await.status, 200);
    let found = caller.http("GET", &format!("/tickets?query={}", SAID[2]), None).await;
    assert_eq!(found.status, 200, "{found:?}");
    // A refusal is told in words of the caller's own.
    said["canary-title"] = json!(1);
    caller.mcp("create_ticket", said).await;
    let log = format!("{:?}", ended(a).await);
    assert!(log.contains("\"call\""), "{log}");
    for secret in SAID.iter().copied().chain([token.as_str()]) {
        assert!(!log.contains(secret), "{secret} is in {log}");
    }
}

#[tokio::test]
async fn at_info_a_call_is_one_line_by_either_way() {
    let scene = Scene::new().await;
    let a = scene.replica().with("RUST_LOG", "info").ready().await;
    a.create("k", "One line").await;
    a.tool("create_ticket", ticket("l", "One line")).await;
    let log = ended(a).await;
    // The listener begins by itself, at any time.
    let messages = log.iter().filter_map(|line| line["message"].as_str());
    let messages: Vec<&str> = messages.filter(|message| *message != "listening").collect();
    let ready = messages.iter().position(|message| *message == "ready").expect("ready");
    let draining = messages
        .iter()
        .position(|message| *message == "draining")
        .expect("draining");
    assert_eq!(messages[ready + 1..draining], ["call", "call"], "{log:?}");
}

#[tokio::test]
async fn a_log_for_eyes_is_plain_in_a_file_with_a_line_a_call() {
    let scene = Scene::new().await;
    let path = std::env::temp_dir().join(format!("log-{}", uuid::Uuid::new_v4()));
    let file = std::fs::File::create(&path).expect("a file");
    let mut child = Command::new(env!("CARGO_BIN_EXE_ticket-ledger"))
        .args(["serve", "--database-url", &scene.url])
        .args(["--listen-addr", "127.0.0.1:0", "--admin-addr", "127.0.0.1:0"])
        .env("LOG_FORMAT", "text")
        .env("RUST_LOG", "info")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(file)
        .kill_on_drop(true)
        .spawn()
        .expect("it starts");
    let line = line_with(&path, "ready").await;
    let address = line.split("address=").nth(1).expect("an address");
    let address = address.split_whitespace().next().expect("an address").to_owned();
    let request = client()
        .post(format!("http://{address}/api/v1/tickets"))
        .json(&ticket("k", "For eyes"));
    assert_eq!(Answer::read(request.send().await.expect("an answer")).await.status, 201);
    let call = line_with(&path, "call").await;
    child.kill().await.expect("it is killed");
    let log = std::fs::read_to_string(&path).expect("the log");
    let _ = std::fs::remove_file(&path);
    assert!(!log.contains('\x1b'), "{log:?}");
    assert!(call.contains("operation=create_ticket outcome=done took_ms="), "{call}");
    assert!(call.contains(" trace_id="), "{call}");
    // The span's own attributes are for traces.
    assert!(
        !call.contains("http.request.method") && !call.contains("http{"),
        "{call}"
    );
}

/// Waits for a whole line with this word.
async fn line_with(path: &Path, word: &str) -> String {
    eventually(&format!("a line with {word}"), || async {
        let log = std::fs::read_to_string(path).unwrap_or_default();
        let (whole, _) = log.rsplit_once('\n')?;
        let found = whole
            .lines()
            .find(|line| line.split([' ', '\x1b']).any(|part| part == word));
        found.map(str::to_owned)
    })
    .await
}
