//! How long entries are kept.

use std::time::Duration;

use clap::Args;

use super::{Findings, LONGEST_RETENTION_HOURS};
use crate::operation::entries::Board;

/// Settings of the board.
#[derive(Debug, Clone, Args)]
pub struct Entries {
    /// How long entries are kept, in hours (at least 1); they cannot be read after that
    #[arg(long, env = "ENTRY_RETENTION_HOURS", default_value_t = 365 * 24)]
    pub entry_retention_hours: u64,

    /// How long it is known that an entry was deleted, in hours (not less than keys) [default: KEY_RETENTION_HOURS]
    #[arg(long, env = "DELETION_RETENTION_HOURS")]
    pub deletion_retention_hours: Option<u64>,
}

impl Entries {
    fn deletion_hours(&self, key_hours: u64) -> u64 {
        self.deletion_retention_hours.unwrap_or(key_hours)
    }

    pub(super) fn examine(&self, key_hours: u64, findings: &mut Findings) {
        let entries = self.entry_retention_hours;
        findings.refuse(!(1..=LONGEST_RETENTION_HOURS).contains(&entries), || {
            format!(
                "ENTRY_RETENTION_HOURS is {entries}: entries must be kept for at least 1 hour and at most ten years."
            )
        });
        let deletions = self.deletion_hours(key_hours);
        findings.refuse(deletions < key_hours || deletions > LONGEST_RETENTION_HOURS, || {
            format!(
                "DELETION_RETENTION_HOURS is {deletions}: a deletion must not be forgotten before the request_id of what was deleted \
                 (KEY_RETENTION_HOURS, {key_hours}), and after ten years at the latest."
            )
        });
    }

    /// What the board is run with.
    pub(super) fn board(&self, public_url: String, key_hours: u64) -> Board {
        let hours = |hours: u64| Duration::from_secs(hours * 3_600);
        Board {
            public_url: public_url.into(),
            keep_entries: hours(self.entry_retention_hours),
            keep_deletions: hours(self.deletion_hours(key_hours)),
        }
    }
}
