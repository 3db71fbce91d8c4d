//! `load bench`: the service beside what the same Postgres does by itself, in one run.
//!
//! A machine that others use too is fast in one second and slow in the next, so every round measures everything once, and a
//! figure is the median of its rounds, a ratio the median of the ratios within each round.

mod caller;
mod cpu;
mod pgbench;
mod table;
mod variants;
mod waits;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use indicatif::ProgressBar;
use sqlx::{Connection, PgConnection};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use self::caller::{Keys, Sample, call_for};
use self::pgbench::Pgbench;
use self::table::Tally;
use self::variants::{Sink, VARIANTS};
use self::waits::{joins, takeovers};
use super::fleet::Replica;
use super::reaper::Reaper;
use super::stage::DATABASE;
use super::summary::Quantiles;
use crate::cluster::{PrivateCluster, StopMode};

pub use self::table::Report;

/// Connections of the cells that are compared.
const CONNECTIONS: [usize; 4] = [1, 8, 64, 256];
/// Connections of the cells that vary something else.
const USUAL: usize = 64;
/// Most request_ids that are called again.
const REPLAYED: usize = 10_000;
const JOINS_A_ROUND: usize = 30;
/// While a call works for so long, another one joins it.
const JOINED_WORK: Duration = Duration::from_millis(60);
/// While calls work for so long, their replica is killed.
const KILLED_WORK: Duration = Duration::from_millis(500);
/// The shortest lease that a replica accepts: a takeover waits for it.
const KILLED_LEASE: Duration = Duration::from_secs(1);

/// What a bench is asked to do.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where data and logs are put.
    pub folder: PathBuf,
    /// How long each cell is measured in each round, in seconds.
    pub seconds: u64,
    /// How often everything is measured.
    pub rounds: usize,
    /// Whether to show a progress bar.
    pub progress: bool,
}

/// Runs a bench.
///
/// # Errors
/// A sentence. Whatever was started is stopped.
pub async fn run(options: Options, stop: CancellationToken) -> Result<Report, String> {
    std::fs::create_dir_all(&options.folder)
        .map_err(|error| format!("{} cannot be made: {error}", options.folder.display()))?;
    let folder = std::path::absolute(&options.folder).map_err(|error| error.to_string())?;
    // pgbench opens 256 connections of its own while the replicas keep theirs.
    let reaper = Reaper::start(Some(&super::stage::data_of(&folder)), None)?;
    let cluster = super::stage::start_postgres_with(&folder, &[("max_connections", "400")]).await?;
    let url = cluster.database_url(DATABASE);
    let mut bench = Bench {
        tally: Tally::default(),
        span: Duration::from_secs(options.seconds),
        bar: super::drive::progress_bar(options.steps(), options.progress),
        options,
        postmaster: cluster.postmaster_pid().unwrap_or_default(),
        connecting: BTreeMap::new(),
        folder,
        url,
        replicas: Vec::new(),
        started: 0,
        reaper: reaper.clone(),
    };
    let measured = tokio::select! {
        measured = bench.measure(cluster.bindir()) => measured,
        () = stop.cancelled() => Err("interrupted; nothing was measured to its end.".to_owned()),
    };
    bench.bar.finish_and_clear();
    bench.stop_replicas().await;
    let report = measured.map(|()| bench.tally.report(&bench.options, cluster.major()));
    stop_postgres(cluster).await;
    reaper.dismiss();
    report
}

async fn stop_postgres(cluster: PrivateCluster) {
    if let Err(error) = cluster.stop(StopMode::Fast).await {
        eprintln!("ticket-ledger: {error}");
    }
}

impl Options {
    /// Cells of a round, and the two that are not cells.
    fn steps(&self) -> u64 {
        (self.rounds * (2 * CONNECTIONS.len() + 1 + VARIANTS.len()) + 2) as u64
    }
}

struct Bench {
    options: Options,
    folder: PathBuf,
    url: String,
    span: Duration,
    postmaster: i32,
    /// What connecting costs pgbench: processor time and rows, by connections.
    connecting: BTreeMap<usize, (u64, f64)>,
    replicas: Vec<Replica>,
    /// How many replicas were started so far.
    started: usize,
    reaper: Reaper,
    tally: Tally,
    bar: ProgressBar,
}

impl Bench {
    async fn measure(&mut self, bindir: &Path) -> Result<(), String> {
        self.make_schema().await?;
        let pgbench = match Pgbench::find(bindir, &self.folder, &self.url) {
            Ok(pgbench) => Some(pgbench),
            Err(reason) => {
                self.tally
                    .could_not("pgbench's one-row INSERT, and ratios to it", reason);
                None
            }
        };
        let usual = self.start(&[]).await?;
        let sink = Sink::start()
            .await
            .map_err(|error| format!("no port is free: {error}"))?;
        let mut varied = Vec::new();
        for variant in &VARIANTS {
            let mut settings = variant.settings.to_vec();
            if variant.traced {
                settings.push(("OTEL_EXPORTER_OTLP_ENDPOINT", &sink.url));
            }
            varied.push((variant.what, self.start(&settings).await?));
        }
        let mut settled: Vec<Uuid> = Vec::new();
        for round in 0..self.options.rounds {
            self.bar
                .set_message(format!("round {} of {}", round + 1, self.options.rounds));
            for connections in CONNECTIONS {
                self.plain(pgbench.as_ref(), connections).await;
                let sample = self.call(table::CREATE, usual, connections, Keys::Fresh).await;
                if connections == USUAL && settled.is_empty() {
                    settled = sample.into_iter().take(REPLAYED).collect();
                }
                if connections == USUAL {
                    for (what, port) in &varied {
                        self.call(what, *port, USUAL, Keys::Fresh).await;
                    }
                    let again = Keys::Replayed(Arc::from(settled.as_slice()));
                    self.call(table::REPLAY, usual, USUAL, again).await;
                }
            }
        }
        self.stop_replicas().await;
        self.wait_for_joins().await?;
        self.wait_for_takeovers().await
    }

    async fn plain(&mut self, pgbench: Option<&Pgbench>, connections: usize) {
        if let Some(pgbench) = pgbench
            && let Err(reason) = self.insert(pgbench, connections).await
        {
            let what = format!("pgbench at {connections} connections");
            self.tally.could_not(&what, reason);
        }
        self.bar.inc(1);
    }

    async fn insert(&mut self, pgbench: &Pgbench, connections: usize) -> Result<(), String> {
        if !self.connecting.contains_key(&connections) {
            let before = self.used_us(None).await;
            let (_, rows) = pgbench.insert_once(connections).await?;
            let used = self
                .used_us(None)
                .await
                .zip(before)
                .map_or(0, |(now, before)| now - before);
            self.connecting.insert(connections, (used, rows));
        }
        let (connecting_us, connecting_rows) = self.connecting.get(&connections).copied().unwrap_or_default();
        let before = self.used_us(None).await;
        let (per_second, rows) = pgbench.insert_for(connections, self.span).await?;
        if per_second <= 0.0 {
            return Err("it inserted nothing".to_owned());
        }
        let used = self.used_us(None).await.zip(before).map(|(now, before)| now - before);
        let rows = rows - connecting_rows;
        let cost_us = used
            .filter(|_| rows > 0.0)
            .map(|used| used.saturating_sub(connecting_us) as f64 / rows);
        self.tally
            .note(table::PLAIN, connections, per_second, Vec::new(), cost_us);
        Ok(())
    }

    /// Measures a cell, and returns the request_ids that were answered; says why it cannot.
    async fn call(&mut self, what: &'static str, port: u16, connections: usize, keys: Keys) -> Vec<Uuid> {
        let before = self.used_us(Some(port)).await;
        let sample = call_for(port, connections, self.span, keys).await;
        self.bar.inc(1);
        let Sample {
            per_second,
            took_us,
            client_us,
            keys,
        } = match sample {
            Ok(sample) => sample,
            Err(reason) => {
                self.tally
                    .could_not(&format!("{what} at {connections} connections"), reason);
                return Vec::new();
            }
        };
        let used = self
            .used_us(Some(port))
            .await
            .zip(before)
            .map(|(now, before)| now - before + client_us);
        let cost_us = used.map(|used| used as f64 / took_us.len().max(1) as f64);
        self.tally.note(what, connections, per_second, took_us, cost_us);
        keys
    }

    /// Processor time so far, in microseconds: of Postgres, of pgbench, and of the replica on `port`.
    async fn used_us(&self, port: Option<u16>) -> Option<u64> {
        // Those that have just done their work end first.
        tokio::time::sleep(Duration::from_millis(50)).await;
        let mut used = cpu::of_family(self.postmaster)? + cpu::of_the_gone()?;
        for replica in self.replicas.iter().filter(|replica| Some(replica.port) == port) {
            used += cpu::of_family(replica.pid().await?)?;
        }
        Some(used)
    }

    async fn wait_for_joins(&mut self) -> Result<(), String> {
        self.bar.set_message("joins");
        let work = JOINED_WORK.as_millis().to_string();
        let holder = self.start(&[("WORK_MS", &work)]).await?;
        let joiner = self.start(&[("WORK_MS", &work)]).await?;
        let waited = joins(&self.url, holder, joiner, self.options.rounds * JOINS_A_ROUND).await?;
        self.bar.inc(1);
        self.stop_replicas().await;
        if waited.us.is_empty() {
            self.tally.could_not(
                "joins across replicas",
                "every call came after the settlement".to_owned(),
            );
        } else {
            self.tally.joins = Some(Quantiles::of_many(waited.us));
        }
        Ok(())
    }

    async fn wait_for_takeovers(&mut self) -> Result<(), String> {
        self.bar.set_message("takeovers");
        let (work, lease) = (
            KILLED_WORK.as_millis().to_string(),
            KILLED_LEASE.as_millis().to_string(),
        );
        let settings = [("WORK_MS", work.as_str()), ("LEASE_MS", lease.as_str())];
        let heir = self.start(&settings).await?;
        self.start(&settings).await?;
        let Some(victim) = self.replicas.last() else {
            return Ok(());
        };
        let waited = takeovers(&self.url, victim, heir, KILLED_WORK, self.options.rounds).await?;
        self.bar.inc(1);
        if waited.us.is_empty() {
            self.tally.could_not(
                "takeovers",
                "every call was settled before its replica was killed".to_owned(),
            );
        } else {
            self.tally.takeovers = Some(Quantiles::of_many(waited.us));
            self.tally.beyond_lease = Some(Quantiles::of_many(waited.beyond_us));
        }
        Ok(())
    }

    /// Starts a replica and returns its port.
    async fn start(&mut self, settings: &[(&str, &str)]) -> Result<u16, String> {
        let mut all = vec![("RUST_LOG".to_owned(), "warn".to_owned())];
        all.extend(
            settings
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned())),
        );
        self.started += 1;
        let replica = Replica::new(self.started, &self.folder, self.url.clone(), &all, &self.reaper)
            .map_err(|error| format!("no port is free: {error}"))?;
        replica.start().await?;
        let port = replica.port;
        self.replicas.push(replica);
        Ok(port)
    }

    async fn stop_replicas(&mut self) {
        for replica in &self.replicas {
            replica.signal(nix::sys::signal::Signal::SIGTERM).await;
        }
        for replica in self.replicas.drain(..) {
            replica.end(Duration::from_secs(15)).await;
        }
    }

    /// An empty schema, whatever an earlier bench left behind.
    async fn make_schema(&self) -> Result<(), String> {
        let failed = |error: sqlx::Error| format!("the schema cannot be made: {error}");
        let mut connection = PgConnection::connect(&self.url).await.map_err(failed)?;
        sqlx::raw_sql("drop schema public cascade; create schema public")
            .execute(&mut connection)
            .await
            .map_err(failed)?;
        crate::postgres::migrate(&self.url, Duration::from_secs(10))
            .await
            .map_err(|error| error.to_string())?;
        sqlx::raw_sql(pgbench::TABLE)
            .execute(&mut connection)
            .await
            .map_err(failed)?;
        connection.close().await.map_err(failed)
    }
}
