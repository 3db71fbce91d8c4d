//! Promises, a module each, kept on a real Postgres by real replicas that are really killed.

mod support;

mod batches;
mod claim_sql;
mod deadline;
mod duplicates;
mod errors_do_not_stick;
mod exactly_once;
mod fingerprint;
mod join;
mod leaving;
mod model;
mod operator;
mod replay;
mod retention;
mod rules_key;
