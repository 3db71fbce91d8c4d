//! What a browser asks before it lets a page call, such as an MCP client that runs in one.

use std::sync::Arc;
use std::time::Duration;

use axum::http::{HeaderName, Method, header};
use tower_http::cors::{AllowHeaders, AllowOrigin, CorsLayer};

use super::front::origin_matches;

/// How long a browser may remember what it was told.
const REMEMBERED: Duration = Duration::from_secs(600);

/// The answers for pages from these origins; any other is told nothing, and refused by the front when it calls.
///
/// There are no cookies here, so a page can send nothing that its own script does not have. Headers are allowed as they are asked
/// for: each revision of MCP has new ones.
pub fn layer(origins: &[String]) -> CorsLayer {
    let origins: Arc<[String]> = origins.into();
    let allowed = AllowOrigin::predicate(move |origin, _| {
        let origin = origin.to_str().unwrap_or_default();
        origins.iter().any(|allowed| origin_matches(allowed, origin))
    });
    CorsLayer::new()
        .allow_origin(allowed)
        .allow_methods([Method::GET, Method::POST, Method::PUT])
        .allow_headers(AllowHeaders::mirror_request())
        .expose_headers([
            header::WWW_AUTHENTICATE,
            header::RETRY_AFTER,
            HeaderName::from_static("idempotency-replayed"),
        ])
        .max_age(REMEMBERED)
}
