//! The ledger's protocol as a model that a checker walks through in every order of events.
//!
//! It says of src/ledger what matters for "once": what each statement does to a key's row, what a flight does next, and what
//! may go wrong. A statement is one step, as it is in Postgres. Time comes in ticks; nothing counts from a beginning, so the
//! states are finitely many. Every fault, and a caller that leaves, costs one of a small number of faults; calls and coming back
//! cost nothing.
//!
//! Left out, because it only delays or only helps: locks (each claim here finds its row free), the hold-offs after an outage, `confirm`
//! before a settlement, and the second guard, so that the fence has to do it alone. Left out as well: fingerprints, retention
//! and `admin retry`.

pub use super::state::*;

/// What a statement answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// The key is taken, or the fence did not hold: nothing was changed.
    Nothing,
    Claimed,
    Settled,
    Failed,
    Freed,
}

impl Protocol {
    /// The protocol as it is.
    pub fn new(replicas: usize, ways: &[Way], faults: u8) -> Self {
        Self {
            replicas,
            ways: ways.to_vec(),
            faults,
            broken: Broken::Nothing,
            polls: true,
            lossy: true,
            nameless: true,
            left_alone: Default::default(),
        }
    }

    /// How far a replica's clock is ahead of the database's, where it matters.
    fn ahead(&self, replica: usize) -> u8 {
        if self.broken == Broken::Clock && replica == 0 {
            LEASE
        } else {
            0
        }
    }

    fn draw(&self, key: &mut Key, expected: Token) -> Token {
        if self.broken == Broken::AttemptNumber {
            return expected + 1;
        }
        key.drawn += 1;
        key.drawn
    }

    /// What a flight's next statement does to the row: the statements of claim.rs and settle.rs.
    fn execute(&self, state: &mut State, replica: usize, k: usize, sent: &Flight) -> Answer {
        let key = &mut state.keys[k];
        let fenced = key.status == Status::Running && key.token == sent.token;
        let had_waiters = key.waiters;
        let answer = match sent.step {
            Step::Enter if key.status == Status::Free && self.ways[k] == Way::OneStep => {
                (key.status, key.token, key.result) = (Status::Done, sent.token, sent.token);
                key.effects += 1;
                Answer::Settled
            }
            Step::Enter if key.status == Status::Free => Answer::Claimed,
            Step::Reclaim if key.status == Status::Released && key.token == sent.expected => {
                (key.lapses, key.waiters, key.is_reclaimed) = (0, false, true);
                Answer::Claimed
            }
            Step::TakeOver if self.has_lapsed(key, replica) && key.token == sent.expected => {
                key.lapses += u8::from(!key.handed_back);
                key.token = sent.token;
                if key.lapses >= MOST_LAPSES {
                    (key.status, key.lease, key.handed_back) = (Status::Failed, 0, false);
                    Answer::Failed
                } else {
                    Answer::Claimed
                }
            }
            Step::Work | Step::Settle if fenced || self.broken == Broken::Fence => {
                key.is_stale |= !fenced;
                (key.status, key.result, key.lease, key.handed_back) = (Status::Done, sent.token, 0, false);
                key.effects += 1;
                Answer::Settled
            }
            Step::Release if fenced => {
                (key.status, key.lease, key.handed_back) = (Status::Released, 0, false);
                if self.broken == Broken::AttemptNumber {
                    (key.status, key.token) = (Status::Free, 0);
                }
                Answer::Freed
            }
            Step::HandBack if fenced => {
                (key.lease, key.handed_back) = (0, true);
                Answer::Freed
            }
            _ => Answer::Nothing,
        };
        match answer {
            Answer::Claimed => {
                (key.status, key.token, key.handed_back) = (Status::Running, sent.token, false);
                key.lease = LEASE + self.ahead(replica);
            }
            Answer::Nothing => {}
            _ => {
                key.waiters &= key.handed_back;
                if had_waiters {
                    self.notify(state, k);
                }
            }
        }
        answer
    }

    pub fn has_lapsed(&self, key: &Key, replica: usize) -> bool {
        key.status == Status::Running && (key.handed_back || key.lease <= self.ahead(replica))
    }

    /// Reaches who is registered in its replica's memory.
    fn notify(&self, state: &mut State, k: usize) {
        let registers_late = self.broken == Broken::RegisterBeforeRead;
        for replica in &mut state.replicas {
            let flight = &mut replica.flights[k];
            flight.note |= match flight.step {
                Step::Register | Step::Read => !registers_late,
                Step::Wait => true,
                _ => false,
            };
        }
    }

    /// One statement of a flight, and what the flight makes of its answer: course.rs and attempt.rs.
    fn next(&self, state: &mut State, r: usize, k: usize) {
        let sent = state.replicas[r].flights[k];
        let answer = self.execute(state, r, k, &sent);
        let flight = &mut state.replicas[r].flights[k];
        match (sent.step, answer) {
            (Step::Look | Step::Read, _) => self.resolve(state, r, k),
            (Step::Register, _) => {
                let key = &mut state.keys[k];
                key.waiters |= key.status == Status::Running;
                flight.step = if self.broken == Broken::RegisterBeforeRead {
                    Step::Wait
                } else {
                    Step::Read
                };
            }
            (_, Answer::Claimed) => {
                flight.took_over |= sent.step == Step::TakeOver;
                (flight.step, flight.certain) = (Step::Work, LEASE - 1);
            }
            (_, Answer::Settled) => tell_done(state, r, k, sent.token, true),
            (_, Answer::Failed) | (Step::HandBack, _) => flight.end(),
            (Step::Release, Answer::Freed) => tell_refused(state, r, k),
            (Step::Release, _) if self.broken == Broken::LookAfterFailure => tell_refused(state, r, k),
            // Its own release, whose acknowledgement was lost.
            (Step::Release, _) if state.keys[k].status == Status::Released && state.keys[k].token == sent.token => {
                tell_refused(state, r, k);
            }
            (Step::Enter, _) if self.broken == Broken::RereadAfterConflict => {
                tell_done(state, r, k, sent.token, true);
            }
            // Who came for the lapsed claim alone has nothing more to do, unless it had it and was not told.
            (Step::TakeOver, _) if !sent.has_caller() && state.keys[k].token != sent.token => flight.end(),
            _ => (flight.step, flight.certain) = (Step::Look, 0),
        }
    }

    /// What a flight does about the row that it has read.
    fn resolve(&self, state: &mut State, r: usize, k: usize) {
        let key = &mut state.keys[k];
        let flight = &mut state.replicas[r].flights[k];
        let is_mine = flight.mine & (1 << key.token) != 0;
        let for_nobody = !flight.has_caller();
        match key.status {
            Status::Done => {
                let result = key.result;
                tell_done(state, r, k, result, is_mine);
            }
            Status::Failed => flight.end(),
            Status::Running if is_mine => (flight.step, flight.token) = (Step::Work, key.token),
            Status::Running if self.has_lapsed(key, r) && !flight.took_over => {
                flight.claims(Step::TakeOver, key.token, self.draw(key, key.token));
            }
            Status::Running | Status::Free if for_nobody => flight.end(),
            Status::Running if flight.step == Step::Read && key.waiters => flight.step = Step::Wait,
            Status::Running => flight.step = Step::Register,
            Status::Released if for_nobody && self.broken != Broken::ReclaimForCallers => flight.end(),
            Status::Released => {
                key.is_unasked |= for_nobody;
                flight.claims(Step::Reclaim, key.token, self.draw(key, key.token));
            }
            Status::Free => flight.claims(Step::Enter, 0, self.draw(key, 0)),
        }
    }

    fn tick(&self, state: &mut State) {
        for key in &mut state.keys {
            key.lease = key.lease.saturating_sub(1);
        }
        for (r, replica) in state.replicas.iter_mut().enumerate() {
            let awake = matches!(replica.condition, Condition::Up | Condition::Draining);
            for (flight, key) in replica.flights.iter_mut().zip(&mut state.keys) {
                flight.certain = flight.certain.saturating_sub(1);
                if awake && flight.step == Step::Wait && self.polls {
                    (flight.step, flight.note) = (Step::Look, false);
                }
                if !awake || !flight.holds() {
                    continue;
                }
                if key.status != Status::Running || key.token != flight.token {
                    (flight.step, flight.certain) = (Step::Look, 0);
                } else if !key.handed_back {
                    (key.lease, flight.certain) = (LEASE + self.ahead(r), LEASE - 1);
                }
            }
        }
    }

    /// What an action does; `None` if it may not happen here.
    pub fn act(&self, state: &State, action: Action) -> Option<State> {
        let mut next = state.clone();
        match action {
            Action::Tick => self.tick(&mut next),
            Action::Late => {
                let late = next.late.take()?;
                self.execute(&mut next, late.replica, late.key, &late.flight);
            }
            Action::Resume(r) => next.replicas[r].condition = Condition::Up,
            Action::Restart(r) => {
                next.replicas[r] = Replica {
                    condition: Condition::Up,
                    ..Replica::default()
                }
            }
            Action::Crash(r) | Action::Stop(r) => next.replicas[r] = Replica::default(),
            Action::Pause(r) => next.replicas[r].condition = Condition::Paused,
            Action::Drain(r) => next.replicas[r].condition = Condition::Draining,
            Action::Next(r, k) => self.next(&mut next, r, k),
            Action::Call(r, k) => {
                let flight = &mut next.replicas[r].flights[k];
                flight.caller = Caller::Joined;
                if flight.step == Step::Rest {
                    flight.caller = Caller::First;
                    flight.claims(Step::Enter, 0, self.draw(&mut next.keys[k], 0));
                }
            }
            Action::Leave(r, k) => leave(&mut next.replicas[r].flights[k]),
            Action::Wake(r, k) => {
                let flight = &mut next.replicas[r].flights[k];
                (flight.step, flight.note) = (Step::Look, false);
            }
            Action::LoseNote(r, k) => next.replicas[r].flights[k].note = false,
            Action::Scan(r, k) => {
                let (flight, key) = (&mut next.replicas[r].flights[k], &mut next.keys[k]);
                if flight.has_caller() {
                    flight.caller = Caller::Joined;
                }
                (flight.mine, flight.took_over, flight.note) = (0, false, false);
                flight.claims(Step::TakeOver, key.token, self.draw(key, key.token));
            }
            Action::HandBack(r, k) => {
                let flight = &mut next.replicas[r].flights[k];
                if flight.holds() {
                    flight.step = Step::HandBack
                } else {
                    flight.end()
                }
            }
            Action::Fail(r, k) => self.fail(&mut next, r, k),
            Action::Lose(r, k) | Action::GiveUp(r, k) => {
                let flight = &mut next.replicas[r].flights[k];
                let (caller, step, token, expected) = (flight.caller, flight.step, flight.token, flight.expected);
                let sent = Flight {
                    caller,
                    step,
                    token,
                    expected,
                    ..Flight::default()
                };
                next.late = Some(Late {
                    replica: r,
                    key: k,
                    flight: sent,
                });
                if step == Step::Work {
                    flight.step = Step::Settle;
                }
                if matches!(action, Action::GiveUp(..)) {
                    leave(flight);
                    if !flight.holds() {
                        flight.end();
                    }
                } else if self.broken == Broken::RereadAfterLoss && (step == Step::Work || self.is_one_step(step, k)) {
                    tell_done(&mut next, r, k, token, true);
                }
            }
        }
        Some(next)
    }

    pub fn is_one_step(&self, step: Step, k: usize) -> bool {
        step == Step::Enter && self.ways[k] == Way::OneStep
    }

    fn fail(&self, state: &mut State, r: usize, k: usize) {
        let flight = &mut state.replicas[r].flights[k];
        if flight.step == Step::Work {
            flight.step = Step::Release;
        } else if matches!(state.keys[k].status, Status::Free | Status::Released)
            || self.broken == Broken::LookAfterFailure
        {
            tell_refused(state, r, k);
        } else {
            flight.step = Step::Look;
        }
    }
}

/// The caller goes, or is told that nothing is known. A flight that waits ends with it; one that claims goes on.
fn leave(flight: &mut Flight) {
    flight.caller = Caller::Gone;
    if flight.step == Step::Wait {
        flight.end();
    }
}

/// A caller is told a result. It is fresh for whoever started the flight that did the work.
fn tell_done(state: &mut State, r: usize, k: usize, result: Token, is_mine: bool) {
    let (flight, key) = (&mut state.replicas[r].flights[k], &mut state.keys[k]);
    if flight.has_caller() {
        key.fresh += u8::from(is_mine && flight.caller == Caller::First);
        key.is_told_otherwise |= key.told != 0 && key.told != result;
        key.told = result;
    }
    flight.end();
}

/// A caller is told that its attempt failed and that nothing was done.
fn tell_refused(state: &mut State, r: usize, k: usize) {
    let (flight, key) = (&mut state.replicas[r].flights[k], &mut state.keys[k]);
    key.is_denied |= flight.has_caller() && key.status == Status::Done;
    flight.end();
}
