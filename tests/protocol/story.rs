//! Checking a protocol, and what comes of it in words.

use std::fmt;

use stateright::{Checker, Expectation, HasDiscoveries, Model};

use super::check::ENDS;
use super::model::*;

/// What a check of everything found.
pub struct Report {
    pub states: usize,
    /// Properties that do not hold, and how one gets there.
    pub violations: Vec<Violation>,
    /// What the model should get to and did not.
    pub unreached: Vec<&'static str>,
}

pub struct Violation {
    pub property: &'static str,
    pub steps: Vec<String>,
}

/// Walks through every state; ends early when a property does not hold.
pub fn check(protocol: Protocol, threads: usize) -> Report {
    let checker = protocol
        .checker()
        .threads(threads)
        .finish_when(HasDiscoveries::AnyFailures)
        .spawn_bfs()
        .join();
    let found = checker.discoveries();
    let (mut violations, mut unreached) = (Vec::new(), Vec::new());
    for property in checker.model().properties() {
        match (property.expectation, found.get(property.name)) {
            (Expectation::Sometimes, None) => unreached.push(property.name),
            (Expectation::Always, Some(path)) => violations.push(Violation {
                property: property.name,
                steps: steps(checker.model(), path.clone().into_vec()),
            }),
            _ => {}
        }
    }
    Report {
        states: checker.unique_state_count(),
        violations,
        unreached,
    }
}

/// A shortest way to where `property` does not hold, if there is one.
pub fn counter_example(mut protocol: Protocol, property: &'static str) -> Option<Violation> {
    protocol.nameless = false;
    let mut states = 0;
    // A level deeper each time, because the checker keeps the last way that it found, not the shortest.
    for depth in 2.. {
        let wanted = HasDiscoveries::AnyOf([property].into());
        let checker = protocol.clone().checker().finish_when(wanted).target_max_depth(depth);
        let checker = checker.spawn_bfs().join();
        if let Some(path) = checker.discovery(property) {
            let last = path.last_state().clone();
            let mut steps = steps(checker.model(), path.into_vec());
            if property == ENDS {
                steps.extend(left_alone(checker.model(), last));
            }
            return Some(Violation { property, steps });
        }
        if checker.unique_state_count() == states {
            break;
        }
        states = checker.unique_state_count();
    }
    None
}

/// What happens from a state when nothing more goes wrong, as far as it leads.
fn left_alone(protocol: &Protocol, mut state: State) -> Vec<String> {
    let mut steps = Vec::new();
    while !protocol.is_over(&state) && steps.len() < 20 {
        let action = protocol.fair_action(&state);
        steps.push(protocol.words(&state, action));
        match protocol.act(&state, action) {
            Some(next) if next != state => state = next,
            _ => break,
        }
    }
    steps.push("and so on for ever".to_owned());
    steps
}

fn steps(protocol: &Protocol, path: Vec<(State, Option<Action>)>) -> Vec<String> {
    path.into_iter()
        .filter_map(|(state, action)| Some(protocol.words(&state, action?)))
        .collect()
}

impl fmt::Display for Violation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(out, "does not hold: {}", self.property)?;
        self.steps
            .iter()
            .zip(1..)
            .try_for_each(|(step, number)| writeln!(out, "{number:>4}. {step}"))
    }
}

impl fmt::Display for Report {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(out, "{} states", self.states)?;
        for violation in &self.violations {
            write!(out, "{violation}")?;
        }
        for property in &self.unreached {
            writeln!(out, "never seen, for want of faults or keys: {property}")?;
        }
        if self.violations.is_empty() && self.unreached.is_empty() {
            writeln!(out, "every property holds in each of them")?;
        }
        Ok(())
    }
}

impl Protocol {
    /// What happens in a state when an action is taken, as a person would tell it.
    fn words(&self, state: &State, action: Action) -> String {
        let flight = |r: usize, k: usize| &state.replicas[r].flights[k];
        match action {
            Action::Tick => "a tick passes: who is awake renews its claims, waiters poll".to_owned(),
            Action::Late => match &state.late {
                Some(late) => format!(
                    "the statement that had no answer is executed after all: replica {} {}",
                    late.replica,
                    self.statement(&late.flight, late.key)
                ),
                None => String::new(),
            },
            Action::Resume(r) => format!("replica {r} comes back"),
            Action::Restart(r) => format!("replica {r} starts anew"),
            Action::Stop(r) => format!("replica {r} has drained and ends"),
            Action::Crash(r) => format!("replica {r} crashes"),
            Action::Pause(r) => format!("replica {r} is paused"),
            Action::Drain(r) => format!("replica {r} begins to drain"),
            Action::Call(r, k) => format!("replica {r}: a caller comes with key {k}"),
            Action::Leave(r, k) => format!("replica {r}: the caller of key {k} leaves"),
            Action::Next(r, k) => format!("replica {r} {}", self.statement(flight(r, k), k)),
            Action::Wake(r, k) => format!("replica {r}: the waiter for key {k} is notified"),
            Action::Scan(r, k) => format!("replica {r}: the scan finds key {k} lapsed"),
            Action::HandBack(r, k) => format!("replica {r} stops its flight of key {k}"),
            Action::Fail(r, k) => format!("replica {r}: the work for key {k} fails"),
            Action::Lose(r, k) | Action::GiveUp(r, k) => {
                let told = matches!(action, Action::GiveUp(..));
                let end = if told { ", its caller is told `unavailable`" } else { "" };
                format!(
                    "replica {r} {}, and has no answer{end}",
                    self.statement(flight(r, k), k)
                )
            }
            Action::LoseNote(r, k) => format!("replica {r}: the notification for key {k} is lost"),
        }
    }

    fn statement(&self, flight: &Flight, k: usize) -> String {
        let (token, expected) = (flight.token, flight.expected);
        match flight.step {
            Step::Enter if self.is_one_step(Step::Enter, k) => {
                format!("claims, acts on and settles key {k} under token {token}")
            }
            Step::Enter => format!("claims key {k} under token {token}"),
            Step::Reclaim => format!("claims the released key {k} again under token {token}, seen under {expected}"),
            Step::TakeOver => format!("takes key {k} over under token {token}, seen lapsed under {expected}"),
            Step::Look => format!("reads the row of key {k}"),
            Step::Register => format!("registers a waiter at the row of key {k}"),
            Step::Read => format!("reads the row of key {k} again, registered"),
            Step::Work | Step::Settle => format!("acts on and settles key {k} under token {token}"),
            Step::Release => format!("releases key {k} of token {token}"),
            Step::HandBack => format!("hands key {k} of token {token} back"),
            Step::Rest | Step::Wait => format!("does nothing about key {k}"),
        }
    }
}
