//! create_ticket.

use std::time::Duration;

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::{TicketStatus, is_there};
use crate::ledger::{Effect, NotPrepared};
use crate::operation::answer::Refusal;
use crate::operation::fields::{check_body, check_title, new_id};
use crate::operation::{Card, Class, Operation, Reader, Route, Toolset};

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
        select item.*, null::text as refusal, null::text as detail, made->>'ticket_id' as result_id,
               json_build_object('ticket_id', made->>'ticket_id', 'title', args->>'title', 'ticket_status', 'open',
                                 'created_at', rfc3339(now))::text as result
        from item",
    act: "
        insert into tickets (ticket_id, title, body, ticket_status, created_at, principal, request_id)
        select made->>'ticket_id', args->>'title', args->>'body', 'open', now, principal, request_id
        from settled",
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

    async fn on_expired(&self, reader: &Reader<'_>, request_id: &str) -> Result<bool, Refusal> {
        const SQL: &str = "select exists (select from tickets where principal = $1 and request_id = $2)";
        is_there(reader, SQL, request_id).await
    }
}
