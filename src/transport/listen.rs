//! Accepting connections: as many as there may be, and beyond that a word that there are too many.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::http::{HeaderValue, header};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::warn;

use super::connection::{self, Limits};
use super::front::refused;
use crate::operation::answer::Refusal;

/// Connections beyond the limit that are told so at the same time; what comes beyond those is closed without a word.
const MOST_TOLD: usize = 128;
/// How long being told may take.
const TOLD_LIMIT: Duration = Duration::from_secs(2);
/// Pause after the machine had no file or memory for another connection.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

/// Accepts and serves until `draining`, and then until the last connection has ended.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    most: usize,
    limits: Limits,
    draining: impl Future<Output = ()>,
) {
    let places = Arc::new(Semaphore::new(most));
    let told = Arc::new(Semaphore::new(MOST_TOLD));
    let full = Router::new().fallback(|| async { too_many() });
    let full_limits = Limits {
        header: TOLD_LIMIT,
        idle: TOLD_LIMIT,
        ..limits
    };
    let leave = CancellationToken::new();
    let connections = TaskTracker::new();
    tokio::pin!(draining);
    let mut said = false;
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = &mut draining => break,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // One that was gone before it was accepted is nothing; anything else is the machine's want of something.
                if error.kind() != std::io::ErrorKind::ConnectionAborted {
                    warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(ACCEPT_AGAIN).await;
                }
                continue;
            }
        };
        let _ = stream.set_nodelay(true);
        let leave = leave.clone();
        if let Ok(place) = Arc::clone(&places).try_acquire_owned() {
            said = false;
            let router = router.clone();
            connections.spawn(async move {
                connection::serve(stream, peer, router, limits, leave).await;
                drop(place);
            });
            continue;
        }
        if !said {
            said = true;
            warn!(
                most,
                "there are as many connections as there may be; callers are told to come again"
            );
        }
        if let Ok(place) = Arc::clone(&told).try_acquire_owned() {
            let full = full.clone();
            connections.spawn(async move {
                connection::serve(stream, peer, full, full_limits, leave).await;
                drop(place);
            });
        }
    }
    drop(listener);
    leave.cancel();
    connections.close();
    connections.wait().await;
}

fn too_many() -> axum::response::Response {
    let refusal = Refusal::unavailable(
        "This replica has as many connections as it may have. The call was not begun here.",
        1,
    );
    let mut response = refused(&refusal, None);
    response
        .headers_mut()
        .insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}
