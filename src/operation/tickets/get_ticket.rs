//! get_ticket.

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{TicketStatus, check_ticket_id, no_such_ticket};
use crate::operation::answer::{Code, Refusal};
use crate::operation::page::{self, Cursor};
use crate::operation::refusals::database_unavailable;
use crate::operation::{Card, Class, Operation, Reader, Route, Toolset};

/// Reads a ticket with its comments.
pub struct GetTicket;

/// Arguments of get_ticket.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GetTicketArguments {
    /// Which ticket.
    ticket_id: String,
    /// next_cursor of the page of comments before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cursor: Option<String>,
}

/// A ticket and a page of its comments.
#[derive(JsonSchema)]
#[allow(dead_code, reason = "only its schema is used")]
pub struct TicketWithComments {
    ticket_id: String,
    title: String,
    /// On the first page only.
    body: Option<String>,
    ticket_status: TicketStatus,
    created_at: String,
    /// In the order in which they were added.
    comments: Vec<ShownComment>,
    /// Ask again with this cursor for more comments.
    next_cursor: Option<String>,
}

#[derive(JsonSchema)]
#[allow(dead_code, reason = "only its schema is used")]
struct ShownComment {
    comment_id: String,
    body: String,
    created_at: String,
}

/// The list that a cursor of this operation belongs to.
fn comments_of(ticket_id: &str) -> String {
    format!("comments of {ticket_id}")
}

#[async_trait]
impl Operation for GetTicket {
    type Arguments = GetTicketArguments;
    type Answer = TicketWithComments;

    fn card(&self) -> Card {
        Card {
            name: "get_ticket",
            title: "Get a ticket",
            description: "Reads a ticket and its comments, 50 at a time; next_cursor, where present, gets the next page of \
                comments, without the ticket's body.",
            toolset: Toolset::Tickets,
            route: Route {
                method: "GET",
                path: "/tickets/{ticket_id}",
                success: 200,
            },
            class: Class::ReadOnly,
        }
    }

    fn check(&self, arguments: &Self::Arguments) -> Result<(), String> {
        check_ticket_id(&arguments.ticket_id)
    }

    async fn read(&self, reader: &Reader<'_>, arguments: Self::Arguments) -> Result<Value, Refusal> {
        const TICKET: &str = "
            select title, body, ticket_status, rfc3339(created_at) from tickets where ticket_id = $1";
        const COMMENTS: &str = "
            select comment_id, body, rfc3339(created_at), (extract(epoch from created_at) * 1000000)::bigint
            from comments
            where ticket_id = $1
              and (created_at, comment_id)
                  > (coalesce(timestamptz 'epoch' + $2 * interval '1 microsecond', '-infinity'), coalesce($3, ''))
            order by created_at, comment_id
            limit $4";
        let (after_us, after_id) = page::after(arguments.cursor.as_deref(), &comments_of(&arguments.ticket_id))?;
        let database = reader.ledger.database();
        let unavailable = |error| database_unavailable(&error);
        let mut lent = database.lend().await.map_err(unavailable)?;
        let ticket = sqlx::query_as::<_, (String, String, String, String)>(TICKET).bind(&arguments.ticket_id);
        let answer = database
            .within("get_ticket", ticket.fetch_optional(lent.connection()))
            .await;
        let Some((title, body, status, created_at)) = lent.answered(answer).map_err(unavailable)? else {
            let (message, next) = no_such_ticket();
            return Err(Refusal::new(Code::NotFound, message, next));
        };
        let comments = sqlx::query_as::<_, (String, String, String, i64)>(COMMENTS)
            .bind(&arguments.ticket_id)
            .bind(after_us)
            .bind(after_id)
            .bind(page::MOST_ITEMS as i64 + 1);
        let answer = database
            .within("get_comments", comments.fetch_all(lent.connection()))
            .await;
        let comments = lent.answered(answer).map_err(unavailable)?;
        let mut shown = Map::new();
        shown.insert("ticket_id".to_owned(), json!(arguments.ticket_id));
        shown.insert("title".to_owned(), json!(title));
        // Once is enough, and a later page has room for the largest comment.
        let first = arguments.cursor.is_none();
        if first {
            shown.insert("body".to_owned(), json!(body));
        }
        shown.insert("ticket_status".to_owned(), json!(status));
        shown.insert("created_at".to_owned(), json!(created_at));
        let items = comments.into_iter().map(|(comment_id, body, created_at, created_us)| {
            let item = json!({ "comment_id": comment_id, "body": body, "created_at": created_at });
            (
                Cursor {
                    created_us,
                    id: comment_id,
                },
                item,
            )
        });
        page::cut(
            &mut shown,
            "comments",
            &comments_of(&arguments.ticket_id),
            items.collect(),
            first,
        );
        Ok(Value::Object(shown))
    }
}
