//! Promises, a module each, kept on a real Postgres by real replicas that are really killed.

mod support;

mod batches;
mod claim_sql;
mod crash_points;
mod deadline;
mod drain;
mod exactly_once;
mod fingerprint;
mod health;
mod join;
mod listener;
mod locks;
mod outage;
mod rules_key;
mod takeover;
mod find_request;
mod hostile;
mod http;
mod tickets;
