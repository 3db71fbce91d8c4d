//! What every request passes before it is looked at: its arrival is stamped, its Host and Origin are checked, and a replica
//! that is stopping says so.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use serde_json::Value;
use tokio::time::Instant;
use tracing::field::Empty;
use tracing::{Instrument, Span, info_span};

use super::auth::NeedsScope;
use crate::lifecycle::{Lifecycle, Stage};
use crate::operation::answer::{Code, Refusal};
use crate::telemetry::metrics::instruments;
use crate::telemetry::trace::{self, Parent};

/// The conventions' word for methods that they do not know.
const OTHER: &str = "_OTHER";
/// Most of a path that a span has, in characters.
const LONGEST_PATH: usize = 256;

/// When a request arrived at this replica; every deadline counts from here.
#[derive(Debug, Clone, Copy)]
pub struct Arrived(pub Instant);

/// Set by whoever answers that this replica is stopping: the response becomes a 502, over MCP too, so that the balancer asks
/// another replica.
#[derive(Debug, Clone, Default)]
pub struct HandBack(Arc<AtomicBool>);

impl HandBack {
    pub fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// What the front needs to know.
#[derive(Debug, Clone)]
pub struct Front {
    pub lifecycle: Lifecycle,
    pub hosts: Arc<[String]>,
    pub origins: Arc<[String]>,
}

/// The outermost layer.
pub async fn pass(State(front): State<Front>, request: Request, next: Next) -> Response {
    let arrived = Instant::now();
    let method = known_method(request.method());
    let span = span_of(&request, method);
    // With the answer, or when the caller leaves, whatever goes on for it.
    let _ends = trace::Ends(span.clone());
    let (response, route) = front.answer(request, next, arrived, &span).await;
    let status = response.status().as_u16();
    span.record("http.response.status_code", i64::from(status));
    if status >= 500 {
        trace::fail(&span, status.to_string());
    }
    if let Some(route) = &route {
        trace::rename(&span, format!("{} {route}", in_names(method)));
        span.record("http.route", &**route);
    }
    instruments().http(method, route, status, arrived.elapsed());
    sealed(response)
}

/// Where a request led, for its span and the metrics: said by whoever answers it.
#[derive(Debug, Clone, Default)]
pub struct Led(Arc<OnceLock<String>>);

impl Led {
    pub fn to(&self, route: impl Into<String>) {
        let _ = self.0.set(route.into());
    }
}

/// The method, as one of a bounded set: a stranger may invent any.
fn known_method(method: &Method) -> &'static str {
    const KNOWN: [&str; 9] = [
        "GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH", "TRACE", "CONNECT",
    ];
    let known = KNOWN.into_iter().find(|known| *known == method.as_str());
    known.unwrap_or(OTHER)
}

/// The method as spans are named after it.
fn in_names(method: &'static str) -> &'static str {
    if method == OTHER { "HTTP" } else { method }
}

/// With what tells browsers, and whatever is on the way, to keep nothing of it and to make nothing else of it.
fn sealed(mut response: Response) -> Response {
    for (name, value) in [
        (header::CACHE_CONTROL, "no-store"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (
            header::CONTENT_SECURITY_POLICY,
            "default-src 'none'; frame-ancestors 'none'",
        ),
        (header::REFERRER_POLICY, "no-referrer"),
    ] {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

/// The span of a request over HTTP; the route comes later, when it is known. Never the query: it holds arguments.
fn span_of(request: &Request, method: &'static str) -> Span {
    let path = request.uri().path();
    let shortened = path
        .char_indices()
        .nth(LONGEST_PATH)
        .map_or(path, |(end, _)| &path[..end]);
    let span = info_span!(
        "http",
        otel.name = in_names(method),
        otel.kind = "server",
        http.request.method = method,
        http.route = Empty,
        http.response.status_code = Empty,
        url.path = shortened,
        url.scheme = "http",
    );
    let text = |name| {
        let value = request.headers().get(name)?;
        value.to_str().ok().map(str::to_owned)
    };
    let parent = Parent {
        traceparent: text("traceparent"),
        tracestate: text("tracestate"),
    };
    trace::adopt(&span, &parent);
    span
}

impl Front {
    /// The response, and where the request led.
    async fn answer(
        &self,
        mut request: Request,
        next: Next,
        arrived: Instant,
        span: &Span,
    ) -> (Response, Option<String>) {
        if let Some(refused) = self.refuse(&request) {
            return (refused, None);
        }
        let (hand_back, led) = (HandBack::default(), Led::default());
        let extensions = request.extensions_mut();
        extensions.insert(Arrived(arrived));
        extensions.insert(hand_back.clone());
        extensions.insert(led.clone());
        let response = next.run(request).instrument(span.clone()).await;
        let response = if hand_back.is_set() { stopping() } else { response };
        (response, led.0.get().cloned())
    }

    fn refuse(&self, request: &Request) -> Option<Response> {
        if self.lifecycle.stage() == Stage::Draining {
            // It came on a connection that was open already; new ones are refused.
            return Some(stopping());
        }
        let is_ours = |host: &str| self.hosts.iter().any(|allowed| host_matches(allowed, host));
        if !is_addressed_to(request, is_ours) {
            return Some(forbidden("Host", "ALLOWED_HOSTS"));
        }
        let may_call = |origin: &str| self.origins.iter().any(|allowed| origin_matches(allowed, origin));
        let mut origins = request.headers().get_all(header::ORIGIN).iter();
        let all = origins.all(|origin| origin.to_str().is_ok_and(may_call));
        (!all).then(|| forbidden("Origin", "ALLOWED_ORIGINS"))
    }
}

/// Whether every name that a request is addressed by is one of ours, and there is one: where there are several, whoever stands in
/// between may have gone by another than we do.
pub fn is_addressed_to(request: &Request, is_ours: impl Fn(&str) -> bool) -> bool {
    let authority = request.uri().authority().map(|authority| authority.as_str());
    let hosts = request.headers().get_all(header::HOST).iter();
    let mut names = hosts
        .map(|host| host.to_str().ok())
        .chain(authority.map(Some))
        .peekable();
    names.peek().is_some() && names.all(|name| name.is_some_and(&is_ours))
}

/// `allowed` without a port matches every port.
pub fn host_matches(allowed: &str, host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit()) => name,
        _ => host,
    };
    allowed.eq_ignore_ascii_case(host) || allowed.eq_ignore_ascii_case(name)
}

/// `allowed` may end in `:*`, which matches every port and none.
pub fn origin_matches(allowed: &str, origin: &str) -> bool {
    let Some(prefix) = allowed.strip_suffix(":*") else {
        return allowed.eq_ignore_ascii_case(origin);
    };
    let Some(rest) = origin
        .get(..prefix.len())
        .filter(|start| start.eq_ignore_ascii_case(prefix))
    else {
        return false;
    };
    let port = &origin[rest.len()..];
    port.is_empty()
        || port
            .strip_prefix(':')
            .is_some_and(|digits| !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()))
}

fn forbidden(what: &str, setting: &str) -> Response {
    let refusal = Refusal::new(
        Code::Forbidden,
        format!("The {what} of this request is not one that this service answers to."),
        format!("Call it by a name that the operator allowed with {setting}."),
    );
    refused(&refusal, None)
}

/// This replica is stopping. 502, whether or not it had taken the call: the balancer is to ask another replica, and clients
/// learn the same from either.
fn stopping() -> Response {
    let refusal = Refusal::unavailable(
        "This replica is stopping. Whether the write was done is not said here; another replica knows.",
        1,
    );
    let mut response = refused(&refusal, Some(StatusCode::BAD_GATEWAY));
    response
        .headers_mut()
        .insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}

/// A refusal over HTTP, with the status of its code or another one.
pub fn refused(refusal: &Refusal, status: Option<StatusCode>) -> Response {
    let status = status
        .or_else(|| StatusCode::from_u16(refusal.http()).ok())
        .unwrap_or(StatusCode::SERVICE_UNAVAILABLE);
    let mut response = json(status, &refusal.to_json());
    if let Some(scope) = refusal.needs {
        response.extensions_mut().insert(NeedsScope(scope));
    }
    if let Some(seconds) = refusal.retry_after_seconds {
        response
            .headers_mut()
            .insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

/// A JSON response.
pub fn json(status: StatusCode, body: &Value) -> Response {
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    (status, headers, Body::from(body.to_string())).into_response()
}

#[cfg(test)]
mod tests {
    use super::{host_matches, origin_matches};

    #[test]
    fn a_host_matches_with_any_port_unless_one_is_named() {
        assert!(host_matches("localhost", "LOCALHOST:8000"));
        assert!(host_matches("[::1]", "[::1]:8000"));
        assert!(host_matches("[::1]", "[::1]"));
        assert!(host_matches("example.org:8443", "example.org:8443"));
        assert!(!host_matches("example.org:8443", "example.org:1"));
        assert!(!host_matches("localhost", "localhost.example.org"));
        assert!(!host_matches("localhost", "evil.example.org:80"));
    }

    #[test]
    fn an_origin_matches_with_any_port_only_behind_a_star() {
        assert!(origin_matches("http://localhost:*", "http://localhost:5173"));
        assert!(origin_matches("http://localhost:*", "http://localhost"));
        assert!(!origin_matches("http://localhost:*", "http://localhost.example.org"));
        assert!(!origin_matches("http://localhost:*", "http://localhost:80.example.org"));
        assert!(!origin_matches("http://localhost:*", "null"));
        assert!(origin_matches("https://claude.ai", "https://claude.ai"));
        assert!(!origin_matches("https://claude.ai", "https://claude.ai:444"));
    }
}
