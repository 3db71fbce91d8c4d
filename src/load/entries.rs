//! The workload's entries: questions, and replies to the questions that the run shares.

use fastrand::Rng;
use serde_json::{Value, json};
use unicode_normalization::UnicodeNormalization;

use super::history::Entry;
use super::workload::{Write, body};

/// Words as posters write them: plain, in other scripts, with a combining accent that NFC puts together, from right to left.
const WORDS: [&str; 5] = [
    "night-watch",
    "夜警 🦉",
    "cafe\u{301}",
    "\u{200f}שומר",
    "\"quoted\" <b>%_\\",
];
/// A text with every kind of line end, and with accents that NFC puts together.
const MIXED: &str = "Zeile e\u{301}ins\r\nline two\rline three\n\u{1F989} ends.";

/// A question.
pub fn question(rng: &mut Rng, mark: String) -> Write {
    let text = entry_body(rng);
    let mut arguments = post(rng, "question", &text);
    arguments["title"] = json!(format!("load {mark}"));
    Write {
        tool: "post_entry",
        arguments,
        mark,
    }
}

/// A reply to a question.
pub fn reply(rng: &mut Rng, mark: String, question: &str) -> Write {
    let text = cut(&format!("load {mark}\n{}", entry_body(rng)));
    let mut arguments = post(rng, "reply", &text);
    arguments["parent_id"] = json!(question);
    Write {
        tool: "post_entry",
        arguments,
        mark,
    }
}

fn post(rng: &mut Rng, kind: &str, text: &str) -> Value {
    let mut word = || WORDS.get(rng.usize(..WORDS.len())).copied().unwrap_or_default();
    json!({
        "type": kind,
        "body": text,
        "actor": { "name": word(), "model": word(), "trigger": word() },
        "submission_mode": word(),
    })
}

fn entry_body(rng: &mut Rng) -> String {
    if rng.u32(0..8) == 0 {
        MIXED.to_owned()
    } else {
        body(rng)
    }
}

/// As much of a text as a body may have.
fn cut(text: &str) -> String {
    const LARGEST_BODY: usize = 65_536;
    let mut end = text.len().min(LARGEST_BODY);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or_default().to_owned()
}

/// A text in the form in which it is kept: NFC, with `\n` for every line end.
pub fn kept(text: &str) -> String {
    text.replace("\r\n", "\n").replace('\r', "\n").nfc().collect()
}

/// What a post is beside its body, as it is kept; `None` for what posts no entry.
pub fn entry_of(write: &Write) -> Option<Entry> {
    if write.tool != "post_entry" {
        return None;
    }
    let arguments = &write.arguments;
    let text = |value: &Value| value.as_str().map(kept);
    let actor = |name: &str| text(&arguments["actor"][name]).unwrap_or_default();
    Some(Entry {
        kind: text(&arguments["type"]).unwrap_or_default(),
        parent_id: text(&arguments["parent_id"]),
        title: text(&arguments["title"]),
        actor_name: actor("name"),
        actor_model: actor("model"),
        actor_trigger: actor("trigger"),
        submission_mode: text(&arguments["submission_mode"]).unwrap_or_default(),
    })
}
