//! request_ids and fingerprints.

use serde_json::{Map, Value};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::answer::Refusal;
use crate::ledger::Fingerprint;

/// Most code points in a request_id.
pub const MOST_CODE_POINTS: usize = 64;

/// Takes the request_id out of the arguments and checks it. It is compared byte for byte and not normalised.
///
/// # Errors
/// `invalid_argument`: absent, not a text, empty, longer than 64 code points, with control characters, or with white space
/// at either end.
pub fn take_request_id(arguments: &mut Map<String, Value>) -> Result<String, Refusal> {
    match arguments.remove("request_id") {
        Some(Value::String(request_id)) => {
            check_request_id(&request_id)?;
            Ok(request_id)
        }
        None | Some(Value::Null) => Err(Refusal::invalid(
            "request_id is missing: choose one for this intent (new_request_id gives you one) and note it before you call.",
        )),
        Some(_) => Err(Refusal::invalid("request_id must be a text.")),
    }
}

/// See [`take_request_id`].
///
/// # Errors
/// `invalid_argument`.
pub fn check_request_id(request_id: &str) -> Result<(), Refusal> {
    let wrong = if request_id.is_empty() {
        "it is empty"
    } else if request_id.chars().count() > MOST_CODE_POINTS {
        "it is longer than 64 characters"
    } else if request_id.chars().any(char::is_control) {
        "it contains a control character"
    } else if request_id.trim() != request_id {
        "it begins or ends with white space"
    } else {
        return Ok(());
    };
    Err(Refusal::invalid(format!(
        "request_id must be 1 to 64 characters without control characters and without white space at either end; {wrong}."
    )))
}

/// When a UUIDv7 says that it was made, in milliseconds since 1970; `None` for any other key.
pub fn minted_ms(request_id: &str) -> Option<i64> {
    if request_id.len() != 36 {
        return None;
    }
    let uuid = Uuid::try_parse(request_id).ok()?;
    if uuid.get_version_num() != 7 {
        return None;
    }
    let (seconds, nanoseconds) = uuid.get_timestamp()?.to_unix();
    i64::try_from(seconds)
        .ok()?
        .checked_mul(1_000)?
        .checked_add(i64::from(nanoseconds) / 1_000_000)
}

/// Canonical JSON: members sorted by name at every level, no white space.
pub fn canonical(arguments: &Value) -> String {
    let mut text = String::new();
    write_canonical(arguments, &mut text);
    text
}

fn write_canonical(value: &Value, text: &mut String) {
    match value {
        Value::Object(members) => {
            // Sorted here, although serde_json sorts too unless somebody switches it off: fingerprints outlive builds.
            let mut members: Vec<_> = members.iter().collect();
            members.sort_by_key(|(name, _)| *name);
            text.push('{');
            for (place, (name, value)) in members.into_iter().enumerate() {
                if place > 0 {
                    text.push(',');
                }
                text.push_str(&Value::from(name.as_str()).to_string());
                text.push(':');
                write_canonical(value, text);
            }
            text.push('}');
        }
        Value::Array(items) => {
            text.push('[');
            for (place, item) in items.iter().enumerate() {
                if place > 0 {
                    text.push(',');
                }
                write_canonical(item, text);
            }
            text.push(']');
        }
        scalar => text.push_str(&scalar.to_string()),
    }
}

/// The fingerprint of an operation's name and its canonical arguments, in the version that this program writes.
pub fn fingerprint(operation: &str, canonical_arguments: &str) -> Fingerprint {
    let digest = Sha256::new()
        .chain_update(operation.as_bytes())
        .chain_update([0])
        .chain_update(canonical_arguments.as_bytes())
        .finalize();
    let mut bytes = [Fingerprint::VERSION; 33];
    bytes[1..].copy_from_slice(&digest);
    Fingerprint(bytes)
}
