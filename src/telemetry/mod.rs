//! What is seen from outside: logs, traces and metrics.
//!
//! Logs are a line per call at info, and errors once where they are handled, each with its trace and span. Spans and metrics go out
//! over OTLP where the standard `OTEL_*` variables name an endpoint. Identifiers are fields; arguments, results, tokens and who
//! calls never are.

mod export;
mod log;
pub mod metrics;
pub mod trace;
mod watch;

use std::time::Duration;

use opentelemetry::trace::TracerProvider as _;
use opentelemetry::{KeyValue, global};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::metrics::SdkMeterProvider;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tokio::sync::oneshot;
use tracing::Subscriber;
use tracing_subscriber::filter::{FilterExt, LevelFilter};
use tracing_subscriber::layer::{Filter, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, filter};

use crate::config::LogFormat;

/// What is logged unless RUST_LOG says otherwise.
const DEFAULT: &str = "info";

/// What is logged at most, whatever RUST_LOG says. Other people's code prints requests, and with them arguments, results and tokens,
/// when it is asked for more than warnings. rmcp logs several lines a request, an error for every caller that leaves, and the messages
/// that clients are told. The listener's connection comes from a pool of sqlx's own, which complains when it is closed. What an
/// exporter has to complain of is said once a minute, in words of our own.
const AT_MOST: [(&str, LevelFilter); 7] = [
    ("ticket_ledger", LevelFilter::TRACE),
    ("rmcp", LevelFilter::OFF),
    ("sqlx_core::pool", LevelFilter::ERROR),
    ("opentelemetry", LevelFilter::OFF),
    ("opentelemetry_sdk", LevelFilter::OFF),
    ("opentelemetry_otlp", LevelFilter::OFF),
    ("opentelemetry-otlp", LevelFilter::OFF),
];

/// How long the last spans and the last metrics, side by side, may take at the end.
const LAST_EXPORT: Duration = Duration::from_millis(2_500);

/// Running exporters.
#[derive(Debug)]
pub struct Telemetry {
    traces: SdkTracerProvider,
    metrics: SdkMeterProvider,
}

impl Telemetry {
    /// Sends what is left. A collector that does not take it is not waited for.
    pub async fn finish(self) {
        let (traces, metrics) = (self.traces, self.metrics);
        tokio::join!(
            last(move || traces.shutdown_with_timeout(LAST_EXPORT)),
            last(move || metrics.shutdown_with_timeout(LAST_EXPORT)),
        );
    }
}

/// Does this on a thread of its own, that the end of the process does not wait for as it does for the runtime's.
async fn last<T>(shutdown: impl FnOnce() -> T + Send + 'static) {
    let (done, finished) = oneshot::channel();
    std::thread::spawn(move || {
        shutdown();
        let _ = done.send(());
    });
    let _ = tokio::time::timeout(LAST_EXPORT, finished).await;
}

/// Starts the logs, traces and metrics of a replica. Does nothing when they have been started.
///
/// # Errors
/// An `OTEL_*` variable that cannot be understood; the sentence says which.
pub fn start(format: LogFormat, replica: &str, hash_request_ids: bool) -> Result<Telemetry, String> {
    // TLS towards a collector.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let resource = resource(replica);
    let (traces, exporting) = export::traces(resource.clone())?;
    let metrics = export::metrics(resource)?;
    trace::set_up(exporting, hash_request_ids);
    global::set_text_map_propagator(TraceContextPropagator::new());
    global::set_meter_provider(metrics.clone());
    // Every series begins now, at 0: a counter that is born with its first event has no increase for alerts to see.
    metrics::instruments();
    // Where nobody collects them, spans below a call's own are not even made.
    let level = if exporting {
        LevelFilter::DEBUG
    } else {
        LevelFilter::INFO
    };
    let spans = tracing_opentelemetry::layer()
        .with_tracer(traces.tracer("ticket-ledger"))
        .with_location(false)
        .with_threads(false)
        .with_target(false)
        .with_level(false)
        .with_tracked_inactivity(false)
        .with_filter(filter::filter_fn(move |metadata| {
            metadata.is_span() && metadata.target().starts_with("ticket_ledger") && level >= *metadata.level()
        }));
    let _ = tracing_subscriber::registry()
        .with(spans)
        .with(log::layer(format).with_filter(log_filter(DEFAULT)))
        .try_init();
    Ok(Telemetry { traces, metrics })
}

/// Starts logs alone, for a command that a person runs, at a level of its own unless RUST_LOG says otherwise.
pub fn start_logs(format: LogFormat, filter: Option<&str>) {
    let _ = tracing_subscriber::registry()
        .with(log::layer(format).with_filter(log_filter(filter.unwrap_or(DEFAULT))))
        .try_init();
}

/// What RUST_LOG, or this, asks for, within what may be logged at all.
fn log_filter<S>(default: &str) -> impl Filter<S> + use<S>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    let asked = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(default));
    let at_most = filter::Targets::new()
        .with_default(LevelFilter::WARN)
        .with_targets(AT_MOST);
    asked.and(at_most)
}

fn resource(replica: &str) -> Resource {
    let mut resource = Resource::builder();
    if export::variable("OTEL_SERVICE_NAME").is_none() {
        resource = resource.with_service_name("ticket-ledger");
    }
    resource
        .with_attribute(KeyValue::new("service.instance.id", replica.to_owned()))
        .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")))
        .build()
}
