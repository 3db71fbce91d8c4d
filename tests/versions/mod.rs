//! Old and new releases side by side on one schema, as during a rolling update.

mod expanding;
mod newer;
mod older;
mod rows;

use serde_json::{Value, json};

use crate::entries::{question, reply};
use crate::support::replica::{Replica, Start};
use crate::support::scene::Scene;

/// A write, as it was called and answered first.
pub struct Write {
    method: &'static str,
    path: String,
    body: Value,
    answer: Value,
}

/// How a replica is started that offers everything, under an address that all replicas share.
pub fn start(scene: &Scene) -> Start {
    scene
        .replica()
        .with("TOOLSETS", "tickets,entries")
        .with("PUBLIC_URL", "https://tickets.example.org")
        .with("ALLOWED_HOSTS", "127.0.0.1")
}

async fn write(replica: &Replica, method: &'static str, path: String, body: Value) -> Write {
    let answer = replica.http(method, &path, Some(&body)).await.expect("an answer");
    let told = (&answer.body["status"], &answer.body["replayed"]);
    assert_eq!(told, (&json!("done"), &json!(false)), "{method} {path}: {answer:?}");
    Write {
        method,
        path,
        body,
        answer: answer.body,
    }
}

/// Calls every tool that writes, each once, under request_ids that begin with `name`; and every tool that reads what was written.
pub async fn use_everything(replica: &Replica, name: &str) -> Vec<Write> {
    let id = |what: &str| format!("{name}-{what}");
    let body = json!({ "request_id": id("create"), "title": name, "body": "A body." });
    let created = write(replica, "POST", "/tickets".to_owned(), body).await;
    let ticket = format!("/tickets/{}", created.answer["ticket_id"].as_str().expect("an id"));
    let body = json!({ "request_id": id("set"), "ticket_status": "done", "expected_status": "open" });
    let set = write(replica, "PUT", format!("{ticket}/status"), body).await;
    let body = json!({ "request_id": id("comment"), "body": "A comment." });
    let commented = write(replica, "POST", format!("{ticket}/comments"), body).await;
    let asked = write(replica, "POST", "/entries".to_owned(), question(&id("question"))).await;
    let thread = asked.answer["id"].as_str().expect("an id").to_owned();
    let replied = write(replica, "POST", "/entries".to_owned(), reply(&id("reply"), &thread)).await;
    let reply = replied.answer["id"].as_str().expect("an id").to_owned();
    for (path, expected) in [
        (ticket, "A comment."),
        (format!("/tickets?query={name}"), name),
        (format!("/threads/{thread}"), "Who knows?"),
        (format!("/threads/{thread}.md"), "Who knows?"),
        (format!("/threads/{thread}/replies"), &*reply),
        (format!("/threads/{thread}/replies/{reply}"), &*reply),
    ] {
        let read = replica.get(&path).await;
        assert!(
            read.status == 200 && read.body.to_string().contains(expected),
            "{path}: {read:?}"
        );
    }
    let fresh = replica.post("/request-ids", &json!({})).await;
    assert!(matches!(fresh.status, 200 | 201), "{fresh:?}");
    vec![created, set, commented, asked, replied]
}

/// Repeats every write: each is told its first answer, and for other arguments that there is a conflict.
pub async fn is_replayed(replica: &Replica, writes: &[Write]) {
    for write in writes {
        let (method, path) = (write.method, &write.path);
        let again = replica.http(method, path, Some(&write.body)).await.expect("an answer");
        let mut first = write.answer.clone();
        first["replayed"] = json!(true);
        assert_eq!((again.status, &again.body), (200, &first), "{method} {path}");
        let request_id = write.body["request_id"].as_str().expect("a request_id");
        assert_eq!(replica.find(request_id).await["status"], "done", "{path}");
        let mut other = write.body.clone();
        match other.get_mut("ticket_status") {
            Some(status) => *status = json!("closed"),
            None => other["body"] = json!("Something else."),
        }
        let conflict = replica.http(method, path, Some(&other)).await.expect("an answer");
        assert_eq!((conflict.status, conflict.code()), (409, "conflict"), "{method} {path}");
    }
}
