//! Bodies as they come in: bounded in size and in time.

use std::time::Duration;

use axum::body::Body;
use axum::http::StatusCode;
use futures_util::StreamExt;
use tokio::time::{Instant, timeout_at};

use crate::operation::answer::Refusal;

/// Of a body that is too large, so much more is read and thrown away: a connection that is closed with bytes unread loses the
/// answer on its way to the caller.
const DISCARDED_BYTES: usize = 64 * 1024 * 1024;

/// A request that is no call, with a status of its own if its code's does not fit.
pub struct Unreadable(pub Refusal, pub Option<StatusCode>);

impl From<Refusal> for Unreadable {
    fn from(refusal: Refusal) -> Self {
        Self(refusal, None)
    }
}

/// What a body may be.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// How large.
    pub bytes: usize,
    /// How deep the objects and lists in it may be nested.
    pub depth: usize,
}

/// Reads a body of JSON. One that trickles in is given until `deadline`, the caller's own time, and no more.
///
/// # Errors
/// `invalid_argument`: too large, nested too deeply, cut off, or too slow.
pub async fn read(body: Body, limits: Limits, deadline: Instant) -> Result<Vec<u8>, Unreadable> {
    let read = timeout_at(deadline, read_all(body, limits.bytes)).await;
    let bytes = read.unwrap_or_else(|_| Err(Refusal::invalid("The body did not arrive in time.").into()))?;
    if depth(&bytes) > limits.depth {
        return Err(Refusal::invalid(format!("The body is nested deeper than {}.", limits.depth)).into());
    }
    Ok(bytes)
}

/// How deep the objects and lists of a JSON text are nested. Of what is no JSON it says nothing of use, and no harm.
fn depth(bytes: &[u8]) -> usize {
    let (mut depth, mut deepest, mut in_text, mut escaped) = (0_usize, 0, false, false);
    for byte in bytes {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_text => escaped = true,
            b'"' => in_text = !in_text,
            b'{' | b'[' if !in_text => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b'}' | b']' if !in_text => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

/// Reads a body of at most `limit` bytes and throws it away, for so long at most.
pub async fn discard(body: Body, limit: usize, within: Duration) {
    let mut chunks = body.into_data_stream();
    let mut left = limit;
    let reading = async {
        while let Some(Ok(chunk)) = chunks.next().await {
            match left.checked_sub(chunk.len()) {
                Some(less) => left = less,
                None => break,
            }
        }
    };
    let _ = tokio::time::timeout(within, reading).await;
}

async fn read_all(body: Body, limit: usize) -> Result<Vec<u8>, Unreadable> {
    let mut chunks = body.into_data_stream();
    let mut bytes = Vec::new();
    let mut size = 0_usize;
    while let Some(chunk) = chunks.next().await {
        let Ok(chunk) = chunk else {
            return Err(Refusal::invalid("The body was cut off.").into());
        };
        size = size.saturating_add(chunk.len());
        if size <= limit {
            bytes.extend_from_slice(&chunk);
        } else if size > limit.saturating_add(DISCARDED_BYTES) {
            break;
        }
    }
    if size <= limit {
        return Ok(bytes);
    }
    Err(Refusal {
        too_large: true,
        ..Refusal::invalid(format!("The body is larger than {limit} bytes."))
    }
    .into())
}

#[cfg(test)]
mod tests {
    use super::depth;

    #[test]
    fn brackets_count_where_they_nest_and_not_within_texts() {
        for (text, expected) in [
            ("", 0),
            ("7", 0),
            ("{}", 1),
            ("[[],[]]", 2),
            (r#"{"a":[{"b":[]}]}"#, 4),
            (r#"{"[[[[":"{{{{"}"#, 1),
            (r#"["\"[[[["]"#, 1),
            (r#"["\\",[]]"#, 2),
            ("]]]][", 1),
        ] {
            assert_eq!(depth(text.as_bytes()), expected, "{text}");
        }
    }
}
