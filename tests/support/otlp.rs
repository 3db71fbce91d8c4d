//! A collector: it takes OTLP over HTTP and keeps the spans.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::routing::post;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use prost::Message;

use super::eventually;
use super::replica::Start;

/// A span as it arrived.
#[derive(Debug, Clone)]
pub struct Span {
    pub name: String,
    pub trace: Vec<u8>,
    pub id: Vec<u8>,
    pub parent: Vec<u8>,
    /// (trace, span) of each.
    pub links: Vec<(Vec<u8>, Vec<u8>)>,
    pub attributes: HashMap<String, String>,
    /// From its start to its end.
    pub took: Duration,
    /// Whether its status says that it failed.
    pub failed: bool,
    /// `service.instance.id`: the replica's name.
    pub replica: String,
}

impl Span {
    pub fn attribute(&self, name: &str) -> &str {
        self.attributes.get(name).map_or("", String::as_str)
    }

    pub fn links_to(&self, other: &Span) -> bool {
        self.links.contains(&(other.trace.clone(), other.id.clone()))
    }
}

/// A running collector.
pub struct Collector {
    pub address: String,
    taken: Taken,
}

/// What a collector has, and how long it takes to take it.
#[derive(Clone, Default)]
struct Taken {
    spans: Arc<Mutex<Vec<Span>>>,
    compressed: Arc<AtomicBool>,
    slow: Duration,
}

impl Collector {
    pub async fn start() -> Self {
        Self::slow(Duration::ZERO).await
    }

    /// One that answers each export after a while.
    pub async fn slow(slow: Duration) -> Self {
        let taken = Taken {
            slow,
            ..Taken::default()
        };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("binds");
        let address = listener.local_addr().expect("an address").to_string();
        let router = Router::new()
            .route("/v1/traces", post(take))
            .route("/v1/metrics", post(|| async { "" }))
            .with_state(taken.clone());
        tokio::spawn(async { axum::serve(listener, router).await });
        Self { address, taken }
    }

    /// A replica that exports to it, soon.
    pub fn watching(&self, start: Start, name: &str) -> Start {
        start
            .with("OTEL_EXPORTER_OTLP_ENDPOINT", format!("http://{}", self.address))
            .with("OTEL_BSP_SCHEDULE_DELAY", 100)
            .with("REPLICA_NAME", name)
    }

    pub fn spans(&self) -> Vec<Span> {
        self.taken.spans.lock().expect("the spans").clone()
    }

    /// Whether an export came compressed; what was in it is not kept.
    pub fn was_compressed(&self) -> bool {
        self.taken.compressed.load(Ordering::SeqCst)
    }

    /// Waits for a span that fits.
    pub async fn span(&self, what: &str, fits: impl Fn(&Span) -> bool) -> Span {
        eventually(what, || async { self.spans().into_iter().find(&fits) }).await
    }

    /// Waits for the span of a call.
    pub async fn call(&self, request_id: &str, replica: &str, outcome: &str) -> Span {
        self.span(&format!("a span of {request_id} on {replica}: {outcome}"), |span| {
            span.attribute("ticket_ledger.request_id") == request_id
                && span.replica == replica
                && span.attribute("ticket_ledger.outcome") == outcome
        })
        .await
    }

    /// Waits for a span of this name below another one, however deep.
    pub async fn below(&self, above: &Span, name: &str) -> Span {
        eventually(&format!("a span {name} below {}", above.name), || async {
            let spans = self.spans();
            let by_id: HashMap<_, _> = spans.iter().map(|span| (&span.id, span)).collect();
            let found = spans.iter().find(|span| {
                let mut parent = by_id.get(&span.parent);
                while let Some(span) = parent.filter(|parent| parent.id != above.id) {
                    parent = by_id.get(&span.parent);
                }
                span.name == name && parent.is_some() && span.trace == above.trace
            });
            found.cloned()
        })
        .await
    }
}

async fn take(State(taken): State<Taken>, headers: HeaderMap, body: Bytes) {
    tokio::time::sleep(taken.slow).await;
    if headers
        .get("content-encoding")
        .is_some_and(|encoding| encoding == "gzip")
    {
        assert!(body.starts_with(&[0x1f, 0x8b]), "it is not compressed");
        taken.compressed.store(true, Ordering::SeqCst);
        return;
    }
    let request = ExportTraceServiceRequest::decode(body).expect("OTLP");
    let mut spans = taken.spans.lock().expect("the spans");
    for resource in request.resource_spans {
        let of_resource = attributes(resource.resource.expect("a resource").attributes);
        let replica = of_resource.get("service.instance.id").cloned().unwrap_or_default();
        for span in resource.scope_spans.into_iter().flat_map(|scope| scope.spans) {
            spans.push(Span {
                name: span.name,
                trace: span.trace_id,
                id: span.span_id,
                parent: span.parent_span_id,
                links: span
                    .links
                    .into_iter()
                    .map(|link| (link.trace_id, link.span_id))
                    .collect(),
                attributes: attributes(span.attributes),
                took: Duration::from_nanos(span.end_time_unix_nano - span.start_time_unix_nano),
                failed: span
                    .status
                    .is_some_and(|status| status.code == StatusCode::Error as i32),
                replica: replica.clone(),
            });
        }
    }
}

fn attributes(list: Vec<opentelemetry_proto::tonic::common::v1::KeyValue>) -> HashMap<String, String> {
    list.into_iter()
        .map(|pair| {
            let value = match pair.value.and_then(|value| value.value) {
                Some(Any::StringValue(text)) => text,
                Some(Any::BoolValue(value)) => value.to_string(),
                Some(Any::IntValue(value)) => value.to_string(),
                Some(Any::DoubleValue(value)) => value.to_string(),
                other => format!("{other:?}"),
            };
            (pair.key, value)
        })
        .collect()
}
