//! How many files, and so connections, this process may have open.

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tracing::warn;

/// What is open beside the callers' connections: to Postgres, to the issuer, and what the runtime needs.
const OTHERS: u64 = 256;

/// Raises this process's limit as far as `connections` need and the machine allows, and warns where that is not far enough: a
/// shell often gives 1,024, and a caller past that would wait without a word.
pub fn allow(connections: usize) {
    let wanted = u64::try_from(connections).unwrap_or(u64::MAX).saturating_add(OTHERS);
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else {
        return;
    };
    let allowed = soft.max(wanted.min(hard));
    let raised = setrlimit(Resource::RLIMIT_NOFILE, allowed, hard).is_ok();
    let allowed = if raised { allowed } else { soft };
    if allowed < wanted {
        warn!(
            allowed,
            wanted,
            "this process may open fewer files than MAX_CONNECTIONS needs; lower it, or raise the limit (ulimit -n)"
        );
    }
}
