//! JSON Schemas as clients are shown them.

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use super::{Card, Class};

/// What every schema of a request_id says: one per intent, not one per call.
pub const REQUEST_ID: &str = "Names this one intent to write. Choose it before the call (new_request_id gives you one) and note \
    it. When you repeat the call after an error or a lost answer, send the same request_id and the same arguments; a new intent \
    takes a new one.";

/// The schema of an operation's arguments, with request_id in front where it writes.
pub fn input<T: JsonSchema>(class: Class) -> Map<String, Value> {
    let mut schema = of::<T>();
    schema.insert("type".to_owned(), json!("object"));
    schema.insert("additionalProperties".to_owned(), json!(false));
    let properties = schema.entry("properties").or_insert_with(|| json!({}));
    if let (Class::Transactional { .. }, Value::Object(properties)) = (class, properties) {
        properties.insert("request_id".to_owned(), request_id());
        match schema.get_mut("required").and_then(Value::as_array_mut) {
            Some(required) => required.insert(0, json!("request_id")),
            None => {
                schema.insert("required".to_owned(), json!(["request_id"]));
            }
        }
    }
    schema
}

/// The schema of a request_id.
pub fn request_id() -> Value {
    json!({
        "type": "string",
        "minLength": 1,
        "maxLength": super::key::MOST_CODE_POINTS,
        "description": REQUEST_ID,
    })
}

/// The schema of everything an operation answers over MCP: for a write, settled, in progress or an error.
pub fn output<T: JsonSchema>(card: &Card) -> Map<String, Value> {
    let mut answer = answer::<T>(card.class);
    let definitions = answer.remove("$defs");
    let mut variants = vec![Value::Object(answer)];
    if let Class::Transactional { .. } = card.class {
        variants.push(in_progress());
    }
    variants.push(error());
    let mut schema = Map::new();
    schema.insert("type".to_owned(), json!("object"));
    if card.toolset.is_enveloped() {
        let properties = json!({
            "http_status": { "type": "integer", "description": "The status that HTTP answers: 201 done now, 200 read or done by an \
                earlier call, 202 in progress, else an error." },
            "data": { "description": "What HTTP answers.", "anyOf": variants },
            "retry_after_seconds": { "type": "integer", "description": "When to call again." },
        });
        schema.insert("properties".to_owned(), properties);
        schema.insert("required".to_owned(), json!(["http_status", "data"]));
    } else {
        schema.insert("anyOf".to_owned(), Value::Array(variants));
    }
    if let Some(definitions) = definitions {
        schema.insert("$defs".to_owned(), definitions);
    }
    schema
}

/// The schema of an operation's answer when it has done what it was asked: for a write, with what the ledger puts around it.
pub fn answer<T: JsonSchema>(class: Class) -> Map<String, Value> {
    let answer = of::<T>();
    match class {
        Class::ReadOnly => answer,
        Class::Transactional { .. } => settled(answer),
    }
}

/// The schema of an answer before the end.
pub fn in_progress() -> Value {
    json!({
        "type": "object",
        "title": "In progress",
        "properties": {
            "request_id": { "type": "string" },
            "status": { "const": "in_progress" },
            "retry_after_seconds": { "type": "integer" },
            "next": { "type": "string" },
        },
        "required": ["request_id", "status", "retry_after_seconds", "next"],
    })
}

/// The schema of a refusal.
pub fn error() -> Value {
    json!({
        "type": "object",
        "title": "Error",
        "properties": {
            "error": {
                "type": "object",
                "properties": {
                    "code": { "type": "string" },
                    "message": { "type": "string" },
                    "next": { "type": "string" },
                    "retry_after_seconds": { "type": "integer" },
                    "recorded": { "type": "boolean" },
                    "limit": { "enum": ["source", "global"] },
                    "scope": { "type": "string", "description": "The scope that the call needs." },
                },
                "required": ["code", "message", "next"],
            },
        },
        "required": ["error"],
    })
}

/// An operation's result with what the ledger puts around it.
fn settled(mut answer: Map<String, Value>) -> Map<String, Value> {
    let around = json!({
        "request_id": { "type": "string" },
        "status": { "const": "done" },
        "replayed": { "type": "boolean", "description": "True when the answer was recorded by an earlier call." },
        "answered_at": { "type": "string", "format": "date-time", "description": "When the write was done." },
        "possible_duplicate_of": {
            "type": "object",
            "description": "An earlier request of yours that created the same. Report the pair; do not undo either.",
            "properties": { "request_id": { "type": "string" }, "result_id": { "type": "string" } },
        },
        "next": { "type": "string" },
    });
    if let (Some(Value::Object(properties)), Value::Object(around)) = (answer.get_mut("properties"), around) {
        properties.extend(around);
    }
    if let Some(Value::Array(required)) = answer.get_mut("required") {
        required.extend(["request_id", "status", "replayed", "answered_at"].map(Value::from));
    }
    answer
}

fn of<T: JsonSchema>() -> Map<String, Value> {
    let schema = SchemaSettings::draft2020_12()
        .with(|settings| settings.meta_schema = None)
        .into_generator()
        .into_root_schema_for::<T>();
    match schema.to_value() {
        Value::Object(schema) => schema,
        _ => Map::new(),
    }
}
