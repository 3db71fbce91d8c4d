//! What callers sent and what they were told, collected from a history.

use std::collections::{BTreeMap, HashMap};

use serde_json::Value;

use super::Checker;
use super::acts::Acts;
use super::late::Disturbances;
use crate::load::history::{Entry, Record};

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
    /// What an entry is beside its body.
    pub entry: Option<Entry>,
}

/// A call, or a question to find_request, as its caller saw it.
pub(super) struct Heard {
    /// What the call sent; find_request sends nothing.
    pub sent: Option<Sent>,
    pub way: String,
    /// For whom it was sent.
    pub source: Option<String>,
    pub sent_us: u64,
    /// `u64::MAX` if the history shows no end.
    pub ended_us: u64,
    /// An answer's, or `lost`.
    pub outcome: String,
    pub is_fresh: bool,
    /// The entry that it was told of.
    pub id: Option<String>,
    /// The question of the reply that was sent or told of.
    pub parent: Option<String>,
    pub saved_via: Option<String>,
    /// Whether it was told that the entry cannot be read.
    pub is_hidden: bool,
    /// Whose limit refused it.
    pub limit: Option<String>,
}

impl Heard {
    /// What saved_via calls the way by which it came.
    pub fn origin(&self) -> &'static str {
        if self.way == "http" { "http" } else { "mcp" }
    }

    /// What an answer tells of an entry.
    fn tells_of(&mut self, result: Option<&BTreeMap<String, Value>>) {
        let text = |name: &str| result?.get(name)?.as_str().map(str::to_owned);
        self.saved_via = text("saved_via");
        if self.saved_via.is_some() {
            self.id = text("id");
            self.parent = text("parent_id").or(self.parent.take());
            self.is_hidden |= result.and_then(|result| result.get("visible")) == Some(&Value::Bool(false));
        }
    }
}

/// A call as the history shows it.
struct Call {
    at_us: u64,
    request: String,
    way: String,
    source: Option<String>,
    sent: Sent,
    ended: bool,
}

impl Call {
    /// As its caller saw it.
    fn heard(&self, ended_us: u64, outcome: &str) -> Heard {
        Heard {
            sent: Some(self.sent.clone()),
            way: self.way.clone(),
            source: self.source.clone(),
            sent_us: self.at_us,
            ended_us,
            outcome: outcome.to_owned(),
            is_fresh: false,
            id: None,
            parent: self.sent.entry.as_ref().and_then(|entry| entry.parent_id.clone()),
            saved_via: None,
            is_hidden: false,
            limit: None,
        }
    }
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
    /// When the first caller was told done.
    pub first_done_us: Option<u64>,
    /// Every answer: when its call was sent, when it came, what it said.
    pub answers: Vec<(u64, u64, String)>,
    /// Whether a caller was told that it was not done: a refusal of the operation, or `unavailable`.
    pub refused: bool,
    /// Every call, whatever came of it.
    pub calls: Vec<Heard>,
}

impl Told {
    /// Whether a caller learnt what became of it. A limit's word counts where the limit is known.
    pub fn is_settled(&self, knows_limits: bool) -> bool {
        self.calls.iter().any(|heard| match heard.outcome.as_str() {
            "done" | "deleted" | "failed" | "not_found" => true,
            "rate_limited" => knows_limits,
            _ => false,
        })
    }

    /// The earliest moment at which what this caller was told of was saved: whoever is told of it afresh has saved it, and
    /// before the first call nobody has.
    pub fn saved_since(&self, heard: &Heard) -> u64 {
        if heard.is_fresh {
            heard.sent_us
        } else {
            self.first_sent_us()
        }
    }

    fn first_sent_us(&self) -> u64 {
        let sent = self.calls.iter().filter(|heard| heard.sent.is_some());
        sent.map(|heard| heard.sent_us).min().unwrap_or(0)
    }

    /// Whether an operator did something for which it may have been refused.
    pub fn may_have_been_refused(&self, acts: &Acts) -> bool {
        let from_us = self.first_sent_us();
        let out_of_sight = |heard: &Heard| {
            let parent = heard.parent.as_deref();
            parent.is_some_and(|parent| acts.perhaps_out_of_sight(parent, from_us, u64::MAX))
        };
        acts.perhaps_stopped(from_us, u64::MAX) || self.calls.iter().any(out_of_sight)
    }
}

/// An answer as the history shows it.
pub(super) struct Answer<'a> {
    pub way: &'a str,
    pub status: u16,
    pub outcome: &'a str,
    pub replayed: Option<bool>,
    pub result: Option<&'a BTreeMap<String, Value>>,
    /// The http_status in an envelope over MCP.
    pub told_status: Option<u16>,
    /// Of rate_limited: whose limit.
    pub limit: Option<&'a str>,
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
                    told_status,
                    limit,
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
                        told_status: *told_status,
                        limit: limit.as_deref(),
                    };
                    self.answered(call, *at_us, &answer, told.entry(call.request.clone()).or_default());
                }
                Record::Lost { call, at_us, why, .. } => {
                    if let Some(call) = self.ends(&mut calls, *call, *at_us) {
                        self.too_late(&call.request, call.at_us, *at_us, &format!("had no answer ({why})"));
                        let heard = call.heard(*at_us, "lost");
                        told.entry(call.request.clone()).or_default().calls.push(heard);
                    }
                }
                Record::Found { .. } => self.found(record, &mut told),
                Record::GaveUp { .. } => self.verdict.given_up += 1,
                Record::End { interrupted, .. } => self.verdict.complete = !interrupted,
                _ => {}
            }
        }
        let mut endless: Vec<_> = calls.into_iter().filter(|(_, call)| !call.ended).collect();
        endless.sort_by_key(|(number, _)| *number);
        for (number, call) in endless {
            let heard = call.heard(u64::MAX, "lost");
            told.entry(call.request.clone()).or_default().calls.push(heard);
            if self.verdict.complete {
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
            entry,
            source,
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
            entry: entry.clone(),
        };
        let known = told.entry(request.clone()).or_default();
        if !known.sent.contains(&sent) {
            known.sent.push(sent.clone());
        }
        let call = Call {
            at_us: *at_us,
            request: request.clone(),
            way: way.clone(),
            source: source.clone(),
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
        let what = format!("was answered with {}", answer.outcome);
        self.too_late(&call.request, call.at_us, at_us, &what);
        if let Some(wrong) = answer.what_is_wrong(&call.sent, self.balanced) {
            self.broken(7, &call.request, wrong);
        }
        told.answers.push((call.at_us, at_us, answer.outcome.to_owned()));
        let mut heard = call.heard(at_us, answer.outcome);
        heard.is_fresh = answer.replayed == Some(false);
        heard.limit = answer.limit.map(str::to_owned);
        heard.tells_of(answer.result);
        told.calls.push(heard);
        match answer.outcome {
            "done" => {
                told.first_done_us.get_or_insert(at_us);
                told.done.push(Done {
                    sent: Some(call.sent.clone()),
                    result: answer.result.cloned().unwrap_or_default(),
                    fresh: answer.replayed == Some(false),
                });
            }
            "conflict" | "in_progress" | "none" => {}
            _ => told.refused = true,
        }
    }

    /// Rule 5 for a call that ended past its limit, however it ended. Without a balancer that asks another one, a replica that was made
    /// to stand still does not answer.
    fn too_late(&mut self, request: &str, sent_us: u64, ended_us: u64, what: &str) {
        let took_us = ended_us.saturating_sub(sent_us);
        if took_us <= self.limit_us {
            return;
        }
        let paused = Disturbances::of(self.records, |fault| fault == "pause");
        if self.balanced || !paused.touch(sent_us, ended_us, 0) {
            self.broken(5, request, format!("a call {what} after {} ms", took_us / 1_000));
        }
    }

    fn found(&mut self, record: &Record, told: &mut BTreeMap<String, Told>) {
        let Record::Found {
            at_us,
            asked_us,
            request,
            http,
            status,
            result,
            visible,
        } = record
        else {
            return;
        };
        self.too_late(
            request,
            *asked_us,
            *at_us,
            &format!("to find_request ended with {status}"),
        );
        let told = told.entry(request.clone()).or_default();
        let posts = told.sent.iter().any(|sent| sent.tool == "post_entry");
        if let Some(wrong) = super::forms::wrong_with_found(*http, status, result.is_some(), posts, self.balanced) {
            self.broken(7, request, wrong);
        }
        if let ("done", Some(result)) = (status.as_str(), result) {
            told.done.push(Done {
                sent: None,
                result: result.clone(),
                fresh: false,
            });
        }
        let mut heard = Heard {
            sent: None,
            way: "http".to_owned(),
            source: None,
            sent_us: *asked_us,
            ended_us: *at_us,
            outcome: status.clone(),
            is_fresh: false,
            id: None,
            parent: None,
            saved_via: None,
            is_hidden: *visible == Some(false),
            limit: None,
        };
        heard.tells_of(result.as_ref());
        told.calls.push(heard);
    }
}
