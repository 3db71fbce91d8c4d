//! An access token of the issuer: a JWT by RFC 9068, or one that is near enough.

use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::{Algorithm, Validation, decode, decode_header};
use serde::Deserialize;

use super::keys::{Keys, Missing, Source};
use super::signatures;
use crate::config::access::{Access, Signing};
use crate::operation::caller::{LONGEST_SUBJECT, principal_of_subject};
use crate::operation::scope::Scopes;
use crate::operation::tokens::Grant;

/// What is wrong with a token. None of it helps to make a better one, and all of it helps whoever sets a connector up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Problem {
    Unreadable,
    Kind,
    Signing,
    Key,
    Signature,
    Issuer,
    Audience,
    Expired,
    NotYet,
    Claims,
    /// Of this service's own tokens: unknown, expired or revoked.
    Void,
}

impl Problem {
    /// In words that fit into a header.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unreadable => "the token cannot be read",
            Self::Kind => "the token is not an access token",
            Self::Signing => "the token is signed in a way that is not allowed",
            Self::Key => "the issuer has no key of this name",
            Self::Signature => "the token was not signed by the issuer",
            Self::Issuer => "the token is from another issuer",
            Self::Audience => "the token is for another audience",
            Self::Expired => "the token has expired",
            Self::NotYet => "the token is not valid yet",
            Self::Claims => "the token lacks a claim, or has one that cannot be used",
            Self::Void => "the token is unknown, expired or revoked",
        }
    }
}

/// Why a token does not let its bearer in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rejected {
    /// It is not good.
    Bad(Problem),
    /// Nobody knows: what it would be checked with is out of reach.
    CannotTell,
}

/// Checks access tokens.
pub struct Verifier {
    issuer: String,
    audience: String,
    algorithms: Vec<Algorithm>,
    leeway: u64,
    keys: Keys,
}

#[derive(Deserialize)]
struct Claims {
    iss: String,
    sub: String,
    scope: Option<Names>,
    /// Some issuers call it so.
    scp: Option<Names>,
}

/// `"a b"` by RFC 8693, `["a", "b"]` where an issuer likes lists.
#[derive(Deserialize)]
#[serde(untagged)]
enum Names {
    One(String),
    Many(Vec<String>),
}

impl Names {
    fn scopes(&self) -> Scopes {
        match self {
            Self::One(names) => Scopes::named(names.split(' ')),
            Self::Many(names) => Scopes::named(names.iter().map(String::as_str)),
        }
    }
}

impl Verifier {
    /// For `resource`, this service as clients name it.
    ///
    /// # Errors
    /// No TLS client can be made on this machine.
    pub fn start(access: &Access, issuer: &str, resource: String) -> Result<Self, reqwest::Error> {
        signatures::install();
        Ok(Self {
            issuer: issuer.to_owned(),
            audience: access.oauth_audience.clone().unwrap_or(resource),
            algorithms: access
                .oauth_algorithms
                .iter()
                .map(|signing| algorithm(*signing))
                .collect(),
            leeway: access.leeway().as_secs(),
            keys: Keys::start(Source {
                issuer: issuer.to_owned(),
                jwks_url: access.oauth_jwks_url.clone(),
            })?,
        })
    }

    /// What a token allows, and to whom.
    ///
    /// # Errors
    /// It is not good, or nobody knows.
    pub async fn verify(&self, token: &str) -> Result<Grant, Rejected> {
        let bad = |problem| Err(Rejected::Bad(problem));
        let Ok(header) = decode_header(token) else {
            return bad(Problem::Unreadable);
        };
        if !self.algorithms.contains(&header.alg) {
            return bad(Problem::Signing);
        }
        if !header.typ.as_deref().is_none_or(is_access_token) {
            return bad(Problem::Kind);
        }
        let kid = header.kid.as_deref();
        let found = match self.keys.find(kid, header.alg).await {
            Ok(found) => found,
            Err(Missing::Unknown) => return bad(Problem::Key),
            Err(Missing::Unreachable) => return Err(Rejected::CannotTell),
        };
        let mut validation = Validation::new(header.alg);
        validation.leeway = self.leeway;
        validation.validate_nbf = true;
        validation.set_required_spec_claims(&["exp", "iss", "aud", "sub"]);
        validation.set_issuer(&[&self.issuer]);
        validation.set_audience(&[&self.audience]);
        let mut decoded = decode::<Claims>(token, &found.key, &validation);
        if let Err(error) = &decoded
            && *error.kind() == ErrorKind::InvalidSignature
            && let Some(newer) = self.keys.find_newer(&found, kid, header.alg).await
        {
            decoded = decode::<Claims>(token, &newer.key, &validation);
        }
        let claims = match decoded {
            Ok(token) => token.claims,
            Err(error) => return bad(problem(error.kind())),
        };
        // jsonwebtoken takes a list of issuers too, of which one is right; a principal has one.
        let named = claims.iss == self.issuer && (1..=LONGEST_SUBJECT).contains(&claims.sub.len());
        if !named || claims.sub.contains('\0') {
            return bad(Problem::Claims);
        }
        let names = [&claims.scope, &claims.scp];
        let scopes = names.into_iter().flatten().flat_map(|names| names.scopes().iter());
        Ok(Grant {
            principal: principal_of_subject(&claims.iss, &claims.sub),
            scopes: scopes.collect(),
        })
    }
}

/// `typ` by RFC 9068, or what issuers wrote before it. Tokens for other purposes have words of their own there.
fn is_access_token(typ: &str) -> bool {
    let typ = typ.strip_prefix("application/").unwrap_or(typ);
    typ.eq_ignore_ascii_case("at+jwt") || typ.eq_ignore_ascii_case("jwt")
}

fn problem(kind: &ErrorKind) -> Problem {
    match kind {
        ErrorKind::ExpiredSignature => Problem::Expired,
        ErrorKind::ImmatureSignature => Problem::NotYet,
        ErrorKind::InvalidIssuer => Problem::Issuer,
        ErrorKind::InvalidAudience => Problem::Audience,
        ErrorKind::InvalidSignature => Problem::Signature,
        ErrorKind::InvalidAlgorithm | ErrorKind::UnsupportedAlgorithm => Problem::Signing,
        ErrorKind::MissingRequiredClaim(_) | ErrorKind::InvalidClaimFormat(_) | ErrorKind::InvalidSubject => {
            Problem::Claims
        }
        // Signed well, and its claims are not of the types that they should be.
        ErrorKind::Json(_) => Problem::Claims,
        _ => Problem::Unreadable,
    }
}

fn algorithm(signing: Signing) -> Algorithm {
    match signing {
        Signing::RS256 => Algorithm::RS256,
        Signing::RS384 => Algorithm::RS384,
        Signing::RS512 => Algorithm::RS512,
        Signing::PS256 => Algorithm::PS256,
        Signing::PS384 => Algorithm::PS384,
        Signing::PS512 => Algorithm::PS512,
        Signing::ES256 => Algorithm::ES256,
        Signing::ES384 => Algorithm::ES384,
        Signing::EdDSA => Algorithm::EdDSA,
    }
}
