//! The names that a request goes by, as an operator lists them.

use url::Url;

/// A host as it stands in a Host header, or nothing.
///
/// # Errors
/// A sentence: it could never match.
pub fn host(text: &str) -> Result<String, String> {
    let name = text.trim();
    let url = Url::parse(&format!("http://{name}"));
    let bare = url.is_ok_and(|url| url.path() == "/" && url.username().is_empty() && url.query().is_none());
    if name.is_empty() || (bare && !name.contains(['*', '/', '?', '#', '@'])) {
        return Ok(name.to_owned());
    }
    Err("it is no host such as tickets.example.org or [::1]:8000; there is no sign for all of them".to_owned())
}

/// An origin as browsers send it, with `:*` in the place of a port for any; or nothing.
///
/// # Errors
/// A sentence: it could never match, or would match every page.
pub fn origin(text: &str) -> Result<String, String> {
    let origin = text.trim();
    let named = origin.strip_suffix(":*").unwrap_or(origin);
    let same = |url: Url| {
        let plain = url.origin().ascii_serialization();
        // A port that goes without saying is not sent.
        url.has_host() && plain.eq_ignore_ascii_case(named)
    };
    if origin.is_empty() || (!named.contains('*') && Url::parse(named).is_ok_and(same)) {
        return Ok(origin.to_owned());
    }
    Err("it is no origin such as https://claude.ai or http://localhost:*, without anything behind it; null, or a sign for all of them, \
         would let any page in"
        .to_owned())
}

#[cfg(test)]
mod tests {
    use super::{host, origin};

    #[test]
    fn what_could_never_match_or_would_match_everything_is_no_name() {
        for good in [
            "",
            "localhost",
            "127.0.0.1:8000",
            "[::1]",
            "[::1]:8000",
            "Tickets.example.org",
        ] {
            assert!(host(good).is_ok(), "{good}");
        }
        for bad in [
            "*",
            "*.example.org",
            "https://a.example.org",
            "a/b",
            "a b",
            "a:port",
            "a@b",
            "a/",
        ] {
            assert!(host(bad).is_err(), "{bad}");
        }
        for good in [
            "",
            "https://claude.ai",
            "http://localhost:*",
            "http://[::1]:5173",
            "HTTPS://Claude.ai",
        ] {
            assert!(origin(good).is_ok(), "{good}");
        }
        for bad in [
            "*",
            "null",
            "claude.ai",
            "https://claude.ai/",
            "https://claude.ai:443",
            "https://*.claude.ai",
            "https://claude.ai/mcp",
            "https://a@claude.ai",
            "file:///",
            "data:,",
        ] {
            assert!(origin(bad).is_err(), "{bad}");
        }
    }
}
