//! Promises, a module each, kept on a real Postgres by real replicas that are really killed.

mod support;

mod exactly_once;
mod hostile;
mod tickets;
