//! Histories made by hand, one for each way to break a rule.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::tables::{Effect, Row};
use super::{Checker, Tables, Verdict};
use crate::load::history::Record;

const REQUEST: &str = "load-1-7";
const SECOND: u64 = 1_000_000;

/// A history and its tables, to which a test adds what it is about.
struct Case {
    records: Vec<Record>,
    rows: Vec<Row>,
    effects: Vec<Effect>,
    calls: u64,
}

fn result(id: &str) -> BTreeMap<String, Value> {
    serde_json::from_value(json!({ "ticket_id": id, "answered_at": "2026-01-01T00:00:00.000Z" })).expect("an object")
}

impl Case {
    /// A lease of 2 s, a wait of 20 s, work of 50 ms, no balancer.
    fn new() -> Self {
        let start = Record::Start {
            seed: 1,
            run: "load-1".to_owned(),
            database_url: String::new(),
            data_dir: None,
            lease_ms: 2_000,
            wait_ms: 20_000,
            work_ms: 50,
            tries: 1,
            about: String::new(),
        };
        Self {
            records: vec![start],
            rows: Vec::new(),
            effects: Vec::new(),
            calls: 0,
        }
    }

    /// One that is sound: done once, told twice.
    fn sound() -> Self {
        Self::new()
            .row("done", Some("T-1"))
            .effect("T-1", "7a")
            .call("7a", SECOND, |call| call.done("T-1", false))
            .call("7a", 2 * SECOND, |call| call.done("T-1", true))
    }

    fn row(mut self, status: &str, id: Option<&str>) -> Self {
        self.rows.push(Row {
            request_id: REQUEST.to_owned(),
            status: status.to_owned(),
            result: id.map(|id| json!({ "ticket_id": id }).to_string()),
        });
        self
    }

    fn effect(mut self, id: &str, mark: &str) -> Self {
        self.effects.push(Effect {
            request_id: REQUEST.to_owned(),
            id: id.to_owned(),
            text: format!("load {mark}"),
        });
        self
    }

    /// A call that was sent then; it is answered by what `end` makes of it.
    fn call(mut self, mark: &str, at_us: u64, end: impl FnOnce(Ending) -> Record) -> Self {
        let call = self.calls;
        self.calls += 1;
        self.records.push(Record::Invoked {
            call,
            at_us,
            request: REQUEST.to_owned(),
            tool: "create_ticket".to_owned(),
            mark: mark.to_owned(),
            way: "http".to_owned(),
            why: "first".to_owned(),
        });
        self.records.push(end(Ending {
            call,
            at_us: at_us + 1_000,
        }));
        self
    }

    fn fault(mut self, fault: &str, at_us: u64) -> Self {
        self.records.push(Record::Fault {
            at_us,
            fault: fault.to_owned(),
            target: "replica 1".to_owned(),
            phase: "once".to_owned(),
        });
        self
    }

    fn record(mut self, record: Record) -> Self {
        self.records.push(record);
        self
    }

    fn judged(mut self) -> Verdict {
        self.records.push(Record::End {
            at_us: 60 * SECOND,
            interrupted: false,
        });
        self.judged_so_far()
    }

    fn judged_so_far(self) -> Verdict {
        let tables = Tables::of(self.rows, self.effects);
        Checker::new(&self.records, &tables).judge()
    }

    /// Asserts that this very rule is broken, by this request, with these words.
    #[track_caller]
    fn breaks(self, rule: usize, words: &str) {
        let verdict = self.judged();
        let found = |violation: &super::Violation| {
            violation.rule == rule && violation.request == REQUEST && violation.found.contains(words)
        };
        assert!(verdict.violations.iter().any(found), "{:?}", verdict.violations);
    }

    #[track_caller]
    fn breaks_nothing(self) {
        let verdict = self.judged();
        assert!(verdict.violations.is_empty(), "{:?}", verdict.violations);
    }
}

/// The end of a call that is yet to be said.
struct Ending {
    call: u64,
    at_us: u64,
}

impl Ending {
    fn at(mut self, at_us: u64) -> Self {
        self.at_us = at_us;
        self
    }

    fn done(self, id: &str, replayed: bool) -> Record {
        Record::Answered {
            call: self.call,
            at_us: self.at_us,
            status: 200,
            outcome: "done".to_owned(),
            replayed: Some(replayed),
            result: Some(result(id)),
        }
    }

    fn told(self, outcome: &str) -> Record {
        Record::Answered {
            call: self.call,
            at_us: self.at_us,
            status: 200,
            outcome: outcome.to_owned(),
            replayed: None,
            result: None,
        }
    }

    fn left(self) -> Record {
        Record::Lost {
            call: self.call,
            at_us: self.at_us,
            cut: true,
            why: "the caller left".to_owned(),
        }
    }
}

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
            request: REQUEST.to_owned(),
            status: "done".to_owned(),
            result: Some(result("T-2")),
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
