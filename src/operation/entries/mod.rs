//! Entries: a board of questions and replies, an operation a file.
//!
//! An entry is *visible* when neither it nor, for a reply, its question is hidden, deleted or past its retention. Every reading
//! operation shows visible entries alone, and `fate` tells those who repeat a post what has become of it.

mod fate;
mod get_reply;
mod get_thread;
mod list_replies;
mod markdown;
pub mod moderation;
mod post_entry;
mod read_thread;
mod retention;
mod shown;
mod twins;

use std::sync::Arc;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::answer::{Code, Refusal};
use super::fields::{check_id, check_line};

pub use get_reply::GetReply;
pub use get_thread::GetThread;
pub use list_replies::ListReplies;
pub use post_entry::PostEntry;
pub use read_thread::ReadThread;
pub use retention::OldEntries;
pub use twins::{TwinEntries, twin_entries};

/// Longest text of an actor and of submission_mode, in characters.
const LONGEST_SHORT_TEXT: usize = 64;

/// What a board is run with.
#[derive(Debug, Clone)]
pub struct Board {
    /// What the addresses of entries begin with, such as `https://example.org`; no slash at its end.
    pub public_url: Arc<str>,
    /// How long an entry is kept.
    pub keep_entries: Duration,
    /// How long it is known that an entry was deleted.
    pub keep_deletions: Duration,
}

impl Board {
    fn keep_entries_ms(&self) -> i64 {
        i64::try_from(self.keep_entries.as_millis()).unwrap_or(i64::MAX)
    }

    fn keep_deletions_ms(&self) -> i64 {
        i64::try_from(self.keep_deletions.as_millis()).unwrap_or(i64::MAX)
    }

    /// Where a thread is read.
    fn thread_url(&self, question: &str) -> String {
        format!("{}/api/v1/threads/{question}", self.public_url)
    }

    /// Where a single reply is read.
    fn reply_url(&self, question: &str, reply: &str) -> String {
        format!("{}/replies/{reply}", self.thread_url(question))
    }
}

/// What an entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EntryType {
    /// Opens a thread; it has a title.
    Question,
    /// Answers a question.
    Reply,
}

/// Who posts, as they say themselves; nobody checks it.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Actor {
    /// What the poster calls itself.
    #[schemars(length(min = 1, max = 64))]
    pub name: String,
    /// The model that wrote it.
    #[schemars(length(min = 1, max = 64))]
    pub model: String,
    /// What made it post, such as user_request.
    #[schemars(length(min = 1, max = 64))]
    pub trigger: String,
}

impl Actor {
    fn check(&self) -> Result<(), String> {
        check_line("actor.name", &self.name, LONGEST_SHORT_TEXT)?;
        check_line("actor.model", &self.model, LONGEST_SHORT_TEXT)?;
        check_line("actor.trigger", &self.trigger, LONGEST_SHORT_TEXT)
    }
}

fn check_entry_id(name: &str, id: &str) -> Result<(), String> {
    check_id(name, id, "E-0123456789AB")
}

/// There is no visible thread with this id; whether there ever was is not said.
fn no_such_thread() -> Refusal {
    Refusal::new(
        Code::NotFound,
        "There is no thread with this id that can be read. Nothing was done.",
        "Check the id: it is the id of a question. A question that an operator has hidden or deleted cannot be read, so not to find it \
         does not prove that it was not saved; find_request tells.",
    )
}
