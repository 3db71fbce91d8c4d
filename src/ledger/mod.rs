//! The ledger: it makes every write happen once, whoever calls how often on whatever replica.
//!
//! It knows no tool and no protocol. A call comes in as an [`Intent`] and leaves as a [`Verdict`].

mod attempt;
mod batch;
mod claim;
mod course;
mod effect;
mod flight;
mod gauges;
mod lately;
mod lease;
mod operator;
mod overview;
mod pulse;
mod scan;
mod settle;
mod state;
mod sweep;
mod tokens;
mod wait;
mod waiting;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{Instrument, debug_span, warn};

use self::batch::Batcher;
use self::claim::{Look, look};
use self::flight::{Flight, Seat};
use self::lately::Lately;
use self::lease::Leases;
use self::tokens::Tokens;
use self::wait::Waiters;
use crate::postgres::{Database, DatabaseError, Heard, Hearing};
use crate::telemetry::trace;
use crate::unpoisoned;

pub use self::effect::{Act, Effect, NotPrepared, Refused};
pub use self::flight::Intent;
pub use self::operator::{Retried, retry, set_write_stop};
pub use self::state::{Fingerprint, Join, Key, MOST_LAPSES, Phase, Ran, Seen, Settled, Token, Unavailable, Verdict};
pub use self::sweep::Upkeep;

/// The ledger's times and sizes.
#[derive(Debug, Clone)]
pub struct Limits {
    /// How long a claim holds unrenewed.
    pub lease: Duration,
    /// Past this an attempt's lease is not renewed any more.
    pub work_limit: Duration,
    /// How long Postgres may be out of reach before a caller is told so.
    pub patience: Duration,
    /// How long a result is kept.
    pub keep_results: Duration,
    /// How long a key and its fingerprint are kept.
    pub keep_keys: Duration,
    /// The most flights at once; a call past that is told to come again.
    pub most_flights: usize,
    /// How many writes may be saved in an hour of the database's clock, over all replicas; 0 for any number.
    pub most_writes_per_hour: i64,
    /// Whether to look for a twin of what was just created.
    pub tell_duplicates: bool,
}

impl Limits {
    /// What the holder of a claim may count on: a tenth less than the lease.
    fn certain_lease(&self) -> Duration {
        self.lease.mul_f64(0.9)
    }

    fn lease_ms(&self) -> i64 {
        milliseconds(self.lease)
    }

    /// A key that says that it is older than this is not run without a row: its row may have been swept. Ten days under
    /// the default 30 days of retention, for clocks that are off.
    fn oldest_key_ms(&self) -> i64 {
        milliseconds(self.keep_keys.mul_f64(2.0 / 3.0))
    }
}

fn milliseconds(span: Duration) -> i64 {
    i64::try_from(span.as_millis()).unwrap_or(i64::MAX)
}

/// What every part of the ledger works with.
struct Store {
    database: Database,
    url: String,
    replica: Arc<str>,
    limits: Limits,
    tokens: Tokens,
    leases: Leases,
    waiters: Arc<Waiters>,
    /// As of the last scan; 0 when nothing is unsettled.
    oldest_running_ms: AtomicU64,
    hearing: Arc<Hearing>,
    lately: Lately,
}

impl Store {
    /// Whether Postgres has been out of reach for longer than a caller is kept waiting for it.
    fn is_out_of_reach(&self) -> bool {
        let out = self.database.reach().unreachable_for();
        out.is_some_and(|out| out > self.limits.patience)
    }
}

/// How often a caller that waits looks whether Postgres has gone.
const LOOK_FOR_OUTAGE: Duration = Duration::from_millis(250);

/// What a ledger is made from.
pub struct Setup {
    /// The pool.
    pub database: Database,
    /// Where the leases' own connection goes.
    pub url: String,
    /// Where the listening connection goes: never through a transaction pooler.
    pub listen_url: String,
    /// This replica's name, for people.
    pub replica: String,
    /// Times and sizes.
    pub limits: Limits,
    /// Every operation that may be claimed.
    pub acts: Vec<Arc<dyn Act>>,
    /// What else is to be done from time to time.
    pub upkeep: Vec<Arc<dyn Upkeep>>,
}

/// A replica's ledger.
pub struct Ledger {
    store: Arc<Store>,
    acts: HashMap<&'static str, Arc<dyn Act>>,
    batchers: HashMap<&'static str, Batcher>,
    flights: Mutex<HashMap<(Key, Fingerprint), Arc<Flight>>>,
    /// Flights and everything else that must not be cut off.
    tasks: TaskTracker,
    /// Cancelled when the time to finish is over: what still runs is handed back.
    hand_back: CancellationToken,
    /// Cancelled at the very end: listening, renewing, scanning and sweeping stop.
    stop: CancellationToken,
}

impl Ledger {
    /// Starts a ledger and its background tasks.
    pub fn start(setup: Setup) -> Arc<Self> {
        let hearing = Arc::new(Hearing::default());
        let waiters = Arc::new(Waiters::default());
        let store = Arc::new(Store {
            database: setup.database,
            url: setup.url,
            replica: setup.replica.into(),
            limits: setup.limits,
            tokens: Tokens::default(),
            leases: Leases::default(),
            waiters: Arc::clone(&waiters),
            oldest_running_ms: AtomicU64::new(0),
            hearing: Arc::clone(&hearing),
            lately: Lately::default(),
        });
        let stop = CancellationToken::new();
        let background = TaskTracker::new();
        let batchers = setup
            .acts
            .iter()
            .filter(|act| act.effect().batched)
            .map(|act| (act.name(), Batcher::start(&store, act, &background)))
            .collect();
        let ledger = Arc::new(Self {
            acts: setup.acts.into_iter().map(|act| (act.name(), act)).collect(),
            batchers,
            flights: Mutex::new(HashMap::new()),
            tasks: TaskTracker::new(),
            hand_back: CancellationToken::new(),
            stop: stop.clone(),
            store: Arc::clone(&store),
        });
        let database = store.database.clone();
        let heard: Arc<dyn Heard> = waiters;
        background.spawn(crate::postgres::listen(
            setup.listen_url,
            database,
            heard,
            hearing,
            stop.clone(),
        ));
        background.spawn(lease::renew_for_ever(Arc::clone(&store), stop.clone()));
        background.spawn(scan::scan_for_ever(Arc::downgrade(&ledger), stop.clone()));
        background.spawn(sweep::sweep_for_ever(store, setup.upkeep, stop));
        ledger
    }

    /// Brings a call to its verdict, or tells at `deadline` that it is still in progress. The work goes on when the future is
    /// dropped.
    pub async fn perform(self: &Arc<Self>, intent: Intent, deadline: Instant) -> Verdict {
        let (request_id, operation) = (Arc::clone(&intent.key.request_id), intent.act.name());
        let verdict = self.bring_to_verdict(intent, deadline).await;
        self.store.lately.note(&request_id, operation, &verdict);
        verdict
    }

    async fn bring_to_verdict(self: &Arc<Self>, intent: Intent, deadline: Instant) -> Verdict {
        if self.stop.is_cancelled() {
            // It was let in before the replica drained, and its body came after; nobody would renew or hand back its claim.
            return Verdict::HandedBack;
        }
        let Some((flight, seat, first)) = self.board(intent) else {
            return Verdict::Unavailable(Unavailable::Overloaded);
        };
        if first {
            let verdict = self.await_verdict(&flight, seat, true, deadline).await;
            trace::say("ticket_ledger.waited_ms", milliseconds(flight.waited()));
            return verdict;
        }
        let (span, boarded) = (debug_span!("ledger.wait"), Instant::now());
        let verdict = self.await_verdict(&flight, seat, false, deadline);
        let verdict = verdict.instrument(span.clone()).await;
        let ended = match &verdict {
            Verdict::InProgress { .. } => "deadline",
            Verdict::HandedBack => "handed_back",
            Verdict::Unavailable(_) => "unavailable",
            _ => "memory",
        };
        trace::say_on(&span, "ticket_ledger.wait.ended", ended);
        trace::say("ticket_ledger.waited_ms", milliseconds(boarded.elapsed()));
        verdict
    }

    async fn await_verdict(&self, flight: &Flight, mut seat: Seat, first: bool, deadline: Instant) -> Verdict {
        loop {
            let next_look = deadline.min(Instant::now() + LOOK_FOR_OUTAGE);
            match timeout_at(next_look, seat.wait_for(Option::is_some)).await {
                Ok(Ok(verdict)) => return told(verdict.clone(), first),
                Ok(Err(_)) => return Verdict::Unavailable(Unavailable::Fault),
                Err(_) if Instant::now() >= deadline => {
                    flight.note_deadline();
                    return Verdict::InProgress {
                        lease_left: flight.lease_left(),
                        runs: flight.runs(),
                    };
                }
                // Whatever the flight is waiting for, its caller learns of an outage within seconds; but for work that goes on
                // here and may outlast the outage.
                Err(_) if self.store.is_out_of_reach() && !flight.is_working() => {
                    return Verdict::Unavailable(Unavailable::Database);
                }
                Err(_) => {}
            }
        }
    }

    /// A seat on the flight of this request, and whether the flight was started for it; `None` when there are too many.
    fn board(self: &Arc<Self>, intent: Intent) -> Option<(Arc<Flight>, Seat, bool)> {
        let mut flights = unpoisoned(self.flights.lock());
        let crowded = flights.len() >= self.store.limits.most_flights;
        match flights.entry((intent.key.clone(), intent.fingerprint)) {
            Entry::Occupied(flight) => Some((Arc::clone(flight.get()), flight.get().board(), false)),
            Entry::Vacant(_) if crowded => None,
            Entry::Vacant(place) => {
                let span = debug_span!("ledger.request", ticket_ledger.operation = intent.act.name());
                trace::say_request_id(&span, &intent.key.request_id);
                let flight = Arc::new(Flight::new(self, intent, span));
                // Seated before it flies, so that it never looks unwanted.
                let seat = flight.board();
                place.insert(Arc::clone(&flight));
                let span = flight.span.clone();
                self.tasks.spawn(Arc::clone(&flight).fly().instrument(span));
                Some((flight, seat, true))
            }
        }
    }

    /// A request as its row shows it; `Err(true)` when there is none and the key is a UUIDv7 too old to be run.
    ///
    /// # Errors
    /// Postgres cannot be reached.
    pub async fn find(&self, key: &Key, minted_ms: Option<i64>) -> Result<Result<Seen, bool>, DatabaseError> {
        let looks = look(&self.store, &[(key, minted_ms)]).await?;
        Ok(match looks.into_iter().next() {
            Some(Look::Row(seen)) => Ok(*seen),
            Some(Look::Nothing { too_old }) => Err(too_old),
            None => Err(false),
        })
    }

    /// Whether joins are woken by notifications, or only by polling.
    pub fn is_listening(&self) -> bool {
        self.store.hearing.is_good()
    }

    /// The pool.
    pub fn database(&self) -> &Database {
        &self.store.database
    }

    /// Lets what runs finish for as long as `grace`, hands the rest back, and stops.
    pub async fn drain(&self, grace: Duration) {
        self.tasks.close();
        if tokio::time::timeout(grace, self.tasks.wait()).await.is_err() {
            warn!(
                claims = self.store.leases.len(),
                waiters = self.store.waiters.len(),
                "the time to finish is over; handing back"
            );
            self.hand_back.cancel();
            // Handing back gives up by itself when Postgres is out of reach.
            self.tasks.wait().await;
        }
        self.stop.cancel();
    }

    fn batcher(&self, name: &str) -> Option<&Batcher> {
        self.batchers.get(name)
    }

    fn retire(&self, flight: &Flight) {
        let mut flights = unpoisoned(self.flights.lock());
        remove(&mut flights, flight);
    }

    /// Takes a flight out if nobody is on board. Boarding happens under the same lock, so nobody can come after.
    fn retire_if_unwanted(&self, flight: &Flight) -> bool {
        let mut flights = unpoisoned(self.flights.lock());
        let unwanted = !flight.has_callers();
        if unwanted {
            remove(&mut flights, flight);
        }
        unwanted
    }

    /// Finishes a lapsed claim, whether or not somebody here waits for it: a waiter takes over only once.
    fn adopt(self: &Arc<Self>, intent: Intent, lapsed: Token, ran: Ran) {
        if self.store.leases.holds(lapsed) {
            // This replica's own attempt, which came too late to renew it and does so now.
            return;
        }
        let span = debug_span!(parent: None, "ledger.adopt", ticket_ledger.operation = intent.act.name());
        trace::say_request_id(&span, &intent.key.request_id);
        let flight = Arc::new(Flight::new(self, intent, span.clone()));
        let mut flights = unpoisoned(self.flights.lock());
        // Callers board it, unless they wait on a flight already. That one learns the end like any other waiter.
        flights
            .entry((flight.intent.key.clone(), flight.intent.fingerprint))
            .or_insert_with(|| Arc::clone(&flight));
        self.tasks.spawn(flight.adopt(lapsed, ran).instrument(span));
    }
}

/// A verdict as one of those on board is told it.
fn told(verdict: Option<Verdict>, first: bool) -> Verdict {
    match verdict {
        // Several may have boarded; the work was done for the first of them.
        Some(Verdict::Settled {
            settled,
            replayed,
            joined,
        }) => Verdict::Settled {
            settled,
            replayed: replayed || !first,
            joined: joined.or((!first).then_some(Join::Memory)),
        },
        Some(verdict) => verdict,
        None => Verdict::Unavailable(Unavailable::Fault),
    }
}

/// Removes this very flight, not a later one of the same request.
fn remove(flights: &mut HashMap<(Key, Fingerprint), Arc<Flight>>, flight: &Flight) {
    let place = (flight.intent.key.clone(), flight.intent.fingerprint);
    if flights
        .get(&place)
        .is_some_and(|listed| std::ptr::eq(listed.as_ref(), flight))
    {
        flights.remove(&place);
    }
}
