//! One for each way to break one of the first six rules.

use serde_json::json;

use super::{Case, Ending, REQUEST, SECOND, result};
use crate::load::history::Record;

#[test]
fn a_sound_history_breaks_nothing() {
    let verdict = Case::sound().judged();
    assert!(verdict.violations.is_empty(), "{:?}", verdict.violations);
    assert_eq!((verdict.requests, verdict.calls, verdict.effects), (1, 2, 1));
    assert!(verdict.complete);
}

#[test]
fn rule_1_two_effects_of_one_request() {
    Case::sound().effect("T-2", "7a").breaks(1, "2 effects: T-1, T-2");
}

#[test]
fn rule_1_told_done_without_an_effect() {
    Case::new()
        .row("done", Some("T-1"))
        .call("7a", SECOND, |call| call.done("T-1", false))
        .breaks(1, "there is no effect");
}

#[test]
fn rule_1_the_effect_of_other_arguments_than_the_callers() {
    Case::new()
        .row("done", Some("T-1"))
        .effect("T-1", "7b")
        .call("7a", SECOND, |call| call.done("T-1", false))
        .breaks(1, "not of the call that was told done");
}

#[test]
fn rule_2_two_fresh_answers() {
    Case::sound()
        .call("7a", 3 * SECOND, |call| call.done("T-1", false))
        .breaks(2, "2 answers with replayed: false");
}

#[test]
fn rule_2_two_results() {
    Case::sound()
        .call("7a", 3 * SECOND, |call| call.done("T-2", true))
        .breaks(2, "different results");
}

#[test]
fn rule_2_two_moments_of_answering() {
    let later = |call: Ending| {
        let mut record = call.done("T-1", true);
        if let Record::Answered {
            result: Some(result), ..
        } = &mut record
        {
            result.insert("answered_at".to_owned(), json!("2026-01-01T00:00:01.000Z"));
        }
        record
    };
    Case::sound().call("7a", 3 * SECOND, later).breaks(2, "answered at");
}

#[test]
fn rule_2_find_request_tells_another_result_than_the_answer() {
    Case::sound()
        .record(Record::Found {
            at_us: 3 * SECOND,
            asked_us: 3 * SECOND - 1,
            request: REQUEST.to_owned(),
            http: 200,
            status: "done".to_owned(),
            result: Some(result("T-2")),
            visible: None,
        })
        .breaks(2, "different results");
}

#[test]
fn rule_3_a_conflict_that_has_an_effect() {
    Case::sound()
        .effect("T-2", "7b")
        .call("7b", SECOND, |call| call.told("conflict"))
        .breaks(3, "refused with conflict, and has the effect T-2");
}

#[test]
fn rule_3_the_same_call_told_conflict_and_done() {
    Case::sound()
        .call("7a", 3 * SECOND, |call| call.told("conflict"))
        .breaks(3, "told conflict and done");
}

#[test]
fn rule_3_the_effect_of_an_attempt_that_lost_its_lease() {
    Case::sound().effect("T-2", "7a").breaks(3, "T-2 is another attempt's");
}

#[test]
fn rule_4_a_result_that_the_ledger_does_not_have() {
    Case::new()
        .effect("T-1", "7a")
        .call("7a", SECOND, |call| call.done("T-1", false))
        .breaks(4, "the ledger has no row");
    Case::new()
        .row("running", None)
        .effect("T-1", "7a")
        .call("7a", SECOND, |call| call.done("T-1", false))
        .breaks(4, "the ledger says running");
    Case::new()
        .row("done", Some("T-2"))
        .effect("T-2", "7a")
        .call("7a", SECOND, |call| call.done("T-1", false))
        .breaks(4, "not the one in the ledger");
}

#[test]
fn rule_4_an_effect_of_no_request() {
    Case::new()
        .effect("T-1", "7a")
        .breaks(4, "belongs to no request that is done");
    Case::new()
        .row("running", None)
        .effect("T-1", "7a")
        .breaks(4, "belongs to no request that is done");
}

#[test]
fn rule_5_a_caller_that_waits_past_its_limit() {
    // 20 s, the balancer's 5, and room for a slow machine.
    let answered_at = |at_us| Case::sound().call("7a", 3 * SECOND, move |call| call.at(at_us).told("unavailable"));
    answered_at(3 * SECOND + 28 * SECOND).breaks_nothing();
    answered_at(3 * SECOND + 28 * SECOND + 1).breaks(5, "was answered with unavailable after 28000 ms");
}

#[test]
fn rule_5_a_caller_that_is_left_without_an_answer_past_its_limit() {
    let lost_at = |at_us| Case::sound().call("7a", 3 * SECOND, move |call| call.at(at_us).left());
    lost_at(3 * SECOND + 28 * SECOND).breaks_nothing();
    lost_at(3 * SECOND + 28 * SECOND + 1).breaks(5, "had no answer (the caller left) after 28000 ms");
    // A replica that was made to stand still cannot answer, and there is no balancer that asks another one.
    lost_at(40 * SECOND).fault("pause", 20 * SECOND).breaks_nothing();
    lost_at(40 * SECOND)
        .fault("kill", 20 * SECOND)
        .breaks(5, "had no answer");
    lost_at(60 * SECOND)
        .balanced()
        .fault("pause", 20 * SECOND)
        .breaks(5, "had no answer");
    let asked = |at_us| {
        Case::sound().record(Record::Found {
            at_us,
            asked_us: 3 * SECOND,
            request: REQUEST.to_owned(),
            http: 0,
            status: "lost".to_owned(),
            result: None,
            visible: None,
        })
    };
    asked(31 * SECOND).breaks_nothing();
    asked(31 * SECOND + 1).breaks(5, "to find_request ended with lost after 28000 ms");
}

#[test]
fn rule_5_a_waiter_that_is_not_told_of_the_settlement() {
    let waiter =
        |outcome: &'static str| Case::sound().call("7a", SECOND / 2, move |call| call.at(15 * SECOND).told(outcome));
    waiter("in_progress").breaks(5, "in_progress 13999 ms after another one was told done");
    // Nothing can be told while Postgres is away, and a death of another replica is no excuse.
    waiter("in_progress").fault("pg-immediate", 5 * SECOND).breaks_nothing();
    waiter("in_progress").fault("kill", 5 * SECOND).breaks(5, "13999 ms");
}

#[test]
fn rule_5_a_claim_that_stays_unsettled() {
    Case::new()
        .row("running", None)
        .call("7a", SECOND, Ending::left)
        .breaks(5, "still unsettled at the end");
    let lapsed = |lapsed_ms| Record::Watched {
        at_us: 30 * SECOND,
        lapsed_ms,
        request: Some(REQUEST.to_owned()),
    };
    Case::sound().record(lapsed(7_000)).breaks_nothing();
    Case::sound().record(lapsed(7_001)).breaks(5, "lapsed for 7001 ms");
    Case::sound()
        .fault("db-cut", 27 * SECOND)
        .record(lapsed(7_001))
        .breaks_nothing();
    let held = |held_ms| Record::Held {
        at_us: 30 * SECOND,
        request: REQUEST.to_owned(),
        held_ms,
    };
    Case::sound().record(held(7_050)).breaks_nothing();
    Case::sound()
        .record(held(7_051))
        .breaks(5, "held its claim for 7051 ms");
}

#[test]
fn rule_5_a_claim_that_was_let_go_of_in_silence() {
    let left = || Case::new().row("released", None).call("7a", SECOND, Ending::left);
    left().breaks(5, "let go of, and nobody was told");
    left()
        .call("7a", 2 * SECOND, |call| call.told("unavailable"))
        .breaks_nothing();
}

#[test]
fn a_history_that_was_cut_short_is_judged_by_what_there_is() {
    // What runs when the test is interrupted may go on running, and what is wrong stays wrong.
    let verdict = Case::new()
        .row("running", None)
        .call("7a", SECOND, Ending::left)
        .judged_so_far();
    assert!(verdict.violations.is_empty() && !verdict.complete, "{verdict:?}");
    let interrupted = Record::End {
        at_us: 2 * SECOND,
        interrupted: true,
        database_us: None,
    };
    let verdict = Case::new()
        .row("running", None)
        .call("7a", SECOND, Ending::left)
        .record(interrupted)
        .judged_so_far();
    assert!(verdict.violations.is_empty() && !verdict.complete, "{verdict:?}");
    let verdict = Case::sound().effect("T-2", "7a").judged_so_far();
    assert!(
        verdict.violations.iter().any(|violation| violation.rule == 1),
        "{verdict:?}"
    );
}
