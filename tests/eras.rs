//! Every era of MCP, without sessions, with plain JSON answers; and one ledger behind all of them and HTTP.

use rmcp::model::{CallToolRequestParams, ClientCapabilities, ClientConfig, Implementation, ProtocolVersion};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use rmcp::{ClientLifecycleMode, ClientServiceExt, ServiceExt};
use serde_json::{Value, json};

use crate::support::calls::{Answer, client, ticket};
use crate::support::raw::Raw;
use crate::support::replica::Replica;
use crate::support::scene::Scene;

const MODERN: &str = "2026-07-28";
const LEGACY: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];

/// A request of an older era. Before 2025-06-18 there was no header for the version.
fn legacy(era: &str, message: &Value) -> Raw {
    let raw = Raw::mcp(message.to_string());
    if era < "2025-06-18" {
        raw.without("mcp-protocol-version")
    } else {
        raw.header("mcp-protocol-version", era)
    }
}

fn request(method: &str, params: Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": "an id", "method": method, "params": params })
}

fn create(request_id: &str) -> Value {
    json!({ "name": "create_ticket", "arguments": ticket(request_id, "One title") })
}

/// A call of create_ticket in this era, as its bytes.
fn call(era: &str, request_id: &str) -> Raw {
    if era == MODERN {
        Raw::modern("tools/call", Some("create_ticket"), create(request_id))
    } else {
        legacy(era, &request("tools/call", create(request_id)))
    }
}

/// What every good answer has in common: JSON, at once and whole, and no session.
fn plain(answer: &Answer) -> &Value {
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(answer.headers["content-type"], "application/json");
    assert!(answer.headers.get("mcp-session-id").is_none(), "{answer:?}");
    assert!(answer.headers.get("content-length").is_some(), "{answer:?}");
    assert_eq!(answer.body["jsonrpc"], "2.0");
    &answer.body["result"]
}

#[tokio::test]
async fn older_eras_begin_with_initialize_and_need_no_session() {
    let scene = Scene::new().await;
    let [one, two] = scene.replicas().await;
    for era in LEGACY {
        let hello =
            json!({ "protocolVersion": era, "capabilities": {}, "clientInfo": { "name": "test", "version": "1" } });
        let answer = legacy(era, &request("initialize", hello)).send(&one).await;
        let result = plain(&answer);
        assert_eq!(
            (&result["protocolVersion"], &answer.body["id"]),
            (&json!(era), &json!("an id")),
            "{result}"
        );
        assert!(result["capabilities"]["tools"].is_object(), "{result}");
        assert!(
            result["instructions"]
                .as_str()
                .is_some_and(|text| text.contains("request_id")),
            "{result}"
        );
        let initialized = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
        let answer = legacy(era, &initialized).send(&two).await;
        assert_eq!((answer.status, &answer.body), (202, &json!("")), "{answer:?}");

        // Whatever comes next may reach another replica, which knows nothing of the first.
        let answer = legacy(era, &request("tools/list", json!({}))).send(&two).await;
        assert_eq!(plain(&answer)["tools"].as_array().map(Vec::len), Some(7), "{answer:?}");
        let answer = legacy(era, &request("ping", json!({}))).send(&two).await;
        assert!(plain(&answer).is_object());
        let answer = call(era, &format!("in {era}")).send(&two).await;
        assert_eq!(plain(&answer)["structuredContent"]["replayed"], false, "{answer:?}");
        let answer = call(era, &format!("in {era}"))
            .header("mcp-session-id", "left over")
            .send(&one)
            .await;
        assert_eq!(plain(&answer)["structuredContent"]["replayed"], true, "{answer:?}");
    }
    assert_eq!(scene.tickets().await, 4);
}

#[tokio::test]
async fn the_newest_era_needs_no_handshake() {
    let scene = Scene::new().await;
    let [replica] = scene.replicas().await;
    let answer = Raw::modern("server/discover", None, json!({})).send(&replica).await;
    let discovered = plain(&answer);
    let versions = discovered["supportedVersions"].as_array().expect("versions");
    for era in LEGACY.into_iter().chain([MODERN]) {
        assert!(versions.contains(&json!(era)), "{discovered}");
    }
    assert!(discovered["capabilities"]["tools"].is_object(), "{discovered}");
    assert!(
        discovered["instructions"]
            .as_str()
            .is_some_and(|text| text.contains("request_id")),
        "{discovered}"
    );

    let answer = Raw::modern("tools/list", None, json!({})).send(&replica).await;
    let listed = plain(&answer);
    assert_eq!(listed["tools"].as_array().map(Vec::len), Some(7), "{listed}");
    assert_eq!(listed["cacheScope"], "private", "{listed}");
    assert!(listed["ttlMs"].as_u64().is_some_and(|ttl| ttl > 0), "{listed}");
    let answer = call(MODERN, "modern").send(&replica).await;
    let called = plain(&answer);
    assert_eq!(
        (&called["resultType"], &called["isError"]),
        (&json!("complete"), &json!(false)),
        "{called}"
    );
}

#[tokio::test]
async fn a_call_of_one_era_is_replayed_in_every_other_and_over_http() {
    let scene = Scene::new().await;
    let [one, two] = scene.replicas().await;
    for first in LEGACY.into_iter().chain([MODERN]) {
        let key = format!("first in {first}");
        let answer = call(first, &key).send(&one).await;
        let mut expected = plain(&answer)["structuredContent"].clone();
        assert_eq!(expected["replayed"], false, "{answer:?}");
        expected["replayed"] = json!(true);
        for then in LEGACY.into_iter().chain([MODERN]) {
            let answer = call(then, &key).send(&two).await;
            assert_eq!(plain(&answer)["structuredContent"], expected, "{first}, then {then}");
        }
        let over_http = two.create(&key, "One title").await;
        assert_eq!(
            (over_http.status, &over_http.body),
            (200, &expected),
            "{first}, then HTTP"
        );
    }
    let over_http = one.create("first over HTTP", "One title").await;
    for then in ["2024-11-05", "2025-11-25", MODERN] {
        let answer = call(then, "first over HTTP").send(&two).await;
        let replayed = &plain(&answer)["structuredContent"];
        assert_eq!(
            (&replayed["replayed"], &replayed["ticket_id"]),
            (&json!(true), &over_http.body["ticket_id"])
        );
    }
}

#[tokio::test]
async fn the_json_rpc_id_is_no_key() {
    let scene = Scene::new().await;
    let [replica] = scene.replicas().await;
    for era in ["2025-11-25", MODERN] {
        for key in ["a", "b"] {
            // The same id for two intents, as every reconnecting client sends it.
            let answer = call(era, &format!("{key} in {era}")).send(&replica).await;
            assert_eq!(plain(&answer)["structuredContent"]["replayed"], false, "{answer:?}");
        }
    }
    assert_eq!(scene.tickets().await, 4);
}

#[tokio::test]
async fn a_client_that_leaves_stops_nothing() {
    let scene = Scene::new().await;
    let replica = scene.replica().with("WORK_MS", 1_000).ready().await;
    let over_http = Raw::api("POST", "/tickets", ticket("left HTTP", "One title").to_string());
    let calls = [
        ("left HTTP", over_http),
        ("left 2024-11-05", call("2024-11-05", "left 2024-11-05")),
        ("left 2025-11-25", call("2025-11-25", "left 2025-11-25")),
        ("left 2026-07-28", call(MODERN, "left 2026-07-28")),
    ];
    for (key, call) in calls {
        let connection = call.begin(&replica).await;
        scene.until(key, "running").await;
        drop(connection);
        let cancelled = json!({ "jsonrpc": "2.0", "method": "notifications/cancelled",
            "params": { "requestId": "an id", "reason": "the client left" } });
        assert_eq!(legacy("2025-11-25", &cancelled).send(&replica).await.status, 202);
        let row = scene.until(key, "done").await;
        assert_eq!((row.attempt, row.lapses), (1, 0), "{key}: {row:?}");
        let again = replica.create(key, "One title").await;
        assert_eq!(
            (again.status, &again.body["replayed"]),
            (200, &json!(true)),
            "{again:?}"
        );
    }
    assert_eq!(scene.tickets().await, 4);
}

type Client = rmcp::service::RunningService<rmcp::RoleClient, ClientConfig>;

/// rmcp's own client; an era of `initialize`, or none for 2026-07-28.
async fn rmcp_client(replica: &Replica, era: Option<ProtocolVersion>) -> Client {
    let uri = format!("http://{}/mcp", replica.address);
    let settings = StreamableHttpClientTransportConfig::with_uri(uri);
    let transport = StreamableHttpClientTransport::with_client(client().clone(), settings);
    let me = ClientConfig::new(ClientCapabilities::default(), Implementation::new("test", "1"));
    match era {
        Some(era) => me
            .with_protocol_version(era)
            .serve(transport)
            .await
            .expect("initializes"),
        None => {
            let preferred_versions = vec![ProtocolVersion::V_2026_07_28];
            let mode = ClientLifecycleMode::Discover { preferred_versions };
            me.serve_with_lifecycle(transport, mode).await.expect("discovers")
        }
    }
}

async fn call_tool(client: &Client, tool: &'static str, arguments: Value) -> Value {
    let Value::Object(arguments) = arguments else {
        panic!("no arguments: {arguments}")
    };
    let params = CallToolRequestParams::new(tool).with_arguments(arguments);
    client
        .call_tool(params)
        .await
        .expect("an answer")
        .structured_content
        .expect("structured content")
}

#[tokio::test]
async fn rmcps_own_client_is_served_in_both_eras() {
    let scene = Scene::new().await;
    let [one, two] = scene.replicas().await;
    let eras = [
        Some(ProtocolVersion::V_2025_06_18),
        Some(ProtocolVersion::V_2025_11_25),
        None,
    ];
    for (place, era) in eras.into_iter().enumerate() {
        let expected = era.clone().unwrap_or(ProtocolVersion::V_2026_07_28);
        let client = rmcp_client(&one, era.clone()).await;
        let peer = client.peer_info().expect("a peer");
        assert_eq!(peer.protocol_version, expected);
        let tools = client.list_all_tools().await.expect("tools");
        assert_eq!(tools.len(), 7, "{tools:?}");
        let minted = call_tool(&client, "new_request_id", json!({})).await;
        let key = minted["request_id"].as_str().expect("a text");
        let created = call_tool(&client, "create_ticket", ticket(key, "By rmcp")).await;
        assert_eq!(created["replayed"], false, "{created}");
        client.cancel().await.expect("leaves");

        let client = rmcp_client(&two, era).await;
        let found = call_tool(&client, "find_request", json!({ "request_id": key })).await;
        assert_eq!(
            (&found["status"], &found["result"]["ticket_id"]),
            (&json!("done"), &created["ticket_id"])
        );
        let replayed = call_tool(&client, "create_ticket", ticket(key, "By rmcp")).await;
        assert_eq!(
            (&replayed["replayed"], &replayed["ticket_id"]),
            (&json!(true), &created["ticket_id"])
        );
        let conflict = call_tool(&client, "create_ticket", ticket(key, "Another title")).await;
        assert_eq!(conflict["error"]["code"], "conflict");
        let unknown = client.call_tool(CallToolRequestParams::new("drop_tables")).await;
        assert!(matches!(unknown, Err(rmcp::ServiceError::McpError(error)) if error.code.0 == -32_602));
        client.cancel().await.expect("leaves");
        assert_eq!(scene.tickets().await, place as i64 + 1);
    }
}
