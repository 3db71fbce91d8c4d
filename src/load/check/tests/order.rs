//! Rule 4 in time: what is told after *done*.

use super::{Case, Ending, REQUEST, SECOND};
use crate::load::history::Record;

/// One caller is told done at 1.001 s, and another call, from one moment to another, is told this.
fn told(outcome: &'static str, from_us: u64, to_us: u64) -> Case {
    Case::sound().call("7a", from_us, move |call| call.at(to_us).told(outcome))
}

/// When the first caller has been told done.
const DONE: u64 = SECOND + 1_000;

#[test]
fn rule_4_a_call_that_is_told_to_wait_after_another_was_told_done() {
    // Sent while that answer was on its way.
    told("in_progress", DONE, DONE + 1_000).breaks_nothing();
    told("in_progress", DONE + 1, DONE + 1_000).breaks(4, "was answered with in_progress");
    // It may have met a call that waited, on a replica that heard of nothing, and that gave up with it.
    let waited = || told("in_progress", 3 * SECOND, 23 * SECOND);
    waited().breaks(4, "was answered with in_progress");
    waited().fault("db-cut", 5 * SECOND).breaks_nothing();
    waited().fault("kill", 5 * SECOND).breaks(4, "in_progress");
    // Nothing says so before the replica's own wait is over.
    told("in_progress", 3 * SECOND, 9 * SECOND)
        .fault("db-cut", 5 * SECOND)
        .breaks(4, "in_progress");
    told("unavailable", 3 * SECOND, 3 * SECOND + 1).breaks_nothing();
}

#[test]
fn rule_4_a_deployment_whose_wait_is_its_own() {
    let elsewhere = |to_us| {
        let mut case = told("in_progress", 3 * SECOND, to_us);
        if let Some(Record::Start {
            limit_per_source,
            limit_global,
            ..
        }) = case.records.first_mut()
        {
            (*limit_per_source, *limit_global) = (None, None);
        }
        case
    };
    elsewhere(3 * SECOND + SECOND / 2).breaks(4, "in_progress");
    // It may wait for a second only, and meet a call that has waited.
    elsewhere(4 * SECOND).breaks_nothing();
    elsewhere(12 * SECOND).breaks(4, "in_progress");
}

#[test]
fn rule_4_a_replay_that_a_stop_or_a_limit_of_all_refuses() {
    let refused = |outcome: &'static str, status: u16| {
        Case::sound()
            .with_limits(0, 9)
            .call("7a", 3 * SECOND, move |call| call.answered(status, outcome))
    };
    for (outcome, status) in [("writes_disabled", 503), ("rate_limited", 429)] {
        refused(outcome, status).breaks(4, outcome);
        // The refusal may be older than the answer, on a replica that stood still between.
        refused(outcome, status).fault("pause", 3 * SECOND).breaks_nothing();
        refused(outcome, status).fault("kill", 3 * SECOND).breaks(4, outcome);
    }
    // A source's limit is for its replays too.
    let by_source = |call: Ending| {
        let mut record = call.answered(429, "rate_limited");
        if let Record::Answered { limit, .. } = &mut record {
            *limit = Some("source".to_owned());
        }
        record
    };
    Case::sound()
        .with_limits(9, 9)
        .call("7a", 3 * SECOND, by_source)
        .breaks_nothing();
}

#[test]
fn rule_4_find_request_tells_of_what_was_told_done() {
    let found = |status: &str, asked_us| {
        Case::sound().record(Record::Found {
            at_us: asked_us + SECOND,
            asked_us,
            request: REQUEST.to_owned(),
            http: 200,
            status: status.to_owned(),
            result: None,
            visible: None,
        })
    };
    for status in ["running", "abandoned", "unknown"] {
        found(status, DONE).breaks_nothing();
        found(status, DONE + 1).breaks(4, "find_request that was sent 0 ms after");
        // It reads what is recorded: no fault makes an older answer of it.
        found(status, DONE + 1).fault("pause", DONE).breaks(4, "find_request");
    }
    // What find_request tells is told too.
    Case::new()
        .row("done", Some("T-1"))
        .effect("T-1", "7a")
        .call("7a", SECOND / 2, Ending::left)
        .record(Record::Found {
            at_us: SECOND,
            asked_us: SECOND - 1,
            request: REQUEST.to_owned(),
            http: 200,
            status: "done".to_owned(),
            result: Some(super::result("T-1")),
            visible: None,
        })
        .call("7a", 2 * SECOND, |call| call.told("in_progress"))
        .breaks(4, "in_progress");
}

#[test]
fn rule_4_told_failed_and_the_ledger_says_something_else() {
    let failed = |case: Case| case.call("7a", SECOND / 2, |call| call.at(9 * SECOND).answered(409, "failed"));
    failed(Case::sound()).breaks(4, "told failed, and the ledger says done");
    failed(Case::new()).breaks(4, "told failed, and the ledger has no row");
    let died = |lapses| {
        let mut case = failed(Case::new().row("failed", None));
        case.rows[0].lapses = lapses;
        case
    };
    died(5).breaks_nothing();
    died(0).breaks(4, "no attempt of it has died");
    // An operator let it be tried again.
    let mut retried = failed(Case::new().row("done", Some("T-1")).effect("T-1", "7a"));
    retried.retried.push(REQUEST.to_owned());
    retried.breaks_nothing();
}
