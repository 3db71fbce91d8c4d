//! An operator who is at work during a run: hides and deletes entries and stops writes, as `ticket-ledger admin` does, and
//! notes when each act was begun and had been done.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use fastrand::Rng;
use sqlx::{Connection, PgConnection};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::driver::Driver;
use super::faults::{Counts, Fault};
use super::history::Record;
use super::reaper::Reaper;
use super::workload::{SHARED_QUESTIONS, Shared, preparation};
use crate::ledger::set_write_stop;
use crate::operation::entries::moderation::{self, Moderated};
use crate::postgres::{Database, DatabaseError, Reach, Settings};
use crate::unpoisoned;

/// Who did it, for the audit.
const NAME: &str = "ticket-ledger load";
/// How long an act is tried: Postgres may be down on purpose, but not for longer.
const PATIENCE: Duration = Duration::from_secs(60);
/// Numbers of the intents that put a question in a deleted one's place; no run comes so far.
const REPLACEMENTS: u64 = u64::MAX - 1_000;

/// The operator.
pub struct Operator {
    /// What may be done.
    pub faults: Vec<Fault>,
    /// Mean pause between two acts.
    pub every: Duration,
    /// Where it is done.
    pub database: Database,
    /// The callers, who know of entries, and where it is noted.
    pub driver: Arc<Driver>,
    /// Whose questions are hidden and deleted.
    pub shared: Arc<Shared>,
    /// Of the workload.
    pub seed: u64,
    /// Names the run.
    pub run: String,
    /// Ends a stop if this process is killed.
    pub reaper: Reaper,
    /// How often each was done.
    pub counts: Arc<Counts>,
    /// Cancelled when the run is interrupted.
    pub stop: CancellationToken,
}

/// What is done.
#[derive(Debug, Clone, Copy)]
enum Act<'a> {
    Hide(&'a str),
    Unhide(&'a str),
    Delete(&'a str),
    Stop,
    Allow,
}

impl<'a> Act<'a> {
    /// As `ticket-ledger admin` calls it.
    fn name(self) -> &'static str {
        match self {
            Self::Hide(_) => "hide",
            Self::Unhide(_) => "unhide",
            Self::Delete(_) => "delete",
            Self::Stop => "stop-writes",
            Self::Allow => "allow-writes",
        }
    }

    fn entry(self) -> Option<&'a str> {
        match self {
            Self::Hide(entry) | Self::Unhide(entry) | Self::Delete(entry) => Some(entry),
            Self::Stop | Self::Allow => None,
        }
    }
}

/// The database as an operator reaches it.
///
/// # Errors
/// A sentence: the URL cannot be read.
pub fn database(url: &str) -> Result<Database, String> {
    Database::new(&Settings::by_hand(url.to_owned()), Arc::new(Reach::default())).map_err(|error| error.to_string())
}

/// Whether writes are stopped; false where that cannot be told.
pub async fn are_writes_stopped(url: &str) -> bool {
    let asked = async {
        let mut connection = PgConnection::connect(url).await?;
        let stopped: bool = sqlx::query_scalar("select stopped from write_stop")
            .fetch_one(&mut connection)
            .await?;
        connection.close().await?;
        Ok::<_, sqlx::Error>(stopped)
    };
    asked.await.unwrap_or(false)
}

/// Allows writes.
///
/// # Errors
/// A sentence.
pub async fn allow_writes(database: &Database) -> Result<(), String> {
    let allowed = set_write_stop(database, false, NAME).await;
    allowed
        .map(|_| ())
        .map_err(|error| format!("writes cannot be allowed: {error}"))
}

impl Operator {
    /// Is at work until the run is stopping. Writes are allowed when this returns, or it says what is to be done.
    pub async fn work(&self) {
        let mut rng = Rng::with_seed(self.seed.rotate_left(16));
        for turn in 0_usize.. {
            if self.driver.stopping.load(Ordering::Relaxed) || self.faults.is_empty() {
                break;
            }
            // Twice as often: most acts are over at once.
            sleep(self.every.mul_f64(0.25 + rng.f64() / 2.0)).await;
            let Some(fault) = self.faults.get(turn % self.faults.len()).copied() else {
                break;
            };
            match fault {
                Fault::Hide => self.hide(&mut rng).await,
                Fault::Delete => self.delete(&mut rng, turn).await,
                _ => self.stop_writes(&mut rng).await,
            }
            *unpoisoned(self.counts.lock()).entry(fault).or_default() += 1;
        }
    }

    async fn hide(&self, rng: &mut Rng) {
        let (Some(entry), _) = self.choose(rng) else { return };
        self.act(Act::Hide(&entry)).await;
        sleep(Duration::from_millis(rng.u64(100..1_200))).await;
        self.act(Act::Unhide(&entry)).await;
    }

    async fn delete(&self, rng: &mut Rng, turn: usize) {
        let (Some(entry), place) = self.choose(rng) else { return };
        self.act(Act::Delete(&entry)).await;
        unpoisoned(self.driver.entries.lock()).retain(|known| *known != entry);
        let Some(place) = place else { return };
        // Replies go to the deleted question for a while.
        sleep(Duration::from_millis(rng.u64(100..800))).await;
        let intent = preparation(self.seed, &self.run, REPLACEMENTS - turn as u64, true);
        let answer = tokio::select! {
            answer = self.driver.carry_out(&intent) => answer,
            () = self.stop.cancelled() => None,
        };
        if let Some(id) = answer.and_then(|answer| answer.result?.get("id")?.as_str().map(str::to_owned))
            && let Some(question) = unpoisoned(self.shared.questions.lock()).get_mut(place)
        {
            *question = id;
        }
    }

    /// A question that is replied to, with its place, or an entry that a caller was told of just now.
    fn choose(&self, rng: &mut Rng) -> (Option<String>, Option<usize>) {
        let place = rng.usize(..SHARED_QUESTIONS as usize);
        let back = rng.usize(..4);
        if rng.bool() {
            // Their callers are about to repeat.
            let entries = unpoisoned(self.driver.entries.lock());
            let entry = entries.iter().rev().nth(back).cloned();
            let shared = unpoisoned(self.shared.questions.lock());
            let place = shared.iter().position(|question| entry.as_ref() == Some(question));
            return (entry, place);
        }
        (self.shared.question(place), Some(place))
    }

    async fn stop_writes(&self, rng: &mut Rng) {
        self.reaper.owes_allowing(true);
        self.act(Act::Stop).await;
        sleep(Duration::from_millis(rng.u64(100..500))).await;
        if self.act(Act::Allow).await {
            self.reaper.owes_allowing(false);
        } else {
            eprintln!(
                "ticket-ledger: writes could not be allowed again; do it by hand: ticket-ledger admin allow-writes, with \
                 DATABASE_URL of that database"
            );
        }
    }

    /// Does something, again until it is done, and notes both ends; false when it could not be done.
    async fn act(&self, act: Act<'_>) -> bool {
        self.note(act, "begin", None);
        let began = Instant::now();
        loop {
            match self.once(act).await {
                Ok(outcome) => {
                    self.note(act, "end", Some(outcome));
                    return true;
                }
                Err(error) if began.elapsed() > PATIENCE => {
                    eprintln!("ticket-ledger: an operator's {} could not be done: {error}", act.name());
                    return false;
                }
                Err(_) => sleep(Duration::from_millis(200)).await,
            }
        }
    }

    async fn once(&self, act: Act<'_>) -> Result<&'static str, DatabaseError> {
        let database = &self.database;
        Ok(match act {
            Act::Hide(entry) => word(moderation::set_hidden(database, entry, true, NAME).await?),
            Act::Unhide(entry) => word(moderation::set_hidden(database, entry, false, NAME).await?),
            Act::Delete(entry) => word(moderation::delete(database, entry, NAME).await?),
            Act::Stop => changed(set_write_stop(database, true, NAME).await?),
            Act::Allow => changed(set_write_stop(database, false, NAME).await?),
        })
    }

    fn note(&self, act: Act<'_>, phase: &str, outcome: Option<&str>) {
        let history = &self.driver.history;
        history.write(&Record::Acted {
            at_us: history.now_us(),
            act: act.name().to_owned(),
            entry: act.entry().map(str::to_owned),
            phase: phase.to_owned(),
            outcome: outcome.map(str::to_owned),
        });
    }
}

fn changed(changed: bool) -> &'static str {
    if changed { "changed" } else { "already so" }
}

fn word(moderated: Moderated) -> &'static str {
    match moderated {
        Moderated::Changed => "changed",
        Moderated::AlreadySo => "already so",
        Moderated::Deleted => "deleted",
        Moderated::Unknown => "unknown",
    }
}
