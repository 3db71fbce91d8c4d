//! /console on the admin address: one page that shows what all replicas do, for a person. It only reads.

use std::net::IpAddr;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::Response;
use axum::routing::get;
use serde::Deserialize;
use tracing::warn;

use super::auth::{Door, admit};
use super::front::{host_matches, is_addressed_to, refused};
use crate::ledger::Ledger;
use crate::operation::answer::{Code, Refusal};
use crate::operation::caller::Caller;
use crate::operation::scope::Scope;

const PAGE: &str = include_str!("console.html");

/// Nothing from elsewhere, and nobody may put the page into a frame.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; \
    img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Longest name that is looked up, in bytes.
const LONGEST_NAME: usize = 256;

#[derive(Clone)]
pub struct Console {
    pub ledger: Arc<Ledger>,
    pub hosts: Arc<[String]>,
}

/// What the page shows is for operators alone: for whoever has the scope, or sits at this machine where nobody is asked who they
/// are. The page itself shows nothing, and asks for a token.
pub fn router(console: Console, door: Arc<Door>) -> Router {
    Router::new()
        .route("/console/state", get(state))
        .route("/console/request", get(request))
        .layer(from_fn(operators_only))
        .layer(from_fn_with_state(door, admit))
        .route("/console", get(page))
        .layer(from_fn_with_state(console.clone(), guard))
        .with_state(console)
}

/// A page of somebody else's must not read this one by giving its own name this address: a name has to be one that the service
/// answers to. An address is never anybody's name.
async fn guard(State(console): State<Console>, request: Request, next: Next) -> Response {
    let known = is_addressed_to(&request, |host| {
        is_address(host) || console.hosts.iter().any(|allowed| host_matches(allowed, host))
    });
    let mut response = if known {
        next.run(request).await
    } else {
        let refusal = Refusal::new(
            Code::Forbidden,
            "The Host of this request is not one that this service answers to.",
            "Call it by its address, or by a name that the operator allowed with ALLOWED_HOSTS.",
        );
        refused(&refusal, None)
    };
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    response
}

async fn operators_only(request: Request, next: Next) -> Response {
    let caller = request.extensions().get::<Caller>();
    if caller.is_some_and(|caller| caller.scopes.allow(Some(Scope::Admin))) {
        return next.run(request).await;
    }
    refused(&Refusal::forbidden(Scope::Admin), None)
}

fn is_address(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    name.trim_start_matches('[')
        .trim_end_matches(']')
        .parse::<IpAddr>()
        .is_ok()
}

async fn page() -> Response {
    typed("text/html; charset=utf-8", PAGE.to_owned())
}

async fn state(State(console): State<Console>) -> Response {
    told(console.ledger.overview().await)
}

#[derive(Deserialize)]
struct Wanted {
    request_id: String,
}

async fn request(State(console): State<Console>, wanted: Result<Query<Wanted>, QueryRejection>) -> Response {
    let Ok(Query(wanted)) = wanted else {
        return refused(&Refusal::invalid("Give one request_id in the query."), None);
    };
    if wanted.request_id.is_empty() || wanted.request_id.len() > LONGEST_NAME || wanted.request_id.contains('\0') {
        return refused(&Refusal::invalid("request_id must be 1 to 64 characters."), None);
    }
    told(console.ledger.history(&wanted.request_id).await)
}

fn told(text: Result<String, impl std::fmt::Display>) -> Response {
    match text {
        Ok(text) => typed("application/json", text),
        Err(error) => {
            warn!(%error, "the console could not read");
            refused(
                &Refusal::unavailable("The database cannot be reached at the moment.", 2),
                None,
            )
        }
    }
}

fn typed(kind: &'static str, text: String) -> Response {
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = StatusCode::OK;
    *response.headers_mut() = headers;
    response
}

#[cfg(test)]
mod tests {
    use super::is_address;

    #[test]
    fn an_address_is_told_from_a_name() {
        for address in ["127.0.0.1", "127.0.0.1:9000", "[::1]:9000", "[::1]"] {
            assert!(is_address(address), "{address}");
        }
        for name in ["localhost:9000", "evil.example.org", "127.0.0.1.example.org:80", ""] {
            assert!(!is_address(name), "{name}");
        }
    }
}
