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

/// Reads a body of at most `limit` bytes. One that trickles in is given until `deadline`, the caller's own time, and no more.
///
/// # Errors
/// `invalid_argument`: too large, cut off, or too slow.
pub async fn read(body: Body, limit: usize, deadline: Instant) -> Result<Vec<u8>, Unreadable> {
    timeout_at(deadline, read_all(body, limit))
        .await
        .unwrap_or_else(|_| Err(Refusal::invalid("The body did not arrive in time.").into()))
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
