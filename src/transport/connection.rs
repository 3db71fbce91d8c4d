//! One connection, and how long it may go without a request.
//!
//! hyper has a limit for the head of a request, which it also counts while a connection is idle, and none before it knows whether
//! HTTP/1 or HTTP/2 is spoken. So it is watched here: what was read, and whether a request is under way.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

use super::auth::Peer;
use super::carried::keeping;
use crate::unpoisoned;

/// Requests at once on one connection of HTTP/2.
const MOST_STREAMS: u32 = 100;
/// How long a connection that is closed in order may take to carry its last bytes away.
const LAST_BYTES: Duration = Duration::from_secs(1);

/// What a connection may cost.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// From the first byte of a request to the end of its head, and from the connection to the first request.
    pub header: Duration,
    /// Without a request, or with an answer that is not read.
    pub idle: Duration,
    /// Largest head of a request.
    pub header_bytes: usize,
}

/// Serves one connection until it ends, is overdue, or `draining` and idle.
pub async fn serve(stream: TcpStream, peer: SocketAddr, router: Router, limits: Limits, draining: CancellationToken) {
    let activity = Arc::new(Activity::default());
    let watched = Watched {
        stream,
        activity: Arc::clone(&activity),
    };
    let noted = Arc::clone(&activity);
    let service = service_fn(move |request: hyper::Request<Incoming>| {
        // From here on, and until the answer is there or the caller has gone.
        let under_way = UnderWay::begin(&noted);
        let router = router.clone();
        async move {
            let mut request = request.map(Body::new);
            request.extensions_mut().insert(Peer(peer));
            let response: Result<_, Infallible> = router.oneshot(request).await;
            response.map(|response| keeping(response, under_way.answered()))
        }
    });
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .header_read_timeout(None)
        .max_buf_size(limits.header_bytes);
    let header_bytes = u32::try_from(limits.header_bytes).unwrap_or(u32::MAX);
    builder
        .http2()
        .max_header_list_size(header_bytes)
        .max_concurrent_streams(MOST_STREAMS);
    let mut connection = pin!(builder.serve_connection(TokioIo::new(watched), service));
    let mut look_at = Instant::now() + limits.header.min(limits.idle);
    let (mut leaving, mut closing) = (false, false);
    loop {
        tokio::select! {
            // How a connection ended is of no use to anybody: its caller knows.
            _ = connection.as_mut() => return,
            () = draining.cancelled(), if !leaving => {
                leaving = true;
                connection.as_mut().graceful_shutdown();
            }
            () = sleep_until(look_at) => match activity.look(&limits, Instant::now()) {
                Look::Again(at) => look_at = at,
                // An answer may still be on its way to it.
                Look::Idle if !closing => {
                    closing = true;
                    connection.as_mut().graceful_shutdown();
                    look_at = Instant::now() + LAST_BYTES;
                }
                Look::Idle | Look::Late => return,
            },
        }
    }
}

/// What a connection is doing.
#[derive(Debug)]
struct Activity(Mutex<State>);

#[derive(Debug)]
struct State {
    /// Requests whose head was read and whose answer is not there.
    under_way: u32,
    /// Since when each answer is being carried away, by its number: the first one is the oldest.
    answers: BTreeMap<u64, Instant>,
    /// How many answers there were so far.
    answered: u64,
    /// A head has begun and not ended; also before the first one begins.
    head: bool,
    /// Of the last change of these.
    since: Instant,
    /// HTTP/2 sends more than heads, so only `idle` counts.
    http2: Option<bool>,
}

/// What is to be done with a connection.
#[derive(Debug, PartialEq, Eq)]
enum Look {
    /// Nothing before then.
    Again(Instant),
    /// It has been without a request for too long.
    Idle,
    /// It has been sending a head, or not reading an answer, for too long.
    Late,
}

impl Default for Activity {
    fn default() -> Self {
        Self(Mutex::new(State {
            under_way: 0,
            answers: BTreeMap::new(),
            answered: 0,
            head: true,
            since: Instant::now(),
            http2: None,
        }))
    }
}

impl Activity {
    fn read(&self, bytes: &[u8], now: Instant) {
        let mut state = unpoisoned(self.0.lock());
        state.http2.get_or_insert(bytes.starts_with(b"PRI "));
        if state.under_way == 0 && !state.head {
            state.head = true;
            state.since = now;
        }
    }

    fn begin(&self) {
        let mut state = unpoisoned(self.0.lock());
        state.under_way += 1;
        state.head = false;
    }

    fn end(&self, now: Instant) {
        let mut state = unpoisoned(self.0.lock());
        state.under_way -= 1;
        state.since = now;
    }

    /// An answer is there; returns its number.
    fn answer(&self, now: Instant) -> u64 {
        let mut state = unpoisoned(self.0.lock());
        state.answered += 1;
        let number = state.answered;
        state.answers.insert(number, now);
        number
    }

    /// An answer was carried away.
    fn carry(&self, number: u64, now: Instant) {
        let mut state = unpoisoned(self.0.lock());
        state.answers.remove(&number);
        state.since = now;
    }

    /// Never later than the moment at which a limit is passed: whatever changes meanwhile begins anew.
    fn look(&self, limits: &Limits, now: Instant) -> Look {
        let state = unpoisoned(self.0.lock());
        let soonest = now + limits.header.min(limits.idle);
        // Whatever else the caller does on this connection meanwhile.
        if let Some(since) = state.answers.values().next() {
            return match *since + limits.idle {
                past if past > now => Look::Again(past.min(soonest)),
                _ => Look::Late,
            };
        }
        if state.under_way > 0 {
            return Look::Again(soonest);
        }
        let head = state.head && state.http2 != Some(true);
        let limit = if head { limits.header } else { limits.idle };
        match state.since + limit {
            past if past > now => Look::Again(past.min(soonest)),
            _ if head => Look::Late,
            _ => Look::Idle,
        }
    }
}

/// A request under way, until this is dropped.
struct UnderWay(Arc<Activity>);

/// An answer that is being carried away, until this is dropped.
struct Answer {
    activity: Arc<Activity>,
    number: u64,
}

impl UnderWay {
    fn begin(activity: &Arc<Activity>) -> Self {
        activity.begin();
        Self(Arc::clone(activity))
    }

    fn answered(self) -> Answer {
        Answer {
            activity: Arc::clone(&self.0),
            number: self.0.answer(Instant::now()),
        }
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        self.activity.carry(self.number, Instant::now());
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.end(Instant::now());
    }
}

/// A stream that tells what is read from it.
struct Watched {
    stream: TcpStream,
    activity: Arc<Activity>,
}

impl AsyncRead for Watched {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(cx, buffer);
        let fresh = &buffer.filled()[before..];
        if !fresh.is_empty() {
            self.activity.read(fresh, Instant::now());
        }
        polled
    }
}

impl AsyncWrite for Watched {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::Instant;

    use super::{Activity, Limits, Look};

    const LIMITS: Limits = Limits {
        header: Duration::from_secs(10),
        idle: Duration::from_secs(75),
        header_bytes: 65_536,
    };

    fn seconds(count: u64) -> Duration {
        Duration::from_secs(count)
    }

    /// What becomes of a connection that nothing happens to after `from`, and how long after it.
    fn fate(activity: &Activity, from: Instant) -> (Look, Duration) {
        let mut now = from;
        loop {
            match activity.look(&LIMITS, now) {
                Look::Again(at) => now = at,
                fate => return (fate, now - from),
            }
        }
    }

    #[test]
    fn silence_a_trickling_head_and_idleness_each_have_their_limit() {
        let silent = Activity::default();
        let (fate_of_silence, after) = fate(&silent, Instant::now());
        assert!(fate_of_silence == Look::Late && after <= LIMITS.header, "{after:?}");

        let start = Instant::now();
        let activity = Activity::default();
        activity.read(b"GET / HTTP/1.1\r\n\r\n", start);
        activity.begin();
        assert!(matches!(activity.look(&LIMITS, start + seconds(200)), Look::Again(_)));
        activity.read(b"of its body", start + seconds(201));
        activity.end(start + seconds(202));
        assert_eq!(fate(&activity, start + seconds(202)), (Look::Idle, LIMITS.idle));
        activity.read(b"G", start + seconds(210));
        // More bytes do not begin anew.
        activity.read(b"ET / HT", start + seconds(214));
        assert_eq!(fate(&activity, start + seconds(214)), (Look::Late, seconds(6)));
    }

    #[test]
    fn an_answer_is_read_in_time_whatever_else_the_connection_does() {
        let start = Instant::now();
        let activity = Activity::default();
        activity.read(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", start);
        activity.begin();
        let unread = activity.answer(start);
        activity.end(start);
        for second in (0..70).step_by(5) {
            let now = start + seconds(second);
            activity.read(b"another request", now);
            activity.begin();
            let read = activity.answer(now);
            activity.end(now);
            activity.carry(read, now);
            assert!(matches!(activity.look(&LIMITS, now), Look::Again(at) if at <= start + LIMITS.idle));
        }
        assert_eq!(fate(&activity, start + seconds(70)), (Look::Late, seconds(5)));
        activity.carry(unread, start + seconds(75));
        assert_eq!(fate(&activity, start + seconds(75)), (Look::Idle, LIMITS.idle));
    }

    #[test]
    fn http2_says_more_than_heads_so_only_idleness_counts() {
        let start = Instant::now();
        let activity = Activity::default();
        activity.read(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", start);
        activity.begin();
        activity.end(start + seconds(1));
        activity.read(b"a ping", start + seconds(2));
        assert_eq!(fate(&activity, start + seconds(2)).0, Look::Idle);
    }
}
