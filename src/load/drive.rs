//! A run from its first call to its last: callers and faults are let loose, until there was enough of both.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::Options;
use super::address::with_password_as;
use super::balancer::TRIES;
use super::client::Client;
use super::driver::Driver;
use super::faults::{Counts, Fault, Injector};
use super::history::{History, Record};
use super::operator::{self, Operator};
use super::prepare::{self, are_entries_offered};
use super::stage::Stage;
use super::under_way::UnderWay;
use super::watcher::{database_us, quiesce, watch_claims};
use super::workload::{self, Shared};
use crate::unpoisoned;

/// Lets callers and faults loose, and tells where the history lies.
///
/// # Errors
/// A sentence: no history could be begun, the service does not answer, or its database is not the one that was given.
pub async fn drive(
    options: &Options,
    stage: &Arc<Stage>,
    folder: &Path,
    stop: CancellationToken,
) -> Result<PathBuf, String> {
    let (history, path) =
        History::create(folder).map_err(|error| format!("no history can be made in {}: {error}", folder.display()))?;
    let history = Arc::new(history);
    let run = format!("load-{:08x}", uuid::Uuid::new_v4().as_u128() & 0xFFFF_FFFF);
    // A deployment that runs already may have a balancer too.
    let repeats = stage.balancer.is_some() || options.target.is_some();
    let tries = if repeats { TRIES } else { 1 };
    let driver = Arc::new(driver(options, stage, &history, tries)?);
    let has_entries = are_entries_offered(&driver).await?;
    let faults = possible(options, stage, has_entries);
    let (acts, breaks): (Vec<_>, Vec<_>) = faults.iter().copied().partition(|fault| fault.is_operators());
    let one_at_a_time = repeats && !breaks.is_empty() && breaks.iter().all(|fault| fault.is_disruption());
    history.write(&start_record(options, stage, &run, tries, one_at_a_time).await);
    let database = operator::database(&stage.database_url)?;
    let prepared = tokio::select! {
        prepared = prepare::prepare(&driver, stage, &database, options.seed, &run, has_entries) => prepared?,
        // What has no end by now stays without one.
        () = ended_early(&stop, &history) => return Ok(end(&history, path, stage, true).await),
    };
    let shared = Arc::new(prepared);
    let counts = Arc::new(Counts::default());
    let seed = options.seed;
    let injector = Injector {
        one_at_a_time,
        faults: breaks,
        every: options.fault_every,
        stage: Arc::clone(stage),
        driver: Arc::clone(&driver),
        history: Arc::clone(&history),
        counts: Arc::clone(&counts),
    };
    let operator = Operator {
        faults: acts,
        every: options.fault_every,
        database,
        driver: Arc::clone(&driver),
        shared: Arc::clone(&shared),
        seed,
        run: run.clone(),
        reaper: stage.reaper.clone(),
        counts: Arc::clone(&counts),
        stop: stop.clone(),
    };
    let disturbing = tokio::spawn(async move { tokio::join!(injector.run(seed), operator.work()) });
    let watching = tokio::spawn(watch_claims(
        stage.database_url.clone(),
        run.clone(),
        Arc::clone(&driver),
        options.lease + options.work,
    ));
    let callers = callers(options, &driver, &shared, &run);
    let interrupted = until_enough(options, &driver, &faults, &counts, &stop).await;
    driver.stopping.store(true, Ordering::Relaxed);
    let _ = disturbing.await;
    join(callers, interrupted).await;
    if !interrupted {
        quiesce(&stage.database_url, &run, options).await;
    }
    let _ = watching.await;
    Ok(end(&history, path, stage, interrupted).await)
}

/// Until the run was told to stop, or its history is worth nothing any more.
async fn ended_early(stop: &CancellationToken, history: &History) {
    tokio::select! {
        () = stop.cancelled() => {}
        () = history.broken().cancelled() => {}
    }
}

/// Writes the last line.
async fn end(history: &History, path: PathBuf, stage: &Stage, interrupted: bool) -> PathBuf {
    let database_us = alone_since(stage).await;
    history.write(&Record::End {
        at_us: history.now_us(),
        interrupted,
        database_us,
    });
    path
}

/// The database's clock, where nobody but this run has to do with the database.
async fn alone_since(stage: &Stage) -> Option<i64> {
    match &stage.cluster {
        Some(_) => database_us(&stage.database_url).await,
        None => None,
    }
}

fn driver(options: &Options, stage: &Stage, history: &Arc<History>, tries: u64) -> Result<Driver, String> {
    // A caller waits for as long as the service and its balancer may take, and a little more.
    let timeout = (options.wait + Duration::from_secs(5)) * u32::try_from(tries).unwrap_or(1) + Duration::from_secs(5);
    let clients: Result<Vec<_>, _> = stage.bases.iter().map(|base| Client::new(base, timeout)).collect();
    Ok(Driver {
        clients: clients.map_err(|error| error.to_string())?,
        history: Arc::clone(history),
        cuts: watch::Sender::new(0),
        calls: UnderWay::default(),
        visible: AtomicU64::new(0),
        entries: Mutex::new(VecDeque::new()),
        has_sources: !stage.replicas.is_empty(),
        stopping: AtomicBool::new(false),
        last_patience: options.lease * 4 + options.work + options.wait + Duration::from_secs(5),
    })
}

fn callers(options: &Options, driver: &Arc<Driver>, shared: &Arc<Shared>, run: &str) -> Vec<JoinHandle<()>> {
    let next = Arc::new(AtomicU64::new(0));
    (0..options.callers)
        .map(|_| {
            let (driver, shared, next) = (Arc::clone(driver), Arc::clone(shared), Arc::clone(&next));
            let (seed, run) = (options.seed, run.to_owned());
            tokio::spawn(async move {
                while !driver.stopping.load(Ordering::Relaxed) {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    driver.carry_out(&workload::intent(seed, &run, number, &shared)).await;
                }
            })
        })
        .collect()
}

/// Waits for the callers; what has no answer yet when the run is interrupted stays lost.
async fn join(callers: Vec<JoinHandle<()>>, interrupted: bool) {
    for caller in callers {
        if interrupted {
            caller.abort();
        }
        let _ = caller.await;
    }
}

async fn start_record(options: &Options, stage: &Stage, run: &str, tries: u64, one_at_a_time: bool) -> Record {
    let ms = |span: Duration| u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
    Record::Start {
        seed: options.seed,
        run: run.to_owned(),
        // Whoever checks the history gives the password anew.
        database_url: with_password_as(&stage.database_url, None),
        data_dir: stage
            .cluster
            .as_ref()
            .map(|_| std::path::absolute(&options.folder).unwrap_or_else(|_| options.folder.clone())),
        lease_ms: ms(options.lease),
        wait_ms: ms(options.wait),
        work_ms: ms(options.work),
        tries,
        one_at_a_time,
        limit_per_source: options.target.is_none().then_some(options.limit_per_source),
        limit_global: options.target.is_none().then_some(options.limit_global),
        database_us: alone_since(stage).await,
        about: stage.about(options.target.as_deref()).await,
        again: options.again.clone(),
    }
}

/// The faults that were asked for and that this stage allows.
fn possible(options: &Options, stage: &Stage, has_entries: bool) -> Vec<Fault> {
    let (possible, left_out): (Vec<_>, Vec<_>) = options.faults.iter().copied().partition(|fault| {
        (stage.cluster.is_some() || !fault.needs_own_postgres())
            && (!stage.replicas.is_empty() || !fault.needs_own_replicas())
    });
    say_left_out("this run started no Postgres or no replicas of its own", &left_out);
    let (possible, left_out): (Vec<_>, Vec<_>) = possible
        .into_iter()
        .partition(|fault| has_entries || !fault.needs_entries());
    say_left_out("the target offers no entries (TOOLSETS)", &left_out);
    possible
}

fn say_left_out(why: &str, faults: &[Fault]) {
    if !faults.is_empty() {
        let names: Vec<_> = faults.iter().map(|fault| fault.name()).collect();
        eprintln!("ticket-ledger: not injected, because {why}: {}", names.join(", "));
    }
}

/// Waits until there were enough calls, time and faults; true when it was interrupted.
async fn until_enough(
    options: &Options,
    driver: &Driver,
    faults: &[Fault],
    counts: &Counts,
    stop: &CancellationToken,
) -> bool {
    let began = Instant::now();
    let bar = progress_bar(options.calls, options.progress);
    if let Ok(style) = ProgressStyle::with_template("{bar:40} {pos}/{len} calls, {msg}") {
        bar.set_style(style);
    }
    let interrupted = loop {
        tokio::select! {
            () = sleep(Duration::from_millis(200)) => {}
            () = ended_early(stop, &driver.history) => break true,
        }
        let calls = driver.calls.begun();
        let counts = unpoisoned(counts.lock()).clone();
        bar.set_position(calls.min(options.calls));
        bar.set_message(format!(
            "{:.0} s, {} faults, {} visible to clients",
            began.elapsed().as_secs_f64(),
            counts.values().sum::<u64>(),
            driver.visible.load(Ordering::Relaxed)
        ));
        let faults = faults.iter().all(|fault| {
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

pub(super) fn progress_bar(length: u64, shown: bool) -> ProgressBar {
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
