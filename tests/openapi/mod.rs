//! The description of HTTP, held against what the service really answers.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::entries::{question, reply};
use crate::support::calls::Answer;
use crate::support::cluster::TestCluster;
use crate::support::house::{Made, by_route, house, registry};
use crate::support::proxy::Proxy;
use crate::support::raw::Raw;
use crate::support::replica::{Replica, Start};
use crate::support::scene::Scene;

/// A description, and which of its answers were seen.
struct Description {
    document: Value,
    seen: BTreeMap<String, BTreeSet<u16>>,
}

impl Description {
    async fn of(replica: &Replica) -> Self {
        let answer = replica.get("/openapi.json").await;
        assert_eq!(answer.status, 200);
        Self {
            document: answer.body,
            seen: BTreeMap::new(),
        }
    }

    /// Finds what is described at a place of the document.
    fn at(&self, pointer: &str) -> &Value {
        let found = self.document.pointer(pointer);
        found.unwrap_or_else(|| panic!("nothing is described at {pointer}"))
    }

    /// Follows a reference, if it is one.
    fn resolved<'a>(&'a self, schema: &'a Value) -> &'a Value {
        match schema["$ref"].as_str() {
            Some(reference) => self.at(reference.trim_start_matches('#')),
            None => schema,
        }
    }

    /// An operation's description, by the tool's name.
    fn operation(&self, name: &str) -> &Value {
        let paths = self.document["paths"].as_object().expect("paths");
        let mut operations = paths
            .values()
            .flat_map(|path| path.as_object().expect("operations").values());
        let found = operations.find(|operation| operation["operationId"] == name);
        found.unwrap_or_else(|| panic!("{name} is not described"))
    }

    /// Holds an answer against the description of its operation.
    #[track_caller]
    fn allows(&mut self, name: &str, answer: &Answer) {
        let operation = self.operation(name);
        let response = &operation["responses"][answer.status.to_string()];
        assert!(
            response.is_object(),
            "{name}: {} is not described: {answer:?}",
            answer.status
        );
        let kind = answer.headers["content-type"].to_str().expect("a text");
        let kind = kind.split(';').next().expect("a kind");
        let mut schema = response["content"][kind]["schema"].clone();
        assert!(
            schema.is_object(),
            "{name}: {} as {kind} is not described",
            answer.status
        );
        schema["components"] = self.document["components"].clone();
        let validator = jsonschema::validator_for(&schema).expect("a schema");
        let wrong: Vec<_> = validator
            .iter_errors(&answer.body)
            .map(|error| error.to_string())
            .collect();
        assert!(wrong.is_empty(), "{name}: {answer:?}\n{wrong:#?}");
        // Nothing is answered that is not described.
        let schema = &response["content"][kind]["schema"];
        let properties = &self.resolved(schema)["properties"];
        if answer.status < 300 && answer.body.is_object() {
            for member in answer.body.as_object().expect("an object").keys() {
                assert!(
                    properties.get(member).is_some(),
                    "{name}: {member} is not described: {answer:?}"
                );
            }
        }
        let described = |header: &str| {
            let mut headers = response["headers"].as_object().into_iter().flatten();
            headers.any(|(name, _)| name.eq_ignore_ascii_case(header))
        };
        for header in ["retry-after", "idempotency-replayed"] {
            if answer.headers.contains_key(header) {
                assert!(described(header), "{name}: {} has {header}", answer.status);
            }
        }
        self.seen.entry(name.to_owned()).or_default().insert(answer.status);
    }
}

#[tokio::test]
async fn every_operation_is_described_as_its_card_says() {
    let (_scene, replica, _) = house().await;
    let description = Description::of(&replica).await;
    assert_eq!(description.document["openapi"], "3.1.0");
    for tool in registry().iter() {
        let route = tool.card().route;
        let path = route.path.replace('/', "~1");
        let operation = description.at(&format!("/paths/{path}/{}", route.method.to_lowercase()));
        assert_eq!(operation["operationId"], tool.name());
        let listed = replica.mcp(tool.name(), json!({})).await;
        assert_eq!(listed.status, 200);
        let text = operation["description"].as_str().expect("a description");
        assert!(text.starts_with(tool.card().description), "{text}");
        let parameters = operation["parameters"].as_array().cloned().unwrap_or_default();
        // Every argument is a parameter or a member of the body, and none is both.
        let mut named: Vec<String> = parameters
            .iter()
            .map(|parameter| parameter["name"].as_str().expect("a name").to_owned())
            .filter(|name| name != "Idempotency-Key")
            .collect();
        let body = &operation["requestBody"]["content"]["application/json"]["schema"];
        named.extend(
            body["properties"]
                .as_object()
                .into_iter()
                .flatten()
                .map(|(name, _)| name.clone()),
        );
        named.sort_unstable();
        let mut arguments: Vec<String> = match tool.input_schema().get("properties") {
            Some(Value::Object(properties)) => properties.keys().cloned().collect(),
            _ => Vec::new(),
        };
        arguments.sort_unstable();
        assert_eq!(named, arguments, "{}", tool.name());
        for parameter in &parameters {
            let place = format!("{{{}}}", parameter["name"].as_str().expect("a name"));
            assert_eq!(parameter["in"] == "path", route.path.contains(&place));
        }
    }
}

/// Every reference leads somewhere, and every schema is one.
fn check_schemas(description: &Description, value: &Value) {
    match value {
        Value::Object(members) => {
            if let Some(Value::String(reference)) = members.get("$ref") {
                assert!(reference.starts_with("#/components/schemas/"), "{reference}");
                description.resolved(value);
            }
            if let Some(schema) = members.get("schema") {
                let mut schema = schema.clone();
                schema["components"] = description.document["components"].clone();
                assert!(jsonschema::meta::is_valid(&schema), "{schema}");
            }
            members.values().for_each(|member| check_schemas(description, member));
        }
        Value::Array(items) => items.iter().for_each(|item| check_schemas(description, item)),
        _ => {}
    }
}

#[tokio::test]
async fn its_references_lead_somewhere_and_its_schemas_are_schemas() {
    let (_scene, replica, _) = house().await;
    let description = Description::of(&replica).await;
    check_schemas(&description, &description.document);
}

/// What the front refuses, whatever is called.
async fn refusals_of_the_front(description: &mut Description, replica: &Replica, name: &str, made: &Made) {
    let registry = registry();
    let route = registry.find(name).expect("a tool").card().route;
    let arguments = made.arguments(name);
    let mut path = route.path.to_owned();
    for (name, value) in arguments.as_object().expect("an object") {
        path = path.replace(&format!("{{{name}}}"), value.as_str().unwrap_or_default());
    }
    let raw = || Raw::api(route.method, &path, "{}");
    description.allows(name, &raw().header("host", "example.org").send(replica).await);
    description.allows(name, &raw().header("accept", "image/png").send(replica).await);
    if route.method != "GET" {
        description.allows(name, &raw().header("content-type", "text/plain").send(replica).await);
        let large = vec![b' '; 1_048_577];
        description.allows(name, &Raw::api(route.method, &path, large).send(replica).await);
    }
}

#[tokio::test]
async fn real_answers_are_as_described_those_that_refuse_too() {
    let (scene, replica, made) = house().await;
    let mut description = Description::of(&replica).await;
    for tool in registry().iter() {
        let name = tool.name();
        let writes = tool.card().route.method != "GET" && name != "new_request_id";
        let mut good = made.arguments(name);
        if writes {
            good["request_id"] = json!(format!("described {name}"));
        }
        for _ in 0..2 {
            description.allows(name, &by_route(&replica, tool.as_ref(), good.clone()).await);
        }
        let mut unknown = good.clone();
        unknown["colour"] = json!("red");
        description.allows(name, &by_route(&replica, tool.as_ref(), unknown).await);
        for id in ["ticket_id", "id", "thread_id", "reply_id", "parent_id"] {
            let mut missing = good.clone();
            if missing.get(id).is_some() {
                missing[id] = json!("E-000000000000");
                if writes {
                    missing["request_id"] = json!(format!("missing {name}"));
                }
                description.allows(name, &by_route(&replica, tool.as_ref(), missing).await);
            }
        }
        if writes {
            for request_id in ["made-question", "01900000-0000-7000-8000-000000000000"] {
                good["request_id"] = json!(request_id);
                description.allows(name, &by_route(&replica, tool.as_ref(), good.clone()).await);
            }
        }
        refusals_of_the_front(&mut description, &replica, name, &made).await;
    }
    let expected = json!({ "request_id": "unexpected", "ticket_status": "done", "expected_status": "closed" });
    let path = format!("/tickets/{}/status", made.ticket.as_str().expect("an id"));
    let unexpected = replica.http("PUT", &path, Some(&expected)).await.expect("an answer");
    assert_eq!(unexpected.status, 409);
    description.allows("set_ticket_status", &unexpected);
    moderated(&scene, &replica, &mut description, &made).await;
    hard_times(&scene, &mut description).await;
    // All that is described was seen, but for what needs a door, a replica that stops, or an answer that nobody has any more.
    for tool in registry().iter() {
        let described = description.operation(tool.name())["responses"]
            .as_object()
            .expect("responses")
            .keys();
        let seen = &description.seen[tool.name()];
        let unseen: Vec<_> = described
            .map(|status| status.parse::<u16>().expect("a status"))
            .filter(|status| !seen.contains(status) && ![202, 401, 404, 410, 429, 502, 503].contains(status))
            .collect();
        assert!(unseen.is_empty(), "{}: {unseen:?}", tool.name());
    }
    let seen = &description.seen["post_entry"];
    assert_eq!(
        seen.iter().copied().collect::<Vec<_>>(),
        [200, 201, 400, 403, 404, 406, 409, 410, 413, 415, 429, 503]
    );
}

/// Entries that were hidden and deleted.
async fn moderated(scene: &Scene, replica: &Replica, description: &mut Description, made: &Made) {
    let (question, reply) = (
        made.question.as_str().expect("an id"),
        made.reply.as_str().expect("an id"),
    );
    for (act, id) in [("hide", question), ("delete", reply)] {
        let arguments = [&[act, id][..], if act == "delete" { &["--yes"] } else { &[] }].concat();
        assert_eq!(scene.admin(&arguments).await.0, 0);
    }
    let sent = sqlx::query_scalar::<_, String>("select request_id from entries where type = 'reply'");
    for request_id in sent.fetch_all(&scene.sql).await.expect("request_ids") {
        let mut again = made.arguments("post_entry");
        again["request_id"] = json!(request_id);
        let told = replica.post("/entries", &again).await;
        assert_eq!(told.body["visible"], false, "{told:?}");
        description.allows("post_entry", &told);
        let found = replica.find_answer(&request_id).await;
        assert_eq!(found.body["visible"], false, "{found:?}");
        description.allows("find_request", &found);
    }
    let mut again = made.arguments("post_entry");
    again["request_id"] = json!("made-reply");
    let told = replica.post("/entries", &again).await;
    assert_eq!(told.code(), "deleted", "{told:?}");
    description.allows("post_entry", &told);
    description.allows("find_request", &replica.find_answer("made-reply").await);
}

/// Limits, a stop, work that takes long, and no database.
async fn hard_times(scene: &Scene, description: &mut Description) {
    let proxy = Proxy::before(TestCluster::shared()).await;
    let start = |url: &str| Start::on(url).with("TOOLSETS", "tickets,entries");
    let slow = start(&scene.url)
        .with("WORK_MS", 600_000)
        .with("WAIT_MS", 300)
        .ready()
        .await;
    let unfinished = slow.create("slow", "Slow").await;
    assert_eq!(unfinished.status, 202);
    description.allows("create_ticket", &unfinished);
    description.allows("find_request", &slow.find_answer("slow").await);
    let limited = start(&scene.url).with("LIMIT_GLOBAL_PER_HOUR", "1").ready().await;
    let mut told = Vec::new();
    for number in 0..2 {
        told.push(limited.post("/entries", &question(&format!("limited-{number}"))).await);
    }
    assert_eq!(told[1].status, 429, "{told:?}");
    told.iter().for_each(|told| description.allows("post_entry", told));
    let cut_off = start(&proxy.url(&scene.url)).ready().await;
    proxy.down();
    for (name, told) in [
        (
            "post_entry",
            cut_off.post("/entries", &reply("cut-off", "E-000000000000")).await,
        ),
        ("create_ticket", cut_off.create("cut-off", "Cut off").await),
        ("get_thread", cut_off.get("/threads/E-000000000000").await),
        ("find_request", cut_off.find_answer("cut-off").await),
    ] {
        assert_eq!(told.status, 503, "{told:?}");
        description.allows(name, &told);
    }
}
