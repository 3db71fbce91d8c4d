//! Operations: what agents may do. They know no protocol and no claim.
//!
//! Adding one is one file that implements [`Operation`] and one line in [`registry`].

pub mod answer;
pub mod caller;
mod crowd;
pub mod entries;
pub mod fields;
pub mod key;
pub mod limit;
pub mod page;
pub mod refusals;
pub mod registry;
pub mod requests;
pub mod run;
pub mod schema;
pub mod scope;
pub mod text;
pub mod tickets;
pub mod tokens;
pub mod words;

use std::sync::Arc;

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use self::answer::{Code, Refusal};
use self::caller::Caller;
use self::registry::Registry;
use self::scope::Scope;
use crate::ledger::{Act, Effect, Ledger, NotPrepared, Refused};

/// A family of operations that a deployment offers or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, clap::ValueEnum)]
pub enum Toolset {
    /// find_request and new_request_id; always offered.
    #[value(skip)]
    Requests,
    /// Tickets and their comments.
    Tickets,
    /// Questions and replies.
    Entries,
}

impl Toolset {
    /// Whether results over MCP stand in an envelope: `{http_status, data, retry_after_seconds}`, where `data` is what HTTP answers.
    pub fn is_enveloped(self) -> bool {
        self == Self::Entries
    }
}

/// What an operation does on a repeat. The hints that clients read follow from it and cannot be set by hand.
#[derive(Debug, Clone, Copy)]
pub enum Class {
    /// Changes nothing and is not in the ledger.
    ReadOnly,
    /// Its effect is in the ledger's database: effect and settlement are one transaction, so it happens exactly once.
    Transactional {
        /// The statements that act and settle.
        effect: &'static Effect,
        /// Whether it overwrites something rather than adding to it.
        destructive: bool,
    },
}

/// The four hints of MCP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hints {
    /// Changes nothing.
    pub read_only: bool,
    /// May overwrite something.
    pub destructive: bool,
    /// Safe to call again with the same arguments.
    pub idempotent: bool,
    /// Reaches beyond this service.
    pub open_world: bool,
}

impl Class {
    /// The hints that follow from the class.
    pub fn hints(self) -> Hints {
        match self {
            Self::ReadOnly => Hints {
                read_only: true,
                destructive: false,
                idempotent: true,
                open_world: false,
            },
            Self::Transactional { destructive, .. } => Hints {
                read_only: false,
                destructive,
                idempotent: true,
                open_world: false,
            },
        }
    }

    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ReadOnly => "read-only",
            Self::Transactional { .. } => "transactional",
        }
    }
}

/// Where an operation is found over HTTP, below `/api/v1`. `{name}` in the path is the argument of that name.
#[derive(Debug, Clone, Copy)]
pub struct Route {
    /// GET, POST or PUT.
    pub method: &'static str,
    /// Such as `/tickets/{ticket_id}/status`. A path that ends in `.md` answers Markdown, any other JSON.
    pub path: &'static str,
    /// The status of a first answer: 201 where something is created.
    pub success: u16,
}

impl Route {
    /// Whether what it answers is Markdown; refusals are JSON all the same.
    pub fn is_markdown(&self) -> bool {
        self.path.ends_with(".md")
    }
}

/// How an operation presents itself.
#[derive(Debug, Clone, Copy)]
pub struct Card {
    /// Its name in MCP, in rows and in fingerprints.
    pub name: &'static str,
    /// Its name for people.
    pub title: &'static str,
    /// What it does, in words for a model. What every write has in common is added to it.
    pub description: &'static str,
    /// Its family.
    pub toolset: Toolset,
    /// Where HTTP finds it.
    pub route: Route,
    /// What it does on a repeat.
    pub class: Class,
}

impl Card {
    /// The scope that a call of it needs. It follows from family and class and cannot be set by hand; whoever is known may ask
    /// what became of their own requests.
    pub fn scope(&self) -> Option<Scope> {
        match (self.toolset, self.class) {
            (Toolset::Requests, _) => None,
            (Toolset::Tickets, Class::ReadOnly) => Some(Scope::TicketsRead),
            (Toolset::Tickets, Class::Transactional { .. }) => Some(Scope::TicketsWrite),
            (Toolset::Entries, Class::ReadOnly) => Some(Scope::EntriesRead),
            (Toolset::Entries, Class::Transactional { .. }) => Some(Scope::EntriesWrite),
        }
    }
}

/// Who reads, and from what.
pub struct Reader<'a> {
    /// The ledger, and through it the pool.
    pub ledger: &'a Arc<Ledger>,
    /// Who calls.
    pub caller: &'a Caller,
    /// What is offered.
    pub registry: &'a Registry,
}

/// An operation.
#[async_trait]
pub trait Operation: Send + Sync + 'static {
    /// Its arguments beside request_id. Unknown ones must be refused (`deny_unknown_fields`), and one at its default must not
    /// be serialised (`skip_serializing_if`): the serialised arguments are what the fingerprint is taken of.
    type Arguments: DeserializeOwned + Serialize + JsonSchema + Send + Sync;
    /// Its result, for the schema that clients are shown.
    type Answer: JsonSchema;

    /// How it presents itself.
    fn card(&self) -> Card;

    /// Checks what the types of the arguments cannot say. Text is normalised already.
    ///
    /// # Errors
    /// A sentence that says what is wrong.
    fn check(&self, _arguments: &Self::Arguments) -> Result<(), String> {
        Ok(())
    }

    /// Whether [`Operation::prepare`] takes time.
    fn takes_time(&self) -> bool {
        false
    }

    /// A write's work before its effect; returns what the effect reads as `item.made`, such as a fresh identifier. It may be
    /// stopped at any await and be run again by another attempt, so it must not change anything.
    async fn prepare(&self, _arguments: &Self::Arguments, _stop: &CancellationToken) -> Result<Value, NotPrepared> {
        Ok(Value::Object(Map::new()))
    }

    /// Says in sentences what a refusal by the effect's `judge` means: (message, next).
    fn explain(&self, refused: &Refused) -> (String, String) {
        (
            format!("Refused: {}. Nothing was done.", refused.detail),
            "Correct the call; the request_id is still free.".to_owned(),
        )
    }

    /// Runs at every replay, and before find_request shows the result, and may add members to the answer or refuse in its
    /// place, for instance because what was created has been deleted since.
    async fn on_replay(&self, _reader: &Reader<'_>, _answer: &mut Map<String, Value>) -> Result<(), Refusal> {
        Ok(())
    }

    /// Runs where a repeat would be answered with `expired` because the stored result is gone, and where find_request finds
    /// nothing, because the operation may know more than the ledger still does. Says whether what this request created is still
    /// there, and may refuse with a better reason, for instance because it has been deleted.
    async fn on_expired(&self, _reader: &Reader<'_>, _request_id: &str) -> Result<bool, Refusal> {
        Ok(false)
    }

    /// A reading operation's answer.
    async fn read(&self, _reader: &Reader<'_>, _arguments: Self::Arguments) -> Result<Value, Refusal> {
        Err(Refusal::unavailable("This operation does not read.", 60))
    }
}

/// An operation whose types have been erased: what the registry holds.
#[async_trait]
pub trait Tool: Act {
    /// How it presents itself.
    fn card(&self) -> Card;
    /// JSON Schema of the arguments, with request_id where it writes.
    fn input_schema(&self) -> Map<String, Value>;
    /// JSON Schema of everything it answers over MCP.
    fn output_schema(&self) -> Map<String, Value>;
    /// JSON Schema of its answer when it has done what it was asked.
    fn answer_schema(&self) -> Map<String, Value>;
    /// Types, checks and canonicalises normalised arguments.
    ///
    /// # Errors
    /// `invalid_argument`.
    fn accept(&self, arguments: Map<String, Value>) -> Result<Value, Refusal>;
    /// A refusal of the effect as the caller is told it.
    fn refusal(&self, refused: &Refused) -> Refusal;
    /// See [`Operation::on_replay`].
    async fn on_replay(&self, reader: &Reader<'_>, answer: &mut Map<String, Value>) -> Result<(), Refusal>;
    /// See [`Operation::on_expired`].
    async fn on_expired(&self, reader: &Reader<'_>, request_id: &str) -> Result<bool, Refusal>;
    /// See [`Operation::read`].
    async fn read(&self, reader: &Reader<'_>, arguments: Value) -> Result<Value, Refusal>;
}

/// Erases an operation's types.
pub struct Erased<O>(pub O);

#[async_trait]
impl<O: Operation> Act for Erased<O> {
    fn name(&self) -> &'static str {
        self.0.card().name
    }

    fn effect(&self) -> &'static Effect {
        match self.0.card().class {
            Class::Transactional { effect, .. } => effect,
            Class::ReadOnly => &Effect::NONE,
        }
    }

    fn takes_time(&self) -> bool {
        self.0.takes_time()
    }

    async fn prepare(&self, arguments: &str, stop: &CancellationToken) -> Result<Value, NotPrepared> {
        let arguments = serde_json::from_str(arguments).map_err(|error| NotPrepared::Failed(error.to_string()))?;
        self.0.prepare(&arguments, stop).await
    }
}

#[async_trait]
impl<O: Operation> Tool for Erased<O> {
    fn card(&self) -> Card {
        self.0.card()
    }

    fn input_schema(&self) -> Map<String, Value> {
        schema::input::<O::Arguments>(self.0.card().class)
    }

    fn output_schema(&self) -> Map<String, Value> {
        schema::output::<O::Answer>(&self.0.card())
    }

    fn answer_schema(&self) -> Map<String, Value> {
        schema::answer::<O::Answer>(self.0.card().class)
    }

    fn accept(&self, arguments: Map<String, Value>) -> Result<Value, Refusal> {
        let arguments: O::Arguments = serde_json::from_value(Value::Object(arguments))
            .map_err(|error| Refusal::invalid(format!("The arguments do not fit: {error}.")))?;
        self.0.check(&arguments).map_err(Refusal::invalid)?;
        serde_json::to_value(&arguments)
            .map_err(|error| Refusal::invalid(format!("The arguments do not fit: {error}.")))
    }

    fn refusal(&self, refused: &Refused) -> Refusal {
        let (message, next) = self.0.explain(refused);
        let code = Code::from_name(&refused.code).unwrap_or(Code::PreconditionFailed);
        Refusal::new(code, message, next)
    }

    async fn on_replay(&self, reader: &Reader<'_>, answer: &mut Map<String, Value>) -> Result<(), Refusal> {
        self.0.on_replay(reader, answer).await
    }

    async fn on_expired(&self, reader: &Reader<'_>, request_id: &str) -> Result<bool, Refusal> {
        self.0.on_expired(reader, request_id).await
    }

    async fn read(&self, reader: &Reader<'_>, arguments: Value) -> Result<Value, Refusal> {
        let arguments = serde_json::from_value(arguments)
            .map_err(|error| Refusal::invalid(format!("The arguments do not fit: {error}.")))?;
        self.0.read(reader, arguments).await
    }
}
