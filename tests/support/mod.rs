//! What the tests share: a Postgres, replicas as processes, calls as clients make them.

pub mod bearer;
pub mod calls;
pub mod cluster;
pub mod daemons;
pub mod house;
pub mod in_process;
pub mod issuer;
pub mod load;
pub mod otlp;
pub mod proxy;
pub mod raw;
pub mod replica;
pub mod scene;
pub mod schema;
pub mod stuck;

use std::time::{Duration, Instant};

/// The longest that any condition is waited for: far more than it takes, so that a slow machine does not fail a test.
pub const DEADLINE: Duration = Duration::from_secs(60);

/// The lease of a replica that a test starts, unless it says otherwise.
pub fn lease() -> Duration {
    Duration::from_millis(replica::LEASE_MS)
}

/// Waits until `condition` yields a value; panics with `what` after [`DEADLINE`].
pub async fn eventually<T, F>(what: &str, mut condition: impl FnMut() -> F) -> T
where
    F: Future<Output = Option<T>>,
{
    let began = Instant::now();
    loop {
        if let Some(value) = condition().await {
            return value;
        }
        assert!(began.elapsed() < DEADLINE, "waited in vain: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
