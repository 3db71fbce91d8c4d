//! What the ledger needs to know of an operation, and the statements that carry an operation's effect.

use async_trait::async_trait;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

/// An operation's refusal: a value, not an error. It changed nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// The code of the refusal, which the operation's caller is told.
    pub code: String,
    /// What was found, for the sentence that the caller is told.
    pub detail: String,
}

impl Refused {
    /// The code of a refusal because an operator has stopped writes.
    pub const STOPPED: &str = "writes_disabled";
    /// The code of a refusal because the hour's writes are used up; its detail is the seconds until the next hour.
    pub const USED_UP: &str = "rate_limited";

    pub(super) fn stopped() -> Self {
        Self {
            code: Self::STOPPED.to_owned(),
            detail: String::new(),
        }
    }
}

/// Why an attempt did not come to its effect.
#[derive(Debug, Clone)]
pub enum NotPrepared {
    /// The operation refuses.
    Refused(Refused),
    /// The operation failed, before it changed anything.
    Failed(String),
}

/// An operation, as far as the ledger is concerned.
#[async_trait]
pub trait Act: Send + Sync {
    /// Its name, which is part of the fingerprint and stands in the row.
    fn name(&self) -> &'static str;

    /// The statements that act and settle.
    fn effect(&self) -> &'static Effect;

    /// Whether [`Act::prepare`] takes time. If so a claim is committed first; if not, claim, effect and settlement are
    /// one statement.
    fn takes_time(&self) -> bool;

    /// Does the work that comes before the effect and returns what the effect needs beside the arguments: fresh
    /// identifiers, or what the work found out. It may be stopped at any await and run again by another attempt. The
    /// arguments are the canonical JSON text.
    async fn prepare(&self, arguments: &str, stop: &CancellationToken) -> Result<Value, NotPrepared>;
}

/// An operation's effect, woven into the ledger's statements by [`effect!`](crate::effect).
#[derive(Debug)]
pub struct Effect {
    /// Claims, acts and settles an array of new requests.
    pub one_step: &'static str,
    /// Acts and settles claimed requests, fence first.
    pub two_step: &'static str,
    /// Whether several requests may share one statement: only if the effect updates no row that two of them could share.
    pub batched: bool,
    /// Whether it creates something, so that a twin under another request_id is worth telling.
    pub creates: bool,
    /// The unique constraint on (principal, request_id) of what it inserts: the second guard.
    pub guard: &'static str,
}

impl Effect {
    /// Of an operation that has none; it never reaches the ledger.
    pub const NONE: Self = Self {
        one_step: "",
        two_step: "",
        batched: false,
        creates: false,
        guard: "",
    };
}

/// Weaves an operation's two pieces of SQL into the ledger's statements, at compile time.
///
/// `judge` is a SELECT from `item`, which has a row for each request at hand: `principal text`, `request_id text`, `args jsonb`
/// (the canonical arguments), `made jsonb` (what `prepare` returned), `origin text` (by which way the request came first) and
/// `now timestamptz` (the database's clock). It yields a row for each item, `item.*` followed by `refusal text`, `detail text`,
/// `result_id text` and `result text`. A row with a `refusal` changes nothing; the others are settled with `result`, which is JSON text. It may lock rows.
///
/// `act` is an INSERT, UPDATE or DELETE for the rows of `settled`, and for no others: those that `judge` did not refuse and that
/// this very statement settled, with the same columns.
///
/// Both statements are one message and one implicit transaction: no client stands between effect and COMMIT.
#[macro_export]
macro_rules! effect {
    (judge: $judge:expr, act: $act:expr, batched: $batched:expr, creates: $creates:expr, guard: $guard:expr $(,)?) => {
        $crate::ledger::Effect {
            one_step: concat!(
                include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/ledger/sql/one_step_head.sql")),
                $judge,
                include_str!(concat!(
                    env!("CARGO_MANIFEST_DIR"),
                    "/src/ledger/sql/one_step_settle.sql"
                )),
                $act,
                include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/ledger/sql/one_step_tail.sql")),
            ),
            two_step: concat!(
                include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/ledger/sql/two_step_head.sql")),
                $judge,
                include_str!(concat!(
                    env!("CARGO_MANIFEST_DIR"),
                    "/src/ledger/sql/two_step_settle.sql"
                )),
                $act,
                include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/ledger/sql/two_step_tail.sql")),
            ),
            batched: $batched,
            creates: $creates,
            guard: $guard,
        }
    };
}
