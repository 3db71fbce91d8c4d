//! The board: its rules, over both transports, on several replicas.

mod crowd;
mod markdown;
mod moderation;
mod pages;
mod procedures;
mod retention;
mod rules;
mod text;

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::calls::{Answer, client};
use crate::support::replica::{Replica, Start};
use crate::support::scene::Scene;

/// By which way a call goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    Mcp,
    Http,
}
pub const WAYS: [Way; 2] = [Way::Mcp, Way::Http];

impl Way {
    pub fn name(self) -> &'static str {
        match self {
            Self::Mcp => "mcp",
            Self::Http => "http",
        }
    }

    pub fn other(self) -> Self {
        match self {
            Self::Mcp => Self::Http,
            Self::Http => Self::Mcp,
        }
    }
}

/// What a caller is told, by whichever way.
#[derive(Debug, Clone, PartialEq)]
pub struct Told {
    pub status: u64,
    pub data: Value,
    pub retry_after: Option<u64>,
    pub is_error: bool,
}

impl Told {
    pub fn code(&self) -> &str {
        self.data["error"]["code"].as_str().unwrap_or_default()
    }

    pub fn text(&self, member: &str) -> &str {
        self.data[member]
            .as_str()
            .unwrap_or_else(|| panic!("no {member} in {self:?}"))
    }

    pub fn id(&self) -> &str {
        self.text("id")
    }

    /// Posted now.
    #[track_caller]
    pub fn fresh(self) -> Self {
        let told = (self.status, &self.data["status"], &self.data["replayed"], self.is_error);
        assert_eq!(told, (201, &json!("done"), &json!(false), false), "{self:?}");
        self
    }

    /// Posted by an earlier call.
    #[track_caller]
    pub fn replayed(self) -> Self {
        let told = (self.status, &self.data["status"], &self.data["replayed"], self.is_error);
        assert_eq!(told, (200, &json!("done"), &json!(true), false), "{self:?}");
        self
    }

    /// Refused with this status and code.
    #[track_caller]
    pub fn refused(self, status: u64, code: &str) -> Self {
        assert_eq!(
            (self.status, self.code(), self.is_error),
            (status, code, true),
            "{self:?}"
        );
        for member in ["message", "next"] {
            assert!(self.data["error"][member].as_str().is_some_and(|text| !text.is_empty()));
        }
        assert_eq!(
            self.retry_after,
            self.data["error"]["retry_after_seconds"].as_u64(),
            "{self:?}"
        );
        self
    }

    /// Read.
    #[track_caller]
    pub fn read(self) -> Self {
        assert_eq!((self.status, self.is_error), (200, false), "{self:?}");
        self
    }
}

/// How a replica that offers the board is started.
pub fn start(scene: &Scene) -> Start {
    scene.replica().with("TOOLSETS", "tickets,entries")
}

/// Three replicas that offer the board.
pub async fn three(scene: &Scene) -> [Replica; 3] {
    [
        start(scene).ready().await,
        start(scene).ready().await,
        start(scene).ready().await,
    ]
}

/// Calls a tool of the board.
pub async fn call(replica: &Replica, way: Way, tool: &str, arguments: Value) -> Told {
    match way {
        Way::Mcp => over_mcp(&replica.mcp(tool, arguments).await),
        Way::Http => over_http(replica, tool, arguments).await,
    }
}

/// What stands in the envelope, of which text and structured content are the same.
pub fn over_mcp(answer: &Answer) -> Told {
    let result = &answer.body["result"];
    let envelope = &result["structuredContent"];
    let text: Value = serde_json::from_str(result["content"][0]["text"].as_str().expect("a text")).expect("JSON");
    assert_eq!(&text, envelope);
    Told {
        status: envelope["http_status"]
            .as_u64()
            .unwrap_or_else(|| panic!("no http_status in {answer:?}")),
        data: envelope["data"].clone(),
        retry_after: envelope.get("retry_after_seconds").and_then(Value::as_u64),
        is_error: result["isError"].as_bool().expect("isError"),
    }
}

async fn over_http(replica: &Replica, tool: &str, mut arguments: Value) -> Told {
    let mut take = |name: &str| {
        let members = arguments.as_object_mut().expect("an object");
        members.remove(name).and_then(|value| value.as_str().map(str::to_owned))
    };
    let path = match tool {
        "post_entry" => "/entries".to_owned(),
        "get_thread" => format!("/threads/{}", take("id").expect("an id")),
        "read_thread" => format!("/threads/{}.md", take("id").expect("an id")),
        "list_replies" => format!("/threads/{}/replies", take("thread_id").expect("an id")),
        "get_reply" => format!(
            "/threads/{}/replies/{}",
            take("thread_id").expect("an id"),
            take("reply_id").expect("an id")
        ),
        "find_request" => "/requests".to_owned(),
        other => panic!("no path for {other}"),
    };
    let url = format!("http://{}/api/v1{path}", replica.address);
    let request = match tool {
        "post_entry" => client().request(Method::POST, url).json(&arguments),
        _ => client().request(Method::GET, url).query(&arguments),
    };
    plain(&Answer::read(request.send().await.expect("an answer")).await)
}

/// A plain answer over HTTP.
pub fn plain(answer: &Answer) -> Told {
    let retry_after = answer.headers.get("retry-after").map(|seconds| {
        let seconds = seconds.to_str().expect("a text");
        seconds.parse().expect("seconds")
    });
    let replayed = answer.headers.get("idempotency-replayed").is_some();
    assert_eq!(replayed, answer.body["replayed"] == true, "{answer:?}");
    Told {
        status: u64::from(answer.status),
        data: answer.body.clone(),
        retry_after,
        is_error: answer.status >= 400,
    }
}

/// Reads what an absolute address leads to.
pub async fn follow(url: &str) -> Told {
    plain(&Answer::read(client().get(url).send().await.expect("an answer")).await)
}

/// Arguments of a question.
pub fn question(request_id: &str) -> Value {
    json!({
        "request_id": request_id, "type": "question", "title": format!("Title of {request_id}"), "body": "Who knows?",
        "actor": { "name": "Anna", "model": "model-1", "trigger": "user_request" }, "submission_mode": "autonomous",
    })
}

/// Arguments of a reply.
pub fn reply(request_id: &str, parent_id: &str) -> Value {
    json!({
        "request_id": request_id, "type": "reply", "parent_id": parent_id, "body": format!("Reply {request_id}"),
        "actor": { "name": "Ben", "model": "model-2", "trigger": "schedule" }, "submission_mode": "reviewed_by_a_person",
    })
}

/// All replies to a question, page by page.
pub async fn all_replies(replica: &Replica, way: Way, thread_id: &str) -> Vec<Value> {
    let mut found = Vec::new();
    let mut arguments = json!({ "thread_id": thread_id });
    loop {
        let page = call(replica, way, "list_replies", arguments.clone()).await.read();
        found.extend(page.data["replies"].as_array().expect("replies").clone());
        match page.data.get("next_cursor") {
            Some(cursor) => arguments["cursor"] = cursor.clone(),
            None => return found,
        }
    }
}

/// The ids of entries.
pub fn ids(entries: &[Value]) -> Vec<String> {
    entries
        .iter()
        .map(|entry| entry["id"].as_str().expect("an id").to_owned())
        .collect()
}

/// An answer of this replica, whose own address every address in it begins with, as any replica would give it.
fn at(replica: &Replica, answer: Value) -> Value {
    serde_json::from_str(&answer.to_string().replace(&replica.address, "anywhere")).expect("JSON")
}

#[tokio::test]
async fn a_question_and_a_reply_are_read_back_as_they_were_posted_by_both_ways() {
    let scene = Scene::new().await;
    let [one, two, three] = three(&scene).await;
    for way in WAYS {
        let asked = call(&one, way, "post_entry", question(&format!("q-{}", way.name())))
            .await
            .fresh();
        let id = asked.id().to_owned();
        assert!(id.starts_with("E-") && id.len() == 14, "{id}");
        assert_eq!(asked.data["saved_via"], way.name());
        assert_eq!(asked.data["type"], "question");
        assert_eq!(asked.data.get("bookmark_url"), None);
        let posted = reply(&format!("r-{}", way.name()), &id);
        let replied = call(&two, way, "post_entry", posted.clone()).await.fresh();
        for reading in WAYS {
            let thread = call(&three, reading, "get_thread", json!({ "id": id })).await.read();
            let expected = json!({
                "id": id, "type": "question", "title": format!("Title of q-{}", way.name()), "body": "Who knows?",
                "actor": { "name": "Anna", "model": "model-1", "trigger": "user_request" },
                "submission_mode": "autonomous", "saved_via": way.name(), "created_at": asked.data["created_at"],
                "url": asked.data["url"],
            });
            assert_eq!(at(&three, thread.data), at(&one, expected));
            let listed = all_replies(&three, reading, &id).await;
            let expected = json!({
                "id": replied.id(), "type": "reply", "parent_id": id, "body": posted["body"], "actor": posted["actor"],
                "submission_mode": posted["submission_mode"], "saved_via": way.name(),
                "created_at": replied.data["created_at"], "url": replied.data["url"],
                "bookmark_url": replied.data["bookmark_url"],
            });
            assert_eq!(at(&three, json!(listed)), at(&two, json!([expected])));
            let single = json!({ "thread_id": id, "reply_id": replied.id() });
            let single = call(&one, reading, "get_reply", single).await.read();
            assert_eq!(at(&one, single.data), at(&three, listed[0].clone()));
        }
        // The addresses are absolute, and lead there.
        assert_eq!(
            replied.data["url"],
            json!(asked.text("url").replace(&one.address, &two.address))
        );
        assert_eq!(follow(asked.text("url")).await.read().data["id"], json!(id));
        let followed = follow(replied.text("bookmark_url")).await.read();
        assert_eq!(followed.id(), replied.id());
    }
}

#[tokio::test]
async fn addresses_begin_with_public_url() {
    let scene = Scene::new().await;
    let replica = start(&scene).with("PUBLIC_URL", "https://Example.org/").ready().await;
    let asked = call(&replica, Way::Mcp, "post_entry", question("q")).await.fresh();
    let id = asked.id();
    assert_eq!(asked.text("url"), format!("https://example.org/api/v1/threads/{id}"));
    let replied = call(&replica, Way::Mcp, "post_entry", reply("r", id)).await.fresh();
    assert_eq!(replied.text("url"), asked.text("url"));
    let bookmark = format!("{}/replies/{}", asked.text("url"), replied.id());
    assert_eq!(replied.text("bookmark_url"), bookmark);
}

#[tokio::test]
async fn what_does_not_fit_a_question_or_a_reply_is_refused_and_frees_the_request_id() {
    let scene = Scene::new().await;
    let replica = start(&scene).ready().await;
    let asked = call(&replica, Way::Http, "post_entry", question("q")).await.fresh();
    let long = |characters: usize| "語".repeat(characters);
    let wrong: Vec<(&str, Value)> = vec![
        ("type", json!("comment")),
        ("title", Value::Null),
        ("title", json!("")),
        ("title", json!(long(201))),
        ("title", json!("two\nlines")),
        ("parent_id", json!(asked.id())),
        ("body", Value::Null),
        ("body", json!(" \n")),
        ("body", json!("x".repeat(65_537))),
        ("actor", Value::Null),
        ("actor", json!("Anna")),
        ("actor", json!({ "name": "Anna", "model": "m" })),
        ("actor", json!({ "name": "", "model": "m", "trigger": "t" })),
        ("actor", json!({ "name": "Anna", "model": long(65), "trigger": "t" })),
        ("actor", json!({ "name": "Anna", "model": "m", "trigger": "a\nb" })),
        (
            "actor",
            json!({ "name": "Anna", "model": "m", "trigger": "t", "mood": "good" }),
        ),
        ("submission_mode", Value::Null),
        ("submission_mode", json!("  ")),
        ("submission_mode", json!(long(65))),
    ];
    for way in WAYS {
        for (name, value) in &wrong {
            let mut arguments = question("wrong");
            arguments[name] = value.clone();
            let told = call(&replica, way, "post_entry", arguments).await;
            told.refused(400, "invalid_argument");
        }
        let mut titled = reply("wrong", asked.id());
        titled["title"] = json!("A title");
        call(&replica, way, "post_entry", titled)
            .await
            .refused(400, "invalid_argument");
        let mut orphan = reply("wrong", asked.id());
        orphan["parent_id"] = Value::Null;
        call(&replica, way, "post_entry", orphan)
            .await
            .refused(400, "invalid_argument");
    }
    let mut longest = question("wrong");
    longest["title"] = json!(long(200));
    longest["actor"] = json!({ "name": long(64), "model": long(64), "trigger": long(64) });
    longest["submission_mode"] = json!(long(64));
    call(&replica, Way::Mcp, "post_entry", longest).await.fresh();
    assert_eq!(scene.count("select count(*) from entries").await, 2);
}
