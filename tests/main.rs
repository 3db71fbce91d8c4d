//! Promises, a module each, kept on a real Postgres by real replicas that are really killed.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "tests do from outside what the service must not"
)]

mod support;

mod exactly_once;
mod readme;
mod worked_example;

// The worked example's `crate::` paths mean here what they mean inside src.
use ticket_ledger::{effect, ledger, operation};
