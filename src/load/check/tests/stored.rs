//! What the ledger holds of which no caller was told, and what nobody asked for.

use serde_json::{Value, json};

use super::super::tables::Stranger;
use super::{Case, Ending, REQUEST, SECOND, row_of};
use crate::load::history::Record;

/// It is done, and its caller has left for good.
fn unheard() -> Case {
    Case::new()
        .row("done", Some("T-1"))
        .effect("T-1", "7a")
        .call("7a", SECOND, Ending::left)
}

/// The stored result with another member, or without one.
fn stored_with(name: &str, value: Option<Value>) -> Case {
    let mut case = unheard();
    let text = case.rows[0].result.as_ref().expect("a result");
    let mut stored = super::object(serde_json::from_str(text).expect("JSON"));
    match value {
        Some(value) => stored.insert(name.to_owned(), value),
        None => stored.remove(name),
    };
    case.rows[0].result = Some(json!(stored).to_string());
    case
}

/// The sound history with a change to its row, or to its ticket.
fn changed(change: impl FnOnce(&mut Case)) -> Case {
    let mut case = Case::sound();
    change(&mut case);
    case
}

#[test]
fn rule_4_an_effect_that_is_lost_though_nobody_was_told_of_it() {
    unheard().breaks_nothing();
    let mut lost = unheard();
    lost.effects.clear();
    lost.breaks(4, "the ledger says done, and there is no effect");
    let mut lost = unheard();
    lost.effects.clear();
    let verdict = lost.judged_so_far();
    assert!(verdict.violations.iter().any(|found| found.rule == 4), "{verdict:?}");
    let mut failed = unheard();
    failed.effects.clear();
    failed.rows[0].status = "failed".to_owned();
    failed.breaks(4, "no attempt of it has died");
}

#[test]
fn rule_4_a_stored_result_that_does_not_tell_of_its_effect() {
    let mut garbage = unheard();
    garbage.rows[0].result = Some("garbage".to_owned());
    garbage.breaks(4, "cannot be read");
    let mut gone = unheard();
    gone.rows[0].result = None;
    gone.breaks(4, "its result is gone");
    for (name, value) in [
        ("title", Some(json!("load 8a"))),
        ("ticket_status", Some(json!("done"))),
        ("created_at", Some(json!("2026-01-01T00:00:00.001Z"))),
        ("title", None),
        ("surprise", Some(json!(1))),
    ] {
        stored_with(name, value).breaks(4, "does not say what T-1 is");
    }
}

#[test]
fn rule_4_an_answer_that_was_dropped_for_its_age_is_no_loss() {
    let aged = |age_ms| {
        let mut case = unheard();
        case.rows[0].result = None;
        case.rows[0].age_ms = Some(age_ms);
        case
    };
    aged(3_600_000).breaks(4, "its result is gone");
    aged(3_600_001).breaks_nothing();
    // A ticket is never dropped.
    let mut lost = unheard();
    lost.rows[0].age_ms = Some(90_000_000);
    lost.effects.clear();
    lost.breaks(4, "there is no effect");
}

#[test]
fn rule_4_a_result_that_was_told_and_is_not_all_in_the_ledger() {
    let without = |name: &str| {
        changed(|case| {
            let mut stored = super::result("T-1");
            stored.remove(name);
            case.rows[0] = row_of(REQUEST, "create_ticket", "done", Some(&stored));
        })
    };
    without("answered_at").breaks_nothing();
    without("title").breaks(4, "the result told is not the one in the ledger");
    changed(|case| case.rows[0].answered_at = Some("2026-01-01T00:00:00.001Z".to_owned()))
        .breaks(4, "not when the ledger settled it");
}

#[test]
fn rule_4_a_request_that_nobody_sent() {
    // Its lines are missing in a history that came to its end.
    let unsent = || {
        let mut case = Case::sound();
        case.rows
            .push(row_of("load-1-8", "create_ticket", "done", Some(&super::result("T-8"))));
        case = case.effect("T-8", "8a");
        let effect = case.effects.last_mut().expect("an effect");
        "load-1-8".clone_into(&mut effect.request_id);
        "load 7a".clone_into(&mut effect.text);
        case
    };
    let found = |case: Case| {
        let verdict = case.judged();
        let found = |found: &&super::Violation| found.rule == 4 && found.request == "load-1-8";
        verdict.violations.iter().find(found).map(|found| found.found.clone())
    };
    assert_eq!(found(unsent()).as_deref(), Some("T-8 is of a request that nobody sent"));
    let mut alone = unsent();
    alone.effects.pop();
    assert!(found(alone).is_some());
    // One that was cut short does not name all that was sent.
    let verdict = unsent().judged_so_far();
    assert!(verdict.violations.is_empty(), "{verdict:?}");
}

#[test]
fn rule_4_what_came_to_be_beside_the_run_on_a_postgres_of_its_own() {
    let mut case = Case::sound();
    case.strangers.push(Stranger {
        request_id: REQUEST.to_owned(),
        what: "T-9".to_owned(),
    });
    case.breaks(4, "T-9 came to be during the run");
}

#[test]
fn rule_4_a_row_that_is_another_callers_or_another_tools() {
    changed(|case| case.rows[0].operation = "add_comment".to_owned())
        .breaks(4, "the ledger has it as add_comment, which was not called");
    changed(|case| case.effects[0].principal = "somebody".to_owned()).breaks(4, "T-1 is somebody's");
    changed(|case| {
        let mut second = case.rows[0].clone();
        second.principal = "somebody".to_owned();
        case.rows.push(second);
    })
    .breaks(4, "the ledger has it 2 times");
}

#[test]
fn rule_4_a_request_that_is_kept_as_somebody_elses() {
    let mut case = unheard();
    let mut other = row_of("load-1-8", "create_ticket", "released", None);
    other.principal = "somebody".to_owned();
    case.rows.push(other);
    let verdict = case.judged();
    let found =
        |found: &super::Violation| found.request == "(all)" && found.found.contains("as of anonymous, somebody");
    assert!(verdict.violations.iter().any(found), "{verdict:?}");
}

#[test]
fn rule_1_a_title_that_has_more_in_it_than_was_sent() {
    changed(|case| case.effects[0].text.push_str("\nand a second line"))
        .breaks(1, "not of the call that was told done");
}

#[test]
fn rule_2_every_caller_is_told_of_the_same_twin_which_is_there() {
    const TWIN: &str = "load-0-7";
    let told = |replay_too: bool, stored: bool, there: bool| {
        let twin = json!({ "request_id": TWIN, "result_id": "T-0" });
        let mut case = Case::sound();
        let mut fresh = true;
        for record in &mut case.records {
            if let Record::Answered {
                result: Some(result), ..
            } = record
                && (std::mem::take(&mut fresh) || replay_too)
            {
                result.insert("possible_duplicate_of".to_owned(), twin.clone());
            }
        }
        case.rows[0].duplicate_of = stored.then(|| twin.to_string());
        case.twins.extend(there.then(|| TWIN.to_owned()));
        case
    };
    told(true, true, true).breaks_nothing();
    told(false, true, true).breaks(2, "not all of its callers");
    told(true, false, true).breaks(2, "not the one in the ledger");
    told(true, true, false).breaks(2, "is nothing that was done");
}
