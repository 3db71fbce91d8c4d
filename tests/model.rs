//! The ledger against a model of it: random histories of calls, failures, lapses, retention and retries on two replicas' ledgers
//! and a real database, where every answer must be the one that a few lines of plain code expect.

use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::{TestError, TestRunner};
use serde_json::{Value, json};
use ticket_ledger::ledger::{Key, Retried, retry};
use tokio::runtime::Handle;

use crate::support::eventually;
use crate::support::in_process::{Ending, InProcess, Knobs, Told};
use crate::support::scene::Scene;

const PRINCIPALS: [&str; 2] = ["anna", "ben"];
/// Tool and text of each intent. Each has a text of its own, because what becomes of its work is told by its text: another intent's
/// call must not end the work that is held.
const INTENTS: [(&str, &str); 3] = [("note_slowly", "a"), ("note_slowly", "b"), ("note", "c")];
/// How long a caller waits for work that is held.
const SHORT: Duration = Duration::from_millis(120);

/// What happens next to one of the requests.
#[derive(Debug, Clone)]
enum Step {
    Call {
        intent: usize,
        house: usize,
        ending: Ending,
    },
    /// The work that is held comes to its end.
    End(Ending),
    /// The holder dies: its lease lapses and its token is nobody's.
    Lapse,
    Find {
        house: usize,
    },
    /// The retention that comes next is over, and the sweep comes by.
    Retain,
    Retry,
}

/// A request as the model knows it.
#[derive(Debug, Clone, PartialEq)]
enum State {
    Free,
    Running {
        intent: usize,
        lapses: i32,
    },
    Done {
        intent: usize,
        result: Value,
    },
    Expired {
        intent: usize,
    },
    Failed {
        intent: usize,
    },
    /// Its row is gone; its effect stands.
    Forgotten,
}

fn steps() -> impl Strategy<Value = Vec<(usize, Step)>> {
    let ending = prop_oneof![
        5 => Just(Ending::Goes),
        4 => Just(Ending::Holds),
        1 => Just(Ending::Refuses),
        1 => Just(Ending::Fails),
        1 => Just(Ending::Panics),
    ];
    let end = prop_oneof![
        3 => Just(Ending::Goes),
        1 => Just(Ending::Refuses),
        1 => Just(Ending::Fails),
        1 => Just(Ending::Panics),
    ];
    let step = prop_oneof![
        // Mostly the same intent on either replica.
        12 => (prop_oneof![4 => Just(0), 1 => Just(1), 1 => Just(2)], 0..2_usize, ending)
            .prop_map(|(intent, house, ending)| Step::Call { intent, house, ending }),
        3 => end.prop_map(Step::End),
        2 => Just(Step::Lapse),
        3 => (0..2_usize).prop_map(|house| Step::Find { house }),
        3 => Just(Step::Retain),
        1 => Just(Step::Retry),
    ];
    // Two principals' same key.
    prop::collection::vec((0..PRINCIPALS.len(), step), 1..24)
}

struct Play<'a> {
    scene: &'a Scene,
    houses: &'a [InProcess; 2],
    request_id: String,
    states: [State; 2],
}

impl Play<'_> {
    async fn run(mut self, steps: &[(usize, Step)]) {
        for (place, (who, step)) in steps.iter().enumerate() {
            let before = self.states[*who].clone();
            self.step(*who, step).await;
            let at = format!("step {place}, {step:?} of {}, which was {before:?}", PRINCIPALS[*who]);
            let effects: i64 =
                sqlx::query_scalar("select count(*) from notes where principal = $1 and request_id = $2")
                    .bind(PRINCIPALS[*who])
                    .bind(&self.request_id)
                    .fetch_one(&self.scene.sql)
                    .await
                    .expect("a number");
            let expected = match self.states[*who] {
                State::Done { .. } | State::Expired { .. } | State::Forgotten => 1,
                _ => 0,
            };
            assert_eq!(effects, expected, "effects after {at}");
        }
        // Nothing is left held for later histories to trip over.
        for who in 0..PRINCIPALS.len() {
            if let State::Running { .. } = self.states[who] {
                self.step(who, &Step::End(Ending::Goes)).await;
            }
        }
    }

    async fn step(&mut self, who: usize, step: &Step) {
        let state = self.states[who].clone();
        self.states[who] = match (step, state) {
            (Step::Call { intent, house, ending }, state) => self.call(who, *intent, *house, *ending, state).await,
            (Step::End(ending), State::Running { intent, .. }) => self.end(who, intent, *ending).await,
            (Step::Lapse, State::Running { intent, lapses }) => self.lapse(who, intent, lapses).await,
            (Step::Find { house }, state) => self.find(who, *house, state).await,
            (Step::Retain, state) => self.retain(who, state).await,
            (Step::Retry, state) => self.retry(who, state).await,
            (Step::End(_) | Step::Lapse, state) => state,
        };
    }

    async fn call(&self, who: usize, intent: usize, house: usize, ending: Ending, state: State) -> State {
        // Work without a claim cannot be held, and what will be refused by the guard need not be.
        let holds = ending == Ending::Holds && INTENTS[intent].0 == "note_slowly" && state == State::Free;
        let ending = if ending == Ending::Holds && !holds {
            Ending::Goes
        } else {
            ending
        };
        let runs = matches!(&state, State::Running { intent: running, .. } if *running == intent);
        if !runs {
            self.script(who, intent, ending);
        }
        let told = self.ask(who, intent, house, holds || runs).await;
        let same = |first: usize, what| if first == intent { what } else { "conflict" };
        let (expected, after) = match state {
            State::Free | State::Forgotten => match ending {
                Ending::Refuses => ("precondition_failed", state),
                Ending::Fails | Ending::Panics => ("unavailable", state),
                _ if state == State::Forgotten => ("expired", state),
                Ending::Holds => ("in_progress", State::Running { intent, lapses: 0 }),
                Ending::Goes => {
                    let result = json!({ "text": self.text(who, intent) });
                    ("done", State::Done { intent, result })
                }
            },
            State::Running { intent: first, .. } => (same(first, "in_progress"), state),
            State::Done { intent: first, .. } => (same(first, "replayed"), state),
            State::Expired { intent: first } => (same(first, "expired"), state),
            State::Failed { intent: first } => (same(first, "failed"), state),
        };
        assert_eq!(told.what, expected, "{told:?}");
        if let (State::Done { result, .. }, "done" | "replayed") = (&after, told.what) {
            assert_eq!(told.body["text"], result["text"]);
        }
        if told.what == "expired" {
            assert_eq!(told.body["error"]["recorded"], true);
        }
        after
    }

    async fn end(&self, who: usize, intent: usize, ending: Ending) -> State {
        self.script(who, intent, ending);
        if ending == Ending::Goes {
            self.until(who, "done").await;
            let result = json!({ "text": self.text(who, intent) });
            return State::Done { intent, result };
        }
        self.until(who, "released").await;
        State::Free
    }

    async fn lapse(&self, who: usize, intent: usize, lapses: i32) -> State {
        self.sql(
            who,
            "update requests set token = -token, lease_until = clock_timestamp() - interval '1 ms'",
        )
        .await;
        if lapses + 1 == ticket_ledger::ledger::MOST_LAPSES {
            self.until(who, "failed").await;
            return State::Failed { intent };
        }
        self.until_taken_over(who, lapses + 1).await;
        let lapses = lapses + 1;
        State::Running { intent, lapses }
    }

    async fn find(&self, who: usize, house: usize, state: State) -> State {
        let found = self.houses[house].find(PRINCIPALS[who], &self.request_id).await;
        let expected = match &state {
            State::Free | State::Forgotten => "unknown",
            State::Running { .. } => "running",
            State::Done { .. } => "done",
            State::Expired { .. } => "expired",
            State::Failed { .. } => "failed",
        };
        assert_eq!(found["status"], expected, "{found}");
        match &state {
            State::Done { result, .. } => assert_eq!(&found["result"], result),
            _ => assert_eq!(found.get("result"), None),
        }
        state
    }

    async fn retain(&self, who: usize, state: State) -> State {
        let (age, after) = match state {
            State::Done { intent, .. } => ("8 days", State::Expired { intent }),
            State::Expired { .. } => ("31 days", State::Forgotten),
            other => ("400 days", other),
        };
        let aged = format!("update requests set settled_at = settled_at - interval '{age}'");
        self.sql(who, &aged).await;
        sqlx::raw_sql(
            "update sweep set swept_at = '-infinity', next_page = 0;
             select sweep_requests(7 * 86400000::bigint, 30 * 86400000::bigint, 2048, 720)",
        )
        .execute(&self.scene.sql)
        .await
        .expect("sweeps");
        after
    }

    async fn retry(&self, who: usize, state: State) -> State {
        let key = Key {
            principal: PRINCIPALS[who].into(),
            request_id: self.request_id.as_str().into(),
        };
        if let State::Failed { intent } = state {
            self.script(who, intent, Ending::Holds);
        }
        let database = self.houses[0].service.ledger.database();
        let retried = retry(database, &key, "a test").await.expect("an answer");
        if let State::Failed { intent } = state {
            assert_eq!(retried, Retried::Freed);
            self.until_taken_over(who, 0).await;
            return State::Running { intent, lapses: 0 };
        }
        assert_ne!(retried, Retried::Freed, "{state:?}");
        state
    }

    /// Calls; where the model expects an end, for as long as it takes.
    async fn ask(&self, who: usize, intent: usize, house: usize, briefly: bool) -> Told {
        let arguments = json!({ "request_id": self.request_id, "text": self.text(who, intent) });
        let (house, tool) = (&self.houses[house], INTENTS[intent].0);
        if briefly {
            let told = house.call_for(SHORT, PRINCIPALS[who], tool, arguments);
            let told = told.await;
            // On a busy machine the claim may come after the caller left; the model goes on when it has.
            self.until(who, "running").await;
            return told;
        }
        house.call(PRINCIPALS[who], tool, arguments).await
    }

    fn text(&self, who: usize, intent: usize) -> String {
        format!("{}-{}-{}", self.request_id, PRINCIPALS[who], INTENTS[intent].1)
    }

    fn script(&self, who: usize, intent: usize, ending: Ending) {
        for house in self.houses {
            house.script.tell(&self.text(who, intent), ending);
        }
    }

    async fn sql(&self, who: usize, update: &str) {
        let sql = format!("{update} where principal = $1 and request_id = $2");
        sqlx::query(sqlx::AssertSqlSafe(sql))
            .bind(PRINCIPALS[who])
            .bind(&self.request_id)
            .execute(&self.scene.sql)
            .await
            .expect("updates");
    }

    async fn seen(&self, who: usize) -> Option<(String, i64, i32)> {
        sqlx::query_as("select status, token, lapses from requests where principal = $1 and request_id = $2")
            .bind(PRINCIPALS[who])
            .bind(&self.request_id)
            .fetch_optional(&self.scene.sql)
            .await
            .expect("a row or none")
    }

    async fn until(&self, who: usize, status: &str) {
        eventually(status, || async {
            self.seen(who).await.filter(|seen| seen.0 == status)
        })
        .await;
    }

    async fn until_taken_over(&self, who: usize, lapses: i32) {
        let what = format!("it is taken over after lapse {lapses}");
        eventually(&what, || async {
            let running = "select count(*) from requests where principal = $1 and request_id = $2 and token > 0
                           and status = 'running' and lease_until > clock_timestamp() and lapses = $3";
            let running: i64 = sqlx::query_scalar(running)
                .bind(PRINCIPALS[who])
                .bind(&self.request_id)
                .bind(lapses)
                .fetch_one(&self.scene.sql)
                .await
                .expect("a number");
            (running == 1).then_some(())
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_history_of_a_request_goes_as_the_model_says() {
    let scene = Scene::new().await;
    let mut knobs = [Knobs::default(), Knobs::default()];
    for knobs in &mut knobs {
        knobs.limits.lease = Duration::from_secs(1);
        knobs.limits.tell_duplicates = false;
    }
    let [one, other] = knobs;
    let houses = [
        InProcess::start(&scene, one).await,
        InProcess::start(&scene, other).await,
    ];
    let config = ProptestConfig {
        failure_persistence: None,
        max_shrink_iters: 20,
        ..ProptestConfig::with_cases(24)
    };
    let mut history = 0;
    let outcome = tokio::task::block_in_place(|| {
        let history = std::cell::RefCell::new(&mut history);
        TestRunner::new(config).run(&steps(), |steps| {
            let number = {
                let mut number = history.borrow_mut();
                **number += 1;
                **number
            };
            let play = Play {
                scene: &scene,
                houses: &houses,
                request_id: format!("history-{number}"),
                states: [State::Free, State::Free],
            };
            Handle::current().block_on(play.run(&steps));
            Ok(())
        })
    });
    if let Err(TestError::Fail(why, steps)) = outcome {
        panic!("{why}\n{steps:#?}");
    }
    outcome.expect("every history was played");
}
