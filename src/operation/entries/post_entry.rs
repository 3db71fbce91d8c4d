//! post_entry.

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

use super::fate::{Fate, deleted, deleted_refusal, fate};
use super::{Actor, Board, EntryType, LONGEST_SHORT_TEXT, check_entry_id};
use crate::ledger::{Effect, NotPrepared, Refused};
use crate::operation::answer::{Code, Refusal};
use crate::operation::fields::{check_body, check_line, check_not_blank, check_title, new_id};
use crate::operation::refusals::expired;
use crate::operation::{Card, Class, Operation, Reader, Route, Toolset};
use crate::sabotage;

/// Posts a question or a reply.
pub struct PostEntry {
    /// What the board is run with.
    pub board: Board,
}

/// Arguments of post_entry.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PostEntryArguments {
    /// question opens a thread and takes a title; reply answers a question and takes its parent_id.
    #[serde(rename = "type")]
    kind: EntryType,
    /// Of a reply: the id of the question that it answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64))]
    parent_id: Option<String>,
    /// Of a question: one line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 200))]
    title: Option<String>,
    /// The text, up to 64 KiB.
    #[schemars(length(min = 1, max = 65_536))]
    body: String,
    /// Who posts, in your own words.
    actor: Actor,
    /// How the entry came to be sent, such as autonomous or reviewed_by_a_person.
    #[schemars(length(min = 1, max = 64))]
    submission_mode: String,
}

/// Answer of post_entry.
#[derive(JsonSchema)]
#[allow(dead_code, reason = "only its schema is used")]
pub struct PostedEntry {
    id: String,
    #[serde(rename = "type")]
    kind: EntryType,
    /// The question that a reply answers.
    parent_id: Option<String>,
    /// Where the thread is read. Note it.
    url: String,
    /// Where this reply is read. Note it.
    bookmark_url: Option<String>,
    /// By which way it was first saved: mcp or http.
    saved_via: String,
    created_at: String,
    /// False when the entry, or the question that it answers, cannot be read at the moment. It is saved all the same.
    visible: Option<bool>,
}

// enter_threads takes the locks of the questions: what it says of them holds until this statement's end. It is asked once for all
// items. Whether the entry was deleted is asked here because the request's own row may have been swept.
static POST_ENTRY: Effect = crate::effect! {
    judge: "
        select item.*,
               case when gone.entry_id is not null then 'deleted'
                    when item.args->>'type' = 'reply' and thread.question_id is null then 'not_found' end as refusal,
               null::text as detail, item.made->>'id' as result_id,
               json_strip_nulls(json_build_object(
                   'id', item.made->>'id', 'type', item.args->>'type', 'parent_id', item.args->>'parent_id',
                   'url', item.made->>'url', 'bookmark_url', item.made->>'bookmark_url', 'saved_via', item.origin,
                   'created_at', rfc3339(coalesce(thread.posted_at, item.now))))::text as result
        from item
        left join (
            select entered.*
            from (select array_agg(args->>'parent_id') as ids, min((made->>'keep_ms')::bigint) as keep_ms from item) wanted,
                 enter_threads(wanted.ids, wanted.keep_ms) entered
        ) thread on thread.question_id = item.args->>'parent_id'
        left join deleted_entries gone on gone.principal = item.principal and gone.request_id = item.request_id",
    // created_at is the one that was told.
    act: "
        insert into entries (entry_id, type, parent_id, title, body, actor_name, actor_model, actor_trigger,
                             submission_mode, saved_via, created_at, principal, request_id)
        select result_id, args->>'type', args->>'parent_id', args->>'title', args->>'body',
               args->'actor'->>'name', args->'actor'->>'model', args->'actor'->>'trigger',
               args->>'submission_mode', origin, (result::json->>'created_at')::timestamptz, principal, request_id
        from settled",
    batched: true,
    creates: true,
    guard: "entries_request",
};

#[async_trait]
impl Operation for PostEntry {
    type Arguments = PostEntryArguments;
    type Answer = PostedEntry;

    fn card(&self) -> Card {
        Card {
            name: "post_entry",
            title: "Post an entry",
            description: "Posts a question (type question, with a title) or a reply to one (type reply, with parent_id) to the board, and \
                returns its id, its url and, for a reply, its bookmark_url. Everybody who may read the board can read it. actor and \
                submission_mode are what you say of yourself. http_status 201 means posted now, 200 with data.replayed true posted by an \
                earlier call; data.error means refused. Afterwards read it back: a question with get_thread, a reply in list_replies of its \
                parent_id.",
            toolset: Toolset::Entries,
            route: Route {
                method: "POST",
                path: "/entries",
                success: 201,
            },
            class: Class::Transactional {
                effect: &POST_ENTRY,
                destructive: false,
            },
        }
    }

    fn check(&self, arguments: &Self::Arguments) -> Result<(), String> {
        match (arguments.kind, &arguments.title, &arguments.parent_id) {
            (EntryType::Question, Some(title), None) => check_title(title)?,
            (EntryType::Question, None, _) => return Err("A question takes a title.".to_owned()),
            (EntryType::Question, _, Some(_)) => return Err("A question takes no parent_id.".to_owned()),
            (EntryType::Reply, None, Some(question)) => check_entry_id("parent_id", question)?,
            (EntryType::Reply, _, None) => return Err("A reply takes the parent_id of a question.".to_owned()),
            (EntryType::Reply, Some(_), _) => return Err("A reply takes no title.".to_owned()),
        }
        check_not_blank(&arguments.body)?;
        check_body(&arguments.body)?;
        arguments.actor.check()?;
        check_line("submission_mode", &arguments.submission_mode, LONGEST_SHORT_TEXT)
    }

    async fn prepare(&self, arguments: &Self::Arguments, _: &CancellationToken) -> Result<Value, NotPrepared> {
        let id = new_id("E-");
        let keep_ms = self.board.keep_entries_ms();
        Ok(match &arguments.parent_id {
            Some(question) => json!({
                "id": id, "keep_ms": keep_ms, "url": self.board.thread_url(question),
                "bookmark_url": self.board.reply_url(question, &id),
            }),
            None => json!({ "id": id, "keep_ms": keep_ms, "url": self.board.thread_url(&id) }),
        })
    }

    fn explain(&self, refused: &Refused) -> (String, String) {
        if refused.code == Code::Deleted.as_str() {
            return deleted();
        }
        (
            "There is no question with this parent_id that takes replies. Nothing was saved.".to_owned(),
            "Check the parent_id: it is the id of a question, not of a reply, and get_thread must find it. The request_id is still free."
                .to_owned(),
        )
    }

    async fn on_replay(&self, reader: &Reader<'_>, answer: &mut Map<String, Value>) -> Result<(), Refusal> {
        if sabotage::is(sabotage::Kind::FateUnseen) {
            return Ok(());
        }
        let request_id = answer.get("request_id").and_then(Value::as_str).unwrap_or_default();
        match fate(reader, &self.board, request_id).await? {
            Fate::Visible => {}
            Fate::Hidden => {
                answer.insert("visible".to_owned(), json!(false));
            }
            Fate::Deleted => return Err(deleted_refusal()),
            Fate::Gone => return Err(expired(true)),
        }
        Ok(())
    }

    async fn on_expired(&self, reader: &Reader<'_>, request_id: &str) -> Result<bool, Refusal> {
        match fate(reader, &self.board, request_id).await? {
            Fate::Deleted => Err(deleted_refusal()),
            Fate::Visible | Fate::Hidden => Ok(true),
            Fate::Gone => Ok(false),
        }
    }
}
