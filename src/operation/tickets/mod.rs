//! Tickets and their comments, an operation a file.

mod add_comment;
mod create_ticket;
mod get_ticket;
mod list_tickets;
mod set_ticket_status;
mod twins;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Reader;
use super::answer::Refusal;
use super::fields::check_id;
use super::refusals::database_unavailable;

pub use add_comment::AddComment;
pub use create_ticket::CreateTicket;
pub use get_ticket::GetTicket;
pub use list_tickets::ListTickets;
pub use set_ticket_status::SetTicketStatus;
pub use twins::{TwinGroup, twins};

fn check_ticket_id(ticket_id: &str) -> Result<(), String> {
    check_id("ticket_id", ticket_id, "T-0123456789AB")
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

fn no_such_ticket() -> (String, String) {
    (
        "There is no ticket with this ticket_id. Nothing was done.".to_owned(),
        "Check the ticket_id, for instance with list_tickets.".to_owned(),
    )
}

/// Whether what the caller created under this request_id is there; `sql` asks for it.
async fn is_there(reader: &Reader<'_>, sql: &'static str, request_id: &str) -> Result<bool, Refusal> {
    let database = reader.ledger.database();
    let unavailable = |error| database_unavailable(&error);
    let mut lent = database.lend().await.map_err(unavailable)?;
    let statement = sqlx::query_scalar::<_, bool>(sql)
        .bind(&*reader.caller.principal)
        .bind(request_id);
    let answer = database
        .within("is_it_there", statement.fetch_one(lent.connection()))
        .await;
    lent.answered(answer).map_err(unavailable)
}
