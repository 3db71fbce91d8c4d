//! Stops, refusals and limits.

use super::{Case, Ending, REQUEST, SECOND};
use crate::load::history::Record;

impl Case {
    /// Writes stopped between these moments, for sure; the acts take a second each.
    fn stopped(self, from_us: u64, to_us: u64) -> Self {
        self.act("stop-writes", None, from_us - SECOND, from_us)
            .act("allow-writes", None, to_us, to_us + SECOND)
    }

    pub(super) fn with_limits(mut self, per_source: u32, global: u32) -> Self {
        if let Some(Record::Start {
            limit_per_source,
            limit_global,
            ..
        }) = self.records.first_mut()
        {
            *limit_per_source = Some(per_source);
            *limit_global = Some(global);
        }
        self
    }

    /// On a Postgres of the load test's own.
    fn private(mut self) -> Self {
        if let Some(Record::Start { data_dir, .. }) = self.records.first_mut() {
            *data_dir = Some("load-run".into());
        }
        self
    }

    /// The same calls, for this source.
    fn by_address(mut self, address: &str) -> Self {
        for record in &mut self.records {
            if let Record::Invoked { source, .. } = record {
                *source = Some(address.to_owned());
            }
        }
        self
    }
}

fn by_source(call: Ending) -> Record {
    let mut record = call.answered(429, "rate_limited");
    if let Record::Answered { limit, .. } = &mut record {
        *limit = Some("source".to_owned());
    }
    record
}

#[test]
fn rule_10_nothing_is_saved_while_writes_are_stopped_and_replays_go_on() {
    // Saved in a call from 1 s to 1.001 s, replayed at 2 s.
    let stopped = |from_us, to_us| Case::sound().stopped(from_us, to_us);
    stopped(SECOND, 3 * SECOND).breaks(10, "saved while writes were stopped");
    stopped(SECOND + 1, 3 * SECOND).breaks_nothing();
    stopped(2 * SECOND, 3 * SECOND).breaks_nothing();
    Case::sound()
        .act("stop-writes", None, SECOND / 4, SECOND / 2)
        .act("allow-writes", None, SECOND, 2 * SECOND)
        .breaks_nothing();
    // The answer of the call that saved it was lost.
    let lost = |from_us| {
        Case::new()
            .row("done", Some("T-1"))
            .effect("T-1", "7a")
            .stopped(from_us, 30 * SECOND)
            .call("7a", 9 * SECOND, Ending::left)
            .call("7a", 20 * SECOND, |call| call.done("T-1", true))
    };
    lost(9 * SECOND + 1).breaks_nothing();
    lost(9 * SECOND).breaks(10, "saved while writes were stopped");
}

#[test]
fn rule_10_writes_disabled_only_while_an_operator_has_stopped_writes() {
    let refused = || {
        Case::new()
            .private()
            .call("7a", 10 * SECOND, |call| call.told("writes_disabled"))
    };
    refused().breaks(10, "nobody had stopped writes");
    refused().stopped(9 * SECOND, 11 * SECOND).breaks_nothing();
    refused()
        .stopped(12 * SECOND, 13 * SECOND)
        .breaks(10, "nobody had stopped writes");
    // Elsewhere somebody else may have.
    Case::new()
        .call("7a", 10 * SECOND, |call| call.told("writes_disabled"))
        .breaks_nothing();
}

#[test]
fn rule_10_what_every_answer_refused_is_not_done() {
    let refused = |outcome: &'static str, done: bool| {
        let case = Case::new().with_limits(0, 9).call("7a", 10 * SECOND, move |call| {
            call.answered(if outcome == "rate_limited" { 429 } else { 503 }, outcome)
        });
        if done {
            case.row("done", Some("T-1")).effect("T-1", "7a")
        } else {
            case
        }
    };
    for outcome in ["writes_disabled", "rate_limited"] {
        refused(outcome, false).breaks_nothing();
        refused(outcome, true).breaks(10, "every call was refused, and it is done all the same");
        // Another call may have done it.
        refused(outcome, true)
            .call("7a", 11 * SECOND, |call| call.told("unavailable"))
            .breaks_nothing();
    }
    // Behind a balancer that asked twice while a replica stood still, the first one may do later what the second refused.
    refused("writes_disabled", true)
        .balanced()
        .breaks(10, "every call was refused");
    refused("writes_disabled", true)
        .balanced()
        .fault("pause", 10 * SECOND)
        .breaks_nothing();
}

#[test]
fn rule_3_a_conflict_with_a_call_that_is_refused_afterwards_may_be_done_by_a_repeat() {
    // 7b is claimed and refused by the stop; 7a meets it, and is done when it is called again.
    let met = |case: Case| {
        case.row("done", Some("T-1"))
            .effect("T-1", "7a")
            .call("7b", 10 * SECOND, |call| call.at(12 * SECOND).told("writes_disabled"))
            .call("7a", 11 * SECOND, |call| call.told("conflict"))
            .call("7a", 30 * SECOND, |call| call.done("T-1", false))
    };
    let stopped = || Case::new().stopped(11 * SECOND, 20 * SECOND);
    met(stopped()).breaks_nothing();
    // Nothing was refused, or the conflict came after the call was done.
    met(Case::new()).breaks(3, "the same call was told conflict and done");
    met(stopped())
        .call("7a", 40 * SECOND, |call| call.told("conflict"))
        .breaks(3, "the same call was told conflict and done");
}

#[test]
fn rule_5_a_claim_that_was_let_go_of_for_a_stop_whose_caller_had_left() {
    let left = || Case::new().row("released", None).call("7a", 10 * SECOND, Ending::left);
    left().stopped(11 * SECOND, 12 * SECOND).breaks_nothing();
    left()
        .stopped(4 * SECOND, 5 * SECOND)
        .breaks(5, "let go of, and nobody was told");
    left().with_limits(0, 1).breaks_nothing();
}

#[test]
fn rule_11_no_more_is_saved_in_an_hour_than_the_limit_allows() {
    const HOUR: i64 = 500_000 * 3_600_000;
    let saved = |moments: &[i64]| {
        let mut case = Case::new().with_limits(0, 2);
        for (number, settled_ms) in moments.iter().enumerate() {
            case = case.row("done", None);
            let row = case.rows.last_mut().expect("a row");
            row.request_id = format!("{REQUEST}{number}");
            row.settled_ms = Some(*settled_ms);
        }
        case.judged()
    };
    let is_broken = |verdict: &super::Verdict| verdict.violations.iter().any(|found| found.rule == 11);
    assert!(!is_broken(&saved(&[HOUR, HOUR + 1])));
    assert!(is_broken(&saved(&[HOUR, HOUR + 1, HOUR + 2])));
    // The third counts to another hour, or may do so.
    assert!(!is_broken(&saved(&[HOUR, HOUR + 1, HOUR + 3_600_000])));
    assert!(!is_broken(&saved(&[HOUR, HOUR + 1, HOUR + 3_599_000])));
}

#[test]
fn rule_11_no_source_is_let_in_more_often_than_its_limit_allows() {
    const ADDRESS: &str = "fd00::1";
    let called = |most| {
        let mut case = Case::sound().with_limits(most, 0).by_address(ADDRESS);
        case.rows[0].settled_ms = Some(500_000 * 3_600_000 + 1_000_000);
        case
    };
    let found = |case: Case| {
        let verdict = case.judged();
        let of = |found: &&super::Violation| found.rule == 11 && found.request == ADDRESS;
        verdict.violations.iter().find(of).map(|found| found.found.clone())
    };
    assert_eq!(found(called(2)), None);
    let broken = found(called(1)).expect("2 calls");
    assert!(
        broken.contains("2 calls were let in of a source that may make 1"),
        "{broken}"
    );
    // A crash of Postgres gives everybody the hour's units anew, and so does the next hour.
    assert_eq!(
        found(called(1).record(Record::Fault {
            at_us: SECOND + SECOND / 2,
            fault: "pg-immediate".to_owned(),
            target: "postgres".to_owned(),
            phase: "begin".to_owned(),
        })),
        None
    );
    let mut case = called(1);
    case.rows[0].settled_ms = Some(500_000 * 3_600_000);
    assert_eq!(found(case), None);
}

#[test]
fn rule_11_a_limit_refuses_whoever_has_used_it_up_and_no_other() {
    let refused = |most, address: &str| {
        Case::sound()
            .with_limits(most, 0)
            .call("7a", 3 * SECOND, by_source)
            .by_address(address)
            .judged()
    };
    let rules = |verdict: super::Verdict| {
        verdict
            .violations
            .into_iter()
            .map(|found| found.rule)
            .collect::<Vec<_>>()
    };
    assert_eq!(rules(refused(2, "fd00::1")), [0; 0]);
    assert_eq!(rules(refused(3, "fd00::1")), [11]);
    // There is no limit at all.
    assert_eq!(rules(refused(0, "fd00::1")), [11]);
}
