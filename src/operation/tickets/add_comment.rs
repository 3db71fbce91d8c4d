//! add_comment.

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::{check_ticket_id, is_there, no_such_ticket};
use crate::ledger::{Effect, NotPrepared, Refused};
use crate::operation::answer::Refusal;
use crate::operation::fields::{check_body, check_not_blank, new_id};
use crate::operation::{Card, Class, Operation, Reader, Route, Toolset};

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
        select item.*, case when t.ticket_id is null then 'not_found' end as refusal, null::text as detail,
               item.made->>'comment_id' as result_id,
               json_build_object('comment_id', item.made->>'comment_id', 'ticket_id', t.ticket_id,
                                 'created_at', rfc3339(item.now))::text as result
        from item
        left join tickets t on t.ticket_id = item.args->>'ticket_id'",
    act: "
        insert into comments (comment_id, ticket_id, body, created_at, principal, request_id)
        select made->>'comment_id', args->>'ticket_id', args->>'body', now, principal, request_id
        from settled",
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
        check_not_blank(&arguments.body)?;
        check_body(&arguments.body)
    }

    async fn prepare(&self, _: &Self::Arguments, _: &CancellationToken) -> Result<Value, NotPrepared> {
        Ok(json!({ "comment_id": new_id("C-") }))
    }

    fn explain(&self, _: &Refused) -> (String, String) {
        no_such_ticket()
    }

    async fn on_expired(&self, reader: &Reader<'_>, request_id: &str) -> Result<bool, Refusal> {
        const SQL: &str = "select exists (select from comments where principal = $1 and request_id = $2)";
        is_there(reader, SQL, request_id).await
    }
}
