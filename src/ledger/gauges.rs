//! What a replica's ledger is like at this moment, for metrics.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use super::Ledger;
use crate::telemetry::metrics::gauge;

impl Ledger {
    /// Shows its gauges for as long as it lives.
    pub fn observe(self: &Arc<Self>) {
        let show = |name, says, look: fn(&Ledger) -> u64| {
            let ledger: Weak<Ledger> = Arc::downgrade(self);
            gauge(name, says, move || ledger.upgrade().map(|ledger| look(&ledger)));
        };
        show("ticket_ledger.waiters", "Waiters on this replica now", |ledger| {
            ledger.store.waiters.len() as u64
        });
        show("ticket_ledger.claims", "Claims that this replica holds now", |ledger| {
            ledger.store.leases.len() as u64
        });
        show(
            "ticket_ledger.listening",
            "1 while notifications are heard, 0 while waiters poll",
            |ledger| u64::from(ledger.is_listening()),
        );
        show(
            "ticket_ledger.database.reachable",
            "1 while Postgres answers",
            |ledger| u64::from(ledger.database().reach().is_reachable()),
        );
        show(
            "ticket_ledger.oldest_running.seconds",
            "Age of the oldest request that is not settled, as of the last scan",
            |ledger| ledger.store.oldest_running_ms.load(Ordering::Relaxed) / 1_000,
        );
        show("ticket_ledger.pool.size", "Most connections in the pool", |ledger| {
            ledger.database().use_of_pool().size
        });
        show("ticket_ledger.pool.in_use", "Connections that are lent now", |ledger| {
            ledger.database().use_of_pool().in_use
        });
        show(
            "ticket_ledger.pool.waiting",
            "Statements that wait for a connection now",
            |ledger| ledger.database().use_of_pool().waiting,
        );
    }
}
