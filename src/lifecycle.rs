//! starting → ready → draining → stopped.

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

/// Where a replica stands in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// It does not take calls yet.
    Starting,
    /// It takes calls.
    Ready,
    /// It takes no more calls and finishes those that it has.
    Draining,
}

impl Stage {
    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Ready => "ready",
            Self::Draining => "draining",
        }
    }
}

/// A replica's stage, which everybody may watch.
#[derive(Debug, Clone)]
pub struct Lifecycle(watch::Sender<Stage>);

impl Default for Lifecycle {
    fn default() -> Self {
        Self(watch::Sender::new(Stage::Starting))
    }
}

impl Lifecycle {
    /// The stage now.
    pub fn stage(&self) -> Stage {
        *self.0.borrow()
    }

    /// Goes on to `stage`; never back.
    pub fn advance(&self, stage: Stage) {
        self.0.send_if_modified(|now| {
            let later = (*now as u8) < (stage as u8);
            if later {
                *now = stage;
            }
            later
        });
    }

    /// Completes when the replica drains.
    pub async fn draining(&self) {
        let mut stages = self.0.subscribe();
        let _ = stages.wait_for(|stage| *stage == Stage::Draining).await;
    }
}

/// Catches SIGTERM, SIGINT and SIGHUP from now on; the future completes with the first of them.
///
/// # Errors
/// The handlers could not be installed.
pub fn termination() -> std::io::Result<impl Future<Output = ()> + Send> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut hangup = signal(SignalKind::hangup())?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
            _ = hangup.recv() => {}
        }
    })
}
