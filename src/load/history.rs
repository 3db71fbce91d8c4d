//! The history of a load test: JSON lines, written as things happen.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// An entry beside its body, its texts in the form in which they are kept.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// `question` or `reply`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The question of a reply.
    pub parent_id: Option<String>,
    /// Of a question.
    pub title: Option<String>,
    pub actor_name: String,
    pub actor_model: String,
    pub actor_trigger: String,
    pub submission_mode: String,
}

/// One line. Times are microseconds since the run began, on the load test's own clock.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Record {
    /// The first line.
    Start {
        /// Of the workload.
        seed: u64,
        /// Names this run; every request_id begins with it.
        run: String,
        /// The database whose tables the history is judged with.
        database_url: String,
        /// Where its private Postgres keeps its data, if it has one.
        data_dir: Option<PathBuf>,
        /// The replicas' lease, in ms.
        lease_ms: u64,
        /// The longest that a replica lets a caller wait, in ms.
        wait_ms: u64,
        /// How long create_ticket works, in ms.
        work_ms: u64,
        /// How many replicas a balancer tries at most: each of them may let the caller wait.
        tries: u64,
        /// Whether a replica was disrupted only when no call suffered from the last disruption any more.
        one_at_a_time: bool,
        /// How many writes a source may call for in an hour, 0 for any number; null where the load test did not start the
        /// replicas and so does not know.
        #[serde(default)]
        limit_per_source: Option<u32>,
        /// How many writes may be saved in an hour by all; the same.
        #[serde(default)]
        limit_global: Option<u32>,
        /// Where nobody but the run has to do with the database: the time by the database's clock, in microseconds since 1970,
        /// before its first call.
        #[serde(default)]
        database_us: Option<i64>,
        /// What was tested, for people: versions, replicas, balancer, Postgres.
        about: String,
        /// The command that makes the same workload and the same faults again.
        again: String,
    },
    /// A call was sent.
    Invoked {
        /// Names the call in later lines.
        call: u64,
        at_us: u64,
        /// The request_id.
        request: String,
        tool: String,
        /// What tells these arguments from others under the same key: the title or body that is to appear, or the status.
        mark: String,
        /// The ticket that is commented on or set.
        ticket: Option<String>,
        /// The SHA-256 of the body that was sent, in hex; of an entry's, in the form in which it is kept.
        body_sha256: Option<String>,
        /// What an entry is beside its body.
        #[serde(default)]
        entry: Option<Entry>,
        /// The address that the call was sent for, by whose limit it counts.
        #[serde(default)]
        source: Option<String>,
        /// `http`, `mcp-2026-07-28` or `mcp-2025-06-18`.
        way: String,
        /// Why it was sent: first, duplicate, repeat, reuse, again.
        why: String,
    },
    /// A call was answered.
    Answered {
        call: u64,
        at_us: u64,
        status: u16,
        /// done, in_progress, or an error's code; `none` for an answer that is none (a balancer's page), `garbled` for one that
        /// contradicts itself.
        outcome: String,
        replayed: Option<bool>,
        /// What the answer says was done, without what the ledger puts around it.
        result: Option<BTreeMap<String, Value>>,
        /// The http_status that stands in an envelope over MCP.
        #[serde(default)]
        told_status: Option<u16>,
        /// Of rate_limited: `source` or `global`.
        #[serde(default)]
        limit: Option<String>,
    },
    /// A call had no answer.
    Lost {
        call: u64,
        at_us: u64,
        /// Whether the caller itself left, or its connection was cut by the load test.
        cut: bool,
        why: String,
    },
    /// find_request was asked and answered.
    Found {
        at_us: u64,
        /// When it was asked.
        #[serde(default)]
        asked_us: u64,
        request: String,
        /// Of HTTP; 0 where there was no answer.
        http: u16,
        /// The request's, an error's code, `none`, or `lost`.
        status: String,
        result: Option<BTreeMap<String, Value>>,
        /// Whether what was made can be read, where that is said.
        #[serde(default)]
        visible: Option<bool>,
    },
    /// A caller's patience ended without a final answer.
    GaveUp { at_us: u64, request: String },
    /// An operator's act was begun, or has ended.
    Acted {
        at_us: u64,
        /// `hide`, `unhide`, `delete`, `stop-writes` or `allow-writes`.
        act: String,
        /// The entry to which it was done.
        entry: Option<String>,
        /// `begin` or `end`; one that has no end may have been done or not.
        phase: String,
        /// Of an end: `changed`, `already so`, or for entries `deleted` and `unknown`.
        outcome: Option<String>,
    },
    /// A fault was injected, or ended.
    Fault {
        at_us: u64,
        fault: String,
        target: String,
        /// `begin`, `end`, or `once`.
        phase: String,
    },
    /// The longest that any claim had been lapsed and unsettled when the database was looked at.
    Watched {
        at_us: u64,
        lapsed_ms: u64,
        request: Option<String>,
    },
    /// A claim that was seen again and again under the same token, for so long by the load test's own clock. Only what is
    /// longer than a lease and its work is noted.
    Held { at_us: u64, request: String, held_ms: u64 },
    /// The last line of a run that came to its end.
    End {
        at_us: u64,
        interrupted: bool,
        /// As in the first line, after all that was under way had ended.
        #[serde(default)]
        database_us: Option<i64>,
    },
}

/// Writes a history.
pub struct History {
    began: Instant,
    /// Unbuffered: what happened is in the file, however this process ends.
    file: Mutex<File>,
    broken: CancellationToken,
}

impl History {
    /// Begins a history in this folder, beside those of earlier runs: the first is `history.jsonl`, the next
    /// `history-2.jsonl`.
    ///
    /// # Errors
    /// The file cannot be made.
    pub fn create(folder: &Path) -> std::io::Result<(Self, PathBuf)> {
        for number in 1.. {
            let name = match number {
                1 => "history.jsonl".to_owned(),
                _ => format!("history-{number}.jsonl"),
            };
            let path = folder.join(name);
            match File::create_new(&path) {
                Ok(file) => {
                    let history = Self {
                        began: Instant::now(),
                        file: Mutex::new(file),
                        broken: CancellationToken::new(),
                    };
                    return Ok((history, path));
                }
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
        Err(std::io::ErrorKind::AlreadyExists.into())
    }

    /// Microseconds since the run began.
    pub fn now_us(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    /// Cancelled when a line could not be written: what happens from then on is no evidence.
    pub fn broken(&self) -> &CancellationToken {
        &self.broken
    }

    /// Writes a line. The first that cannot be written is said on standard error, and the run is to end.
    pub fn write(&self, record: &Record) {
        let mut line = serde_json::to_vec(record).unwrap_or_default();
        line.push(b'\n');
        let mut file = crate::unpoisoned(self.file.lock());
        if self.broken.is_cancelled() {
            return;
        }
        if let Err(error) = file.write_all(&line) {
            eprintln!("ticket-ledger: the history cannot be written, so the run ends: {error}");
            self.broken.cancel();
        }
    }
}

/// Reads a history; a last line that was cut short by a crash is left out.
///
/// # Errors
/// The file cannot be read, or a line before the last one is no record.
pub fn read(path: &Path) -> Result<Vec<Record>, String> {
    let file = File::open(path).map_err(|error| format!("{} cannot be read: {error}", path.display()))?;
    let mut records = Vec::new();
    let mut broken: Option<(usize, String)> = None;
    for (number, line) in BufReader::new(file).split(b'\n').enumerate() {
        let line = line.map_err(|error| format!("{} cannot be read: {error}", path.display()))?;
        if let Some((number, error)) = broken {
            return Err(format!(
                "line {} of {} is no record: {error}",
                number + 1,
                path.display()
            ));
        }
        if line.is_empty() {
            continue;
        }
        match serde_json::from_slice(&line) {
            Ok(record) => records.push(record),
            Err(error) => broken = Some((number, error.to_string())),
        }
    }
    if records.is_empty() {
        return Err(format!("{} holds no history.", path.display()));
    }
    Ok(records)
}
