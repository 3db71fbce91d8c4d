//! Entries: what is saved of them, deletions, and what is out of sight.

use serde_json::{Value, json};

use super::super::tables::{Deletion, Effect};
use super::{AT, BODY, Case, PRINCIPAL, REQUEST, SECOND, object, row_of};
use crate::load::history::{Entry, Record};

const QUESTION: &str = "E-Q";

/// A reply to [`QUESTION`], as it was sent.
pub(super) fn entry() -> Entry {
    Entry {
        kind: "reply".to_owned(),
        parent_id: Some(QUESTION.to_owned()),
        title: None,
        actor_name: "night-watch".to_owned(),
        actor_model: "caf\u{e9}".to_owned(),
        actor_trigger: "user_request".to_owned(),
        submission_mode: "autonomous".to_owned(),
    }
}

/// What post_entry answers.
fn posted(id: &str) -> Value {
    let url = format!("http://127.0.0.1:8000/api/v1/threads/{QUESTION}");
    json!({
        "id": id, "type": "reply", "parent_id": QUESTION, "url": url, "bookmark_url": format!("{url}/replies/{id}"),
        "saved_via": "http", "created_at": AT, "answered_at": AT,
    })
}

/// An answer to a call.
#[derive(Clone)]
struct Answer {
    status: u16,
    outcome: &'static str,
    result: Option<Value>,
    replayed: Option<bool>,
    way: &'static str,
}

fn told(status: u16, outcome: &'static str) -> Answer {
    Answer {
        status,
        outcome,
        result: None,
        replayed: None,
        way: "http",
    }
}

fn done(id: &str, replayed: bool) -> Answer {
    Answer {
        result: Some(posted(id)),
        replayed: Some(replayed),
        ..told(if replayed { 200 } else { 201 }, "done")
    }
}

/// A replay that says that the entry cannot be read.
fn hidden() -> Answer {
    let mut answer = done("E-1", true);
    answer.result = answer.result.map(|mut result| {
        result["visible"] = json!(false);
        result
    });
    answer
}

impl Answer {
    fn with(mut self, name: &str, value: Value) -> Self {
        self.result = self.result.map(|mut result| {
            result[name] = value;
            result
        });
        self
    }

    /// Over MCP, where the status stands in an envelope.
    fn over_mcp(mut self) -> Self {
        self.way = "mcp-2026-07-28";
        self
    }
}

impl Case {
    /// A reply that was saved at 10 s and told twice.
    fn replied() -> Self {
        Self::new()
            .saved("E-1")
            .post(10 * SECOND, done("E-1", false))
            .post(11 * SECOND, done("E-1", true))
    }

    /// The row of the ledger and the entry.
    fn saved(mut self, id: &str) -> Self {
        self.rows
            .push(row_of(REQUEST, "post_entry", "done", Some(&object(posted(id)))));
        self.effects.push(Effect {
            request_id: REQUEST.to_owned(),
            principal: PRINCIPAL.to_owned(),
            id: id.to_owned(),
            created_at: AT.to_owned(),
            saved_via: Some("http".to_owned()),
            text: "load 7a".to_owned(),
            body_sha256: BODY.to_owned(),
            ticket: None,
            status: None,
            entry: Some(entry()),
        });
        self
    }

    /// The entry has gone, and a record is left.
    fn deleted(mut self, id: &str) -> Self {
        self.effects.clear();
        self.rows[0].result = None;
        self.deletions.push(Deletion {
            request_id: REQUEST.to_owned(),
            entry_id: id.to_owned(),
            kind: "reply".to_owned(),
            parent_id: Some(QUESTION.to_owned()),
        });
        self
    }

    /// A call of a tenth of a second.
    fn post(self, at_us: u64, answer: Answer) -> Self {
        self.post_for(at_us, SECOND / 10, answer)
    }

    fn post_for(mut self, at_us: u64, took_us: u64, answer: Answer) -> Self {
        let call = self.calls;
        self.calls += 1;
        self.records.push(Record::Invoked {
            call,
            at_us,
            request: REQUEST.to_owned(),
            tool: "post_entry".to_owned(),
            mark: "7a".to_owned(),
            ticket: None,
            body_sha256: Some(BODY.to_owned()),
            entry: Some(entry()),
            source: None,
            way: answer.way.to_owned(),
            why: "first".to_owned(),
        });
        let over_mcp = answer.way != "http";
        self.records.push(Record::Answered {
            call,
            at_us: at_us + took_us,
            status: if over_mcp { 200 } else { answer.status },
            outcome: answer.outcome.to_owned(),
            replayed: answer.replayed,
            result: answer.result.map(object),
            told_status: over_mcp.then_some(answer.status),
            limit: None,
        });
        self
    }

    /// An act, which took from this moment to that one.
    pub(super) fn act(mut self, act: &str, entry: Option<&str>, from_us: u64, to_us: u64) -> Self {
        for (at_us, phase) in [(from_us, "begin"), (to_us, "end")] {
            self.records.push(Record::Acted {
                at_us,
                act: act.to_owned(),
                entry: entry.map(str::to_owned),
                phase: phase.to_owned(),
                outcome: (phase == "end").then(|| "changed".to_owned()),
            });
        }
        self
    }

    /// Hidden from 5 s to 20 s.
    fn hidden(self, id: &str) -> Self {
        self.act("hide", Some(id), 4 * SECOND, 5 * SECOND)
            .act("unhide", Some(id), 20 * SECOND, 21 * SECOND)
    }

    /// Deleted at 13 s.
    fn delete(self, id: &str) -> Self {
        self.act("delete", Some(id), 12 * SECOND, 13 * SECOND)
    }
}

#[test]
fn a_sound_history_of_an_entry_breaks_nothing() {
    Case::replied().breaks_nothing();
    Case::replied()
        .post(12 * SECOND, done("E-1", true).over_mcp())
        .breaks_nothing();
}

#[test]
fn rule_1_an_entry_that_is_not_what_was_sent() {
    let changes: [fn(&mut Entry); 4] = [
        |entry| entry.parent_id = Some("E-R".to_owned()),
        |entry| entry.actor_model = "cafe\u{301}".to_owned(),
        |entry| "reviewed".clone_into(&mut entry.submission_mode),
        |entry| "question".clone_into(&mut entry.kind),
    ];
    for change in changes {
        let mut case = Case::replied();
        change(case.effects[0].entry.as_mut().expect("an entry"));
        case.breaks(1, "was sent");
    }
    let mut case = Case::replied();
    "the digest of another".clone_into(&mut case.effects[0].body_sha256);
    case.breaks(1, "the body of E-1");
}

#[test]
fn rule_1_two_entries_of_one_request_and_one_that_an_operator_does_not_find() {
    let mut case = Case::replied().saved("E-2");
    case.rows.pop();
    case.breaks(1, "2 effects: E-1, E-2");
    let unfound = |outcome: &str| {
        Case::replied().record(Record::Acted {
            at_us: 12 * SECOND,
            act: "unhide".to_owned(),
            entry: Some("E-1".to_owned()),
            phase: "end".to_owned(),
            outcome: Some(outcome.to_owned()),
        })
    };
    unfound("already so").breaks_nothing();
    unfound("unknown").breaks(1, "an operator did not find E-1");
}

#[test]
fn rule_2_the_way_by_which_it_was_first_saved_is_one_and_true() {
    Case::replied()
        .post(12 * SECOND, done("E-1", true).with("saved_via", json!("mcp")))
        .breaks(2, "different results");
    // Only MCP had been used when it was saved.
    let first_by_mcp = |via: &str| {
        let mut case = Case::new()
            .saved("E-1")
            .post(10 * SECOND, done("E-1", false).with("saved_via", json!(via)).over_mcp())
            .post(11 * SECOND, done("E-1", true).with("saved_via", json!(via)));
        let mut stored: Value = serde_json::from_str(case.rows[0].result.as_ref().expect("one")).expect("JSON");
        stored["saved_via"] = json!(via);
        case.rows[0].result = Some(stored.to_string());
        case.effects[0].saved_via = Some(via.to_owned());
        case
    };
    first_by_mcp("mcp").breaks_nothing();
    first_by_mcp("http").breaks(2, "said to be first saved by http");
}

#[test]
fn rule_7_an_entrys_answers_in_both_forms() {
    Case::replied()
        .post(12 * SECOND, done("E-1", true).with("surprise", json!(1)))
        .breaks(7, "surprise");
    Case::replied()
        .post(12 * SECOND, done("E-1", true).with("visible", json!(true)))
        .breaks(7, "visible");
    Case::replied()
        .post(12 * SECOND, done("E-1", true).with("url", json!("elsewhere")))
        .breaks(7, "other arguments");
    let mut wrong = done("E-1", true).over_mcp();
    wrong.status = 201;
    Case::replied()
        .post(12 * SECOND, wrong)
        .breaks(7, "http_status Some(201)");
    // A ticket cannot be deleted, and none of its calls has a parent.
    for outcome in ["deleted", "not_found"] {
        let status = if outcome == "deleted" { 410 } else { 404 };
        Case::sound()
            .call("7a", 3 * SECOND, |call| call.answered(status, outcome))
            .breaks(7, "which this call cannot be");
    }
}

#[test]
fn rule_8_what_is_left_of_a_deleted_entry() {
    let deleted = || Case::replied().delete("E-1").deleted("E-1");
    deleted().post(14 * SECOND, told(410, "deleted")).breaks_nothing();
    deleted().saved("E-2").breaks(8, "E-1 was deleted, and E-2 is there");
    deleted().deleted("E-2").breaks(8, "2 records of deletions");
    let mut case = deleted();
    case.rows[0].result = Some(posted("E-1").to_string());
    case.breaks(8, "its answer is still in the ledger");
    let mut case = deleted();
    case.deletions[0].parent_id = Some("E-R".to_owned());
    case.breaks(8, "not of an entry that was sent");
    Case::replied().deleted("E-1").breaks(8, "no operator deleted it");
    Case::replied().delete("E-1").breaks(8, "there is no record of it");
    Case::replied()
        .delete("E-2")
        .deleted("E-2")
        .breaks(8, "a caller was told of another entry");
}

#[test]
fn rule_8_a_repeat_of_a_deleted_entry_is_told_so_and_nobody_else_is() {
    let deleted = || Case::replied().delete("E-1").deleted("E-1");
    // While it is being deleted, either is true.
    deleted().post(12 * SECOND + 1, done("E-1", true)).breaks_nothing();
    deleted().post(12 * SECOND + 1, told(410, "deleted")).breaks_nothing();
    deleted()
        .post(13 * SECOND + 1, done("E-1", true))
        .breaks(8, "told done after E-1 had been deleted");
    Case::replied()
        .post(12 * SECOND, told(410, "deleted"))
        .breaks(8, "told deleted, and no operator had deleted it");
    deleted()
        .post(11 * SECOND, told(410, "deleted"))
        .breaks(8, "told deleted, and no operator had deleted it");
}

#[test]
fn rule_9_nothing_is_added_to_a_question_that_is_hidden_or_deleted() {
    // Saved at 10 s, and hidden from 5 s on; the replay comes when it is shown again.
    let saved = |from_us, to_us| {
        Case::new()
            .saved("E-1")
            .act("hide", Some(QUESTION), from_us, from_us + SECOND)
            .act("unhide", Some(QUESTION), to_us, to_us + SECOND)
            .post(10 * SECOND, done("E-1", false))
            .post(50 * SECOND, done("E-1", true))
    };
    saved(4 * SECOND, 20 * SECOND).breaks(9, "E-1 was saved while E-Q was hidden");
    // Hidden, or shown again, while the call was under way.
    saved(9 * SECOND + 1, 20 * SECOND).breaks_nothing();
    saved(4 * SECOND, 10 * SECOND + 1).breaks_nothing();
    let after_deletion = |at_us| {
        Case::new()
            .saved("E-1")
            .act("delete", Some(QUESTION), SECOND, 2 * SECOND)
            .post(at_us, done("E-1", false))
    };
    after_deletion(2 * SECOND - 1).breaks_nothing();
    after_deletion(2 * SECOND).breaks(9, "was saved while E-Q was hidden or deleted");
    // Nobody was told of it afresh, and it was saved after the first call all the same.
    Case::new()
        .saved("E-1")
        .hidden(QUESTION)
        .post(10 * SECOND, told(503, "unavailable"))
        .post(11 * SECOND, hidden())
        .breaks(9, "was saved while");
}

#[test]
fn rule_9_a_reply_is_refused_only_while_its_question_is_out_of_sight() {
    let refused = || Case::new().post(10 * SECOND, told(404, "not_found"));
    refused().breaks(9, "refused with not_found, and E-Q was in sight");
    refused().hidden(QUESTION).breaks_nothing();
    refused()
        .act("hide", Some(QUESTION), 11 * SECOND, 12 * SECOND)
        .breaks(9, "E-Q was in sight");
    refused()
        .act("delete", Some(QUESTION), 10 * SECOND + 1, 12 * SECOND)
        .breaks_nothing();
}

#[test]
fn rule_9_a_repeat_says_whether_the_entry_can_be_read() {
    for id in ["E-1", QUESTION] {
        let repeated = |at_us, answer| {
            Case::replied()
                .act("hide", Some(id), 12 * SECOND, 13 * SECOND)
                .act("unhide", Some(id), 20 * SECOND, 21 * SECOND)
                .post(at_us, answer)
        };
        repeated(14 * SECOND, hidden()).breaks_nothing();
        repeated(14 * SECOND, done("E-1", true)).breaks(9, "a caller was not told so");
        repeated(12 * SECOND + 1, hidden()).breaks_nothing();
        repeated(12 * SECOND + 1, done("E-1", true)).breaks_nothing();
        repeated(30 * SECOND, done("E-1", true)).breaks_nothing();
        repeated(30 * SECOND, hidden()).breaks(9, "and it was not");
    }
    // find_request says it beside the result.
    let found = |visible| {
        Case::replied()
            .hidden("E-9")
            .act("hide", Some("E-1"), 12 * SECOND, 13 * SECOND)
            .record(Record::Found {
                at_us: 15 * SECOND,
                asked_us: 14 * SECOND,
                request: REQUEST.to_owned(),
                http: 200,
                status: "done".to_owned(),
                result: Some(object(posted("E-1"))),
                visible,
            })
    };
    found(Some(false)).breaks_nothing();
    found(None).breaks(9, "a caller was not told so");
}
