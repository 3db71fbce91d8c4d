//! Health, on an address of its own.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::get;
use serde_json::{Value, json};

use super::front;
use crate::ledger::Ledger;
use crate::lifecycle::{Lifecycle, Stage};

#[derive(Clone)]
pub struct Health {
    pub lifecycle: Lifecycle,
    pub ledger: Arc<Ledger>,
    pub replica: Arc<str>,
}

pub fn router(health: Health) -> Router {
    Router::new()
        .route(
            "/livez",
            get(|| async { front::json(StatusCode::OK, &json!({ "live": true })) }),
        )
        .route("/readyz", get(ready))
        .with_state(health)
}

/// Ready when the schema is as new as this program needs and Postgres answered last. A deaf listener does not make a replica
/// unready: its waiters poll.
async fn ready(State(health): State<Health>) -> Response {
    let stage = health.lifecycle.stage();
    let reachable = health.ledger.database().reach().is_reachable();
    let ready = stage == Stage::Ready && reachable;
    let status = if ready {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    let body: Value = json!({
        "ready": ready,
        "replica": &*health.replica,
        "stage": match stage {
            Stage::Starting => "starting",
            Stage::Ready => "ready",
            Stage::Draining => "draining",
        },
        "database": if reachable { "reachable" } else { "unreachable" },
        "listener": if health.ledger.is_listening() { "listening" } else { "polling" },
    });
    front::json(status, &body)
}
