//! What the ledger's refusals are in words: whether the work was done, and what to do next.

use tracing::warn;

use super::answer::{Code, Refusal};
use crate::ledger::{MOST_LAPSES, Unavailable};
use crate::postgres::DatabaseError;

/// The request_id was used for something else.
pub(super) fn conflict() -> Refusal {
    Refusal::new(
        Code::Conflict,
        "This request_id was used before for something else (another tool or other arguments). This call was not carried out and \
         nothing of it was stored; the other one was carried out, runs, or has failed.",
        "If you mean the same intent, send the first arguments again with this request_id. Only if you mean another intent, take a \
         new request_id.",
    )
}

/// Every attempt died.
pub(super) fn failed() -> Refusal {
    Refusal::new(
        Code::Failed,
        format!(
            "The work was begun {MOST_LAPSES} times and every attempt died before it was done. It was not done, and it is not tried again."
        ),
        "Ask a person: an operator has to look at it and allow a retry (ticket-ledger admin retry). Do not repeat it under a new \
         request_id.",
    )
}

/// Too old to tell, or never recorded.
pub(super) fn expired(recorded: bool) -> Refusal {
    let (message, next) = if recorded {
        (
            "This request was recorded, but too long ago for its answer to be kept. It was not run again.",
            "Look for the thing itself. Only another intent takes a new request_id.",
        )
    } else {
        (
            "This request_id is too old to be run safely: nothing is stored under this id and nothing was run.",
            "Look for the thing itself; if it is not there and is still wanted, call with a new request_id.",
        )
    };
    Refusal {
        recorded: Some(recorded),
        ..Refusal::new(Code::Expired, message, next)
    }
}

/// Until writes may be allowed again nobody can tell; often enough not to be late, seldom enough not to be a burden.
const STOP_RETRY_AFTER: u64 = 60;

/// An operator has stopped writes.
pub(super) fn writes_disabled() -> Refusal {
    Refusal {
        retry_after_seconds: Some(STOP_RETRY_AFTER),
        ..Refusal::new(
            Code::WritesDisabled,
            "An operator has stopped writes for the time being. The ledger was asked first: this request is not saved, and nothing was \
             done by this call.",
            "Wait until writes are allowed again, then repeat the same call with the same request_id and the same arguments. Report the \
             write as not done yet.",
        )
    }
}

/// A source's hour is used up.
pub(super) fn used_up_by_source(retry_after_seconds: u64) -> Refusal {
    Refusal {
        limit: Some("source"),
        ..rate_limited(
            "You have called for as many writes as are allowed in an hour. The ledger was not asked: whether an earlier call with this \
             request_id was saved is not said here.",
            retry_after_seconds,
        )
    }
}

/// Everybody's hour is used up; the gate says for how many seconds.
pub(super) fn used_up_by_all(retry_after_seconds: &str) -> Refusal {
    Refusal {
        limit: Some("global"),
        ..rate_limited(
            "As many writes as are allowed in an hour have been saved, by all callers together. The ledger was asked first: this request \
             is not saved, and nothing was done by this call.",
            // The gate writes a number.
            retry_after_seconds.parse().unwrap_or(STOP_RETRY_AFTER),
        )
    }
}

pub(super) fn rate_limited(message: &str, retry_after_seconds: u64) -> Refusal {
    Refusal {
        retry_after_seconds: Some(retry_after_seconds),
        ..Refusal::new(
            Code::RateLimited,
            message,
            "Wait retry_after_seconds, then repeat the same call with the same request_id and the same arguments, never a new one. Until \
             an answer settles it, report the write as unconfirmed.",
        )
    }
}

/// A fault of the service's own.
pub(super) fn fault() -> Refusal {
    Refusal::unavailable(
        "The service met a fault of its own; the write was wholly done or not begun.",
        5,
    )
}

/// The ledger cannot tell.
pub(super) fn unavailable(reason: Unavailable) -> Refusal {
    match reason {
        Unavailable::Database => Refusal::unavailable(
            "The database cannot be reached, or is held up. Whether this was done is not known: it was wholly done or not begun, or is \
             still being tried.",
            2,
        ),
        Unavailable::NewerRelease => Refusal::unavailable(
            "This request was recorded by a newer release of the service, in a way that this replica does not know. Whether it was \
             done is not said here.",
            5,
        ),
        Unavailable::Fault => fault(),
        Unavailable::Overloaded => Refusal::unavailable(
            "This replica has as many calls as it can take; this one was not begun here.",
            2,
        ),
    }
}

/// A reading operation's failure to reach Postgres.
pub fn database_unavailable(error: &DatabaseError) -> Refusal {
    warn!(%error, "a read failed");
    Refusal::unavailable("The database cannot be reached at the moment.", 2)
}
