//! Requests as their bytes go over the wire, so that they can be wrong in every place.

use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::calls::Answer;
use super::replica::Replica;

/// A request; nothing is added to it but its length.
#[derive(Debug, Clone)]
pub struct Raw {
    start: Vec<u8>,
    headers: Vec<(String, Vec<u8>)>,
    body: Vec<u8>,
}

impl Raw {
    /// A request with this method and target, addressed to localhost, without a body.
    pub fn new(method: &str, target: &str) -> Self {
        let raw = Self {
            start: format!("{method} {target} HTTP/1.1\r\n").into_bytes(),
            headers: Vec::new(),
            body: Vec::new(),
        };
        raw.header("host", "localhost").header("connection", "close")
    }

    /// A request below /api/v1 with a JSON body, as it stands.
    pub fn api(method: &str, path: &str, body: impl Into<Vec<u8>>) -> Self {
        Self::new(method, &format!("/api/v1{path}"))
            .header("content-type", "application/json")
            .body(body)
    }

    /// A POST to /mcp of an older era, with a body as it stands.
    pub fn mcp(body: impl Into<Vec<u8>>) -> Self {
        Self::new("POST", "/mcp")
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream")
            .header("mcp-protocol-version", "2025-11-25")
            .body(body)
    }

    /// A POST to /mcp of 2026-07-28, with the headers that belong to this method and name.
    pub fn modern(method: &str, name: Option<&str>, params: Value) -> Self {
        let mut params = params;
        params["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
        });
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        let raw = Self::mcp(body.to_string())
            .header("mcp-protocol-version", "2026-07-28")
            .header("mcp-method", method);
        match name {
            Some(name) => raw.header("mcp-name", name),
            None => raw,
        }
    }

    /// Sets a header, in place of one with the same name.
    pub fn header(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
        self.headers.retain(|(given, _)| given != name);
        self.headers.push((name.to_owned(), value.as_ref().to_vec()));
        self
    }

    /// Adds a header beside those with the same name.
    pub fn and_header(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
        self.headers.push((name.to_owned(), value.as_ref().to_vec()));
        self
    }

    /// Leaves a header out.
    pub fn without(mut self, name: &str) -> Self {
        self.headers.retain(|(given, _)| given != name);
        self
    }

    /// Sets the body.
    pub fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        self
    }

    /// Sets what stands before the headers.
    pub fn start(mut self, start: impl Into<Vec<u8>>) -> Self {
        self.start = start.into();
        self
    }

    /// What goes before the body.
    fn head(&self) -> Vec<u8> {
        let mut bytes = self.start.clone();
        for (name, value) in &self.headers {
            bytes.extend_from_slice(name.as_bytes());
            bytes.extend_from_slice(b": ");
            bytes.extend_from_slice(value);
            bytes.extend_from_slice(b"\r\n");
        }
        let framed = self.headers.iter().any(|(name, _)| name == "transfer-encoding");
        if !framed && !self.headers.iter().any(|(name, _)| name == "content-length") {
            bytes.extend_from_slice(format!("content-length: {}\r\n", self.body.len()).as_bytes());
        }
        bytes.extend_from_slice(b"\r\n");
        bytes
    }

    /// All that goes over the wire.
    pub fn bytes(&self) -> Vec<u8> {
        [self.head(), self.body.clone()].concat()
    }

    /// Sends head and body and leaves the connection to the caller.
    pub async fn begin(&self, replica: &Replica) -> TcpStream {
        let mut stream = TcpStream::connect(&replica.address).await.expect("connects");
        stream.write_all(&self.head()).await.expect("the head is sent");
        stream.write_all(&self.body).await.expect("the body is sent");
        stream
    }

    /// Sends it and reads the answer.
    pub async fn send(&self, replica: &Replica) -> Answer {
        let stream = TcpStream::connect(&replica.address).await.expect("connects");
        let (mut reading, mut writing) = stream.into_split();
        let (head, body) = (self.head(), self.body.clone());
        // Written beside the reading: a server may answer before it has read everything.
        let sending = tokio::spawn(async move {
            let _ = writing.write_all(&head).await;
            let _ = writing.write_all(&body).await;
            writing
        });
        let mut bytes = Vec::new();
        let read = tokio::time::timeout(super::DEADLINE, reading.read_to_end(&mut bytes)).await;
        read.expect("an answer in time").expect("an answer that is not cut off");
        sending.abort();
        parse(&bytes)
    }
}

/// An answer from its bytes.
pub fn parse(bytes: &[u8]) -> Answer {
    let text = String::from_utf8_lossy(bytes);
    let (head, body) = text
        .split_once("\r\n\r\n")
        .unwrap_or_else(|| panic!("no HTTP answer: {text:?}"));
    let mut lines = head.lines();
    let status = lines
        .next()
        .and_then(|line| line.split(' ').nth(1))
        .and_then(|status| status.parse().ok())
        .unwrap_or_else(|| panic!("no status: {head:?}"));
    let mut headers = HeaderMap::new();
    for (name, value) in lines.filter_map(|line| line.split_once(": ")) {
        headers.append(
            HeaderName::from_bytes(name.as_bytes()).expect("a name"),
            HeaderValue::from_str(value).expect("a value"),
        );
    }
    let body = serde_json::from_str(body).unwrap_or_else(|_| Value::String(body.to_owned()));
    Answer { status, headers, body }
}
