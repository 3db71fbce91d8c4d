//! The workload: what callers do, decided by a seed alone, so that the same seed makes the same workload again.

use std::sync::Mutex;

use fastrand::Rng;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::entries::{kept, question, reply};
use crate::unpoisoned;

/// How a call travels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// HTTP under /api/v1.
    Http,
    /// MCP 2026-07-28.
    Modern,
    /// MCP 2025-06-18, through `initialize`.
    Legacy,
}

impl Way {
    /// Its name in a history.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Modern => "mcp-2026-07-28",
            Self::Legacy => "mcp-2025-06-18",
        }
    }
}

/// What is written.
#[derive(Debug, Clone)]
pub struct Write {
    /// The tool's name.
    pub tool: &'static str,
    /// Its arguments, without request_id.
    pub arguments: Value,
    /// What tells these arguments from others under the same key.
    pub mark: String,
}

impl Write {
    /// The ticket that it is about, unless it makes one.
    pub fn ticket(&self) -> Option<String> {
        self.arguments["ticket_id"].as_str().map(str::to_owned)
    }

    /// The SHA-256 of its body in hex, if it has one: what is found in the tables must be what was sent, in NFC.
    pub fn body_sha256(&self) -> Option<String> {
        let digest = Sha256::digest(kept(self.arguments["body"].as_str()?));
        Some(digest.iter().map(|byte| format!("{byte:02x}")).collect())
    }
}

/// How the callers of one request behave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Manner {
    /// One call, repeated only when its answer was lost, as Claude Code does: once, on a new connection.
    Plain,
    /// After a lost answer: find_request, then the same call, as a model is told to; and find_request once more when it is done.
    Model,
    /// The same call again and again, whatever the answer.
    Careless { times: u32 },
    /// Several at the same moment.
    Concurrent { callers: u32 },
    /// The key is used a second time, for something else, while or after the first runs.
    Reuse,
    /// The caller leaves before the answer, and somebody asks again later.
    Leave { after_ms: u64 },
    /// The caller leaves before the answer, and nobody ever asks again.
    Abandon { after_ms: u64 },
}

/// One request and its callers.
#[derive(Debug, Clone)]
pub struct Intent {
    /// Its request_id.
    pub request: String,
    /// What is written.
    pub write: Write,
    /// What its second use wants, with [`Manner::Reuse`].
    pub other: Write,
    /// How its callers behave.
    pub manner: Manner,
    /// How each of its calls travels, in turn.
    pub ways: [Way; 8],
    /// Moments within the manner, in ms.
    pub pause_ms: u64,
    /// The address that its calls are sent for.
    pub source: String,
}

/// The tickets that are there to be commented on and set, before the workload begins.
pub const SHARED_TICKETS: u64 = 16;
/// The questions that are there to be replied to.
pub const SHARED_QUESTIONS: u64 = 6;

/// What is there to be written to.
#[derive(Debug, Default)]
pub struct Shared {
    /// Tickets to be commented on and set.
    pub tickets: Vec<String>,
    /// Places of questions that are replied to. In a place another question may come to stand.
    pub questions: Mutex<Vec<String>>,
}

impl Shared {
    /// The question that stands in a place now; `None` where no entries are offered.
    pub fn question(&self, place: usize) -> Option<String> {
        let questions = unpoisoned(self.questions.lock());
        questions.get(place % questions.len().max(1)).cloned()
    }
}

/// What every request_id of a run begins with, and no other run's.
pub fn names_of(run: &str) -> String {
    format!("{run}-")
}

/// The intent with this number.
pub fn intent(seed: u64, run: &str, number: u64, shared: &Shared) -> Intent {
    // Every intent has a generator of its own, so that it does not depend on how the others went.
    let mut rng = generator(seed, number);
    let request = request_id(&mut rng, run, number);
    let write = write(&mut rng, number, shared);
    let other = write_other(&mut rng, number, &write, shared);
    let manner = match rng.u32(0..100) {
        0..40 => Manner::Plain,
        40..55 => Manner::Model,
        55..65 => Manner::Careless { times: rng.u32(2..6) },
        65..80 => Manner::Concurrent { callers: rng.u32(2..6) },
        80..88 => Manner::Reuse,
        88..94 => Manner::Leave {
            after_ms: rng.u64(0..120),
        },
        _ => Manner::Abandon {
            after_ms: rng.u64(0..240),
        },
    };
    let mut way = || match rng.u32(0..5) {
        0 => Way::Http,
        1 => Way::Legacy,
        _ => Way::Modern,
    };
    Intent {
        request,
        write,
        other,
        manner,
        ways: [way(), way(), way(), way(), way(), way(), way(), way()],
        pause_ms: rng.u64(0..150),
        source: source(run, number),
    }
}

fn generator(seed: u64, number: u64) -> Rng {
    Rng::with_seed(seed ^ number.wrapping_mul(0x9E37_79B9_7F4A_7C15))
}

/// An intent that makes something for others to write to, in the plainest way.
pub fn preparation(seed: u64, run: &str, number: u64, is_question: bool) -> Intent {
    let mut intent = intent(seed, run, number, &Shared::default());
    // Counted from the other end, where no intent of the workload comes.
    let name = format!("shared-{}", u64::MAX - number);
    let mut rng = generator(seed, number);
    intent.request = format!("{}{name}", names_of(run));
    intent.write = if is_question {
        question(&mut rng, name)
    } else {
        create(&mut rng, name)
    };
    intent.manner = Manner::Plain;
    intent.ways = [Way::Modern; 8];
    intent
}

/// Of ten intents, nine are from one of many sources that stay below the usual limit; every tenth is from one that does not.
const INTENTS_OF_A_SOURCE: u64 = 8;
const INTENTS_OF_A_CROWDED_SOURCE: u64 = 500;

/// Where an intent's calls come from: an address that no other run has, because its network, by which callers are told apart,
/// carries the run's name.
fn source(run: &str, number: u64) -> String {
    let run = run.rsplit('-').next().and_then(|run| u32::from_str_radix(run, 16).ok());
    let group = if number.is_multiple_of(10) {
        0x80_0000 | ((number / INTENTS_OF_A_CROWDED_SOURCE) & 0x7F_FFFF)
    } else {
        (number / INTENTS_OF_A_SOURCE) & 0x7F_FFFF
    };
    let network = (0xFD << 56) | (u64::from(run.unwrap_or(0)) << 24) | group;
    std::net::Ipv6Addr::from((u128::from(network) << 64) | 1).to_string()
}

/// Keys of every kind that is allowed: short, as long as may be, with other scripts in them.
fn request_id(rng: &mut Rng, run: &str, number: u64) -> String {
    let stem = format!("{run}-{number}");
    match rng.u32(0..10) {
        0 => format!("{stem}-{}", "長".repeat(64 - stem.chars().count() - 1)),
        1 => format!("{stem} é\"'\\%_"),
        _ => stem,
    }
}

fn write(rng: &mut Rng, number: u64, shared: &Shared) -> Write {
    let mark = format!("{number}a");
    let ticket = shared.tickets.get(rng.usize(..shared.tickets.len().max(1)));
    let thread = shared.question(rng.usize(..SHARED_QUESTIONS as usize));
    match (rng.u32(0..14), ticket) {
        (0..2, Some(ticket)) => comment(rng, mark, ticket),
        (2, Some(ticket)) => set_status(ticket, STATUSES.get(rng.usize(..STATUSES.len())).unwrap_or(&"open")),
        (which @ 3..7, _) => match thread {
            Some(_) if which == 3 => question(rng, mark),
            Some(thread) => reply(rng, mark, &thread),
            None => create(rng, mark),
        },
        _ => create(rng, mark),
    }
}

/// The statuses that a ticket may have.
const STATUSES: [&str; 4] = ["open", "in_progress", "done", "closed"];

fn set_status(ticket: &str, status: &str) -> Write {
    Write {
        tool: "set_ticket_status",
        arguments: json!({ "ticket_id": ticket, "ticket_status": status }),
        mark: format!("{ticket} {status}"),
    }
}

fn create(rng: &mut Rng, mark: String) -> Write {
    Write {
        tool: "create_ticket",
        arguments: json!({ "title": format!("load {mark}"), "body": body(rng) }),
        mark,
    }
}

fn comment(rng: &mut Rng, mark: String, ticket: &str) -> Write {
    let body = format!("load {mark}\n{}", body(rng));
    Write {
        tool: "add_comment",
        arguments: json!({ "ticket_id": ticket, "body": body.chars().take(16_000).collect::<String>() }),
        mark,
    }
}

/// Something else under the same key: other arguments, or another tool.
fn write_other(rng: &mut Rng, number: u64, first: &Write, shared: &Shared) -> Write {
    let mark = format!("{number}b");
    let is_same_tool = rng.bool();
    match (first.ticket(), first.tool) {
        (Some(ticket), "add_comment") if is_same_tool => return comment(rng, mark, &ticket),
        (Some(ticket), "set_ticket_status") if is_same_tool => {
            let others = STATUSES.iter().filter(|status| !first.mark.ends_with(*status));
            let others: Vec<_> = others.collect();
            return set_status(
                &ticket,
                others
                    .get(rng.usize(..others.len().max(1)))
                    .map_or("open", |status| **status),
            );
        }
        _ => {}
    }
    match (shared.tickets.first(), shared.question(0)) {
        (Some(ticket), _) if first.tool == "create_ticket" && rng.bool() => comment(rng, mark, ticket),
        (_, Some(thread)) if first.tool == "post_entry" && rng.bool() => reply(rng, mark, &thread),
        _ => create(rng, mark),
    }
}

/// Mostly short, now and then as large as is allowed.
pub fn body(rng: &mut Rng) -> String {
    match rng.u32(0..100) {
        0 => "長".repeat(65_536 / 3),
        1 => "\u{1}".repeat(65_536),
        2..10 => "A longer body, of which there are some.\n".repeat(100),
        _ => "A body.".to_owned(),
    }
}
