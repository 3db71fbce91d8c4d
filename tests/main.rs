//! Promises, a module each, kept on a real Postgres by real replicas that are really killed.

mod support;

mod batches;
mod claim_sql;
mod deadline;
mod errors_do_not_stick;
mod exactly_once;
mod fingerprint;
mod join;
mod leaving;
mod replay;
mod rules_key;
