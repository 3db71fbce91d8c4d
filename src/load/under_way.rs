//! The calls that have been sent and have no end yet.

use std::collections::BTreeSet;

use tokio::sync::watch;

/// Numbers calls and knows which of them are under way.
#[derive(Default)]
pub struct UnderWay(watch::Sender<Calls>);

#[derive(Default)]
struct Calls {
    next: u64,
    open: BTreeSet<u64>,
}

/// A call that is under way until this is dropped.
pub struct Begun<'a> {
    all: &'a UnderWay,
    /// Names the call.
    pub number: u64,
}

impl UnderWay {
    /// Begins a call.
    pub fn begin(&self) -> Begun<'_> {
        let mut number = 0;
        self.0.send_modify(|calls| {
            number = calls.next;
            calls.next += 1;
            calls.open.insert(number);
        });
        Begun { all: self, number }
    }

    /// How many calls have begun so far.
    pub fn begun(&self) -> u64 {
        self.0.borrow().next
    }

    /// Waits until every call that has begun by now has ended.
    pub async fn ended(&self) {
        let by_now = self.begun();
        let mut calls = self.0.subscribe();
        let ended = |calls: &Calls| calls.open.first().is_none_or(|first| *first >= by_now);
        // The sender is borrowed, so it is not gone.
        let _ = calls.wait_for(ended).await;
    }
}

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        self.all.0.send_modify(|calls| {
            calls.open.remove(&self.number);
        });
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::UnderWay;

    #[test]
    fn waiting_ends_with_the_last_call_that_had_begun_and_not_with_a_later_one() {
        let all = UnderWay::default();
        let (one, two) = (all.begin(), all.begin());
        let mut waiting = Box::pin(all.ended());
        assert!(waiting.as_mut().now_or_never().is_none());
        let later = all.begin();
        drop(two);
        assert!(waiting.as_mut().now_or_never().is_none());
        drop(one);
        assert!(waiting.as_mut().now_or_never().is_some());
        assert_eq!((later.number, all.begun()), (2, 3));
    }
}
