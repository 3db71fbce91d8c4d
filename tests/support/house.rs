//! A replica that offers everything, something of every kind in it, and good arguments of every operation.

use std::time::Duration;

use serde_json::{Value, json};
use ticket_ledger::operation::entries::Board;
use ticket_ledger::operation::registry::Registry;
use ticket_ledger::operation::{Tool, Toolset};

use super::calls::{Answer, client};
use super::replica::Replica;
use super::scene::Scene;

/// Every operation.
pub fn registry() -> Registry {
    let board = Board {
        public_url: "http://127.0.0.1:8000".into(),
        keep_entries: Duration::from_secs(3_600),
        keep_deletions: Duration::from_secs(3_600),
    };
    Registry::new(&[Toolset::Tickets, Toolset::Entries], Duration::ZERO, &board)
}

/// What there is to be read and added to: the ids of a ticket, a question and a reply.
pub struct Made {
    pub ticket: Value,
    pub question: Value,
    pub reply: Value,
}

/// A replica that offers all families. The request of its ticket is `made`.
pub async fn house() -> (Scene, Replica, Made) {
    let scene = Scene::new().await;
    let replica = scene.replica().with("TOOLSETS", "tickets,entries").ready().await;
    let ticket = replica.create("made", "A title").await.body["ticket_id"].clone();
    let question = replica
        .post("/entries", &entry("made-question", "title", &json!("A question")))
        .await;
    let question = question.body["id"].clone();
    let reply = replica
        .post("/entries", &entry("made-reply", "parent_id", &question))
        .await;
    let reply = reply.body["id"].clone();
    let made = Made {
        ticket,
        question,
        reply,
    };
    (scene, replica, made)
}

/// A question with a title, or a reply with a parent_id.
fn entry(request_id: &str, name: &str, value: &Value) -> Value {
    json!({
        "request_id": request_id, "type": if name == "title" { "question" } else { "reply" }, name: value, "body": "A text.",
        "actor": { "name": "Anna", "model": "model-1", "trigger": "user_request" }, "submission_mode": "autonomous",
    })
}

impl Made {
    /// Good arguments of an operation, without request_id. A new operation is added here.
    pub fn arguments(&self, tool: &str) -> Value {
        let (ticket, question, reply) = (&self.ticket, &self.question, &self.reply);
        match tool {
            "find_request" => json!({ "request_id": "made" }),
            "new_request_id" | "list_tickets" => json!({}),
            "create_ticket" => json!({ "title": "A title", "body": "A body." }),
            "set_ticket_status" => json!({ "ticket_id": ticket, "ticket_status": "done" }),
            "add_comment" => json!({ "ticket_id": ticket, "body": "A comment." }),
            "get_ticket" => json!({ "ticket_id": ticket }),
            "post_entry" => {
                let mut arguments = entry("", "parent_id", question);
                arguments.as_object_mut().expect("an object").remove("request_id");
                arguments
            }
            "get_thread" | "read_thread" => json!({ "id": question }),
            "list_replies" => json!({ "thread_id": question }),
            "get_reply" => json!({ "thread_id": question, "reply_id": reply }),
            other => panic!("{other} has no good arguments here yet: add some"),
        }
    }
}

/// Calls an operation at the route on its card.
pub async fn by_route(replica: &Replica, tool: &dyn Tool, mut arguments: Value) -> Answer {
    let route = tool.card().route;
    let members = arguments.as_object_mut().expect("an object");
    let mut path = route.path.to_owned();
    for name in members.keys().cloned().collect::<Vec<_>>() {
        let place = format!("{{{name}}}");
        if path.contains(&place) {
            let value = members.remove(&name).expect("a value");
            path = path.replace(&place, value.as_str().expect("a text"));
        }
    }
    if route.method != "GET" {
        return replica
            .http(route.method, &path, Some(&arguments))
            .await
            .expect("an answer");
    }
    let url = format!("http://{}/api/v1{path}", replica.address);
    let answer = client().get(url).query(&arguments).send().await;
    Answer::read(answer.expect("an answer")).await
}
