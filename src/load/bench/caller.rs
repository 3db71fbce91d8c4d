//! A client that costs little: it shares the processors with what it measures.
//!
//! One thread, a task for each connection, requests that are bytes but for their key, and no more of HTTP than is needed.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::Instant;
use uuid::Uuid;

use super::cpu;

/// What the callers of a cell send.
#[derive(Clone)]
pub enum Keys {
    /// A new request_id each time.
    Fresh,
    /// One of these, which were answered before.
    Replayed(Arc<[Uuid]>),
}

/// What a cell came to.
#[derive(Debug)]
pub struct Sample {
    pub per_second: f64,
    /// How long each call took, in microseconds.
    pub took_us: Vec<u64>,
    /// Processor time of the client, in microseconds.
    pub client_us: u64,
    /// The request_ids that were answered.
    pub keys: Vec<Uuid>,
}

/// Calls create_ticket on `connections` connections for `span`.
///
/// # Errors
/// A sentence: no connection, or an answer that is not the expected one.
pub async fn call_for(port: u16, connections: usize, span: Duration, keys: Keys) -> Result<Sample, String> {
    let called = tokio::task::spawn_blocking(move || {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| error.to_string())?
            .block_on(call_all(port, connections, span, keys))
    });
    called.await.map_err(|error| error.to_string())?
}

async fn call_all(port: u16, connections: usize, span: Duration, keys: Keys) -> Result<Sample, String> {
    // A first call each, before the clock starts: connections and statements are made.
    let mut callers = Vec::new();
    for number in 0..connections {
        let keys = keys.clone();
        callers.push(tokio::spawn(async move {
            let mut caller = Caller::connect(port).await?;
            caller.call_one(&keys, number).await.map(|_| caller)
        }));
    }
    let mut ready = Vec::new();
    for caller in callers {
        ready.push(caller.await.map_err(|error| error.to_string())??);
    }
    let used_before = cpu::of_thread();
    let end = Instant::now() + span;
    let mut running = Vec::new();
    for (number, mut caller) in ready.into_iter().enumerate() {
        let keys = keys.clone();
        running.push(tokio::spawn(async move {
            let mut done = Vec::new();
            let mut next = number;
            loop {
                let sent = Instant::now();
                let key = caller.call_one(&keys, next).await?;
                let now = Instant::now();
                if now > end {
                    return Ok::<_, String>(done);
                }
                done.push((key, u64::try_from((now - sent).as_micros()).unwrap_or(u64::MAX)));
                next += connections;
            }
        }));
    }
    let mut sample = Sample {
        per_second: 0.0,
        took_us: Vec::new(),
        client_us: 0,
        keys: Vec::new(),
    };
    for caller in running {
        for (key, took_us) in caller.await.map_err(|error| error.to_string())?? {
            sample.keys.push(key);
            sample.took_us.push(took_us);
        }
    }
    sample.client_us = cpu::of_thread() - used_before;
    sample.per_second = sample.took_us.len() as f64 / span.as_secs_f64();
    Ok(sample)
}

/// One connection, kept.
pub struct Caller {
    stream: TcpStream,
    port: u16,
    request: Vec<u8>,
    response: Vec<u8>,
}

/// As long as an ordinary ticket's.
const BODY: &str = "The printer on the second floor has caught fire again, and the one beside it does not look well either. \
    Somebody has put a blanket over both of them; please send whoever mended the first one in spring.";

impl Caller {
    /// Connects to a replica.
    ///
    /// # Errors
    /// A sentence.
    pub async fn connect(port: u16) -> Result<Self, String> {
        let stream = TcpStream::connect(("127.0.0.1", port))
            .await
            .map_err(|error| format!("no connection to a replica: {error}"))?;
        // What is sent is whole; waiting for more to send along would only be slow.
        stream.set_nodelay(true).map_err(|error| error.to_string())?;
        Ok(Self {
            stream,
            port,
            request: Vec::new(),
            response: Vec::new(),
        })
    }

    async fn call_one(&mut self, keys: &Keys, number: usize) -> Result<Uuid, String> {
        let (key, replayed) = match keys {
            Keys::Fresh => (Uuid::now_v7(), false),
            Keys::Replayed(keys) => {
                let place = number.checked_rem(keys.len()).unwrap_or(0);
                (*keys.get(place).ok_or("nothing to replay")?, true)
            }
        };
        if self.create_ticket(key).await? == replayed {
            Ok(key)
        } else {
            Err(format!("an answer says that replayed is {}", !replayed))
        }
    }

    /// Calls create_ticket, and says whether the answer is a replay.
    ///
    /// # Errors
    /// A sentence: the connection broke, or the answer is not *done*.
    pub async fn create_ticket(&mut self, key: Uuid) -> Result<bool, String> {
        self.write_request(key);
        let lost = |error: std::io::Error| format!("an answer was lost: {error}");
        self.stream.write_all(&self.request).await.map_err(lost)?;
        self.response.clear();
        let (head, length) = loop {
            if let Some(head) = find(&self.response, b"\r\n\r\n") {
                break (head + 4, content_length(&self.response[..head])?);
            }
            self.read_more().await?;
        };
        while self.response.len() < head + length {
            self.read_more().await?;
        }
        let body = &self.response[head..];
        if find(body, br#""replayed":false"#).is_some() {
            Ok(false)
        } else if find(body, br#""replayed":true"#).is_some() {
            Ok(true)
        } else {
            Err(format!("unexpected answer: {}", String::from_utf8_lossy(body)))
        }
    }

    async fn read_more(&mut self) -> Result<(), String> {
        match self.stream.read_buf(&mut self.response).await {
            Ok(0) => Err("a connection was closed before its answer".to_owned()),
            Ok(_) => Ok(()),
            Err(error) => Err(format!("an answer was lost: {error}")),
        }
    }

    fn write_request(&mut self, key: Uuid) {
        // A title of its own, or every ticket would have twins.
        let body = format!(
            "{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{{\"name\":\"create_ticket\",\
             \"arguments\":{{\"request_id\":\"{key}\",\"title\":\"Ticket {key}\",\"body\":\"{BODY}\"}},\
             \"_meta\":{{\"io.modelcontextprotocol/protocolVersion\":\"2026-07-28\",\
             \"io.modelcontextprotocol/clientCapabilities\":{{}}}}}}}}"
        );
        self.request.clear();
        self.request.extend_from_slice(
            format!(
                "POST /mcp HTTP/1.1\r\nhost: 127.0.0.1:{}\r\ncontent-type: application/json\r\n\
                 accept: application/json, text/event-stream\r\nmcp-protocol-version: 2026-07-28\r\n\
                 mcp-method: tools/call\r\nmcp-name: create_ticket\r\ncontent-length: {}\r\n\r\n",
                self.port,
                body.len()
            )
            .as_bytes(),
        );
        self.request.extend_from_slice(body.as_bytes());
    }
}

fn find(text: &[u8], wanted: &[u8]) -> Option<usize> {
    text.windows(wanted.len()).position(|window| window == wanted)
}

fn content_length(head: &[u8]) -> Result<usize, String> {
    String::from_utf8_lossy(head)
        .lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(name, _)| name.eq_ignore_ascii_case("content-length"))
        .and_then(|(_, value)| value.trim().parse().ok())
        .ok_or_else(|| "an answer does not say how long it is".to_owned())
}
