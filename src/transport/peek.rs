//! A look at an MCP message before it is handed on: its method, its tool and where it comes from, for spans and metrics.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::Value;
use tracing::field::Empty;
use tracing::{Span, info_span};

use crate::telemetry::trace::{self, Parent};

/// The methods that metrics name; any other is `other`.
const METHODS: [&str; 8] = [
    "initialize",
    "ping",
    "server/discover",
    "tools/list",
    "tools/call",
    "notifications/initialized",
    "notifications/cancelled",
    "subscriptions/listen",
];

/// What is looked at. What does not fit is left to those who refuse it.
#[derive(Default, Deserialize)]
pub struct Peek<'a> {
    #[serde(borrow, default)]
    method: Option<Cow<'a, str>>,
    #[serde(default)]
    id: Option<Value>,
    #[serde(borrow, default)]
    params: Option<Params<'a>>,
}

#[derive(Deserialize)]
struct Params<'a> {
    #[serde(borrow, default)]
    name: Option<Cow<'a, str>>,
    #[serde(rename = "_meta", borrow, default)]
    meta: Option<Meta<'a>>,
}

#[derive(Deserialize)]
struct Meta<'a> {
    #[serde(borrow, default)]
    traceparent: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    tracestate: Option<Cow<'a, str>>,
    #[serde(rename = "io.modelcontextprotocol/protocolVersion", borrow, default)]
    version: Option<Cow<'a, str>>,
}

impl<'a> Peek<'a> {
    pub fn at(bytes: &'a [u8]) -> Self {
        serde_json::from_slice(bytes).unwrap_or_default()
    }

    /// The method, as one of a bounded set.
    pub fn method(&self) -> &'static str {
        let named = self.method.as_deref().unwrap_or_default();
        METHODS.into_iter().find(|method| *method == named).unwrap_or("other")
    }

    /// The tool that is called.
    pub fn tool(&self) -> Option<&str> {
        self.params.as_ref()?.name.as_deref()
    }

    /// Whether the message wants no answer.
    pub fn is_notification(&self) -> bool {
        self.method
            .as_deref()
            .is_some_and(|method| method.starts_with("notifications/"))
    }

    /// The span of the method: below the caller's own span if its `_meta` names one, and then linked to the span of the HTTP
    /// request; else below that one.
    pub fn span(&self, method: &'static str, tool: Option<&'static str>) -> Span {
        let http = Span::current();
        let span = info_span!(
            "mcp",
            otel.name = tool.map_or_else(|| method.to_owned(), |tool| format!("{method} {tool}")),
            otel.kind = "server",
            mcp.method.name = method,
            gen_ai.tool.name = tool,
            gen_ai.operation.name = tool.map(|_| "execute_tool"),
            mcp.protocol.version = Empty,
            jsonrpc.request.id = Empty,
        );
        match &self.id {
            Some(Value::String(id)) if id.len() <= 64 => {
                span.record("jsonrpc.request.id", id.as_str());
            }
            Some(Value::Number(id)) => {
                span.record("jsonrpc.request.id", id.to_string());
            }
            _ => {}
        }
        let Some(meta) = self.params.as_ref().and_then(|params| params.meta.as_ref()) else {
            return span;
        };
        if let Some(version) = meta.version.as_deref().filter(|version| version.len() <= 16) {
            span.record("mcp.protocol.version", version);
        }
        let owned = |text: &Option<Cow<'_, str>>| text.as_deref().map(str::to_owned);
        let parent = Parent {
            traceparent: owned(&meta.traceparent),
            tracestate: owned(&meta.tracestate),
        };
        if trace::adopt(&span, &parent) {
            trace::link_to(&span, &http);
        }
        span
    }
}
