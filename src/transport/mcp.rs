//! MCP over Streamable HTTP at /mcp, without sessions in every era: 2026-07-28, and 2024-11-05 to 2025-11-25 through
//! `initialize`.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Extension, Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use rmcp::model::{
    CacheScope, CallToolRequestParams, CallToolResponse, CallToolResult, CustomRequest, CustomResult, ErrorCode,
    Implementation, ListToolsResult, PaginatedRequestParams, ServerCapabilities, ServerConfig, Tool as McpTool,
    ToolAnnotations,
};
use rmcp::service::RequestContext;
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use rmcp::{ErrorData, RoleServer, ServerHandler};
use serde_json::{Value, json};
use tokio::time::Instant;
use tracing::{Instrument, Span, info};

use super::body::{self, Unreadable};
use super::front::{Arrived, HandBack, Led, json as json_response, refused};
use super::peek::Peek;
use crate::operation::answer::{Refusal, shortened};
use crate::operation::caller::{Caller, Via};
use crate::operation::run::{Call, Service};
use crate::operation::scope::{Scope, Scopes};
use crate::operation::{Tool, words};
use crate::telemetry::metrics::instruments;
use crate::telemetry::trace;

/// Where it is found.
pub const PATH: &str = "/mcp";

/// What the conventions call a tool's own refusal.
const TOOL_ERROR: &str = "tool_error";

/// The client may keep the list of tools this long, in ms: it changes with a release, and with what its caller may do.
const TOOLS_TTL_MS: u64 = 300_000;

/// The MCP endpoint.
#[derive(Clone)]
pub struct Endpoint {
    inner: StreamableHttpService<Handler, NeverSessionManager>,
    limits: body::Limits,
    wait: Duration,
    service: Arc<Service>,
}

impl Endpoint {
    /// The tool that a message calls, if it is one that is offered.
    fn offered(&self, peek: &Peek<'_>) -> Option<&'static str> {
        let tool = self.service.registry.find(peek.tool()?)?;
        Some(tool.card().name)
    }
}

/// Makes the endpoint. Host and Origin are checked in front of it, for both transports alike.
pub fn endpoint(service: &Arc<Service>, limits: body::Limits) -> Endpoint {
    let handler = Handler(Arc::new(Shared {
        tools: service
            .registry
            .iter()
            .map(|tool| (tool.card().scope(), describe(tool.as_ref())))
            .collect(),
        service: Arc::clone(service),
    }));
    let config = StreamableHttpServerConfig::default()
        .with_legacy_session_mode(false)
        .with_json_response(true)
        .with_max_request_body_bytes(limits.bytes)
        .disable_allowed_hosts();
    Endpoint {
        inner: StreamableHttpService::new(
            move || Ok(handler.clone()),
            Arc::new(NeverSessionManager::default()),
            config,
        ),
        limits,
        wait: service.wait,
        service: Arc::clone(service),
    }
}

/// The span that a call's outcome is said on.
#[derive(Debug, Clone)]
struct CallSpan(Span);

/// What the handler, which runs in a task of its own, leaves to whoever makes the response.
#[derive(Debug, Clone, Default)]
struct Noted(Arc<Notes>);

#[derive(Debug, Default)]
struct Notes {
    /// A call that needs another scope: the response becomes a 403 with a challenge, because that is where clients look for it.
    forbidden: OnceLock<Refusal>,
    /// How it failed, if it did.
    failed: OnceLock<Failed>,
}

/// How a message failed, for spans and metrics.
#[derive(Debug, Clone, Copy)]
enum Failed {
    /// The tool refused.
    Tool,
    /// An error in JSON-RPC's own words, with its code.
    Rpc(i64),
    /// A status of HTTP.
    Http(StatusCode),
}

impl Failed {
    /// The conventions' `error.type`.
    fn kind(self) -> String {
        match self {
            Self::Tool => TOOL_ERROR.to_owned(),
            Self::Rpc(code) => code.to_string(),
            Self::Http(status) => status.as_u16().to_string(),
        }
    }

    /// Says it on the span of the method, and in a line of the log if no call does.
    fn say(self, span: &Span, method: &'static str, arrived: Instant) {
        trace::fail(span, self.kind());
        if let Self::Rpc(code) = self {
            trace::say_on(span, "rpc.response.status_code", code.to_string());
            let took_ms = arrived.elapsed().as_millis() as u64;
            span.in_scope(|| info!(method, code, took_ms, "a message was refused"));
        }
    }
}

/// Hands a request to the endpoint, and says in JSON-RPC's own words when it was no call.
pub async fn serve(
    State(endpoint): State<Endpoint>,
    Extension(Arrived(arrived)): Extension<Arrived>,
    Extension(hand_back): Extension<HandBack>,
    Extension(led): Extension<Led>,
    request: Request,
) -> Response {
    led.to(PATH);
    let (head, body) = request.into_parts();
    let bytes = match body::read(body, endpoint.limits, arrived + endpoint.wait).await {
        Ok(bytes) => Bytes::from(bytes),
        Err(Unreadable(refusal, status)) => {
            let by_code = if refusal.too_large {
                StatusCode::PAYLOAD_TOO_LARGE
            } else {
                StatusCode::BAD_REQUEST
            };
            return json_response(status.unwrap_or(by_code), &error(-32600, &refusal.message));
        }
    };
    let peek = Peek::at(&bytes);
    let method = peek.method();
    let tool = endpoint.offered(&peek);
    let span = peek.span(method, tool);
    let mut request = Request::from_parts(head, Body::from(bytes.clone()));
    let noted = Noted::default();
    request.extensions_mut().insert(noted.clone());
    request.extensions_mut().insert(CallSpan(span.clone()));
    let handled = endpoint.inner.handle(request).instrument(span.clone()).await;
    let (response, failed) = answer(handled.map(Body::new), &peek, &noted.0, hand_back.is_set()).await;
    if let Some(failed) = failed {
        failed.say(&span, method, arrived);
    }
    instruments().mcp(method, tool, failed.map(Failed::kind), arrived.elapsed());
    drop(trace::Ends(span));
    response
}

/// The response to what was handled, and how that failed, if it did.
async fn answer(handled: Response, peek: &Peek<'_>, notes: &Notes, handed_back: bool) -> (Response, Option<Failed>) {
    let failed = notes.failed.get().copied();
    if let Some(refusal) = notes.forbidden.get() {
        return (refused(refusal, None), failed);
    }
    if handed_back {
        // The front puts it in the place of this.
        return (handled, Some(Failed::Http(StatusCode::BAD_GATEWAY)));
    }
    if handled.status() == StatusCode::ACCEPTED && !peek.is_notification() {
        // 202 would be taken for a call that goes on, or for one that was done.
        let message = "A request needs an id that is a text or an integer. Nothing was done.";
        let response = json_response(StatusCode::BAD_REQUEST, &error(-32600, message));
        return (response, Some(Failed::Rpc(-32600)));
    }
    if handled.status().is_client_error() {
        let (response, code) = reworded(handled).await;
        return (response, Some(Failed::Rpc(code)));
    }
    let status = handled.status();
    (
        handled,
        failed.or(status.is_server_error().then_some(Failed::Http(status))),
    )
}

fn error(code: i32, message: &str) -> Value {
    json!({ "jsonrpc": "2.0", "id": null, "error": { "code": code, "message": message } })
}

/// A refusal of the protocol's own layer, and its code: always JSON-RPC, and always with a word on the work.
async fn reworded(response: Response) -> (Response, i64) {
    let (mut head, body) = response.into_parts();
    let text = to_bytes(body, 64 * 1024).await.unwrap_or_default();
    let body = match serde_json::from_slice::<Value>(&text) {
        Ok(mut body) => {
            if let Some(message) = body["error"]["message"].as_str().map(nothing_was_done) {
                body["error"]["message"] = Value::from(message);
            }
            body
        }
        Err(_) => {
            let text = String::from_utf8_lossy(&text);
            match text.strip_prefix("fail to deserialize request body ") {
                Some(reason) => {
                    head.status = StatusCode::BAD_REQUEST;
                    let code = if reason.contains("JSON-RPC") { -32600 } else { -32700 };
                    error(code, &nothing_was_done(&format!("The body cannot be read: {reason}.")))
                }
                None => error(-32600, &nothing_was_done(&text)),
            }
        }
    };
    let code = body["error"]["code"].as_i64().unwrap_or(-32600);
    let body = body.to_string();
    head.headers.remove(header::CONTENT_LENGTH);
    head.headers
        .insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    (Response::from_parts(head, Body::from(body)), code)
}

/// The message, and that nothing was done, which holds for all that is refused before a tool is called.
fn nothing_was_done(message: &str) -> String {
    let message = shortened(message);
    if message.contains("Nothing was done") {
        return message;
    }
    format!("{}. Nothing was done.", message.trim_end_matches('.'))
}

/// Where the handler leaves what it knows of a request.
fn notes(context: &RequestContext<RoleServer>) -> Option<&Notes> {
    let parts = context.extensions.get::<http::request::Parts>()?;
    let noted = parts.extensions.get::<Noted>()?;
    Some(&noted.0)
}

/// A refusal in JSON-RPC's own words.
fn rpc_error(context: &RequestContext<RoleServer>, code: ErrorCode, message: String) -> ErrorData {
    if let Some(notes) = notes(context) {
        let _ = notes.failed.set(Failed::Rpc(i64::from(code.0)));
    }
    ErrorData::new(code, message, None)
}

#[derive(Clone)]
pub struct Handler(Arc<Shared>);

struct Shared {
    service: Arc<Service>,
    /// Each with the scope that it needs.
    tools: Vec<(Option<Scope>, McpTool)>,
}

fn describe(tool: &dyn Tool) -> McpTool {
    let card = tool.card();
    let hints = card.class.hints();
    McpTool::new(card.name, words::description(&card), Arc::new(tool.input_schema()))
        .with_title(card.title)
        .with_raw_output_schema(Arc::new(tool.output_schema()))
        .with_annotations(
            ToolAnnotations::with_title(card.title)
                .read_only(hints.read_only)
                .destructive(hints.destructive)
                .idempotent(hints.idempotent)
                .open_world(hints.open_world),
        )
}

impl ServerHandler for Handler {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(
                Implementation::new("ticket-ledger", env!("CARGO_PKG_VERSION")).with_title("ticket-ledger"),
            )
            .with_instructions(words::INSTRUCTIONS)
    }

    async fn list_tools(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        if request.is_some_and(|request| request.cursor.is_some()) {
            let message = "There is one page of tools; leave the cursor out. Nothing was done.";
            return Err(rpc_error(&context, ErrorCode::INVALID_PARAMS, message.to_owned()));
        }
        let parts = context.extensions.get::<http::request::Parts>();
        let caller = parts.and_then(|parts| parts.extensions.get::<Caller>());
        // What the caller may call, and no more.
        let scopes = caller.map_or_else(Scopes::default, |caller| caller.scopes);
        let tools = self.0.tools.iter().filter(|(needed, _)| scopes.allow(*needed));
        Ok(
            ListToolsResult::with_all_items(tools.map(|(_, tool)| tool.clone()).collect())
                .with_ttl_ms(TOOLS_TTL_MS)
                .with_cache_scope(CacheScope::Private),
        )
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let Some(tool) = self.0.service.registry.find(&request.name) else {
            let name = shortened(&request.name);
            let message = format!("There is no tool {name}; tools/list names them. Nothing was done.");
            return Err(rpc_error(&context, ErrorCode::INVALID_PARAMS, message));
        };
        let parts = context.extensions.get::<http::request::Parts>();
        let arrived = parts
            .and_then(|parts| parts.extensions.get::<Arrived>())
            .map_or_else(Instant::now, |arrived| arrived.0);
        let Some(caller) = parts.and_then(|parts| parts.extensions.get::<Caller>()).cloned() else {
            // The front has it beside every request.
            let message = "It is not known who calls. Nothing was done.";
            return Err(rpc_error(&context, ErrorCode::INTERNAL_ERROR, message.to_owned()));
        };
        // The handler runs in a task of its own, which knows no span.
        let span = parts
            .and_then(|parts| parts.extensions.get::<CallSpan>())
            .map_or_else(Span::none, |span| span.0.clone());
        let outcome = self
            .0
            .service
            .run(Call {
                caller,
                via: Via::Mcp,
                tool: Arc::clone(tool),
                arguments: request.arguments.unwrap_or_default(),
                arrived,
            })
            .instrument(span)
            .await;
        let card = tool.card();
        let Some(told) = outcome.told(card.route.success) else {
            if let Some(hand_back) = parts.and_then(|parts| parts.extensions.get::<HandBack>()) {
                hand_back.set();
            }
            // The front puts a 502 in its place.
            return Ok(CallToolResult::structured_error(json!({})).into());
        };
        if let Some(refusal) = &told.refusal
            && let Some(notes) = notes(&context)
        {
            let _ = notes.failed.set(Failed::Tool);
            if refusal.needs.is_some() {
                let _ = notes.forbidden.set(refusal.clone());
            }
        }
        // Structured content and text are the same object, because some clients show a model only the one, some only the other.
        let result = if told.refusal.is_some() {
            CallToolResult::structured_error
        } else {
            CallToolResult::structured
        };
        Ok(result(told.structured(card.toolset.is_enveloped())).into())
    }

    async fn on_custom_request(
        &self,
        request: CustomRequest,
        context: RequestContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        // A known method whose params do not fit is taken for an unknown one by the time that it arrives here.
        let known = match request.method.as_str() {
            "tools/call" | "tools/list" | "server/discover" => true,
            // The newest era has none.
            "initialize" => context.meta.protocol_version().is_none(),
            _ => false,
        };
        if known {
            let message = format!("The params of {} do not fit. Nothing was done.", request.method);
            return Err(rpc_error(&context, ErrorCode::INVALID_PARAMS, message));
        }
        let message = format!("There is no method {}. Nothing was done.", shortened(&request.method));
        Err(rpc_error(&context, ErrorCode::METHOD_NOT_FOUND, message))
    }
}
