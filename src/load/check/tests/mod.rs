//! Histories made by hand, one for each way to break a rule.

mod entries;
mod forms;
mod order;
mod rules;
mod statuses;
mod stops;
mod stored;

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::tables::{Deletion, Effect, Row, Stranger};
use super::{Checker, Outcome, Tables, Verdict, Violation};
use crate::load::history::Record;

const REQUEST: &str = "load-1-7";
const SECOND: u64 = 1_000_000;
/// When everything was done, as callers are told it.
const AT: &str = "2026-01-01T00:00:00.000Z";
const PRINCIPAL: &str = "anonymous";

/// The body of every call.
const BODY: &str = "the digest of a body";

/// A history and its tables, to which a test adds what it is about.
struct Case {
    records: Vec<Record>,
    rows: Vec<Row>,
    effects: Vec<Effect>,
    deletions: Vec<Deletion>,
    strangers: Vec<Stranger>,
    /// Requests that are there to be named as twins.
    twins: Vec<String>,
    retried: Vec<String>,
    calls: u64,
}

/// A row of the ledger that was settled at [`AT`].
fn row_of(request: &str, operation: &str, status: &str, result: Option<&BTreeMap<String, Value>>) -> Row {
    Row {
        request_id: request.to_owned(),
        principal: PRINCIPAL.to_owned(),
        operation: operation.to_owned(),
        status: status.to_owned(),
        result: result.map(|result| {
            let mut stored = result.clone();
            stored.remove("answered_at");
            json!(stored).to_string()
        }),
        duplicate_of: None,
        lapses: 0,
        settled_ms: None,
        answered_at: Some(AT.to_owned()),
        age_ms: Some(1_000),
    }
}

fn object(value: Value) -> BTreeMap<String, Value> {
    serde_json::from_value(value).expect("an object")
}

/// What create_ticket answers.
fn result(id: &str) -> BTreeMap<String, Value> {
    object(json!({ "ticket_id": id, "title": "load 7a", "ticket_status": "open", "created_at": AT, "answered_at": AT }))
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
            one_at_a_time: false,
            limit_per_source: Some(0),
            limit_global: Some(0),
            database_us: None,
            about: String::new(),
            again: String::new(),
        };
        Self {
            records: vec![start],
            rows: Vec::new(),
            effects: Vec::new(),
            deletions: Vec::new(),
            strangers: Vec::new(),
            twins: Vec::new(),
            retried: Vec::new(),
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

    /// The same behind a balancer.
    fn balanced(mut self) -> Self {
        if let Some(Record::Start { tries, .. }) = self.records.first_mut() {
            *tries = 2;
        }
        self
    }

    fn row(mut self, status: &str, id: Option<&str>) -> Self {
        let result = id.map(result);
        self.rows
            .push(row_of(REQUEST, "create_ticket", status, result.as_ref()));
        self
    }

    fn effect(mut self, id: &str, mark: &str) -> Self {
        self.effects.push(Effect {
            request_id: REQUEST.to_owned(),
            principal: PRINCIPAL.to_owned(),
            id: id.to_owned(),
            text: format!("load {mark}"),
            body_sha256: BODY.to_owned(),
            created_at: AT.to_owned(),
            saved_via: None,
            ticket: None,
            status: Some("open".to_owned()),
            entry: None,
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
            ticket: None,
            body_sha256: Some(BODY.to_owned()),
            entry: None,
            source: None,
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
            database_us: None,
        });
        self.judged_so_far()
    }

    fn judged_so_far(self) -> Verdict {
        let mut tables = Tables::of(self.rows, self.effects, self.deletions);
        tables.strangers = self.strangers;
        tables.twins.extend(self.twins);
        tables.retried.extend(self.retried);
        Checker::new(&self.records, &tables).judge()
    }

    /// Asserts that this very rule is broken, by this request, with these words.
    #[track_caller]
    fn breaks(self, rule: usize, words: &str) {
        let verdict = self.judged();
        let found = |violation: &Violation| {
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
            status: if replayed { 200 } else { 201 },
            outcome: "done".to_owned(),
            replayed: Some(replayed),
            result: Some(result(id)),
            told_status: None,
            limit: None,
        }
    }

    fn told(self, outcome: &str) -> Record {
        let status = match outcome {
            "in_progress" => 202,
            "conflict" => 409,
            _ => 503,
        };
        self.answered(status, outcome)
    }

    fn answered(self, status: u16, outcome: &str) -> Record {
        Record::Answered {
            call: self.call,
            at_us: self.at_us,
            status,
            outcome: outcome.to_owned(),
            replayed: None,
            result: None,
            told_status: None,
            limit: (outcome == "rate_limited").then(|| "global".to_owned()),
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
