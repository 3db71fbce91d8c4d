//! Who calls, what they may do, and by which way.

use std::sync::Arc;

use super::scope::Scopes;

/// By which way a call came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Via {
    /// MCP at /mcp.
    Mcp,
    /// HTTP below /api/v1.
    Http,
}

impl Via {
    /// Its name in rows and answers.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Mcp => "mcp",
            Self::Http => "http",
        }
    }
}

/// Who calls. It is put beside every request before anything else is made of it.
#[derive(Debug, Clone)]
pub struct Caller {
    /// Whose requests these are. Nobody sees another principal's.
    pub principal: Arc<str>,
    /// Whose units a write uses up: the principal, or its address where nobody is asked who they are.
    pub source: Arc<str>,
    /// What they may do.
    pub scopes: Scopes,
    /// They have so many calls under way that this one is answered from what is recorded, or not at all.
    pub crowded: bool,
}

/// The one principal while nobody is asked who they are.
pub const ANONYMOUS: &str = "anonymous";

/// Most bytes of an issuer and of a subject. The principal is part of a primary key, which Postgres holds to 2,704 bytes; a
/// subject of nothing but control characters is six times as long when it is written down.
pub const LONGEST_ISSUER: usize = 512;
/// As OpenID Connect has it.
pub const LONGEST_SUBJECT: usize = 255;

/// The principal of a token that speaks for nobody but itself. Each kind of principal but [`ANONYMOUS`] begins with its own word
/// and a colon, so no name makes it another kind's.
pub fn principal_of_token(name: &str) -> Arc<str> {
    format!("token:{name}").into()
}

/// The principal of somebody whom an issuer knows as `subject`. JSON keeps the two apart whatever characters they have; written
/// with a separator, ("a", "b|c") and ("a|b", "c") would be one.
pub fn principal_of_subject(issuer: &str, subject: &str) -> Arc<str> {
    format!("oauth:{}", serde_json::json!([issuer, subject])).into()
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::{ANONYMOUS, LONGEST_ISSUER, LONGEST_SUBJECT, principal_of_subject, principal_of_token};

    #[test]
    fn no_two_callers_are_one_principal() {
        let mut seen = HashMap::new();
        let parts = [
            "",
            "a",
            "b",
            "a|b",
            "b|c",
            "a\",\"b",
            "\\",
            "\"",
            ",",
            "[",
            "é",
            "e\u{301}",
            "\u{0}",
            "anonymous",
        ];
        for issuer in parts {
            for subject in parts {
                let principal = principal_of_subject(issuer, subject);
                assert_eq!(seen.insert(principal, (issuer, subject)), None);
            }
        }
        for name in parts {
            assert_eq!(seen.insert(principal_of_token(name), (name, "a token")), None);
        }
        assert!(!seen.contains_key(ANONYMOUS));
    }

    #[test]
    fn the_longest_principal_fits_into_a_key_with_the_longest_request_id() {
        let issuer = format!("https://{}", "i".repeat(LONGEST_ISSUER - 8));
        let principal = principal_of_subject(&issuer, &"\u{1}".repeat(LONGEST_SUBJECT));
        assert!(principal.len() + 4 * 64 < 2_600, "{}", principal.len());
    }

    proptest! {
        #[test]
        fn a_principal_tells_its_issuer_and_subject(issuer: String, subject: String) {
            let principal = principal_of_subject(&issuer, &subject);
            let parts: [String; 2] = serde_json::from_str(principal.strip_prefix("oauth:").unwrap_or_default()).unwrap();
            prop_assert_eq!(parts, [issuer, subject]);
        }
    }
}
