//! The faults, and who injects them.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use clap::ValueEnum;
use fastrand::Rng;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use sqlx::{Connection, PgConnection};
use tokio::time::sleep;

use super::driver::Driver;
use super::history::{History, Record};
use super::stage::Stage;
use crate::cluster::StopMode;
use crate::unpoisoned;

/// A kind of fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Fault {
    /// SIGKILL of a replica during calls, and its restart
    Kill,
    /// SIGTERM of every replica in turn, and its restart
    Rolling,
    /// SIGSTOP of a replica past the lease, and SIGCONT
    Pause,
    /// Postgres asked to stop when its clients have gone, made to stop, and started again
    PgSmart,
    /// Postgres stopped as in a crash, and started again
    PgImmediate,
    /// The listening connections terminated
    Listen,
    /// A replica's connections to Postgres cut
    DbCut,
    /// A replica's connections to Postgres delayed
    DbDelay,
    /// A replica's connections to Postgres cut after some bytes of an answer
    DbCutAfter,
    /// Callers' connections cut after the request and before the answer
    AnswerCut,
    /// An operator hides a question or another entry for a moment
    Hide,
    /// An operator deletes a question or another entry
    Delete,
    /// An operator stops writes for a moment
    StopWrites,
}

impl Fault {
    /// Its name, as on the command line.
    pub fn name(self) -> String {
        self.to_possible_value()
            .map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// Whether it takes a replica away for a while and nothing else, as a deployment or a dying machine does.
    pub fn is_disruption(self) -> bool {
        matches!(self, Self::Kill | Self::Rolling)
    }

    /// Whether it needs a Postgres that the load test may stop.
    pub fn needs_own_postgres(self) -> bool {
        matches!(self, Self::PgSmart | Self::PgImmediate)
    }

    /// Whether it needs replicas that the load test started.
    pub fn needs_own_replicas(self) -> bool {
        !matches!(self, Self::AnswerCut) && !self.is_operators()
    }

    /// Whether it is an operator's act, and nothing breaks.
    pub fn is_operators(self) -> bool {
        matches!(self, Self::Hide | Self::Delete | Self::StopWrites)
    }

    /// Whether it is done to entries.
    pub fn needs_entries(self) -> bool {
        matches!(self, Self::Hide | Self::Delete)
    }
}

/// Injects faults one after the other.
pub struct Injector {
    /// What may be injected.
    pub faults: Vec<Fault>,
    /// Mean pause between two faults.
    pub every: Duration,
    /// Whether a replica is disrupted only when no call suffers from the last disruption any more.
    ///
    /// A balancer asks one other replica. A call that lost one replica and waits for its lease on the next one is lost if
    /// that one dies too, and nothing but time between two disruptions helps; a PodDisruptionBudget and a rolling update see
    /// to it.
    pub one_at_a_time: bool,
    /// The stage on which it happens.
    pub stage: Arc<Stage>,
    /// The callers, whose connections may be cut.
    pub driver: Arc<Driver>,
    /// Where it is noted.
    pub history: Arc<History>,
    /// How often each was injected.
    pub counts: Arc<Counts>,
}

/// How often each fault was injected.
pub type Counts = Mutex<BTreeMap<Fault, u64>>;

impl Injector {
    /// Injects until the run is stopping. Every kind comes up as often as the others, but for kills, which come up half of
    /// the time.
    pub async fn run(&self, seed: u64) {
        let mut rng = Rng::with_seed(seed.rotate_left(32));
        let mut next = 0;
        while !self.driver.stopping.load(Ordering::Relaxed) && !self.faults.is_empty() {
            sleep(self.every.mul_f64(0.5 + rng.f64())).await;
            let kills = self.faults.contains(&Fault::Kill);
            let fault = if kills && rng.bool() {
                Fault::Kill
            } else {
                next += 1;
                self.faults
                    .get(next % self.faults.len())
                    .copied()
                    .unwrap_or(Fault::Kill)
            };
            self.inject(fault, &mut rng).await;
            *unpoisoned(self.counts.lock()).entry(fault).or_default() += 1;
        }
    }

    async fn inject(&self, fault: Fault, rng: &mut Rng) {
        let place = rng.usize(..self.stage.replicas.len().max(1));
        match fault {
            Fault::AnswerCut => {
                self.note(fault, "callers", "once");
                self.driver.cuts.send_modify(|cuts| *cuts += 1);
            }
            // Done beside what is injected here.
            Fault::Hide | Fault::Delete | Fault::StopWrites => {}
            Fault::Kill | Fault::Rolling | Fault::Pause => self.disturb(fault, place, rng).await,
            Fault::PgSmart | Fault::PgImmediate => self.restart_postgres(fault).await,
            Fault::Listen => {
                self.note(fault, "postgres", "once");
                if let Err(error) = terminate_listeners(&self.stage.database_url).await {
                    eprintln!("ticket-ledger: the listeners could not be terminated: {error}");
                }
            }
            Fault::DbCut | Fault::DbDelay | Fault::DbCutAfter => {
                let Some(proxy) = self.stage.proxies.get(place) else {
                    return;
                };
                let target = format!("replica {}", place + 1);
                match fault {
                    Fault::DbCut => {
                        self.note(fault, &target, "once");
                        proxy.cut();
                    }
                    Fault::DbCutAfter => {
                        self.note(fault, &target, "once");
                        proxy.cut_after(rng.i64(0..4_000));
                    }
                    _ => {
                        self.note(fault, &target, "begin");
                        proxy.delay(Duration::from_millis(rng.u64(20..400)));
                        sleep(Duration::from_millis(rng.u64(200..1_500))).await;
                        proxy.delay(Duration::ZERO);
                        self.note(fault, &target, "end");
                    }
                }
            }
        }
    }

    async fn disturb(&self, fault: Fault, place: usize, rng: &mut Rng) {
        if fault == Fault::Rolling {
            for replica in &self.stage.replicas {
                let target = format!("replica {}", replica.number);
                self.note(fault, &target, "begin");
                replica.signal(Signal::SIGTERM).await;
                replica.end(Duration::from_secs(30)).await;
                self.restart(replica).await;
                self.note(fault, &target, "end");
                self.until_nobody_suffers().await;
            }
            return;
        }
        let Some(replica) = self.stage.replicas.get(place) else {
            return;
        };
        let target = format!("replica {}", replica.number);
        self.note(fault, &target, "begin");
        if fault == Fault::Pause {
            replica.signal(Signal::SIGSTOP).await;
            sleep(self.stage.lease.mul_f64(1.2 + rng.f64())).await;
            replica.signal(Signal::SIGCONT).await;
        } else {
            replica.signal(Signal::SIGKILL).await;
            replica.end(Duration::from_secs(10)).await;
            sleep(Duration::from_millis(rng.u64(0..300))).await;
            self.restart(replica).await;
        }
        self.note(fault, &target, "end");
        self.until_nobody_suffers().await;
    }

    /// Until all calls have ended that began before every replica was ready again: some of them are on their last try.
    async fn until_nobody_suffers(&self) {
        if self.one_at_a_time {
            self.driver.calls.ended().await;
        }
    }

    async fn restart(&self, replica: &super::fleet::Replica) {
        if let Err(error) = replica.start().await {
            eprintln!("ticket-ledger: {error}");
        }
    }

    async fn restart_postgres(&self, fault: Fault) {
        let Some(cluster) = &self.stage.cluster else { return };
        self.note(fault, "postgres", "begin");
        let restarted = if fault == Fault::PgImmediate {
            cluster.restart(StopMode::Immediate).await
        } else {
            // A smart stop waits for its clients, and pools do not go by themselves: the operator loses patience.
            if let Some(pid) = cluster.postmaster_pid() {
                let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
            }
            sleep(Duration::from_millis(1_500)).await;
            cluster.restart(StopMode::Fast).await
        };
        if let Err(error) = restarted {
            eprintln!("ticket-ledger: Postgres could not be restarted: {error}");
        }
        self.note(fault, "postgres", "end");
    }

    fn note(&self, fault: Fault, target: &str, phase: &str) {
        self.history.write(&Record::Fault {
            at_us: self.history.now_us(),
            fault: fault.name(),
            target: target.to_owned(),
            phase: phase.to_owned(),
        });
    }
}

async fn terminate_listeners(url: &str) -> Result<(), sqlx::Error> {
    let mut connection = PgConnection::connect(url).await?;
    sqlx::query(
        "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'ticket-ledger listener'",
    )
    .execute(&mut connection)
    .await?;
    connection.close().await
}
