//! set_ticket_status.

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{TicketStatus, check_ticket_id, no_such_ticket};
use crate::ledger::{Effect, Refused};
use crate::operation::answer::Code;
use crate::operation::{Card, Class, Operation, Route, Toolset};

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
        select item.*,
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
        update tickets t set ticket_status = settled.args->>'ticket_status'
        from settled
        where t.ticket_id = settled.args->>'ticket_id'",
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
