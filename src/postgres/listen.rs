//! The one listening connection of a replica.
//!
//! LISTEN can be silently dead: a transaction pooler accepts it and forgets it, a half-open connection hears nothing. So the
//! listener sends itself a notification now and then and takes itself for deaf when it does not hear it. While it is deaf
//! waiters poll more quickly; when it hears again, everybody who waits reads their row again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sqlx::postgres::{PgListener, PgPoolOptions};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::error::DatabaseError;
use super::pool::{Database, connect_options};
use crate::sabotage;

/// The channel on which settled, released and handed-back keys are announced.
pub const CHANNEL: &str = "ticket_ledger";

/// How often the listener tests itself, and how long it waits to hear itself.
const SELF_TEST_EVERY: Duration = Duration::from_secs(10);
const SELF_TEST_LIMIT: Duration = Duration::from_secs(2);
/// First and longest pause between two attempts to listen.
const RETRY_FIRST: Duration = Duration::from_millis(100);
const RETRY_MOST: Duration = Duration::from_secs(2);

/// What the listener tells the rest of the replica.
pub trait Heard: Send + Sync + 'static {
    /// The request with this key hash changed its state.
    fn key(&self, key_hash: i64);
    /// Notifications may have been missed: whoever waits reads again.
    fn everything(&self);
}

/// Whether the listener hears.
#[derive(Debug, Default)]
pub struct Hearing(AtomicBool);

impl Hearing {
    /// True after a self-test that was heard, until the connection breaks or a test fails.
    pub fn is_good(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Listens until `stop`, reconnecting for ever.
pub async fn listen(
    url: String,
    database: Database,
    heard: Arc<dyn Heard>,
    hearing: Arc<Hearing>,
    stop: CancellationToken,
) {
    let nonce = uuid::Uuid::new_v4().simple().to_string();
    let mut pause = RETRY_FIRST;
    loop {
        let session = Session {
            database: &database,
            heard: heard.as_ref(),
            hearing: &hearing,
            self_test: format!("self-test {nonce}"),
        };
        let outcome = tokio::select! {
            outcome = session.run(&url, &mut pause) => outcome,
            () = stop.cancelled() => return,
        };
        let was_good = hearing.0.swap(false, Ordering::Relaxed);
        if was_good || pause == RETRY_FIRST {
            warn!(reason = %outcome, "not listening: waiters poll until the listener is back");
        }
        tokio::select! {
            () = sleep(pause) => {}
            () = stop.cancelled() => return,
        }
        pause = (pause * 2).min(RETRY_MOST);
    }
}

/// One listening connection, from LISTEN until it breaks or proves deaf.
struct Session<'a> {
    database: &'a Database,
    heard: &'a dyn Heard,
    hearing: &'a Hearing,
    self_test: String,
}

impl Session<'_> {
    /// Runs until the connection is of no more use, and says why.
    async fn run(&self, url: &str, pause: &mut Duration) -> String {
        let mut listener = match timeout(SELF_TEST_LIMIT * 2, connect(url)).await {
            Ok(Ok(listener)) => listener,
            // It may be another server's address, or a pooler's: this says nothing of the primary. Whether that one is
            // out of reach is noticed by the leases' connection.
            Ok(Err(error)) => return error.to_string(),
            Err(_) => return "connecting took too long".to_owned(),
        };
        let mut test_at = Instant::now();
        loop {
            if let Err(reason) = self.send_self_test().await {
                return format!("the self-test could not be sent: {reason}");
            }
            let sent = Instant::now();
            let mut answered = false;
            test_at = test_at.max(sent) + SELF_TEST_EVERY;
            // Until the next test: hand on what is heard, and notice when the test itself is not heard.
            loop {
                let until = if answered { test_at } else { sent + SELF_TEST_LIMIT };
                let Some(left) = until.checked_duration_since(Instant::now()) else {
                    if answered {
                        break;
                    }
                    return "LISTEN hears nothing, as behind a transaction pooler".to_owned();
                };
                match timeout(left, listener.try_recv()).await {
                    Err(_) => {}
                    Ok(Ok(Some(notification))) => {
                        if notification.payload() == self.self_test {
                            answered = true;
                            *pause = RETRY_FIRST;
                            self.hears();
                        } else if let Ok(key_hash) = notification.payload().parse()
                            && !sabotage::is(sabotage::Kind::NoNotify)
                        {
                            self.heard.key(key_hash);
                        }
                    }
                    Ok(Ok(None)) => return "the listening connection was closed".to_owned(),
                    Ok(Err(error)) => return error.to_string(),
                }
            }
        }
    }

    /// The first time a session hears itself, whatever was announced before may have been missed.
    fn hears(&self) {
        if !self.hearing.0.swap(true, Ordering::Relaxed) {
            info!("listening");
            self.heard.everything();
        }
    }

    async fn send_self_test(&self) -> Result<(), DatabaseError> {
        let mut lent = self.database.lend().await?;
        let statement = sqlx::query("select pg_notify($1, $2)")
            .bind(CHANNEL)
            .bind(&self.self_test);
        let answer = self
            .database
            .within("self_test", statement.execute(lent.connection()))
            .await;
        lent.answered(answer).map(|_| ())
    }
}

/// Connects and listens.
async fn connect(url: &str) -> Result<PgListener, DatabaseError> {
    // sqlx gives a listener from one of its own pools only; this one holds a single connection and nothing else.
    let carrier = PgPoolOptions::new()
        .max_connections(1)
        .connect_with(connect_options(url)?.application_name("ticket-ledger listener"))
        .await?;
    let mut listener = PgListener::connect_with(&carrier).await?;
    listener.eager_reconnect(false);
    listener.listen(CHANNEL).await?;
    Ok(listener)
}
