//! A ledger inside the test, with operations of the test's own: for what no offered operation does (falsy results, panics,
//! refusals after work) and for principals that no transport has yet.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use ticket_ledger::ledger::{Effect, Ledger, Limits, NotPrepared, Refused, Setup};
use ticket_ledger::operation::answer::{Outcome, Refusal};
use ticket_ledger::operation::caller::{Caller, Via};
use ticket_ledger::operation::registry::Registry;
use ticket_ledger::operation::requests::FindRequest;
use ticket_ledger::operation::run::{Call, Service};
use ticket_ledger::operation::scope::Scopes;
use ticket_ledger::operation::tickets::{AddComment, CreateTicket, GetTicket, SetTicketStatus};
use ticket_ledger::operation::{Card, Class, Erased, Operation, Reader, Route, Tool, Toolset};
use ticket_ledger::postgres::{Database, Reach, Settings};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::eventually;
use super::scene::Scene;

/// A ledger in this process, and what stands above it.
pub struct InProcess {
    pub service: Arc<Service>,
    /// What becomes of the work of `note_slowly` and `note` here.
    pub script: Arc<Script>,
}

/// What a ledger in this process may be told.
pub struct Knobs {
    pub limits: Limits,
    pub wait: Duration,
    pub units_per_hour: i64,
    pub pool_size: usize,
    /// Short enough for the backstop, long enough where a test holds a lock to gather a batch.
    pub lock_limit: Duration,
}

impl Default for Knobs {
    fn default() -> Self {
        Self {
            limits: Limits {
                lease: Duration::from_millis(1_500),
                work_limit: Duration::from_secs(600),
                patience: Duration::from_secs(3),
                keep_results: Duration::from_secs(7 * 24 * 3_600),
                keep_keys: Duration::from_secs(30 * 24 * 3_600),
                most_flights: 4_096,
                most_writes_per_hour: 0,
                tell_duplicates: true,
            },
            wait: super::DEADLINE,
            units_per_hour: 0,
            pool_size: 4,
            lock_limit: super::DEADLINE,
        }
    }
}

/// An outcome, as a test looks at it.
#[derive(Debug, Clone, PartialEq)]
pub struct Told {
    /// done, replayed, read, in_progress, handed_back, or the code of a refusal.
    pub what: &'static str,
    pub body: Value,
}

impl InProcess {
    /// On a scene's database, with the notes' table made if it is not there yet.
    pub async fn start(scene: &Scene, knobs: Knobs) -> Self {
        make_notes(scene).await;
        let script = Arc::new(Script::default());
        let note = |name, takes_time| {
            Arc::new(Erased(Note {
                name,
                takes_time,
                script: Arc::clone(&script),
            })) as Arc<dyn Tool>
        };
        let registry = Registry::of([
            Arc::new(Erased(FindRequest)) as Arc<dyn Tool>,
            Arc::new(Erased(CreateTicket { work: Duration::ZERO })),
            Arc::new(Erased(SetTicketStatus)),
            Arc::new(Erased(AddComment)),
            Arc::new(Erased(GetTicket)),
            note("note", false),
            note("note_slowly", true),
        ]);
        let settings = Settings {
            url: scene.url.clone(),
            pool_size: knobs.pool_size,
            acquire_limit: super::DEADLINE,
            statement_limit: super::DEADLINE,
            lock_limit: knobs.lock_limit,
        };
        let database = Database::new(&settings, Arc::new(Reach::default())).expect("a pool");
        let ledger = Ledger::start(Setup {
            database,
            url: scene.url.clone(),
            listen_url: scene.url.clone(),
            replica: "in-process".to_owned(),
            limits: knobs.limits,
            acts: registry.acts(),
            upkeep: registry.upkeep(),
        });
        let listening = Arc::clone(&ledger);
        eventually("the ledger listens", || async {
            listening.is_listening().then_some(())
        })
        .await;
        let service = Service {
            ledger,
            registry,
            wait: knobs.wait,
            units_per_hour: knobs.units_per_hour,
        };
        Self {
            service: Arc::new(service),
            script,
        }
    }

    /// Calls a tool as `principal`.
    pub async fn call(&self, principal: &str, tool: &str, arguments: Value) -> Told {
        let outcome = self.service.run(self.prepared(principal, tool, arguments)).await;
        Told::from(outcome)
    }

    /// Calls a tool as `principal` and waits for so long at most.
    pub async fn call_for(&self, within: Duration, principal: &str, tool: &str, arguments: Value) -> Told {
        let mut call = self.prepared(principal, tool, arguments);
        // The deadline counts from the arrival.
        call.arrived = Instant::now() + within - self.service.wait;
        Told::from(self.service.run(call).await)
    }

    /// Calls a tool as `principal` and goes on; the call is dropped when the handle is aborted.
    pub fn spawn(&self, principal: &str, tool: &str, arguments: Value) -> tokio::task::JoinHandle<Told> {
        let (service, call) = (Arc::clone(&self.service), self.prepared(principal, tool, arguments));
        tokio::spawn(async move { Told::from(service.run(call).await) })
    }

    fn prepared(&self, principal: &str, tool: &str, arguments: Value) -> Call {
        let Value::Object(arguments) = arguments else {
            panic!("arguments are an object")
        };
        Call {
            caller: Caller {
                principal: principal.into(),
                source: principal.into(),
                scopes: Scopes::all(),
                crowded: false,
            },
            via: Via::Mcp,
            tool: Arc::clone(self.service.registry.find(tool).expect("an offered tool")),
            arguments,
            arrived: Instant::now(),
        }
    }

    /// find_request, as `principal`.
    pub async fn find(&self, principal: &str, request_id: &str) -> Value {
        let told = self
            .call(principal, "find_request", json!({ "request_id": request_id }))
            .await;
        told.body
    }
}

impl From<Outcome> for Told {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Done { answer, replayed } => Self {
                what: if replayed { "replayed" } else { "done" },
                body: Value::Object(answer),
            },
            Outcome::Read(body) => Self { what: "read", body },
            Outcome::InProgress { answer, .. } => Self {
                what: "in_progress",
                body: Value::Object(answer),
            },
            Outcome::Refused(refusal) => Self {
                what: refusal.code.as_str(),
                body: refusal.to_json(),
            },
            Outcome::HandedBack => Self {
                what: "handed_back",
                body: Value::Null,
            },
        }
    }
}

/// The arguments of a note whose text is its request_id.
pub fn note(request_id: &str) -> Value {
    json!({ "request_id": request_id, "text": request_id })
}

/// How many notes there are.
pub async fn notes(scene: &Scene) -> i64 {
    scene.count("select count(*) from notes").await
}

async fn make_notes(scene: &Scene) {
    const SQL: &str = "
        select pg_advisory_lock(7);
        create table if not exists notes (
            text text not null constraint notes_text check (text <> 'bad'),
            principal text not null,
            request_id text not null,
            constraint notes_request unique (principal, request_id)
        );
        select pg_advisory_unlock(7)";
    sqlx::raw_sql(SQL).execute(&scene.sql).await.expect("a table");
}

/// What the work of an attempt comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// It goes on to its effect.
    Goes,
    /// It goes nowhere until it is told something else.
    Holds,
    Refuses,
    Fails,
    Panics,
}

/// Tells every note what becomes of its work, by its text.
#[derive(Default)]
pub struct Script {
    endings: Mutex<HashMap<String, watch::Sender<Ending>>>,
    begun: AtomicUsize,
    /// What the replay check answers instead, if anything.
    pub hidden: Mutex<Option<Refusal>>,
}

impl Script {
    /// From now on, also for attempts that hold.
    pub fn tell(&self, text: &str, ending: Ending) {
        self.ending(text).send_replace(ending);
    }

    /// How many attempts have begun their work so far.
    pub fn begun(&self) -> usize {
        self.begun.load(Ordering::SeqCst)
    }

    /// Waits until so many attempts have begun.
    pub async fn until_begun(&self, attempts: usize) {
        eventually("enough attempts have begun", || async {
            (self.begun() >= attempts).then_some(())
        })
        .await;
    }

    fn ending(&self, text: &str) -> watch::Sender<Ending> {
        let mut endings = self.endings.lock().expect("the script");
        endings
            .entry(text.to_owned())
            .or_insert_with(|| watch::Sender::new(Ending::Goes))
            .clone()
    }
}

/// Writes a note: an operation that does what its script says.
struct Note {
    name: &'static str,
    takes_time: bool,
    script: Arc<Script>,
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct NoteArguments {
    text: String,
    /// The result, whatever JSON it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    result: Option<Value>,
    /// Has a default that is not null.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    copies: u64,
}

fn one() -> u64 {
    1
}

fn is_one(copies: &u64) -> bool {
    *copies == 1
}

#[derive(JsonSchema)]
#[allow(dead_code, reason = "only its schema is used")]
struct Noted {
    text: String,
}

static NOTE: Effect = ticket_ledger::effect! {
    judge: "
        select item.*, case when args->>'text' = 'refused by its effect' then 'precondition_failed' end as refusal,
               'as asked'::text as detail, request_id as result_id,
               coalesce((args->'result')::text, json_build_object('text', args->>'text')::text) as result
        from item",
    act: "
        insert into notes (text, principal, request_id)
        select args->>'text', principal, request_id from settled",
    batched: true,
    creates: true,
    guard: "notes_request",
};

#[async_trait]
impl Operation for Note {
    type Arguments = NoteArguments;
    type Answer = Noted;

    fn card(&self) -> Card {
        Card {
            name: self.name,
            title: "Note",
            description: "Writes a note.",
            toolset: Toolset::Tickets,
            route: Route {
                method: "POST",
                path: "/notes",
                success: 201,
            },
            class: Class::Transactional {
                effect: &NOTE,
                destructive: false,
            },
        }
    }

    fn takes_time(&self) -> bool {
        self.takes_time
    }

    async fn prepare(&self, arguments: &NoteArguments, _: &CancellationToken) -> Result<Value, NotPrepared> {
        self.script.begun.fetch_add(1, Ordering::SeqCst);
        let mut told = self.script.ending(&arguments.text).subscribe();
        let ending = *told
            .wait_for(|ending| *ending != Ending::Holds)
            .await
            .expect("the script lasts");
        match ending {
            Ending::Goes | Ending::Holds => Ok(json!({})),
            Ending::Refuses => Err(NotPrepared::Refused(Refused {
                code: "precondition_failed".to_owned(),
                detail: "as told".to_owned(),
            })),
            Ending::Fails => Err(NotPrepared::Failed("as told".to_owned())),
            Ending::Panics => panic!("as told"),
        }
    }

    async fn on_replay(&self, _: &Reader<'_>, answer: &mut Map<String, Value>) -> Result<(), Refusal> {
        if let Some(refusal) = self.script.hidden.lock().expect("the script").clone() {
            return Err(refusal);
        }
        answer.insert("visible".to_owned(), json!(true));
        Ok(())
    }
}
