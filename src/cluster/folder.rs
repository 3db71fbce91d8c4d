//! The data folder: what lies where in it, and which process holds it.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use nix::unistd::geteuid;
use sha2::{Digest, Sha256};

use super::ClusterError;

/// A log longer than this, in bytes, is put aside at the next start.
const LOG_LIMIT: u64 = 10 * 1024 * 1024;
/// Of a failed start, this much of the log is told, in bytes and in lines.
const TOLD_BYTES: u64 = 8 * 1024;
const TOLD_LINES: usize = 12;
/// In the names of things that are not whole yet.
const UNFINISHED: &str = ".tmp-";
/// The kernel's limit for a socket's path is 104 bytes on macOS and 108 on Linux.
const SOCKET_PATH_LIMIT: usize = 100;

/// Where a cluster lies if nobody says otherwise.
///
/// Root: `/var/lib/ticket-ledger`. Others: `$XDG_DATA_HOME/ticket-ledger`, else
/// `~/.local/share/ticket-ledger` (macOS: `~/Library/Application Support/ticket-ledger`).
/// A user without a home gets `ticket-ledger` in the present folder.
pub fn default_folder() -> PathBuf {
    if geteuid().is_root() {
        return PathBuf::from("/var/lib/ticket-ledger");
    }
    let named = std::env::var_os("XDG_DATA_HOME").map(PathBuf::from);
    let base = named.filter(|path| path.is_absolute()).or_else(|| {
        let below_home = if cfg!(target_os = "macos") {
            "Library/Application Support"
        } else {
            ".local/share"
        };
        std::env::home_dir().map(|home| home.join(below_home))
    });
    base.unwrap_or_default().join("ticket-ledger")
}

/// The folder of one cluster, held for this process as long as the value lives.
#[derive(Debug)]
pub(super) struct Folder {
    /// Absolute and free of symlinks and of anything that a shell would take amiss.
    root: PathBuf,
    /// The kernel drops this lock when the process ends, however it ends.
    lock: File,
}

impl Drop for Folder {
    /// Closing the file is not enough: a child that is just being forked still has it open.
    fn drop(&mut self) {
        let _ = self.lock.unlock();
    }
}

/// Whether the folder holds things, and none of those by which a data folder is known. Its subfolders would be given to another
/// user and closed to everybody else, so a folder that was named by mistake must not be taken.
fn is_somebody_elses(root: &Path) -> bool {
    let holds = |name: &str| root.join(name).exists();
    let is_empty = fs::read_dir(root).is_ok_and(|mut entries| entries.next().is_none());
    !is_empty && !holds("lock") && !holds("data")
}

impl Folder {
    /// Makes the folder if need be and takes its lock.
    pub fn open(folder: &Path) -> Result<Self, ClusterError> {
        let not_writable = |cause| ClusterError::NotWritable {
            folder: folder.to_owned(),
            cause,
        };
        if !folder.exists() {
            fs::create_dir_all(folder).map_err(not_writable)?;
            // A strict umask must not keep the server's user out; what is secret is 0700 below.
            fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).map_err(not_writable)?;
        }
        let root = fs::canonicalize(folder).map_err(not_writable)?;
        let odd = |c: char| c.is_control() || "\"$`\\".contains(c);
        if root.to_str().is_none_or(|path| path.contains(odd)) {
            return Err(ClusterError::OddPath { folder: root });
        }
        if is_somebody_elses(&root) {
            return Err(ClusterError::NotOurs { folder: root });
        }
        let mut lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .open(root.join("lock"))
            .map_err(not_writable)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(in_use(root, lock)),
            Err(TryLockError::Error(cause)) => return Err(not_writable(cause)),
        }
        // The pid only tells a second owner whom to look for; the lock itself is what counts.
        lock.set_len(0).map_err(not_writable)?;
        writeln!(lock, "{}", std::process::id()).map_err(not_writable)?;
        let folder = Self { root, lock };
        folder.remove_leftovers();
        Ok(folder)
    }

    /// A new path for something that is renamed when it is whole; a later `open` removes it.
    ///
    /// Never the same path twice, since a killed owner's `initdb` may still be writing there.
    pub fn unfinished(&self, name: &str) -> PathBuf {
        let unique = uuid::Uuid::new_v4().simple();
        self.root.join(format!("{name}{UNFINISHED}{unique}"))
    }

    fn remove_leftovers(&self) {
        for entry in fs::read_dir(&self.root).into_iter().flatten().flatten() {
            if entry.file_name().to_string_lossy().contains(UNFINISHED) {
                // What still resists is in nobody's way; the next start tries again.
                let _ = fs::remove_dir_all(entry.path());
            }
        }
    }

    pub fn root(&self) -> &Path {
        &self.root
    }
    pub fn data(&self) -> PathBuf {
        self.root.join("data")
    }
    pub fn server(&self) -> PathBuf {
        self.root.join("server")
    }
    pub fn log_folder(&self) -> PathBuf {
        self.root.join("log")
    }
    pub fn log(&self) -> PathBuf {
        self.log_folder().join("postgres.log")
    }

    /// The folder for the socket: `socket`, or a short one elsewhere if that path is too long.
    ///
    /// A comma sends it elsewhere too, since Postgres and libpq read it as a list of folders.
    pub fn socket(&self, port: u16) -> PathBuf {
        let hash = hex(&Sha256::digest(self.root.as_os_str().as_bytes())[..8]);
        let short = format!("ticket-ledger-{hash}");
        let fits = |folder: &PathBuf| {
            let socket = folder.join(format!(".s.PGSQL.{port}"));
            let path = socket.as_os_str().as_bytes();
            path.len() <= SOCKET_PATH_LIMIT && !path.contains(&b',')
        };
        [self.root.join("socket"), std::env::temp_dir().join(&short)]
            .into_iter()
            .find(fits)
            .unwrap_or_else(|| Path::new("/tmp").join(&short))
    }

    /// The major version of the cluster that lies here, or `None` if there is none yet.
    pub fn cluster_major(&self) -> Result<Option<u32>, ClusterError> {
        let data = self.data();
        let not_a_cluster = || ClusterError::NotACluster { folder: data.clone() };
        match fs::read_to_string(data.join("PG_VERSION")) {
            Ok(text) => text.trim().parse().map(Some).map_err(|_| not_a_cluster()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let anything = fs::read_dir(&data).ok().and_then(|mut entries| entries.next());
                anything.map_or(Ok(None), |_| Err(not_a_cluster()))
            }
            Err(cause) => Err(ClusterError::io("read", &data)(cause)),
        }
    }

    /// Puts a long log aside as `postgres.log.1`, so that both together stay bounded.
    pub fn rotate_log(&self) -> Result<(), ClusterError> {
        let log = self.log();
        if self.log_length() <= LOG_LIMIT {
            return Ok(());
        }
        fs::rename(&log, log.with_extension("log.1")).map_err(ClusterError::io("rename", &log))
    }

    /// In bytes; 0 if there is no log yet.
    pub fn log_length(&self) -> u64 {
        fs::metadata(self.log()).map_or(0, |log| log.len())
    }

    /// The last lines that were logged after the first `start` bytes.
    pub fn log_since(&self, start: u64) -> String {
        let mut bytes = Vec::new();
        let start = start.max(self.log_length().saturating_sub(TOLD_BYTES));
        let read = File::open(self.log()).and_then(|mut log| {
            log.seek(SeekFrom::Start(start))?;
            log.read_to_end(&mut bytes)
        });
        match read {
            Ok(_) => last_lines(&bytes, TOLD_LINES),
            Err(_) => String::new(),
        }
    }
}

fn in_use(folder: PathBuf, mut lock: File) -> ClusterError {
    let mut owner = String::new();
    // The owner may not have written its pid yet; then nobody can say who it is.
    let known = lock.read_to_string(&mut owner).is_ok() && !owner.trim().is_empty();
    let owner = if known { owner.trim() } else { "(unknown)" };
    ClusterError::InUse {
        owner: owner.to_owned(),
        folder,
    }
}

/// The last `count` lines of a program's output, without blank ones.
pub(super) fn last_lines(output: &[u8], count: usize) -> String {
    let text = String::from_utf8_lossy(output);
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
