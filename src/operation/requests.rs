//! The ledger itself as tools: find_request and new_request_id.

use std::sync::Arc;

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use uuid::Uuid;

use super::answer::Refusal;
use super::key::{check_request_id, minted_ms};
use super::refusals::{database_unavailable, unavailable};
use super::run::{settled_answer, stored};
use super::{Card, Class, Operation, Reader, Route, Toolset};
use crate::ledger::{Key, Phase, Settled, Unavailable};

/// Looks a request up by the name that its caller gave it.
pub struct FindRequest;

/// Arguments of find_request.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FindRequestArguments {
    /// The request_id that you sent with the write.
    #[schemars(length(min = 1, max = 64))]
    request_id: String,
}

/// Answer of find_request.
#[derive(JsonSchema)]
#[allow(dead_code, reason = "only its schema is used")]
pub struct FoundRequest {
    request_id: String,
    /// The tool that was called, if anything is recorded.
    operation: Option<String>,
    /// done, running, abandoned, unknown, failed or expired.
    status: FoundStatus,
    /// The stored result, when it is done.
    result: Option<Value>,
    /// When it was done.
    answered_at: Option<String>,
    /// False when what was made is there and cannot be read at the moment.
    visible: Option<bool>,
    /// Whether anything is recorded, when it is expired.
    recorded: Option<bool>,
    /// Seconds since it was first called.
    age_seconds: Option<f64>,
    /// How many attempts were made.
    attempt: Option<i32>,
    /// Seconds until the running attempt's lease lapses.
    lease_left_seconds: Option<f64>,
    /// What to do.
    next: String,
}

#[derive(JsonSchema)]
#[serde(rename_all = "snake_case")]
#[allow(dead_code, reason = "only its schema is used")]
enum FoundStatus {
    Done,
    Running,
    Abandoned,
    Unknown,
    Failed,
    Expired,
}

const REPEAT: &str = "Call the same tool again with the same request_id and the same arguments.";

#[async_trait]
impl Operation for FindRequest {
    type Arguments = FindRequestArguments;
    type Answer = FoundRequest;

    fn card(&self) -> Card {
        Card {
            name: "find_request",
            title: "Find a request",
            description: "Tells what became of a write, by the request_id that was sent with it. Ask this after an error, a timeout \
                or a lost answer, before you repeat the write. status: done (nothing to do; the result is here), running (wait, \
                then ask again), abandoned or unknown (call the same tool again with the same request_id and the same arguments; \
                unknown means that nothing is recorded now, a call may still be on its way), failed (a person has to look), \
                expired (too long ago; look for the thing itself).",
            toolset: Toolset::Requests,
            route: Route {
                method: "GET",
                path: "/requests",
                success: 200,
            },
            class: Class::ReadOnly,
        }
    }

    async fn read(&self, reader: &Reader<'_>, arguments: Self::Arguments) -> Result<Value, Refusal> {
        check_request_id(&arguments.request_id)?;
        let key = Key {
            principal: Arc::clone(&reader.caller.principal),
            request_id: arguments.request_id.as_str().into(),
        };
        let minted_ms = minted_ms(&arguments.request_id);
        let look = async || {
            let found = reader.ledger.find(&key, minted_ms).await;
            found.map_err(|error| database_unavailable(&error))
        };
        let mut answer = json!({ "request_id": arguments.request_id });
        let mut found = look().await?;
        let mut is_there = false;
        if found.is_err() {
            for tool in reader.registry.iter() {
                is_there |= tool.on_expired(reader, &arguments.request_id).await?;
            }
            // It may have been done between the two looks, and then it is recorded; rows go long after that.
            if is_there {
                found = look().await?;
            }
        }
        let seen = match found {
            Ok(seen) => seen,
            Err(too_old) => {
                if is_there {
                    answer["status"] = json!("expired");
                    answer["recorded"] = json!(true);
                    answer["next"] = json!(TOO_LONG_AGO);
                } else if too_old {
                    answer["status"] = json!("expired");
                    answer["recorded"] = json!(false);
                    answer["next"] = json!(
                        "Nothing is stored under this request_id, and a call with it is not run any more. Look for the thing \
                         itself; if it is not there and is still wanted, call with a new request_id."
                    );
                } else {
                    answer["status"] = json!("unknown");
                    answer["next"] = json!(format!(
                        "Nothing is recorded under this request_id now; a call may still be on its way. {REPEAT}"
                    ));
                }
                return Ok(answer);
            }
        };
        let (status, next) = match &seen.phase {
            Phase::Released => {
                answer["status"] = json!("unknown");
                answer["next"] = json!(format!(
                    "An earlier call was refused or failed and changed nothing; nothing is recorded now. {REPEAT}"
                ));
                return Ok(answer);
            }
            Phase::Running { lease_left, .. } if lease_left.is_zero() => (
                "abandoned",
                format!("The replica that ran it has gone; it will be taken over. {REPEAT}"),
            ),
            Phase::Running { lease_left, .. } => {
                answer["lease_left_seconds"] = seconds(*lease_left);
                (
                    "running",
                    "It is being carried out. Wait a few seconds, then ask again or repeat the same call, which waits for it."
                        .to_owned(),
                )
            }
            Phase::Done(settled) => {
                show(reader, &mut answer, &seen.operation, &arguments.request_id, settled).await?;
                ("done", "It is done; there is nothing to repeat.".to_owned())
            }
            Phase::Expired => {
                if let Some(tool) = reader.registry.find(&seen.operation)
                    && reader.caller.scopes.allow(tool.card().scope())
                {
                    tool.on_expired(reader, &arguments.request_id).await?;
                }
                answer["recorded"] = json!(true);
                ("expired", TOO_LONG_AGO.to_owned())
            }
            Phase::Failed => (
                "failed",
                "It was tried several times, every attempt died, and nothing was done. Ask a person; repeating does not help until \
                 an operator has allowed it."
                    .to_owned(),
            ),
            Phase::Newer => return Err(unavailable(Unavailable::NewerRelease)),
        };
        answer["status"] = json!(status);
        answer["next"] = json!(next);
        answer["operation"] = json!(seen.operation);
        answer["attempt"] = json!(seen.attempt);
        answer["age_seconds"] = seconds(seen.age);
        Ok(answer)
    }
}

const TOO_LONG_AGO: &str =
    "It was recorded, but too long ago for its answer to be kept. Look for the thing itself; do not repeat the call.";

/// Shows a stored result, after its operation's replay check has had its say. Where the operation is not offered nobody can
/// check, so the result is not shown; nor is it to a caller who may not make that call any more.
async fn show(
    reader: &Reader<'_>,
    answer: &mut Value,
    operation: &str,
    request_id: &str,
    settled: &Settled,
) -> Result<(), Refusal> {
    answer["answered_at"] = json!(&*settled.answered_at);
    let Some(tool) = reader.registry.find(operation) else {
        return Ok(());
    };
    if !reader.caller.scopes.allow(tool.card().scope()) {
        return Ok(());
    }
    let before = settled_answer(request_id, settled, true);
    let mut checked = before.clone();
    tool.on_replay(reader, &mut checked).await?;
    checked.retain(|name, _| !before.contains_key(name));
    for (name, added) in checked {
        answer[name] = added;
    }
    answer["result"] = stored(&settled.result);
    Ok(())
}

fn seconds(span: std::time::Duration) -> Value {
    json!(span.as_millis() as f64 / 1_000.0)
}

/// Hands out a request_id.
pub struct NewRequestId;

/// new_request_id takes none.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NoArguments {}

/// Answer of new_request_id.
#[derive(JsonSchema)]
#[allow(dead_code, reason = "only its schema is used")]
pub struct NewlyMinted {
    /// A UUIDv7: the service recognises one that has become too old, and never runs it again by accident.
    request_id: String,
    /// What to do with it.
    next: String,
}

#[async_trait]
impl Operation for NewRequestId {
    type Arguments = NoArguments;
    type Answer = NewlyMinted;

    fn card(&self) -> Card {
        Card {
            name: "new_request_id",
            title: "New request id",
            description: "Gives you a request_id for one new intent to write. Note it before you use it, and use it for every repeat of \
                that write; do not ask for another one because an answer was lost. It records nothing.",
            toolset: Toolset::Requests,
            route: Route {
                method: "POST",
                path: "/request-ids",
                success: 200,
            },
            class: Class::ReadOnly,
        }
    }

    async fn read(&self, _: &Reader<'_>, _: Self::Arguments) -> Result<Value, Refusal> {
        Ok(json!({
            "request_id": Uuid::now_v7().to_string(),
            "next": "Note this request_id now. Send it with the write, and again with every repeat of that write.",
        }))
    }
}
