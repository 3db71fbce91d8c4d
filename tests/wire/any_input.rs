//! Whatever bytes, headers, tokens and cursors come in: nothing panics, nothing is a 5xx but 502 and 503, and the next caller is
//! served as ever.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::DEADLINE;
use crate::support::calls::ticket;
use crate::support::issuer::{Issuer, PUBLIC_URL, Signer, base64};
use crate::support::replica::Replica;
use crate::support::scene::Scene;

/// How many inputs of each kind.
const CASES: u32 = 300;

/// JSON of any shape, some of it with the members that calls have.
fn any_json() -> impl Strategy<Value = Value> {
    let name = prop_oneof![
        "[a-z_]{0,8}".boxed(),
        proptest::sample::select(vec![
            "request_id",
            "title",
            "body",
            "ticket_id",
            "ticket_status",
            "cursor",
            "query",
            "jsonrpc",
            "id",
            "method",
            "params",
            "name",
            "arguments",
            "_meta",
        ])
        .prop_map(str::to_owned)
        .boxed(),
    ];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
        proptest::sample::select(vec![
            "2.0",
            "tools/call",
            "tools/list",
            "create_ticket",
            "list_tickets",
            "initialize"
        ])
        .prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 40, 6, move |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            proptest::collection::vec((name.clone(), inner), 0..6)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

fn any_body() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..200),
        any_json().prop_map(|json| json.to_string().into_bytes()),
        // What was whole once.
        (any_json(), any::<proptest::sample::Index>()).prop_map(|(json, end)| {
            let bytes = json.to_string().into_bytes();
            bytes[..end.index(bytes.len() + 1)].to_vec()
        }),
    ]
}

fn any_head() -> impl Strategy<Value = String> {
    let method = proptest::sample::select(vec!["GET", "POST", "PUT", "DELETE", "OPTIONS", "HEAD", "PATCH", "x"]);
    let path = prop_oneof![
        proptest::sample::select(vec![
            "/mcp",
            "/api/v1/tickets",
            "/api/v1/tickets/T-0/status",
            "/api/v1/tickets/T-0/comments",
            "/api/v1/requests",
            "/api/v1/request-ids",
            "/.well-known/oauth-protected-resource",
        ])
        .prop_map(str::to_owned)
        .boxed(),
        "/api/v1/[!-~]{0,30}".boxed(),
        "/[!-~]{0,30}".boxed(),
    ];
    let name = prop_oneof![
        proptest::sample::select(vec![
            "content-type",
            "accept",
            "idempotency-key",
            "mcp-protocol-version",
            "mcp-method",
            "mcp-name",
            "mcp-session-id",
            "origin",
            "x-forwarded-for",
            "traceparent",
            "tracestate",
            "expect",
            "te",
            "upgrade",
            "cookie",
            "authorization",
            "forwarded",
        ])
        .prop_map(str::to_owned)
        .boxed(),
        "[a-z-]{1,12}".boxed(),
    ];
    let headers = proptest::collection::vec((name, "[ -~\u{80}-\u{ff}]{0,40}"), 0..5);
    (method, path, headers).prop_map(|(method, path, headers)| {
        let lines = headers.into_iter().map(|(name, value)| format!("{name}: {value}\r\n"));
        format!("{method} {path} HTTP/1.1\r\n{}", lines.collect::<String>())
    })
}

fn any_token(good: String) -> impl Strategy<Value = String> {
    let parts: Vec<String> = good.split('.').map(str::to_owned).collect();
    let part = move |index: usize| {
        prop_oneof![
            Just(parts[index].clone()).boxed(),
            any_json().prop_map(|json| base64(json.to_string())).boxed(),
            proptest::collection::vec(any::<u8>(), 0..60).prop_map(base64).boxed(),
            "[!-~]{0,20}".boxed(),
        ]
    };
    prop_oneof![
        "[!-~]{0,100}".boxed(),
        "ticketledger_[!-~]{0,60}".boxed(),
        (part(0), part(1), part(2))
            .prop_map(|(head, claims, signature)| format!("{head}.{claims}.{signature}"))
            .boxed(),
        (any::<proptest::sample::Index>(), any::<u8>())
            .prop_map(move |(at, byte)| {
                let mut bytes = good.clone().into_bytes();
                let at = at.index(bytes.len());
                bytes[at] = byte & 0x7f;
                String::from_utf8(bytes).unwrap_or_default()
            })
            .boxed(),
    ]
}

/// Sends bytes as they are; the status, or nothing where the connection was closed without an answer.
async fn status(replica: &Replica, bytes: &[u8]) -> Option<u16> {
    let mut stream = TcpStream::connect(&replica.address).await.expect("connects");
    let _ = stream.write_all(bytes).await;
    let mut answer = Vec::new();
    let read = tokio::time::timeout(DEADLINE, stream.read_to_end(&mut answer)).await;
    let _ = read.expect("an answer in time");
    let text = String::from_utf8_lossy(&answer);
    text.split(' ').nth(1).and_then(|status| status.parse().ok())
}

fn whole(head: &str, further: &str, body: &[u8]) -> Vec<u8> {
    let mut bytes = format!(
        "{head}host: localhost\r\nconnection: close\r\n{further}content-length: {}\r\n\r\n",
        body.len()
    )
    .into_bytes();
    bytes.extend_from_slice(body);
    bytes
}

/// Makes inputs, sends each, and looks at its status.
async fn all<S: Strategy>(replica: &Replica, strategy: S, bytes: impl Fn(&S::Value) -> Vec<u8>) {
    let mut runner = TestRunner::new(Config::with_cases(CASES));
    for _ in 0..CASES {
        let input = strategy.new_tree(&mut runner).expect("an input").current();
        let status = status(replica, &bytes(&input)).await;
        let good = status.is_none_or(|status| status < 500 || [502, 503].contains(&status));
        assert!(good, "{status:?} to {input:?}");
    }
}

async fn unharmed(replica: &Replica, token: &str, scene: &Scene) {
    let answer = replica.by(token).create("afterwards", "All is well").await;
    assert_eq!(answer.status, 201, "{answer:?}");
    let panicked = replica.log().iter().any(|line| line.to_string().contains("panicked"));
    assert!(!panicked, "{:#?}", replica.log());
    assert_eq!(
        scene
            .count("select count(*) from requests where status <> 'done'")
            .await,
        0
    );
}

#[tokio::test]
async fn whatever_comes_in_is_answered_and_nothing_breaks() {
    let scene = Scene::new().await;
    let key = Signer::es256("a");
    let issuer = Issuer::with(&[&key]).await;
    let replica = scene
        .replica()
        .with("AUTH", "token,oauth")
        .with("PUBLIC_URL", PUBLIC_URL)
        .with("OAUTH_ISSUER", &issuer.url)
        .ready()
        .await;
    let token = scene.token("any", &["--scopes", "tickets:read,tickets:write"]).await;
    let bearer = format!("authorization: Bearer {token}\r\n");
    // Heads and bodies of strangers, and of somebody who is let in.
    all(&replica, (any_head(), any_body()), |(head, body)| whole(head, "", body)).await;
    all(&replica, (any_head(), any_body()), |(head, body)| {
        whole(&head.replace("authorization", "x-authorization"), &bearer, body)
    })
    .await;
    let json = "content-type: application/json\r\naccept: application/json, text/event-stream\r\n";
    let known = format!("{bearer}{json}");
    for path in ["/mcp", "/api/v1/tickets"] {
        let head = format!("POST {path} HTTP/1.1\r\n");
        all(&replica, any_body(), |body| whole(&head, &known, body)).await;
    }
    let call = |arguments: &Value| {
        let params = json!({ "name": "create_ticket", "arguments": arguments });
        json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params }).to_string()
    };
    all(&replica, any_json(), |arguments| {
        whole("POST /mcp HTTP/1.1\r\n", &known, call(arguments).as_bytes())
    })
    .await;
    // Tokens, near to good ones and far from them.
    let good = key.token(&issuer.claims("anna", "tickets:read"));
    all(&replica, any_token(good), |token| {
        whole(
            "GET /api/v1/tickets HTTP/1.1\r\n",
            &format!("authorization: Bearer {token}\r\n"),
            b"",
        )
    })
    .await;
    // Cursors.
    let cursor = prop_oneof![
        "[A-Za-z0-9_-]{0,60}".boxed(),
        "-?[0-9]{0,20}\\.[ -~]{0,20}"
            .prop_map(|text| URL_SAFE_NO_PAD.encode(text))
            .boxed(),
        proptest::collection::vec(any::<u8>(), 0..40)
            .prop_map(|bytes| URL_SAFE_NO_PAD.encode(bytes))
            .boxed(),
    ];
    all(&replica, cursor, |cursor| {
        whole(
            &format!("GET /api/v1/tickets?cursor={cursor} HTTP/1.1\r\n"),
            &bearer,
            b"",
        )
    })
    .await;
    // Bytes that are no HTTP at all.
    all(&replica, proptest::collection::vec(any::<u8>(), 0..300), |bytes| {
        [bytes.as_slice(), b"\r\n\r\n"].concat()
    })
    .await;
    unharmed(&replica, &token, &scene).await;
    let body = ticket("afterwards", "All is well").to_string();
    let again = status(
        &replica,
        &whole("POST /api/v1/tickets HTTP/1.1\r\n", &known, body.as_bytes()),
    )
    .await;
    assert_eq!(again, Some(200));
}
