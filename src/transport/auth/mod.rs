//! Who calls: found out before anything is made of a request, its body included.

mod address;
mod challenge;
mod key;
mod keys;
mod oauth;
mod seats;
mod signatures;

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::header;
use axum::middleware::Next;
use axum::response::Response;
use ipnet::IpNet;
use tracing::{info, warn};

use self::challenge::Challenge;
use self::oauth::{Problem, Rejected, Verifier};
use self::seats::Seats;
use super::body;
use super::carried::keeping;
use crate::config::Config;
use crate::config::access::Auth;
use crate::operation::caller::{ANONYMOUS, Caller};
use crate::operation::run::Service;
use crate::operation::scope::{Scope, Scopes};
use crate::operation::tokens::{Grant, LookUpError, PREFIX, TokenBook};

pub use self::address::Peer;
pub use self::challenge::{METADATA, NeedsScope, metadata};

/// The body of a call that is refused unread is waited for so long at most.
const DISCARD_LIMIT: Duration = Duration::from_secs(2);

/// Lets callers in, or not.
pub struct Door {
    anonymous: bool,
    tokens: Option<TokenBook>,
    oauth: Option<Verifier>,
    challenge: Challenge,
    proxies: Vec<IpNet>,
    seats: Seats,
    max_body_bytes: usize,
}

/// Why a caller is not let in.
enum Turned {
    /// 400.
    Malformed(&'static str),
    /// 401.
    Unknown(Option<Problem>),
    /// 503.
    CannotTell,
}

impl Door {
    /// As this replica is configured.
    ///
    /// # Errors
    /// No TLS client can be made on this machine.
    pub fn new(config: &Config, service: &Service) -> std::io::Result<Self> {
        let access = &config.access;
        let origin = config.public_origin();
        let issuer = access.oauth_issuer.clone().filter(|_| access.asks(Auth::Oauth));
        let oauth = match (&origin, &issuer) {
            (Some(origin), Some(issuer)) => {
                let verifier = Verifier::start(access, issuer, Challenge::resource(origin));
                Some(verifier.map_err(std::io::Error::other)?)
            }
            _ => None,
        };
        let tokens = access.asks(Auth::Token);
        Ok(Self {
            anonymous: access.is_anonymous(),
            tokens: tokens.then(|| TokenBook::new(service.ledger.database().clone())),
            oauth,
            challenge: Challenge {
                origin,
                issuer,
                scopes: service.registry.iter().filter_map(|tool| tool.card().scope()).collect(),
            },
            proxies: access.trusted_proxies.clone(),
            seats: Seats::new(config.wire.max_calls_per_principal),
            max_body_bytes: config.max_body_bytes,
        })
    }

    /// What clients ask before they have a token.
    pub fn challenge(&self) -> &Challenge {
        &self.challenge
    }

    /// Everybody is one principal. Who comes from elsewhere than this machine is no operator.
    fn nobody(&self, request: &Request) -> Caller {
        let peer = request.extensions().get::<Peer>();
        let peer = peer.map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |Peer(peer)| peer.ip());
        let address = address::client(peer, request.headers(), &self.proxies);
        let scopes = Scopes::all();
        Caller {
            principal: ANONYMOUS.into(),
            source: address::source(address).into(),
            scopes: if address.is_loopback() {
                scopes
            } else {
                scopes.without(Scope::Admin)
            },
            crowded: false,
        }
    }

    async fn check(&self, token: Result<String, Turned>) -> Result<Grant, Turned> {
        let token = &token?;
        let found = match (&self.tokens, &self.oauth) {
            (Some(tokens), _) if token.starts_with(PREFIX) => match tokens.find(token).await {
                Ok(grant) => grant.ok_or(Rejected::Bad(Problem::Void)),
                Err(error) => {
                    if let LookUpError::Database(error) = error {
                        warn!(%error, "a token could not be looked up");
                    }
                    return Err(Turned::CannotTell);
                }
            },
            (_, Some(oauth)) => oauth.verify(token).await,
            _ => Err(Rejected::Bad(Problem::Void)),
        };
        found.map_err(|rejected| match rejected {
            Rejected::Bad(problem) => Turned::Unknown(Some(problem)),
            Rejected::CannotTell => Turned::CannotTell,
        })
    }
}

/// The token of a request, from its header alone: what stands in a URL is logged by everything on the way.
fn bearer(request: &Request) -> Result<String, Turned> {
    let query = request.uri().query().unwrap_or_default();
    if query
        .split('&')
        .any(|pair| pair.split('=').next() == Some("access_token"))
    {
        return Err(Turned::Malformed(
            "An access token is taken from the Authorization header, never from the URL.",
        ));
    }
    let mut values = request.headers().get_all(header::AUTHORIZATION).iter();
    let Some(value) = values.next() else {
        return Err(Turned::Unknown(None));
    };
    if values.next().is_some() {
        return Err(Turned::Malformed("Authorization is given twice."));
    }
    let value = value.to_str().map_err(|_| Turned::Unknown(Some(Problem::Unreadable)))?;
    let (scheme, token) = value.split_once(' ').unwrap_or((value, ""));
    if !scheme.eq_ignore_ascii_case("bearer") {
        return Err(Turned::Unknown(None));
    }
    let token = token.trim_matches(' ');
    // RFC 6750: token68.
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~+/=".contains(&byte);
    if token.is_empty() || !token.bytes().all(fits) {
        return Err(Turned::Unknown(Some(Problem::Unreadable)));
    }
    Ok(token.to_owned())
}

/// The layer around everything that takes calls.
pub async fn admit(State(door): State<Arc<Door>>, mut request: Request, next: Next) -> Response {
    if door.anonymous {
        let caller = door.nobody(&request);
        request.extensions_mut().insert(caller);
        return next.run(request).await;
    }
    let token = bearer(&request);
    let turned = match door.check(token).await {
        Ok(grant) => match door.seats.take(&grant.principal) {
            Some(seat) => {
                request.extensions_mut().insert(Caller {
                    source: Arc::clone(&grant.principal),
                    principal: grant.principal,
                    scopes: grant.scopes,
                    crowded: seat.crowded,
                });
                let mut response = next.run(request).await;
                door.challenge.complete(&mut response, grant.scopes);
                return keeping(response, seat);
            }
            None => Challenge::too_many(),
        },
        Err(Turned::Malformed(what)) => door.challenge.malformed(what),
        Err(Turned::Unknown(problem)) => {
            let reason = problem.map_or("no token was sent", Problem::as_str);
            info!(reason, "a caller was turned away");
            door.challenge.unauthenticated(problem)
        }
        Err(Turned::CannotTell) => Challenge::cannot_tell(),
    };
    // A connection that is closed with bytes unread loses the answer on its way to the caller.
    body::discard(request.into_body(), door.max_body_bytes, DISCARD_LIMIT).await;
    turned
}
