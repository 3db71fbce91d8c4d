//! ticket-ledger: an AI agent's write, called twice, happens once.
//!
//! ```text
//! transport (MCP | HTTP)  →  operation::run  →  ledger (claim · lease · wait · settle)  →  Postgres
//! ```

// A replica that panics drops its callers: failures are values. In tests a panic is what a failure is for.
#![warn(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::todo,
    clippy::unimplemented
)]

pub mod clock;
pub mod cluster;
pub mod command;
pub mod config;
pub mod fault;
pub mod ledger;
pub mod lifecycle;
pub mod load;
pub mod operation;
pub mod postgres;
pub mod sabotage;
pub mod telemetry;
pub mod transport;

use std::sync::{LockResult, MutexGuard, PoisonError};

/// A lock whose holder panicked: the data under this program's locks is whole between any two statements.
pub(crate) fn unpoisoned<T>(locked: LockResult<MutexGuard<'_, T>>) -> MutexGuard<'_, T> {
    locked.unwrap_or_else(PoisonError::into_inner)
}
