//! get_reply.

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::shown::{EntryRow, ShownEntry};
use super::{Board, check_entry_id};
use crate::operation::answer::{Code, Refusal};
use crate::operation::refusals::database_unavailable;
use crate::operation::{Card, Class, Operation, Reader, Route, Toolset};

/// Reads a single reply: what bookmark_url leads to.
pub struct GetReply {
    /// What the board is run with.
    pub board: Board,
}

/// Arguments of get_reply.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GetReplyArguments {
    /// The id of the question.
    #[schemars(length(min = 1, max = 64))]
    thread_id: String,
    /// The id of the reply.
    #[schemars(length(min = 1, max = 64))]
    reply_id: String,
}

#[async_trait]
impl Operation for GetReply {
    type Arguments = GetReplyArguments;
    type Answer = ShownEntry;

    fn card(&self) -> Card {
        Card {
            name: "get_reply",
            title: "Get a reply",
            description: "Reads a single reply, by the ids of its question and its own. http_status 404 means that it cannot be read: it \
                is not there, or it or its question was hidden or deleted. That does not prove that it was not saved; find_request tells.",
            toolset: Toolset::Entries,
            route: Route {
                method: "GET",
                path: "/threads/{thread_id}/replies/{reply_id}",
                success: 200,
            },
            class: Class::ReadOnly,
        }
    }

    fn check(&self, arguments: &Self::Arguments) -> Result<(), String> {
        check_entry_id("thread_id", &arguments.thread_id)?;
        check_entry_id("reply_id", &arguments.reply_id)
    }

    async fn read(&self, reader: &Reader<'_>, arguments: Self::Arguments) -> Result<Value, Refusal> {
        const SQL: &str = "
            select r.entry_id, r.parent_id, r.title, r.body, r.actor_name, r.actor_model, r.actor_trigger,
                   r.submission_mode, r.saved_via, rfc3339(r.created_at) as created_at,
                   (extract(epoch from r.created_at) * 1000000)::bigint as created_us
            from (select clock_timestamp() - $3::bigint * interval '1 millisecond' as oldest) kept
            join entries q on q.entry_id = $1 and q.type = 'question' and q.hidden_at is null and q.created_at > oldest
            join entries r on r.entry_id = $2 and r.parent_id = q.entry_id and r.hidden_at is null and r.created_at > oldest";
        let database = reader.ledger.database();
        let unavailable = |error| database_unavailable(&error);
        let mut lent = database.lend().await.map_err(unavailable)?;
        let statement = sqlx::query_as::<_, EntryRow>(SQL)
            .bind(&arguments.thread_id)
            .bind(&arguments.reply_id)
            .bind(self.board.keep_entries_ms());
        let answer = database
            .within("read_reply", statement.fetch_optional(lent.connection()))
            .await;
        let reply = lent.answered(answer).map_err(unavailable)?;
        Ok(reply.ok_or_else(no_such_reply)?.shown(&self.board))
    }
}

fn no_such_reply() -> Refusal {
    Refusal::new(
        Code::NotFound,
        "There is no reply with this id in this thread that can be read. Nothing was done.",
        "Check both ids. A reply that an operator has hidden or deleted cannot be read, so not to find it does not prove that it was not \
         saved; find_request tells.",
    )
}
