//! A look at an MCP message before it is handed on: its method, its tool and where it comes from, for spans and metrics.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;
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

/// What is looked at. A field that is not what it should be counts as absent and takes nothing else away: it is left to those who
/// refuse it.
#[derive(Default)]
pub struct Peek<'a> {
    method: Option<Cow<'a, str>>,
    id: Option<Value>,
    tool: Option<Cow<'a, str>>,
    traceparent: Option<Cow<'a, str>>,
    tracestate: Option<Cow<'a, str>>,
    version: Option<Cow<'a, str>>,
}

impl<'a> Peek<'a> {
    pub fn at(bytes: &'a [u8]) -> Self {
        let Ok(text) = std::str::from_utf8(bytes) else {
            return Self::default();
        };
        let [method, id, params] = members(Some(text), ["method", "id", "params"]);
        let [tool, meta] = members(params, ["name", "_meta"]);
        let [traceparent, tracestate, version] = members(
            meta,
            ["traceparent", "tracestate", "io.modelcontextprotocol/protocolVersion"],
        );
        Self {
            method: read(method),
            id: read(id),
            tool: read(tool),
            traceparent: read(traceparent),
            tracestate: read(tracestate),
            version: read(version),
        }
    }

    /// The method, as one of a bounded set.
    pub fn method(&self) -> &'static str {
        let named = self.method.as_deref().unwrap_or_default();
        METHODS.into_iter().find(|method| *method == named).unwrap_or("other")
    }

    /// The tool that is called.
    pub fn tool(&self) -> Option<&str> {
        self.tool.as_deref()
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
        if let Some(version) = self.version.as_deref().filter(|version| version.len() <= 16) {
            span.record("mcp.protocol.version", version);
        }
        let owned = |text: &Option<Cow<'_, str>>| text.as_deref().map(str::to_owned);
        let parent = Parent {
            traceparent: owned(&self.traceparent),
            tracestate: owned(&self.tracestate),
        };
        if trace::adopt(&span, &parent) {
            trace::link_to(&span, &http);
        }
        span
    }
}

/// A value of this kind, or none.
fn read<'a, T: Deserialize<'a>>(value: Option<&'a str>) -> Option<T> {
    serde_json::from_str(value?).ok()
}

/// Some members of an object as they stand; of anything else there are none.
fn members<'a, const N: usize>(object: Option<&'a str>, names: [&'static str; N]) -> [Option<&'a str>; N] {
    let picked = object.and_then(|object| {
        let mut reader = serde_json::Deserializer::from_str(object);
        Pick(names).deserialize(&mut reader).ok()
    });
    picked.unwrap_or([None; N])
}

struct Pick<const N: usize>([&'static str; N]);

impl<'a, const N: usize> DeserializeSeed<'a> for Pick<N> {
    type Value = [Option<&'a str>; N];

    fn deserialize<D: Deserializer<'a>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'a, const N: usize> Visitor<'a> for Pick<N> {
    type Value = [Option<&'a str>; N];

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'a>>(self, mut object: A) -> Result<Self::Value, A::Error> {
        let mut picked = [None; N];
        while let Some(name) = object.next_key::<Cow<'a, str>>()? {
            match self.0.iter().zip(&mut picked).find(|(wanted, _)| **wanted == name) {
                Some((_, place)) => *place = Some(object.next_value::<&'a RawValue>()?.get()),
                None => drop(object.next_value::<IgnoredAny>()?),
            }
        }
        Ok(picked)
    }
}

#[cfg(test)]
mod tests {
    use super::Peek;

    #[test]
    fn what_does_not_fit_takes_nothing_else_away() {
        let peek = |text: &'static str| Peek::at(text.as_bytes());
        let whole =
            r#"{"id":7,"method":"tools/call","params":{"name":"a","arguments":{},"_meta":{"traceparent":"b"}}}"#;
        assert_eq!((peek(whole).method(), peek(whole).tool()), ("tools/call", Some("a")));
        assert_eq!(peek(whole).traceparent.as_deref(), Some("b"));
        for meta in [
            "5",
            "[1]",
            r#"{"traceparent":{"a":1}}"#,
            r#"{"traceparent":5,"tracestate":"c"}"#,
        ] {
            let text = format!(r#"{{"method":"tools/call","params":{{"name":"a","_meta":{meta}}}}}"#);
            let peek = Peek::at(text.as_bytes());
            assert_eq!((peek.method(), peek.tool()), ("tools/call", Some("a")), "{text}");
        }
        assert!(peek(r#"{"method":"notifications/initialized","params":[1],"id":{}}"#).is_notification());
        // The last one counts.
        assert_eq!(peek(r#"{"method":1,"method":"ping"}"#).method(), "ping");
        for text in ["", "7", "[]", "{", "{\"method\":"] {
            assert_eq!(
                (peek(text).method(), peek(text).is_notification()),
                ("other", false),
                "{text}"
            );
        }
    }
}
