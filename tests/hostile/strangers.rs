//! Callers that should not be here.

use serde_json::json;

use super::Expected::Http;
use super::refuses_all;
use crate::support::calls::ticket;
use crate::support::raw::Raw;

#[tokio::test]
async fn strangers_are_refused_by_host_and_origin_on_both_transports() {
    let mut cases = Vec::new();
    let http = || Raw::api("POST", "/tickets", ticket("h", "t").to_string());
    let mcp = || {
        Raw::modern(
            "tools/call",
            Some("create_ticket"),
            json!({ "name": "create_ticket", "arguments": ticket("h", "t") }),
        )
    };
    for request in [http, mcp as fn() -> Raw] {
        let refused = || Http(403, "forbidden");
        cases.push(("another host", request().header("host", "evil.example.org"), refused()));
        cases.push((
            "a host that looks alike",
            request().header("host", "localhost.evil.example.org"),
            refused(),
        ));
        cases.push((
            "a host behind a user",
            request().header("host", "localhost@evil.example.org"),
            refused(),
        ));
        cases.push((
            "a host in broken UTF-8",
            request().header("host", b"\xff\xfe"),
            refused(),
        ));
        cases.push(("an empty host", request().header("host", ""), refused()));
        cases.push(("no host", request().without("host"), refused()));
        cases.push((
            "a second host",
            request().and_header("host", "evil.example.org"),
            refused(),
        ));
        cases.push((
            "a second origin",
            request()
                .header("origin", "http://localhost")
                .and_header("origin", "https://evil.example.org"),
            refused(),
        ));
        cases.push((
            "another origin",
            request().header("origin", "https://evil.example.org"),
            refused(),
        ));
        cases.push(("no origin", request().header("origin", "null"), refused()));
        cases.push((
            "an origin that looks alike",
            request().header("origin", "http://localhost.evil.example.org"),
            refused(),
        ));
        cases.push((
            "an origin with a user",
            request().header("origin", "http://localhost:1@evil.example.org"),
            refused(),
        ));
        cases.push((
            "an origin in broken UTF-8",
            request().header("origin", b"\xff"),
            refused(),
        ));
    }
    cases.push((
        "another host in the target",
        http().start("POST http://evil.example.org/api/v1/tickets HTTP/1.1\r\n"),
        Http(403, "forbidden"),
    ));
    refuses_all(cases).await;
}
