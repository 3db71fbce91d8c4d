//! The README's short procedures, as they are written there, with a cut in the middle.

use std::collections::HashMap;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::Command;

use super::{Told, Way, all_replies, call, ids, over_mcp, start};
use crate::support::calls::client;
use crate::support::replica::Replica;
use crate::support::scene::Scene;

const README: &str = include_str!("../../README.md");

/// The README's section on entries.
fn section() -> &'static str {
    let section = README.split("\n## Entries\n").nth(1).expect("the section");
    section.split("\n## ").next().expect("the section")
}

/// What stands between two fences of this language in the section.
fn block(language: &str) -> String {
    let opening = format!("```{language}\n");
    let block = section().split(&opening).nth(1).expect("a block");
    block.split("```").next().expect("its end").to_owned()
}

/// A replica that dies when its first post is committed, before anybody is told.
async fn dies_after_the_commit(scene: &Scene) -> Replica {
    start(scene)
        .with("TICKET_LEDGER_FAULT", "one_step.after_commit:exit")
        .ready()
        .await
}

/// Another replica at the same address.
async fn in_its_place(scene: &Scene, dead: Replica) -> Replica {
    dead.dead().await;
    let address = dead.address.clone();
    dead.kill().await;
    start(scene).with("LISTEN_ADDR", address).ready().await
}

/// post_entry over MCP 2025-11-25; an error is a lost answer.
async fn post(replica: &Replica, arguments: &Value) -> Result<Told, reqwest::Error> {
    let params = json!({ "name": "post_entry", "arguments": arguments });
    let request = client()
        .post(format!("http://{}/mcp", replica.address))
        .header("accept", "application/json, text/event-stream")
        .header("mcp-protocol-version", "2025-11-25")
        .json(&json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params }));
    let response = request.send().await?;
    Ok(over_mcp(&crate::support::calls::Answer::read(response).await))
}

#[tokio::test]
async fn the_procedure_by_mcp_leads_to_one_entry_through_a_cut() {
    let scene = Scene::new().await;
    for step in [
        "1. `new_request_id`",
        "2. `post_entry`",
        "3. The answer was cut off? `post_entry` again",
        "4. `http_status` 201, or 200 with `data.replayed` true",
    ] {
        assert!(section().contains(step), "the README's step is another: {step}");
    }
    let replica = dies_after_the_commit(&scene).await;
    // 1.
    let minted = replica.tool("new_request_id", json!({})).await;
    // 2.
    let mut arguments: Value = serde_json::from_str(&block("json").replace("\n   ", "\n")).expect("JSON");
    arguments["request_id"] = minted["request_id"].clone();
    assert!(post(&replica, &arguments).await.is_err(), "the answer is cut off");
    let replica = in_its_place(&scene, replica).await;
    // 3.
    let told = post(&replica, &arguments).await.expect("an answer");
    // 4.
    let told = told.replayed();
    let read = call(&replica, Way::Mcp, "get_thread", json!({ "id": told.id() }))
        .await
        .read();
    assert_eq!(read.data["body"], arguments["body"]);
    assert_eq!(scene.count("select count(*) from entries").await, 1);

    // A reply, cut off in the same way, is found in the list of its question.
    let mut arguments = super::reply("a reply", told.id());
    let dying = dies_after_the_commit(&scene).await;
    assert!(post(&dying, &arguments).await.is_err(), "the answer is cut off");
    let reply = post(&replica, &arguments).await.expect("an answer").replayed();
    assert_eq!(ids(&all_replies(&replica, Way::Mcp, told.id()).await), [reply.id()]);
    // 5.
    arguments["body"] = json!("Other contents.");
    let conflict = post(&replica, &arguments).await.expect("an answer");
    conflict.refused(409, "conflict");
    // 6.
    let (status, said, _) = scene.admin(&["stop-writes"]).await;
    assert_eq!(status, 0, "{said}");
    arguments["request_id"] = json!("while stopped");
    let stopped = post(&replica, &arguments).await.expect("an answer");
    stopped.refused(503, "writes_disabled");
    scene.admin(&["allow-writes"]).await;
    post(&replica, &arguments).await.expect("an answer").fresh();
}

/// A shell that is given the README's lines part by part, and what it says after each.
struct Shell {
    child: tokio::process::Child,
    said: tokio::io::Lines<BufReader<tokio::process::ChildStdout>>,
}

impl Shell {
    fn open() -> Self {
        let mut child = Command::new("bash")
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .expect("bash runs");
        let said = BufReader::new(child.stdout.take().expect("its output")).lines();
        Self { child, said }
    }

    async fn run(&mut self, lines: &str) -> Vec<String> {
        let stdin = self.child.stdin.as_mut().expect("its input");
        stdin
            .write_all(format!("{lines}\necho end-of-part\n").as_bytes())
            .await
            .expect("writes");
        let mut said = Vec::new();
        while let Some(line) = self.said.next_line().await.expect("reads") {
            match line.strip_suffix("end-of-part") {
                Some(rest) => {
                    said.push(rest.to_owned());
                    return said;
                }
                None => said.push(line),
            }
        }
        panic!("bash ended: {said:?}")
    }
}

#[tokio::test]
async fn the_procedure_by_http_leads_to_one_entry_through_a_cut() {
    let scene = Scene::new().await;
    let replica = dies_after_the_commit(&scene).await;
    let script = block("sh").replace("127.0.0.1:8000", &replica.address);
    let mut parts: HashMap<&str, &str> = HashMap::new();
    let mut rest = script.as_str();
    for step in ["# 1.", "# 2.", "# 3.", "# 4."] {
        let (before, after) = rest.split_once(step).expect("a step");
        parts.insert(step, after);
        if step == "# 1." {
            parts.insert("before", before);
        }
        rest = after;
    }
    let part = |step: &str| {
        let part = parts[step].split("\n# ").next().expect("a part");
        // What is left of the comment.
        part.split_once('\n').map_or("", |(_, lines)| lines).to_owned()
    };
    let mut shell = Shell::open();
    shell.run(parts["before"]).await;
    let said = shell.run(&part("# 1.")).await;
    assert!(said[0].len() == "request_id: ".len() + 36, "{said:?}");
    let said = shell.run(&part("# 2.")).await.join("\n");
    assert!(said.contains("000"), "curl had an answer: {said}");
    let replica = in_its_place(&scene, replica).await;
    let said = shell.run(&part("# 3.")).await.join("\n");
    assert!(said.contains("\"replayed\":true") && said.contains("\n200"), "{said}");
    let said = shell.run(&part("# 4.")).await.join("\n");
    let read: Value = serde_json::from_str(said.trim()).expect("JSON");
    assert_eq!(
        (&read["title"], &read["saved_via"]),
        (&json!("Who has seen this?"), &json!("http"))
    );
    assert_eq!(scene.count("select count(*) from entries").await, 1);
    drop(replica);
}
