//! Spans across processes: where a call comes from, which attempt did its work, and the links between them.

use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, Ordering};

use opentelemetry::global;
use opentelemetry::propagation::{Extractor, Injector};
use opentelemetry::trace::{SpanContext, Status, TraceContextExt};
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt;

/// Longest `traceparent` and `tracestate` that are read, in bytes: what the standard asks for.
const LONGEST: usize = 512;

static EXPORTING: AtomicBool = AtomicBool::new(false);
static HASH_REQUEST_IDS: AtomicBool = AtomicBool::new(false);

/// Whether spans go somewhere, and whether they carry a hash in the place of each request_id.
pub(super) fn set_up(exporting: bool, hash_request_ids: bool) {
    EXPORTING.store(exporting, Ordering::Relaxed);
    HASH_REQUEST_IDS.store(hash_request_ids, Ordering::Relaxed);
}

/// The headers of W3C trace context that are read, wherever they came.
#[derive(Debug, Default, Clone)]
pub struct Parent {
    /// `traceparent`.
    pub traceparent: Option<String>,
    /// `tracestate`.
    pub tracestate: Option<String>,
}

impl Extractor for Parent {
    fn get(&self, name: &str) -> Option<&str> {
        let value = match name {
            "traceparent" => self.traceparent.as_deref(),
            "tracestate" => self.tracestate.as_deref(),
            _ => None,
        };
        value.filter(|value| value.len() <= LONGEST)
    }

    fn keys(&self) -> Vec<&str> {
        vec!["traceparent", "tracestate"]
    }
}

impl Parent {
    fn context(&self) -> Option<opentelemetry::Context> {
        self.traceparent.as_ref()?;
        let context =
            global::get_text_map_propagator(|reader| reader.extract_with_context(&opentelemetry::Context::new(), self));
        context.span().span_context().is_valid().then_some(context)
    }
}

/// Makes a span that has not begun yet the child of what a caller sent, if it sent something that can be read.
pub fn adopt(span: &Span, parent: &Parent) -> bool {
    parent.context().is_some_and(|context| span.set_parent(context).is_ok())
}

struct Text<'a>(&'a mut Option<String>);

impl Injector for Text<'_> {
    fn set(&mut self, name: &str, value: String) {
        if name == "traceparent" {
            *self.0 = Some(value);
        }
    }
}

/// A span's place as `traceparent`, to be kept beside what it does. `None` where spans go nowhere.
pub fn place(span: &Span) -> Option<String> {
    if !EXPORTING.load(Ordering::Relaxed) {
        return None;
    }
    let mut text = None;
    global::get_text_map_propagator(|writer| writer.inject_context(&span.context(), &mut Text(&mut text)));
    text
}

/// Links a span to the place of another one, on whatever replica and however long ago.
pub fn link(span: &Span, place: Option<&str>) {
    let Some(place) = place else { return };
    let other = Parent {
        traceparent: Some(place.to_owned()),
        tracestate: None,
    };
    if let Some(context) = other.context() {
        let other: SpanContext = context.span().span_context().clone();
        if other.span_id() != span.context().span().span_context().span_id() {
            span.add_link(other);
        }
    }
}

/// Links a span to another one of this process.
pub fn link_to(span: &Span, other: &Span) {
    span.add_link(other.context().span().span_context().clone());
}

/// Whether what is done now is done for a call or for a request, and may have a span. What a replica does by itself makes no traces:
/// they would bury the calls.
pub fn is_traced() -> bool {
    !Span::current().is_none()
}

/// Gives a span that has begun the name that is known only now.
pub fn rename(span: &Span, name: String) {
    span.context().span().update_name(name);
}

/// Ends a span for whoever collects it, now or when this is dropped. Else it would stay open for as long as anything below it goes on,
/// such as an attempt that outlasts the call that it was begun for.
#[derive(Debug)]
pub struct Ends(pub Span);

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.context().span().end();
    }
}

/// Says that a span ended badly, and how, in the conventions' words.
pub fn fail(span: &Span, kind: impl Into<Cow<'static, str>>) {
    let kind = kind.into();
    span.set_attribute("error.type", kind.clone());
    span.set_status(Status::error(kind));
}

/// Says something of the call on its span. Never an argument, a result, a token or a caller.
pub fn say(name: &'static str, value: impl Into<opentelemetry::Value>) {
    say_on(&Span::current(), name, value);
}

/// Says something on a span. Never an argument, a result, a token or a caller.
pub fn say_on(span: &Span, name: &'static str, value: impl Into<opentelemetry::Value>) {
    span.set_attribute(name, value);
}

/// Says which request a span belongs to, or a hash of it where request_ids are not to leave.
pub fn say_request_id(span: &Span, request_id: &str) {
    use sha2::{Digest, Sha256};
    if span.is_disabled() {
        return;
    }
    if HASH_REQUEST_IDS.load(Ordering::Relaxed) {
        let hash = Sha256::digest(request_id.as_bytes());
        let hex: String = hash.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
        say_on(span, "ticket_ledger.request_id_hash", hex);
    } else {
        say_on(span, "ticket_ledger.request_id", request_id.to_owned());
    }
}
