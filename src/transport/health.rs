//! Health and metrics, on an address of their own.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use axum::routing::get;
use serde_json::{Value, json};

use super::front;
use crate::ledger::Ledger;
use crate::lifecycle::{Lifecycle, Stage};
use crate::telemetry::metrics::as_text;

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
        .route("/metrics", get(metrics))
        .with_state(health)
}

/// Every metric of this replica, in Prometheus' text format.
async fn metrics() -> Response {
    let mut response = Response::new(Body::from(as_text()));
    let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
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
        "stage": stage.as_str(),
        "database": if reachable { "reachable" } else { "unreachable" },
        "listener": if health.ledger.is_listening() { "listening" } else { "polling" },
    });
    front::json(status, &body)
}
