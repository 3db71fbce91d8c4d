//! One server: the programs that make, start and stop it, and the postmaster that runs.

use std::fs;
use std::io;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::Duration;

use nix::sys::signal::kill;
use nix::unistd::Pid;
use tokio::time::{Instant, sleep};

use super::account::Account;
use super::binaries::Binaries;
use super::folder::{Folder, last_lines};
use super::{ClusterError, StopMode};

/// How long a start (with its crash recovery) or a stop may take.
const PATIENCE: Duration = Duration::from_secs(120);
/// The same for `pg_ctl -t`, in seconds.
const PATIENCE_SECONDS: &str = "120";
/// Between two looks at a server that is still coming or going.
const LOOK_AGAIN: Duration = Duration::from_millis(250);
/// A pid that no system gives to a process.
const NOBODYS_PID: &str = "2147483647";

/// Everything needed to run the server of one data folder.
#[derive(Debug)]
pub(super) struct Server {
    pub folder: Folder,
    pub account: Account,
    pub binaries: Binaries,
    /// Where the socket lies; private to the account.
    pub socket: PathBuf,
    /// The TCP port on 127.0.0.1, if the server is to listen there at all.
    pub tcp_port: Option<u16>,
    /// `name=value`, each given to the server by `-c`.
    pub settings: Vec<String>,
}

/// A running postmaster of this very data folder.
#[derive(Debug)]
pub(super) struct Postmaster {
    pub pid: i32,
    ready: bool,
    leaving: bool,
    options: String,
}

impl Server {
    /// Makes the cluster, under another name until it is whole.
    pub async fn init(&self) -> Result<(), ClusterError> {
        let mut said = String::new();
        // C.UTF-8 sorts by code point and knows letters; not every system has it.
        for locale in ["--locale=C.UTF-8", "--locale=C"] {
            let unfinished = self.folder.unfinished("data");
            self.account.make_private_folder(&unfinished)?;
            let mut initdb = self.binaries.command("initdb", &self.account);
            initdb.arg("-D").arg(&unfinished);
            initdb.args(["--encoding=UTF8", locale, "--auth=trust"]);
            initdb.args(["--username=postgres", "--no-instructions"]);
            let output = finish(initdb.kill_on_drop(true), &self.binaries).await?;
            if output.status.success() {
                let renamed = fs::rename(&unfinished, self.folder.data())
                    .and_then(|()| fs::File::open(self.folder.root())?.sync_all());
                return renamed.map_err(ClusterError::io("rename", &unfinished));
            }
            said = what_it_said(&output);
        }
        Err(ClusterError::InitFailed {
            folder: self.folder.data(),
            output: said,
        })
    }

    /// Brings the server up: takes over one that runs as asked, restarts one that runs otherwise.
    pub async fn run(&self) -> Result<(), ClusterError> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let patient = Instant::now() < deadline;
            match self.postmaster() {
                None => match self.start().await {
                    Err(error) if error.may_pass() && patient => {
                        tracing::warn!("waiting for the processes of a killed server to end");
                    }
                    outcome => return outcome,
                },
                Some(found) if found.leaving || found.options != self.options() => {
                    tracing::info!(pid = found.pid, "stopping a server with other settings");
                    self.stop(StopMode::Fast).await?;
                }
                Some(found) if found.ready => {
                    tracing::info!(pid = found.pid, "the PostgreSQL server is up");
                    return Ok(());
                }
                Some(_) if patient => {}
                Some(_) => {
                    return Err(ClusterError::StartFailed {
                        log: self.folder.log(),
                        lines: self.folder.log_since(0),
                    });
                }
            }
            sleep(LOOK_AGAIN).await;
        }
    }

    async fn start(&self) -> Result<(), ClusterError> {
        self.disarm_leftovers()
            .map_err(ClusterError::io("clean", &self.folder.data()))?;
        self.folder.rotate_log()?;
        let log_start = self.folder.log_length();
        let options: String = self
            .settings
            .iter()
            .map(|setting| format!(" -c {}", shell_quoted(setting)))
            .collect();
        let mut pg_ctl = self.pg_ctl("start");
        pg_ctl.arg("-l").arg(self.folder.log()).arg("-o").arg(options);
        let output = finish(&mut pg_ctl, &self.binaries).await?;
        if output.status.success() {
            tracing::info!(pid = self.postmaster().map(|p| p.pid), "PostgreSQL server started");
            return Ok(());
        }
        // Asking the kernel beats reading the log, whose wording and language may change.
        if let Some(port) = self.tcp_port
            && TcpListener::bind(("127.0.0.1", port)).is_err_and(|error| error.kind() == io::ErrorKind::AddrInUse)
        {
            return Err(ClusterError::PortTaken(port));
        }
        let logged = self.folder.log_since(log_start);
        Err(ClusterError::StartFailed {
            log: self.folder.log(),
            lines: if logged.is_empty() {
                what_it_said(&output)
            } else {
                logged
            },
        })
    }

    /// Stops the server; one that is down already is fine.
    pub async fn stop(&self, mode: StopMode) -> Result<(), ClusterError> {
        let Some(Postmaster { pid, .. }) = self.postmaster() else {
            return Ok(());
        };
        let mut pg_ctl = self.pg_ctl("stop");
        pg_ctl.arg("-m").arg(mode.as_str());
        let output = finish(&mut pg_ctl, &self.binaries).await?;
        if output.status.success() || self.postmaster().is_none() {
            return Ok(());
        }
        Err(ClusterError::StopFailed {
            pid,
            output: what_it_said(&output),
        })
    }

    /// The running postmaster, if its working folder proves that it serves this data folder.
    ///
    /// Its pid file alone proves nothing: after a power cut the pid may be another process's.
    pub fn postmaster(&self) -> Option<Postmaster> {
        let data = self.folder.data();
        let file = fs::read_to_string(data.join("postmaster.pid")).ok()?;
        let pid = pid_in(&file)?;
        if working_folder(pid).ok()? != data {
            return None;
        }
        // The eighth line is the state; see utils/pidfile.h of PostgreSQL.
        let state = file.lines().nth(7).unwrap_or_default().trim();
        // The postmaster wrote its command line down, quoted, after its program's path.
        let opts = fs::read_to_string(data.join("postmaster.opts")).unwrap_or_default();
        let options = opts.find(" \"-D\" ").map_or("", |start| &opts[start..]);
        Some(Postmaster {
            pid,
            ready: state == "ready",
            leaving: state == "stopping",
            options: options.trim_end().to_owned(),
        })
    }

    /// What `postmaster.opts` says of a server that runs as asked.
    fn options(&self) -> String {
        let mut options = format!(" \"-D\" \"{}\"", self.folder.data().display());
        for setting in &self.settings {
            options += &format!(" \"-c\" \"{setting}\"");
        }
        options
    }

    /// Keeps Postgres from taking a stranger with a dead postmaster's pid for that postmaster.
    ///
    /// Postgres recovers from a stale pid file by itself, but not if the pid was given to another
    /// process of the same user since, as is common after a reboot and in containers. The file
    /// is kept, since Postgres also finds in it whether processes of the dead one still run.
    fn disarm_leftovers(&self) -> io::Result<()> {
        let path = self.folder.data().join("postmaster.pid");
        let Ok(file) = fs::read_to_string(&path) else {
            return Ok(());
        };
        let Some(pid) = pid_in(&file).filter(|pid| kill(Pid::from_raw(*pid), None).is_ok()) else {
            return Ok(());
        };
        match working_folder(pid) {
            // Not knowing who it is, the file is left to Postgres, which then refuses to start.
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Ok(()),
            _ => {}
        }
        tracing::info!(pid, "the pid in postmaster.pid is another process's by now");
        let rest = file.split_once('\n').map_or("", |(_, rest)| rest);
        let unfinished = path.with_extension("pid.tmp");
        fs::write(&unfinished, format!("{NOBODYS_PID}\n{rest}"))?;
        self.account.give(&unfinished)?;
        fs::rename(&unfinished, &path)?;
        // The socket's own lock file names the same pid.
        for entry in fs::read_dir(&self.socket)? {
            fs::remove_file(entry?.path())?;
        }
        Ok(())
    }

    fn pg_ctl(&self, action: &str) -> tokio::process::Command {
        let mut pg_ctl = self.binaries.command("pg_ctl", &self.account);
        pg_ctl
            .args([action, "-w", "-t", PATIENCE_SECONDS, "-D"])
            .arg(self.folder.data());
        pg_ctl
    }
}

/// Runs a program to its end.
async fn finish(command: &mut tokio::process::Command, binaries: &Binaries) -> Result<Output, ClusterError> {
    let ran = command.output().await;
    ran.map_err(ClusterError::io("run the programs in", binaries.bindir()))
}

fn what_it_said(output: &Output) -> String {
    let both = [output.stdout.as_slice(), output.stderr.as_slice()].concat();
    last_lines(&both, 8)
}

fn pid_in(pid_file: &str) -> Option<i32> {
    pid_file.lines().next()?.trim().parse().ok().filter(|pid| *pid > 0)
}

/// The folder in which a process works: a postmaster's is its data folder.
///
/// An error of kind `NotFound` means that there is no such process, or only its zombie; any other
/// that nobody can tell.
fn working_folder(pid: i32) -> io::Result<PathBuf> {
    if Path::new("/proc/self/cwd").exists() {
        return fs::read_link(format!("/proc/{pid}/cwd"));
    }
    // macOS has no /proc, but always lsof.
    let output = std::process::Command::new("/usr/sbin/lsof")
        .args(["-a", "-d", "cwd", "-F", "n", "-p", &pid.to_string()])
        .output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let folder = text.lines().find_map(|line| line.strip_prefix('n'));
    folder
        .map(PathBuf::from)
        .ok_or_else(|| io::Error::other("lsof does not tell"))
}

/// `pg_ctl -o` goes through a shell.
fn shell_quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}
