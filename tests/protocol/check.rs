//! What must always hold of the model, which states are one, and the words for a way to a state.

use std::hash::{DefaultHasher, Hash, Hasher};

use stateright::{Model, Property};

use super::model::*;

/// Left alone, everything is over within this many ticks: the lease that runs, the one of a takeover, and a tick for the poll.
const MOST_TICKS: u8 = 2 * LEASE + 1;

impl Model for Protocol {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let mut state = State {
            keys: Default::default(),
            replicas: Default::default(),
            late: None,
            faults: self.faults,
        };
        for replica in &mut state.replicas[..self.replicas] {
            replica.condition = Condition::Up;
        }
        vec![state]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        actions.push(Action::Tick);
        if state.late.is_some() {
            actions.push(Action::Late);
        }
        for r in 0..self.replicas {
            self.actions_of_replica(state, r, actions);
            for k in 0..self.ways.len() {
                self.actions_of_flight(state, r, k, actions);
            }
        }
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut next = self.act(state, action)?;
        next.faults -= u8::from(action.is_fault());
        Some(if self.nameless { self.without_names(next) } else { next })
    }

    fn properties(&self) -> Vec<Property<Self>> {
        fn each(state: &State, holds: impl Fn(&Key) -> bool) -> bool {
            state.keys.iter().all(holds)
        }
        fn some(state: &State, holds: impl Fn(&Key) -> bool) -> bool {
            state.keys.iter().any(holds)
        }
        vec![
            Property::always(ONE_EFFECT, |_, state: &State| each(state, |key| key.effects <= 1)),
            Property::always(EFFECT_IS_RECORDED, |_, state: &State| {
                each(state, |key| (key.effects > 0) == (key.status == Status::Done))
            }),
            Property::always(FENCED, |_, state: &State| each(state, |key| !key.is_stale)),
            Property::always(SAME_RESULT, |_, state: &State| {
                each(state, |key| !key.is_told_otherwise)
            }),
            Property::always(FRESH_ONCE, |_, state: &State| each(state, |key| key.fresh <= 1)),
            Property::always(TOLD_IS_RECORDED, |_, state: &State| {
                each(state, |key| {
                    key.told == 0 || (key.status == Status::Done && key.result == key.told)
                })
            }),
            Property::always(NOT_DENIED, |_, state: &State| each(state, |key| !key.is_denied)),
            Property::always(ASKED_FOR, |_, state: &State| each(state, |key| !key.is_unasked)),
            Property::always(LEASE_HOLDS, |_, state: &State| {
                state.replicas.iter().all(|replica| counts_rightly(state, replica))
            }),
            Property::always(ENDS, Self::ends_in_time),
            // What the model must get to, so that the above says something.
            Property::sometimes("a request is done after a lapse", |_, state: &State| {
                some(state, |key| key.status == Status::Done && key.lapses > 0)
            }),
            Property::sometimes("a request fails for good", |_, state: &State| {
                some(state, |key| key.status == Status::Failed)
            }),
            Property::sometimes("a released request is claimed again and done", |_, state: &State| {
                some(state, |key| key.is_reclaimed && key.status == Status::Done)
            }),
            Property::sometimes("a claim that was handed back is taken over", |_, state: &State| {
                let is_taken = |flight: &Flight| flight.took_over && flight.step == Step::Work;
                some(state, |key| key.lapses == 0)
                    && state
                        .replicas
                        .iter()
                        .flat_map(|replica: &Replica| replica.flights)
                        .any(|flight| is_taken(&flight))
            }),
            Property::sometimes("a result is told though nobody is told it fresh", |_, state: &State| {
                some(state, |key| key.told != 0 && key.fresh == 0)
            }),
        ]
    }
}

pub const ONE_EFFECT: &str = "a key has one effect at most";
pub const EFFECT_IS_RECORDED: &str = "a key has its effect exactly if its row is done";
pub const FENCED: &str = "an attempt that lost its claim has no effect";
pub const SAME_RESULT: &str = "the results told for a key are equal";
pub const FRESH_ONCE: &str = "one result at most is told as fresh";
pub const TOLD_IS_RECORDED: &str = "what was told done is what the row says";
pub const NOT_DENIED: &str = "nobody is told that nothing was done when it was done";
pub const ASKED_FOR: &str = "a released request is claimed again for a caller only";
pub const LEASE_HOLDS: &str = "a lease that its holder counts on is nobody else's";
pub const ENDS: &str = "left alone, every caller is answered and every claim settled in time";

fn counts_rightly(state: &State, replica: &Replica) -> bool {
    let mut claims = replica.flights.iter().zip(&state.keys);
    claims.all(|(flight, key)| {
        !matches!(flight.step, Step::Work | Step::Settle) || flight.certain == 0 || key.token == flight.token
    })
}

impl Protocol {
    fn actions_of_replica(&self, state: &State, r: usize, actions: &mut Vec<Action>) {
        let replica = &state.replicas[r];
        match replica.condition {
            Condition::Paused => actions.push(Action::Resume(r)),
            Condition::Dead => actions.push(Action::Restart(r)),
            Condition::Draining if replica.flights.iter().all(|flight| flight.step == Step::Rest) => {
                actions.push(Action::Stop(r));
            }
            Condition::Up | Condition::Draining => {}
        }
        if state.faults > 0 && replica.condition != Condition::Dead {
            actions.push(Action::Crash(r));
            if replica.condition == Condition::Up {
                actions.extend([Action::Pause(r), Action::Drain(r)]);
            }
        }
    }

    fn actions_of_flight(&self, state: &State, r: usize, k: usize, actions: &mut Vec<Action>) {
        let flight = &state.replicas[r].flights[k];
        let condition = state.replicas[r].condition;
        if matches!(condition, Condition::Paused | Condition::Dead) {
            return;
        }
        if flight.caller == Caller::NotYet && condition == Condition::Up {
            actions.push(Action::Call(r, k));
        }
        match flight.step {
            Step::Rest => {}
            Step::Wait if flight.note => actions.push(Action::Wake(r, k)),
            Step::Wait => {}
            _ => actions.push(Action::Next(r, k)),
        }
        if self.can_scan(state, r, k) {
            actions.push(Action::Scan(r, k));
        }
        if condition == Condition::Draining && matches!(flight.step, Step::Wait | Step::Work | Step::Settle) {
            actions.push(Action::HandBack(r, k));
        }
        if state.faults == 0 {
            return;
        }
        if flight.has_caller() {
            actions.push(Action::Leave(r, k));
        }
        if flight.note && self.lossy {
            actions.push(Action::LoseNote(r, k));
        }
        let is_late = state
            .late
            .is_some_and(|late| late.key == k && late.flight.token == flight.token);
        if flight.step == Step::Work || (self.is_one_step(flight.step, k) && !is_late) {
            actions.push(Action::Fail(r, k));
        }
        if state.late.is_none()
            && (matches!(flight.step, Step::Enter | Step::Reclaim | Step::TakeOver) || flight.holds())
        {
            actions.push(Action::Lose(r, k));
            if flight.has_caller() {
                actions.push(Action::GiveUp(r, k));
            }
        }
    }

    /// The same state, whatever its replicas and tokens are called; at least mostly, and never another one.
    fn without_names(&self, mut state: State) -> State {
        state.replicas[..self.replicas].sort_unstable();
        if let Some(late) = &mut state.late {
            late.replica = 0;
        }
        for k in 0..self.ways.len() {
            rename_tokens(&mut state, k);
        }
        state
    }

    fn can_scan(&self, state: &State, r: usize, k: usize) -> bool {
        let flight = &state.replicas[r].flights[k];
        // Who waits and did not take over yet does so itself.
        let is_free = flight.step == Step::Rest || (flight.step == Step::Wait && (flight.took_over || !self.polls));
        is_free && state.replicas[r].condition == Condition::Up && self.has_lapsed(&state.keys[k], r)
    }

    /// What has to happen when nothing goes wrong, in an order in which everybody gets a turn.
    pub fn fair_action(&self, state: &State) -> Action {
        let places = || (0..self.replicas).flat_map(|r| (0..self.ways.len()).map(move |k| (r, k)));
        let awake = |r: usize| matches!(state.replicas[r].condition, Condition::Up | Condition::Draining);
        for (r, k) in places().filter(|(r, _)| awake(*r)) {
            let flight = &state.replicas[r].flights[k];
            match flight.step {
                Step::Rest => {}
                Step::Wait if flight.note => return Action::Wake(r, k),
                Step::Wait | Step::Work | Step::Settle if state.replicas[r].condition == Condition::Draining => {
                    return Action::HandBack(r, k);
                }
                Step::Wait => {}
                _ => return Action::Next(r, k),
            }
        }
        places()
            .find(|(r, k)| self.can_scan(state, *r, *k))
            .map_or(Action::Tick, |(r, k)| Action::Scan(r, k))
    }

    pub fn is_over(&self, state: &State) -> bool {
        let lives = |replica: &&Replica| matches!(replica.condition, Condition::Up | Condition::Draining);
        let waits = state
            .replicas
            .iter()
            .filter(lives)
            .flat_map(|replica| &replica.flights)
            .any(Flight::has_caller);
        let someone = state.replicas.iter().any(|replica| replica.condition == Condition::Up);
        let is_unsettled = someone && state.keys.iter().any(|key| key.status == Status::Running);
        !(waits || is_unsettled)
    }

    /// Whether everything is over in time from here when no more goes wrong. As this holds in every state that can be
    /// reached, and what is done is an ordinary action each time, no fair run waits for ever.
    fn ends_in_time(&self, state: &State) -> bool {
        let mut state = state.clone();
        let mut way: Vec<(u64, u8)> = Vec::new();
        let mut ticks = 0;
        let rest = loop {
            if self.is_over(&state) {
                break 0;
            }
            let mut hasher = DefaultHasher::new();
            state.hash(&mut hasher);
            let name = hasher.finish();
            if let Some(rest) = self.left_alone.lock().expect("no panic").get(&name) {
                break *rest;
            }
            way.push((name, ticks));
            let action = self.fair_action(&state);
            ticks += u8::from(action == Action::Tick);
            if ticks > MOST_TICKS || way.len() > 400 {
                return false;
            }
            let Some(next) = self.next_state(&state, action) else {
                return false;
            };
            state = next;
        };
        let mut known = self.left_alone.lock().expect("no panic");
        known.extend(way.iter().map(|(name, before)| (*name, ticks - before + rest)));
        ticks + rest <= MOST_TICKS
    }
}

impl Action {
    fn is_fault(self) -> bool {
        use Action::*;
        matches!(
            self,
            Crash(_) | Pause(_) | Drain(_) | Fail(..) | Lose(..) | GiveUp(..) | LoseNote(..) | Leave(..)
        )
    }
}

/// Calls a key's tokens by the order of their places. Those that no row can carry any more have no name.
fn rename_tokens(state: &mut State, k: usize) {
    let mut names = [0; 32];
    let mut named = 0;
    let mut name = |token: &mut Token| {
        if *token == 0 {
            return;
        }
        if names[usize::from(*token)] == 0 {
            named += 1;
            names[usize::from(*token)] = named;
        }
        *token = names[usize::from(*token)];
    };
    let key = &mut state.keys[k];
    [&mut key.token, &mut key.result, &mut key.told]
        .into_iter()
        .for_each(&mut name);
    let mut late = state.late.as_mut().filter(|late| late.key == k);
    if let Some(late) = &mut late {
        name(&mut late.flight.token);
    }
    for replica in &mut state.replicas {
        let flight = &mut replica.flights[k];
        if matches!(flight.step, Step::Look | Step::Register | Step::Read | Step::Wait) {
            flight.token = 0;
        }
        name(&mut flight.token);
    }
    key.drawn = named;
    let reachable = key.token.max(late.as_ref().map_or(0, |late| late.flight.token));
    let flights = state.replicas.iter_mut().map(|replica| &mut replica.flights[k]);
    for flight in flights.chain(late.map(|late| &mut late.flight)) {
        let expected = names[usize::from(flight.expected)];
        let waits_for_it = matches!(flight.step, Step::Reclaim | Step::TakeOver);
        flight.expected = if waits_for_it { expected } else { 0 };
        let mine = flight.mine;
        flight.mine = (1..32)
            .filter(|token| mine & (1 << token) != 0 && names[*token] != 0)
            .map(|token| names[token])
            .filter(|token| *token <= reachable || *token == flight.token)
            .fold(0, |mine, token| mine | 1 << token);
    }
}
