//! Calls as clients make them: over HTTP and over MCP, each on a connection of its own.

use std::sync::LazyLock;

use serde_json::{Map, Value, json};

use super::replica::Replica;

static CLIENT: LazyLock<reqwest::Client> = LazyLock::new(|| {
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder()
        .no_proxy()
        .tls_certs_only([])
        .pool_max_idle_per_host(0)
        .timeout(super::DEADLINE)
        .build()
        .expect("a client")
});

/// The client that all tests share; it keeps no connection.
pub fn client() -> &'static reqwest::Client {
    &CLIENT
}

/// An answer over HTTP.
#[derive(Debug, Clone)]
pub struct Answer {
    pub status: u16,
    pub headers: reqwest::header::HeaderMap,
    pub body: Value,
}

impl Answer {
    /// Reads a response to its end.
    pub async fn read(response: reqwest::Response) -> Self {
        let status = response.status().as_u16();
        let headers = response.headers().clone();
        let text = response.text().await.unwrap_or_default();
        let body = serde_json::from_str(&text).unwrap_or(Value::String(text));
        Self { status, headers, body }
    }

    /// `error.code`, or nothing.
    pub fn code(&self) -> &str {
        self.body["error"]["code"].as_str().unwrap_or_default()
    }

    /// A member that is a text.
    pub fn text(&self, member: &str) -> &str {
        self.body[member]
            .as_str()
            .unwrap_or_else(|| panic!("no {member} in {self:?}"))
    }
}

impl Replica {
    /// Calls below /api/v1; an error is a lost answer.
    pub async fn http(&self, method: &str, path: &str, body: Option<&Value>) -> Result<Answer, reqwest::Error> {
        let url = format!("http://{}/api/v1{path}", self.address);
        let method = reqwest::Method::from_bytes(method.as_bytes()).expect("a method");
        let mut request = client().request(method, url);
        if let Some(body) = body {
            request = request.json(body);
        }
        Ok(Answer::read(request.send().await?).await)
    }

    /// POST below /api/v1.
    pub async fn post(&self, path: &str, body: &Value) -> Answer {
        self.http("POST", path, Some(body)).await.expect("an answer")
    }

    /// GET below /api/v1.
    pub async fn get(&self, path: &str) -> Answer {
        self.http("GET", path, None).await.expect("an answer")
    }

    /// create_ticket over HTTP.
    pub async fn create(&self, request_id: &str, title: &str) -> Answer {
        self.post("/tickets", &ticket(request_id, title)).await
    }

    /// find_request over HTTP: its status.
    pub async fn find(&self, request_id: &str) -> Value {
        self.find_answer(request_id).await.body
    }

    /// find_request over HTTP.
    pub async fn find_answer(&self, request_id: &str) -> Answer {
        let answer = client()
            .get(format!("http://{}/api/v1/requests", self.address))
            .query(&[("request_id", request_id)])
            .send()
            .await
            .expect("an answer");
        Answer::read(answer).await
    }

    /// GET on the admin address.
    pub async fn admin(&self, path: &str) -> Answer {
        let url = format!("http://{}{path}", self.admin_address);
        Answer::read(client().get(url).send().await.expect("an answer")).await
    }

    /// A tool over MCP 2026-07-28: the whole JSON-RPC response, with its HTTP status.
    pub async fn mcp(&self, tool: &str, arguments: Value) -> Answer {
        Answer::read(self.mcp_request(tool, arguments).send().await.expect("an answer")).await
    }

    /// The request that calls a tool over MCP 2026-07-28.
    pub fn mcp_request(&self, tool: &str, arguments: Value) -> reqwest::RequestBuilder {
        let params = json!({ "name": tool, "arguments": arguments });
        self.modern("tools/call", params).header("mcp-name", tool)
    }

    /// The request of a method of MCP 2026-07-28.
    pub fn modern(&self, method: &str, mut params: Value) -> reqwest::RequestBuilder {
        params["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
        });
        client()
            .post(format!("http://{}/mcp", self.address))
            .header("accept", "application/json, text/event-stream")
            .header("mcp-protocol-version", "2026-07-28")
            .header("mcp-method", method)
            .json(&json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }))
    }

    /// A tool over MCP: its structured content.
    pub async fn tool(&self, tool: &str, arguments: Value) -> Map<String, Value> {
        let answer = self.mcp(tool, arguments).await;
        answer.body["result"]["structuredContent"]
            .as_object()
            .unwrap_or_else(|| panic!("no structured content: {answer:?}"))
            .clone()
    }
}

/// The arguments of create_ticket.
pub fn ticket(request_id: &str, title: &str) -> Value {
    json!({ "request_id": request_id, "title": title, "body": "A body." })
}
