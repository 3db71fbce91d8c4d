//! Log lines: JSON or for eyes, each with the trace and the span that it belongs to.

use std::fmt;
use std::io::IsTerminal;

use opentelemetry::trace::{SpanContext, TraceContextExt};
use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use crate::config::LogFormat;

/// Writes to standard error.
pub(super) fn layer<S>(format: LogFormat) -> Box<dyn Layer<S> + Send + Sync>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    let layer = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal());
    match format {
        LogFormat::Json => layer.event_format(Json).boxed(),
        LogFormat::Text => layer.event_format(Text).boxed(),
    }
}

/// The span that an event belongs to, if there is one.
fn span_of<S, N>(context: &FmtContext<'_, S, N>) -> Option<SpanContext>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'w> FormatFields<'w> + 'static,
{
    let id = context.lookup_current()?.id();
    let found = tracing::dispatcher::get_default(|dispatch| tracing_opentelemetry::get_otel_context(&id, dispatch))?;
    let span = found.span().span_context().clone();
    span.is_valid().then_some(span)
}

/// One flat object a line.
struct Json;

impl<S, N> FormatEvent<S, N> for Json
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'w> FormatFields<'w> + 'static,
{
    fn format_event(&self, context: &FmtContext<'_, S, N>, mut writer: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let mut line = Map::new();
        let mut now = String::new();
        SystemTime.format_time(&mut Writer::new(&mut now))?;
        line.insert("timestamp".to_owned(), Value::from(now));
        line.insert("level".to_owned(), Value::from(event.metadata().level().as_str()));
        event.record(&mut Members(&mut line));
        line.insert("target".to_owned(), Value::from(event.metadata().target()));
        if let Some(span) = span_of(context) {
            line.insert("trace_id".to_owned(), Value::from(span.trace_id().to_string()));
            line.insert("span_id".to_owned(), Value::from(span.span_id().to_string()));
        }
        writeln!(writer, "{}", Value::Object(line))
    }
}

/// A line for eyes: when, how bad, what, and its fields; the spans' own are for traces.
struct Text;

impl<S, N> FormatEvent<S, N> for Text
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'w> FormatFields<'w> + 'static,
{
    fn format_event(&self, context: &FmtContext<'_, S, N>, mut writer: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let mut fields = Map::new();
        event.record(&mut Members(&mut fields));
        SystemTime.format_time(&mut writer)?;
        let level = *event.metadata().level();
        if writer.has_ansi_escapes() {
            write!(writer, " \x1b[{}m{level:>5}\x1b[0m", colour(level))?;
        } else {
            write!(writer, " {level:>5}")?;
        }
        if let Some(message) = fields.remove("message") {
            write!(writer, " {}", plain(&message, false))?;
        }
        for (name, value) in &fields {
            write!(writer, " {name}={}", plain(value, true))?;
        }
        if let Some(span) = span_of(context) {
            write!(writer, " trace_id={} span_id={}", span.trace_id(), span.span_id())?;
        }
        writeln!(writer)
    }
}

fn colour(level: Level) -> u8 {
    match level {
        Level::ERROR => 31,
        Level::WARN => 33,
        Level::INFO => 32,
        _ => 2,
    }
}

/// A value as it stands in a line: a text that would end the line, or steer a terminal, has its characters spelled out, and a field's
/// stands in quotes if it has a space in it.
fn plain(value: &Value, is_field: bool) -> String {
    let Value::String(text) = value else {
        return value.to_string();
    };
    if is_field && (text.is_empty() || text.contains([' ', '"', '='])) {
        return format!("{text:?}");
    }
    let mut plain = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '"' | '\'' | '\\' => plain.push(character),
            other => plain.extend(other.escape_debug()),
        }
    }
    plain
}

/// An event's fields as members.
struct Members<'a>(&'a mut Map<String, Value>);

impl Members<'_> {
    fn put(&mut self, field: &Field, value: impl Into<Value>) {
        self.0.insert(field.name().to_owned(), value.into());
    }
}

impl Visit for Members<'_> {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field, value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, value);
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.put(field, format!("{value:?}"));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::plain;

    #[test]
    fn a_value_stays_on_its_line_and_steers_no_terminal() {
        assert_eq!(plain(&Value::from("two words"), false), "two words");
        assert_eq!(plain(&Value::from("two words"), true), "\"two words\"");
        assert_eq!(plain(&Value::from("a\nb\u{1b}[31m"), false), "a\\nb\\u{1b}[31m");
        assert_eq!(plain(&Value::from("a\nb"), true), "a\\nb");
        assert_eq!(plain(&Value::from(7), true), "7");
    }
}
