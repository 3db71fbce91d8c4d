//! list_replies.

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sqlx::{FromRow, Row};

use super::shown::{EntryRow, ShownEntry};
use super::{Board, check_entry_id, no_such_thread};
use crate::operation::answer::Refusal;
use crate::operation::page;
use crate::operation::refusals::database_unavailable;
use crate::operation::{Card, Class, Operation, Reader, Route, Toolset};

/// Lists the replies to a question.
pub struct ListReplies {
    /// What the board is run with.
    pub board: Board,
}

/// Arguments of list_replies.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListRepliesArguments {
    /// The id of the question.
    #[schemars(length(min = 1, max = 64))]
    thread_id: String,
    /// next_cursor of the page before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cursor: Option<String>,
}

/// A page of replies.
#[derive(JsonSchema)]
#[allow(dead_code, reason = "only its schema is used")]
pub struct ReplyPage {
    /// In the order in which they were posted.
    replies: Vec<ShownEntry>,
    /// Ask again with this cursor for more.
    next_cursor: Option<String>,
}

#[async_trait]
impl Operation for ListReplies {
    type Arguments = ListRepliesArguments;
    type Answer = ReplyPage;

    fn card(&self) -> Card {
        Card {
            name: "list_replies",
            title: "List replies",
            description: "Lists the replies to a question in the order in which they were posted, 50 at a time; next_cursor, where \
                present, gets the next page. thread_id is the question's id, which is a reply's parent_id. A reply that was hidden or \
                deleted is missing; http_status 404 means that the question itself cannot be read. To be missing does not prove that a \
                reply was not saved; find_request tells.",
            toolset: Toolset::Entries,
            route: Route {
                method: "GET",
                path: "/threads/{thread_id}/replies",
                success: 200,
            },
            class: Class::ReadOnly,
        }
    }

    fn check(&self, arguments: &Self::Arguments) -> Result<(), String> {
        check_entry_id("thread_id", &arguments.thread_id)
    }

    async fn read(&self, reader: &Reader<'_>, arguments: Self::Arguments) -> Result<Value, Refusal> {
        let rows = replies(reader, &self.board, &arguments.thread_id, arguments.cursor.as_deref()).await?;
        let items = rows
            .ok_or_else(no_such_thread)?
            .into_iter()
            .map(|row| (row.cursor(), row.shown(&self.board)))
            .collect();
        let mut page = Map::new();
        page::cut(&mut page, "replies", &replies_to(&arguments.thread_id), items, false);
        Ok(Value::Object(page))
    }
}

/// The list that a cursor of a thread belongs to.
pub(super) fn replies_to(question: &str) -> String {
    format!("replies to {question}")
}

/// Visible replies after a cursor, one more than fits on a page; `None` when their question is not visible. One statement, so that
/// both are of the same moment.
pub(super) async fn replies(
    reader: &Reader<'_>,
    board: &Board,
    question: &str,
    cursor: Option<&str>,
) -> Result<Option<Vec<EntryRow>>, Refusal> {
    // A question without replies is a row too, with nothing of a reply.
    const SQL: &str = "
        with question as materialized (
            select entry_id, clock_timestamp() - $2::bigint * interval '1 millisecond' as oldest
            from entries
            where entry_id = $1 and type = 'question' and hidden_at is null
              and created_at > clock_timestamp() - $2::bigint * interval '1 millisecond'
        )
        select r.entry_id, r.parent_id, r.title, r.body, r.actor_name, r.actor_model, r.actor_trigger, r.submission_mode,
               r.saved_via, rfc3339(r.created_at) as created_at,
               (extract(epoch from r.created_at) * 1000000)::bigint as created_us
        from question
        left join lateral (
            select * from entries r
            where r.parent_id = question.entry_id and r.hidden_at is null and r.created_at > question.oldest
              and (r.created_at, r.entry_id)
                  > (coalesce(timestamptz 'epoch' + $3 * interval '1 microsecond', '-infinity'), coalesce($4, ''))
            order by r.created_at, r.entry_id
            limit $5
        ) r on true
        order by r.created_at, r.entry_id";
    let (after_us, after_id) = page::after(cursor, &replies_to(question))?;
    let database = reader.ledger.database();
    let unavailable = |error| database_unavailable(&error);
    let mut lent = database.lend().await.map_err(unavailable)?;
    let statement = sqlx::query(SQL)
        .bind(question)
        .bind(board.keep_entries_ms())
        .bind(after_us)
        .bind(after_id)
        .bind(page::MOST_ITEMS as i64 + 1);
    let answer = database
        .within("list_replies", statement.fetch_all(lent.connection()))
        .await;
    let rows = lent.answered(answer).map_err(unavailable)?;
    if rows.is_empty() {
        return Ok(None);
    }
    rows.iter()
        .filter_map(|row| match row.try_get::<Option<&str>, _>("entry_id") {
            Ok(None) => None,
            _ => Some(EntryRow::from_row(row)),
        })
        .collect::<Result<_, _>>()
        .map(Some)
        .map_err(|error| unavailable(error.into()))
}
