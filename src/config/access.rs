//! Who may call, and how that is found out.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use clap::{Args, ValueEnum};
use ipnet::IpNet;
use url::Url;

use super::Findings;
use crate::operation::caller::LONGEST_ISSUER;

/// A way to find out who calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Auth {
    /// Nobody is asked: everybody is one principal.
    None,
    /// Tokens of this service's own, issued by an operator.
    Token,
    /// Access tokens of an OAuth issuer, as claude.ai sends them.
    Oauth,
}

/// How an access token may be signed. Only ways whose verifying key is public: with a shared secret a token could be signed by
/// whoever verifies, and a public key could be passed off as a secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "verbatim")]
#[allow(missing_docs, reason = "they are the names of RFC 7518 and RFC 8037")]
pub enum Signing {
    RS256,
    RS384,
    RS512,
    PS256,
    PS384,
    PS512,
    ES256,
    ES384,
    EdDSA,
}

/// The settings of this part.
#[derive(Debug, Clone, Args)]
#[command(rename_all = "kebab-case")]
pub struct Access {
    /// How callers say who they are: none, or token, oauth or both
    #[arg(long, env = "AUTH", value_delimiter = ',', default_value = "none")]
    pub auth: Vec<Auth>,

    /// The issuer of access tokens, exactly as it stands in their `iss`; needed by oauth
    #[arg(long, env = "OAUTH_ISSUER")]
    pub oauth_issuer: Option<String>,

    /// What must stand in an access token's `aud` [default: PUBLIC_URL and /mcp]
    #[arg(long, env = "OAUTH_AUDIENCE")]
    pub oauth_audience: Option<String>,

    /// Where the issuer's keys are found [default: what the issuer's own metadata says]
    #[arg(long, env = "OAUTH_JWKS_URL")]
    pub oauth_jwks_url: Option<String>,

    /// How access tokens may be signed
    #[arg(
        long,
        env = "OAUTH_ALGORITHMS",
        value_delimiter = ',',
        default_value = "RS256,RS384,RS512,PS256,PS384,PS512,ES256,ES384,EdDSA"
    )]
    pub oauth_algorithms: Vec<Signing>,

    /// By how much the issuer's clock may differ from this machine's, in seconds (0 to 300)
    #[arg(long, env = "OAUTH_LEEWAY_SECONDS", default_value_t = 30)]
    pub oauth_leeway_seconds: u64,

    /// Networks of balancers whose X-Forwarded-For is believed, such as 10.0.0.0/8
    #[arg(long, env = "TRUSTED_PROXIES", value_delimiter = ',', value_parser = network)]
    pub trusted_proxies: Vec<IpNet>,

    /// Listen beyond loopback although nobody is asked who they are
    #[arg(long, env = "INSECURE_ALLOW_ANONYMOUS", default_value_t = false)]
    pub insecure_allow_anonymous: bool,
}

impl Access {
    /// Whether callers may say who they are in this way.
    pub fn asks(&self, way: Auth) -> bool {
        self.auth.contains(&way)
    }

    /// Whether nobody is asked.
    pub fn is_anonymous(&self) -> bool {
        self.asks(Auth::None)
    }

    /// By how much clocks may differ.
    pub fn leeway(&self) -> Duration {
        Duration::from_secs(self.oauth_leeway_seconds)
    }

    pub(super) fn examine(&self, listen: SocketAddr, public_url: Option<&str>, findings: &mut Findings) {
        let anonymous = self.is_anonymous();
        let beyond = !listen.ip().is_loopback();
        findings.refuse(
            self.auth.is_empty() || (anonymous && self.auth.iter().any(|way| *way != Auth::None)),
            || "AUTH is none, or token, oauth or both: none beside another would let everybody in.".to_owned(),
        );
        findings.refuse(anonymous && beyond && !self.insecure_allow_anonymous, || {
            format!(
                "LISTEN_ADDR is {listen}: anyone who reaches it could read and write everything, so beyond loopback it takes \
                 AUTH=token or AUTH=oauth, or else --insecure-allow-anonymous."
            )
        });
        findings.warn(anonymous && beyond, || {
            format!("Anyone who reaches {listen} may read and write everything: nobody is asked who they are.")
        });
        findings.refuse(self.oauth_leeway_seconds > 300, || {
            format!(
                "OAUTH_LEEWAY_SECONDS is {}: at most 300, because for so long an expired token is still taken.",
                self.oauth_leeway_seconds
            )
        });
        if self.asks(Auth::Oauth) {
            self.examine_oauth(public_url, findings);
        } else {
            let given = [&self.oauth_issuer, &self.oauth_audience, &self.oauth_jwks_url];
            findings.warn(given.iter().any(|setting| setting.is_some()), || {
                "OAUTH_ISSUER, OAUTH_AUDIENCE or OAUTH_JWKS_URL is set, but AUTH does not name oauth: they are not used.".to_owned()
            });
        }
    }

    fn examine_oauth(&self, public_url: Option<&str>, findings: &mut Findings) {
        findings.refuse(public_url.is_none(), || {
            "AUTH names oauth, which needs PUBLIC_URL: clients find the issuer by it, and tokens are made for it."
                .to_owned()
        });
        match &self.oauth_issuer {
            None => findings.refuse(true, || {
                "AUTH names oauth, which needs OAUTH_ISSUER: the URL of the authorization server.".to_owned()
            }),
            Some(issuer) => {
                findings.refuse(!is_safe_url(issuer) || issuer.len() > LONGEST_ISSUER, || {
                    format!(
                        "OAUTH_ISSUER is {issuer}: it must be an https URL without query or fragment, of at most {LONGEST_ISSUER} bytes \
                         (http on loopback alone)."
                    )
                });
            }
        }
        if let Some(url) = &self.oauth_jwks_url {
            findings.refuse(!is_safe_url(url.split('?').next().unwrap_or_default()), || {
                "OAUTH_JWKS_URL must be an https URL without a name and password in it (http on loopback alone)."
                    .to_owned()
            });
        }
        findings.refuse(self.oauth_audience.as_ref().is_some_and(String::is_empty), || {
            "OAUTH_AUDIENCE is empty: leave it out for PUBLIC_URL and /mcp.".to_owned()
        });
        findings.refuse(public_url.is_some_and(|url| !is_safe_url(url)), || {
            "PUBLIC_URL must be https with AUTH=oauth (http on loopback alone): tokens are sent to it.".to_owned()
        });
    }
}

/// A network, or a single address.
fn network(text: &str) -> Result<IpNet, String> {
    let alone = |_| text.parse::<IpAddr>().map(IpNet::from);
    text.parse()
        .or_else(alone)
        .map_err(|_| "it is no network such as 10.0.0.0/8, and no address".to_owned())
}

/// Whether what is fetched from here, or sent here, cannot be read or changed on the way: https, or a way that does not leave
/// this machine.
pub fn is_safe_url(text: &str) -> bool {
    let Ok(url) = Url::parse(text) else { return false };
    let local = match url.host() {
        Some(url::Host::Domain(name)) => name == "localhost",
        Some(url::Host::Ipv4(address)) => address.is_loopback(),
        Some(url::Host::Ipv6(address)) => address.is_loopback(),
        None => return false,
    };
    let plain =
        url.query().is_none() && url.fragment().is_none() && url.username().is_empty() && url.password().is_none();
    plain && (url.scheme() == "https" || (url.scheme() == "http" && local))
}

#[cfg(test)]
mod tests {
    use super::is_safe_url;

    #[test]
    fn a_url_is_safe_when_nobody_on_the_way_can_change_what_comes_from_it() {
        for safe in [
            "https://id.example.org",
            "https://id.example.org/tenant/",
            "http://127.0.0.1:9/x",
            "http://[::1]:9",
            "http://localhost",
        ] {
            assert!(is_safe_url(safe), "{safe}");
        }
        for unsafe_url in [
            "",
            "id.example.org",
            "http://id.example.org",
            "http://10.0.0.1",
            "ftp://localhost",
            "https://",
            "https://a@b",
            "https://a?b",
            "https://a#b",
            "http://localhost.example.org",
        ] {
            assert!(!is_safe_url(unsafe_url), "{unsafe_url}");
        }
    }
}
