//! Replicas as processes of their own.

use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use super::eventually;

/// A running `ticket-ledger serve`. It is killed when dropped.
pub struct Replica {
    child: Child,
    pid: Pid,
    pub address: String,
    pub admin_address: String,
    log: Arc<Mutex<Vec<Value>>>,
}

/// How a replica is to be started. Leases are short, so that tests are.
pub struct Start {
    environment: Vec<(String, String)>,
}

/// The lease of a replica that a test starts, in ms, unless it says otherwise.
pub const LEASE_MS: u64 = 1_500;

impl Start {
    pub fn on(database_url: &str) -> Self {
        let start = Self {
            environment: Vec::new(),
        };
        start
            .with("DATABASE_URL", database_url)
            .with("LISTEN_ADDR", "127.0.0.1:0")
            .with("ADMIN_ADDR", "127.0.0.1:0")
            .with("LEASE_MS", LEASE_MS)
            .with("WAIT_MS", 20_000)
            .with("POOL_SIZE", 4)
            .with("RUST_LOG", "info,ticket_ledger=debug,rmcp=error,sqlx=warn")
    }

    /// Sets an environment variable; the last one of a name counts.
    pub fn with(mut self, name: &str, value: impl ToString) -> Self {
        self.environment.push((name.to_owned(), value.to_string()));
        self
    }

    /// Starts it and waits until it takes calls.
    pub async fn ready(self) -> Replica {
        let replica = self.bound().await;
        eventually("the replica is ready", || async {
            replica.logged("ready").then_some(())
        })
        .await;
        replica
    }

    /// Starts it and waits until it is bound.
    pub async fn bound(self) -> Replica {
        let mut child = Command::new(env!("CARGO_BIN_EXE_ticket-ledger"))
            .arg("serve")
            .envs(self.environment)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("a replica starts");
        let pid = Pid::from_raw(child.id().expect("a pid").cast_signed());
        let log = Arc::new(Mutex::new(Vec::new()));
        let mut lines = BufReader::new(child.stderr.take().expect("its log")).lines();
        let kept = Arc::clone(&log);
        tokio::spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                let line = serde_json::from_str(&line).unwrap_or(Value::String(line));
                kept.lock().expect("the log").push(line);
            }
        });
        let mut replica = Replica {
            child,
            pid,
            address: String::new(),
            admin_address: String::new(),
            log,
        };
        let bound = eventually("the replica is bound", || async { replica.find_log("bound") }).await;
        replica.address = bound["address"].as_str().expect("an address").to_owned();
        replica.admin_address = bound["admin_address"].as_str().expect("an address").to_owned();
        replica
    }
}

impl Replica {
    fn signal(&self, signal: Signal) {
        kill(self.pid, signal).expect("the replica can be signalled");
    }

    /// SIGKILL, and waits until the process is gone.
    pub async fn kill(mut self) {
        self.signal(Signal::SIGKILL);
        self.child.wait().await.expect("it ends");
    }

    /// SIGSTOP.
    pub fn pause(&self) {
        self.signal(Signal::SIGSTOP);
    }

    /// SIGCONT.
    pub fn resume(&self) {
        self.signal(Signal::SIGCONT);
    }

    /// SIGTERM.
    pub fn terminate(&self) {
        self.signal(Signal::SIGTERM);
    }

    /// Waits until the process has ended.
    pub async fn ended(&mut self) -> ExitStatus {
        tokio::time::timeout(super::DEADLINE, self.child.wait())
            .await
            .expect("it ends in time")
            .expect("it ends")
    }

    /// Waits until the process stands still (it stopped itself at a crash point, or was stopped).
    pub async fn stopped(&self) {
        eventually("the replica stands still", || async {
            (self.state() == Some('T')).then_some(())
        })
        .await;
    }

    /// Waits until the process is dead, whoever killed it.
    pub async fn dead(&self) {
        eventually("the replica is dead", || async {
            matches!(self.state(), None | Some('Z')).then_some(())
        })
        .await;
    }

    /// The kernel's letter for what the process does.
    fn state(&self) -> Option<char> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid)).ok()?;
        stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next())
    }

    /// SIGKILL, without waiting.
    pub fn strike(&self) {
        self.signal(Signal::SIGKILL);
    }

    /// Whether a line with this message has been logged.
    pub fn logged(&self, message: &str) -> bool {
        self.find_log(message).is_some()
    }

    /// The first line with this message.
    pub fn find_log(&self, message: &str) -> Option<Value> {
        self.log
            .lock()
            .expect("the log")
            .iter()
            .find(|line| line["message"] == message)
            .cloned()
    }

    /// Everything logged so far.
    pub fn log(&self) -> Vec<Value> {
        self.log.lock().expect("the log").clone()
    }
}
