//! What a caller who may not come in is told, in the words of RFC 6750 and RFC 9728: over HTTP, and over MCP just so, because
//! clients look for them there.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use serde_json::{Value, json};

use super::super::front::{json as json_response, refused};
use super::oauth::Problem;
use crate::operation::answer::{Code, Refusal};
use crate::operation::scope::{Scope, Scopes};

/// Where RFC 9728 has clients look for a resource's metadata: in front of its path.
pub const METADATA: &str = "/.well-known/oauth-protected-resource";

/// In a response: the scope whose lack it tells.
#[derive(Debug, Clone, Copy)]
pub struct NeedsScope(pub Scope);

/// What challenges are made from.
#[derive(Debug, Clone)]
pub struct Challenge {
    /// Where this service is found, where there is an issuer; without a path.
    pub origin: Option<String>,
    /// The issuer, as clients need it.
    pub issuer: Option<String>,
    /// What a caller may ask for.
    pub scopes: Scopes,
}

impl Challenge {
    /// This service as clients name it and tokens are made for it.
    pub fn resource(origin: &str) -> String {
        format!("{origin}/mcp")
    }

    /// The metadata of RFC 9728; `None` without an issuer.
    pub fn metadata(&self) -> Option<Value> {
        let (origin, issuer) = (self.origin.as_ref()?, self.issuer.as_ref()?);
        Some(json!({
            "resource": Self::resource(origin),
            "authorization_servers": [issuer],
            "scopes_supported": self.scopes.names(),
            "bearer_methods_supported": ["header"],
            "resource_name": "ticket-ledger",
        }))
    }

    /// 401: nobody knows who calls.
    pub fn unauthenticated(&self, problem: Option<Problem>) -> Response {
        let (message, next) = match problem {
            None => (
                "No access token was sent, so it is not known who calls.".to_owned(),
                "Authenticate (Authorization: Bearer …), then repeat the same call with the same request_id.",
            ),
            Some(problem) => (
                format!("The access token was refused: {}.", problem.as_str()),
                "Get a new access token, then repeat the same call with the same request_id.",
            ),
        };
        let message = format!("{message} The call was not begun; whether an earlier one was done is not said here.");
        let mut response = refused(&Refusal::new(Code::Unauthenticated, message, next), None);
        let error = problem.map(|problem| ("invalid_token", problem.as_str()));
        self.add_to(&mut response, error, self.scopes);
        response
    }

    /// 400: credentials in a form that they must not have.
    pub fn malformed(&self, what: &'static str) -> Response {
        let mut response = refused(&Refusal::invalid(what), Some(StatusCode::BAD_REQUEST));
        self.add_to(&mut response, Some(("invalid_request", what)), self.scopes);
        response
    }

    /// 503: what a token would be checked with is out of reach.
    pub fn cannot_tell() -> Response {
        let refusal = Refusal::unavailable(
            "The access token cannot be checked at the moment. The call was not begun; whether an earlier one was done is not said here.",
            2,
        );
        refused(&refusal, None)
    }

    /// 503: as many calls under way as there may be.
    pub fn too_many() -> Response {
        let refusal = Refusal::unavailable(
            "You have more calls under way on this replica than one caller may. This one was not begun here.",
            1,
        );
        refused(&refusal, None)
    }

    /// To a 403 that a transport made: which scope to ask for, beside those that the caller has and would lose otherwise.
    pub fn complete(&self, response: &mut Response, granted: Scopes) {
        if let Some(NeedsScope(scope)) = response.extensions().get().copied() {
            self.add_to(
                response,
                Some(("insufficient_scope", "the call needs another scope")),
                granted.with(scope),
            );
        }
    }

    fn add_to(&self, response: &mut Response, error: Option<(&str, &str)>, scopes: Scopes) {
        let mut parts = Vec::new();
        if let Some((error, description)) = error {
            parts.push(format!("error=\"{error}\", error_description=\"{description}\""));
        }
        match (&self.origin, &self.issuer) {
            (Some(origin), Some(_)) => parts.push(format!("resource_metadata=\"{origin}{METADATA}/mcp\"")),
            _ => parts.push("realm=\"ticket-ledger\"".to_owned()),
        }
        if !scopes.is_empty() {
            parts.push(format!("scope=\"{scopes}\""));
        }
        if let Ok(challenge) = HeaderValue::from_str(&format!("Bearer {}", parts.join(", "))) {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
        }
    }
}

/// The metadata, to whoever asks: it is needed to get a token.
pub fn metadata(challenge: &Challenge) -> Option<Response> {
    Some(json_response(StatusCode::OK, &challenge.metadata()?))
}
