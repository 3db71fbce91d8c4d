//! What callers sent and what they were told, collected from a history.

use std::collections::{BTreeMap, HashMap};

use serde_json::Value;

use super::Checker;
use crate::load::history::Record;

/// What a call asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Sent {
    pub tool: String,
    /// What tells these arguments from others under the same key.
    pub mark: String,
    /// The ticket that is commented on or set.
    pub ticket: Option<String>,
    /// The SHA-256 of the body, in hex.
    pub body_sha256: Option<String>,
}

/// A call as the history shows it.
struct Call {
    at_us: u64,
    request: String,
    way: String,
    sent: Sent,
    ended: bool,
}

/// An answer *done*, or find_request's.
pub(super) struct Done {
    /// What the call had sent that was told so; find_request sends nothing.
    pub sent: Option<Sent>,
    pub result: BTreeMap<String, Value>,
    pub fresh: bool,
}

/// What callers sent and were told of one request.
#[derive(Default)]
pub(super) struct Told {
    /// Whatever was sent under this request_id, each once.
    pub sent: Vec<Sent>,
    /// Every answer *done*.
    pub done: Vec<Done>,
    /// What was refused with conflict.
    pub conflicts: Vec<Sent>,
    /// When the first caller was told done.
    pub first_done_us: Option<u64>,
    /// Every answer: when its call was sent, when it came, what it said.
    pub answers: Vec<(u64, u64, String)>,
    /// Whether a caller was told that it was not done: a refusal of the operation, or `unavailable`.
    pub refused: bool,
}

/// An answer as the history shows it.
pub(super) struct Answer<'a> {
    pub way: &'a str,
    pub status: u16,
    pub outcome: &'a str,
    pub replayed: Option<bool>,
    pub result: Option<&'a BTreeMap<String, Value>>,
}

impl Checker<'_> {
    pub(super) fn collect(&mut self) -> BTreeMap<String, Told> {
        let mut calls: HashMap<u64, Call> = HashMap::new();
        let mut told: BTreeMap<String, Told> = BTreeMap::new();
        let records = self.records;
        for record in records {
            match record {
                Record::Invoked { .. } => self.invoked(&mut calls, &mut told, record),
                Record::Answered {
                    call,
                    at_us,
                    status,
                    outcome,
                    replayed,
                    result,
                } => {
                    let Some(call) = self.ends(&mut calls, *call, *at_us) else {
                        continue;
                    };
                    let answer = Answer {
                        way: &call.way,
                        status: *status,
                        outcome,
                        replayed: *replayed,
                        result: result.as_ref(),
                    };
                    self.answered(call, *at_us, &answer, told.entry(call.request.clone()).or_default());
                }
                Record::Lost { call, at_us, .. } => {
                    self.ends(&mut calls, *call, *at_us);
                }
                Record::Found {
                    request,
                    http,
                    status,
                    result,
                    ..
                } => self.found(request, *http, status, result.as_ref(), &mut told),
                Record::End { interrupted, .. } => self.verdict.complete = !interrupted,
                _ => {}
            }
        }
        if self.verdict.complete {
            let mut endless: Vec<_> = calls.into_iter().filter(|(_, call)| !call.ended).collect();
            endless.sort_by_key(|(number, _)| *number);
            for (number, call) in endless {
                let found = format!("call {number} has no end, though the run came to its own");
                self.broken(7, &call.request, found);
            }
        }
        told
    }

    fn invoked(&mut self, calls: &mut HashMap<u64, Call>, told: &mut BTreeMap<String, Told>, record: &Record) {
        let Record::Invoked {
            call: number,
            at_us,
            request,
            tool,
            mark,
            ticket,
            body_sha256,
            way,
            ..
        } = record
        else {
            return;
        };
        let sent = Sent {
            tool: tool.clone(),
            mark: mark.clone(),
            ticket: ticket.clone(),
            body_sha256: body_sha256.clone(),
        };
        let known = told.entry(request.clone()).or_default();
        if !known.sent.contains(&sent) {
            known.sent.push(sent.clone());
        }
        let call = Call {
            at_us: *at_us,
            request: request.clone(),
            way: way.clone(),
            sent,
            ended: false,
        };
        if calls.insert(*number, call).is_some() {
            self.broken(7, request, format!("call {number} was sent twice"));
        }
    }

    /// The call that ends here, if there is one.
    fn ends<'c>(&mut self, calls: &'c mut HashMap<u64, Call>, number: u64, at_us: u64) -> Option<&'c Call> {
        let Some(call) = calls.get_mut(&number) else {
            self.broken(7, "(unknown)", format!("call {number} has an end and was never sent"));
            return None;
        };
        if at_us < call.at_us {
            self.broken(7, &call.request, format!("call {number} ended before it was sent"));
        }
        if call.ended {
            self.broken(7, &call.request, format!("call {number} has two ends"));
        }
        call.ended = true;
        self.verdict.calls += 1;
        Some(call)
    }

    fn answered(&mut self, call: &Call, at_us: u64, answer: &Answer<'_>, told: &mut Told) {
        self.verdict.answered += 1;
        let took_us = at_us.saturating_sub(call.at_us);
        if took_us > self.limit_us {
            let found = format!(
                "a call was answered with {} after {} ms",
                answer.outcome,
                took_us / 1_000
            );
            self.broken(5, &call.request, found);
        }
        if let Some(wrong) = answer.what_is_wrong(&call.sent, self.balanced) {
            self.broken(7, &call.request, wrong);
        }
        told.answers.push((call.at_us, at_us, answer.outcome.to_owned()));
        match answer.outcome {
            "done" => {
                told.first_done_us.get_or_insert(at_us);
                told.done.push(Done {
                    sent: Some(call.sent.clone()),
                    result: answer.result.cloned().unwrap_or_default(),
                    fresh: answer.replayed == Some(false),
                });
            }
            "conflict" => told.conflicts.push(call.sent.clone()),
            "in_progress" | "none" => {}
            _ => told.refused = true,
        }
    }

    fn found(
        &mut self,
        request: &str,
        http: u16,
        status: &str,
        result: Option<&BTreeMap<String, Value>>,
        told: &mut BTreeMap<String, Told>,
    ) {
        if let Some(wrong) = super::forms::wrong_with_found(http, status, result.is_some(), self.balanced) {
            self.broken(7, request, wrong);
        }
        if let ("done", Some(result)) = (status, result) {
            told.entry(request.to_owned()).or_default().done.push(Done {
                sent: None,
                result: result.clone(),
                fresh: false,
            });
        }
    }
}
