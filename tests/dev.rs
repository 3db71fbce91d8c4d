//! `ticket-ledger dev`: one command, and all that it prints works.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use sqlx::{Connection, PgConnection};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use crate::support::calls::client;
use crate::support::eventually;

static NEXT: AtomicU32 = AtomicU32::new(0);

/// A data folder; its server is stopped and it is removed when dropped.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Self(std::env::temp_dir().join(format!("ticket-ledger-dev-{}-{number}", std::process::id())))
    }

    fn postmaster(&self) -> Option<Pid> {
        let file = std::fs::read_to_string(self.0.join("data/postmaster.pid")).ok()?;
        let pid = Pid::from_raw(file.lines().next()?.parse().ok()?);
        kill(pid, None).is_ok().then_some(pid)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if let Some(pid) = self.postmaster() {
            let _ = kill(pid, Signal::SIGQUIT);
            for _ in 0..200 {
                if kill(pid, None).is_err() {
                    break;
                }
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
        }
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A running `ticket-ledger dev`.
struct Dev {
    child: Child,
    pid: Pid,
    printed: Arc<Mutex<String>>,
}

fn command(folder: &Path, address: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ticket-ledger"));
    command
        .arg("dev")
        .arg("--data-dir")
        .arg(folder)
        .args(["--listen-addr", address, "--admin-addr", "127.0.0.1:0"])
        .args(["--wait-ms", "21000"]);
    command
        .env_remove("DATABASE_URL")
        .env("RUST_LOG", "info")
        .kill_on_drop(true);
    command
}

impl Dev {
    /// Starts it and waits until it says that it takes calls.
    async fn start(folder: &Folder) -> Self {
        let mut child = command(&folder.0, "127.0.0.1:0")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("it starts");
        let pid = Pid::from_raw(child.id().expect("a pid").cast_signed());
        let printed = Arc::new(Mutex::new(String::new()));
        let kept = Arc::clone(&printed);
        let mut lines = BufReader::new(child.stdout.take().expect("its output")).lines();
        tokio::spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                let mut kept = kept.lock().expect("the output");
                kept.push_str(&line);
                kept.push('\n');
            }
        });
        let dev = Self { child, pid, printed };
        eventually("dev takes calls", || async {
            dev.printed().contains("Ctrl-C stops it").then_some(())
        })
        .await;
        dev
    }

    fn printed(&self) -> String {
        self.printed.lock().expect("the output").clone()
    }

    /// What stands behind a word at the start of a line.
    fn value(&self, word: &str) -> String {
        let printed = self.printed();
        let line = printed.lines().find_map(|line| line.trim().strip_prefix(word));
        line.unwrap_or_else(|| panic!("no {word}: {printed}")).trim().to_owned()
    }

    async fn end(mut self, signal: Signal) -> (Option<i32>, String) {
        kill(self.pid, signal).expect("it can be signalled");
        let ended = tokio::time::timeout(crate::support::DEADLINE, self.child.wait()).await;
        let status = ended.expect("it ends in time").expect("it ends");
        if signal != Signal::SIGKILL {
            eventually("its last words", || async {
                self.printed().contains("Postgres is stopped").then_some(())
            })
            .await;
        }
        (status.code(), self.printed())
    }
}

/// Runs a line as a person would who pastes it.
async fn paste(line: &str) -> Output {
    let run = Command::new("sh").args(["-c", line]).kill_on_drop(true).output();
    tokio::time::timeout(crate::support::DEADLINE, run)
        .await
        .expect("in time")
        .expect("it runs")
}

async fn json(url: &str) -> Value {
    client()
        .get(url)
        .send()
        .await
        .expect("an answer")
        .json()
        .await
        .expect("JSON")
}

#[tokio::test]
async fn every_line_that_dev_prints_works_and_the_tickets_outlive_it() {
    let folder = Folder::new();
    let dev = Dev::start(&folder).await;
    let (mcp, http, url) = (dev.value("MCP"), dev.value("HTTP"), dev.value("DATABASE_URL "));
    assert!(mcp.starts_with("http://127.0.0.1:") && mcp.ends_with("/mcp"), "{mcp}");
    assert!(
        dev.printed()
            .contains(&format!("claude mcp add --transport http ticket-ledger {mcp}"))
    );

    // The curl line, twice.
    let printed = dev.printed();
    let (_, rest) = printed.split_once("\n  curl ").expect("a curl line");
    let curl = format!("curl {}", rest.split_once("\n\n").expect("its end").0);
    let answers = [paste(&curl).await, paste(&curl).await];
    let [first, second]: [Value; 2] =
        answers.map(|output| serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{curl}: {output:?}")));
    assert_eq!(
        (&first["replayed"], &second["replayed"]),
        (&false.into(), &true.into()),
        "{first} {second}"
    );
    assert_eq!(first["ticket_id"], second["ticket_id"]);

    // The second replica, on ports of the system's choice: those in the line may be taken on this machine.
    let line = printed
        .lines()
        .find(|line| line.contains(" serve --log-format text --listen-addr "))
        .expect("a line for a second replica");
    let (before, addresses) = line.trim().split_once(" --listen-addr ").expect("addresses");
    let (one, two) = addresses.split_once(" --admin-addr ").expect("two addresses");
    assert!(
        one.starts_with("127.0.0.1:") && two.starts_with("127.0.0.1:") && !mcp.contains(one),
        "{line}"
    );
    let second = Command::new("sh")
        .args([
            "-c",
            // Text is for eyes; this reader wants JSON.
            &format!("exec env {before} --listen-addr 127.0.0.1:0 --admin-addr 127.0.0.1:0")
                .replace("--log-format text", "--log-format json"),
        ])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn();
    let mut second = second.expect("a second replica");
    let mut log = BufReader::new(second.stderr.take().expect("its log")).lines();
    let other = loop {
        let line = tokio::time::timeout(crate::support::DEADLINE, log.next_line())
            .await
            .expect("in time");
        let line: Value = serde_json::from_str(&line.expect("a line").expect("it runs on")).expect("JSON");
        if line["message"] == "ready" {
            break line["address"].as_str().expect("an address").to_owned();
        }
    };
    let replay = paste(&curl.replace(http.as_str(), &format!("http://{other}/api/v1"))).await;
    let replay: Value = serde_json::from_slice(&replay.stdout).expect("JSON");
    assert_eq!(
        (&replay["replayed"], &replay["ticket_id"]),
        (&true.into(), &first["ticket_id"]),
        "{replay}"
    );
    // It offers what the first one does.
    let entry = json(&format!("http://{other}/api/v1/threads/E-0000000000AA")).await;
    assert!(
        entry["error"]["message"]
            .as_str()
            .is_some_and(|said| said.contains("no thread with this id")),
        "{entry}"
    );
    assert!(
        before.contains("TOOLSETS=tickets,entries") && before.contains("WAIT_MS='21000'"),
        "{before}"
    );
    second.kill().await.expect("it ends");
    let mut connection = PgConnection::connect(&url).await.expect("the URL is one for clients");
    let count: i64 = sqlx::query_scalar("select count(*) from tickets")
        .fetch_one(&mut connection)
        .await
        .expect("a number");
    assert_eq!(count, 1);
    drop(connection);

    let (status, said) = dev.end(Signal::SIGINT).await;
    assert_eq!(status, Some(0), "{said}");
    assert!(folder.postmaster().is_none(), "Postgres runs on");

    // Again, and again after SIGKILL, which leaves its Postgres behind; and ended by SIGTERM at last.
    let dev = Dev::start(&folder).await;
    let kept = json(&format!("{}/tickets", dev.value("HTTP"))).await;
    assert_eq!(kept["tickets"][0]["ticket_id"], first["ticket_id"], "{kept}");
    dev.end(Signal::SIGKILL).await;
    let left = folder.postmaster().expect("Postgres outlives it");
    let dev = Dev::start(&folder).await;
    assert_eq!(folder.postmaster(), Some(left), "it is taken over");
    let kept = json(&format!("{}/tickets", dev.value("HTTP"))).await;
    assert_eq!(kept["tickets"][0]["ticket_id"], first["ticket_id"], "{kept}");
    // And after both were killed.
    dev.end(Signal::SIGKILL).await;
    kill(left, Signal::SIGKILL).expect("Postgres can be signalled");
    let dev = Dev::start(&folder).await;
    let kept = json(&format!("{}/tickets", dev.value("HTTP"))).await;
    assert_eq!(kept["tickets"].as_array().map(Vec::len), Some(1), "{kept}");
    let (status, said) = dev.end(Signal::SIGTERM).await;
    assert_eq!(status, Some(0), "{said}");
    assert!(folder.postmaster().is_none(), "Postgres runs on");
}

/// Runs dev, which must fail by itself; its last words.
async fn fails(mut command: Command, status: i32) -> String {
    let run = tokio::time::timeout(crate::support::DEADLINE, command.stdin(Stdio::null()).output());
    let output = run.await.expect("it ends in time").expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(status), "{said}");
    let sentence = said.lines().find_map(|line| line.strip_prefix("ticket-ledger: "));
    sentence.unwrap_or_else(|| panic!("no sentence: {said}")).to_owned()
}

#[tokio::test]
async fn what_keeps_dev_from_starting_is_said_in_a_sentence() {
    // A port that is taken: said before anything is made.
    let folder = Folder::new();
    let taken = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = taken.local_addr().expect("an address").to_string();
    let said = fails(command(&folder.0, &address), 1).await;
    assert!(
        said.contains(&address) && said.contains("listens there already") && said.contains("LISTEN_ADDR"),
        "{said}"
    );
    assert!(!folder.0.exists(), "a folder was made for nothing");

    // A folder in which nobody may write, root neither.
    let said = fails(command(Path::new("/proc/ticket-ledger"), "127.0.0.1:0"), 1).await;
    assert!(
        said.contains("/proc/ticket-ledger cannot be written") && said.contains("choose another folder"),
        "{said}"
    );

    // Data of another major version.
    std::fs::create_dir_all(folder.0.join("data")).expect("a folder");
    std::fs::set_permissions(&folder.0, std::fs::Permissions::from_mode(0o755)).expect("rights");
    std::fs::write(folder.0.join("data/PG_VERSION"), "9\n").expect("a version");
    let said = fails(command(&folder.0, "127.0.0.1:0"), 1).await;
    assert!(
        said.contains("was made by PostgreSQL 9") && said.contains("PG_BINDIR"),
        "{said}"
    );
    let kept = std::fs::read_to_string(folder.0.join("data/PG_VERSION")).expect("it is kept");
    assert_eq!(kept, "9\n", "data of another version was touched");

    let mut nowhere = command(&folder.0, "127.0.0.1:0");
    nowhere.args(["--pg-bindir", "/nowhere"]);
    let said = fails(nowhere, 1).await;
    assert!(
        said.contains("PG_BINDIR is /nowhere") && said.contains("initdb, pg_ctl and postgres"),
        "{said}"
    );
}

#[tokio::test]
async fn a_second_dev_on_one_folder_is_refused_and_harms_nothing() {
    let folder = Folder::new();
    let dev = Dev::start(&folder).await;
    let said = fails(command(&folder.0, "127.0.0.1:0"), 1).await;
    assert!(
        said.contains("is in use by process") && said.contains(&dev.pid.to_string()),
        "{said}"
    );
    let empty = json(&format!("{}/tickets", dev.value("HTTP"))).await;
    assert_eq!(empty, serde_json::json!({ "tickets": [] }));
    assert_eq!(dev.end(Signal::SIGHUP).await.0, Some(0));
}
