//! The callers: they carry intents out in their manners, and note every call in the history.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::Instant;

use futures_util::future::join_all;
use tokio::sync::watch;
use tokio::time::sleep;

use super::client::{Answer, Client, Found, Reply};
use super::entries::entry_of;
use super::history::{History, Record};
use super::under_way::UnderWay;
use super::workload::{Intent, Manner, Way, Write};
use crate::unpoisoned;

/// How long a caller goes on repeating before it gives up; the checker says what that means.
const PATIENCE: Duration = Duration::from_secs(120);
/// Between two repeats of a caller that has no final answer, at most.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// A caller that is told to come back later than this has been refused for as long as the run lasts.
const LONGEST_LIMIT: Duration = Duration::from_secs(5);
/// How many of the entries that were told last are remembered.
const MOST_ENTRIES: usize = 8;

/// What all callers share.
pub struct Driver {
    /// Where calls go: the balancer, or every replica.
    pub clients: Vec<Client>,
    /// Where everything is noted.
    pub history: Arc<History>,
    /// Raised when connections are cut after the request and before the answer.
    pub cuts: watch::Sender<u64>,
    /// The calls made so far, and which of them have no end yet.
    pub calls: UnderWay,
    /// Calls whose client saw anything but an answer, without having left itself.
    pub visible: AtomicU64,
    /// The entries that callers were told of last, for an operator to look at.
    pub entries: Mutex<VecDeque<String>>,
    /// Whether calls say for whom they are sent; only the load test's own replicas believe it.
    pub has_sources: bool,
    /// Set when the run is to end: no new intents, and `last_patience` for those that are under way.
    pub stopping: AtomicBool,
    /// How long an abandoned claim may take, and a call that waits for it.
    pub last_patience: Duration,
}

impl Driver {
    /// Carries an intent out, until its caller has a final answer.
    pub async fn carry_out(&self, intent: &Intent) -> Option<Answer> {
        let mut calls = Calls {
            driver: self,
            intent,
            made: 0,
        };
        match intent.manner {
            Manner::Plain => {
                if let Reply::Lost(_) = calls.make(&intent.write, "first").await {
                    calls.make(&intent.write, "repeat").await;
                }
            }
            Manner::Model => {
                if let Reply::Lost(_) = calls.make(&intent.write, "first").await {
                    self.find(&intent.request).await;
                }
            }
            Manner::Careless { times } => {
                for time in 0..times {
                    calls
                        .make(&intent.write, if time == 0 { "first" } else { "again" })
                        .await;
                }
            }
            Manner::Concurrent { callers } => {
                let at_once = (0..callers).map(|caller| {
                    let way = intent.ways[caller as usize % intent.ways.len()];
                    let why = if caller == 0 { "first" } else { "duplicate" };
                    self.call(way, intent, &intent.write, why, None)
                });
                join_all(at_once).await;
            }
            Manner::Reuse => {
                let first = calls.make(&intent.write, "first");
                let second = async {
                    sleep(Duration::from_millis(intent.pause_ms)).await;
                    self.call(intent.ways[7], intent, &intent.other, "reuse", None).await
                };
                tokio::join!(first, second);
            }
            Manner::Leave { after_ms } => {
                let leave = Some(Duration::from_millis(after_ms));
                self.call(intent.ways[0], intent, &intent.write, "first", leave).await;
                sleep(Duration::from_millis(intent.pause_ms)).await;
                self.find(&intent.request).await;
            }
            Manner::Abandon { after_ms } => {
                let leave = Some(Duration::from_millis(after_ms));
                self.call(intent.ways[0], intent, &intent.write, "first", leave).await;
                return None;
            }
        }
        let answer = self.until_final(intent).await;
        if intent.manner == Manner::Model {
            // To be sure, before it reports.
            self.find(&intent.request).await;
        }
        answer
    }

    /// Repeats the same call until its answer is final.
    async fn until_final(&self, intent: &Intent) -> Option<Answer> {
        let began = Instant::now();
        let mut ending: Option<Instant> = None;
        let mut calls = Calls {
            driver: self,
            intent,
            made: 4,
        };
        loop {
            let pause = match calls.make(&intent.write, "repeat").await {
                Reply::Answer(answer) if is_final(&answer) => return Some(answer),
                Reply::Answer(answer) => answer.retry_after.clamp(Duration::from_millis(100), LONGEST_PAUSE),
                Reply::Lost(_) => Duration::from_millis(200),
            };
            if self.stopping.load(Ordering::Relaxed) {
                ending.get_or_insert_with(Instant::now);
            }
            if began.elapsed() > PATIENCE || ending.is_some_and(|since| since.elapsed() > self.last_patience) {
                self.history.write(&Record::GaveUp {
                    at_us: self.history.now_us(),
                    request: intent.request.clone(),
                });
                return None;
            }
            sleep(pause).await;
        }
    }

    /// Makes one call and notes it; with `leave`, the caller goes away after that time.
    async fn call(&self, way: Way, intent: &Intent, write: &Write, why: &str, leave: Option<Duration>) -> Reply {
        let source = self.has_sources.then_some(intent.source.as_str());
        let begun = self.calls.begin();
        let call = begun.number;
        let Some(client) = self.clients.get(call as usize % self.clients.len().max(1)) else {
            return Reply::Lost("there is nobody to call".to_owned());
        };
        let mut cuts = self.cuts.subscribe();
        self.history.write(&Record::Invoked {
            call,
            at_us: self.history.now_us(),
            request: intent.request.clone(),
            tool: write.tool.to_owned(),
            mark: write.mark.clone(),
            ticket: write.ticket(),
            body_sha256: write.body_sha256(),
            entry: entry_of(write),
            source: source.map(str::to_owned),
            way: way.as_str().to_owned(),
            why: why.to_owned(),
        });
        let leaving = async {
            match leave {
                Some(after) => sleep(after).await,
                None => std::future::pending().await,
            }
        };
        let (reply, cut) = tokio::select! {
            reply = client.write(way, source, &intent.request, write) => (reply, false),
            () = leaving => (Reply::Lost("the caller left".to_owned()), true),
            _ = cuts.changed() => (Reply::Lost("the connection was cut".to_owned()), true),
        };
        self.note(call, &reply, cut);
        reply
    }

    fn note(&self, call: u64, reply: &Reply, cut: bool) {
        let at_us = self.history.now_us();
        let record = match reply {
            Reply::Answer(answer) => {
                if matches!(answer.outcome.as_str(), "unavailable" | "none") {
                    self.visible.fetch_add(1, Ordering::Relaxed);
                }
                self.remember(answer);
                Record::Answered {
                    call,
                    at_us,
                    status: answer.status,
                    outcome: answer.outcome.clone(),
                    replayed: answer.replayed,
                    result: answer.result.clone(),
                    told_status: answer.told_status,
                    limit: answer.limit.clone(),
                }
            }
            Reply::Lost(why) => {
                if !cut {
                    self.visible.fetch_add(1, Ordering::Relaxed);
                }
                Record::Lost {
                    call,
                    at_us,
                    cut,
                    why: why.clone(),
                }
            }
        };
        self.history.write(&record);
    }

    /// Remembers the entry that an answer tells of.
    fn remember(&self, answer: &Answer) {
        let told = answer.result.as_ref().filter(|result| result.contains_key("saved_via"));
        let Some(id) = told.and_then(|result| result.get("id")?.as_str()) else {
            return;
        };
        let mut entries = unpoisoned(self.entries.lock());
        if !entries.iter().any(|known| known == id) {
            entries.push_back(id.to_owned());
        }
        if entries.len() > MOST_ENTRIES {
            entries.pop_front();
        }
    }

    async fn find(&self, request: &str) {
        let asked_us = self.history.now_us();
        let Some(client) = self.clients.get(request.len() % self.clients.len().max(1)) else {
            return;
        };
        let found = client.find(request).await;
        let Found {
            http,
            status,
            result,
            visible,
        } = found.unwrap_or_else(Found::lost);
        self.history.write(&Record::Found {
            at_us: self.history.now_us(),
            asked_us,
            request: request.to_owned(),
            http,
            status,
            result,
            visible,
        });
    }
}

/// The calls of one intent, each in the next of its ways.
struct Calls<'a> {
    driver: &'a Driver,
    intent: &'a Intent,
    made: usize,
}

impl Calls<'_> {
    async fn make(&mut self, write: &Write, why: &str) -> Reply {
        let way = self.intent.ways[self.made % self.intent.ways.len()];
        self.made += 1;
        self.driver.call(way, self.intent, write, why, None).await
    }
}

/// Whether a caller has nothing more to wait for. An operator's stop is over soon; an hour is not.
fn is_final(answer: &Answer) -> bool {
    match answer.outcome.as_str() {
        "in_progress" | "unavailable" | "writes_disabled" => false,
        // A balancer's page goes away; another web server's stays.
        "none" => !matches!(answer.status, 502 | 503),
        "rate_limited" => answer.retry_after > LONGEST_LIMIT,
        _ => true,
    }
}
