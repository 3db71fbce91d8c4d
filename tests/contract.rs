//! What every operation promises, whichever it is: the registry is walked, so a new operation is held to all of it.

use serde_json::{Map, Value, json};
use ticket_ledger::operation::{Class, Tool};

use crate::support::house::{by_route, house, registry};
use crate::support::raw::Raw;
use crate::support::replica::Replica;
use crate::support::scene::Scene;

/// Clients cut longer descriptions.
const LONGEST_DESCRIPTION: usize = 2_048;

fn writes(tool: &dyn Tool) -> bool {
    !matches!(tool.card().class, Class::ReadOnly)
}

/// The tools as a client is shown them, by name.
async fn listed(replica: &Replica) -> Map<String, Value> {
    let answer = Raw::modern("tools/list", None, json!({})).send(replica).await;
    let tools = answer.body["result"]["tools"].as_array().expect("tools").clone();
    tools
        .into_iter()
        .map(|tool| (tool["name"].as_str().expect("a name").to_owned(), tool))
        .collect()
}

#[test]
fn every_operation_is_named_and_described_as_clients_need_it() {
    let mut paths = Vec::new();
    for tool in registry().iter() {
        let card = tool.card();
        let fits = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        assert!(
            (1..=64).contains(&card.name.len()) && card.name.chars().all(fits),
            "{}",
            card.name
        );
        assert_eq!(tool.name(), card.name);
        assert!(!card.title.is_empty() && !card.description.is_empty(), "{}", card.name);
        paths.push((card.route.method, card.route.path));
        assert!(["GET", "POST", "PUT"].contains(&card.route.method), "{}", card.name);
        assert!([200, 201].contains(&card.route.success), "{}", card.name);
        assert!(
            !writes(tool.as_ref()) || card.route.method != "GET",
            "{} writes",
            card.name
        );
    }
    let count = paths.len();
    paths.sort_unstable();
    paths.dedup();
    assert_eq!(paths.len(), count, "a path is used twice");
}

#[tokio::test]
async fn all_four_hints_are_explicit_and_follow_from_the_class() {
    let (_scene, replica, _) = house().await;
    let listed = listed(&replica).await;
    assert_eq!(listed.len(), registry().iter().count());
    for tool in registry().iter() {
        let shown = &listed[tool.name()];
        let (read_only, destructive) = match tool.card().class {
            Class::ReadOnly => (true, false),
            Class::Transactional { destructive, .. } => (false, destructive),
        };
        let expected = json!({
            "title": tool.card().title, "readOnlyHint": read_only, "destructiveHint": destructive,
            "idempotentHint": true, "openWorldHint": false,
        });
        assert_eq!(shown["annotations"], expected, "{}", tool.name());
        assert_eq!(shown["title"], tool.card().title);
    }
    let destructive: Vec<_> = listed
        .values()
        .filter(|tool| tool["annotations"]["destructiveHint"] == true)
        .collect();
    assert_eq!(destructive.len(), 1);
    assert_eq!(destructive[0]["name"], "set_ticket_status");
}

/// The words that a model must read wherever it looks.
fn says_how_to_repeat(text: &str, where_: &str) {
    assert!(text.len() < LONGEST_DESCRIPTION, "{where_}: {} bytes", text.len());
    let words = [
        "request_id",
        "one intent",
        "note it",
        "find_request",
        "the same request_id and the same arguments",
        "never",
        "in_progress",
        "not finished",
        "unconfirmed",
    ];
    let text = text.to_lowercase().split_whitespace().collect::<Vec<_>>().join(" ");
    for word in words {
        assert!(text.contains(word), "{where_} does not say {word:?}: {text}");
    }
    assert!(
        !text.contains("unique"),
        "{where_}: a model mints a new unique key for a repeat"
    );
}

#[tokio::test]
async fn descriptions_and_instructions_say_alike_one_request_id_per_intent() {
    let (_scene, replica, _) = house().await;
    let discovered = Raw::modern("server/discover", None, json!({})).send(&replica).await;
    let instructions = discovered.body["result"]["instructions"]
        .as_str()
        .expect("instructions");
    says_how_to_repeat(instructions, "instructions");
    let listed = listed(&replica).await;
    for tool in registry().iter() {
        let description = listed[tool.name()]["description"].as_str().expect("a description");
        assert!(description.len() < LONGEST_DESCRIPTION, "{}", tool.name());
        assert!(description.starts_with(tool.card().description));
        if writes(tool.as_ref()) {
            says_how_to_repeat(description, tool.name());
            let key = &listed[tool.name()]["inputSchema"]["properties"]["request_id"];
            let text = key["description"].as_str().expect("a description");
            for word in ["one intent", "same request_id and the same arguments", "new intent"] {
                assert!(text.contains(word), "{}: {text}", tool.name());
            }
        }
    }
}

/// Finds sub-schemas that say nothing, which some clients refuse.
fn empty_schemas(schema: &Value, path: &str, found: &mut Vec<String>) {
    let one = |value: &Value, path: String, found: &mut Vec<String>| {
        if value.is_boolean() || value.as_object().is_some_and(Map::is_empty) {
            found.push(path);
        } else {
            empty_schemas(value, &path, found);
        }
    };
    for (word, value) in schema.as_object().into_iter().flatten() {
        match (word.as_str(), value) {
            ("properties" | "$defs" | "patternProperties", Value::Object(members)) => {
                members
                    .iter()
                    .for_each(|(name, value)| one(value, format!("{path}/{word}/{name}"), found));
            }
            ("anyOf" | "oneOf" | "allOf" | "prefixItems", Value::Array(variants)) => {
                variants
                    .iter()
                    .for_each(|value| one(value, format!("{path}/{word}"), found));
            }
            ("items" | "not" | "if" | "then" | "else", value) => one(value, format!("{path}/{word}"), found),
            _ => {}
        }
    }
}

#[test]
fn schemas_are_valid_closed_and_say_something_in_every_place() {
    let mut found = Vec::new();
    for tool in registry().iter() {
        let (input, output) = (tool.input_schema(), tool.output_schema());
        for (schema, name) in [(&input, "input"), (&output, "output")] {
            let schema = Value::Object(schema.clone());
            assert!(jsonschema::meta::is_valid(&schema), "{} {name}", tool.name());
            assert_eq!(schema["type"], "object", "{} {name}", tool.name());
            empty_schemas(&schema, &format!("{} {name}", tool.name()), &mut found);
        }
        assert_eq!(input["additionalProperties"], false, "{}", tool.name());
        let required = input
            .get("required")
            .and_then(Value::as_array)
            .cloned()
            .unwrap_or_default();
        let key = &input["properties"]["request_id"];
        if writes(tool.as_ref()) {
            assert!(required.contains(&json!("request_id")), "{}", tool.name());
            let expected = json!(["string", 1, 64]);
            assert_eq!(
                json!([key["type"], key["minLength"], key["maxLength"]]),
                expected,
                "{}",
                tool.name()
            );
        }
    }
    assert!(found.is_empty(), "{found:#?}");
}

#[tokio::test]
async fn unknown_arguments_are_refused_by_every_operation_over_both_transports() {
    let (scene, replica, made) = house().await;
    for tool in registry().iter() {
        let mut arguments = made.arguments(tool.name());
        if writes(tool.as_ref()) {
            arguments["request_id"] = json!("unknown-argument");
        }
        arguments["colour"] = json!("red");
        let over_mcp = valid_answer(&replica, tool.as_ref(), arguments.clone()).await;
        assert_eq!(
            over_mcp["error"]["code"],
            "invalid_argument",
            "{}: {over_mcp}",
            tool.name()
        );
        let over_http = by_route(&replica, tool.as_ref(), arguments).await;
        assert_eq!(
            (over_http.status, over_http.code()),
            (400, "invalid_argument"),
            "{}",
            tool.name()
        );
        assert!(
            over_http.body["error"]["message"]
                .as_str()
                .is_some_and(|message| message.contains("colour")),
            "{over_http:?}"
        );
    }
    assert_eq!(scene.count("select count(*) from requests").await, 3);
}

/// A tool's answer over MCP: structured content and text are the same object, and the schema that the tool shows allows it.
async fn valid_answer(replica: &Replica, tool: &dyn Tool, arguments: Value) -> Value {
    let answer = replica.mcp(tool.name(), arguments).await;
    let result = &answer.body["result"];
    let structured = &result["structuredContent"];
    let content = result["content"].as_array().expect("content");
    assert_eq!((content.len(), &content[0]["type"]), (1, &json!("text")), "{answer:?}");
    let text: Value = serde_json::from_str(content[0]["text"].as_str().expect("a text")).expect("JSON");
    assert_eq!(&text, structured, "{}", tool.name());
    let schema = jsonschema::validator_for(&Value::Object(tool.output_schema())).expect("a schema");
    let wrong: Vec<_> = schema.iter_errors(structured).map(|error| error.to_string()).collect();
    assert!(wrong.is_empty(), "{}: {structured}\n{wrong:#?}", tool.name());
    let enveloped = tool.card().toolset.is_enveloped();
    let told = if enveloped { &structured["data"] } else { structured };
    assert_eq!(result["isError"], json!(told.get("error").is_some()), "{answer:?}");
    assert_eq!(structured.get("http_status").is_some(), enveloped, "{answer:?}");
    told.clone()
}

/// Which of the variants of a tool's schema allow this answer: exactly one must, or the schema says nothing.
fn variants(tool: &dyn Tool, answer: &Value) -> usize {
    let mut schema = tool.output_schema();
    let definitions = schema.get("$defs").cloned().unwrap_or(json!({}));
    if tool.card().toolset.is_enveloped() {
        let data = schema["properties"]["data"].as_object().expect("a schema");
        schema = data.clone();
    }
    let allows = |variant: &&Value| {
        let mut variant = (*variant).clone();
        variant["$defs"] = definitions.clone();
        jsonschema::is_valid(&variant, answer)
    };
    schema["anyOf"]
        .as_array()
        .expect("variants")
        .iter()
        .filter(allows)
        .count()
}

#[tokio::test]
async fn real_answers_are_what_the_output_schema_says() {
    let (_scene, replica, made) = house().await;
    for tool in registry().iter() {
        let tool = tool.as_ref();
        let mut good = made.arguments(tool.name());
        let mut answers = Vec::new();
        if writes(tool) {
            good["request_id"] = json!(format!("contract of {}", tool.name()));
            let first = valid_answer(&replica, tool, good.clone()).await;
            let replay = valid_answer(&replica, tool, good.clone()).await;
            let mut expected = first.clone();
            assert_eq!(
                (&first["status"], &first["replayed"]),
                (&json!("done"), &json!(false)),
                "{first}"
            );
            expected["replayed"] = json!(true);
            assert_eq!(replay, expected);
            let mut other = good.clone();
            other["request_id"] = json!("made");
            if other.get("body").is_some() {
                other["body"] = json!("Another body.");
            }
            let conflict = valid_answer(&replica, tool, other).await;
            assert_eq!(conflict["error"]["code"], "conflict", "{conflict}");
            answers.extend([first, replay, conflict]);
        } else {
            let read = valid_answer(&replica, tool, good.clone()).await;
            assert!(read.get("error").is_none(), "{read}");
            answers.push(read);
        }
        good["colour"] = json!("red");
        answers.push(valid_answer(&replica, tool, good).await);
        for answer in answers {
            assert_eq!(variants(tool, &answer), 1, "{}: {answer}", tool.name());
        }
    }
}

#[tokio::test]
async fn an_unfinished_answer_is_what_the_output_schema_says() {
    let scene = Scene::new().await;
    let replica = scene
        .replica()
        .with("WORK_MS", 600_000)
        .with("WAIT_MS", 200)
        .ready()
        .await;
    let registry = registry();
    let create = registry.find("create_ticket").expect("create_ticket").as_ref();
    let arguments = json!({ "request_id": "slow", "title": "Slow", "body": "b" });
    let unfinished = valid_answer(&replica, create, arguments).await;
    assert_eq!(unfinished["status"], "in_progress", "{unfinished}");
    assert_eq!(variants(create, &unfinished), 1);
    let find = registry.find("find_request").expect("find_request").as_ref();
    for (key, status) in [
        ("slow", "running"),
        ("never", "unknown"),
        ("01900000-0000-7000-8000-000000000000", "expired"),
    ] {
        let found = valid_answer(&replica, find, json!({ "request_id": key })).await;
        assert_eq!(found["status"], status, "{found}");
    }
}

#[tokio::test]
async fn read_only_operations_leave_no_trace() {
    let (scene, replica, made) = house().await;
    let traces = "select (select count(*) from requests) + (select count(*) from unsettled) + (select count(*) from recent_creations)
        + (select count(*) from tickets) + (select count(*) from entries) + (select count(*) from comments) + (select count(*) from audit)";
    let before = scene.count(traces).await;
    for tool in registry().iter().filter(|tool| !writes(tool.as_ref())) {
        let arguments = made.arguments(tool.name());
        let read = valid_answer(&replica, tool.as_ref(), arguments.clone()).await;
        assert!(read.get("error").is_none(), "{read}");
        let read = by_route(&replica, tool.as_ref(), arguments).await;
        assert_eq!(read.status, 200, "{read:?}");
    }
    assert_eq!(scene.count(traces).await, before);
}
