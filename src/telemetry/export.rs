//! OTLP over HTTP and gRPC, as the standard `OTEL_*` variables say. An exporter that is down, slow or refuses costs calls nothing:
//! it has a thread and a bounded queue of its own, what does not fit is dropped, and it says so once a minute.

use std::fmt;
use std::sync::Mutex;
use std::time::Duration;

use opentelemetry_otlp::{MetricExporter, SpanExporter};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::metrics::data::ResourceMetrics;
use opentelemetry_sdk::metrics::exporter::PushMetricExporter;
use opentelemetry_sdk::metrics::{PeriodicReader, SdkMeterProvider, Temporality};
use opentelemetry_sdk::trace::{SdkTracerProvider, SpanData};
use tokio::time::Instant;
use tracing::warn;

use super::metrics::prometheus_reader;
use crate::unpoisoned;

/// How often a failing exporter says so.
const SAY_EVERY: Duration = Duration::from_secs(60);

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

/// The maker of spans, and whether they go anywhere.
pub(super) fn traces(resource: Resource) -> Result<(SdkTracerProvider, bool), String> {
    let provider = SdkTracerProvider::builder().with_resource(resource);
    if !is_wanted("TRACES")? {
        return Ok((provider.build(), false));
    }
    let exporter = if is_grpc("TRACES")? {
        SpanExporter::builder().with_tonic().build()
    } else {
        SpanExporter::builder().with_http().build()
    };
    let exporter =
        exporter.map_err(|error| format!("Traces cannot be exported as the OTEL_ variables say: {error}."))?;
    Ok((
        provider.with_batch_exporter(Watched::new(exporter, "spans")).build(),
        true,
    ))
}

/// The maker of metrics. They can always be scraped, and go out where an endpoint is named.
pub(super) fn metrics(resource: Resource) -> Result<SdkMeterProvider, String> {
    let provider = SdkMeterProvider::builder()
        .with_resource(resource)
        .with_reader(prometheus_reader()?);
    if !is_wanted("METRICS")? {
        return Ok(provider.build());
    }
    let exporter = if is_grpc("METRICS")? {
        MetricExporter::builder().with_tonic().build()
    } else {
        MetricExporter::builder().with_http().build()
    };
    let exporter =
        exporter.map_err(|error| format!("Metrics cannot be exported as the OTEL_ variables say: {error}."))?;
    let reader = PeriodicReader::builder(Watched::new(exporter, "metrics")).build();
    Ok(provider.with_reader(reader).build())
}

/// An exporter whose failures are said, seldom and in words of our own.
struct Watched<E> {
    exporter: E,
    what: &'static str,
    failures: Mutex<Failures>,
}

#[derive(Default)]
struct Failures {
    since_said: u64,
    said: Option<Instant>,
}

impl<E> fmt::Debug for Watched<E> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Watched").field("what", &self.what).finish()
    }
}

impl<E> Watched<E> {
    fn new(exporter: E, what: &'static str) -> Self {
        Self {
            exporter,
            what,
            failures: Mutex::default(),
        }
    }

    fn note(&self, result: OTelSdkResult) -> OTelSdkResult {
        if let Err(error) = &result {
            let mut failures = unpoisoned(self.failures.lock());
            failures.since_said += 1;
            if failures.said.is_none_or(|said| said.elapsed() >= SAY_EVERY) {
                warn!(
                    what = self.what,
                    failures = failures.since_said,
                    %error,
                    "telemetry cannot be exported and is dropped; calls go on"
                );
                *failures = Failures {
                    since_said: 0,
                    said: Some(Instant::now()),
                };
            }
        }
        result
    }
}

impl opentelemetry_sdk::trace::SpanExporter for Watched<SpanExporter> {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        self.note(self.exporter.export(batch).await)
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.exporter.shutdown_with_timeout(timeout)
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.exporter.force_flush()
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.exporter.set_resource(resource);
    }
}

impl PushMetricExporter for Watched<MetricExporter> {
    async fn export(&self, metrics: &ResourceMetrics) -> OTelSdkResult {
        self.note(self.exporter.export(metrics).await)
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.exporter.force_flush()
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.exporter.shutdown_with_timeout(timeout)
    }

    fn temporality(&self) -> Temporality {
        self.exporter.temporality()
    }
}
