//! `ticket-ledger serve`: one replica.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use tokio::net::{TcpListener, TcpSocket};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::Failure;
use crate::config::Config;
use crate::ledger::{Ledger, Setup};
use crate::lifecycle::{Lifecycle, Stage, termination};
use crate::operation::registry::Registry;
use crate::operation::run::Service;
use crate::postgres::{Connections, Database, Reach, SchemaState, connections, schema_state};
use crate::telemetry::Telemetry;
use crate::transport::{Admin, Door, Server, Transports};

/// Pause between two looks at a database that is not ready yet.
const LOOK_AGAIN: Duration = Duration::from_millis(500);
/// How long the last row for the console may take.
const LAST_BEAT: Duration = Duration::from_millis(500);
/// Handing back is tried for so long even when the grace period is shorter.
const SHORTEST_LEAVE: Duration = Duration::from_secs(3);
/// Connections that the kernel keeps until they are accepted; what is usual.
const BACKLOG: u32 = 1_024;

#[derive(Debug, Args)]
pub struct Arguments {
    /// A postgres:// URL of the database
    #[arg(long, env = "DATABASE_URL", hide_env_values = true)]
    database_url: String,

    #[command(flatten)]
    config: Config,
}

pub async fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    let telemetry = start_telemetry(&arguments.config)?;
    let stop = stop_on_signals()?;
    let replica = Replica::prepare(&arguments.config).await?;
    let served = replica.run(arguments.database_url, stop, |_, _| {}).await;
    telemetry.finish().await;
    served?;
    Ok(ExitCode::SUCCESS)
}

/// Starts the logs, traces and metrics of a replica.
pub fn start_telemetry(config: &Config) -> Result<Telemetry, Failure> {
    crate::telemetry::start(config.log_format, &config.replica(), config.hash_request_ids).map_err(Failure::usage)
}

/// A replica whose addresses are its own.
///
/// The one for calls is bound from the beginning, so that a port that is taken is said at once, but not listened on before the
/// replica is ready: until then connections are refused, and a balancer asks another replica. An answer, such as 503, would be
/// passed on to the client.
pub struct Replica<'a> {
    config: &'a Config,
    calls: TcpSocket,
    admin: TcpListener,
}

impl<'a> Replica<'a> {
    /// Refuses nonsense, warns of what is doubtful, and binds.
    pub async fn prepare(config: &'a Config) -> Result<Self, Failure> {
        let findings = config.examine();
        if !findings.errors.is_empty() {
            return Err(Failure::usage(findings.errors.join("\nticket-ledger: ")));
        }
        for warning in findings.warnings {
            warn!("{warning}");
        }
        super::files::allow(config.wire.max_connections);
        let (calls, admin) = (config.listen_addr, config.admin_addr);
        Ok(Self {
            config,
            calls: bind(calls).map_err(|error| cannot_listen(calls, "LISTEN_ADDR", &error))?,
            admin: TcpListener::bind(admin)
                .await
                .map_err(|error| cannot_listen(admin, "ADMIN_ADDR", &error))?,
        })
    }

    /// Serves the database at `url` until it is told to stop; calls `ready` when it takes calls.
    pub async fn run(
        self,
        url: String,
        stop: CancellationToken,
        ready: impl FnOnce(&Server, &Admin),
    ) -> Result<(), Failure> {
        let config = self.config;
        let database = Database::new(&config.pool(&url), Arc::new(Reach::default()))?;
        let board = config.board(self.calls.local_addr()?);
        let registry = Registry::new(&config.toolsets, Duration::from_millis(config.work_ms), &board);
        let ledger = Ledger::start(Setup {
            database: database.clone(),
            listen_url: config.listen_database_url.clone().unwrap_or_else(|| url.clone()),
            url,
            replica: config.replica(),
            limits: config.limits(),
            acts: registry.acts(),
            upkeep: registry.upkeep(),
        });
        ledger.observe();
        let lifecycle = Lifecycle::default();
        let service = Arc::new(Service {
            ledger: Arc::clone(&ledger),
            registry,
            wait: config.wait(),
            units_per_hour: config.units_per_hour(),
        });
        service.observe();
        let transports = Transports {
            config,
            door: Arc::new(Door::new(config, &service)?),
            service,
            lifecycle: lifecycle.clone(),
            replica: config.replica().into(),
        };
        let address = self.calls.local_addr()?;
        let admin = Admin::start(&transports, self.admin)?;
        info!(%address, admin_address = %admin.address, "bound");
        let (beats, stop_beating) = (Arc::clone(&ledger), CancellationToken::new());
        let stage = lifecycle.clone();
        let beating = tokio::spawn(beats.beat(move || stage.stage().as_str(), stop_beating.clone()));
        let mut server = Ok(None);
        tokio::select! {
            () = stop.cancelled() => {}
            () = wait_for_schema(&database) => {
                check_budget(&database, config).await;
                server = take_calls(&transports, self.calls).map(Some);
                if let Ok(Some(server)) = &server {
                    info!(replica = config.replica(), %address, "ready");
                    ready(server, &admin);
                    stop.cancelled().await;
                }
            }
        }
        lifecycle.advance(Stage::Draining);
        info!("draining");
        let grace = Duration::from_millis(config.grace_ms);
        let leave = async {
            ledger.drain(grace - to_hand_back(grace)).await;
            info!("drained");
            if let Some(server) = server? {
                server.finish().await;
            }
            Ok(())
        };
        let left = tokio::time::timeout(grace.max(SHORTEST_LEAVE), leave).await;
        admin.finish();
        let left = left.unwrap_or_else(|_| {
            warn!("the grace period is over; leaving what is left");
            Ok(())
        });
        stop_beating.cancel();
        let _ = tokio::time::timeout(LAST_BEAT, beating).await;
        info!("stopped");
        left
    }
}

/// Listens and serves from now on.
fn take_calls(transports: &Transports<'_>, calls: TcpSocket) -> Result<Server, Failure> {
    let address = calls.local_addr()?;
    // Another replica that was bound to this port and not ready either may have been quicker.
    let listener = calls
        .listen(BACKLOG)
        .map_err(|error| cannot_listen(address, "LISTEN_ADDR", &error))?;
    // In this order: who connects in between waits to be accepted.
    transports.lifecycle.advance(Stage::Ready);
    Ok(Server::start(transports, listener)?)
}

/// The part of the grace period that is kept for handing back what did not finish, and for telling its callers.
fn to_hand_back(grace: Duration) -> Duration {
    (grace / 4).min(Duration::from_secs(3))
}

/// A token that SIGTERM, SIGINT or SIGHUP cancels.
pub fn stop_on_signals() -> Result<CancellationToken, Failure> {
    let stop = CancellationToken::new();
    let termination = termination()?;
    let told = stop.clone();
    tokio::spawn(async move {
        termination.await;
        told.cancel();
    });
    Ok(stop)
}

fn bind(address: SocketAddr) -> std::io::Result<TcpSocket> {
    let socket = if address.is_ipv4() {
        TcpSocket::new_v4()
    } else {
        TcpSocket::new_v6()
    }?;
    // As a listener does: connections of a replica that was here before may still be closing.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    Ok(socket)
}

fn cannot_listen(address: SocketAddr, setting: &str, error: &std::io::Error) -> Failure {
    let why = match error.kind() {
        std::io::ErrorKind::AddrInUse => "another program listens there already".to_owned(),
        std::io::ErrorKind::PermissionDenied => "this user may not listen there".to_owned(),
        std::io::ErrorKind::AddrNotAvailable => "this machine has no such address".to_owned(),
        _ => error.to_string(),
    };
    Failure::new(format!(
        "cannot listen on {address}: {why}. Choose another address with {setting}."
    ))
}

/// Waits for a database that can be reached and whose schema is new enough; says every reason once.
async fn wait_for_schema(database: &Database) {
    let mut said = String::new();
    loop {
        let reason = match schema_state(database).await {
            Ok(SchemaState::Ready) => return,
            Ok(SchemaState::Behind) => {
                "the schema is older than this program needs; run ticket-ledger migrate".to_owned()
            }
            Err(error) => error.to_string(),
        };
        if reason != said {
            warn!(%reason, "not ready yet");
            said = reason;
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

/// Connections of a replica outside its pool: one listens, one renews leases.
const OUTSIDE_THE_POOL: usize = 2;

/// Warns when the connections of all replicas do not fit into what the server allows, or this replica's into what it has left.
async fn check_budget(database: &Database, config: &Config) {
    let own = config.pool_size.saturating_add(OUTSIDE_THE_POOL);
    let wanted = |replicas: usize| i64::try_from(own.saturating_mul(replicas)).unwrap_or(i64::MAX);
    let Connections { allowed, free } = match connections(database).await {
        Ok(counted) => counted,
        Err(error) => {
            warn!(%error, "the connection budget could not be checked");
            return;
        }
    };
    let all = wanted(config.max_replicas);
    if all > allowed {
        warn!(
            wanted = all,
            allowed,
            max_replicas = config.max_replicas,
            pool_size = config.pool_size,
            "MAX_REPLICAS x (POOL_SIZE + 2) connections are more than the server allows; the last replicas would find none and \
             answer unavailable. Lower one of the two, or raise max_connections"
        );
    }
    if wanted(1) > free {
        warn!(
            wanted = wanted(1),
            free,
            "the server has fewer connections left than this replica may open; lower POOL_SIZE or raise max_connections"
        );
    }
}
