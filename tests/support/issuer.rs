//! An OAuth issuer: it publishes keys and signs tokens, also such as it should not. What it signs it puts together by itself, and
//! not with the library that verifies it.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair, RSA_PKCS1_SHA256, RsaKeyPair,
};
use serde_json::{Value, json};
use tokio::net::TcpListener;

/// Where the service under test is found, as clients name it.
pub const PUBLIC_URL: &str = "https://tickets.example.org";
/// What tokens for it are made for.
pub const RESOURCE: &str = "https://tickets.example.org/mcp";

/// An issuer on loopback.
pub struct Issuer {
    /// As it stands in `iss`.
    pub url: String,
    published: Arc<Published>,
}

struct Published {
    url: String,
    keys: Mutex<Vec<Value>>,
    down: AtomicBool,
    asked: AtomicUsize,
}

impl Issuer {
    /// Publishes these keys.
    pub async fn with(keys: &[&Signer]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        // With a path, as many have.
        let url = format!("http://{}/tenant", listener.local_addr().expect("an address"));
        let published = Arc::new(Published {
            url: url.clone(),
            keys: Mutex::default(),
            down: AtomicBool::new(false),
            asked: AtomicUsize::new(0),
        });
        let router = Router::new()
            .route("/tenant/.well-known/openid-configuration", get(metadata))
            .route("/tenant/keys", get(published_keys))
            .with_state(Arc::clone(&published));
        tokio::spawn(async { axum::serve(listener, router).await });
        let issuer = Self { url, published };
        issuer.publish(keys);
        issuer
    }

    /// From now on these keys, and no others.
    pub fn publish(&self, keys: &[&Signer]) {
        *self.published.keys.lock().expect("the keys") = keys.iter().map(|key| key.jwk()).collect();
    }

    /// Publishes a key as it stands.
    pub fn publish_raw(&self, key: Value) {
        self.published.keys.lock().expect("the keys").push(key);
    }

    /// From now on it answers 503 to everything, or does not.
    pub fn set_down(&self, down: bool) {
        self.published.down.store(down, Ordering::SeqCst);
    }

    /// How often its keys were asked for.
    pub fn asked(&self) -> usize {
        self.published.asked.load(Ordering::SeqCst)
    }

    /// The claims of a good token for this subject.
    pub fn claims(&self, subject: &str, scope: &str) -> Value {
        let now = now();
        json!({
            "iss": self.url, "aud": RESOURCE, "sub": subject, "scope": scope, "client_id": "a-client",
            "iat": now, "exp": now + 600, "jti": uuid::Uuid::new_v4().to_string(),
        })
    }
}

async fn metadata(State(published): State<Arc<Published>>) -> Response {
    if published.down.load(Ordering::SeqCst) {
        return StatusCode::SERVICE_UNAVAILABLE.into_response();
    }
    let url = &published.url;
    as_json(&json!({ "issuer": url, "jwks_uri": format!("{url}/keys") }))
}

async fn published_keys(State(published): State<Arc<Published>>) -> Response {
    published.asked.fetch_add(1, Ordering::SeqCst);
    if published.down.load(Ordering::SeqCst) {
        return StatusCode::SERVICE_UNAVAILABLE.into_response();
    }
    let keys = published.keys.lock().expect("the keys").clone();
    as_json(&json!({ "keys": keys }))
}

fn as_json(document: &Value) -> Response {
    ([("content-type", "application/json")], document.to_string()).into_response()
}

/// Seconds since 1970, by this machine's clock.
pub fn now() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.expect("after 1970").as_secs()
}

/// Base64 as JWTs have it.
pub fn base64(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// What stands before the signature.
pub fn unsigned(header: &Value, claims: &Value) -> String {
    format!("{}.{}", base64(header.to_string()), base64(claims.to_string()))
}

/// A key pair, made when the test runs.
pub struct Signer {
    /// Its name.
    pub kid: String,
    pair: Pair,
}

enum Pair {
    Es256(EcdsaKeyPair),
    EdDsa(Ed25519KeyPair),
    Rs256(RsaKeyPair),
}

impl Signer {
    pub fn es256(kid: &str) -> Self {
        let random = SystemRandom::new();
        let document = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).expect("a key");
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, document.as_ref(), &random);
        Self {
            kid: kid.to_owned(),
            pair: Pair::Es256(pair.expect("a key")),
        }
    }

    pub fn eddsa(kid: &str) -> Self {
        let document = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).expect("a key");
        Self {
            kid: kid.to_owned(),
            pair: Pair::EdDsa(Ed25519KeyPair::from_pkcs8(document.as_ref()).expect("a key")),
        }
    }

    /// ring signs with RSA keys and does not make them.
    pub fn rs256(kid: &str) -> Self {
        let made = std::process::Command::new("openssl")
            .args(["genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048", "-outform", "DER"])
            .output()
            .expect("openssl is not installed. This test needs it: apt-get install openssl (Debian) or brew install openssl.");
        Self {
            kid: kid.to_owned(),
            // The one form or the other, by openssl's version.
            pair: Pair::Rs256(
                RsaKeyPair::from_der(&made.stdout)
                    .or_else(|_| RsaKeyPair::from_pkcs8(&made.stdout))
                    .expect("a key"),
            ),
        }
    }

    /// `alg` of what it signs.
    pub fn algorithm(&self) -> &'static str {
        match self.pair {
            Pair::Es256(_) => "ES256",
            Pair::EdDsa(_) => "EdDSA",
            Pair::Rs256(_) => "RS256",
        }
    }

    /// The public key as it is published.
    pub fn jwk(&self) -> Value {
        let mut jwk = match &self.pair {
            Pair::Es256(pair) => {
                let (x, y) = pair.public_key().as_ref()[1..].split_at(32);
                json!({ "kty": "EC", "crv": "P-256", "x": base64(x), "y": base64(y) })
            }
            Pair::EdDsa(pair) => json!({ "kty": "OKP", "crv": "Ed25519", "x": base64(pair.public_key()) }),
            Pair::Rs256(pair) => {
                let parts = ring::rsa::PublicKeyComponents::<Vec<u8>>::from(pair.public());
                json!({ "kty": "RSA", "n": base64(parts.n), "e": base64(parts.e) })
            }
        };
        jwk["kid"] = json!(self.kid);
        jwk["use"] = json!("sig");
        jwk["alg"] = json!(self.algorithm());
        jwk
    }

    /// The header of a good token.
    pub fn header(&self) -> Value {
        json!({ "alg": self.algorithm(), "typ": "at+jwt", "kid": self.kid })
    }

    /// A token with these claims.
    pub fn token(&self, claims: &Value) -> String {
        self.token_with(&self.header(), claims)
    }

    /// A token with this header, whatever it says.
    pub fn token_with(&self, header: &Value, claims: &Value) -> String {
        let message = unsigned(header, claims);
        let random = SystemRandom::new();
        let signature = match &self.pair {
            Pair::Es256(pair) => pair.sign(&random, message.as_bytes()).expect("signs").as_ref().to_vec(),
            Pair::EdDsa(pair) => pair.sign(message.as_bytes()).as_ref().to_vec(),
            Pair::Rs256(pair) => {
                let mut signature = vec![0; pair.public().modulus_len()];
                pair.sign(&RSA_PKCS1_SHA256, &random, message.as_bytes(), &mut signature)
                    .expect("signs");
                signature
            }
        };
        format!("{message}.{}", base64(signature))
    }
}
