//! The one place that orders the steps of a call: arguments, then the ledger, then the answer.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use serde_json::{Map, Value, json};
use tokio::time::Instant;
use tracing::{error, info, warn};

use super::answer::{Code, Outcome, Refusal};
use super::caller::{Caller, Via};
use super::crowd::{crowded, recorded};
use super::key::{canonical, fingerprint, minted_ms, take_request_id};
use super::limit::{Unit, take_unit};
use super::refusals::{
    conflict, expired, failed, fault, unavailable, used_up_by_all, used_up_by_source, writes_disabled,
};
use super::registry::Registry;
use super::text::normalise_arguments;
use super::{Class, Reader, Tool, Toolset};
use crate::ledger::{Intent, Key, Ledger, Ran, Refused, Settled, Unavailable, Verdict};
use crate::telemetry::metrics::instruments;
use crate::telemetry::trace;

/// A replay older than this reminds its reader that another intent needs another request_id.
const OLD_REPLAY: Duration = Duration::from_secs(3_600);
/// What a caller that is told to come back is told at least and at most.
const RETRY_AFTER: (u64, u64) = (1, 5);

/// A call as a transport hands it on.
pub struct Call {
    /// Who calls.
    pub caller: Caller,
    /// By which way.
    pub via: Via,
    /// What is called.
    pub tool: Arc<dyn Tool>,
    /// The arguments as they came, request_id among them.
    pub arguments: Map<String, Value>,
    /// When the call arrived at this replica.
    pub arrived: Instant,
}

/// Runs calls.
pub struct Service {
    /// The ledger.
    pub ledger: Arc<Ledger>,
    /// What is offered.
    pub registry: Registry,
    /// Every caller is answered within this time of its call's arrival.
    pub wait: Duration,
    /// How many writes each source may call for in an hour; 0 for any number.
    pub units_per_hour: i64,
}

impl Service {
    /// Shows all that calls can come to, before the first one does.
    pub fn observe(&self) {
        for tool in self.registry.iter() {
            let own: &[_] = match tool.card().class {
                Class::ReadOnly => &[READ],
                Class::Transactional { .. } => &[DONE, REPLAYED, IN_PROGRESS, HANDED_BACK],
            };
            let codes = Code::ALL.into_iter().map(Code::as_str);
            for outcome in own.iter().copied().chain(codes) {
                instruments().expect_call(tool.name(), outcome);
            }
        }
    }

    /// Runs a call to its outcome. A caller that leaves drops the future and stops nothing.
    pub async fn run(&self, call: Call) -> Outcome {
        let name = call.tool.name();
        let arrived = call.arrived;
        // A panic is an answer, not a silence.
        let outcome = AssertUnwindSafe(self.dispatch(call)).catch_unwind().await;
        let outcome = outcome.unwrap_or_else(|_| {
            error!(operation = name, "a call panicked");
            fault().into()
        });
        let told = name_of(&outcome);
        instruments().call(name, told);
        trace::say("ticket_ledger.operation", name);
        trace::say("ticket_ledger.outcome", told);
        info!(
            operation = name,
            outcome = told,
            took_ms = arrived.elapsed().as_millis() as u64,
            "call"
        );
        outcome
    }

    async fn dispatch(&self, call: Call) -> Outcome {
        let card = call.tool.card();
        // At every call, replays too: a grant that is gone does not let its holder read old answers.
        if let Some(needed) = card.scope().filter(|scope| !call.caller.scopes.allow(Some(*scope))) {
            return Refusal::forbidden(needed).into();
        }
        let arguments = match normalise_except_key(call.arguments) {
            Ok(arguments) => arguments,
            Err(refusal) => return refusal.into(),
        };
        match card.class {
            // What became of a call is told to the crowded too, so that they need not call again.
            Class::ReadOnly if call.caller.crowded && card.toolset != Toolset::Requests => crowded().into(),
            Class::ReadOnly => self.read(&call.caller, &call.tool, arguments, call.arrived).await,
            Class::Transactional { .. } => {
                self.write(&call.caller, call.via, call.tool, arguments, call.arrived)
                    .await
            }
        }
    }

    async fn read(
        &self,
        caller: &Caller,
        tool: &Arc<dyn Tool>,
        arguments: Map<String, Value>,
        arrived: Instant,
    ) -> Outcome {
        let arguments = match tool.accept(arguments) {
            Ok(arguments) => arguments,
            Err(refusal) => return refusal.into(),
        };
        let reader = Reader {
            ledger: &self.ledger,
            caller,
            registry: &self.registry,
        };
        match tokio::time::timeout_at(arrived + self.wait, tool.read(&reader, arguments)).await {
            Ok(Ok(answer)) => Outcome::Read(answer),
            Ok(Err(refusal)) => refusal.into(),
            Err(_) => Refusal::unavailable("Reading took too long.", RETRY_AFTER.1).into(),
        }
    }

    async fn write(
        &self,
        caller: &Caller,
        via: Via,
        tool: Arc<dyn Tool>,
        mut arguments: Map<String, Value>,
        arrived: Instant,
    ) -> Outcome {
        let accepted = take_request_id(&mut arguments).and_then(|request_id| Ok((request_id, tool.accept(arguments)?)));
        let (request_id, arguments) = match accepted {
            Ok(accepted) => accepted,
            Err(refusal) => return refusal.into(),
        };
        let arguments = canonical(&arguments);
        let key = Key {
            principal: Arc::clone(&caller.principal),
            request_id: request_id.as_str().into(),
        };
        let fingerprint = fingerprint(tool.name(), &arguments);
        let mut verdict = None;
        if caller.crowded {
            match recorded(&self.ledger, &key, fingerprint).await {
                Ok(replay) => verdict = Some(replay),
                Err(refusal) => return refusal.into(),
            }
        }
        if self.units_per_hour > 0 {
            match take_unit(self.ledger.database(), &caller.source, self.units_per_hour).await {
                Ok(Unit::Taken) => {}
                Ok(Unit::UsedUp { retry_after_seconds }) => return used_up_by_source(retry_after_seconds).into(),
                Err(error) => {
                    warn!(%error, "a unit could not be taken");
                    return unavailable(Unavailable::Database).into();
                }
            }
        }
        let intent = Intent {
            key,
            fingerprint,
            minted_ms: minted_ms(&request_id),
            origin: via.as_str().into(),
            arguments,
            act: Arc::clone(&tool) as Arc<dyn crate::ledger::Act>,
        };
        trace::say_request_id(&tracing::Span::current(), &request_id);
        let verdict = match verdict {
            Some(verdict) => verdict,
            None => self.ledger.perform(intent, arrived + self.wait).await,
        };
        self.tell(caller, &tool, &request_id, verdict).await
    }

    /// A verdict in the words of an answer.
    async fn tell(&self, caller: &Caller, tool: &Arc<dyn Tool>, request_id: &str, verdict: Verdict) -> Outcome {
        let reader = Reader {
            ledger: &self.ledger,
            caller,
            registry: &self.registry,
        };
        match verdict {
            Verdict::Settled {
                settled,
                replayed,
                joined,
            } => {
                if let Some(joined) = joined {
                    instruments().joined(joined.as_str());
                }
                if settled.duplicate_of.is_some() && !replayed {
                    instruments().possible_duplicate();
                }
                say_who_ran(&settled.ran, replayed, !replayed);
                let mut answer = settled_answer(request_id, &settled, replayed);
                if replayed && let Err(refusal) = tool.on_replay(&reader, &mut answer).await {
                    return refusal.into();
                }
                Outcome::Done { answer, replayed }
            }
            Verdict::InProgress { lease_left, runs } => {
                if let Some(runs) = runs {
                    say_who_ran(&runs, false, false);
                }
                in_progress(request_id, lease_left)
            }
            Verdict::Refused(refused) => match refused.code.as_str() {
                Refused::STOPPED => writes_disabled().into(),
                Refused::USED_UP => used_up_by_all(&refused.detail).into(),
                _ => tool.refusal(&refused).into(),
            },
            Verdict::HandedBack => Outcome::HandedBack,
            Verdict::Conflict => conflict().into(),
            Verdict::Failed => failed().into(),
            Verdict::Expired { recorded } => match tool.on_expired(&reader, request_id).await {
                Err(refusal) => refusal.into(),
                Ok(_) => expired(recorded).into(),
            },
            Verdict::Unavailable(reason) => unavailable(reason).into(),
        }
    }
}

/// Says on the call's span which attempt did or does the work, and links to it if that is another call's.
fn say_who_ran(ran: &Ran, replayed: bool, is_own: bool) {
    trace::say("ticket_ledger.replayed", replayed);
    trace::say("ticket_ledger.attempt", i64::from(ran.attempt));
    trace::say("ticket_ledger.ran_by", ran.replica.to_string());
    if !is_own {
        trace::link(&tracing::Span::current(), ran.place.as_deref());
    }
}

/// Normalises every argument but the key, which is compared byte for byte.
fn normalise_except_key(mut arguments: Map<String, Value>) -> Result<Map<String, Value>, Refusal> {
    let request_id = arguments.remove("request_id");
    let mut normalised = normalise_arguments(arguments)
        .map_err(|name| Refusal::invalid(format!("{name} contains the character NUL, which cannot be stored.")))?;
    if let Some(request_id) = request_id {
        normalised.insert("request_id".to_owned(), request_id);
    }
    Ok(normalised)
}

/// A stored result as JSON; text that is none, which the ledger never writes, is shown as it stands.
pub fn stored(result: &str) -> Value {
    serde_json::from_str(result).unwrap_or_else(|_| Value::String(result.to_owned()))
}

/// What a caller of the operation is told: the stored result with what the ledger puts around it.
pub(super) fn settled_answer(request_id: &str, settled: &Settled, replayed: bool) -> Map<String, Value> {
    let mut answer = match stored(&settled.result) {
        Value::Object(members) => members,
        // A result that has no members of its own, falsy ones too.
        other => Map::from_iter([("result".to_owned(), other)]),
    };
    answer.insert("request_id".to_owned(), json!(request_id));
    answer.insert("status".to_owned(), json!("done"));
    answer.insert("replayed".to_owned(), json!(replayed));
    answer.insert("answered_at".to_owned(), json!(&*settled.answered_at));
    if let Some(twin) = &settled.duplicate_of {
        answer.insert("possible_duplicate_of".to_owned(), stored(twin));
        answer.insert(
            "next".to_owned(),
            json!(
                "This is done. An earlier request of yours, under another request_id, created the same a few minutes ago. Report the \
                 pair to the person you work for; do not undo either by yourself."
            ),
        );
    } else if settled.age > OLD_REPLAY {
        answer.insert(
            "next".to_owned(),
            json!("This was done over an hour ago and nothing was done now. Another intent needs a new request_id."),
        );
    }
    answer
}

fn in_progress(request_id: &str, lease_left: Option<Duration>) -> Outcome {
    let seconds = lease_left.map_or(RETRY_AFTER.0, |left| left.as_secs() + 1);
    let retry_after_seconds = seconds.clamp(RETRY_AFTER.0, RETRY_AFTER.1);
    let answer = json!({
        "request_id": request_id,
        "status": "in_progress",
        "retry_after_seconds": retry_after_seconds,
        "next": "Not finished, and not known to have failed. Wait, then repeat the same call with the same request_id and the \
            same arguments, or ask find_request. Until an answer settles it, report the write as unconfirmed.",
    });
    match answer {
        Value::Object(answer) => Outcome::InProgress {
            answer,
            retry_after_seconds,
        },
        _ => fault().into(),
    }
}

/// Outcomes as metrics and traces name them; a refusal is named by its code.
const DONE: &str = "done";
const REPLAYED: &str = "replayed";
const READ: &str = "read";
const IN_PROGRESS: &str = "in_progress";
const HANDED_BACK: &str = "handed_back";

fn name_of(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Done { replayed: false, .. } => DONE,
        Outcome::Done { replayed: true, .. } => REPLAYED,
        Outcome::Read(_) => READ,
        Outcome::InProgress { .. } => IN_PROGRESS,
        Outcome::Refused(refusal) => refusal.code.as_str(),
        Outcome::HandedBack => HANDED_BACK,
    }
}
