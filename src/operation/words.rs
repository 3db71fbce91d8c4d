//! What models and programs are told of calling, wherever they look: in tools, in instructions, in the description of HTTP.

use super::{Card, Class};

/// What every write has in common, added to its description.
const EVERY_WRITE: &str = " Safe to call again: choose one request_id for this one intent (new_request_id gives you one) and note it \
    before you call. After an error, a timeout or a lost answer, ask find_request, then make the same call again with the same \
    request_id and the same arguments; never take a new request_id for a repeat. status done means done; in_progress means not \
    finished yet: wait retry_after_seconds and make the same call again. Until an answer settles it, report the write as unconfirmed.";

/// What a model is told of the whole server.
pub const INSTRUCTIONS: &str = "Every write here is safe to call again, as long as the repeat carries the same request_id. \
    Before a write, choose one request_id for that one intent (new_request_id gives you one) and note it. After an error, a timeout \
    or a lost answer the write may or may not have been done: ask find_request with that request_id, then make the same call again \
    with the same request_id and the same arguments. Never take a new request_id for a repeat: that would do the work twice. A new \
    intent takes a new request_id. status done: it is done, and replayed true means that an earlier call did it. status in_progress: \
    it is not finished and has not failed; wait retry_after_seconds and make the same call again. An error's next says what to do. \
    Until an answer settles it, report the write as unconfirmed, not as done and not as failed.";

/// What an operation does, and for a write how to call it again.
pub fn description(card: &Card) -> String {
    let common = if matches!(card.class, Class::ReadOnly) {
        ""
    } else {
        EVERY_WRITE
    };
    format!("{}{common}", card.description)
}
