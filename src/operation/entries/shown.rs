//! An entry as its readers are shown it.

use schemars::JsonSchema;
use serde_json::{Map, Value, json};
use sqlx::FromRow;

use super::{Actor, Board, EntryType};
use crate::operation::page::Cursor;

/// An entry.
#[derive(JsonSchema)]
#[allow(dead_code, reason = "only its schema is used")]
pub struct ShownEntry {
    id: String,
    #[serde(rename = "type")]
    kind: EntryType,
    /// The question that a reply answers.
    parent_id: Option<String>,
    /// Of a question.
    title: Option<String>,
    body: String,
    actor: Actor,
    submission_mode: String,
    /// By which way it was first saved: mcp or http.
    saved_via: String,
    created_at: String,
    /// Where the thread is read.
    url: String,
    /// Where this reply is read.
    bookmark_url: Option<String>,
}

/// An entry's row, with the columns of every statement that shows entries.
#[derive(Debug, FromRow)]
pub struct EntryRow {
    pub entry_id: String,
    pub parent_id: Option<String>,
    pub title: Option<String>,
    pub body: String,
    pub actor_name: String,
    pub actor_model: String,
    pub actor_trigger: String,
    pub submission_mode: String,
    pub saved_via: String,
    pub created_at: String,
    pub created_us: i64,
}

impl EntryRow {
    /// The place behind it in the order of its thread.
    pub fn cursor(&self) -> Cursor {
        Cursor {
            created_us: self.created_us,
            id: self.entry_id.clone(),
        }
    }

    /// As JSON.
    pub fn shown(self, board: &Board) -> Value {
        let mut shown = Map::new();
        let mut put = |name: &str, value: Value| {
            shown.insert(name.to_owned(), value);
        };
        put("id", json!(self.entry_id));
        match &self.parent_id {
            Some(question) => {
                put("type", json!("reply"));
                put("url", json!(board.thread_url(question)));
                put("bookmark_url", json!(board.reply_url(question, &self.entry_id)));
                put("parent_id", json!(question));
            }
            None => {
                put("type", json!("question"));
                put("url", json!(board.thread_url(&self.entry_id)));
            }
        }
        if let Some(title) = self.title {
            put("title", json!(title));
        }
        put("body", json!(self.body));
        put(
            "actor",
            json!({ "name": self.actor_name, "model": self.actor_model, "trigger": self.actor_trigger }),
        );
        put("submission_mode", json!(self.submission_mode));
        put("saved_via", json!(self.saved_via));
        put("created_at", json!(self.created_at));
        Value::Object(shown)
    }
}
