//! Text as it enters: Unicode NFC, `\n` for every line end, no NUL. Done once, before limits are checked, the fingerprint is
//! taken and anything is saved, so that what is read back is what was compared.

use serde_json::{Map, Value};
use unicode_normalization::{UnicodeNormalization, is_nfc};

/// One text, normalised.
pub fn normalise(text: &str) -> String {
    let unix = if text.contains('\r') {
        text.replace("\r\n", "\n").replace('\r', "\n")
    } else {
        text.to_owned()
    };
    if is_nfc(&unix) { unix } else { unix.nfc().collect() }
}

/// All arguments, normalised; members that are null are left out, because null means the same as absent.
///
/// # Errors
/// The name of a member whose text contains NUL, which Postgres cannot store.
pub fn normalise_arguments(arguments: Map<String, Value>) -> Result<Map<String, Value>, String> {
    let mut normalised = Map::new();
    for (name, value) in arguments {
        match normalise_value(value) {
            Some(Value::Null) => {}
            Some(value) => {
                normalised.insert(name, value);
            }
            None => return Err(name),
        }
    }
    Ok(normalised)
}

/// `None` when some text contains NUL. Recursion is bounded by the JSON parser's own limit of 128 levels.
fn normalise_value(value: Value) -> Option<Value> {
    Some(match value {
        Value::String(text) if text.contains('\0') => return None,
        Value::String(text) => Value::String(normalise(&text)),
        Value::Array(items) => Value::Array(items.into_iter().map(normalise_value).collect::<Option<_>>()?),
        Value::Object(members) => Value::Object(normalise_arguments(members).ok()?),
        other => other,
    })
}
