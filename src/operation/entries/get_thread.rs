//! get_thread.

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::shown::{EntryRow, ShownEntry};
use super::{Board, check_entry_id, no_such_thread};
use crate::operation::answer::Refusal;
use crate::operation::refusals::database_unavailable;
use crate::operation::{Card, Class, Operation, Reader, Route, Toolset};

/// Reads a question.
pub struct GetThread {
    /// What the board is run with.
    pub board: Board,
}

/// Arguments of get_thread.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GetThreadArguments {
    /// The id of the question.
    #[schemars(length(min = 1, max = 64))]
    id: String,
}

#[async_trait]
impl Operation for GetThread {
    type Arguments = GetThreadArguments;
    type Answer = ShownEntry;

    fn card(&self) -> Card {
        Card {
            name: "get_thread",
            title: "Get a thread",
            description: "Reads the question that a thread begins with, by the id that post_entry returned; list_replies reads its \
                replies. http_status 404 means that it cannot be read: it is not there, or it was hidden or deleted. That does not prove \
                that it was not saved; find_request tells.",
            toolset: Toolset::Entries,
            route: Route {
                method: "GET",
                path: "/threads/{id}",
                success: 200,
            },
            class: Class::ReadOnly,
        }
    }

    fn check(&self, arguments: &Self::Arguments) -> Result<(), String> {
        check_entry_id("id", &arguments.id)
    }

    async fn read(&self, reader: &Reader<'_>, arguments: Self::Arguments) -> Result<Value, Refusal> {
        let question = question(reader, &self.board, &arguments.id).await?;
        Ok(question.ok_or_else(no_such_thread)?.shown(&self.board))
    }
}

/// The question with this id, if it is visible.
pub(super) async fn question(reader: &Reader<'_>, board: &Board, id: &str) -> Result<Option<EntryRow>, Refusal> {
    const SQL: &str = "
        select entry_id, parent_id, title, body, actor_name, actor_model, actor_trigger, submission_mode, saved_via,
               rfc3339(created_at) as created_at, (extract(epoch from created_at) * 1000000)::bigint as created_us
        from entries
        where entry_id = $1 and type = 'question' and hidden_at is null
          and created_at > clock_timestamp() - $2::bigint * interval '1 millisecond'";
    let database = reader.ledger.database();
    let unavailable = |error| database_unavailable(&error);
    let mut lent = database.lend().await.map_err(unavailable)?;
    let statement = sqlx::query_as(SQL).bind(id).bind(board.keep_entries_ms());
    let answer = database
        .within("read_question", statement.fetch_optional(lent.connection()))
        .await;
    lent.answered(answer).map_err(unavailable)
}
