//! What was sent and what is there; ends and answers as they must be.

use serde_json::{Value, json};

use super::{AT, Case, Ending, Outcome, REQUEST, SECOND, result};
use crate::load::history::Record;

/// A call, over this way, that is answered like this.
fn answered(way: &'static str, status: u16, outcome: &'static str) -> Case {
    let mut case = Case::new().balanced().with_limits(0, 9);
    if outcome == "failed" {
        case = case.row("failed", None);
        case.rows[0].lapses = 5;
    }
    case = case.call("7a", 3 * SECOND, move |call| call.answered(status, outcome));
    let sent = case.records.len() - 2;
    if let Record::Invoked { way: by, .. } = &mut case.records[sent] {
        way.clone_into(by);
    }
    case
}

/// A sound history whose first answer has been changed.
fn changed(change: impl FnOnce(&mut Record)) -> Case {
    let mut case = Case::sound();
    change(&mut case.records[2]);
    case
}

fn with_member(name: &'static str, value: Option<Value>) -> Case {
    let mut case = Case::sound();
    for record in &mut case.records {
        if let Record::Answered {
            result: Some(result), ..
        } = record
        {
            match &value {
                Some(value) => result.insert(name.to_owned(), value.clone()),
                None => result.remove(name),
            };
        }
    }
    case
}

#[test]
fn rule_1_an_effect_with_another_body_than_was_sent() {
    let mut case = Case::sound();
    "the digest of another".clone_into(&mut case.effects[0].body_sha256);
    case.breaks(1, "the body of T-1 is not the one that was sent");
}

#[test]
fn rule_1_a_comment_under_another_ticket_than_it_was_sent_for() {
    let comment = |under: &str| {
        let mut case = Case::new().row("done", Some("T-1")).effect("C-1", "7a");
        let told = json!({ "comment_id": "C-1", "ticket_id": under, "created_at": AT });
        case.rows[0] = super::row_of(REQUEST, "add_comment", "done", Some(&super::object(told)));
        case.effects[0].ticket = Some(under.to_owned());
        case.effects[0].status = None;
        case = case.call("7a", SECOND, |call| {
            let mut record = call.done("T-1", false);
            if let Record::Answered {
                result: Some(result), ..
            } = &mut record
            {
                result.retain(|name, _| !["title", "ticket_status"].contains(&name.as_str()));
                result.insert("comment_id".to_owned(), json!("C-1"));
            }
            record
        });
        if let Record::Invoked { tool, ticket, .. } = &mut case.records[1] {
            "add_comment".clone_into(tool);
            *ticket = Some("T-1".to_owned());
        }
        case
    };
    comment("T-1").breaks_nothing();
    comment("T-2").breaks(1, "C-1 is under T-2, and was sent for T-1");
}

#[test]
fn rule_1_an_effect_of_no_call_that_was_sent() {
    Case::new()
        .row("done", Some("T-1"))
        .effect("T-1", "8c")
        .call("7a", SECOND, Ending::left)
        .breaks(1, "T-1 is of no call that was sent");
}

#[test]
fn rule_7_a_call_without_an_end_in_a_run_that_came_to_its_own() {
    let endless = || {
        let mut case = Case::sound().call("7a", 3 * SECOND, Ending::left);
        case.records.pop();
        case
    };
    endless().breaks(7, "call 2 has no end");
    // In one that was cut short it may have had one.
    let verdict = endless().judged_so_far();
    assert_eq!(verdict.outcome(), Outcome::Incomplete, "{verdict:?}");
}

#[test]
fn rule_7_calls_with_two_ends_or_none_to_begin_with() {
    Case::sound()
        .record(
            Ending {
                call: 1,
                at_us: 4 * SECOND,
            }
            .left(),
        )
        .breaks(7, "call 1 has two ends");
    let verdict = Case::sound()
        .record(
            Ending {
                call: 9,
                at_us: 4 * SECOND,
            }
            .left(),
        )
        .judged();
    assert!(
        verdict.violations.iter().any(|violation| violation.rule == 7),
        "{verdict:?}"
    );
    let mut case = Case::sound();
    let again = case.records[1].clone();
    case.records.push(again);
    case.breaks(7, "call 0 was sent twice");
}

#[test]
fn rule_7_an_answer_from_before_its_call_was_sent() {
    Case::sound()
        .call("7a", 5 * SECOND, |call| call.at(5 * SECOND - 1).told("unavailable"))
        .breaks(7, "call 2 ended before it was sent");
}

#[test]
fn rule_7_answers_that_the_service_has_by_every_way() {
    const MCP: &str = "mcp-2026-07-28";
    for (way, status, outcome) in [
        ("http", 202, "in_progress"),
        ("http", 502, "unavailable"),
        ("http", 503, "unavailable"),
        ("http", 409, "failed"),
        ("http", 429, "rate_limited"),
        ("http", 503, "writes_disabled"),
        ("http", 502, "none"),
        (MCP, 200, "in_progress"),
        (MCP, 200, "unavailable"),
        (MCP, 502, "unavailable"),
        (MCP, 503, "none"),
    ] {
        answered(way, status, outcome).breaks_nothing();
    }
    for (way, status, outcome) in [
        ("http", 200, "in_progress"),
        ("http", 500, "none"),
        ("http", 504, "none"),
        ("http", 200, "none"),
        ("http", 500, "unavailable"),
        ("http", 200, "failed"),
        ("http", 200, "garbled"),
        ("http", 400, "invalid_argument"),
        ("http", 404, "not_found"),
        ("http", 410, "expired"),
        ("http", 200, "maybe"),
        (MCP, 202, "in_progress"),
        (MCP, 500, "unavailable"),
        (MCP, 400, "none"),
    ] {
        answered(way, status, outcome).breaks(7, &format!("answered with {outcome}"));
    }
    // Without a balancer nobody else could have answered in the service's place.
    Case::sound()
        .call("7a", 3 * SECOND, |call| call.answered(502, "none"))
        .breaks(7, "answered with none");
}

#[test]
fn rule_7_a_done_that_is_not_whole_or_not_of_what_was_sent() {
    with_member("created_at", None).breaks(7, "done without created_at");
    with_member("title", Some(json!(7))).breaks(7, "done without title");
    with_member("surprise", Some(json!(true))).breaks(7, "surprise, which create_ticket does not have");
    with_member("title", Some(json!("load 8a"))).breaks(7, "done for other arguments");
    with_member("ticket_status", Some(json!("closed"))).breaks(7, "done for other arguments");
    changed(|record| {
        if let Record::Answered { replayed, .. } = record {
            *replayed = None;
        }
    })
    .breaks(7, "not whether it is replayed");
    changed(|record| {
        if let Record::Answered { status, .. } = record {
            *status = 200;
        }
    })
    .breaks(7, "replayed false and HTTP 200");
}

#[test]
fn rule_7_a_conflict_with_nothing() {
    Case::sound()
        .call("7a", 3 * SECOND, |call| call.told("conflict"))
        .breaks(7, "nothing else was sent under this request_id");
    Case::sound()
        .call("7b", 3 * SECOND, |call| call.told("conflict"))
        .breaks_nothing();
}

#[test]
fn rule_7_answers_of_find_request() {
    let found = |http, status: &str, result| {
        Case::sound().balanced().record(Record::Found {
            at_us: 3 * SECOND,
            // Nobody had been told done yet.
            asked_us: SECOND / 2,
            request: REQUEST.to_owned(),
            http,
            status: status.to_owned(),
            result,
            visible: None,
        })
    };
    found(200, "done", Some(result("T-1"))).breaks_nothing();
    found(200, "running", None).breaks_nothing();
    found(503, "unavailable", None).breaks_nothing();
    found(502, "none", None).breaks_nothing();
    found(200, "done", None).breaks(7, "find_request answered done with no result");
    found(200, "perhaps", None).breaks(7, "find_request answered perhaps");
    found(500, "none", None).breaks(7, "HTTP 500");
}

#[test]
fn a_history_in_which_no_call_was_answered_shows_nothing() {
    let verdict = Case::new().judged();
    assert_eq!(verdict.outcome(), Outcome::Nothing, "{verdict:?}");
    let verdict = Case::new().call("7a", SECOND, Ending::left).judged();
    assert_eq!(verdict.outcome(), Outcome::Nothing, "{verdict:?}");
    assert!(verdict.violations.is_empty(), "{verdict:?}");
    // What is wrong is wrong all the same.
    let verdict = Case::new().effect("T-1", "7a").judged();
    assert_eq!(verdict.outcome(), Outcome::Broken, "{verdict:?}");
    let verdict = Case::sound().judged();
    assert_eq!(verdict.outcome(), Outcome::Held, "{verdict:?}");
}

#[test]
fn a_history_in_which_little_was_settled_shows_little() {
    // One request is done; of the others callers hear only that the service is not there, or that they are to wait.
    let unsettled = |others: u64, outcome: &'static str| {
        let mut case = Case::sound();
        for number in 0..others {
            case = case.call("9a", 3 * SECOND, move |call| call.told(outcome));
            let sent = case.records.len() - 2;
            if let Record::Invoked { request, .. } = &mut case.records[sent] {
                *request = format!("load-1-{}", 20 + number);
            }
        }
        case
    };
    for outcome in ["unavailable", "in_progress"] {
        assert_eq!(unsettled(1, outcome).judged().outcome(), Outcome::Held);
        let verdict = unsettled(3, outcome).judged();
        assert_eq!(verdict.outcome(), Outcome::Unsettled, "{verdict:?}");
        assert_eq!((verdict.requests, verdict.settled), (4, 1));
        assert_eq!(unsettled(3, outcome).judged_so_far().outcome(), Outcome::Incomplete);
    }
    let gave_up = Record::GaveUp {
        at_us: 50 * SECOND,
        request: REQUEST.to_owned(),
    };
    let verdict = Case::sound().record(gave_up).judged();
    assert_eq!(verdict.outcome(), Outcome::Unsettled, "{verdict:?}");
}
