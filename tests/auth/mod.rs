//! Who may call, what they may, and what they are told when they may not.

mod keys;
mod oauth;
mod principals;
mod settings;
mod strangers;
mod tokens;

use crate::support::calls::Answer;

/// What every token that writes and reads tickets allows.
const TICKETS: [&str; 2] = ["--scopes", "tickets:read,tickets:write"];

/// An answer is a 401 that says why in its challenge.
#[track_caller]
fn is_unauthenticated(answer: &Answer, why: Option<&str>) {
    assert_eq!((answer.status, answer.code()), (401, "unauthenticated"), "{answer:?}");
    let challenge = answer.challenge();
    assert!(challenge.starts_with("Bearer "), "{answer:?}");
    match why {
        None => assert!(!challenge.contains("error"), "{challenge}"),
        Some(why) => {
            let expected = format!("error=\"invalid_token\", error_description=\"{why}\"");
            assert!(challenge.contains(&expected), "{challenge}");
        }
    }
    assert!(
        challenge.contains("scope=\"tickets:read tickets:write\""),
        "{challenge}"
    );
    is_a_sentence(answer);
}

/// An answer is a 403 that says which scope is needed, beside those that its caller has.
#[track_caller]
fn is_forbidden(answer: &Answer, scopes: &str) {
    assert_eq!((answer.status, answer.code()), (403, "forbidden"), "{answer:?}");
    let challenge = answer.challenge();
    assert!(
        challenge.starts_with("Bearer error=\"insufficient_scope\""),
        "{answer:?}"
    );
    assert!(challenge.contains(&format!("scope=\"{scopes}\"")), "{challenge}");
    is_a_sentence(answer);
}

#[track_caller]
fn is_a_sentence(answer: &Answer) {
    let error = &answer.body["error"];
    let message = error["message"].as_str().expect("a message");
    assert!(message.contains("not said here"), "{message}");
    assert!(
        error["next"].as_str().is_some_and(|next| next.contains("request_id")),
        "{answer:?}"
    );
}
