//! What a bench measured, as a table and as JSON.

use serde::Serialize;

use super::Options;
use crate::load::summary::Quantiles;

pub const PLAIN: &str = "pgbench, one-row INSERT";
pub const CREATE: &str = "create_ticket over MCP";
pub const CREATE_BLIND: &str = "create_ticket, POSSIBLE_DUPLICATES=false";
pub const REPLAY: &str = "replay of create_ticket";

/// Said wherever the figures are shown.
const NOTES: [&str; 4] = [
    "Client, service and database share the processors; compare ratios, not machines.",
    "Calls keep their connections and write RUST_LOG=warn. Every commit waits for the disk (fsync is on).",
    "Ratios are medians of the ratios within each round; the other figures are medians of the rounds.",
    "Joins and takeovers compare a moment by the database's clock, stamped before its commit, with one by this program's; \
     both read this machine's.",
];

/// Everything measured.
#[derive(Debug, Serialize)]
pub struct Report {
    pub version: &'static str,
    /// The server's major version.
    pub postgres: u32,
    pub processors: usize,
    pub seconds: u64,
    pub rounds: usize,
    pub cells: Vec<Cell>,
    /// create_ticket that looks for possible duplicates, to create_ticket that does not.
    pub duplicates_ratio: Option<f64>,
    /// From a settlement on one replica to the waiter's answer on another, in milliseconds.
    pub joins_ms: Option<Many>,
    /// From SIGKILL to the waiter's answer on another replica, in milliseconds.
    pub takeovers_ms: Option<Many>,
    /// The same, from the moment at which the lease lapsed, and without the work itself.
    pub beyond_lease_ms: Option<Many>,
    /// What could not be measured, and why.
    pub unmeasured: Vec<String>,
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
    /// Of single calls, in milliseconds.
    pub latency_ms: Option<Quantiles>,
    /// Each round's.
    pub rounds: Vec<f64>,
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

/// What is measured so far.
#[derive(Default)]
pub struct Tally {
    cells: Vec<(&'static str, usize, Vec<f64>, Vec<u64>)>,
    pub joins: Option<Many>,
    pub takeovers: Option<Many>,
    pub beyond_lease: Option<Many>,
    unmeasured: Vec<String>,
}

impl Tally {
    /// Notes a round of a cell.
    pub fn note(&mut self, what: &'static str, connections: usize, per_second: f64, took_us: Vec<u64>) {
        match self
            .cells
            .iter_mut()
            .find(|cell| (cell.0, cell.1) == (what, connections))
        {
            Some((_, _, rounds, took)) => {
                rounds.push(per_second);
                took.extend(took_us);
            }
            None => self.cells.push((what, connections, vec![per_second], took_us)),
        }
    }

    /// Notes what cannot be measured, once.
    pub fn could_not(&mut self, what: &str, why: String) {
        let sentence = format!("{what}: {why}");
        if !self.unmeasured.contains(&sentence) {
            self.unmeasured.push(sentence);
        }
    }

    fn rounds(&self, what: &str, connections: usize) -> Option<&[f64]> {
        let cell = self.cells.iter().find(|cell| cell.0 == what && cell.1 == connections)?;
        Some(&cell.2)
    }

    /// The table.
    pub fn report(&mut self, options: &Options, postgres: u32) -> Report {
        let ratio_to_plain = |connections: usize, rounds: &[f64]| ratio(rounds, self.rounds(PLAIN, connections)?);
        let cells = self
            .cells
            .iter()
            .map(|(what, connections, rounds, took_us)| Cell {
                what,
                connections: *connections,
                per_second: median(rounds.clone()),
                to_pgbench: ratio_to_plain(*connections, rounds),
                latency_ms: (!took_us.is_empty()).then(|| Quantiles::of(took_us.clone())),
                rounds: rounds.clone(),
            })
            .collect();
        Report {
            version: env!("CARGO_PKG_VERSION"),
            postgres,
            processors: std::thread::available_parallelism().map_or(0, std::num::NonZero::get),
            seconds: options.seconds,
            rounds: options.rounds,
            cells,
            duplicates_ratio: self
                .rounds(CREATE, super::USUAL)
                .zip(self.rounds(CREATE_BLIND, super::USUAL))
                .and_then(|(looking, blind)| ratio(looking, blind)),
            joins_ms: self.joins.take(),
            takeovers_ms: self.takeovers.take(),
            beyond_lease_ms: self.beyond_lease.take(),
            unmeasured: std::mem::take(&mut self.unmeasured),
            notes: NOTES.to_vec(),
        }
    }
}

/// The median of the ratios within each round; `None` unless both were measured in every round.
fn ratio(of: &[f64], to: &[f64]) -> Option<f64> {
    let whole = of.len() == to.len() && to.iter().all(|to| *to > 0.0);
    whole.then(|| median(of.iter().zip(to).map(|(of, to)| of / to).collect()))
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let upper = values.get(values.len() / 2).copied().unwrap_or(0.0);
    let lower = values.get(values.len().saturating_sub(1) / 2).copied().unwrap_or(0.0);
    f64::midpoint(lower, upper)
}

impl Report {
    /// For a terminal.
    pub fn print(&self) {
        println!(
            "ticket-ledger {}, PostgreSQL {}, {} processors; {} rounds of {} s\n",
            self.version, self.postgres, self.processors, self.rounds, self.seconds
        );
        println!(
            "{:<42} {:>11} {:>9} {:>10} {:>8} {:>8}",
            "", "connections", "calls/s", "to pgbench", "p50 ms", "p99 ms"
        );
        for cell in &self.cells {
            let latency = |of: fn(&Quantiles) -> f64| {
                let known = cell.latency_ms.as_ref().map(|latency| format!("{:.1}", of(latency)));
                known.unwrap_or_else(|| "-".to_owned())
            };
            println!(
                "{:<42} {:>11} {:>9.0} {:>10} {:>8} {:>8}",
                cell.what,
                cell.connections,
                cell.per_second,
                cell.to_pgbench
                    .map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}x")),
                latency(|latency| latency.p50),
                latency(|latency| latency.p99),
            );
        }
        println!();
        if let Some(ratio) = self.duplicates_ratio {
            println!(
                "Looking for possible duplicates: {ratio:.2}x the calls/s without it, at {} connections.",
                super::USUAL
            );
        }
        for (what, waited) in [
            ("Join on another replica, from the settlement", &self.joins_ms),
            ("Takeover, from SIGKILL", &self.takeovers_ms),
            ("Takeover, beyond lease and work", &self.beyond_lease_ms),
        ] {
            if let Some(Many { samples, quantiles }) = waited {
                println!(
                    "{what}: p50 {:.1} ms, p99 {:.1} ms, longest {:.1} ms, of {samples}.",
                    quantiles.p50, quantiles.p99, quantiles.max
                );
            }
        }
        println!();
        for sentence in &self.unmeasured {
            println!("Not measured: {sentence}.");
        }
        for note in &self.notes {
            println!("{note}");
        }
    }
}
