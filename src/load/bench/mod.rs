//! `load bench`: the service beside what the same Postgres does by itself, in one run.
//!
//! A machine that others use too is fast in one second and slow in the next, so every round measures everything once, and a
//! figure is the median of its rounds, a ratio the median of the ratios within each round.

mod caller;
mod pgbench;
mod table;
mod waits;

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
use self::waits::{joins, takeovers};
use super::fleet::Replica;
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
    let cluster = super::stage::start_postgres_with(&folder, &[("max_connections", "400")]).await?;
    let url = cluster.database_url(DATABASE);
    let mut bench = Bench {
        tally: Tally::default(),
        span: Duration::from_secs(options.seconds),
        bar: super::progress_bar(options.steps(), options.progress),
        options,
        folder,
        url,
        replicas: Vec::new(),
    };
    let measured = tokio::select! {
        measured = bench.measure(cluster.bindir()) => measured,
        () = stop.cancelled() => Err("interrupted; nothing was measured to its end.".to_owned()),
    };
    bench.bar.finish_and_clear();
    bench.stop_replicas().await;
    let report = measured.map(|()| bench.tally.report(&bench.options, cluster.major()));
    stop_postgres(cluster).await;
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
        (self.rounds * (2 * CONNECTIONS.len() + 2) + 2) as u64
    }
}

struct Bench {
    options: Options,
    folder: PathBuf,
    url: String,
    span: Duration,
    replicas: Vec<Replica>,
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
        let usual = self.start("1", &[]).await?;
        let blind = self.start("2", &[("POSSIBLE_DUPLICATES", "false")]).await?;
        let mut settled: Vec<Uuid> = Vec::new();
        for round in 0..self.options.rounds {
            self.bar
                .set_message(format!("round {} of {}", round + 1, self.options.rounds));
            for connections in CONNECTIONS {
                self.plain(pgbench.as_ref(), connections).await;
                let sample = call_for(usual, connections, self.span, Keys::Fresh).await?;
                if connections == USUAL && settled.is_empty() {
                    settled = sample.keys.iter().copied().take(REPLAYED).collect();
                }
                self.note(table::CREATE, connections, sample);
                if connections == USUAL {
                    let sample = call_for(blind, USUAL, self.span, Keys::Fresh).await?;
                    self.note(table::CREATE_BLIND, USUAL, sample);
                    let again = Keys::Replayed(Arc::from(settled.as_slice()));
                    let sample = call_for(usual, USUAL, self.span, again).await?;
                    self.note(table::REPLAY, USUAL, sample);
                }
            }
        }
        self.stop_replicas().await;
        self.wait_for_joins().await?;
        self.wait_for_takeovers().await
    }

    async fn plain(&mut self, pgbench: Option<&Pgbench>, connections: usize) {
        if let Some(pgbench) = pgbench {
            match pgbench.insert_for(connections, self.span).await {
                Ok(per_second) => self.tally.note(table::PLAIN, connections, per_second, Vec::new()),
                Err(reason) => self
                    .tally
                    .could_not(&format!("pgbench at {connections} connections"), reason),
            }
        }
        self.bar.inc(1);
    }

    fn note(&mut self, what: &'static str, connections: usize, sample: Sample) {
        self.tally.note(what, connections, sample.per_second, sample.took_us);
        self.bar.inc(1);
    }

    async fn wait_for_joins(&mut self) -> Result<(), String> {
        self.bar.set_message("joins");
        let work = JOINED_WORK.as_millis().to_string();
        let holder = self.start("3", &[("WORK_MS", &work)]).await?;
        let joiner = self.start("4", &[("WORK_MS", &work)]).await?;
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
        let heir = self.start("5", &settings).await?;
        self.start("6", &settings).await?;
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
    async fn start(&mut self, name: &str, settings: &[(&str, &str)]) -> Result<u16, String> {
        let mut all = vec![("RUST_LOG".to_owned(), "warn".to_owned())];
        all.extend(
            settings
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned())),
        );
        let number = name.parse().unwrap_or_default();
        let replica = Replica::new(number, &self.folder, self.url.clone(), &all)
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
