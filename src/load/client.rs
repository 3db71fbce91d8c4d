//! One call as an MCP or HTTP client makes it: on a connection of its own.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};

use super::workload::{Way, Write};

/// What a call came to.
#[derive(Debug, Clone)]
pub enum Reply {
    /// An answer.
    Answer(Answer),
    /// None: the connection broke, or timed out.
    Lost(String),
}

/// An answer of the service, or of the balancer in its place.
#[derive(Debug, Clone)]
pub struct Answer {
    /// The HTTP status.
    pub status: u16,
    /// done, in_progress, an error's code, or `none`.
    pub outcome: String,
    /// Whether it is a replay, if it is done.
    pub replayed: Option<bool>,
    /// What the answer says was done.
    pub result: Option<BTreeMap<String, Value>>,
    /// The http_status that stands in an envelope over MCP.
    pub told_status: Option<u16>,
    /// Of rate_limited: whose limit it was.
    pub limit: Option<String>,
    /// When to come back.
    pub retry_after: Duration,
}

/// What find_request answered.
#[derive(Debug)]
pub struct Found {
    /// The HTTP status; 0 where there was no answer.
    pub http: u16,
    /// The request's status, an error's code, `none`, or `lost`.
    pub status: String,
    /// The stored result.
    pub result: Option<BTreeMap<String, Value>>,
    /// Whether what was made can be read, where that is said.
    pub visible: Option<bool>,
}

/// Makes calls to one base URL.
#[derive(Clone)]
pub struct Client {
    http: reqwest::Client,
    base: String,
}

impl Found {
    /// There was no answer.
    pub fn lost() -> Self {
        Self {
            http: 0,
            status: "lost".to_owned(),
            result: None,
            visible: None,
        }
    }
}

const MODERN: &str = "2026-07-28";
const LEGACY: &str = "2025-06-18";

impl Client {
    /// A client that keeps no connection.
    ///
    /// # Errors
    /// The TLS library cannot be started.
    pub fn new(base: &str, timeout: Duration) -> Result<Self, reqwest::Error> {
        // Whoever starts a TLS client first chooses its cryptography for the process; a second choice is refused, and fine.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut builder = reqwest::Client::builder()
            .no_proxy()
            .pool_max_idle_per_host(0)
            .timeout(timeout);
        if base.starts_with("http://") {
            builder = builder.tls_certs_only([]);
        }
        Ok(Self {
            http: builder.build()?,
            base: base.trim_end_matches('/').to_owned(),
        })
    }

    /// Whether anybody answers there.
    pub async fn is_answered(&self) -> bool {
        let asked = self.http.get(format!("{}/api/v1/requests", self.base)).send();
        matches!(tokio::time::timeout(Duration::from_secs(10), asked).await, Ok(Ok(_)))
    }

    /// Whether the operations of this path, below /api/v1, are offered.
    pub async fn offers(&self, path: &str) -> bool {
        let asked = self.http.get(format!("{}/api/v1/openapi.json", self.base)).send();
        let Ok(Ok(described)) = tokio::time::timeout(Duration::from_secs(10), asked).await else {
            return false;
        };
        let Ok((200, described)) = read(described).await else {
            return false;
        };
        let paths = described["paths"].as_object();
        paths.is_some_and(|paths| paths.keys().any(|place| place.ends_with(path)))
    }

    /// Makes a write, for whoever calls from `source`, as a balancer says it.
    pub async fn write(&self, way: Way, source: Option<&str>, request: &str, write: &Write) -> Reply {
        let mut arguments = write.arguments.clone();
        arguments["request_id"] = json!(request);
        let sent = match way {
            Way::Http => self.over_http(source, write.tool, arguments).await,
            Way::Modern => self.over_mcp(source, MODERN, write.tool, arguments).await,
            Way::Legacy => self.after_initialize(source, write.tool, arguments).await,
        };
        match sent {
            Ok((status, body)) => {
                let enveloped = way != Way::Http && write.tool == "post_entry";
                Reply::Answer(understand(way, enveloped, request, status, &body))
            }
            Err(error) => Reply::Lost(reason(&error)),
        }
    }

    /// Asks find_request; `None` when the answer was lost.
    pub async fn find(&self, request: &str) -> Option<Found> {
        let asked = self
            .http
            .get(format!("{}/api/v1/requests", self.base))
            .query(&[("request_id", request)]);
        let (http, body) = read(asked.send().await.ok()?).await.ok()?;
        let status = body["status"].as_str().filter(|_| body["request_id"] == request);
        Some(Found {
            http,
            status: status.or(body["error"]["code"].as_str()).unwrap_or("none").to_owned(),
            result: serde_json::from_value(body["result"].clone()).ok(),
            visible: body["visible"].as_bool(),
        })
    }

    async fn over_http(
        &self,
        source: Option<&str>,
        tool: &str,
        mut arguments: Value,
    ) -> Result<(u16, Value), reqwest::Error> {
        let ticket = arguments["ticket_id"].as_str().unwrap_or_default().to_owned();
        let (method, path) = match tool {
            "set_ticket_status" => (reqwest::Method::PUT, format!("/tickets/{ticket}/status")),
            "add_comment" => (reqwest::Method::POST, format!("/tickets/{ticket}/comments")),
            "post_entry" => (reqwest::Method::POST, "/entries".to_owned()),
            _ => (reqwest::Method::POST, "/tickets".to_owned()),
        };
        if let Value::Object(members) = &mut arguments {
            members.remove("ticket_id");
        }
        let request = self
            .http
            .request(method, format!("{}/api/v1{path}", self.base))
            .json(&arguments);
        read(called_from(source, request).send().await?).await
    }

    async fn over_mcp(
        &self,
        source: Option<&str>,
        version: &str,
        tool: &str,
        arguments: Value,
    ) -> Result<(u16, Value), reqwest::Error> {
        let mut params = json!({ "name": tool, "arguments": arguments });
        if version == MODERN {
            params["_meta"] = json!({
                "io.modelcontextprotocol/protocolVersion": MODERN,
                "io.modelcontextprotocol/clientCapabilities": {},
            });
        }
        self.rpc(source, version, "tools/call", Some(tool), params).await
    }

    async fn after_initialize(
        &self,
        source: Option<&str>,
        tool: &str,
        arguments: Value,
    ) -> Result<(u16, Value), reqwest::Error> {
        let hello = json!({
            "protocolVersion": LEGACY,
            "capabilities": {},
            "clientInfo": { "name": "ticket-ledger-load", "version": env!("CARGO_PKG_VERSION") },
        });
        self.rpc(source, LEGACY, "initialize", None, hello).await?;
        self.over_mcp(source, LEGACY, tool, arguments).await
    }

    async fn rpc(
        &self,
        source: Option<&str>,
        version: &str,
        method: &str,
        tool: Option<&str>,
        params: Value,
    ) -> Result<(u16, Value), reqwest::Error> {
        let mut request = self
            .http
            .post(format!("{}/mcp", self.base))
            .header("accept", "application/json, text/event-stream")
            .header("mcp-protocol-version", version);
        if version == MODERN {
            request = request
                .header("mcp-method", method)
                .header("mcp-name", tool.unwrap_or_default());
        }
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        read(called_from(source, request).json(&body).send().await?).await
    }
}

/// A request as a balancer hands it on for whoever called from there.
fn called_from(source: Option<&str>, request: reqwest::RequestBuilder) -> reqwest::RequestBuilder {
    match source {
        Some(source) => request.header("x-forwarded-for", source),
        None => request,
    }
}

async fn read(response: reqwest::Response) -> Result<(u16, Value), reqwest::Error> {
    let status = response.status().as_u16();
    let text = response.text().await?;
    Ok((status, serde_json::from_str(&text).unwrap_or(Value::Null)))
}

fn reason(error: &reqwest::Error) -> String {
    let kind = if error.is_timeout() {
        "timed out"
    } else if error.is_connect() {
        "could not connect"
    } else {
        "the connection broke"
    };
    kind.to_owned()
}

/// Reads an answer as its caller would: by its own words, not by the server's types.
fn understand(way: Way, enveloped: bool, request: &str, status: u16, body: &Value) -> Answer {
    let result = &body["result"];
    let structured = &result["structuredContent"];
    // A replica that is stopping answers MCP with a bare HTTP error.
    let (content, garbled) = if way == Way::Http || structured.is_null() {
        (body, false)
    } else if enveloped {
        (&structured["data"], !says_one_thing(result, &structured["data"]))
    } else {
        (structured, !says_one_thing(result, structured))
    };
    let code = content["error"]["code"].as_str();
    let outcome = match content["status"].as_str() {
        _ if garbled => "garbled",
        Some(_) if code.is_some() || content["request_id"] != request => "garbled",
        Some(status) => status,
        None => code.unwrap_or("none"),
    };
    let mut result: Option<BTreeMap<String, Value>> = None;
    if outcome == "done" {
        let mut members: BTreeMap<String, Value> = serde_json::from_value(content.clone()).unwrap_or_default();
        for around in ["request_id", "status", "replayed", "next"] {
            members.remove(around);
        }
        result = Some(members);
    }
    let retry_after = content["retry_after_seconds"]
        .as_u64()
        .or_else(|| content["error"]["retry_after_seconds"].as_u64())
        .unwrap_or(0);
    Answer {
        status,
        outcome: outcome.to_owned(),
        replayed: content["replayed"].as_bool(),
        result,
        told_status: structured["http_status"]
            .as_u64()
            .and_then(|status| u16::try_from(status).ok()),
        limit: content["error"]["limit"].as_str().map(str::to_owned),
        retry_after: Duration::from_secs(retry_after),
    }
}

/// Whether a tool's result says the same in its text as in its structured content, and is marked as an error if what it tells
/// is one.
fn says_one_thing(result: &Value, told: &Value) -> bool {
    let content = &result["structuredContent"];
    let text: Option<Value> = result["content"][0]["text"]
        .as_str()
        .and_then(|text| serde_json::from_str(text).ok());
    let is_error = result["isError"].as_bool().unwrap_or(false);
    text.as_ref() == Some(content) && is_error == told["error"].is_object()
}

/// A client for the load test's own questions, such as whether a replica is ready.
pub fn plain() -> Option<&'static reqwest::Client> {
    use std::sync::LazyLock;
    static PLAIN: LazyLock<Option<reqwest::Client>> = LazyLock::new(|| {
        let _ = rustls::crypto::ring::default_provider().install_default();
        reqwest::Client::builder()
            .no_proxy()
            .tls_certs_only([])
            .pool_max_idle_per_host(0)
            .build()
            .ok()
    });
    PLAIN.as_ref()
}
