//! The replicas under test: processes of this very program.

use std::fs::File;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::time::Instant;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::process::{Child, Command};
use tokio::sync::Mutex;

use super::reaper::Reaper;

/// How long a replica may take to become ready.
const READY_LIMIT: Duration = Duration::from_secs(30);

/// One replica, which may be down at the moment.
pub struct Replica {
    /// Its number, from 1.
    pub number: usize,
    /// Where it takes calls.
    pub port: u16,
    admin_port: u16,
    database_url: String,
    settings: Vec<(String, String)>,
    log: PathBuf,
    reaper: Reaper,
    child: Mutex<Option<Child>>,
}

/// A port of loopback that is free at the moment, below those that outgoing connections get: a replica that starts again
/// must not find its port taken by a caller.
///
/// # Errors
/// None is.
pub fn free_port() -> std::io::Result<u16> {
    for _ in 0..200 {
        let port = fastrand::u16(10_000..32_000);
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return Ok(port);
        }
    }
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

impl Replica {
    /// A replica that is to be started; `settings` are environment variables.
    ///
    /// # Errors
    /// No port is free.
    pub fn new(
        number: usize,
        folder: &Path,
        url: String,
        settings: &[(String, String)],
        reaper: &Reaper,
    ) -> std::io::Result<Self> {
        Ok(Self {
            number,
            port: free_port()?,
            admin_port: free_port()?,
            database_url: url,
            settings: settings.to_vec(),
            log: folder.join(format!("replica-{number}.log")),
            reaper: reaper.clone(),
            child: Mutex::new(None),
        })
    }

    /// Its base URL.
    pub fn base(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Starts it and waits until it is ready.
    ///
    /// # Errors
    /// A sentence that says why it is not.
    pub async fn start(&self) -> Result<(), String> {
        let say = |error: std::io::Error| format!("replica {} could not be started: {error}", self.number);
        let log = File::options().create(true).append(true).open(&self.log).map_err(say)?;
        let program = std::env::current_exe().map_err(say)?;
        let child = Command::new(program)
            .arg("serve")
            .env("DATABASE_URL", &self.database_url)
            .env("LISTEN_ADDR", format!("127.0.0.1:{}", self.port))
            .env("ADMIN_ADDR", format!("127.0.0.1:{}", self.admin_port))
            .env("REPLICA_NAME", format!("replica {}", self.number))
            .env("RUST_LOG", "warn,ticket_ledger=info")
            .envs(self.settings.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            // A Ctrl-C at the terminal is for the load test, which stops its replicas itself.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .map_err(say)?;
        self.reaper.watch(child.id());
        *self.child.lock().await = Some(child);
        self.until_ready().await
    }

    async fn until_ready(&self) -> Result<(), String> {
        let began = Instant::now();
        while began.elapsed() < READY_LIMIT {
            if self.is_ready().await {
                return Ok(());
            }
            if let Some(child) = self.child.lock().await.as_mut()
                && let group = child.id()
                && let Ok(Some(status)) = child.try_wait()
            {
                self.reaper.forget(group);
                return Err(format!(
                    "replica {} ended ({status}){}; see {}",
                    self.number,
                    self.last_words(),
                    self.log.display()
                ));
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Err(format!(
            "replica {} did not become ready; see {}",
            self.number,
            self.log.display()
        ))
    }

    /// The sentence with which it ended, if there is one.
    fn last_words(&self) -> String {
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        let sentence = log.lines().rev().find_map(|line| line.strip_prefix("ticket-ledger: "));
        sentence.map_or_else(String::new, |sentence| format!(": {sentence}"))
    }

    async fn is_ready(&self) -> bool {
        let url = format!("http://127.0.0.1:{}/readyz", self.admin_port);
        let client = super::client::plain();
        let asked = async { client?.get(url).send().await.ok().map(|response| response.status()) };
        let status = tokio::time::timeout(Duration::from_secs(1), asked).await;
        matches!(status, Ok(Some(status)) if status.is_success())
    }

    /// Its process, if it runs.
    pub async fn pid(&self) -> Option<i32> {
        self.child
            .lock()
            .await
            .as_ref()
            .and_then(Child::id)
            .map(u32::cast_signed)
    }

    /// Sends a signal, if it runs.
    pub async fn signal(&self, signal: Signal) {
        if let Some(pid) = self.child.lock().await.as_ref().and_then(Child::id) {
            let _ = kill(Pid::from_raw(pid.cast_signed()), signal);
        }
    }

    /// Waits until it has ended; kills it when it does not.
    pub async fn end(&self, limit: Duration) {
        let mut child = self.child.lock().await;
        let group = child.as_ref().and_then(Child::id);
        if let Some(running) = child.as_mut()
            && tokio::time::timeout(limit, running.wait()).await.is_err()
        {
            let _ = running.kill().await;
        }
        self.reaper.forget(group);
        *child = None;
    }
}
