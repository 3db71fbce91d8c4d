//! What operations of several families have in common: identifiers, titles, bodies.

/// Largest body, in bytes of UTF-8.
pub const LARGEST_BODY: usize = 64 * 1024;
/// Longest title, in characters.
pub const LONGEST_TITLE: usize = 200;
/// An id is a letter, `-` and this many characters of Crockford's base 32: 60 random bits.
const ID_CHARACTERS: usize = 12;
/// Longest text that is read as an id, in characters.
const LONGEST_ID: usize = 64;

/// A fresh id that begins with `prefix`.
pub fn new_id(prefix: &str) -> String {
    const CROCKFORD: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";
    let random = uuid::Uuid::new_v4();
    // Bytes 6 and 8 of a version 4 UUID carry its version and variant; the others are random in every bit.
    let mut bits = random
        .as_bytes()
        .iter()
        .enumerate()
        .filter(|(place, _)| *place != 6 && *place != 8);
    let mut id = String::from(prefix);
    for _ in 0..ID_CHARACTERS {
        let byte = bits.next().map_or(0, |(_, byte)| *byte);
        id.push(char::from(CROCKFORD[usize::from(byte & 31)]));
    }
    id
}

/// Checks that `name`, which the caller gave, can be an id such as `example`.
///
/// # Errors
/// A sentence that says what is wrong.
pub fn check_id(name: &str, id: &str, example: &str) -> Result<(), String> {
    if id.is_empty() || id.chars().count() > LONGEST_ID {
        return Err(format!("{name} must be an id such as {example}."));
    }
    Ok(())
}

/// Checks the length of a body.
///
/// # Errors
/// A sentence that says what is wrong.
pub fn check_body(body: &str) -> Result<(), String> {
    if body.len() > LARGEST_BODY {
        return Err(format!(
            "body must be at most {LARGEST_BODY} bytes of UTF-8; it is {}.",
            body.len()
        ));
    }
    Ok(())
}

/// Checks that a body says something.
///
/// # Errors
/// A sentence that says what is wrong.
pub fn check_not_blank(body: &str) -> Result<(), String> {
    if body.trim().is_empty() {
        return Err("body must not be blank.".to_owned());
    }
    Ok(())
}

/// Checks a title.
///
/// # Errors
/// A sentence that says what is wrong.
pub fn check_title(title: &str) -> Result<(), String> {
    check_line("title", title, LONGEST_TITLE)
}

/// Checks a text of one line and at most `longest` characters.
///
/// # Errors
/// A sentence that says what is wrong.
pub fn check_line(name: &str, text: &str, longest: usize) -> Result<(), String> {
    let characters = text.chars().count();
    if characters == 0 || characters > longest {
        return Err(format!("{name} must be 1 to {longest} characters; it is {characters}."));
    }
    if text.chars().any(char::is_control) {
        return Err(format!("{name} must be one line without control characters."));
    }
    if text.trim().is_empty() {
        return Err(format!("{name} must not be blank."));
    }
    Ok(())
}
