//! A ticket's status and the requests that explain it.

use serde_json::json;

use super::{Case, Ending, SECOND};
use crate::load::history::Record;

/// A ticket that has this status now, and what requests that are done tell: (from, to).
fn ticket(now: &str, steps: &[(&str, &str)]) -> Case {
    let mut case = Case::sound();
    case.effects[0].status = Some(now.to_owned());
    for (number, (from, to)) in steps.iter().enumerate() {
        let request = format!("load-1-{}", 100 + number);
        case = set(case, &request, "T-1", (from, to));
    }
    case
}

/// A request that has set a ticket's status, and whose caller had left.
fn set(mut case: Case, request: &str, ticket: &str, (from, to): (&str, &str)) -> Case {
    let result = super::object(json!({ "ticket_id": ticket, "ticket_status": to, "previous_status": from }));
    case = case.call("7a", 3 * SECOND, Ending::left);
    let sent = case.records.len() - 2;
    if let Record::Invoked {
        request: of,
        tool,
        mark,
        ..
    } = &mut case.records[sent]
    {
        request.clone_into(of);
        "set_ticket_status".clone_into(tool);
        *mark = format!("{ticket} {to}");
    }
    case.rows
        .push(super::row_of(request, "set_ticket_status", "done", Some(&result)));
    case
}

#[track_caller]
fn is_unexplained(case: Case) {
    let verdict = case.judged();
    let found =
        |violation: &super::Violation| violation.rule == 1 && violation.found.contains("that is not where open");
    assert!(verdict.violations.iter().any(found), "{:?}", verdict.violations);
}

#[test]
fn rule_1_a_status_that_done_requests_lead_to_in_some_order() {
    ticket("open", &[]).breaks_nothing();
    ticket("done", &[("open", "done")]).breaks_nothing();
    ticket("done", &[("done", "done"), ("closed", "done"), ("open", "closed")]).breaks_nothing();
    ticket(
        "open",
        &[
            ("open", "done"),
            ("done", "open"),
            ("open", "closed"),
            ("closed", "open"),
        ],
    )
    .breaks_nothing();
}

#[test]
fn rule_1_a_status_that_was_told_and_is_not_there_or_is_there_and_was_never_told() {
    is_unexplained(ticket("open", &[("open", "done")]));
    is_unexplained(ticket("closed", &[]));
    is_unexplained(ticket("closed", &[("open", "done")]));
}

#[test]
fn rule_1_a_late_attempt_that_set_the_status_a_second_time() {
    // Set to done, to closed by somebody else, and to done again by the first, who tells of it once.
    is_unexplained(ticket("done", &[("open", "done"), ("done", "closed")]));
}

#[test]
fn rule_1_two_requests_that_both_overwrote_the_same() {
    is_unexplained(ticket("closed", &[("open", "done"), ("open", "closed")]));
}

#[test]
fn rule_1_steps_that_hang_together_with_nothing() {
    is_unexplained(ticket("open", &[("done", "closed"), ("closed", "done")]));
}

#[test]
fn rule_4_a_status_of_a_ticket_that_is_not_there() {
    let verdict = set(Case::sound(), "load-1-70", "T-9", ("open", "done")).judged();
    let found = |violation: &super::Violation| violation.rule == 4 && violation.found.contains("no such ticket");
    assert!(verdict.violations.iter().any(found), "{:?}", verdict.violations);
}
