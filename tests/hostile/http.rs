//! Bodies, headers, paths and queries that are no call over HTTP.

use serde_json::json;

use super::Expected::{Bare, Http};
use super::refuses_all;
use crate::support::calls::ticket;
use crate::support::raw::Raw;

#[tokio::test]
async fn bodies_that_are_no_call_are_refused_over_http() {
    let good = ticket("h", "t").to_string();
    let post = |body: &[u8]| Raw::api("POST", "/tickets", body);
    let large = |bytes: usize| json!({ "request_id": "h", "title": "t", "body": "x".repeat(bytes) }).to_string();
    let bad = || Http(400, "invalid_argument");
    let cases = vec![
        ("nothing", post(b""), bad()),
        (
            "broken UTF-8",
            post(b"{\"request_id\":\"h\",\"title\":\"\xff\xfe\",\"body\":\"b\"}"),
            bad(),
        ),
        (
            "a surrogate in UTF-8",
            post(b"{\"request_id\":\"h\",\"title\":\"\xed\xa0\x80\",\"body\":\"b\"}"),
            bad(),
        ),
        ("a byte order mark", post(b"\xef\xbb\xbf{}"), bad()),
        ("a list", post(format!("[{good}]").as_bytes()), bad()),
        ("a text", post(b"\"x\""), bad()),
        ("null", post(b"null"), bad()),
        ("two objects", post(format!("{good}{good}").as_bytes()), bad()),
        (
            "10 MB",
            post(large(10_000_000).as_bytes()),
            Http(413, "invalid_argument"),
        ),
        (
            "10 MB in chunks",
            chunked(&large(10_000_000)),
            Http(413, "invalid_argument"),
        ),
        (
            "no Content-Type",
            post(good.as_bytes()).without("content-type"),
            Http(415, "invalid_argument"),
        ),
        (
            "a form",
            post(b"title=t").header("content-type", "application/x-www-form-urlencoded"),
            Http(415, "invalid_argument"),
        ),
        (
            "text/plain",
            post(good.as_bytes()).header("content-type", "text/plain"),
            Http(415, "invalid_argument"),
        ),
        (
            "only HTML accepted",
            post(good.as_bytes()).header("accept", "text/html"),
            Http(406, "invalid_argument"),
        ),
        (
            "JSON not accepted",
            post(good.as_bytes()).header("accept", "application/json;q=0"),
            Http(406, "invalid_argument"),
        ),
        (
            "arguments in the query",
            Raw::api("POST", "/tickets?title=t", good.as_str()),
            bad(),
        ),
        (
            "a length that is none",
            post(good.as_bytes()).header("content-length", "-1"),
            Bare(400),
        ),
        (
            "a chunk that is none",
            post(b"zz\r\n").header("transfer-encoding", "chunked"),
            bad(),
        ),
        (
            "a header that is none",
            post(good.as_bytes()).header("x y", "z"),
            Bare(400),
        ),
        (
            "a request line that is none",
            post(b"").start("\u{0}\u{1}\r\n"),
            Bare(400),
        ),
        (
            "endless headers",
            post(good.as_bytes()).header("x", "y".repeat(1_000_000)),
            Bare(431),
        ),
    ];
    refuses_all(cases).await;
}

fn chunked(body: &str) -> Raw {
    let mut bytes = Vec::new();
    for chunk in body.as_bytes().chunks(60_000) {
        bytes.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
        bytes.extend_from_slice(chunk);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes.extend_from_slice(b"0\r\n\r\n");
    Raw::api("POST", "/tickets", bytes).header("transfer-encoding", "chunked")
}

#[tokio::test]
async fn odd_keys_in_headers_are_refused() {
    let post = |key: &[u8]| Raw::api("POST", "/tickets", r#"{"title":"t","body":"b"}"#).header("idempotency-key", key);
    let both = Raw::api("POST", "/tickets", ticket("h", "t").to_string());
    let bad = || Http(400, "invalid_argument");
    let cases = vec![
        ("an empty key", post(b""), bad()),
        ("an empty key in quotes", post(b"\"\""), bad()),
        ("white space in quotes", post(b"\" k\""), bad()),
        ("a key of 65", post("k".repeat(65).as_bytes()), bad()),
        ("a key in broken UTF-8", post(b"k\xff"), bad()),
        ("a tab in a key", post(b"a\tb"), bad()),
        ("two keys", post(b"h").and_header("idempotency-key", "h"), bad()),
        (
            "another key than in the body",
            both.clone().header("idempotency-key", "i"),
            bad(),
        ),
        (
            "another case than in the body",
            both.header("idempotency-key", "H"),
            bad(),
        ),
        (
            "a number in the body",
            Raw::api("POST", "/tickets", r#"{"request_id":7,"title":"t","body":"b"}"#).header("idempotency-key", "7"),
            bad(),
        ),
    ];
    refuses_all(cases).await;
}

#[tokio::test]
async fn odd_paths_queries_and_cursors_are_refused() {
    use base64::Engine;
    let cursor = |text: &str| base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(text);
    let list = |query: &str| Raw::new("GET", &format!("/api/v1/tickets?{query}"));
    let get = |path: &str| Raw::new("GET", path);
    let bad = || Http(400, "invalid_argument");
    let missing = || Http(404, "not_found");
    let mut cases = vec![
        ("an unknown argument", list("colour=red"), bad()),
        ("an argument twice", list("query=a&query=b"), bad()),
        ("an unknown status", list("ticket_status=OPEN"), bad()),
        (
            "a long unknown status",
            list(&format!("ticket_status={}", "x".repeat(8_000))),
            bad(),
        ),
        ("NUL in a query", list("query=%00"), bad()),
        ("a query of 201", list(&format!("query={}", "x".repeat(201))), bad()),
        ("broken UTF-8 in a query", list("query=%ff"), bad()),
        ("broken UTF-8 in a key", get("/api/v1/requests?request_id=%ff"), bad()),
        ("no key", get("/api/v1/requests"), bad()),
        ("a key of white space", get("/api/v1/requests?request_id=%20"), bad()),
        ("NUL in a key", get("/api/v1/requests?request_id=a%00"), bad()),
        (
            "a key of 65",
            get(&format!("/api/v1/requests?request_id={}", "k".repeat(65))),
            bad(),
        ),
        ("a root", get("/"), missing()),
        ("half a path", get("/api/v1"), missing()),
        ("no such path", get("/api/v1/nothing"), missing()),
        ("a slash too many", get("/api/v1/tickets/"), missing()),
        ("two slashes", get("//api/v1/tickets"), missing()),
        ("capitals", get("/API/V1/tickets"), missing()),
        ("dots", get("/api/v1/../v1/tickets"), missing()),
        ("health is elsewhere", get("/livez"), missing()),
        (
            "a ticket that is not there",
            get("/api/v1/tickets/T-000000000000"),
            missing(),
        ),
        ("a slash in an id", get("/api/v1/tickets/%2F"), missing()),
        ("NUL in an id", get("/api/v1/tickets/T-%00"), bad()),
        ("broken UTF-8 in an id", get("/api/v1/tickets/%ff%fe"), bad()),
        (
            "an id of 65",
            get(&format!("/api/v1/tickets/{}", "T".repeat(65))),
            bad(),
        ),
        (
            "a path without end",
            get(&format!("/api/v1/tickets/{}", "T".repeat(20_000))),
            bad(),
        ),
        (
            "a wrong method",
            Raw::new("DELETE", "/api/v1/tickets"),
            Http(405, "invalid_argument"),
        ),
        (
            "an unknown method",
            Raw::new("BREW", "/api/v1/tickets"),
            Http(405, "invalid_argument"),
        ),
    ];
    for text in [
        "",
        "x",
        "1.",
        ".T-0",
        "1.T 0",
        "x.T-0",
        "-1.T-0",
        "1.1.T-0",
        "9223372036854775807.T-0",
        "-9223372036854775808.T-0",
        "99999999999999999999.T-0",
        "1.T-0\u{0}",
        "1.'; drop table tickets; --",
    ] {
        cases.push(("a broken cursor", list(&format!("cursor={}", cursor(text))), bad()));
        cases.push((
            "a broken cursor",
            get(&format!("/api/v1/tickets/T-0?cursor={}", cursor(text))),
            bad(),
        ));
    }
    for raw in ["%21", "a", "YQ==", "%F0%9F%98%80", &"A".repeat(400), "T-000000000000"] {
        cases.push(("a cursor that is none", list(&format!("cursor={raw}")), bad()));
    }
    refuses_all(cases).await;
}
