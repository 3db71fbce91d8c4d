//! What a load test starts: Postgres, a proxy before it for each replica, the replicas, a balancer.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sqlx::{Connection, PgConnection};

use super::address::{asks_for_encryption, through, upstream_of, with_password_as};
use super::balancer::{Balancer, Kind};
use super::fleet::Replica;
use super::proxy::Proxy;
use super::reaper::Reaper;
use crate::cluster::{Options, PrivateCluster, StopMode};

/// What is to be started.
pub struct Plan {
    /// Where everything is put.
    pub folder: PathBuf,
    /// A database to use in place of a private one.
    pub database_url: Option<String>,
    /// How many replicas.
    pub replicas: usize,
    /// Which balancer.
    pub balancer: Kind,
    /// A deployment that runs already.
    pub target: Option<String>,
    /// The replicas' lease.
    pub lease: Duration,
    /// The replicas' wait.
    pub wait: Duration,
    /// How long create_ticket works.
    pub work: Duration,
    /// How many writes a source may call for in an hour; 0 for any number.
    pub limit_per_source: u32,
    /// How many writes may be saved in an hour; 0 for any number.
    pub limit_global: u32,
}

/// What is running.
pub struct Stage {
    /// The private Postgres.
    pub cluster: Option<PrivateCluster>,
    /// The database, reached directly.
    pub database_url: String,
    /// One before each replica.
    pub proxies: Vec<Proxy>,
    /// The replicas.
    pub replicas: Vec<Replica>,
    /// The balancer.
    pub balancer: Option<Balancer>,
    /// The replicas' lease.
    pub lease: Duration,
    /// The base URLs that callers use.
    pub bases: Vec<String>,
    /// Ends all of it when this process is killed.
    pub reaper: Reaper,
}

/// The ledger's database on a private Postgres.
pub const DATABASE: &str = "ticket_ledger";

impl Stage {
    /// Starts everything.
    ///
    /// # Errors
    /// A sentence; what was started by then is stopped.
    pub async fn start(plan: &Plan) -> Result<Self, String> {
        let private = plan.database_url.is_none() && plan.target.is_none();
        let data = data_of(&plan.folder);
        let mut stage = Self {
            cluster: None,
            database_url: plan.database_url.clone().unwrap_or_default(),
            proxies: Vec::new(),
            replicas: Vec::new(),
            balancer: None,
            lease: plan.lease,
            bases: Vec::new(),
            // A private Postgres is ended, and its next run allows writes.
            reaper: Reaper::start(private.then_some(data.as_path()), plan.database_url.as_deref())?,
        };
        match stage.fill(plan).await {
            Ok(()) => Ok(stage),
            Err(reason) => {
                stage.stop().await;
                Err(reason)
            }
        }
    }

    async fn fill(&mut self, plan: &Plan) -> Result<(), String> {
        if plan.target.is_none() {
            plan.balancer.look_for()?;
        }
        if plan.database_url.is_none() && plan.target.is_none() {
            let cluster = start_postgres(&plan.folder).await?;
            self.database_url = cluster.database_url(DATABASE);
            self.cluster = Some(cluster);
        }
        if let Some(target) = &plan.target {
            self.bases = vec![target.clone()];
            return Ok(());
        }
        crate::postgres::migrate(&self.database_url, Duration::from_secs(10))
            .await
            .map_err(|error| error.to_string())?;
        if asks_for_encryption(&self.database_url) {
            eprintln!(
                "ticket-ledger: the replicas reach Postgres through proxies of the load test, without encryption: sslmode counts only for the \
                 load test's own connections."
            );
        }
        let settings = settings(plan);
        for number in 1..=plan.replicas {
            let proxy = Proxy::start(upstream_of(&self.database_url)?)
                .await
                .map_err(|error| format!("no port is free: {error}"))?;
            let url = through(&self.database_url, proxy.port)?;
            let replica = Replica::new(number, &plan.folder, url, &settings, &self.reaper)
                .map_err(|error| format!("no port is free: {error}"))?;
            self.proxies.push(proxy);
            self.replicas.push(replica);
        }
        for replica in &self.replicas {
            replica.start().await?;
        }
        let ports: Vec<u16> = self.replicas.iter().map(|replica| replica.port).collect();
        self.balancer = Balancer::start(plan.balancer, &plan.folder, &ports, plan.wait, &self.reaper).await?;
        self.bases = match &self.balancer {
            Some(balancer) => vec![balancer.base.clone()],
            None => self.replicas.iter().map(Replica::base).collect(),
        };
        Ok(())
    }

    /// What is tested, for people.
    pub async fn about(&self, target: Option<&str>) -> String {
        let release = if cfg!(debug_assertions) { "" } else { " (release build)" };
        let before = match &self.balancer {
            Some(balancer) => format!("behind {}", balancer.about),
            None => "without a balancer".to_owned(),
        };
        let tested = match (target, self.replicas.len()) {
            (Some(target), _) => format!("the deployment at {}", with_password_as(target, None)),
            (None, 1) => format!("1 replica {before}"),
            (None, replicas) => format!("{replicas} replicas {before}"),
        };
        let postgres = match server_version(&self.database_url).await {
            Ok(version) => format!("PostgreSQL {version}"),
            Err(_) => "a Postgres that does not tell its version".to_owned(),
        };
        format!(
            "ticket-ledger {}{release}, {tested}, {postgres}",
            env!("CARGO_PKG_VERSION")
        )
    }

    /// Stops everything that it started.
    pub async fn stop(self) {
        if let Some(balancer) = self.balancer {
            balancer.stop().await;
        }
        for replica in &self.replicas {
            // One that stands still does not hear SIGTERM.
            replica.signal(nix::sys::signal::Signal::SIGCONT).await;
            replica.signal(nix::sys::signal::Signal::SIGTERM).await;
        }
        for replica in &self.replicas {
            replica.end(Duration::from_secs(15)).await;
        }
        if let Some(cluster) = self.cluster
            && let Err(error) = cluster.stop(StopMode::Fast).await
        {
            eprintln!("ticket-ledger: {error}");
        }
        self.reaper.dismiss();
    }
}

async fn server_version(url: &str) -> Result<String, sqlx::Error> {
    let mut connection = PgConnection::connect(url).await?;
    let version: String = sqlx::query_scalar("select split_part(current_setting('server_version'), ' ', 1)")
        .fetch_one(&mut connection)
        .await?;
    connection.close().await?;
    Ok(version)
}

/// Where the private Postgres of a run's folder lies.
fn cluster_of(folder: &Path) -> PathBuf {
    folder.join("postgres")
}

/// Where it keeps its data, free of symlinks.
pub fn data_of(folder: &Path) -> PathBuf {
    let folder = std::fs::canonicalize(folder).unwrap_or_else(|_| folder.to_owned());
    cluster_of(&folder).join("data")
}

/// A private Postgres in the run's folder, with the ledger's database.
///
/// # Errors
/// A sentence.
pub async fn start_postgres(folder: &Path) -> Result<PrivateCluster, String> {
    start_postgres_with(folder, &[]).await
}

/// The same, with settings of the server's.
///
/// # Errors
/// A sentence.
pub async fn start_postgres_with(folder: &Path, settings: &[(&str, &str)]) -> Result<PrivateCluster, String> {
    let options = Options {
        settings: settings
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect(),
        ..Options::default()
    };
    let cluster = PrivateCluster::start(&cluster_of(folder), &options)
        .await
        .map_err(|error| error.to_string())?;
    crate::postgres::make_database(&cluster.database_url("postgres"), DATABASE)
        .await
        .map_err(|error| error.to_string())?;
    Ok(cluster)
}

/// The private Postgres of a run that is over.
pub struct Visited {
    cluster: PrivateCluster,
    /// None where it ran before: then it is left running, however this process ends.
    reaper: Option<Reaper>,
    /// Held until it is left: the next visitor must not find it stopping.
    _turn: File,
}

impl Visited {
    /// Starts it, unless it runs.
    ///
    /// # Errors
    /// A sentence: there is none.
    pub async fn start(folder: &Path) -> Result<Self, String> {
        let data = data_of(folder);
        if !data.join("PG_VERSION").is_file() {
            return Err(format!(
                "the tables of this run lay in {}, and there is no Postgres there any more. If the folder was moved, move it back; or \
                 start a Postgres on its data and name it with --database-url.",
                cluster_of(folder).display()
            ));
        }
        let turn = take_turn(folder).await?;
        let cluster = PrivateCluster::start(&cluster_of(folder), &Options::default())
            .await
            .map_err(|error| error.to_string())?;
        let reaper = if cluster.ran_before() {
            None
        } else {
            Some(Reaper::start(Some(&data), None)?)
        };
        Ok(Self {
            cluster,
            reaper,
            _turn: turn,
        })
    }

    /// The URL of the ledger's database.
    pub fn database_url(&self) -> String {
        self.cluster.database_url(DATABASE)
    }

    /// Leaves it as it was found.
    ///
    /// # Errors
    /// A sentence: it does not stop.
    pub async fn leave(self) -> Result<(), String> {
        let Some(reaper) = self.reaper else {
            return Ok(());
        };
        let stopped = self.cluster.stop(StopMode::Fast).await;
        reaper.dismiss();
        stopped.map_err(|error| error.to_string())
    }
}

/// Waits until nobody else visits this folder's Postgres; the file's lock ends with whoever holds it.
async fn take_turn(folder: &Path) -> Result<File, String> {
    let path = folder.join("check.lock");
    let taken = tokio::task::spawn_blocking(move || {
        let file = File::create(&path).and_then(|file| file.lock().map(|()| file));
        file.map_err(|error| format!("{} cannot be locked: {error}", path.display()))
    });
    taken.await.map_err(|error| error.to_string())?
}

/// The replicas' settings, as environment variables.
pub fn settings(plan: &Plan) -> Vec<(String, String)> {
    let ms = |span: Duration| span.as_millis().to_string();
    [
        ("LEASE_MS", ms(plan.lease)),
        ("WAIT_MS", ms(plan.wait)),
        ("WORK_MS", ms(plan.work)),
        ("WORK_LIMIT_MS", ms((plan.lease * 20).max(plan.work * 2))),
        ("GRACE_MS", ms(plan.lease)),
        ("TOOLSETS", "tickets,entries".to_owned()),
        // Callers and balancer are on this machine, and say for whom they call.
        ("TRUSTED_PROXIES", "127.0.0.1/32".to_owned()),
        ("LIMIT_PER_SOURCE_PER_HOUR", plan.limit_per_source.to_string()),
        ("LIMIT_GLOBAL_PER_HOUR", plan.limit_global.to_string()),
        ("POOL_SIZE", "8".to_owned()),
        ("LOG_FORMAT", "json".to_owned()),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .to_vec()
}
