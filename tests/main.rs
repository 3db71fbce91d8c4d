//! Promises, a module each, kept on a real Postgres by real replicas that are really killed.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "tests do from outside what the service must not"
)]

mod support;

mod auth;
mod balancer;
mod batches;
mod bench;
mod claim_sql;
mod cluster;
mod config;
mod connection_budget;
mod console;
mod contract;
mod crash_points;
mod deadline;
mod dev;
mod disruptions;
mod drain;
mod duplicates;
mod entries;
mod eras;
mod errors_do_not_stick;
mod exactly_once;
mod find_request;
mod fingerprint;
mod gate;
mod health;
mod hostile;
mod http;
mod join;
mod late_holders;
mod leaving;
mod listener;
mod load;
mod load_operator;
mod load_target;
mod locks;
mod manifests;
mod model;
mod observability;
mod official_clients;
mod openapi;
mod operator;
mod outage;
mod protocol;
mod readme;
mod replay;
mod retention;
mod roles;
mod rules_key;
mod sabotage;
mod takeover;
mod telemetry;
mod tickets;
mod tls;
mod traces;
mod versions;
mod wire;
mod worked_example;

// The worked example's `crate::` paths mean here what they mean inside src.
use ticket_ledger::{effect, ledger, operation};
mod tidy;
