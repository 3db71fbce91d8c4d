//! The description of HTTP, made of the cards and schemas of what is offered: OpenAPI 3.1 at /api/v1/openapi.json.

use serde_json::{Map, Value, json};

use super::http::{MARKDOWN, ROOT};
use crate::operation::answer::Code;
use crate::operation::registry::Registry;
use crate::operation::schema::{error, in_progress, request_id};
use crate::operation::{Class, Tool, words};

/// Where it is found, below [`ROOT`].
pub const PATH: &str = "/openapi.json";

/// What a caller is told of each status of a refusal, beside what its body says.
const REFUSALS: &[(u16, &str)] = &[
    (400, "The call does not fit. Nothing was done by it."),
    (401, "Nobody knows who calls."),
    (
        403,
        "Not by this name of the service, from this origin, or without a scope that the caller does not have.",
    ),
    (404, "It is not there."),
    (406, "The answer is of a kind that the Accept header does not name."),
    (
        409,
        "It conflicts with what is recorded or with how things stand; see error.code.",
    ),
    (410, "It was done and is gone since, or is too old to be told or run."),
    (413, "The body is too large."),
    (415, "The body is not application/json."),
    (429, "The hour's writes are used up."),
    (
        502,
        "This replica is stopping; another one knows. Repeat the same call.",
    ),
    (
        503,
        "It is not known, or not possible at the moment. Repeat the same call later.",
    ),
];

/// The description of these operations.
pub fn document(registry: &Registry) -> Value {
    let mut components = Map::new();
    components.insert("Error".to_owned(), error());
    components.insert("InProgress".to_owned(), in_progress());
    let mut paths: Map<String, Value> = Map::new();
    for tool in registry.iter() {
        let route = tool.card().route;
        let described = operation(tool.as_ref(), &mut components);
        let place = paths.entry(route.path).or_insert_with(|| json!({}));
        place[route.method.to_lowercase()] = described;
    }
    paths.insert(PATH.to_owned(), json!({ "get": own_description() }));
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "ticket-ledger",
            "version": env!("CARGO_PKG_VERSION"),
            "description": words::INSTRUCTIONS,
            "license": { "name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0" },
        },
        "servers": [{ "url": ROOT }],
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {
                "bearer": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "An access token or a static token, where the deployment asks who calls.",
                },
            },
        },
        "security": [{}, { "bearer": [] }],
    })
}

fn own_description() -> Value {
    let mut responses = Map::new();
    responses.insert(
        "200".to_owned(),
        json!({ "description": "This description.", "content": { "application/json": { "schema": { "type": "object" } } } }),
    );
    refuse(&mut responses, &[401, 403, 502, 503]);
    json!({ "operationId": "openapi", "summary": "This description", "responses": responses })
}

fn operation(tool: &dyn Tool, components: &mut Map<String, Value>) -> Value {
    let card = tool.card();
    let writes = !matches!(card.class, Class::ReadOnly);
    let mut input = hoisted(tool.input_schema(), components);
    let mut described = json!({
        "operationId": card.name,
        "summary": card.title,
        "description": words::description(&card),
    });
    let mut parameters = Vec::new();
    for name in card
        .route
        .path
        .split('{')
        .skip(1)
        .filter_map(|rest| rest.split('}').next())
    {
        if let Some(schema) = take(&mut input, name) {
            parameters.push(parameter(name, "path", true, schema));
        }
    }
    if writes {
        let mut key = request_id();
        // A pair of quotes around it is taken off.
        key["maxLength"] = json!(66);
        parameters.push(parameter("Idempotency-Key", "header", false, key));
        // It may stand in the header.
        unrequire(&mut input, "request_id");
    }
    if card.route.method == "GET" {
        let names: Vec<String> = members(&input).keys().cloned().collect();
        for name in names {
            let required = is_required(&input, &name);
            if let Some(schema) = take(&mut input, &name) {
                parameters.push(parameter(&name, "query", required, schema));
            }
        }
    } else {
        let required = !members(&input).is_empty();
        described["requestBody"] = json!({
            "required": required,
            "content": { "application/json": { "schema": input } },
        });
    }
    if !parameters.is_empty() {
        described["parameters"] = json!(parameters);
    }
    described["responses"] = responses(tool, writes, components);
    described
}

fn responses(tool: &dyn Tool, writes: bool, components: &mut Map<String, Value>) -> Value {
    let card = tool.card();
    let answer = hoisted(tool.answer_schema(), components);
    let kind = if card.route.is_markdown() {
        MARKDOWN
    } else {
        "application/json"
    };
    let mut responses = Map::new();
    let mut put = |status: u16, response: Value| {
        responses.insert(status.to_string(), response);
    };
    let content = json!({ kind: { "schema": answer } });
    if writes {
        let replayed = json!({
            "Idempotency-Replayed": {
                "description": "true when an earlier call did it; absent otherwise.",
                "schema": { "const": "true" },
            },
        });
        put(
            200,
            json!({ "description": "An earlier call did it.", "headers": replayed, "content": content }),
        );
        put(
            202,
            json!({
                "description": "Not finished, and not known to have failed.",
                "headers": retry_after(),
                "content": { "application/json": { "schema": { "$ref": "#/components/schemas/InProgress" } } },
            }),
        );
        if card.route.success == 200 {
            put(
                200,
                json!({ "description": "It is done, now or by an earlier call.", "headers": replayed, "content": content }),
            );
        } else {
            put(
                card.route.success,
                json!({ "description": "It is done.", "content": content }),
            );
        }
        refuse(
            &mut responses,
            &[400, 401, 403, 404, 406, 409, 410, 413, 415, 429, 502, 503],
        );
    } else {
        put(
            card.route.success,
            json!({ "description": "The answer.", "content": content }),
        );
        let body: &[u16] = if card.route.method == "GET" { &[] } else { &[413, 415] };
        refuse(&mut responses, &[400, 401, 403, 404, 406, 410, 502, 503]);
        refuse(&mut responses, body);
    }
    Value::Object(responses)
}

/// Adds refusals with these statuses.
fn refuse(responses: &mut Map<String, Value>, statuses: &[u16]) {
    for (status, description) in REFUSALS.iter().filter(|(status, _)| statuses.contains(status)) {
        let mut response = json!({
            "description": description,
            "content": { "application/json": { "schema": {
                "allOf": [{ "$ref": "#/components/schemas/Error" }],
                "properties": { "error": { "properties": { "code": { "enum": codes(*status) } } } },
            } } },
        });
        if [401, 403].contains(status) {
            response["headers"] = json!({
                "WWW-Authenticate": {
                    "description": "Where callers are asked who they are: what is missing, and where it is to be had (RFC 9728).",
                    "schema": { "type": "string" },
                },
            });
        }
        if [429, 502, 503].contains(status) {
            response["headers"] = retry_after();
        }
        responses.insert(status.to_string(), response);
    }
}

/// The codes that a refusal with this status may have.
fn codes(status: u16) -> Vec<&'static str> {
    match status {
        // HTTP's own ways to say that a call does not fit.
        406 | 413 | 415 => vec![Code::InvalidArgument.as_str()],
        502 => vec![Code::Unavailable.as_str()],
        _ => Code::ALL
            .into_iter()
            .filter(|code| code.http() == status)
            .map(Code::as_str)
            .collect(),
    }
}

fn retry_after() -> Value {
    json!({ "Retry-After": { "description": "When to call again, in seconds.", "schema": { "type": "integer" } } })
}

fn parameter(name: &str, place: &str, required: bool, mut schema: Value) -> Value {
    let description = schema.as_object_mut().and_then(|schema| schema.remove("description"));
    let mut parameter = json!({ "name": name, "in": place, "required": required, "schema": not_null(schema) });
    if let Some(description) = description {
        parameter["description"] = description;
    }
    parameter
}

/// A schema without the null that an argument in JSON may be, and that a path or a query cannot say.
fn not_null(mut schema: Value) -> Value {
    if let Some(kinds) = schema.get_mut("type").and_then(Value::as_array_mut) {
        kinds.retain(|kind| kind != "null");
        if let [kind] = kinds.as_slice() {
            schema["type"] = kind.clone();
        }
    }
    if let Some(variants) = schema.get_mut("anyOf").and_then(Value::as_array_mut) {
        variants.retain(|variant| variant["type"] != "null");
        if let [variant] = variants.as_slice() {
            return variant.clone();
        }
    }
    schema
}

fn members(schema: &Value) -> Map<String, Value> {
    schema["properties"].as_object().cloned().unwrap_or_default()
}

fn is_required(schema: &Value, name: &str) -> bool {
    let required = schema["required"].as_array();
    required.is_some_and(|names| names.iter().any(|required| required == name))
}

fn unrequire(schema: &mut Value, name: &str) {
    if let Some(names) = schema.get_mut("required").and_then(Value::as_array_mut) {
        names.retain(|required| required != name);
    }
}

/// Takes a member out of an object's schema.
fn take(schema: &mut Value, name: &str) -> Option<Value> {
    unrequire(schema, name);
    schema
        .get_mut("properties")
        .and_then(Value::as_object_mut)?
        .remove(name)
}

/// A schema whose definitions stand among the components.
fn hoisted(mut schema: Map<String, Value>, components: &mut Map<String, Value>) -> Value {
    if let Some(Value::Object(definitions)) = schema.remove("$defs") {
        for (name, definition) in definitions {
            components.insert(name, referring(definition));
        }
    }
    referring(Value::Object(schema))
}

/// With references to the components in place of those to a schema's own definitions.
fn referring(schema: Value) -> Value {
    match schema {
        Value::Object(members) => Value::Object(
            members
                .into_iter()
                .map(|(name, value)| match value {
                    Value::String(to) if name == "$ref" => {
                        (name, json!(to.replace("#/$defs/", "#/components/schemas/")))
                    }
                    value => (name, referring(value)),
                })
                .collect(),
        ),
        Value::Array(items) => Value::Array(items.into_iter().map(referring).collect()),
        other => other,
    }
}
