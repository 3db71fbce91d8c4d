//! Ways to break the ledger on purpose, so that the load test can be seen to notice each of them.
//!
//! Without the feature `sabotage` everything here is a constant that the compiler removes. With it, the environment variable
//! `TICKET_LEDGER_SABOTAGE` names the kind; without the variable nothing is broken.

#[cfg(all(feature = "sabotage", not(debug_assertions)))]
compile_error!("the feature `sabotage` breaks the ledger on purpose: it is for debug builds alone");

use crate::ledger::Token;

/// What is broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Settling does not look at the token, and nobody notices that its claim was lost.
    NoFence,
    /// The token is the attempt's number, which begins again at 1.
    AttemptForToken,
    /// `ON CONFLICT DO NOTHING` is taken for success, whether or not there is a new row.
    NoRowCheck,
    /// Stamps and comparisons are by each replica's own clock.
    WorkersClock,
    /// Notifications are dropped and waiters do not poll.
    NoNotify,
    /// A claim is released when its callers have left.
    ReleaseOnDisconnect,
    /// The effect is committed by itself, before the settlement.
    EffectOutside,
    /// A reply is saved whatever has become of its question.
    ParentUnseen,
    /// What saves does not look at the operator's stop.
    StopUnseen,
    /// Whoever repeats the post of an entry is told its old answer, whatever has become of it: a deletion leaves that in the ledger.
    FateUnseen,
}

pub use active::{connection, effect_alone, is, prepare, sql, token};

#[cfg(not(feature = "sabotage"))]
mod active {
    use sqlx::PgConnection;
    use sqlx::postgres::PgConnectOptions;

    use super::{Kind, Token};

    /// Whether this is broken.
    #[inline(always)]
    pub const fn is(_: Kind) -> bool {
        false
    }

    /// A statement as it is to be sent.
    #[inline(always)]
    pub const fn sql(text: &'static str) -> &'static str {
        text
    }

    /// The effect of a statement that acts and settles.
    #[inline(always)]
    pub const fn effect_alone(text: &'static str) -> &'static str {
        text
    }

    /// The token of the attempt that follows another one.
    #[inline(always)]
    pub const fn token(drawn: Token, _before: Token) -> Token {
        drawn
    }

    /// How a replica connects.
    #[inline(always)]
    pub fn connection(options: PgConnectOptions) -> PgConnectOptions {
        options
    }

    /// Follows a migration.
    #[inline(always)]
    pub async fn prepare(_: &mut PgConnection) {}
}

#[cfg(feature = "sabotage")]
mod active;
