//! An answer on its way to its caller, who may be slow to take it.

use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes, HttpBody};
use axum::response::Response;
use hyper::body::{Frame, SizeHint};

/// A body that keeps something for as long as it is not carried away: what an answer takes up is not free while nobody reads it.
struct Carried<K> {
    body: Body,
    /// Dropped with this.
    _kept: K,
}

/// An answer that keeps `kept` until its last byte is handed to the connection, or the connection is gone.
pub fn keeping<K: Send + Unpin + 'static>(response: Response, kept: K) -> Response {
    response.map(|body| Body::new(Carried { body, _kept: kept }))
}

impl<K: Unpin> HttpBody for Carried<K> {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
