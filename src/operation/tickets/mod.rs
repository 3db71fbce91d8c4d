//! Tickets and their comments, an operation a file.

mod add_comment;
mod create_ticket;
mod get_ticket;
mod list_tickets;
mod set_ticket_status;
mod twins;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use add_comment::AddComment;
pub use create_ticket::CreateTicket;
pub use get_ticket::GetTicket;
pub use list_tickets::ListTickets;
pub use set_ticket_status::SetTicketStatus;
pub use twins::{TwinGroup, twins};

/// Largest body, in bytes of UTF-8.
pub const LARGEST_BODY: usize = 64 * 1024;
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

fn no_such_ticket() -> (String, String) {
    (
        "There is no ticket with this ticket_id. Nothing was done.".to_owned(),
        "Check the ticket_id, for instance with list_tickets.".to_owned(),
    )
}
