//! add_reaction.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ledger::{Effect, Refused};
use crate::operation::{Card, Class, Operation, Route, Toolset};

/// Puts an emoji under a ticket.
pub struct AddReaction;

/// Arguments of add_reaction. request_id is not among them: every write has it, and the ledger takes it.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AddReactionArguments {
    /// Which ticket.
    ticket_id: String,
    /// One emoji.
    #[schemars(length(min = 1, max = 16))]
    emoji: String,
}

/// Answer of add_reaction. The ledger puts request_id, status, replayed and answered_at beside it.
#[derive(JsonSchema)]
#[allow(dead_code, reason = "only its schema is used")]
pub struct AddedReaction {
    ticket_id: String,
    emoji: String,
    created_at: String,
}

static ADD_REACTION: Effect = crate::effect! {
    // One row for each item: refused, or settled with this result.
    judge: "
        select item.*, case when t.ticket_id is null then 'not_found' end as refusal, null::text as detail,
               t.ticket_id as result_id,
               json_build_object('ticket_id', t.ticket_id, 'emoji', item.args->>'emoji',
                                 'created_at', rfc3339(item.now))::text as result
        from item
        left join tickets t on t.ticket_id = item.args->>'ticket_id'",
    // The effect, for the items that were settled just now and for no others.
    act: "
        insert into reactions (ticket_id, emoji, created_at, principal, request_id)
        select args->>'ticket_id', args->>'emoji', now, principal, request_id
        from settled",
    // It updates no row that two requests could share, so many requests may go in one statement.
    batched: true,
    // The same reaction twice is nothing to tell a caller about.
    creates: false,
    // The second guard: the constraint that makes (principal, request_id) unique in what is inserted.
    guard: "reactions_request",
};

impl Operation for AddReaction {
    type Arguments = AddReactionArguments;
    type Answer = AddedReaction;

    fn card(&self) -> Card {
        Card {
            name: "add_reaction",
            title: "Add a reaction",
            description: "Puts an emoji under a ticket.",
            toolset: Toolset::Tickets,
            route: Route {
                method: "POST",
                path: "/tickets/{ticket_id}/reactions",
                success: 201,
            },
            class: Class::Transactional {
                effect: &ADD_REACTION,
                destructive: false,
            },
        }
    }

    fn check(&self, arguments: &Self::Arguments) -> Result<(), String> {
        if arguments.emoji.is_empty() || arguments.emoji.chars().count() > 16 {
            return Err("emoji must be 1 to 16 characters.".to_owned());
        }
        Ok(())
    }

    fn explain(&self, _: &Refused) -> (String, String) {
        (
            "There is no ticket with this ticket_id. Nothing was done.".to_owned(),
            "Check the ticket_id, for instance with list_tickets.".to_owned(),
        )
    }
}
