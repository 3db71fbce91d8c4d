//! list_tickets.

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::TicketStatus;
use crate::operation::answer::Refusal;
use crate::operation::page::{self, Cursor};
use crate::operation::refusals::database_unavailable;
use crate::operation::{Card, Class, Operation, Reader, Route, Toolset};

/// Longest search text, in characters.
const LONGEST_QUERY: usize = 200;

/// Lists tickets.
pub struct ListTickets;

/// Arguments of list_tickets.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListTicketsArguments {
    /// Only tickets with this status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ticket_status: Option<TicketStatus>,
    /// Only tickets whose title or body contains this text, upper and lower case alike.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 200))]
    query: Option<String>,
    /// next_cursor of the page before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cursor: Option<String>,
}

/// A page of tickets.
#[derive(JsonSchema)]
#[allow(dead_code, reason = "only its schema is used")]
pub struct TicketPage {
    /// In the order in which they were created, without their bodies.
    tickets: Vec<ListedTicket>,
    /// Ask again with this cursor for more.
    next_cursor: Option<String>,
}

#[derive(JsonSchema)]
#[allow(dead_code, reason = "only its schema is used")]
struct ListedTicket {
    ticket_id: String,
    title: String,
    ticket_status: TicketStatus,
    created_at: String,
}

/// The list that a cursor of this operation belongs to, whatever is looked for in it.
const LIST: &str = "tickets";

#[async_trait]
impl Operation for ListTickets {
    type Arguments = ListTicketsArguments;
    type Answer = TicketPage;

    fn card(&self) -> Card {
        Card {
            name: "list_tickets",
            title: "List tickets",
            description: "Lists tickets in the order in which they were created, 50 at a time, optionally only those with a status or \
                with a text in title or body; next_cursor, where present, gets the next page. To learn what became of a write, ask \
                find_request instead: a ticket that is not listed may still be on its way.",
            toolset: Toolset::Tickets,
            route: Route {
                method: "GET",
                path: "/tickets",
                success: 200,
            },
            class: Class::ReadOnly,
        }
    }

    fn check(&self, arguments: &Self::Arguments) -> Result<(), String> {
        match &arguments.query {
            Some(query) if query.chars().count() > LONGEST_QUERY => {
                Err(format!("query must be at most {LONGEST_QUERY} characters."))
            }
            _ => Ok(()),
        }
    }

    async fn read(&self, reader: &Reader<'_>, arguments: Self::Arguments) -> Result<Value, Refusal> {
        // strpos and not LIKE: a query's % and _ are meant as they stand.
        const SQL: &str = "
            select ticket_id, title, ticket_status, rfc3339(created_at),
                   (extract(epoch from created_at) * 1000000)::bigint
            from tickets
            where ($1::text is null or ticket_status = $1)
              and ($2::text is null or strpos(lower(title), lower($2)) > 0 or strpos(lower(body), lower($2)) > 0)
              and (created_at, ticket_id)
                  > (coalesce(timestamptz 'epoch' + $3 * interval '1 microsecond', '-infinity'), coalesce($4, ''))
            order by created_at, ticket_id
            limit $5";
        let (after_us, after_id) = page::after(arguments.cursor.as_deref(), LIST)?;
        let database = reader.ledger.database();
        let unavailable = |error| database_unavailable(&error);
        let mut lent = database.lend().await.map_err(unavailable)?;
        let tickets = sqlx::query_as::<_, (String, String, String, String, i64)>(SQL)
            .bind(arguments.ticket_status.map(TicketStatus::as_str))
            .bind(arguments.query)
            .bind(after_us)
            .bind(after_id)
            .bind(page::MOST_ITEMS as i64 + 1);
        let answer = database
            .within("list_tickets", tickets.fetch_all(lent.connection()))
            .await;
        let tickets = lent.answered(answer).map_err(unavailable)?;
        let mut shown = Map::new();
        let items = tickets
            .into_iter()
            .map(|(ticket_id, title, status, created_at, created_us)| {
                let item = json!({
                    "ticket_id": ticket_id, "title": title, "ticket_status": status, "created_at": created_at,
                });
                (
                    Cursor {
                        created_us,
                        id: ticket_id,
                    },
                    item,
                )
            });
        page::cut(&mut shown, "tickets", LIST, items.collect(), false);
        Ok(Value::Object(shown))
    }
}
