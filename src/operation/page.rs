//! Pages: at most 50 items and 100,000 characters, in the order (created_at, id), with an opaque cursor.
//!
//! A cursor names the last item that was shown, not a distance from the start, so an item that is present throughout appears
//! exactly once whatever comes and goes.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use super::answer::Refusal;

/// Most items on a page.
pub const MOST_ITEMS: usize = 50;
/// Most characters of JSON on a page; a single item larger than that is shown alone.
pub const MOST_CHARACTERS: usize = 100_000;
/// What stands around the items, next_cursor included.
const FRAME_CHARACTERS: usize = 128;
/// Latest time in a cursor, in microseconds: past it a float, in which Postgres multiplies intervals, is not exact.
const LATEST_US: i64 = 1 << 53;
/// Longest cursor that is read.
const LONGEST_CURSOR: usize = 256;

/// The place after an item: its time in microseconds since 1970, and its id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cursor {
    /// Microseconds since 1970.
    pub created_us: i64,
    /// The item's id.
    pub id: String,
}

impl Cursor {
    /// The place before every item.
    fn start() -> Self {
        Self {
            created_us: 0,
            id: "0".to_owned(),
        }
    }

    /// The cursor of a list as callers see it, with what tells one that was cut short, changed, or given out for another list.
    pub fn encode(&self, list: &str) -> String {
        let place = format!("{}.{}", self.created_us, self.id);
        URL_SAFE_NO_PAD.encode(format!("{place}.{}", seal(list, &place)))
    }

    /// Reads a cursor that a caller of this list sent back.
    ///
    /// # Errors
    /// `invalid_argument` when it is none of this list's.
    pub fn decode(cursor: &str, list: &str) -> Result<Self, Refusal> {
        let read = || {
            if cursor.len() > LONGEST_CURSOR {
                return None;
            }
            let text = String::from_utf8(URL_SAFE_NO_PAD.decode(cursor).ok()?).ok()?;
            let (place, sealed) = text.rsplit_once('.')?;
            (sealed == seal(list, place)).then_some(())?;
            let (created_us, id) = place.split_once('.')?;
            let known = id.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
            (known && !id.is_empty()).then_some(())?;
            let created_us = created_us.parse().ok().filter(|us| (0..=LATEST_US).contains(us))?;
            Some(Self {
                created_us,
                id: id.to_owned(),
            })
        };
        read().ok_or_else(|| {
            Refusal::invalid(
                "The cursor is not one that this service gave out for this list; leave it out to begin at the first page.",
            )
        })
    }
}

/// A few characters that follow from a list and a place in it. No secret: it guards against mistakes.
fn seal(list: &str, place: &str) -> String {
    let digest = Sha256::digest(format!("{list} {place}"));
    URL_SAFE_NO_PAD.encode(digest.first_chunk::<6>().copied().unwrap_or_default())
}

/// An optional cursor of a list, split into what SQL compares with.
///
/// # Errors
/// As [`Cursor::decode`].
pub fn after(cursor: Option<&str>, list: &str) -> Result<(Option<i64>, Option<String>), Refusal> {
    match cursor {
        None => Ok((None, None)),
        Some(cursor) => {
            let cursor = Cursor::decode(cursor, list)?;
            Ok((Some(cursor.created_us), Some(cursor.id)))
        }
    }
}

/// Cuts items of a list, of which one more than fits may have been read, to a page; puts them under `name`, and `next_cursor`
/// beside them when there are more; see [`fitting`].
pub fn cut(page: &mut Map<String, Value>, name: &str, list: &str, items: Vec<(Cursor, Value)>, shows_something: bool) {
    let written = |value: &dyn ToString| value.to_string().chars().count();
    let frame = written(&Value::Object(page.clone())) + name.len() + FRAME_CHARACTERS;
    let (shown, next) = fitting(items, |item| written(item) + 1, frame, shows_something);
    page.insert(name.to_owned(), Value::Array(shown));
    if let Some(next) = next {
        page.insert("next_cursor".to_owned(), Value::String(next.encode(list)));
    }
}

/// The items that fit on a page on which `frame` characters stand already, and the place that the next page begins behind. A page
/// that shows something else already need not show an item, any other shows at least one.
pub fn fitting<T>(
    items: Vec<(Cursor, T)>,
    size: impl Fn(&T) -> usize,
    frame: usize,
    shows_something: bool,
) -> (Vec<T>, Option<Cursor>) {
    let mut characters = frame;
    let mut shown = Vec::new();
    let mut last = None;
    for (cursor, item) in items {
        let size = size(&item);
        let full = shown.len() == MOST_ITEMS || characters + size > MOST_CHARACTERS;
        if full && (shows_something || !shown.is_empty()) {
            return (shown, Some(last.unwrap_or_else(Cursor::start)));
        }
        characters += size;
        shown.push(item);
        last = Some(cursor);
    }
    (shown, None)
}
