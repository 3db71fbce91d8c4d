//! What an operation answers, before a transport turns it into bytes.

use serde_json::{Map, Value, json};

use super::scope::Scope;

/// The codes of refusals. Each has one meaning; [`Code::http`] and [`Code::was_it_done`] are the README's table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Code {
    /// An argument is missing, unknown, malformed or too large.
    InvalidArgument,
    /// The request_id was used for something else.
    Conflict,
    /// The resource is not in the state that the caller expected.
    PreconditionFailed,
    /// The service cannot tell.
    Unavailable,
    /// The hour's writes are used up: this source's, or everybody's.
    RateLimited,
    /// An operator has stopped writes.
    WritesDisabled,
    /// Nobody knows who calls.
    Unauthenticated,
    /// Not for this caller, or not by this way.
    Forbidden,
    /// The resource does not exist.
    NotFound,
    /// It was done, and what it made has been removed since.
    Deleted,
    /// Too old to tell.
    Expired,
    /// Attempts kept dying.
    Failed,
}

impl Code {
    /// All of them, in the order of the table.
    pub const ALL: [Self; 12] = [
        Self::InvalidArgument,
        Self::Conflict,
        Self::PreconditionFailed,
        Self::RateLimited,
        Self::WritesDisabled,
        Self::Unavailable,
        Self::Unauthenticated,
        Self::Forbidden,
        Self::NotFound,
        Self::Deleted,
        Self::Expired,
        Self::Failed,
    ];

    /// Its name on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::InvalidArgument => "invalid_argument",
            Self::Conflict => "conflict",
            Self::PreconditionFailed => "precondition_failed",
            Self::Unavailable => "unavailable",
            Self::RateLimited => "rate_limited",
            Self::WritesDisabled => "writes_disabled",
            Self::Unauthenticated => "unauthenticated",
            Self::Forbidden => "forbidden",
            Self::NotFound => "not_found",
            Self::Deleted => "deleted",
            Self::Expired => "expired",
            Self::Failed => "failed",
        }
    }

    /// The code with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|code| code.as_str() == name)
    }

    /// Its HTTP status.
    pub fn http(self) -> u16 {
        match self {
            Self::InvalidArgument => 400,
            Self::Conflict | Self::PreconditionFailed | Self::Failed => 409,
            Self::RateLimited => 429,
            Self::WritesDisabled | Self::Unavailable => 503,
            Self::Unauthenticated => 401,
            Self::Forbidden => 403,
            Self::NotFound => 404,
            Self::Deleted | Self::Expired => 410,
        }
    }

    /// Whether the work was done, in a few words.
    pub fn was_it_done(self) -> &'static str {
        match self {
            Self::InvalidArgument | Self::PreconditionFailed | Self::NotFound => "no",
            Self::Conflict => "not this; another under this request_id was, or runs",
            Self::RateLimited => "a source's limit does not say; the global one: no",
            Self::WritesDisabled => "no",
            Self::Unavailable | Self::Unauthenticated | Self::Forbidden => "does not say",
            Self::Deleted => "yes, and removed since",
            Self::Expired => "too old to tell, or never recorded",
            Self::Failed => "no",
        }
    }
}

/// Most characters of what a caller sent that a message repeats.
const LONGEST_ECHO: usize = 300;

/// A text that may repeat what a caller sent, cut to a length that a model and a log can bear.
pub fn shortened(text: &str) -> String {
    match text.char_indices().nth(LONGEST_ECHO) {
        Some((end, _)) => format!("{}….", &text[..end]),
        None => text.to_owned(),
    }
}

/// A refusal, in sentences that a model can act on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// What kind.
    pub code: Code,
    /// What is wrong, and whether the work was done.
    pub message: String,
    /// What to do next.
    pub next: String,
    /// When to come back, in seconds.
    pub retry_after_seconds: Option<u64>,
    /// With `expired`: false when nothing is stored under this request_id and nothing was run.
    pub recorded: Option<bool>,
    /// With `rate_limited`: whose limit, `source` or `global`.
    pub limit: Option<&'static str>,
    /// With `forbidden`: the scope that the call needs and its caller does not have.
    pub needs: Option<Scope>,
    /// Whether the body was too large (HTTP 413).
    pub too_large: bool,
}

impl Refusal {
    /// A refusal of this kind.
    pub fn new(code: Code, message: impl Into<String>, next: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            next: next.into(),
            retry_after_seconds: None,
            recorded: None,
            limit: None,
            needs: None,
            too_large: false,
        }
    }

    /// An argument that cannot be accepted; nothing was done.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(
            Code::InvalidArgument,
            format!(
                "{} Nothing was done by this call.",
                shortened(&message.into()).trim_end()
            ),
            "Correct the argument and call again. A repeat of an earlier call carries the same request_id and the first arguments; \
             find_request tells whether that one was done.",
        )
    }

    /// The caller may not do this.
    pub fn forbidden(needs: Scope) -> Self {
        Self {
            needs: Some(needs),
            ..Self::new(
                Code::Forbidden,
                format!(
                    "This call needs the scope {}, which you were not granted. It was not begun; whether an earlier call with this \
                     request_id was done is not said here.",
                    needs.as_str()
                ),
                "Ask for access with this scope, then repeat the same call with the same request_id and the same arguments. If you \
                 cannot, tell the person you work for.",
            )
        }
    }

    /// Not known; the same call may be repeated after `seconds`.
    pub fn unavailable(message: impl Into<String>, seconds: u64) -> Self {
        Self {
            retry_after_seconds: Some(seconds),
            ..Self::new(
                Code::Unavailable,
                message,
                "Wait, then repeat the same call with the same request_id and the same arguments, never a new one. \
                 Until an answer settles it, report the write as unconfirmed.",
            )
        }
    }

    /// Its HTTP status.
    pub fn http(&self) -> u16 {
        if self.too_large { 413 } else { self.code.http() }
    }

    /// `{"error": {…}}`, the body over HTTP and the structured content over MCP.
    pub fn to_json(&self) -> Value {
        let mut error = json!({
            "code": self.code.as_str(),
            "message": self.message,
            "next": self.next,
        });
        if let Some(seconds) = self.retry_after_seconds {
            error["retry_after_seconds"] = json!(seconds);
        }
        if let Some(recorded) = self.recorded {
            error["recorded"] = json!(recorded);
        }
        if let Some(limit) = self.limit {
            error["limit"] = json!(limit);
        }
        if let Some(scope) = self.needs {
            error["scope"] = json!(scope.as_str());
        }
        json!({ "error": error })
    }
}

/// What a call came to.
#[derive(Debug, Clone)]
pub enum Outcome {
    /// A write is done and recorded.
    Done {
        /// `{request_id, status: "done", replayed, answered_at, …}`.
        answer: Map<String, Value>,
        /// Whether this is a replay.
        replayed: bool,
    },
    /// A reading operation's answer.
    Read(Value),
    /// Not finished within the caller's time; the work goes on.
    InProgress {
        /// `{request_id, status: "in_progress", retry_after_seconds, next}`.
        answer: Map<String, Value>,
        /// When to come back, in seconds.
        retry_after_seconds: u64,
    },
    /// Refused.
    Refused(Refusal),
    /// This replica is stopping; the balancer is to ask another one.
    HandedBack,
}

impl From<Refusal> for Outcome {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

/// An outcome as callers are told it, by whichever way: what HTTP answers, and what MCP has in its envelope.
#[derive(Debug, Clone)]
pub struct Told {
    /// The HTTP status.
    pub status: u16,
    /// The body. Text where the route says so, else an object.
    pub body: Value,
    /// When to come back, in seconds.
    pub retry_after_seconds: Option<u64>,
    /// Whether an earlier call did it.
    pub replayed: bool,
    /// What was refused, if anything was.
    pub refusal: Option<Refusal>,
}

impl Outcome {
    /// As it is told, where the first answer of a success has the status `success`; `None` when this replica tells nothing and
    /// another one is to be asked.
    pub fn told(self, success: u16) -> Option<Told> {
        let plain = |status, body| Told {
            status,
            body,
            retry_after_seconds: None,
            replayed: false,
            refusal: None,
        };
        Some(match self {
            Self::Done { answer, replayed } => Told {
                replayed,
                ..plain(if replayed { 200 } else { success }, Value::Object(answer))
            },
            Self::Read(answer) => plain(success, answer),
            Self::InProgress {
                answer,
                retry_after_seconds,
            } => Told {
                retry_after_seconds: Some(retry_after_seconds),
                ..plain(202, Value::Object(answer))
            },
            Self::Refused(refusal) => Told {
                retry_after_seconds: refusal.retry_after_seconds,
                refusal: Some(refusal.clone()),
                ..plain(refusal.http(), refusal.to_json())
            },
            Self::HandedBack => return None,
        })
    }
}

impl Told {
    /// The structured content over MCP of a family that stands in an envelope, or not.
    pub fn structured(self, enveloped: bool) -> Value {
        if !enveloped {
            return self.body;
        }
        let mut envelope = json!({ "http_status": self.status, "data": self.body });
        if let Some(seconds) = self.retry_after_seconds {
            envelope["retry_after_seconds"] = json!(seconds);
        }
        envelope
    }
}
