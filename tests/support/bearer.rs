//! Calls with an access token.

use serde_json::{Value, json};

use super::calls::{Answer, client, ticket};
use super::replica::Replica;
use super::scene::Scene;

/// A caller of one replica, with what it sends as its token.
#[derive(Clone, Copy)]
pub struct Bearer<'a> {
    replica: &'a Replica,
    token: Option<&'a str>,
}

impl Replica {
    /// Calls with this token.
    pub fn by<'a>(&'a self, token: &'a str) -> Bearer<'a> {
        Bearer {
            replica: self,
            token: Some(token),
        }
    }

    /// Calls without a token.
    pub fn by_nobody(&self) -> Bearer<'_> {
        Bearer {
            replica: self,
            token: None,
        }
    }
}

impl Bearer<'_> {
    async fn send(&self, request: reqwest::RequestBuilder) -> Answer {
        let request = match self.token {
            Some(token) => request.header("authorization", format!("Bearer {token}")),
            None => request,
        };
        Answer::read(request.send().await.expect("an answer")).await
    }

    /// Below /api/v1.
    pub async fn http(&self, method: &str, path: &str, body: Option<&Value>) -> Answer {
        let url = format!("http://{}/api/v1{path}", self.replica.address);
        let mut request = client().request(method.parse().expect("a method"), url);
        if let Some(body) = body {
            request = request.json(body);
        }
        self.send(request).await
    }

    /// create_ticket over HTTP.
    pub async fn create(&self, request_id: &str, title: &str) -> Answer {
        self.http("POST", "/tickets", Some(&ticket(request_id, title))).await
    }

    /// A tool over MCP, with its HTTP status.
    pub async fn mcp(&self, tool: &str, arguments: Value) -> Answer {
        self.send(self.replica.mcp_request(tool, arguments)).await
    }

    /// A tool's structured content.
    pub async fn tool(&self, tool: &str, arguments: Value) -> Value {
        let answer = self.mcp(tool, arguments).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.body["result"]["structuredContent"].clone()
    }

    /// What find_request tells.
    pub async fn find(&self, request_id: &str) -> Value {
        self.tool("find_request", json!({ "request_id": request_id })).await
    }

    /// The names of the tools that are listed.
    pub async fn tools(&self) -> Vec<String> {
        let listed = self.send(self.replica.modern("tools/list", json!({}))).await;
        let tools = listed.body["result"]["tools"].as_array().cloned();
        let tools = tools.unwrap_or_else(|| panic!("no tools: {listed:?}"));
        assert_eq!(listed.body["result"]["cacheScope"], "private");
        tools
            .iter()
            .map(|tool| tool["name"].as_str().expect("a name").to_owned())
            .collect()
    }
}

impl Answer {
    /// The challenge of a 401 or 403.
    pub fn challenge(&self) -> &str {
        let challenge = self
            .headers
            .get("www-authenticate")
            .and_then(|value| value.to_str().ok());
        challenge.unwrap_or_default()
    }
}

impl Scene {
    /// Issues a token.
    pub async fn token(&self, name: &str, further: &[&str]) -> String {
        let arguments = [&["token", "issue", name][..], further].concat();
        let (status, token, said) = self.admin(&arguments).await;
        assert_eq!(status, 0, "{said}");
        token
    }
}
