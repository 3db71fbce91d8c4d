//! The load test: replicas, a real balancer, clients, faults, and a check of the whole history.

mod address;
mod balancer;
pub mod bench;
mod check;
mod client;
mod drive;
mod driver;
mod entries;
mod faults;
mod fleet;
mod history;
mod operator;
mod page;
mod prepare;
mod proxy;
mod reaper;
mod report;
mod stage;
mod summary;
mod under_way;
mod watcher;
mod workload;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use sqlx::{Connection, PgConnection};
use tokio_util::sync::CancellationToken;

use self::check::{Checker, Tables, Window};
use self::history::Record;
use self::stage::{Plan, Stage, Visited};
use self::workload::names_of;

pub use self::address::with_password_as;
pub use self::balancer::Kind as Balancer;
pub use self::check::{Outcome, Verdict, Violation};
pub use self::faults::Fault;
pub use self::page::Page;
pub use self::summary::Summary;

/// What a load test is asked to do.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where history, logs and data are put; made if it is missing.
    pub folder: PathBuf,
    /// Use this database in place of a private Postgres.
    pub database_url: Option<String>,
    /// How many replicas to start.
    pub replicas: usize,
    /// What stands before them.
    pub balancer: Balancer,
    /// A deployment that runs already, in place of replicas.
    pub target: Option<String>,
    /// The run ends when so many calls were made …
    pub calls: u64,
    /// … and so much time has passed …
    pub at_least: Duration,
    /// … and every fault was injected so often (kills ten times as often).
    pub each_fault: u64,
    /// Callers at once.
    pub callers: usize,
    /// Which faults.
    pub faults: Vec<Fault>,
    /// Mean pause between two faults.
    pub fault_every: Duration,
    /// Makes the same workload again.
    pub seed: u64,
    /// The replicas' lease.
    pub lease: Duration,
    /// The replicas' wait.
    pub wait: Duration,
    /// How long create_ticket works.
    pub work: Duration,
    /// How many writes a source may call for in an hour, of the replicas that are started; 0 for any number.
    pub limit_per_source: u32,
    /// How many writes may be saved in an hour, the same.
    pub limit_global: u32,
    /// Whether to show a progress bar.
    pub progress: bool,
    /// The command that asks for the same, for people: no password is in it.
    pub again: String,
}

impl Options {
    /// What is to be started for it.
    fn plan(&self) -> Plan {
        Plan {
            folder: self.folder.clone(),
            database_url: self.database_url.clone(),
            replicas: self.replicas,
            balancer: self.balancer,
            target: self.target.clone(),
            lease: self.lease,
            wait: self.wait,
            work: self.work,
            limit_per_source: self.limit_per_source,
            limit_global: self.limit_global,
        }
    }

    /// The settings of the replicas that it starts, as environment variables.
    pub fn replica_settings(&self) -> Vec<(String, String)> {
        stage::settings(&self.plan())
    }
}

/// A run that has been judged.
pub struct Judged {
    /// Its figures and the verdict.
    pub summary: Summary,
    records: Vec<Record>,
}

/// Runs a load test and judges it.
///
/// # Errors
/// A sentence. Whatever was started is stopped, and the history, if one was begun, can still be checked.
pub async fn run(options: Options, stop: CancellationToken) -> Result<Judged, String> {
    std::fs::create_dir_all(&options.folder)
        .map_err(|error| format!("{} cannot be made: {error}", options.folder.display()))?;
    let folder = std::path::absolute(&options.folder).map_err(|error| error.to_string())?;
    let stage = Stage::start(&Plan {
        folder: folder.clone(),
        ..options.plan()
    })
    .await?;
    let stage = Arc::new(stage);
    let judged = match drive::drive(&options, &stage, &folder, stop).await {
        Ok(history) => judge(&history, &stage.database_url).await,
        Err(reason) => Err(reason),
    };
    match Arc::try_unwrap(stage) {
        Ok(stage) => stage.stop().await,
        Err(_) => eprintln!("ticket-ledger: something still holds the stage; it ends with this process"),
    }
    judged
}

/// Judges a history that was recorded before.
///
/// # Errors
/// A sentence: there is nothing to judge it with.
pub async fn check(path: &Path, database_url: Option<String>) -> Result<Judged, String> {
    let records = history::read(path)?;
    let (recorded_url, data_dir) = records
        .iter()
        .find_map(|record| match record {
            Record::Start {
                database_url, data_dir, ..
            } => Some((database_url.clone(), data_dir.clone())),
            _ => None,
        })
        .ok_or_else(|| format!("{} does not begin as a history does", path.display()))?;
    match (database_url, data_dir) {
        (Some(url), _) => judge_with(path, &url).await,
        (None, Some(folder)) => {
            let postgres = Visited::start(&folder).await?;
            let judged = judge_with(path, &postgres.database_url()).await;
            postgres.leave().await?;
            judged
        }
        (None, None) => judge_with(path, &recorded_url).await,
    }
}

/// Judges a history with a database that somebody named or left: it must be the one of that run.
async fn judge_with(path: &Path, database_url: &str) -> Result<Judged, String> {
    let judged = judge(path, database_url).await?;
    if judged.summary.verdict.outcome() != Outcome::Nothing && judged.summary.verdict.rows == 0 {
        return Err(format!(
            "the database holds nothing of this run. Is it the right one? {} was judged with {}; name another one with \
             --database-url.",
            path.display(),
            with_password_as(database_url, None)
        ));
    }
    Ok(judged)
}

async fn judge(path: &Path, database_url: &str) -> Result<Judged, String> {
    let records = history::read(path)?;
    let run = records
        .iter()
        .find_map(|record| match record {
            Record::Start { run, .. } => Some(run.clone()),
            _ => None,
        })
        .ok_or_else(|| format!("{} does not begin as a history does", path.display()))?;
    let unread = |error: sqlx::Error| format!("the tables cannot be read: {error}");
    let tables = Tables::read(database_url, &run, alone(&records))
        .await
        .map_err(unread)?;
    let takeovers = count_takeovers(database_url, &run).await.map_err(unread)?;
    let verdict = Checker::new(&records, &tables).judge();
    let history = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    Ok(Judged {
        summary: Summary::of(&records, verdict, takeovers, history),
        records,
    })
}

/// The time in which nobody but the run had to do with its database.
fn alone(records: &[Record]) -> Option<Window> {
    let (mut begun, mut ended) = (None, None);
    for record in records {
        match record {
            Record::Start { database_us, .. } => begun = *database_us,
            Record::End { database_us, .. } => ended = *database_us,
            _ => {}
        }
    }
    begun.zip(ended)
}

async fn count_takeovers(database_url: &str, run: &str) -> Result<i64, sqlx::Error> {
    let mut connection = PgConnection::connect(database_url).await?;
    let takeovers =
        sqlx::query_scalar("select coalesce(sum(lapses), 0)::bigint from requests where starts_with(request_id, $1)")
            .bind(names_of(run))
            .fetch_one(&mut connection)
            .await?;
    connection.close().await?;
    Ok(takeovers)
}
