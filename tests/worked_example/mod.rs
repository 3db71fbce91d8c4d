//! The README's worked example of a new operation, compiled and run: what it claims to get without a line of its own.

mod add_reaction;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use futures_util::future::join_all;
use serde_json::{Value, json};
use ticket_ledger::config::Config;
use ticket_ledger::ledger::{Ledger, Setup};
use ticket_ledger::lifecycle::{Lifecycle, Stage};
use ticket_ledger::operation::registry::Registry;
use ticket_ledger::operation::run::Service;
use ticket_ledger::operation::tickets::CreateTicket;
use ticket_ledger::operation::{Erased, Tool};
use ticket_ledger::postgres::{Database, Reach};
use ticket_ledger::transport::{Door, Server, Transports};
use tokio::net::TcpListener;

use self::add_reaction::AddReaction;
use crate::support::calls::{Answer, client};
use crate::support::scene::Scene;

#[derive(Parser)]
struct Knobs {
    #[command(flatten)]
    config: Config,
}

/// A replica in this process that offers the new operation beside create_ticket.
struct Replica {
    server: Server,
    _ledger: Arc<Ledger>,
}

impl Replica {
    async fn on(url: &str) -> Self {
        let knobs = ["", "--pool-size", "3", "--lease-ms", "1500", "--wait-ms", "20000"];
        let config = Knobs::parse_from(knobs).config;
        let tools: [Arc<dyn Tool>; 2] = [
            Arc::new(Erased(CreateTicket { work: Duration::ZERO })),
            Arc::new(Erased(AddReaction)),
        ];
        let registry = Registry::of(tools);
        let ledger = Ledger::start(Setup {
            database: Database::new(&config.pool(url), Arc::new(Reach::default())).expect("a pool"),
            url: url.to_owned(),
            listen_url: url.to_owned(),
            replica: "worked-example".to_owned(),
            limits: config.limits(),
            acts: registry.acts(),
            upkeep: registry.upkeep(),
        });
        let lifecycle = Lifecycle::default();
        let service = Arc::new(Service {
            ledger: Arc::clone(&ledger),
            registry,
            wait: config.wait(),
            units_per_hour: 0,
        });
        let transports = Transports {
            config: &config,
            door: Arc::new(Door::new(&config, &service).expect("a door")),
            service,
            lifecycle: lifecycle.clone(),
            replica: "worked-example".into(),
        };
        lifecycle.advance(Stage::Ready);
        let server = Server::start(&transports, bind().await).expect("it serves");
        Self {
            server,
            _ledger: ledger,
        }
    }

    async fn post(&self, path: &str, body: &Value) -> Answer {
        let request = client().post(format!("http://{}/api/v1{path}", self.server.address));
        Answer::read(request.json(body).send().await.expect("an answer")).await
    }

    /// A method of MCP 2025-11-25, without a session.
    async fn mcp(&self, method: &str, params: Value) -> Value {
        let request = client()
            .post(format!("http://{}/mcp", self.server.address))
            .header("accept", "application/json, text/event-stream")
            .header("mcp-protocol-version", "2025-11-25")
            .json(&json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }));
        let answer = Answer::read(request.send().await.expect("an answer")).await;
        answer.body["result"].clone()
    }

    async fn ticket(&self) -> String {
        let arguments = json!({ "request_id": "the-ticket", "title": "A ticket", "body": "" });
        self.post("/tickets", &arguments).await.text("ticket_id").to_owned()
    }
}

async fn bind() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").await.expect("a port")
}

async fn scene() -> (Scene, [Replica; 2]) {
    let scene = Scene::new().await;
    sqlx::raw_sql(include_str!("reactions.sql"))
        .execute(&scene.sql)
        .await
        .expect("a table");
    let replicas = [Replica::on(&scene.url).await, Replica::on(&scene.url).await];
    (scene, replicas)
}

#[tokio::test]
async fn the_worked_example_happens_once_whichever_replica_and_transport_carry_its_repeats() {
    let (scene, replicas) = scene().await;
    let ticket_id = replicas[0].ticket().await;
    let calls = (0..8).map(|call| {
        let (replica, ticket_id) = (&replicas[call % 2], &ticket_id);
        async move {
            if call % 4 < 2 {
                let arguments = json!({ "request_id": "thumbs", "emoji": "👍" });
                let path = format!("/tickets/{ticket_id}/reactions");
                replica.post(&path, &arguments).await.body
            } else {
                let arguments = json!({ "request_id": "thumbs", "ticket_id": ticket_id, "emoji": "👍" });
                let params = json!({ "name": "add_reaction", "arguments": arguments });
                replica.mcp("tools/call", params).await["structuredContent"].clone()
            }
        }
    });
    let answers = join_all(calls).await;
    let fresh = answers.iter().filter(|answer| answer["replayed"] == false).count();
    let told: HashSet<_> = answers.iter().map(|answer| answer["created_at"].to_string()).collect();
    assert_eq!((fresh, told.len()), (1, 1), "{answers:#?}");
    assert!(answers.iter().all(|answer| answer["status"] == "done"), "{answers:#?}");
    assert_eq!(scene.count("select count(*) from reactions").await, 1);
    let another = json!({ "request_id": "thumbs", "emoji": "👎" });
    let path = format!("/tickets/{ticket_id}/reactions");
    assert_eq!(replicas[1].post(&path, &another).await.code(), "conflict");
}

#[tokio::test]
async fn the_worked_example_refuses_without_using_its_request_id_up() {
    let (scene, [replica, _]) = scene().await;
    let ticket_id = replica.ticket().await;
    let arguments = json!({ "request_id": "thumbs", "emoji": "👍" });
    let refused = replica.post("/tickets/T-0/reactions", &arguments).await;
    assert_eq!((refused.status, refused.code()), (404, "not_found"), "{refused:?}");
    let unknown = json!({ "request_id": "thumbs", "emoji": "👍", "colour": "red" });
    let refused = replica.post(&format!("/tickets/{ticket_id}/reactions"), &unknown).await;
    assert_eq!(
        (refused.status, refused.code()),
        (400, "invalid_argument"),
        "{refused:?}"
    );
    let done = replica
        .post(&format!("/tickets/{ticket_id}/reactions"), &arguments)
        .await;
    assert_eq!((done.status, &done.body["replayed"]), (201, &json!(false)), "{done:?}");
    assert_eq!(scene.count("select count(*) from reactions").await, 1);
}

#[tokio::test]
async fn the_worked_example_is_listed_with_hints_and_schemas_it_did_not_write() {
    let (_scene, [replica, _]) = scene().await;
    let listed = replica.mcp("tools/list", json!({})).await;
    let tools = listed["tools"].as_array().expect("tools");
    let tool = tools
        .iter()
        .find(|tool| tool["name"] == "add_reaction")
        .expect("it is listed");
    let hints = json!({
        "title": "Add a reaction", "readOnlyHint": false, "destructiveHint": false, "idempotentHint": true,
        "openWorldHint": false,
    });
    assert_eq!(tool["annotations"], hints);
    assert_eq!(
        tool["inputSchema"]["required"],
        json!(["request_id", "ticket_id", "emoji"])
    );
    assert_eq!(tool["inputSchema"]["properties"]["request_id"]["maxLength"], 64);
    let description = tool["description"].as_str().expect("a description");
    assert!(description.contains("find_request"), "{description}");
}
