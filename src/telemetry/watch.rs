//! An eye on what exporters do: an export ends in time, whatever the collector does, and what is lost is counted and said.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use opentelemetry::Context;
use opentelemetry_otlp::{MetricExporter, SpanExporter};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::{OTelSdkError, OTelSdkResult};
use opentelemetry_sdk::metrics::Temporality;
use opentelemetry_sdk::metrics::data::ResourceMetrics;
use opentelemetry_sdk::metrics::exporter::PushMetricExporter;
use opentelemetry_sdk::trace::{BatchConfigBuilder, BatchSpanProcessor, Span, SpanData, SpanProcessor};
use tokio::runtime::Handle;
use tokio::time::{Instant, timeout};
use tokio_util::context::TokioContext;
use tracing::warn;

use super::metrics::{EXPORT_FAILED, QUEUE_FULL, instruments};
use crate::unpoisoned;

/// How often the same trouble is said.
const SAY_EVERY: Duration = Duration::from_secs(60);

/// Something that is said once a minute at most, with how often it has happened since.
#[derive(Debug, Default)]
struct Seldom {
    since_said: u64,
    said: Option<Instant>,
}

impl Seldom {
    /// It happened so often; how often since it was said, if it is to be said now.
    fn happened(&mut self, times: u64) -> Option<u64> {
        self.since_said += times;
        if self.since_said == 0 || self.said.is_some_and(|said| said.elapsed() < SAY_EVERY) {
            return None;
        }
        self.said = Some(Instant::now());
        Some(std::mem::take(&mut self.since_said))
    }
}

/// Bounds the exports of one signal and says what becomes of them.
#[derive(Debug)]
pub(super) struct Watch {
    what: &'static str,
    limit: Duration,
    runtime: Handle,
    failures: Mutex<Seldom>,
}

impl Watch {
    /// `limit` holds for an export with all its repeats. Must be made where the runtime is that carries the exports.
    pub(super) fn new(what: &'static str, limit: Duration) -> Self {
        Self {
            what,
            limit,
            runtime: Handle::current(),
            failures: Mutex::default(),
        }
    }

    /// The exporter's own limit ends with the first byte of an answer, or leaves its retries out; this one ends everything.
    async fn bound(&self, export: impl Future<Output = OTelSdkResult> + Send) -> OTelSdkResult {
        let timely = async { timeout(self.limit, export).await };
        // The thread that exports is none of the runtime's, and its sockets and clocks are.
        let result = TokioContext::new(timely, self.runtime.clone()).await;
        let result = result.unwrap_or(Err(OTelSdkError::Timeout(self.limit)));
        if let Err(error) = &result
            && let Some(failures) = unpoisoned(self.failures.lock()).happened(1)
        {
            warn!(
                what = self.what,
                failures,
                %error,
                "telemetry cannot be exported and is dropped; calls go on"
            );
        }
        result
    }
}

/// An exporter that is watched.
pub(super) struct Watched<E> {
    exporter: E,
    watch: Watch,
    backlog: Arc<Backlog>,
}

impl<E> fmt::Debug for Watched<E> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Watched").field("watch", &self.watch).finish()
    }
}

impl<E> Watched<E> {
    pub(super) fn new(exporter: E, watch: Watch) -> Self {
        Self {
            exporter,
            watch,
            backlog: Arc::default(),
        }
    }
}

impl PushMetricExporter for Watched<MetricExporter> {
    async fn export(&self, metrics: &ResourceMetrics) -> OTelSdkResult {
        self.watch.bound(self.exporter.export(metrics)).await
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

/// Spans that wait for their export, and those that found no room.
#[derive(Debug, Default)]
struct Backlog {
    waiting: AtomicUsize,
    /// Not said yet.
    dropped: AtomicUsize,
    said: Mutex<Seldom>,
}

impl Backlog {
    fn say(&self) {
        let dropped = self.dropped.swap(0, Ordering::Relaxed);
        let dropped = unpoisoned(self.said.lock()).happened(u64::try_from(dropped).unwrap_or(u64::MAX));
        if let Some(dropped) = dropped {
            warn!(
                dropped,
                "spans came faster than they could be exported and were dropped; calls go on"
            );
        }
    }
}

impl opentelemetry_sdk::trace::SpanExporter for Watched<SpanExporter> {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let spans = batch.len();
        self.backlog.waiting.fetch_sub(spans, Ordering::Relaxed);
        let result = self.watch.bound(self.exporter.export(batch)).await;
        if result.is_err() {
            instruments().spans_dropped(EXPORT_FAILED, spans);
        }
        // Here and not where they are dropped, which is in the midst of a call.
        self.backlog.say();
        result
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

/// The queue before the exporter of spans. The SDK's own drops what does not fit without a word; this one never lets it come to that.
#[derive(Debug)]
pub(super) struct Queue {
    batches: BatchSpanProcessor,
    backlog: Arc<Backlog>,
    room: usize,
}

impl Queue {
    /// With room for so many spans.
    pub(super) fn new(exporter: SpanExporter, watch: Watch, room: usize) -> Self {
        let exporter = Watched::new(exporter, watch);
        let backlog = Arc::clone(&exporter.backlog);
        let config = BatchConfigBuilder::default().with_max_queue_size(room).build();
        Self {
            batches: BatchSpanProcessor::builder(exporter).with_batch_config(config).build(),
            backlog,
            room,
        }
    }
}

impl SpanProcessor for Queue {
    fn on_start(&self, span: &mut Span, context: &Context) {
        self.batches.on_start(span, context);
    }

    fn on_end(&self, span: SpanData) {
        if self.backlog.waiting.fetch_add(1, Ordering::Relaxed) < self.room {
            self.batches.on_end(span);
            return;
        }
        self.backlog.waiting.fetch_sub(1, Ordering::Relaxed);
        self.backlog.dropped.fetch_add(1, Ordering::Relaxed);
        instruments().spans_dropped(QUEUE_FULL, 1);
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.batches.force_flush()
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.batches.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.batches.set_resource(resource);
    }
}
