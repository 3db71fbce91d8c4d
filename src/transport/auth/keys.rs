//! The issuer's keys: fetched, kept through its outages, and fetched again when a token names one that is not known.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::StreamExt;
use jsonwebtoken::{Algorithm, DecodingKey};
use reqwest::redirect::Policy;
use serde::Deserialize;
use serde_json::Value;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};
use tracing::{info, warn};
use url::Url;

use super::key::Key;
use crate::config::access::is_safe_url;
use crate::unpoisoned;

/// Keys that the issuer withdrew are known here for so long at most, as long as it can be reached.
const REFRESH_EVERY: Duration = Duration::from_secs(600);
/// Pause between two tries at the beginning, and while the issuer is out of reach.
const TRY_AGAIN: Duration = Duration::from_secs(5);
/// An outage of the issuer is survived for so long: past that nobody can tell whether a key was withdrawn.
const KEPT: Duration = Duration::from_secs(24 * 3_600);
/// Tokens that name an unknown key make this replica ask the issuer so often at most, and so do those that were signed with another
/// key than they name, however many come: each kind for itself, so that forgeries do not keep a rotation from being seen.
const ASK_PAUSE: Duration = Duration::from_secs(10);
/// Longest wait of a call for the issuer.
const ASK_LIMIT: Duration = Duration::from_secs(8);
/// Longest wait for one document.
const FETCH_LIMIT: Duration = Duration::from_secs(5);
/// Largest document, and most keys in it.
const LARGEST_DOCUMENT: usize = 256 * 1024;
const MOST_KEYS: usize = 64;

/// Where an issuer's keys are found.
#[derive(Debug, Clone)]
pub struct Source {
    /// The issuer, as it stands in `iss`.
    pub issuer: String,
    /// The keys' own address; `None` asks the issuer's metadata.
    pub jwks_url: Option<String>,
}

/// Why there is no key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Missing {
    /// The issuer has no such key.
    Unknown,
    /// The issuer cannot be reached, so nobody knows.
    Unreachable,
}

/// Why the issuer is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Reason {
    UnknownName,
    OtherSignature,
}

/// The keys of one issuer.
pub struct Keys {
    store: Arc<Store>,
    refresher: JoinHandle<()>,
}

impl Drop for Keys {
    fn drop(&mut self) {
        self.refresher.abort();
    }
}

struct Store {
    source: Source,
    client: reqwest::Client,
    known: Mutex<Known>,
    /// Held while the issuer is asked, so that it is asked once.
    asking: Arc<tokio::sync::Mutex<()>>,
}

#[derive(Default)]
struct Known {
    keys: Arc<[Key]>,
    fetched: Option<Instant>,
    /// When a token last made this replica ask, for each reason.
    asked: HashMap<Reason, Instant>,
    out_of_reach: bool,
}

/// A key, and as of when it is the issuer's.
pub struct Found {
    /// What verifies a signature.
    pub key: DecodingKey,
    fetched: Instant,
}

impl Keys {
    /// Begins to fetch the keys, and does so again from time to time.
    ///
    /// # Errors
    /// No TLS client can be made on this machine.
    pub fn start(source: Source) -> Result<Self, reqwest::Error> {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut client = reqwest::Client::builder()
            .timeout(FETCH_LIMIT)
            // A redirect could lead anywhere, and off https.
            .redirect(Policy::none());
        if source.issuer.starts_with("http://") {
            // Loopback: no certificates are needed, and no proxy leads there.
            client = client.no_proxy().tls_certs_only([]);
        }
        let store = Arc::new(Store {
            source,
            client: client.build()?,
            known: Mutex::default(),
            asking: Arc::default(),
        });
        let refresher = tokio::spawn(Arc::clone(&store).refresh_for_ever());
        Ok(Self { store, refresher })
    }

    /// The key that verifies a token with this header.
    ///
    /// # Errors
    /// There is none, or nobody knows.
    pub async fn find(&self, kid: Option<&str>, algorithm: Algorithm) -> Result<Found, Missing> {
        let known = || self.store.look(kid, algorithm);
        if let Some(key) = known() {
            return Ok(key);
        }
        let asked = timeout(ASK_LIMIT, self.ask(Reason::UnknownName, || known().is_some())).await;
        known().ok_or_else(|| asked.map_or(Missing::Unreachable, |()| self.store.missing()))
    }

    /// The key in the place of one that a token was not signed with: an issuer may have another one by now under the same name.
    /// `None` when it has not, or cannot be asked now.
    pub async fn find_newer(&self, old: &Found, kid: Option<&str>, algorithm: Algorithm) -> Option<Found> {
        let newer = || {
            let found = self.store.look(kid, algorithm);
            found.filter(|found| found.fetched > old.fetched)
        };
        if newer().is_none() {
            timeout(ASK_LIMIT, self.ask(Reason::OtherSignature, || newer().is_some()))
                .await
                .ok()?;
        }
        newer()
    }

    /// Asks the issuer for its keys, or waits for whoever asks already and looks whether they are `enough`.
    async fn ask(&self, reason: Reason, enough: impl Fn() -> bool) {
        let turn = Arc::clone(&self.store.asking).lock_owned().await;
        if enough() || !self.store.may_ask(reason) {
            return;
        }
        let store = Arc::clone(&self.store);
        // A task of its own: when this caller leaves, the others still learn what was asked for.
        let fetching = tokio::spawn(async move {
            store.fetch().await;
            drop(turn);
        });
        let _ = fetching.await;
    }
}

impl Store {
    fn look(&self, kid: Option<&str>, algorithm: Algorithm) -> Option<Found> {
        let known = unpoisoned(self.known.lock());
        let fetched = known.fetched.filter(|fetched| fetched.elapsed() <= KEPT)?;
        let suitable = || known.keys.iter().filter(|key| key.suits(algorithm));
        // Names need not be given, in a token or in the set, where there is only one key that it can be.
        let mut nameless = suitable().filter(|key| kid.is_none() || key.name().is_none());
        let named = suitable().find(|key| kid.is_some() && key.name() == kid);
        let key = named.or_else(|| nameless.next().filter(|_| nameless.next().is_none()))?;
        Some(Found {
            key: key.decoding.clone(),
            fetched,
        })
    }

    /// Whether a token may make this replica ask the issuer now; takes note that it does.
    fn may_ask(&self, reason: Reason) -> bool {
        let mut known = unpoisoned(self.known.lock());
        let pause = if known.fetched.is_some() {
            ASK_PAUSE
        } else {
            Duration::from_secs(1)
        };
        let may = known.asked.get(&reason).is_none_or(|asked| asked.elapsed() >= pause);
        if may {
            known.asked.insert(reason, Instant::now());
        }
        may
    }

    fn missing(&self) -> Missing {
        let known = unpoisoned(self.known.lock());
        if known.out_of_reach || known.fetched.is_none() {
            Missing::Unreachable
        } else {
            Missing::Unknown
        }
    }

    async fn refresh_for_ever(self: Arc<Self>) {
        loop {
            let reached = {
                let _turn = self.asking.lock().await;
                self.fetch().await
            };
            sleep(if reached { REFRESH_EVERY } else { TRY_AGAIN }).await;
        }
    }

    /// Asks the issuer, and keeps what was known if it does not answer. Says once that it is out of reach, and once that it is back.
    async fn fetch(&self) -> bool {
        let fetched = self.fetch_keys().await;
        let mut known = unpoisoned(self.known.lock());
        match fetched {
            Ok(keys) => {
                if known.out_of_reach || known.fetched.is_none() {
                    info!(
                        issuer = self.source.issuer,
                        keys = keys.len(),
                        "the issuer's keys are known"
                    );
                }
                known.keys = keys.into();
                known.fetched = Some(Instant::now());
                known.out_of_reach = false;
                true
            }
            Err(reason) => {
                if !known.out_of_reach {
                    let kept = known.keys.len();
                    warn!(
                        issuer = self.source.issuer,
                        reason, kept, "the issuer's keys cannot be fetched"
                    );
                }
                known.out_of_reach = true;
                false
            }
        }
    }

    async fn fetch_keys(&self) -> Result<Vec<Key>, String> {
        #[derive(Deserialize)]
        struct Document {
            keys: Vec<Value>,
        }
        let url = match &self.source.jwks_url {
            Some(url) => url.clone(),
            None => self.discover().await?,
        };
        let document: Document = self.get(&url).await?;
        // One key that cannot be read does not make the others useless. None at all is an answer too: an issuer that withdraws
        // every key means it.
        let mut keys: Vec<Key> = document.keys.into_iter().filter_map(Key::read).collect();
        if keys.is_empty() {
            warn!(
                url,
                "the issuer has no key that can verify a signature; no token is good"
            );
        }
        if keys.len() > MOST_KEYS {
            warn!(
                url,
                keys = keys.len(),
                MOST_KEYS,
                "the issuer has more keys than are looked at"
            );
            keys.truncate(MOST_KEYS);
        }
        Ok(keys)
    }

    /// The keys' address, from the issuer's metadata by RFC 8414 or OpenID Connect.
    async fn discover(&self) -> Result<String, String> {
        #[derive(Deserialize)]
        struct Metadata {
            issuer: String,
            jwks_uri: String,
        }
        let mut reasons = Vec::new();
        for url in metadata_urls(&self.source.issuer) {
            match self.get::<Metadata>(&url).await {
                Ok(found) if found.issuer != self.source.issuer => {
                    reasons.push(format!("{url} speaks for {}, not for OAUTH_ISSUER", found.issuer));
                }
                Ok(found) if !is_safe_url(found.jwks_uri.split('?').next().unwrap_or_default()) => {
                    reasons.push(format!("{url} names keys that are not fetched by https"));
                }
                Ok(found) => return Ok(found.jwks_uri),
                Err(reason) => reasons.push(reason),
            }
        }
        Err(reasons.join("; "))
    }

    async fn get<T: for<'de> Deserialize<'de>>(&self, url: &str) -> Result<T, String> {
        let failed = |error: reqwest::Error| format!("{url}: {}", root_of(&error));
        let request = self.client.get(url).header("accept", "application/json");
        let response = request.send().await.map_err(failed)?;
        if !response.status().is_success() {
            return Err(format!("{url} answers {}", response.status()));
        }
        let mut bytes = Vec::new();
        let mut chunks = response.bytes_stream();
        while let Some(chunk) = chunks.next().await {
            bytes.extend_from_slice(&chunk.map_err(failed)?);
            if bytes.len() > LARGEST_DOCUMENT {
                return Err(format!("{url} is larger than {LARGEST_DOCUMENT} bytes"));
            }
        }
        serde_json::from_slice(&bytes).map_err(|error| format!("{url} cannot be read: {error}"))
    }
}

/// What lies at the bottom of an error; the rest repeats the URL.
fn root_of(error: &dyn std::error::Error) -> String {
    let mut root = error;
    while let Some(source) = root.source() {
        root = source;
    }
    root.to_string()
}

/// Where an issuer's metadata may be, in the order in which MCP clients look.
fn metadata_urls(issuer: &str) -> Vec<String> {
    let Ok(url) = Url::parse(issuer) else { return Vec::new() };
    let origin = url.origin().ascii_serialization();
    let path = url.path().trim_end_matches('/');
    let mut urls = vec![
        format!("{origin}/.well-known/oauth-authorization-server{path}"),
        format!("{origin}/.well-known/openid-configuration{path}"),
    ];
    if !path.is_empty() {
        urls.push(format!("{origin}{path}/.well-known/openid-configuration"));
    }
    urls
}

#[cfg(test)]
mod tests {
    use super::metadata_urls;

    #[test]
    fn metadata_is_looked_for_where_mcp_clients_look() {
        let plain =
            ["oauth-authorization-server", "openid-configuration"].map(|name| format!("https://id/.well-known/{name}"));
        assert_eq!(metadata_urls("https://id"), plain);
        assert_eq!(metadata_urls("https://id/"), plain);
        assert_eq!(
            metadata_urls("https://id:8443/tenant/1/"),
            [
                "https://id:8443/.well-known/oauth-authorization-server/tenant/1",
                "https://id:8443/.well-known/openid-configuration/tenant/1",
                "https://id:8443/tenant/1/.well-known/openid-configuration",
            ]
        );
    }
}
