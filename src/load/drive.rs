//! A run from its first call to its last: callers and faults are let loose, until there was enough of both.

use std::collections::BTreeMap;
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
use super::faults::{Fault, Injector};
use super::history::{History, Record};
use super::stage::Stage;
use super::under_way::UnderWay;
use super::watcher::{quiesce, watch_claims};
use super::workload::{self, Manner, SHARED_TICKETS, Way};
use crate::unpoisoned;

/// What a run came to.
pub struct Driven {
    /// Where its history lies.
    pub history: PathBuf,
    /// Requests whose caller had no final answer when its patience ended.
    pub given_up: u64,
}

/// Lets callers and faults loose.
///
/// # Errors
/// A sentence: no history could be begun, or the service does not answer.
pub async fn drive(
    options: &Options,
    stage: &Arc<Stage>,
    folder: &Path,
    stop: CancellationToken,
) -> Result<Driven, String> {
    let (history, path) =
        History::create(folder).map_err(|error| format!("no history can be made in {}: {error}", folder.display()))?;
    let history = Arc::new(history);
    let run = format!("load-{:x}", uuid::Uuid::new_v4().as_u128() & 0xFFFF_FFFF);
    // A deployment that runs already may have a balancer too.
    let repeats = stage.balancer.is_some() || options.target.is_some();
    let tries = if repeats { TRIES } else { 1 };
    let faults = possible(options, stage);
    let one_at_a_time = repeats && !faults.is_empty() && faults.iter().all(|fault| fault.is_disruption());
    history.write(&start_record(options, stage, &run, tries, one_at_a_time).await);
    let driver = Arc::new(driver(options, stage, &history, tries)?);
    let tickets = Arc::new(shared_tickets(&driver, options.seed, &run).await?);
    let injector = Arc::new(Injector {
        one_at_a_time,
        faults,
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
    let callers = callers(options, &driver, &tickets, &run);
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
    Ok(Driven {
        history: path,
        given_up: driver.given_up.load(Ordering::Relaxed),
    })
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
        given_up: AtomicU64::new(0),
        stopping: AtomicBool::new(false),
        last_patience: options.lease * 4 + options.work + options.wait + Duration::from_secs(5),
    })
}

fn callers(options: &Options, driver: &Arc<Driver>, tickets: &Arc<Vec<String>>, run: &str) -> Vec<JoinHandle<()>> {
    let next = Arc::new(AtomicU64::new(0));
    (0..options.callers)
        .map(|_| {
            let (driver, tickets, next) = (Arc::clone(driver), Arc::clone(tickets), Arc::clone(&next));
            let (seed, run) = (options.seed, run.to_owned());
            tokio::spawn(async move {
                while !driver.stopping.load(Ordering::Relaxed) {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    driver.carry_out(&workload::intent(seed, &run, number, &tickets)).await;
                }
            })
        })
        .collect()
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
        about: stage.about(options.target.as_deref()).await,
        again: options.again.clone(),
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
        let calls = driver.calls.begun();
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
