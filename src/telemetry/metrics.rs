//! Every metric, once. Labels are bounded: operations, outcomes, and words of this program.

use std::sync::LazyLock;
use std::time::Duration;

use opentelemetry::metrics::{Counter, Histogram};
use opentelemetry::{KeyValue, global};
use opentelemetry_prometheus::PrometheusExporter;
use prometheus::{Registry, TextEncoder};

/// The buckets that the conventions for MCP name, in seconds.
const SECONDS: [f64; 14] = [
    0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0,
];
/// Requests in a batch.
const SIZES: [f64; 9] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0];

/// Spans were dropped because they came faster than the collector took them.
pub const QUEUE_FULL: &str = "queue_full";
/// Spans were dropped because the collector did not take them.
pub const EXPORT_FAILED: &str = "export_failed";

static REGISTRY: LazyLock<Registry> = LazyLock::new(Registry::new);

/// What is counted and measured where it happens.
pub struct Instruments {
    calls: Counter<u64>,
    mcp_duration: Histogram<f64>,
    http_duration: Histogram<f64>,
    joins: Counter<u64>,
    possible_duplicates: Counter<u64>,
    takeovers: Counter<u64>,
    fenced: Counter<u64>,
    releases: Counter<u64>,
    hand_backs: Counter<u64>,
    failed_requests: Counter<u64>,
    renewals: Counter<u64>,
    batch_size: Histogram<u64>,
    pool_timeouts: Counter<u64>,
    swept: Counter<u64>,
    spans_dropped: Counter<u64>,
}

/// The instruments of this process. Used before telemetry is started, they count nothing for ever.
pub fn instruments() -> &'static Instruments {
    static INSTRUMENTS: LazyLock<Instruments> = LazyLock::new(Instruments::new);
    &INSTRUMENTS
}

impl Instruments {
    fn new() -> Self {
        let meter = global::meter("ticket-ledger");
        let counter = |name: &'static str, says: &'static str| meter.u64_counter(name).with_description(says).build();
        let seconds = |name: &'static str, says: &'static str| {
            let histogram = meter.f64_histogram(name).with_unit("s").with_description(says);
            histogram.with_boundaries(SECONDS.to_vec()).build()
        };
        Self {
            calls: counter("ticket_ledger.calls", "Calls by operation and outcome"),
            mcp_duration: seconds(
                "mcp.server.operation.duration",
                "Calls over MCP, from arrival to answer",
            ),
            http_duration: seconds(
                "http.server.request.duration",
                "Requests over HTTP, MCP's and refused ones among them, from arrival to answer",
            ),
            joins: counter(
                "ticket_ledger.joins",
                "Answers that came from an attempt that was waited for, by what woke the waiter: memory, notify or poll",
            ),
            possible_duplicates: counter(
                "ticket_ledger.possible_duplicates",
                "Creations that name an earlier one of the same",
            ),
            takeovers: counter(
                "ticket_ledger.takeovers",
                "Lapsed claims taken over, by whom: waiter or scan",
            ),
            fenced: counter(
                "ticket_ledger.fenced",
                "Attempts that found their claim lost before they settled",
            ),
            releases: counter(
                "ticket_ledger.releases",
                "Claims released by attempts that changed nothing",
            ),
            hand_backs: counter("ticket_ledger.hand_backs", "Claims handed back by a replica that stops"),
            failed_requests: counter("ticket_ledger.failed_requests", "Requests whose lease lapsed too often"),
            renewals: counter(
                "ticket_ledger.renewals",
                "Rounds of renewing leases, by result: renewed, late or failed",
            ),
            batch_size: meter
                .u64_histogram("ticket_ledger.batch.size")
                .with_description("Requests in a statement")
                .with_boundaries(SIZES.to_vec())
                .build(),
            pool_timeouts: counter(
                "ticket_ledger.pool.timeouts",
                "Statements that got no connection in time",
            ),
            swept: counter(
                "ticket_ledger.swept",
                "Rows of the retention sweep, by what became of them",
            ),
            spans_dropped: counter(
                "ticket_ledger.spans.dropped",
                "Spans that no collector has, by why: the queue was full, or their export failed",
            ),
        }
        .at_zero()
    }

    /// Shows every series whose labels are known before anything has happened. One that is born with its first event has no
    /// increase to be seen, and alerts would sleep through that event. Calls begin with [`Instruments::expect_call`].
    fn at_zero(self) -> Self {
        for alone in [
            &self.possible_duplicates,
            &self.fenced,
            &self.releases,
            &self.hand_backs,
            &self.failed_requests,
            &self.pool_timeouts,
        ] {
            alone.add(0, &[]);
        }
        let labelled: [(&Counter<u64>, &'static str, &[&'static str]); 5] = [
            (&self.joins, "by", &["memory", "notify", "poll"]),
            (&self.takeovers, "by", &["waiter", "scan"]),
            (&self.renewals, "result", &["renewed", "late", "failed"]),
            (&self.swept, "what", &["scrubbed", "deleted", "set_aside"]),
            (&self.spans_dropped, "reason", &[QUEUE_FULL, EXPORT_FAILED]),
        ];
        for (counter, label, values) in labelled {
            for value in values {
                counter.add(0, &[KeyValue::new(label, *value)]);
            }
        }
        self
    }

    /// A call of this operation may come to this outcome.
    pub fn expect_call(&self, operation: &'static str, outcome: &'static str) {
        self.count_call(operation, outcome, 0);
    }

    /// A call and its outcome: `done`, `replayed`, `read`, `in_progress`, `handed_back` or the code of a refusal.
    pub fn call(&self, operation: &'static str, outcome: &'static str) {
        self.count_call(operation, outcome, 1);
    }

    fn count_call(&self, operation: &'static str, outcome: &'static str, calls: u64) {
        let labels = [KeyValue::new("operation", operation), KeyValue::new("outcome", outcome)];
        self.calls.add(calls, &labels);
    }

    /// How long a method of MCP took; a tool only if it is one that is offered. `error` is the conventions' `error.type`:
    /// `tool_error`, a code of JSON-RPC or a status of HTTP.
    pub fn mcp(&self, method: &'static str, tool: Option<&'static str>, error: Option<String>, took: Duration) {
        let mut labels = vec![KeyValue::new("mcp.method.name", method)];
        labels.extend(tool.map(|tool| KeyValue::new("gen_ai.tool.name", tool)));
        labels.extend(error.map(|error| KeyValue::new("error.type", error)));
        self.mcp_duration.record(took.as_secs_f64(), &labels);
    }

    /// How long a request over HTTP took; a route only if it led to one.
    pub fn http(&self, method: &'static str, route: Option<String>, status: u16, took: Duration) {
        let mut labels = vec![
            KeyValue::new("http.request.method", method),
            KeyValue::new("http.response.status_code", i64::from(status)),
        ];
        labels.extend(route.map(|route| KeyValue::new("http.route", route)));
        labels.extend((status >= 500).then(|| KeyValue::new("error.type", status.to_string())));
        self.http_duration.record(took.as_secs_f64(), &labels);
    }

    /// A waiter was answered by another attempt's settlement.
    pub fn joined(&self, by: &'static str) {
        self.joins.add(1, &[KeyValue::new("by", by)]);
    }

    /// A creation named an earlier one.
    pub fn possible_duplicate(&self) {
        self.possible_duplicates.add(1, &[]);
    }

    /// A lapsed claim was taken over, by a `waiter` or by the `scan`.
    pub fn took_over(&self, by: &'static str) {
        self.takeovers.add(1, &[KeyValue::new("by", by)]);
    }

    /// An attempt found its claim lost.
    pub fn fenced(&self) {
        self.fenced.add(1, &[]);
    }

    /// An attempt changed nothing and released its claim.
    pub fn released(&self) {
        self.releases.add(1, &[]);
    }

    /// A claim was handed back.
    pub fn handed_back(&self) {
        self.hand_backs.add(1, &[]);
    }

    /// A request is failed now.
    pub fn failed_for_good(&self) {
        self.failed_requests.add(1, &[]);
    }

    /// A round of renewing ended: `renewed`, `late` or `failed`.
    pub fn renewed(&self, result: &'static str) {
        self.renewals.add(1, &[KeyValue::new("result", result)]);
    }

    /// A statement carried so many requests of this operation.
    pub fn batch(&self, operation: &'static str, size: usize) {
        let size = u64::try_from(size).unwrap_or(u64::MAX);
        self.batch_size.record(size, &[KeyValue::new("operation", operation)]);
    }

    /// A statement got no connection in time.
    pub fn pool_timeout(&self) {
        self.pool_timeouts.add(1, &[]);
    }

    /// Rows of the sweep: `scrubbed`, `deleted` or `set_aside`.
    pub fn swept(&self, what: &'static str, rows: i64) {
        self.swept.add(rows.unsigned_abs(), &[KeyValue::new("what", what)]);
    }

    /// Spans were dropped, because of [`QUEUE_FULL`] or [`EXPORT_FAILED`].
    pub fn spans_dropped(&self, reason: &'static str, spans: usize) {
        let spans = u64::try_from(spans).unwrap_or(u64::MAX);
        self.spans_dropped.add(spans, &[KeyValue::new("reason", reason)]);
    }
}

/// Shows a number whenever somebody looks. `None` shows nothing.
pub fn gauge(name: &'static str, says: &'static str, look: impl Fn() -> Option<u64> + Send + Sync + 'static) {
    // The instrument stays with its meter.
    let _ = global::meter("ticket-ledger")
        .u64_observable_gauge(name)
        .with_description(says)
        .with_callback(move |observer| {
            if let Some(number) = look() {
                observer.observe(number, &[]);
            }
        })
        .build();
}

/// The reader that /metrics is scraped from.
pub(super) fn prometheus_reader() -> Result<PrometheusExporter, String> {
    opentelemetry_prometheus::exporter()
        .with_registry(REGISTRY.clone())
        .build()
        .map_err(|error| format!("Metrics cannot be collected: {error}."))
}

/// All metrics in Prometheus' text format.
pub fn as_text() -> String {
    TextEncoder::new()
        .encode_to_string(&REGISTRY.gather())
        .unwrap_or_else(|error| format!("# metrics cannot be written: {error}\n"))
}
