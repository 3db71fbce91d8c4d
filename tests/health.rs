//! /livez and /readyz, and the command that asks for them.

use serde_json::json;
use tokio::net::TcpStream;
use tokio::process::Command;

use crate::support::cluster::TestCluster;
use crate::support::eventually;
use crate::support::proxy::Proxy;
use crate::support::replica::Start;
use crate::support::scene::Scene;

#[tokio::test]
async fn a_replica_that_takes_calls_is_live_and_ready_and_says_how_it_joins() {
    let scene = Scene::new().await;
    let replica = scene.replica().with("REPLICA_NAME", "one").ready().await;
    let live = replica.admin("/livez").await;
    assert_eq!((live.status, live.body), (200, json!({ "live": true })));
    eventually("it listens", || async {
        (replica.admin("/readyz").await.body["listener"] == "listening").then_some(())
    })
    .await;
    let ready = replica.admin("/readyz").await;
    assert_eq!(ready.status, 200);
    assert_eq!(
        ready.body,
        json!({ "ready": true, "replica": "one", "stage": "ready", "database": "reachable", "listener": "listening" })
    );
    assert_eq!(replica.admin("/elsewhere").await.status, 404);
}

#[tokio::test]
async fn a_replica_is_live_but_not_ready_while_postgres_is_out_of_reach_and_recovers_by_itself() {
    let scene = Scene::new().await;
    let proxy = Proxy::before(TestCluster::shared()).await;
    let replica = Start::on(&proxy.url(&scene.url)).ready().await;
    // Nobody calls: it notices by itself, both ways.
    for down in [true, false, true, false] {
        if down {
            proxy.down()
        } else {
            proxy.up()
        }
        let status = if down { 503 } else { 200 };
        let ready = eventually("readiness changes", || async {
            let ready = replica.admin("/readyz").await;
            (ready.status == status).then_some(ready)
        })
        .await;
        assert_eq!(ready.body["ready"], !down);
        assert_eq!(ready.body["database"], if down { "unreachable" } else { "reachable" });
        assert_eq!(ready.body["stage"], "ready");
        assert_eq!(replica.admin("/livez").await.status, 200);
    }
}

#[tokio::test]
async fn a_replica_without_a_database_is_live_not_ready_and_refuses_connections() {
    let scene = Scene::new().await;
    let proxy = Proxy::before(TestCluster::shared()).await;
    proxy.down();
    let replica = Start::on(&proxy.url(&scene.url)).bound().await;
    let ready = replica.admin("/readyz").await;
    assert_eq!((ready.status, &ready.body["stage"]), (503, &json!("starting")));
    assert_eq!(replica.admin("/livez").await.status, 200);
    let early = TcpStream::connect(&replica.address).await;
    let refused = early.map_err(|error| error.kind()).expect_err("refused");
    assert_eq!(refused, std::io::ErrorKind::ConnectionRefused);
    proxy.up();
    eventually("it is ready", || async {
        (replica.admin("/readyz").await.status == 200).then_some(())
    })
    .await;
    assert_eq!(replica.create("early", "Early").await.status, 201);
}

#[tokio::test]
async fn of_two_replicas_that_wait_with_one_address_the_second_is_told_that_it_is_taken() {
    let scene = Scene::new().await;
    let proxy = Proxy::before(TestCluster::shared()).await;
    proxy.down();
    let mut one = Start::on(&proxy.url(&scene.url)).bound().await;
    let other = Start::on(&proxy.url(&scene.url)).with("LISTEN_ADDR", &one.address);
    // Neither listens yet, so the kernel gives the address to both.
    let mut other = other.bound().await;
    proxy.up();
    let ended = tokio::select! {
        status = one.ended() => status,
        status = other.ended() => status,
    };
    assert_eq!(ended.code(), Some(1));
    let sentence = format!(
        "cannot listen on {}: another program listens there already",
        one.address
    );
    eventually("it says why", || async {
        let mut said = one.log().into_iter().chain(other.log());
        let is_sentence = |line: serde_json::Value| line.as_str().is_some_and(|line| line.contains(&sentence));
        said.any(is_sentence).then_some(())
    })
    .await;
    assert_eq!(one.create("once", "Once").await.status, 201);
}

/// `ticket-ledger healthcheck`: its exit status and what it says.
async fn healthcheck(admin_addr: &str, arguments: &[&str]) -> (i32, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_ticket-ledger"))
        .arg("healthcheck")
        .args(arguments)
        .env("ADMIN_ADDR", admin_addr)
        // A proxy that leads nowhere: this machine is asked without one.
        .env("HTTP_PROXY", "http://127.0.0.1:1")
        .output()
        .await
        .expect("it runs");
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8(said).expect("text");
    (output.status.code().expect("a status"), said)
}

#[tokio::test]
async fn the_healthcheck_tells_by_its_exit_status_whether_the_replica_takes_calls() {
    let scene = Scene::new().await;
    let proxy = Proxy::before(TestCluster::shared()).await;
    let replica = Start::on(&proxy.url(&scene.url))
        .with("ADMIN_ADDR", "0.0.0.0:0")
        .ready()
        .await;
    // As it stands in the environment of a container: an address that only a server can use.
    let address = replica.admin_address.clone();
    assert!(address.starts_with("0.0.0.0:"), "{address}");
    let ready = (0, "The replica takes calls.\n".to_owned());
    assert_eq!(healthcheck(&address, &[]).await, ready);
    proxy.down();
    let (status, said) = eventually("it is not ready", || async {
        let asked = healthcheck(&address, &[]).await;
        (asked.0 != 0).then_some(asked)
    })
    .await;
    let sentence = "ticket-ledger: the replica does not take calls (stage: ready, database: unreachable).\n";
    assert_eq!((status, said.as_str()), (1, sentence));
    let lives = (0, "The replica runs.\n".to_owned());
    assert_eq!(healthcheck(&address, &["--live"]).await, lives);
    replica.kill().await;
    for arguments in [&[][..], &["--live"]] {
        let (status, said) = healthcheck(&address, arguments).await;
        assert!(
            status == 1 && said.contains("nothing answers at http://127.0.0.1:"),
            "{said}"
        );
    }
    let stranger = Start::on(&scene.url).ready().await;
    let (status, said) = healthcheck(&stranger.address, &[]).await;
    assert!(status == 1 && said.contains("something else listens there"), "{said}");
}
