//! Promises, a module each, kept on a real Postgres by real replicas that are really killed.

mod support;

mod cluster;
mod config;
mod contract;
mod dev;
mod eras;
mod exactly_once;
mod find_request;
mod hostile;
mod http;
mod official_clients;
mod tickets;
mod tidy;
