//! A private PostgreSQL cluster in a data folder, for `ticket-ledger dev` and for the tests.
//!
//! It needs no server to be set up and no rights beyond the folder: programs that are on the
//! machine are used, else fetched. It listens on a socket that only its own user may reach.
//!
//! ```text
//! folder/lock              held by the live owner, with its pid
//! folder/data/             the cluster
//! folder/log/postgres.log  the server's log, put aside at a start when over 10 MB
//! folder/socket/           the socket, mode 0700 (in a temp folder if its path gets too long)
//! folder/server/           programs that were fetched, if any
//! ```
//!
//! Whatever is killed, and whenever, the next [`PrivateCluster::start`] needs no helping hand:
//! things are made under another name and renamed when they are whole, the lock goes with its
//! process, and a server that outlived its owner is taken over.

mod account;
mod binaries;
mod error;
mod fetch;
mod folder;
mod server;

use std::path::{Path, PathBuf};

use account::Account;
use folder::Folder;
use server::Server;

pub use binaries::Search;
pub use error::ClusterError;
pub use folder::default_folder;

/// The port in the socket's name; nothing listens on it unless [`Options::port`] says so.
const SOCKET_PORT: u16 = 5432;

/// How a private cluster is to run.
#[derive(Debug, Clone)]
pub struct Options {
    /// The folder with `initdb`, `pg_ctl` and `postgres`; beats the search (setting `PG_BINDIR`).
    pub bindir: Option<PathBuf>,
    /// Where to look for these programs otherwise.
    pub search: Search,
    /// `None`: the socket only. `Some`: also TCP on 127.0.0.1, where *every* user of the machine
    /// gets in without a password, so this is for tests.
    pub port: Option<u16>,
    /// Further settings, as name and value; they beat this module's own.
    pub settings: Vec<(String, String)>,
    /// Whether a server may be fetched when none is found.
    pub allow_fetch: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            bindir: None,
            search: Search::machine(),
            port: None,
            settings: Vec::new(),
            allow_fetch: true,
        }
    }
}

/// How a server is brought down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopMode {
    /// Ends every session, writes everything to disk and ends: the way to stop.
    Fast,
    /// Ends as in a crash; the next start recovers from the log of changes. For tests.
    Immediate,
}

impl StopMode {
    fn as_str(self) -> &'static str {
        match self {
            Self::Fast => "fast",
            Self::Immediate => "immediate",
        }
    }
}

/// A running PostgreSQL server with its data folder, owned by this process.
///
/// **Call [`stop`](Self::stop) at the end.** Dropping the value only lets go of the folder: the
/// server runs on, as it does when the owner is killed, and the next `start` takes it over.
#[derive(Debug)]
pub struct PrivateCluster {
    server: Server,
    ran_before: bool,
}

impl PrivateCluster {
    /// Makes the cluster if the folder has none, and starts it or takes over the running one.
    ///
    /// It returns when the server answers, at the latest after about 120 s. A running server with
    /// other settings than asked is restarted. As root the server runs as the owner of the data,
    /// and that is the user `postgres`, else `nobody`, for a new cluster.
    ///
    /// # Errors
    /// Each [`ClusterError`] but `StopFailed` is possible, and says what to do.
    pub async fn start(folder: &Path, options: &Options) -> Result<Self, ClusterError> {
        let folder = Folder::open(folder)?;
        let account = Account::for_data(&folder.data())?;
        account.check_reach(folder.root()).await?;
        let binaries = binaries::choose(options, &folder, &account).await?;
        let socket = folder.socket(options.port.unwrap_or(SOCKET_PORT));
        account.make_private_folder(&folder.log_folder())?;
        account.make_private_folder(&socket)?;
        // It may lie in a temp folder that only root may enter.
        account.check_reach(&socket).await?;
        let new = folder.cluster_major()?.is_none();
        let server = Server {
            settings: settings(options, &socket),
            tcp_port: options.port,
            folder,
            account,
            binaries,
            socket,
        };
        if new {
            server.init().await?;
        }
        let ran_before = server.postmaster().is_some();
        server.run().await?;
        Ok(Self { server, ran_before })
    }

    /// Where a client connects: a URL for sqlx and for psql. The database need not exist yet;
    /// `postgres` always does.
    ///
    /// The port is in it even for a socket, or else a `PGPORT` in the environment would count.
    pub fn database_url(&self, database: &str) -> String {
        let database = percent_encoded(database);
        match self.server.tcp_port {
            Some(port) => format!("postgres://postgres@127.0.0.1:{port}/{database}"),
            None => {
                let socket = percent_encoded(&self.server.socket.to_string_lossy());
                format!("postgres://postgres@localhost:{SOCKET_PORT}/{database}?host={socket}")
            }
        }
    }

    /// Whether `start` found a server running, left by an owner that was killed, or started by hand.
    pub fn ran_before(&self) -> bool {
        self.ran_before
    }

    /// The pid of the server's first process, or `None` if the server is down.
    pub fn postmaster_pid(&self) -> Option<i32> {
        self.server.postmaster().map(|postmaster| postmaster.pid)
    }

    /// The folder with the programs in use: `pg_ctl` and, mostly, `psql` and `pgbench`.
    pub fn bindir(&self) -> &Path {
        self.server.binaries.bindir()
    }

    /// The major version of the server, such as 18.
    pub fn major(&self) -> u32 {
        self.server.binaries.major()
    }

    /// The server's log.
    pub fn log(&self) -> PathBuf {
        self.server.folder.log()
    }

    /// Stops the server and lets go of the folder. A server that is down already is fine.
    ///
    /// # Errors
    /// `StopFailed` if it still runs after 120 s, `Io` if `pg_ctl` does not run.
    pub async fn stop(self, mode: StopMode) -> Result<(), ClusterError> {
        self.server.stop(mode).await?;
        if !self.server.socket.starts_with(self.server.folder.root()) {
            // The temp folder is everybody's, so nothing is left there; a start makes it anew.
            let _ = std::fs::remove_dir(&self.server.socket);
        }
        Ok(())
    }

    /// Takes the server down as a crash would, and keeps the folder: for tests.
    ///
    /// # Errors
    /// As for [`stop`](Self::stop).
    pub async fn stop_now(&self) -> Result<(), ClusterError> {
        self.server.stop(StopMode::Immediate).await
    }

    /// Brings a server that is down back with the same data and settings; one that is up is fine.
    ///
    /// # Errors
    /// `StartFailed` or `PortTaken`, and `Io` if `pg_ctl` does not run.
    pub async fn start_again(&self) -> Result<(), ClusterError> {
        self.server.run().await
    }

    /// Takes the server down and brings it back at once.
    ///
    /// # Errors
    /// As for [`stop`](Self::stop) and [`start_again`](Self::start_again).
    pub async fn restart(&self, mode: StopMode) -> Result<(), ClusterError> {
        self.server.stop(mode).await?;
        self.server.run().await
    }
}

/// The server's settings as `name=value`; of two with one name, the later counts.
fn settings(options: &Options, socket: &Path) -> Vec<String> {
    let address = options.port.map_or("", |_| "127.0.0.1");
    let mut settings = vec![
        format!("listen_addresses={address}"),
        format!("port={}", options.port.unwrap_or(SOCKET_PORT)),
        format!("unix_socket_directories={}", socket.display()),
        // Said outright, since a promise made to a caller must outlive a power cut.
        "fsync=on".to_owned(),
        "max_connections=200".to_owned(),
    ];
    let further = options.settings.iter();
    settings.extend(further.map(|(name, value)| format!("{name}={value}")));
    settings
}

/// Keeps only what no part of a URL gives a meaning to.
fn percent_encoded(text: &str) -> String {
    let encode = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(encode).collect()
}
