//! Bodies and headers that are no call over MCP.

use serde_json::{Value, json};

use super::Expected::{Rpc, Tool};
use super::refuses_all;
use crate::support::calls::ticket;
use crate::support::raw::Raw;

#[tokio::test]
async fn bodies_that_are_no_call_are_refused_over_mcp() {
    let call = json!({
        "jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": { "name": "create_ticket", "arguments": ticket("h", "t") },
    });
    let with = |member: &str, value: Value| {
        let mut call = call.clone();
        call[member] = value;
        Raw::mcp(call.to_string())
    };
    let without = |member: &str| {
        let mut call = call.clone();
        call.as_object_mut().expect("an object").remove(member);
        Raw::mcp(call.to_string())
    };
    let params = |params: Value| with("params", params);
    let large = ticket("h", "t").to_string().replace("A body.", &"x".repeat(10_000_000));
    let malformed = || Rpc(400, -32_600);
    let cases = vec![
        ("nothing", Raw::mcp(""), Rpc(400, -32_700)),
        (
            "broken UTF-8",
            Raw::mcp(b"{\"jsonrpc\":\"2.0\",\"id\":\"\xff\"}".to_vec()),
            Rpc(400, -32_700),
        ),
        ("a scalar", Raw::mcp("7"), malformed()),
        ("a batch", Raw::mcp(json!([call, call]).to_string()), malformed()),
        ("an empty batch", Raw::mcp("[]"), malformed()),
        ("an empty object", Raw::mcp("{}"), malformed()),
        (
            "another version of JSON-RPC",
            with("jsonrpc", json!("1.0")),
            malformed(),
        ),
        ("no version of JSON-RPC", without("jsonrpc"), malformed()),
        ("a method that is none", with("method", json!(7)), malformed()),
        ("null as an id", with("id", Value::Null), malformed()),
        ("a fraction as an id", with("id", json!(1.5)), malformed()),
        ("a list as an id", with("id", json!([1])), malformed()),
        (
            "an id past every range",
            Raw::mcp(call.to_string().replace("\"id\":1", "\"id\":99999999999999999999")),
            malformed(),
        ),
        ("a call without an id", without("id"), malformed()),
        (
            "a response",
            Raw::mcp(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#),
            malformed(),
        ),
        ("no params", without("params"), Rpc(200, -32_602)),
        ("a list as params", params(json!([])), malformed()),
        (
            "a text as arguments",
            params(json!({ "name": "create_ticket", "arguments": "x" })),
            Rpc(200, -32_602),
        ),
        (
            "a list as arguments",
            params(json!({ "name": "create_ticket", "arguments": [1] })),
            Rpc(200, -32_602),
        ),
        (
            "a number as a name",
            params(json!({ "name": 7, "arguments": {} })),
            Rpc(200, -32_602),
        ),
        (
            "an unknown tool",
            params(json!({ "name": "drop_tables", "arguments": {} })),
            Rpc(200, -32_602),
        ),
        (
            "a tool with a long name",
            params(json!({ "name": "x".repeat(100_000) })),
            Rpc(200, -32_602),
        ),
        (
            "no arguments",
            params(json!({ "name": "create_ticket" })),
            Tool("invalid_argument"),
        ),
        (
            "an unknown method",
            with("method", json!("tools/destroy")),
            Rpc(200, -32_601),
        ),
        (
            "a method with a long name",
            with("method", json!("x".repeat(100_000))),
            Rpc(200, -32_601),
        ),
        (
            "10 MB",
            Raw::mcp(format!(
                r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"create_ticket","arguments":{large}}}}}"#
            )),
            Rpc(413, -32_600),
        ),
    ];
    refuses_all(cases).await;
}

#[tokio::test]
async fn requests_with_the_wrong_headers_are_refused_over_mcp() {
    let params = || json!({ "name": "create_ticket", "arguments": ticket("h", "t") });
    let legacy =
        || Raw::mcp(json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params() }).to_string());
    let modern = || Raw::modern("tools/call", Some("create_ticket"), params());
    let cases = vec![
        ("no Accept", legacy().without("accept"), Rpc(406, -32_600)),
        (
            "only JSON accepted",
            legacy().header("accept", "application/json"),
            Rpc(406, -32_600),
        ),
        ("no Content-Type", legacy().without("content-type"), Rpc(415, -32_600)),
        (
            "text/plain",
            legacy().header("content-type", "text/plain"),
            Rpc(415, -32_600),
        ),
        (
            "GET",
            Raw::new("GET", "/mcp").header("accept", "text/event-stream"),
            Rpc(405, -32_600),
        ),
        (
            "DELETE",
            Raw::new("DELETE", "/mcp").header("mcp-session-id", "x"),
            Rpc(405, -32_600),
        ),
        ("PUT", legacy().start("PUT /mcp HTTP/1.1\r\n"), Rpc(405, -32_600)),
        (
            "an unknown protocol",
            legacy().header("mcp-protocol-version", "1999-01-01"),
            Rpc(400, -32_600),
        ),
        ("no method's header", modern().without("mcp-method"), Rpc(400, -32_020)),
        (
            "another method's header",
            modern().header("mcp-method", "tools/list"),
            Rpc(400, -32_020),
        ),
        ("no name's header", modern().without("mcp-name"), Rpc(400, -32_020)),
        (
            "another name's header",
            modern().header("mcp-name", "add_comment"),
            Rpc(400, -32_020),
        ),
        (
            "another protocol's header",
            modern().header("mcp-protocol-version", "2025-11-25"),
            Rpc(400, -32_020),
        ),
        (
            "no _meta",
            legacy()
                .header("mcp-protocol-version", "2026-07-28")
                .header("mcp-method", "tools/call")
                .header("mcp-name", "create_ticket"),
            Rpc(400, -32_602),
        ),
        (
            "ping in an era without it",
            Raw::modern("ping", None, json!({})),
            Rpc(404, -32_601),
        ),
        (
            "initialize in an era without it",
            Raw::modern("initialize", None, json!({})),
            Rpc(404, -32_601),
        ),
        (
            "a cursor for one page",
            Raw::modern("tools/list", None, json!({ "cursor": "x" })),
            Rpc(200, -32_602),
        ),
    ];
    refuses_all(cases).await;
}
