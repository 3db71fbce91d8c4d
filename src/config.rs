//! Every knob, its default and its limits.
//!
//! Each is a flag and an environment variable of the same name; `--help` shows them all.

use std::net::SocketAddr;
use std::time::Duration;

use clap::{Args, ValueEnum};

use crate::ledger::Limits;
use crate::operation::Toolset;
use crate::operation::entries::Board;

pub mod access;
pub mod entries;
mod names;
pub mod wire;

use self::access::Access;
use self::entries::Entries;
use self::wire::Wire;

/// How logs are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// A JSON object a line.
    Json,
    /// For eyes.
    Text,
}

/// What a replica is configured with; `dev` and `serve` share it.
#[derive(Debug, Clone, Args)]
#[command(rename_all = "kebab-case")]
pub struct Config {
    /// Address of MCP (/mcp) and HTTP (/api/v1)
    #[arg(long, env = "LISTEN_ADDR", default_value = "127.0.0.1:8000")]
    pub listen_addr: SocketAddr,

    /// Address of /livez, /readyz, /metrics and /console
    #[arg(long, env = "ADMIN_ADDR", default_value = "127.0.0.1:9000")]
    pub admin_addr: SocketAddr,

    /// Where the listening connection goes if not to DATABASE_URL; never through a transaction pooler
    #[arg(long, env = "LISTEN_DATABASE_URL", hide_env_values = true)]
    pub listen_database_url: Option<String>,

    /// How long a claim holds unrenewed, in ms (1000 to 300000); a dead replica's calls are taken over after it
    #[arg(long, env = "LEASE_MS", default_value_t = 10_000)]
    pub lease_ms: u64,

    /// Every caller is answered within this time, in ms (100 to 240000); then with in_progress
    #[arg(long, env = "WAIT_MS", default_value_t = 20_000)]
    pub wait_ms: u64,

    /// Makes create_ticket take this long, in ms, for trying things out
    #[arg(long, env = "WORK_MS", default_value_t = 0)]
    pub work_ms: u64,

    /// An attempt that has worked for longer is not renewed any more, in ms
    #[arg(long, env = "WORK_LIMIT_MS", default_value_t = 600_000)]
    pub work_limit_ms: u64,

    /// Connections to Postgres in the pool; two more listen and renew leases
    #[arg(long, env = "POOL_SIZE", default_value_t = 10)]
    pub pool_size: usize,

    /// The most replicas that run at once, those of a rolling update included; start warns when the server has too few
    /// connections for all of them
    #[arg(long, env = "MAX_REPLICAS", default_value_t = 1)]
    pub max_replicas: usize,

    /// This replica's name in rows and logs, for people; nothing is decided by it [default: made from the process id]
    #[arg(long, env = "REPLICA_NAME")]
    pub replica_name: Option<String>,

    /// Families of tools to offer; find_request and new_request_id are always offered
    #[arg(long, env = "TOOLSETS", value_delimiter = ',', default_value = "tickets")]
    pub toolsets: Vec<Toolset>,

    /// How long results are kept, in hours (at least 1); a repeat after that is answered with expired
    #[arg(long, env = "RESULT_RETENTION_HOURS", default_value_t = 7 * 24)]
    pub result_retention_hours: u64,

    /// How long keys and fingerprints are kept, in hours (not less than results)
    #[arg(long, env = "KEY_RETENTION_HOURS", default_value_t = 30 * 24)]
    pub key_retention_hours: u64,

    /// Whether a creation looks for the same one under another request_id in the last ten minutes
    #[arg(long, env = "POSSIBLE_DUPLICATES", default_value_t = true, action = clap::ArgAction::Set)]
    pub possible_duplicates: bool,

    /// Most writes in progress on this replica; a call past that is answered with unavailable
    #[arg(long, env = "MAX_CALLS", default_value_t = 4_096)]
    pub max_calls: usize,

    /// Most writes that one source may call for in an hour, repeats included, over all replicas; 0 for any number
    #[arg(long, env = "LIMIT_PER_SOURCE_PER_HOUR", default_value_t = 0)]
    pub limit_per_source_per_hour: u32,

    /// Most writes that are saved in an hour, by all callers and over all replicas; 0 for any number
    #[arg(long, env = "LIMIT_GLOBAL_PER_HOUR", default_value_t = 0)]
    pub limit_global_per_hour: u32,

    /// Largest request body, in bytes
    #[arg(long, env = "MAX_BODY_BYTES", default_value_t = 1_048_576)]
    pub max_body_bytes: usize,

    /// Within how long a replica leaves after SIGTERM, in ms; what has not finished shortly before is handed back
    #[arg(long, env = "GRACE_MS", default_value_t = 10_000)]
    pub grace_ms: u64,

    /// Host names that requests may be addressed to, with or without a port
    #[arg(
        long,
        env = "ALLOWED_HOSTS",
        value_delimiter = ',',
        default_value = "localhost,127.0.0.1,[::1]",
        value_parser = names::host
    )]
    pub allowed_hosts: Vec<String>,

    /// Origins from which browsers may call; `:*` stands for any port
    #[arg(
        long,
        env = "ALLOWED_ORIGINS",
        value_delimiter = ',',
        default_value = "http://localhost:*,http://127.0.0.1:*,http://[::1]:*",
        value_parser = names::origin
    )]
    pub allowed_origins: Vec<String>,

    /// Where callers reach this service from outside, such as https://tickets.example.org; without a path
    #[arg(long, env = "PUBLIC_URL")]
    pub public_url: Option<String>,

    #[command(flatten)]
    pub entries: Entries,

    #[command(flatten)]
    pub access: Access,

    #[command(flatten)]
    pub wire: Wire,

    /// Traces carry a hash in the place of each request_id
    #[arg(long, env = "HASH_REQUEST_IDS", default_value_t = false, action = clap::ArgAction::Set)]
    pub hash_request_ids: bool,

    /// How logs are written to standard error; RUST_LOG chooses what is
    #[arg(long, env = "LOG_FORMAT", value_enum, default_value = "json")]
    pub log_format: LogFormat,
}

/// Ten years.
const LONGEST_RETENTION_HOURS: u64 = 24 * 3_660;

/// What is wrong with a configuration, and what is doubtful.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Findings {
    /// Reasons not to start.
    pub errors: Vec<String>,
    /// Reasons to think again.
    pub warnings: Vec<String>,
}

impl Findings {
    /// A reason not to start, if `wrong`.
    fn refuse(&mut self, wrong: bool, why: impl FnOnce() -> String) {
        if wrong {
            self.errors.push(why());
        }
    }

    /// A reason to think again, if `doubtful`.
    fn warn(&mut self, doubtful: bool, why: impl FnOnce() -> String) {
        if doubtful {
            self.warnings.push(why());
        }
    }
}

impl Config {
    /// Looks for nonsense and for doubtful values.
    pub fn examine(&self) -> Findings {
        let mut findings = Findings::default();
        let mut refuse = |wrong: bool, why: String| {
            if wrong {
                findings.errors.push(why);
            }
        };
        refuse(
            !(1_000..=300_000).contains(&self.lease_ms),
            format!(
                "LEASE_MS is {}: a lease must be 1000 to 300000 ms, because shorter ones lapse under a busy but living replica.",
                self.lease_ms
            ),
        );
        refuse(
            !(100..=240_000).contains(&self.wait_ms),
            format!(
                "WAIT_MS is {}: a wait must be 100 to 240000 ms, because claude.ai ends a call at 240 s.",
                self.wait_ms
            ),
        );
        refuse(
            self.work_limit_ms < self.lease_ms || self.work_limit_ms > 24 * 3_600_000,
            format!(
                "WORK_LIMIT_MS is {}: it must be at least LEASE_MS and at most a day.",
                self.work_limit_ms
            ),
        );
        refuse(
            self.work_ms > self.work_limit_ms,
            format!("WORK_MS is {}: it must not exceed WORK_LIMIT_MS.", self.work_ms),
        );
        refuse(
            !(1..=1_000).contains(&self.pool_size),
            format!(
                "POOL_SIZE is {}: a pool must hold 1 to 1000 connections.",
                self.pool_size
            ),
        );
        refuse(
            !(1..=10_000).contains(&self.max_replicas),
            format!("MAX_REPLICAS is {}: it must be 1 to 10000.", self.max_replicas),
        );
        refuse(
            self.result_retention_hours < 1,
            "RESULT_RETENTION_HOURS is 0: results must be kept for at least 1 hour, because clients repeat calls for half an hour.".to_owned(),
        );
        refuse(
            self.key_retention_hours < self.result_retention_hours,
            format!(
                "KEY_RETENTION_HOURS is {}: keys must not be forgotten before results ({} hours).",
                self.key_retention_hours, self.result_retention_hours
            ),
        );
        refuse(
            self.key_retention_hours > LONGEST_RETENTION_HOURS,
            format!(
                "KEY_RETENTION_HOURS is {}: at most ten years.",
                self.key_retention_hours
            ),
        );
        refuse(
            self.allowed_hosts.iter().all(|host| host.trim().is_empty()),
            "ALLOWED_HOSTS is empty: every call would be refused.".to_owned(),
        );
        refuse(
            self.max_calls == 0,
            "MAX_CALLS is 0: no write could ever run.".to_owned(),
        );
        refuse(
            !(262_144..=67_108_864).contains(&self.max_body_bytes),
            format!(
                "MAX_BODY_BYTES is {}: it must be 262144 (an escaped body of 64 KiB and its frame) to 67108864.",
                self.max_body_bytes
            ),
        );
        refuse(
            self.grace_ms > 3_600_000,
            format!("GRACE_MS is {}: at most an hour.", self.grace_ms),
        );
        let name = self.replica_name.as_deref().unwrap_or("-");
        refuse(
            name.trim().is_empty() || name.chars().count() > 64 || name.chars().any(char::is_control),
            "REPLICA_NAME must be 1 to 64 characters without control characters.".to_owned(),
        );
        refuse(
            self.public_url.is_some() && self.public_origin().is_none(),
            "PUBLIC_URL must be an http or https URL with a host and nothing behind it, such as https://tickets.example.org."
                .to_owned(),
        );
        self.entries.examine(self.key_retention_hours, &mut findings);
        self.access
            .examine(self.listen_addr, self.public_url.as_deref(), &mut findings);
        self.wire.examine(&mut findings);
        self.doubt(&mut findings.warnings);
        findings
    }

    fn doubt(&self, warnings: &mut Vec<String>) {
        let mut warn = |doubtful: bool, why: String| {
            if doubtful {
                warnings.push(why);
            }
        };
        warn(
            self.wait_ms > 50_000,
            format!(
                "WAIT_MS is {}: clients give up when no first byte comes within 60 s.",
                self.wait_ms
            ),
        );
        warn(
            self.lease_ms + 5_000 > self.wait_ms,
            format!(
                "LEASE_MS ({}) and 5 s are more than WAIT_MS ({}): a waiter gives up before it can take a dead replica's claim over.",
                self.lease_ms, self.wait_ms
            ),
        );
        warn(
            self.result_retention_hours < 24,
            format!(
                "RESULT_RETENTION_HOURS is {}: a job that is repeated the next day is answered with expired.",
                self.result_retention_hours
            ),
        );
        warn(
            self.pool_size < 3,
            format!(
                "POOL_SIZE is {}: batches use two connections at once, and reads want one more.",
                self.pool_size
            ),
        );
        warn(
            self.work_ms > 0,
            format!(
                "WORK_MS is {}: every create_ticket takes that long; this is for trying things out.",
                self.work_ms
            ),
        );
    }

    /// The ledger's times and sizes.
    pub fn limits(&self) -> Limits {
        let hours = |hours: u64| Duration::from_secs(hours * 3_600);
        Limits {
            lease: Duration::from_millis(self.lease_ms),
            work_limit: Duration::from_millis(self.work_limit_ms),
            // Within seconds, and within every caller's own wait.
            patience: Duration::from_secs(3).min(self.wait() / 2),
            keep_results: hours(self.result_retention_hours),
            keep_keys: hours(self.key_retention_hours),
            most_flights: self.max_calls,
            most_writes_per_hour: i64::from(self.limit_global_per_hour),
            // Where everybody is one principal, strangers would be told of each other's requests.
            tell_duplicates: self.possible_duplicates
                && (!self.access.is_anonymous() || self.listen_addr.ip().is_loopback()),
        }
    }

    /// `PUBLIC_URL` without a slash at its end; `None` when it is not set, or not what it should be.
    pub fn public_origin(&self) -> Option<String> {
        let url = url::Url::parse(self.public_url.as_deref()?).ok()?;
        let plain = url.path() == "/" && url.query().is_none() && url.fragment().is_none();
        let named = url.has_host() && url.username().is_empty() && url.password().is_none();
        (plain && named && ["http", "https"].contains(&url.scheme())).then(|| url.origin().ascii_serialization())
    }

    /// The hosts that requests may be addressed to: those of `ALLOWED_HOSTS`, and `PUBLIC_URL`'s own.
    pub fn hosts(&self) -> Vec<String> {
        let public = self.public_origin();
        let public = public.iter().filter_map(|origin| origin.split_once("://"));
        let public = public.map(|(_, host)| host.to_owned());
        self.allowed_hosts.iter().cloned().chain(public).collect()
    }

    /// How many writes each source may call for in an hour; 0 for any number.
    pub fn units_per_hour(&self) -> i64 {
        i64::from(self.limit_per_source_per_hour)
    }

    /// What the board is run with by a replica that listens at `address`.
    pub fn board(&self, address: SocketAddr) -> Board {
        let public_url = self.public_origin().unwrap_or_else(|| format!("http://{address}"));
        self.entries.board(public_url, self.key_retention_hours)
    }

    /// How long a caller waits at most.
    pub fn wait(&self) -> Duration {
        Duration::from_millis(self.wait_ms)
    }

    /// How the pool connects to `url`.
    pub fn pool(&self, url: &str) -> crate::postgres::Settings {
        let lease = Duration::from_millis(self.lease_ms);
        crate::postgres::Settings {
            url: url.to_owned(),
            pool_size: self.pool_size,
            acquire_limit: Duration::from_secs(2),
            // Below half the lease: no paused replica holds a row for longer than live ones can bear.
            statement_limit: lease.mul_f64(0.4),
            lock_limit: (lease / 10).min(Duration::from_secs(1)),
        }
    }

    /// The name given, or one made from the process id.
    pub fn replica(&self) -> String {
        self.replica_name
            .clone()
            .unwrap_or_else(|| format!("replica-{}", std::process::id()))
    }
}
