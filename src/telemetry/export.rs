//! OTLP over HTTP and gRPC, as the standard `OTEL_*` variables say. An exporter that is down, slow or refuses costs calls nothing:
//! it has a thread and a bounded queue of its own, what does not fit is dropped and counted, and it says so once a minute.

use std::time::Duration;

use opentelemetry_otlp::{MetricExporter, SpanExporter};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::metrics::{PeriodicReader, SdkMeterProvider};
use opentelemetry_sdk::trace::SdkTracerProvider;

use super::metrics::prometheus_reader;
use super::watch::{self, Watch, Watched};

/// How long an export may take unless a variable says otherwise, in ms; what the specification asks for.
const EXPORT_LIMIT_MS: u64 = 10_000;
/// How many spans wait for their export unless a variable says otherwise; what the specification asks for.
const QUEUE: usize = 2_048;

/// A variable that is set and not empty.
pub(super) fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.trim().is_empty())
}

/// Whether a signal (`TRACES` or `METRICS`) is to go out.
fn is_wanted(signal: &str) -> Result<bool, String> {
    if variable("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true")) {
        return Ok(false);
    }
    let name = format!("OTEL_{signal}_EXPORTER");
    match variable(&name).as_deref() {
        Some("none") => Ok(false),
        Some("otlp") => Ok(true),
        Some(other) => Err(format!("{name} is {other:?}: it must be otlp or none.")),
        None => Ok(variable("OTEL_EXPORTER_OTLP_ENDPOINT").is_some()
            || variable(&format!("OTEL_EXPORTER_OTLP_{signal}_ENDPOINT")).is_some()),
    }
}

/// Whether a signal goes out over gRPC.
fn is_grpc(signal: &str) -> Result<bool, String> {
    let own = format!("OTEL_EXPORTER_OTLP_{signal}_PROTOCOL");
    let protocol = variable(&own).or_else(|| variable("OTEL_EXPORTER_OTLP_PROTOCOL"));
    match protocol.as_deref() {
        None | Some("http/protobuf") => Ok(false),
        Some("grpc") => Ok(true),
        Some(other) => Err(format!(
            "OTEL_EXPORTER_OTLP_PROTOCOL is {other:?}: it must be http/protobuf or grpc."
        )),
    }
}

/// A variable of a signal, or else the one for all signals, and its name.
fn setting(signal: &str, what: &str) -> Option<(String, String)> {
    let names = [
        format!("OTEL_EXPORTER_OTLP_{signal}_{what}"),
        format!("OTEL_EXPORTER_OTLP_{what}"),
    ];
    names
        .into_iter()
        .find_map(|name| variable(&name).map(|value| (name, value)))
}

/// Refuses a compression that there is none of, which would be left out without a word.
fn check_compression(signal: &str) -> Result<(), String> {
    match setting(signal, "COMPRESSION") {
        Some((name, value)) if !["gzip", "none"].contains(&value.to_ascii_lowercase().as_str()) => {
            Err(format!("{name} is {value:?}: it must be gzip or none."))
        }
        _ => Ok(()),
    }
}

/// Keeps an eye on the exports of a signal.
fn watch(signal: &str, what: &'static str) -> Watch {
    let limit = setting(signal, "TIMEOUT").and_then(|(_, value)| value.parse().ok());
    Watch::new(what, Duration::from_millis(limit.unwrap_or(EXPORT_LIMIT_MS)))
}

/// The maker of spans, and whether they go anywhere.
pub(super) fn traces(resource: Resource) -> Result<(SdkTracerProvider, bool), String> {
    let provider = SdkTracerProvider::builder().with_resource(resource);
    if !is_wanted("TRACES")? {
        return Ok((provider.build(), false));
    }
    check_compression("TRACES")?;
    let exporter = if is_grpc("TRACES")? {
        SpanExporter::builder().with_tonic().build()
    } else {
        SpanExporter::builder().with_http().build()
    };
    let exporter =
        exporter.map_err(|error| format!("Traces cannot be exported as the OTEL_ variables say: {error}."))?;
    let room = variable("OTEL_BSP_MAX_QUEUE_SIZE").and_then(|room| room.parse().ok());
    let room = room.filter(|room| *room > 0).unwrap_or(QUEUE);
    let queue = watch::Queue::new(exporter, watch("TRACES", "spans"), room);
    Ok((provider.with_span_processor(queue).build(), true))
}

/// The maker of metrics. They can always be scraped, and go out where an endpoint is named.
pub(super) fn metrics(resource: Resource) -> Result<SdkMeterProvider, String> {
    let provider = SdkMeterProvider::builder()
        .with_resource(resource)
        .with_reader(prometheus_reader()?);
    if !is_wanted("METRICS")? {
        return Ok(provider.build());
    }
    check_compression("METRICS")?;
    let exporter = if is_grpc("METRICS")? {
        MetricExporter::builder().with_tonic().build()
    } else {
        MetricExporter::builder().with_http().build()
    };
    let exporter =
        exporter.map_err(|error| format!("Metrics cannot be exported as the OTEL_ variables say: {error}."))?;
    let reader = PeriodicReader::builder(Watched::new(exporter, watch("METRICS", "metrics"))).build();
    Ok(provider.with_reader(reader).build())
}
