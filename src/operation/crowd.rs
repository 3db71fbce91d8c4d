//! What a caller is told who has too many calls under way: what is recorded, and nothing else.

use super::answer::Refusal;
use super::refusals::database_unavailable;
use crate::ledger::{Fingerprint, Key, Ledger, Phase, Verdict};

/// The stored answer of this very request. One read, no claim and no wait.
///
/// # Errors
/// `unavailable`: it is not done, was for something else, or cannot be read.
pub async fn recorded(ledger: &Ledger, key: &Key, fingerprint: Fingerprint) -> Result<Verdict, Refusal> {
    let found = ledger.find(key, None).await;
    let found = found.map_err(|error| database_unavailable(&error))?;
    match found.map(|seen| (seen.fingerprint == fingerprint.0, seen.phase)) {
        Ok((true, Phase::Done(settled))) => Ok(Verdict::Settled {
            settled,
            replayed: true,
            joined: None,
        }),
        _ => Err(crowded()),
    }
}

/// Past the limit of one caller.
pub fn crowded() -> Refusal {
    Refusal::unavailable(
        "You have as many calls under way on this replica as one caller may. This one was not begun here.",
        1,
    )
}
