//! HTTP under /api/v1: every operation at the route on its card.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{RawPathParams, Request};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodFilter, MethodRouter, get, on};
use axum::{Extension, Router};
use percent_encoding::percent_decode_str;
use serde_json::{Map, Value};
use tokio::time::Instant;

use super::body::{self, Unreadable};
use super::front::{Arrived, HandBack, Led, json, refused};
use super::openapi;
use crate::operation::answer::{Code, Refusal, Told};
use crate::operation::caller::{Caller, Via};
use crate::operation::run::{Call, Service};
use crate::operation::{Route, Tool};

/// Below which all routes are.
pub const ROOT: &str = "/api/v1";
/// The kind of a document.
pub const MARKDOWN: &str = "text/markdown";

/// The routes of all operations.
pub fn router(service: &Arc<Service>, limits: body::Limits) -> Router {
    let mut places: BTreeMap<_, Vec<Endpoint>> = BTreeMap::new();
    for tool in service.registry.iter() {
        let Route { method, path, .. } = tool.card().route;
        let (path, ending) = split_ending(path);
        places.entry((path, method)).or_default().push(Endpoint {
            service: Arc::clone(service),
            tool: Arc::clone(tool),
            ending,
            limits,
        });
    }
    let document = openapi::document(&service.registry);
    let description = get(|| async move { json(StatusCode::OK, &document) });
    let mut router = Router::new().route(openapi::PATH, description);
    for ((path, method), mut endpoints) in places {
        // The longest ending first: the empty one fits always.
        endpoints.sort_by_key(|endpoint| Reverse(endpoint.ending.len()));
        router = router.route(path, route(method, endpoints));
    }
    router
        .method_not_allowed_fallback(|| async {
            let refusal = Refusal::invalid("This method is not one that this path answers to.");
            refused(&refusal, Some(StatusCode::METHOD_NOT_ALLOWED))
        })
        .fallback(no_such_path)
}

/// The answer to a path that leads nowhere.
pub async fn no_such_path() -> Response {
    let refusal = Refusal::new(
        Code::NotFound,
        "There is nothing at this path. Nothing was done.",
        "MCP is at /mcp, HTTP below /api/v1.",
    );
    refused(&refusal, None)
}

/// A route's path as the router knows it, whose parameters reach to the end of their segment, and what has to stand at the end.
fn split_ending(path: &'static str) -> (&'static str, &'static str) {
    match path.rfind('}') {
        Some(brace) if !path[brace..].contains('/') => path.split_at(brace + 1),
        _ => (path, ""),
    }
}

#[derive(Clone)]
struct Endpoint {
    service: Arc<Service>,
    tool: Arc<dyn Tool>,
    /// What the path's last parameter ends in, such as `.md`; not a part of the argument.
    ending: &'static str,
    limits: body::Limits,
}

/// The route of endpoints that differ in their endings alone.
fn route(method: &str, endpoints: Vec<Endpoint>) -> MethodRouter {
    let method = match method {
        "GET" => MethodFilter::GET,
        "PUT" => MethodFilter::PUT,
        _ => MethodFilter::POST,
    };
    on(
        method,
        |path: Result<RawPathParams, axum::extract::rejection::RawPathParamsRejection>,
         Extension(Arrived(arrived)): Extension<Arrived>,
         Extension(hand_back): Extension<HandBack>,
         Extension(caller): Extension<Caller>,
         Extension(led): Extension<Led>,
         request: Request| async move {
            let path = path.ok();
            let last = path
                .as_ref()
                .and_then(|path| path.iter().last())
                .map_or("", |(_, value)| value);
            let Some(endpoint) = endpoints.into_iter().find(|endpoint| last.ends_with(endpoint.ending)) else {
                return no_such_path().await;
            };
            led.to(format!("{ROOT}{}", endpoint.tool.card().route.path));
            match endpoint.read(path, request, arrived).await {
                Ok(arguments) => endpoint.run(caller, arguments, arrived, &hand_back).await,
                Err(Unreadable(refusal, status)) => refused(&refusal, status),
            }
        },
    )
}

impl Endpoint {
    async fn run(
        &self,
        caller: Caller,
        arguments: Map<String, Value>,
        arrived: Instant,
        hand_back: &HandBack,
    ) -> Response {
        let call = Call {
            caller,
            via: Via::Http,
            tool: Arc::clone(&self.tool),
            arguments,
            arrived,
        };
        let outcome = self.service.run(call).await;
        let Some(told) = outcome.told(self.tool.card().route.success) else {
            // The front makes the response.
            hand_back.set();
            return Response::new(Body::empty());
        };
        respond(told, self.answers())
    }

    /// The kind of what it answers, refusals aside, which are JSON.
    fn answers(&self) -> &'static str {
        if self.tool.card().route.is_markdown() {
            MARKDOWN
        } else {
            "application/json"
        }
    }

    /// The arguments of a call, from its body or query, its path and its headers.
    async fn read(
        &self,
        path: Option<RawPathParams>,
        request: Request,
        arrived: Instant,
    ) -> Result<Map<String, Value>, Unreadable> {
        let Some(path) = path else {
            return Err(Refusal::invalid("The path is not UTF-8.").into());
        };
        let (head, body) = request.into_parts();
        let kind = self.answers();
        if !accepts(&head.headers, kind) {
            let refusal = Refusal::invalid(format!("The answer is {kind}, which the Accept header does not name."));
            return Err(Unreadable(refusal, Some(StatusCode::NOT_ACCEPTABLE)));
        }
        let query = head.uri.query().unwrap_or_default();
        let mut arguments = if head.method == Method::GET || head.method == Method::HEAD {
            read_query(query)?
        } else if query.is_empty() {
            let bytes = body::read(body, self.limits, arrived + self.service.wait).await?;
            read_body(&head.headers, &bytes)?
        } else {
            return Err(Refusal::invalid("A write takes its arguments from the body, not from the query.").into());
        };
        for (place, (name, value)) in path.iter().enumerate() {
            let last = place + 1 == path.iter().count();
            let value = Value::from(if last {
                value.strip_suffix(self.ending).unwrap_or(value)
            } else {
                value
            });
            if given(&arguments, name).is_some_and(|given| *given != value) {
                return Err(Refusal::invalid(format!("{name} in the body is not the one in the path.")).into());
            }
            arguments.insert(name.to_owned(), value);
        }
        if !matches!(self.tool.card().class, crate::operation::Class::ReadOnly) {
            take_idempotency_key(&head.headers, &mut arguments)?;
        }
        Ok(arguments)
    }
}

/// Whether an answer of this kind is one that the caller takes.
fn accepts(headers: &HeaderMap, answer: &str) -> bool {
    let family = answer.split('/').next().unwrap_or_default();
    let accepted = headers.get_all(header::ACCEPT).iter();
    let mut accepted = accepted.filter(|value| !value.is_empty()).peekable();
    if accepted.peek().is_none() {
        return true;
    }
    accepted
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .any(|range| {
            let mut parts = range.split(';').map(str::trim);
            let kind = parts.next().unwrap_or_default();
            let fits = [answer, &format!("{family}/*"), "*/*"]
                .iter()
                .any(|range| kind.eq_ignore_ascii_case(range));
            let refused = parts
                .filter_map(|parameter| parameter.strip_prefix("q="))
                .any(|quality| quality.parse() == Ok(0.0));
            fits && !refused
        })
}

fn read_body(headers: &HeaderMap, bytes: &[u8]) -> Result<Map<String, Value>, Unreadable> {
    if bytes.is_empty() {
        return Ok(Map::new());
    }
    let json = headers
        .get(header::CONTENT_TYPE)
        .and_then(|kind| kind.to_str().ok())
        .and_then(|kind| kind.split(';').next())
        .is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/json"));
    if !json {
        let refusal = Refusal::invalid("The Content-Type must be application/json.");
        return Err(Unreadable(refusal, Some(StatusCode::UNSUPPORTED_MEDIA_TYPE)));
    }
    match serde_json::from_slice(bytes) {
        Ok(Value::Object(arguments)) => Ok(arguments),
        Ok(_) => Err(Refusal::invalid("The body must be a JSON object.").into()),
        Err(error) => Err(Refusal::invalid(format!("The body is not JSON that can be read: {error}.")).into()),
    }
}

/// An argument that is given; null means the same as absent.
fn given<'a>(arguments: &'a Map<String, Value>, name: &str) -> Option<&'a Value> {
    arguments.get(name).filter(|value| !value.is_null())
}

fn read_query(query: &str) -> Result<Map<String, Value>, Refusal> {
    let mut arguments = Map::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let (name, value) = (decode(name)?, decode(value)?);
        if arguments.contains_key(&name) {
            return Err(Refusal::invalid(format!("{name} is given twice.")));
        }
        arguments.insert(name, Value::from(value));
    }
    Ok(arguments)
}

/// A name or a value of a query. Broken UTF-8 is refused and not mended: two broken keys must not become one.
fn decode(text: &str) -> Result<String, Refusal> {
    percent_decode_str(&text.replace('+', " "))
        .decode_utf8()
        .map(Cow::into_owned)
        .map_err(|_| Refusal::invalid("The query is not UTF-8."))
}

/// The Idempotency-Key header is another place for request_id, with or without one pair of quotes.
fn take_idempotency_key(headers: &HeaderMap, arguments: &mut Map<String, Value>) -> Result<(), Refusal> {
    let mut keys = headers.get_all("idempotency-key").iter();
    let Some(key) = keys.next() else { return Ok(()) };
    if keys.next().is_some() {
        return Err(Refusal::invalid("Idempotency-Key is given twice."));
    }
    let Ok(key) = std::str::from_utf8(key.as_bytes()) else {
        return Err(Refusal::invalid("Idempotency-Key is not UTF-8."));
    };
    let bare = key
        .strip_prefix('"')
        .and_then(|key| key.strip_suffix('"'))
        .unwrap_or(key);
    let key = Value::from(bare);
    if given(arguments, "request_id").is_some_and(|given| *given != key) {
        return Err(Refusal::invalid(
            "request_id and Idempotency-Key are both given and differ.",
        ));
    }
    arguments.insert("request_id".to_owned(), key);
    Ok(())
}

fn respond(told: Told, kind: &str) -> Response {
    if let Some(refusal) = &told.refusal {
        return refused(refusal, None);
    }
    let status = StatusCode::from_u16(told.status).unwrap_or(StatusCode::SERVICE_UNAVAILABLE);
    let mut response = match told.body {
        Value::String(text) if kind == MARKDOWN => {
            let kind = HeaderValue::from_static("text/markdown; charset=utf-8");
            (status, [(header::CONTENT_TYPE, kind)], text).into_response()
        }
        body => json(status, &body),
    };
    let headers = response.headers_mut();
    if told.replayed {
        headers.insert("idempotency-replayed", HeaderValue::from_static("true"));
    }
    if let Some(seconds) = told.retry_after_seconds {
        headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}
