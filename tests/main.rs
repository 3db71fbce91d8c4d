//! Promises, a module each, kept on a real Postgres by real replicas that are really killed.

mod support;

mod balancer;
mod crash_points;
mod drain;
mod exactly_once;
mod health;
mod late_holders;
mod listener;
mod locks;
mod outage;
mod takeover;
