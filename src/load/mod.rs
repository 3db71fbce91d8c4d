//! The load test: replicas, a real balancer, clients, faults, and a check of the whole history.

mod balancer;
pub mod bench;
mod check;
mod client;
mod driver;
mod faults;
mod fleet;
mod history;
mod proxy;
mod report;
mod stage;
mod summary;
mod watcher;
mod workload;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::Instant;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use sqlx::{Connection, PgConnection};
use tokio::sync::watch;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use self::check::{Checker, Tables};
use self::client::Client;
use self::driver::Driver;
use self::faults::Injector;
use self::history::{History, Record};
use self::stage::{Plan, Stage};
use self::watcher::{quiesce, watch_claims};
use self::workload::{Manner, SHARED_TICKETS, Way};
use crate::unpoisoned;

pub use self::balancer::Kind as Balancer;
pub use self::check::{Verdict, Violation};
pub use self::faults::Fault;
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
    /// Whether to show a progress bar.
    pub progress: bool,
}

/// Runs a load test and judges it.
///
/// # Errors
/// A sentence. Whatever was started is stopped, and the history, if one was begun, can still be checked.
pub async fn run(options: Options, stop: CancellationToken) -> Result<(Summary, Vec<Record>), String> {
    std::fs::create_dir_all(&options.folder)
        .map_err(|error| format!("{} cannot be made: {error}", options.folder.display()))?;
    let folder = std::path::absolute(&options.folder).map_err(|error| error.to_string())?;
    let stage = Stage::start(&Plan {
        folder: folder.clone(),
        database_url: options.database_url.clone(),
        replicas: options.replicas,
        balancer: options.balancer,
        target: options.target.clone(),
        lease: options.lease,
        wait: options.wait,
        work: options.work,
    })
    .await?;
    let stage = Arc::new(stage);
    let path = folder.join("history.jsonl");
    let driven = drive(&options, &stage, &path, stop).await;
    let judged = match driven {
        Ok(given_up) => judge(&path, &stage.database_url, given_up).await,
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
/// A sentence.
pub async fn check(path: &Path, database_url: Option<String>) -> Result<(Summary, Vec<Record>), String> {
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
        (Some(url), _) => judge(path, &url, 0).await,
        (None, Some(folder)) => {
            let cluster = stage::start_postgres(&folder).await?;
            let judged = judge(path, &stage::database_of(&cluster), 0).await;
            cluster
                .stop(crate::cluster::StopMode::Fast)
                .await
                .map_err(|error| error.to_string())?;
            judged
        }
        (None, None) => judge(path, &recorded_url, 0).await,
    }
}

async fn judge(path: &Path, database_url: &str, given_up: u64) -> Result<(Summary, Vec<Record>), String> {
    let records = history::read(path)?;
    let run = records
        .iter()
        .find_map(|record| match record {
            Record::Start { run, .. } => Some(run.clone()),
            _ => None,
        })
        .ok_or_else(|| format!("{} does not begin as a history does", path.display()))?;
    let unread = |error: sqlx::Error| format!("the tables cannot be read: {error}");
    let tables = Tables::read(database_url, &run).await.map_err(unread)?;
    let takeovers = count_takeovers(database_url, &run).await.map_err(unread)?;
    let verdict = Checker::new(&records, &tables).judge();
    Ok((Summary::of(&records, verdict, takeovers, given_up), records))
}

async fn count_takeovers(database_url: &str, run: &str) -> Result<i64, sqlx::Error> {
    let mut connection = PgConnection::connect(database_url).await?;
    let takeovers =
        sqlx::query_scalar("select coalesce(sum(lapses), 0)::bigint from requests where starts_with(request_id, $1)")
            .bind(run)
            .fetch_one(&mut connection)
            .await?;
    connection.close().await?;
    Ok(takeovers)
}

/// Lets callers and faults loose; returns how many requests were given up.
async fn drive(options: &Options, stage: &Arc<Stage>, path: &Path, stop: CancellationToken) -> Result<u64, String> {
    let history =
        Arc::new(History::create(path).map_err(|error| format!("{} cannot be made: {error}", path.display()))?);
    let run = format!("load-{:x}", uuid::Uuid::new_v4().as_u128() & 0xFFFF_FFFF);
    let tries = if stage.balancer.is_some() { balancer::TRIES } else { 1 };
    history.write(&start_record(options, stage, &run, tries));
    // A caller waits for as long as the service and its balancer may take, and a little more.
    let timeout = (options.wait + Duration::from_secs(5)) * u32::try_from(tries).unwrap_or(1) + Duration::from_secs(5);
    let clients: Result<Vec<_>, _> = stage.bases.iter().map(|base| Client::new(base, timeout)).collect();
    let driver = Arc::new(Driver {
        clients: clients.map_err(|error| error.to_string())?,
        history: Arc::clone(&history),
        cuts: watch::Sender::new(0),
        calls: AtomicU64::new(0),
        visible: AtomicU64::new(0),
        given_up: AtomicU64::new(0),
        stopping: AtomicBool::new(false),
        last_patience: options.lease * 4 + options.work + options.wait + Duration::from_secs(5),
    });
    let tickets = Arc::new(shared_tickets(&driver, options.seed, &run).await?);
    let injector = Arc::new(Injector {
        faults: possible(options, stage),
        every: options.fault_every,
        stage: Arc::clone(stage),
        driver: Arc::clone(&driver),
        history: Arc::clone(&history),
        counts: Mutex::new(BTreeMap::new()),
    });
    let injecting = tokio::spawn({
        let injector = Arc::clone(&injector);
        let seed = options.seed;
        async move { injector.run(seed).await }
    });
    let watching = tokio::spawn(watch_claims(
        stage.database_url.clone(),
        Arc::clone(&driver),
        options.lease + options.work,
    ));
    let next = Arc::new(AtomicU64::new(0));
    let callers: Vec<_> = (0..options.callers)
        .map(|_| {
            let (driver, tickets, next) = (Arc::clone(&driver), Arc::clone(&tickets), Arc::clone(&next));
            let (seed, run) = (options.seed, run.clone());
            tokio::spawn(async move {
                while !driver.stopping.load(Ordering::Relaxed) {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    driver.carry_out(&workload::intent(seed, &run, number, &tickets)).await;
                }
            })
        })
        .collect();
    let interrupted = until_enough(options, &driver, &injector, &stop).await;
    driver.stopping.store(true, Ordering::Relaxed);
    let _ = injecting.await;
    for caller in callers {
        if interrupted {
            // Ctrl-C: what has no answer yet stays lost.
            caller.abort();
        }
        let _ = caller.await;
    }
    if !interrupted {
        quiesce(&stage.database_url, options).await;
    }
    let _ = watching.await;
    drop(injector);
    history.write(&Record::End {
        at_us: history.now_us(),
        interrupted,
    });
    history.flush();
    Ok(driver.given_up.load(Ordering::Relaxed))
}

fn start_record(options: &Options, stage: &Stage, run: &str, tries: u64) -> Record {
    let ms = |span: Duration| u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
    let before = stage
        .balancer
        .as_ref()
        .map_or("no balancer", |balancer| balancer.about.as_str());
    Record::Start {
        seed: options.seed,
        run: run.to_owned(),
        database_url: without_password(&stage.database_url),
        data_dir: stage
            .cluster
            .as_ref()
            .map(|_| std::path::absolute(&options.folder).unwrap_or_else(|_| options.folder.clone())),
        lease_ms: ms(options.lease),
        wait_ms: ms(options.wait),
        work_ms: ms(options.work),
        tries,
        about: format!("ticket-ledger {}, {before}", env!("CARGO_PKG_VERSION")),
    }
}

/// A URL as it may stand in a file that is passed around; whoever checks the history gives the password anew.
fn without_password(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else {
        return url.to_owned();
    };
    match rest.split_once('@') {
        Some((credentials, rest)) => {
            let user = credentials.split(':').next().unwrap_or_default();
            format!("{scheme}://{user}@{rest}")
        }
        None => url.to_owned(),
    }
}

/// The faults that were asked for and that this stage allows.
fn possible(options: &Options, stage: &Stage) -> Vec<Fault> {
    let (possible, left_out): (Vec<_>, Vec<_>) = options.faults.iter().copied().partition(|fault| {
        (stage.cluster.is_some() || !fault.needs_own_postgres())
            && (!stage.replicas.is_empty() || !fault.needs_own_replicas())
    });
    if !left_out.is_empty() {
        let names: Vec<_> = left_out.into_iter().map(Fault::name).collect();
        eprintln!(
            "ticket-ledger: not injected, because this run started no Postgres or no replicas of its own: {}",
            names.join(", ")
        );
    }
    possible
}

/// Tickets to be commented on and set.
async fn shared_tickets(driver: &Driver, seed: u64, run: &str) -> Result<Vec<String>, String> {
    if let Some(client) = driver.clients.first()
        && !client.is_answered().await
    {
        return Err("the service does not answer; is it running, at that address?".to_owned());
    }
    let mut tickets = Vec::new();
    for number in 0..SHARED_TICKETS {
        let mut intent = workload::intent(seed, run, u64::MAX - number, &[]);
        intent.manner = Manner::Plain;
        intent.ways = [Way::Modern; 8];
        let answer = driver.carry_out(&intent).await;
        let id = answer.and_then(|answer| answer.result?.get("ticket_id")?.as_str().map(str::to_owned));
        tickets.push(id.ok_or("the service does not create tickets; is it the one that was meant?")?);
    }
    Ok(tickets)
}

/// Waits until there were enough calls, time and faults; true when it was interrupted.
async fn until_enough(options: &Options, driver: &Driver, injector: &Injector, stop: &CancellationToken) -> bool {
    let began = Instant::now();
    let bar = progress_bar(options.calls, options.progress);
    if let Ok(style) = ProgressStyle::with_template("{bar:40} {pos}/{len} calls, {msg}") {
        bar.set_style(style);
    }
    let interrupted = loop {
        tokio::select! {
            () = sleep(Duration::from_millis(200)) => {}
            () = stop.cancelled() => break true,
        }
        let calls = driver.calls.load(Ordering::Relaxed);
        let counts = unpoisoned(injector.counts.lock()).clone();
        bar.set_position(calls.min(options.calls));
        bar.set_message(format!(
            "{:.0} s, {} faults, {} visible to clients",
            began.elapsed().as_secs_f64(),
            counts.values().sum::<u64>(),
            driver.visible.load(Ordering::Relaxed)
        ));
        let faults = injector.faults.iter().all(|fault| {
            let wanted = if *fault == Fault::Kill {
                options.each_fault * 10
            } else {
                options.each_fault
            };
            counts.get(fault).copied().unwrap_or(0) >= wanted
        });
        if calls >= options.calls && began.elapsed() >= options.at_least && faults {
            break false;
        }
    };
    bar.finish_and_clear();
    interrupted
}

fn progress_bar(length: u64, shown: bool) -> ProgressBar {
    let target = if shown {
        ProgressDrawTarget::stderr()
    } else {
        ProgressDrawTarget::hidden()
    };
    let bar = ProgressBar::with_draw_target(Some(length), target);
    if let Ok(style) = ProgressStyle::with_template("{bar:40} {msg}") {
        bar.set_style(style);
    }
    bar
}

/// Writes the page of a run.
///
/// # Errors
/// The file cannot be written.
pub fn write_report(path: &Path, records: &[Record], summary: &Summary) -> Result<(), String> {
    std::fs::write(path, report::html(records, summary))
        .map_err(|error| format!("{} cannot be written: {error}", path.display()))
}
