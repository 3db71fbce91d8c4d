//! Arguments that do not fit, over both transports and in both eras.

use serde_json::json;

use super::Expected::{self, Http, Rpc, Tool};
use super::{Case, refuses_all};
use crate::support::raw::Raw;

/// create_ticket with these bytes as its arguments, over HTTP, over MCP of an older era and of 2026-07-28.
fn by_all_ways(name: &'static str, arguments: &str, http: Expected, mcp: fn() -> Expected) -> Vec<Case> {
    let legacy = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"create_ticket","arguments":{arguments}}}}}"#
    );
    let modern = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"create_ticket","arguments":{arguments},
            "_meta":{{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{{}}}}}}}}"#
    );
    let modern = Raw::modern("tools/call", Some("create_ticket"), json!({})).body(modern);
    vec![
        (name, Raw::api("POST", "/tickets", arguments), http),
        (name, Raw::mcp(legacy), mcp()),
        (name, modern, mcp()),
    ]
}

fn invalid(name: &'static str, arguments: &str) -> Vec<Case> {
    by_all_ways(name, arguments, Http(400, "invalid_argument"), || {
        Tool("invalid_argument")
    })
}

fn unreadable(name: &'static str, arguments: &str) -> Vec<Case> {
    by_all_ways(name, arguments, Http(400, "invalid_argument"), || Rpc(400, -32_700))
}

fn too_deep(name: &'static str, arguments: &str) -> Vec<Case> {
    by_all_ways(name, arguments, Http(400, "invalid_argument"), || Rpc(400, -32_600))
}

#[tokio::test]
async fn arguments_that_do_not_fit_are_refused_by_both_transports_alike() {
    let long = "x".repeat(200_000);
    let with = |member: &str| format!(r#"{{"request_id":"h","title":"t","body":"b",{member}}}"#);
    let key = |key: &str| format!(r#"{{"request_id":{key},"title":"t","body":"b"}}"#);
    let title = |title: &str| format!(r#"{{"request_id":"h","title":{title},"body":"b"}}"#);
    let body = |body: &str| format!(r#"{{"request_id":"h","title":"t","body":{body}}}"#);
    let deep = format!("{}{}", "[".repeat(50), "]".repeat(50));
    let cases = [
        invalid("NUL in a title", &title(r#""a\u0000b""#)),
        invalid("NUL in a body", &body(r#""\u0000""#)),
        invalid("NUL in a key", &key(r#""a\u0000b""#)),
        invalid("NUL in an argument's name", &with(r#""a\u0000":1"#)),
        invalid("a control character in a key", &key(r#""a\u001bb""#)),
        invalid("a control character in a title", &title(r#""a\u0007b""#)),
        invalid("two lines in a title", &title(r#""a\nb""#)),
        invalid("an empty key", &key(r#""""#)),
        invalid("a key of white space", &key(r#"" ""#)),
        invalid("white space at a key's end", &key(r#""k ""#)),
        invalid("wide white space at a key's start", &key(r#""\u3000k""#)),
        invalid("a key of 65", &key(&format!("\"{}\"", "k".repeat(65)))),
        invalid("a key of 65 emoji", &key(&format!("\"{}\"", "😀".repeat(65)))),
        invalid("a number as a key", &key("7")),
        invalid("null as a key", &key("null")),
        invalid("a list as a key", &key(r#"["k"]"#)),
        invalid("no key", r#"{"title":"t","body":"b"}"#),
        invalid("no arguments", "{}"),
        invalid("no title", r#"{"request_id":"h","body":"b"}"#),
        invalid("null as a title", &title("null")),
        invalid("a number as a title", &title("12345678901234567890123456789")),
        invalid("a truth as a title", &title("true")),
        invalid("an object as a title", &title(r#"{"a":1}"#)),
        invalid("an empty title", &title(r#""""#)),
        invalid("a blank title", &title(r#""   ""#)),
        invalid("a title of 201", &title(&format!("\"{}\"", "t".repeat(201)))),
        invalid(
            "a body of 64 KiB and one byte",
            &body(&format!("\"{}\"", "b".repeat(65_537))),
        ),
        invalid("an unknown argument", &with(r#""colour":"red""#)),
        invalid("an unknown argument with a long name", &with(&format!(r#""{long}":1"#))),
        invalid("many unknown levels", &with(&format!(r#""deep":{deep}"#))),
        too_deep(
            "1,000 levels",
            &with(&format!(r#""deep":{}{}"#, "[".repeat(1_000), "]".repeat(1_000))),
        ),
        unreadable("a lone leading surrogate", &title(r#""\ud800""#)),
        unreadable("a lone trailing surrogate", &title(r#""\udc00x""#)),
        unreadable("surrogates in the wrong order", &key(r#""\udc00\ud800""#)),
        unreadable("a number past every range", &with(r#""n":1e999"#)),
        unreadable("half an object", r#"{"request_id":"h","#),
        unreadable("a trailing comma", r#"{"request_id":"h","title":"t","body":"b",}"#),
        unreadable(
            "a raw control character",
            "{\"request_id\":\"h\",\"title\":\"a\u{1}b\",\"body\":\"b\"}",
        ),
    ];
    refuses_all(cases.into_iter().flatten().collect()).await;
}
