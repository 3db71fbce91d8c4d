//! What a bench measured, as a table and as JSON.

use std::fmt::{self, Display, Formatter};

use serde::Serialize;

use super::Options;
use crate::load::summary::Quantiles;

pub const PLAIN: &str = "pgbench, one-row INSERT";
pub const CREATE: &str = "create_ticket over MCP";
pub const CREATE_BLIND: &str = "create_ticket, POSSIBLE_DUPLICATES=false";
pub const CREATE_BY_UNITS: &str = "create_ticket, LIMIT_PER_SOURCE_PER_HOUR";
pub const CREATE_COUNTED: &str = "create_ticket, LIMIT_GLOBAL_PER_HOUR";
pub const CREATE_SAMPLED: &str = "create_ticket, one call in ten traced";
pub const CREATE_TRACED: &str = "create_ticket, every call traced";
pub const REPLAY: &str = "replay of create_ticket";

/// What is compared: with it, and without it.
const COSTS: [(&str, &str, &str); 5] = [
    ("Looking for possible duplicates", CREATE, CREATE_BLIND),
    ("A limit for each source", CREATE_BY_UNITS, CREATE),
    ("A limit on all writes", CREATE_COUNTED, CREATE),
    ("Traces of one call in ten", CREATE_SAMPLED, CREATE),
    ("Traces of every call", CREATE_TRACED, CREATE),
];

/// Said wherever the figures are shown.
const NOTES: [&str; 5] = [
    "Client, service and database share the processors; compare ratios, not machines.",
    "Calls keep their connections and write RUST_LOG=warn. Every commit waits for the disk (fsync is on).",
    "Ratios are medians of the ratios within each round; the other figures are medians of the rounds.",
    "CPU is processor time of client, service and Postgres together, for each call, without pgbench's connecting; it hardly \
     depends on who else uses the machine; calls/s do.",
    "Joins and takeovers compare a moment by the database's clock, stamped before its commit, with one by this program's; \
     both read this machine's.",
];

/// What one machine and one tool cannot show.
const NEVER_MEASURED: [&str; 4] = [
    "a network between client, service and Postgres, TLS, a balancer",
    "several replicas under load at once (each cell calls one of them)",
    "a Postgres that replicates, or whose data does not fit into its memory",
    "other tools than create_ticket, and larger bodies than an ordinary ticket's",
];

/// Everything measured.
#[derive(Debug, Serialize)]
pub struct Report {
    pub version: &'static str,
    /// Whether it was built for debugging, and is slower than what it measures itself against.
    pub debug_build: bool,
    /// The server's major version.
    pub postgres: u32,
    pub processors: usize,
    pub seconds: u64,
    pub rounds: usize,
    pub cells: Vec<Cell>,
    /// What options cost, at as many connections as the cells that vary something.
    pub costs: Vec<Cost>,
    /// From a settlement on one replica to the waiter's answer on another, in milliseconds.
    pub joins_ms: Option<Many>,
    /// From SIGKILL to the waiter's answer on another replica, in milliseconds.
    pub takeovers_ms: Option<Many>,
    /// The same, from the moment at which the lease lapsed, and without the work itself.
    pub beyond_lease_ms: Option<Many>,
    /// What could not be measured, and why.
    pub unmeasured: Vec<String>,
    /// What no run of this measures.
    pub never_measured: Vec<&'static str>,
    pub notes: Vec<&'static str>,
}

/// One figure of the table.
#[derive(Debug, Serialize)]
pub struct Cell {
    pub what: &'static str,
    pub connections: usize,
    /// The median of the rounds.
    pub per_second: f64,
    /// To pgbench on as many connections.
    pub to_pgbench: Option<f64>,
    /// Processor time of client, service and database for a call, in microseconds.
    pub cpu_us: Option<f64>,
    /// The same, to pgbench's on as many connections.
    pub cpu_to_pgbench: Option<f64>,
    /// Of single calls, in milliseconds.
    pub latency_ms: Option<Quantiles>,
    /// Each round's.
    pub rounds: Vec<f64>,
}

/// create_ticket with something, to create_ticket without it.
#[derive(Debug, Serialize)]
pub struct Cost {
    pub of: &'static str,
    /// Of calls in a second.
    pub calls_ratio: Option<f64>,
    /// Of processor time for a call.
    pub cpu_ratio: Option<f64>,
}

/// Quantiles, and of how many.
#[derive(Debug, Serialize)]
pub struct Many {
    pub samples: usize,
    #[serde(flatten)]
    pub quantiles: Quantiles,
}

impl Quantiles {
    /// Of microseconds.
    pub(super) fn of_many(us: Vec<u64>) -> Many {
        Many {
            samples: us.len(),
            quantiles: Self::of(us),
        }
    }
}

/// One cell, so far.
struct Measured {
    what: &'static str,
    connections: usize,
    rounds: Vec<f64>,
    took_us: Vec<u64>,
    costs_us: Vec<f64>,
}

/// What is measured so far.
#[derive(Default)]
pub struct Tally {
    cells: Vec<Measured>,
    pub joins: Option<Many>,
    pub takeovers: Option<Many>,
    pub beyond_lease: Option<Many>,
    unmeasured: Vec<String>,
}

impl Tally {
    /// Notes a round of a cell.
    pub fn note(
        &mut self,
        what: &'static str,
        connections: usize,
        per_second: f64,
        took_us: Vec<u64>,
        cost_us: Option<f64>,
    ) {
        let known = self
            .cells
            .iter()
            .position(|cell| (cell.what, cell.connections) == (what, connections));
        let place = known.unwrap_or(self.cells.len());
        if known.is_none() {
            self.cells.push(Measured {
                what,
                connections,
                rounds: Vec::new(),
                took_us: Vec::new(),
                costs_us: Vec::new(),
            });
        }
        if let Some(cell) = self.cells.get_mut(place) {
            cell.rounds.push(per_second);
            cell.took_us.extend(took_us);
            cell.costs_us.extend(cost_us);
        }
    }

    /// Notes what cannot be measured, once.
    pub fn could_not(&mut self, what: &str, why: String) {
        let sentence = format!("{what}: {}", why.trim_end().trim_end_matches('.'));
        if !self.unmeasured.contains(&sentence) {
            self.unmeasured.push(sentence);
        }
    }

    fn cell(&self, what: &str, connections: usize) -> Option<&Measured> {
        self.cells
            .iter()
            .find(|cell| cell.what == what && cell.connections == connections)
    }

    /// The table.
    pub fn report(&mut self, options: &Options, postgres: u32) -> Report {
        if !self.cells.is_empty() && self.cells.iter().all(|cell| cell.costs_us.is_empty()) {
            self.could_not(
                "processor time, and ratios of it",
                "this system has no /proc".to_owned(),
            );
        }
        let cells = self
            .cells
            .iter()
            .map(|cell| {
                let plain = self.cell(PLAIN, cell.connections);
                Cell {
                    what: cell.what,
                    connections: cell.connections,
                    per_second: median(cell.rounds.clone()),
                    to_pgbench: plain.and_then(|plain| ratio(&cell.rounds, &plain.rounds)),
                    cpu_us: (!cell.costs_us.is_empty()).then(|| median(cell.costs_us.clone())),
                    cpu_to_pgbench: plain.and_then(|plain| ratio(&cell.costs_us, &plain.costs_us)),
                    latency_ms: (!cell.took_us.is_empty()).then(|| Quantiles::of(cell.took_us.clone())),
                    rounds: cell.rounds.clone(),
                }
            })
            .collect();
        let costs = COSTS
            .into_iter()
            .map(|(of, with, without)| {
                let both = self.cell(with, super::USUAL).zip(self.cell(without, super::USUAL));
                Cost {
                    of,
                    calls_ratio: both.and_then(|(with, without)| ratio(&with.rounds, &without.rounds)),
                    cpu_ratio: both.and_then(|(with, without)| ratio(&with.costs_us, &without.costs_us)),
                }
            })
            .collect();
        Report {
            version: env!("CARGO_PKG_VERSION"),
            debug_build: cfg!(debug_assertions),
            postgres,
            processors: std::thread::available_parallelism().map_or(0, std::num::NonZero::get),
            seconds: options.seconds,
            rounds: options.rounds,
            cells,
            costs,
            joins_ms: self.joins.take(),
            takeovers_ms: self.takeovers.take(),
            beyond_lease_ms: self.beyond_lease.take(),
            unmeasured: std::mem::take(&mut self.unmeasured),
            never_measured: NEVER_MEASURED.to_vec(),
            notes: NOTES.to_vec(),
        }
    }
}

/// The median of the ratios within each round; `None` unless both were measured in every round.
fn ratio(of: &[f64], to: &[f64]) -> Option<f64> {
    let whole = !of.is_empty() && of.len() == to.len() && to.iter().all(|to| *to > 0.0);
    whole.then(|| median(of.iter().zip(to).map(|(of, to)| of / to).collect()))
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let upper = values.get(values.len() / 2).copied().unwrap_or(0.0);
    let lower = values.get(values.len().saturating_sub(1) / 2).copied().unwrap_or(0.0);
    f64::midpoint(lower, upper)
}

/// For a terminal.
impl Display for Report {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "ticket-ledger {}{}, PostgreSQL {}, {} processors; {} rounds of {} s\n",
            self.version,
            if self.debug_build {
                " (debug build: measure a release build)"
            } else {
                ""
            },
            self.postgres,
            self.processors,
            self.rounds,
            self.seconds
        )?;
        writeln!(
            f,
            "{:<42} {:>11} {:>8} {:>10} {:>7} {:>10} {:>7} {:>7}",
            "", "connections", "calls/s", "to pgbench", "CPU us", "to pgbench", "p50 ms", "p99 ms"
        )?;
        let times = |ratio: Option<f64>| ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}x"));
        for cell in &self.cells {
            let latency = |of: fn(&Quantiles) -> f64| {
                let known = cell.latency_ms.as_ref().map(|latency| format!("{:.1}", of(latency)));
                known.unwrap_or_else(|| "-".to_owned())
            };
            writeln!(
                f,
                "{:<42} {:>11} {:>8.0} {:>10} {:>7} {:>10} {:>7} {:>7}",
                cell.what,
                cell.connections,
                cell.per_second,
                times(cell.to_pgbench),
                cell.cpu_us.map_or_else(|| "-".to_owned(), |us| format!("{us:.0}")),
                times(cell.cpu_to_pgbench),
                latency(|latency| latency.p50),
                latency(|latency| latency.p99),
            )?;
        }
        writeln!(f)?;
        for Cost {
            of,
            calls_ratio,
            cpu_ratio,
        } in &self.costs
        {
            writeln!(
                f,
                "{of}, to none, at {} connections: {} the calls/s, {} the CPU.",
                super::USUAL,
                times(*calls_ratio),
                times(*cpu_ratio)
            )?;
        }
        for (what, waited) in [
            ("Join on another replica, from the settlement", &self.joins_ms),
            ("Takeover, from SIGKILL", &self.takeovers_ms),
            ("Takeover, beyond lease and work", &self.beyond_lease_ms),
        ] {
            if let Some(Many { samples, quantiles }) = waited {
                writeln!(
                    f,
                    "{what}: p50 {:.1} ms, p99 {:.1} ms, longest {:.1} ms, of {samples}.",
                    quantiles.p50, quantiles.p99, quantiles.max
                )?;
            }
        }
        writeln!(f)?;
        for sentence in &self.unmeasured {
            writeln!(f, "Not measured: {sentence}.")?;
        }
        for sentence in &self.never_measured {
            writeln!(f, "Not measured, ever: {sentence}.")?;
        }
        for note in &self.notes {
            writeln!(f, "{note}")?;
        }
        Ok(())
    }
}
