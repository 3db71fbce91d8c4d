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
                "Calls over HTTP, from arrival to answer",
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
        }
    }

    /// A call and its outcome: `done`, `replayed`, `read`, `in_progress`, `handed_back` or the code of a refusal.
    pub fn call(&self, operation: &'static str, outcome: &'static str) {
        let labels = [KeyValue::new("operation", operation), KeyValue::new("outcome", outcome)];
        self.calls.add(1, &labels);
    }

    /// How long a method of MCP took; a tool only if it is one that is offered.
    pub fn mcp(&self, method: &'static str, tool: Option<&'static str>, status: u16, took: Duration) {
        let mut labels = vec![KeyValue::new("mcp.method.name", method)];
        labels.extend(tool.map(|tool| KeyValue::new("gen_ai.tool.name", tool)));
        labels.extend((status >= 400).then(|| KeyValue::new("error.type", status.to_string())));
        self.mcp_duration.record(took.as_secs_f64(), &labels);
    }

    /// How long a route of HTTP took.
    pub fn http(&self, method: &'static str, route: String, status: u16, took: Duration) {
        let labels = [
            KeyValue::new("http.request.method", method),
            KeyValue::new("http.route", route),
            KeyValue::new("http.response.status_code", i64::from(status)),
        ];
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
