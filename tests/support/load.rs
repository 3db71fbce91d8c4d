//! Load tests as processes, one at a time: each of them keeps a small machine busy by itself.

use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tokio::process::Command;
use tokio::sync::{Mutex, MutexGuard};

static TURN: Mutex<()> = Mutex::const_new(());
static NEXT: AtomicU32 = AtomicU32::new(0);

/// Waits until no other test loads the machine.
pub async fn turn() -> MutexGuard<'static, ()> {
    TURN.lock().await
}

/// A run's folder. What a run left behind is killed and removed when dropped.
pub struct Folder(pub PathBuf);

impl Folder {
    pub fn new() -> Self {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Self(std::env::temp_dir().join(format!("ticket-ledger-load-{}-{number}", std::process::id())))
    }

    pub fn history(&self) -> PathBuf {
        self.0.join("history.jsonl")
    }

    /// Every process that has this folder in its command line or one of its files open.
    pub fn processes(&self) -> Vec<Pid> {
        let folder = self.0.to_str().expect("a path");
        let Ok(processes) = std::fs::read_dir("/proc") else {
            return Vec::new();
        };
        processes
            .filter_map(|process| process.ok()?.file_name().to_str()?.parse().ok())
            .filter(|pid| *pid != std::process::id() && uses(*pid, folder))
            .map(|pid| Pid::from_raw(pid.cast_signed()))
            .collect()
    }
}

fn uses(pid: u32, folder: &str) -> bool {
    let place = Path::new("/proc").join(pid.to_string());
    let command = std::fs::read(place.join("cmdline")).unwrap_or_default();
    if String::from_utf8_lossy(&command).contains(folder) {
        return true;
    }
    let Ok(files) = std::fs::read_dir(place.join("fd")) else {
        return false;
    };
    files
        .filter_map(|file| std::fs::read_link(file.ok()?.path()).ok())
        .any(|file| file.starts_with(folder))
}

impl Drop for Folder {
    fn drop(&mut self) {
        for pid in self.processes() {
            let _ = kill(pid, Signal::SIGKILL);
        }
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// `ticket-ledger load` with these arguments.
pub fn command(program: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(program);
    command
        .arg("load")
        .args(arguments)
        .env_remove("LOAD_DATABASE_URL")
        .env_remove("TICKET_LEDGER_SABOTAGE")
        .stdin(Stdio::null())
        .kill_on_drop(true);
    command
}

/// A load test that has ended.
pub struct Ended {
    pub output: Output,
    pub took: Duration,
    /// What `--json` printed.
    pub summary: Value,
}

impl Ended {
    /// What it printed, for the message of an assertion.
    pub fn said(&self) -> String {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        format!(
            "{}\n{}\n{}",
            self.output.status,
            text(&self.output.stdout),
            text(&self.output.stderr)
        )
    }

    /// The numbers of the rules that were broken.
    pub fn rules(&self) -> Vec<u64> {
        let violations = self.summary["verdict"]["violations"].as_array();
        let mut rules: Vec<u64> = violations
            .map(|violations| violations.iter().filter_map(|found| found["rule"].as_u64()).collect())
            .unwrap_or_default();
        rules.sort_unstable();
        rules.dedup();
        rules
    }
}

/// Runs it to its end, with `--json`.
pub async fn run(mut command: Command) -> Ended {
    let began = Instant::now();
    let output = command.arg("--json").output().await.expect("it runs");
    Ended {
        took: began.elapsed(),
        summary: serde_json::from_slice(&output.stdout).unwrap_or(Value::Null),
        output,
    }
}
