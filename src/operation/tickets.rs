//! Tickets and their comments.

use std::time::Duration;

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

use super::answer::{Code, Refusal};
use super::page::{self, Cursor};
use super::run::database_unavailable;
use super::{Card, Class, Operation, Reader, Route, Toolset};
use crate::ledger::{Effect, NotPrepared, Refused};
use crate::postgres::{Database, DatabaseError};

/// Longest title, in characters.
const LONGEST_TITLE: usize = 200;
/// Largest body, in bytes of UTF-8.
pub const LARGEST_BODY: usize = 64 * 1024;
/// Longest search text, in characters.
const LONGEST_QUERY: usize = 200;
/// A ticket id is `T-` and this many characters of Crockford's base 32, a comment's `C-` and as many: 60 random bits.
const ID_CHARACTERS: usize = 12;

fn new_id(prefix: &str) -> String {
    const CROCKFORD: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";
    let random = uuid::Uuid::new_v4();
    // Bytes 6 and 8 of a version 4 UUID carry its version and variant; the others are random in every bit.
    let mut bits = random
        .as_bytes()
        .iter()
        .enumerate()
        .filter(|(place, _)| *place != 6 && *place != 8);
    let mut id = String::from(prefix);
    for _ in 0..ID_CHARACTERS {
        let byte = bits.next().map_or(0, |(_, byte)| *byte);
        id.push(char::from(CROCKFORD[usize::from(byte & 31)]));
    }
    id
}

fn check_title(title: &str) -> Result<(), String> {
    let characters = title.chars().count();
    if characters == 0 || characters > LONGEST_TITLE {
        return Err(format!(
            "title must be 1 to {LONGEST_TITLE} characters; it is {characters}."
        ));
    }
    if title.chars().any(char::is_control) {
        return Err("title must be one line without control characters.".to_owned());
    }
    if title.trim().is_empty() {
        return Err("title must not be blank.".to_owned());
    }
    Ok(())
}

fn check_body(body: &str) -> Result<(), String> {
    if body.len() > LARGEST_BODY {
        return Err(format!(
            "body must be at most {LARGEST_BODY} bytes of UTF-8; it is {}.",
            body.len()
        ));
    }
    Ok(())
}

fn check_ticket_id(ticket_id: &str) -> Result<(), String> {
    if ticket_id.is_empty() || ticket_id.chars().count() > 64 {
        return Err("ticket_id must be a ticket's id, such as T-0123456789AB.".to_owned());
    }
    Ok(())
}

/// Where a ticket stands.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TicketStatus {
    /// Nobody works on it.
    Open,
    /// Somebody works on it.
    InProgress,
    /// The work is done.
    Done,
    /// It is closed.
    Closed,
}

impl TicketStatus {
    fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::InProgress => "in_progress",
            Self::Done => "done",
            Self::Closed => "closed",
        }
    }
}

/// Creates a ticket.
pub struct CreateTicket {
    /// How long it takes: zero but for trying things out.
    pub work: Duration,
}

/// Arguments of create_ticket.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateTicketArguments {
    /// One line.
    #[schemars(length(min = 1, max = 200))]
    title: String,
    /// The text, up to 64 KiB.
    #[schemars(length(max = 65_536))]
    body: String,
}

/// Answer of create_ticket.
#[derive(JsonSchema)]
#[allow(dead_code, reason = "only its schema is used")]
pub struct CreatedTicket {
    ticket_id: String,
    title: String,
    ticket_status: TicketStatus,
    created_at: String,
}

static CREATE_TICKET: Effect = crate::effect! {
    judge: "
        select ord, null::text as refusal, null::text as detail, made->>'ticket_id' as result_id,
               json_build_object('ticket_id', made->>'ticket_id', 'title', args->>'title', 'ticket_status', 'open',
                                 'created_at', rfc3339(now))::text as result
        from item",
    act: "
        insert into tickets (ticket_id, title, body, ticket_status, created_at, principal, request_id)
        select made->>'ticket_id', args->>'title', args->>'body', 'open', now, principal, request_id
        from settled join item using (ord)",
    batched: true,
    creates: true,
    guard: "tickets_request",
};

#[async_trait]
impl Operation for CreateTicket {
    type Arguments = CreateTicketArguments;
    type Answer = CreatedTicket;

    fn card(&self) -> Card {
        Card {
            name: "create_ticket",
            title: "Create a ticket",
            description: "Creates a ticket and returns its ticket_id.",
            toolset: Toolset::Tickets,
            route: Route {
                method: "POST",
                path: "/tickets",
                success: 201,
            },
            class: Class::Transactional {
                effect: &CREATE_TICKET,
                destructive: false,
            },
        }
    }

    fn check(&self, arguments: &Self::Arguments) -> Result<(), String> {
        check_title(&arguments.title)?;
        check_body(&arguments.body)
    }

    fn takes_time(&self) -> bool {
        !self.work.is_zero()
    }

    async fn prepare(&self, _: &Self::Arguments, _: &CancellationToken) -> Result<Value, NotPrepared> {
        if !self.work.is_zero() {
            tokio::time::sleep(self.work).await;
        }
        Ok(json!({ "ticket_id": new_id("T-") }))
    }
}

/// Sets a ticket's status.
pub struct SetTicketStatus;

/// Arguments of set_ticket_status.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SetTicketStatusArguments {
    /// Which ticket.
    ticket_id: String,
    /// The status it is to have.
    ticket_status: TicketStatus,
    /// Set it only if this is its status now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    expected_status: Option<TicketStatus>,
}

/// Answer of set_ticket_status.
#[derive(JsonSchema)]
#[allow(dead_code, reason = "only its schema is used")]
pub struct TicketStatusSet {
    ticket_id: String,
    ticket_status: TicketStatus,
    previous_status: TicketStatus,
}

// It updates a row that several requests may share, so it does not go in batches; and it takes the ticket's lock before it
// judges, so that what it answers as previous is what it overwrote.
static SET_TICKET_STATUS: Effect = crate::effect! {
    judge: "
        select item.ord,
               case when t.ticket_id is null then 'not_found'
                    when t.ticket_status <> item.args->>'expected_status' then 'precondition_failed' end as refusal,
               t.ticket_status as detail, t.ticket_id as result_id,
               json_build_object('ticket_id', t.ticket_id, 'ticket_status', item.args->>'ticket_status',
                                 'previous_status', t.ticket_status)::text as result
        from item
        left join lateral (
            select ticket_id, ticket_status from tickets where ticket_id = item.args->>'ticket_id' for no key update
        ) t on true",
    act: "
        update tickets t set ticket_status = item.args->>'ticket_status'
        from settled join item using (ord)
        where t.ticket_id = item.args->>'ticket_id'",
    batched: false,
    creates: false,
    guard: "",
};

#[async_trait]
impl Operation for SetTicketStatus {
    type Arguments = SetTicketStatusArguments;
    type Answer = TicketStatusSet;

    fn card(&self) -> Card {
        Card {
            name: "set_ticket_status",
            title: "Set a ticket's status",
            description: "Sets a ticket's status to open, in_progress, done or closed, and returns previous_status. With \
                expected_status it is set only if that is its status now; otherwise the answer is precondition_failed and nothing \
                is changed. A repeat of a call that is done never sets it again, whatever was set since.",
            toolset: Toolset::Tickets,
            route: Route {
                method: "PUT",
                path: "/tickets/{ticket_id}/status",
                success: 200,
            },
            class: Class::Transactional {
                effect: &SET_TICKET_STATUS,
                destructive: true,
            },
        }
    }

    fn check(&self, arguments: &Self::Arguments) -> Result<(), String> {
        check_ticket_id(&arguments.ticket_id)
    }

    fn explain(&self, refused: &Refused) -> (String, String) {
        if refused.code == Code::NotFound.as_str() {
            return no_such_ticket();
        }
        (
            format!(
                "The ticket's status is {}, not the expected one. Nothing was changed.",
                refused.detail
            ),
            "Read the ticket with get_ticket and decide again; the request_id is still free.".to_owned(),
        )
    }
}

fn no_such_ticket() -> (String, String) {
    (
        "There is no ticket with this ticket_id. Nothing was done.".to_owned(),
        "Check the ticket_id, for instance with list_tickets.".to_owned(),
    )
}

/// Adds a comment to a ticket.
pub struct AddComment;

/// Arguments of add_comment.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AddCommentArguments {
    /// Which ticket.
    ticket_id: String,
    /// The text, up to 64 KiB.
    #[schemars(length(min = 1, max = 65_536))]
    body: String,
}

/// Answer of add_comment.
#[derive(JsonSchema)]
#[allow(dead_code, reason = "only its schema is used")]
pub struct AddedComment {
    comment_id: String,
    ticket_id: String,
    created_at: String,
}

static ADD_COMMENT: Effect = crate::effect! {
    judge: "
        select item.ord, case when t.ticket_id is null then 'not_found' end as refusal, null::text as detail,
               item.made->>'comment_id' as result_id,
               json_build_object('comment_id', item.made->>'comment_id', 'ticket_id', t.ticket_id,
                                 'created_at', rfc3339(item.now))::text as result
        from item
        left join tickets t on t.ticket_id = item.args->>'ticket_id'",
    act: "
        insert into comments (comment_id, ticket_id, body, created_at, principal, request_id)
        select made->>'comment_id', args->>'ticket_id', args->>'body', now, principal, request_id
        from settled join item using (ord)",
    batched: true,
    creates: true,
    guard: "comments_request",
};

#[async_trait]
impl Operation for AddComment {
    type Arguments = AddCommentArguments;
    type Answer = AddedComment;

    fn card(&self) -> Card {
        Card {
            name: "add_comment",
            title: "Add a comment",
            description: "Adds a comment to a ticket and returns its comment_id.",
            toolset: Toolset::Tickets,
            route: Route {
                method: "POST",
                path: "/tickets/{ticket_id}/comments",
                success: 201,
            },
            class: Class::Transactional {
                effect: &ADD_COMMENT,
                destructive: false,
            },
        }
    }

    fn check(&self, arguments: &Self::Arguments) -> Result<(), String> {
        check_ticket_id(&arguments.ticket_id)?;
        if arguments.body.trim().is_empty() {
            return Err("body must not be blank.".to_owned());
        }
        check_body(&arguments.body)
    }

    async fn prepare(&self, _: &Self::Arguments, _: &CancellationToken) -> Result<Value, NotPrepared> {
        Ok(json!({ "comment_id": new_id("C-") }))
    }

    fn explain(&self, _: &Refused) -> (String, String) {
        no_such_ticket()
    }
}

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
    body: String,
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

#[async_trait]
impl Operation for GetTicket {
    type Arguments = GetTicketArguments;
    type Answer = TicketWithComments;

    fn card(&self) -> Card {
        Card {
            name: "get_ticket",
            title: "Get a ticket",
            description: "Reads a ticket and its comments, 50 at a time; next_cursor, where present, gets the next page of comments.",
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
              and ($2::bigint is null
                   or (created_at, comment_id) > (timestamptz 'epoch' + $2 * interval '1 microsecond', $3))
            order by created_at, comment_id
            limit $4";
        let (after_us, after_id) = page::after(arguments.cursor.as_deref())?;
        let database = reader.ledger.database();
        let unavailable = |error| database_unavailable(&error);
        let mut lent = database.lend().await.map_err(unavailable)?;
        let ticket = sqlx::query_as::<_, (String, String, String, String)>(TICKET).bind(&arguments.ticket_id);
        let answer = database.within(ticket.fetch_optional(lent.connection())).await;
        let Some((title, body, status, created_at)) = lent.answered(answer).map_err(unavailable)? else {
            let (message, next) = no_such_ticket();
            return Err(Refusal::new(Code::NotFound, message, next));
        };
        let comments = sqlx::query_as::<_, (String, String, String, i64)>(COMMENTS)
            .bind(&arguments.ticket_id)
            .bind(after_us)
            .bind(after_id)
            .bind(page::MOST_ITEMS as i64 + 1);
        let answer = database.within(comments.fetch_all(lent.connection())).await;
        let comments = lent.answered(answer).map_err(unavailable)?;
        let mut shown = Map::new();
        shown.insert("ticket_id".to_owned(), json!(arguments.ticket_id));
        shown.insert("title".to_owned(), json!(title));
        shown.insert("body".to_owned(), json!(body));
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
        page::cut(&mut shown, "comments", items.collect());
        Ok(Value::Object(shown))
    }
}

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
              and ($3::bigint is null
                   or (created_at, ticket_id) > (timestamptz 'epoch' + $3 * interval '1 microsecond', $4))
            order by created_at, ticket_id
            limit $5";
        let (after_us, after_id) = page::after(arguments.cursor.as_deref())?;
        let database = reader.ledger.database();
        let unavailable = |error| database_unavailable(&error);
        let mut lent = database.lend().await.map_err(unavailable)?;
        let tickets = sqlx::query_as::<_, (String, String, String, String, i64)>(SQL)
            .bind(arguments.ticket_status.map(TicketStatus::as_str))
            .bind(arguments.query)
            .bind(after_us)
            .bind(after_id)
            .bind(page::MOST_ITEMS as i64 + 1);
        let answer = database.within(tickets.fetch_all(lent.connection())).await;
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
        page::cut(&mut shown, "tickets", items.collect());
        Ok(Value::Object(shown))
    }
}

/// Tickets that agree in chosen fields.
#[derive(Debug, sqlx::FromRow)]
pub struct TwinGroup {
    /// The title of the first of them.
    pub title: String,
    /// The tickets, in the order in which they were created.
    pub ticket_ids: Vec<String>,
    /// The request_ids under which they were created, in the same order.
    pub request_ids: Vec<String>,
}

/// Groups tickets of one principal that agree in title, body, or both, however far apart they were created.
///
/// # Errors
/// Postgres cannot be reached.
pub async fn twins(
    database: &Database,
    since_hours: Option<u32>,
    by_title: bool,
    by_body: bool,
) -> Result<Vec<TwinGroup>, DatabaseError> {
    const SQL: &str = "
        select (array_agg(title order by created_at))[1] as title,
               array_agg(ticket_id order by created_at, ticket_id) as ticket_ids,
               array_agg(request_id order by created_at, ticket_id) as request_ids
        from tickets
        where $1::int is null or created_at > clock_timestamp() - $1 * interval '1 hour'
        group by principal, case when $2 then title end, case when $3 then sha256(convert_to(body, 'UTF8')) end
        having count(*) > 1
        order by min(created_at)";
    let mut lent = database.lend().await?;
    let statement = sqlx::query_as(SQL)
        .bind(since_hours.map(|hours| i32::try_from(hours).unwrap_or(i32::MAX)))
        .bind(by_title)
        .bind(by_body);
    let answer = database.within(statement.fetch_all(lent.connection())).await;
    lent.answered(answer)
}
