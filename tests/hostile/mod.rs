//! Whatever comes in is answered with a clear refusal, and the service is as it was before.

mod arguments;
mod http;
mod mcp;
mod strangers;

use serde_json::Value;

use crate::support::calls::{Answer, ticket};
use crate::support::raw::Raw;
use crate::support::replica::Replica;
use crate::support::scene::Scene;

/// How an input is to be answered.
enum Expected {
    /// Over HTTP: this status and `error.code`.
    Http(u16, &'static str),
    /// Over MCP: a tool's result with `isError` and this code.
    Tool(&'static str),
    /// Over MCP: this status and a JSON-RPC error with this code.
    Rpc(u16, i64),
    /// By HTTP's own layer, which ends the connection: this status.
    Bare(u16),
}
use Expected::{Bare, Http, Rpc, Tool};

type Case = (&'static str, Raw, Expected);

/// Sends all, checks every answer, and that nothing was done and the service is unharmed.
async fn refuses_all(cases: Vec<Case>) {
    let scene = Scene::new().await;
    let [replica] = scene.replicas().await;
    let mut wrong = Vec::new();
    for (name, request, expected) in cases {
        let answer = request.send(&replica).await;
        if let Err(why) = check(&answer, &expected) {
            wrong.push(format!(
                "{name}: {why}\n    {} {:.600}",
                answer.status,
                answer.body.to_string()
            ));
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
    assert_eq!(scene.tickets().await, 0, "something was done");
    assert_eq!(
        scene.count("select count(*) from requests").await,
        0,
        "something was recorded"
    );
    unharmed(&replica).await;
}

/// A call by either way is answered as ever, by the same process.
async fn unharmed(replica: &Replica) {
    let created = replica.create("afterwards", "All is well").await;
    assert_eq!(created.status, 201, "{created:?}");
    let again = replica.tool("create_ticket", ticket("afterwards", "All is well")).await;
    assert_eq!(again["replayed"], true, "{again:?}");
    assert_eq!(replica.admin("/readyz").await.status, 200);
}

fn check(answer: &Answer, expected: &Expected) -> Result<(), String> {
    if answer.status >= 500 {
        return Err("no input may be answered with 5xx".to_owned());
    }
    let (status, message, next) = match expected {
        Bare(status) => {
            return (answer.status == *status).then_some(()).ok_or(format!("not {status}"));
        }
        Http(status, code) => {
            let error = &answer.body["error"];
            if error["code"] != *code {
                return Err(format!("not {code}"));
            }
            (*status, &error["message"], &error["next"])
        }
        Tool(code) => {
            let result = &answer.body["result"];
            let error = &result["structuredContent"]["error"];
            if result["isError"] != true || error["code"] != *code {
                return Err(format!("no tool error {code}"));
            }
            let text: Value = serde_json::from_str(result["content"][0]["text"].as_str().unwrap_or_default())
                .map_err(|error| format!("text is not JSON: {error}"))?;
            if text != result["structuredContent"] {
                return Err("text and structured content differ".to_owned());
            }
            (200, &error["message"], &error["next"])
        }
        Rpc(status, code) => {
            let error = &answer.body["error"];
            if answer.body["jsonrpc"] != "2.0" || error["code"] != *code {
                return Err(format!("no JSON-RPC error {code}"));
            }
            (*status, &error["message"], &error["message"])
        }
    };
    if answer.status != status {
        return Err(format!("not {status}"));
    }
    let (Some(message), Some(next)) = (message.as_str(), next.as_str()) else {
        return Err("no message or no next".to_owned());
    };
    if next.len() < 10 || message.len() > 1_500 {
        return Err(format!("a message of {} bytes", message.len()));
    }
    // What is forbidden does not say whether the work was done; all else that is refused here was not.
    let says = message.contains("Nothing was done") || answer.code() == "forbidden";
    let protocol = matches!(expected, Rpc(_, -32_020 | -32_022 | -32_601));
    (says || protocol)
        .then_some(())
        .ok_or("it does not say whether the work was done".to_owned())
}

#[tokio::test]
async fn a_body_that_never_comes_is_refused_within_the_callers_wait() {
    let scene = Scene::new().await;
    let replica = scene.replica().with("WAIT_MS", 1_000).ready().await;
    for request in [Raw::api("POST", "/tickets", "{"), Raw::mcp("{")] {
        let answer = request.header("content-length", "100").send(&replica).await;
        assert_eq!(answer.status, 400, "{answer:?}");
        let message = answer.body["error"]["message"].as_str().unwrap_or_default();
        assert!(message.contains("did not arrive in time"), "{answer:?}");
    }
    unharmed(&replica).await;
}
