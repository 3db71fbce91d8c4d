//! `ticket-ledger load`: on a deployment that runs already, and on what is none; and what the checker sees beside the run.

use std::process::Stdio;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use sqlx::{Connection, PgConnection};
use ticket_ledger::cluster::{Options, PrivateCluster, StopMode};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::support::DEADLINE;
use crate::support::eventually;
use crate::support::load::{Ended, Folder, command, run, turn};
use crate::support::scene::Scene;

const PROGRAM: &str = env!("CARGO_BIN_EXE_ticket-ledger");

/// A web server that answers everything with this status.
async fn somebody_else(status: u16) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut bytes = [0; 65_536];
                let _ = stream.read(&mut bytes).await;
                let answer = format!("HTTP/1.1 {status} Whatever\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno");
                let _ = stream.write_all(answer.as_bytes()).await;
            });
        }
    });
    url
}

/// `load` with a target.
fn at(target: &str, database: &str, folder: &Folder) -> tokio::process::Command {
    let mut command = command(PROGRAM, &["--replicas", "0", target, "--database-url", database]);
    command
        .args(["--faults", "none", "--calls", "60", "--out"])
        .arg(&folder.0);
    command
}

#[track_caller]
fn says(ended: &Ended, status: i32, words: &str) {
    assert_eq!(ended.output.status.code(), Some(status), "{}", ended.said());
    assert!(ended.said().contains(words), "{}", ended.said());
}

#[tokio::test]
async fn ctrl_c_is_heard_while_a_run_still_prepares() {
    let folder = Folder::new();
    let database = Scene::new().await;
    // As a balancer whose replicas are away: it is tried again and again.
    let target = somebody_else(503).await;
    let mut waiting = at(&target, &database.url, &folder);
    let child = waiting
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    eventually("it tries to make a ticket", || async {
        let history = std::fs::read_to_string(folder.history()).unwrap_or_default();
        history.contains("\"kind\":\"answered\"").then_some(())
    })
    .await;
    kill(Pid::from_raw(child.id().expect("a pid").cast_signed()), Signal::SIGINT).expect("it can be signalled");
    let ended = tokio::time::timeout(DEADLINE, child.wait_with_output()).await;
    let output = ended.expect("it ends in time").expect("it ends");
    assert_eq!(output.status.code(), Some(3));
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(printed.contains("The history does not come to its end"), "{printed}");
}

#[tokio::test]
async fn a_target_that_is_another_web_server_is_said_at_once() {
    let folder = Folder::new();
    let database = Scene::new().await;
    let ended = run(at(&somebody_else(404).await, &database.url, &folder)).await;
    says(&ended, 3, "is it the one that was meant?");
    assert!(ended.took < DEADLINE, "{:?}", ended.took);
}

#[tokio::test]
async fn a_database_that_is_not_the_targets_is_said_after_one_ticket_at_the_most() {
    let (scene, other) = (Scene::new().await, Scene::new().await);
    let replica = scene.replica().ready().await;
    // Another deployment's: it has the same tables.
    let _other = other.replica().ready().await;
    let folder = Folder::new();
    let target = format!("http://{}", replica.address);
    let ended = run(at(&target, &other.url, &folder)).await;
    says(&ended, 3, "holds nothing of this run");
    assert_eq!(scene.tickets().await, 1);
    // One without a schema.
    let (server, of) = scene.url.split_once('?').expect("where the socket is");
    let (server, _) = server.rsplit_once('/').expect("a database");
    let empty = format!("{server}/postgres?{of}");
    let folder = Folder::new();
    let ended = run(at(&target, &empty, &folder)).await;
    says(&ended, 3, "so nothing was written");
    assert_eq!(scene.tickets().await, 1);
}

#[tokio::test]
async fn arguments_that_make_no_sense_with_a_target_are_refused_and_none_is_too_large_to_be_said_so() {
    let folder = Folder::new();
    for flag in ["--lease-ms", "--wait-ms", "--work-ms"] {
        let mut endless = at("http://127.0.0.1:9", "postgres://localhost/x", &folder);
        endless.args([flag, "18446744073709551615"]);
        says(&run(endless).await, 2, "18446744073709551615 is not in");
    }
    says(
        &run(at("blah", "postgres://localhost/x", &folder)).await,
        2,
        "there is no command blah",
    );
    let unusable = at("http://127.0.0.1:9", "mysql://localhost/x", &folder);
    says(
        &run(unusable).await,
        2,
        "--database-url (or LOAD_DATABASE_URL) cannot be used",
    );
    let mut help = command(PROGRAM, &["--help"]);
    help.env("DATABASE_URL", "postgres://localhost/x");
    let said = run(help).await.said();
    for words in [
        "pg-immediate",
        "SIGSTOP of a replica past the lease",
        "DATABASE_URL is not looked at",
    ] {
        // However it is wrapped.
        let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(said.contains(words), "{said}");
    }
    assert!(!folder.0.exists());
}

#[tokio::test]
async fn a_ticket_that_nobody_asked_for_is_found_on_a_postgres_of_the_runs_own() {
    const TWIN: &str = "
        create function twin() returns trigger language plpgsql as $$
        begin
            if pg_trigger_depth() = 1 and new.title like '%-3' then
                new.ticket_id := 'T-twin';
                new.request_id := 'nobody-asked-for-this';
                insert into tickets select new.*;
            end if;
            return null;
        end
        $$;
        create trigger twin after insert on tickets for each row execute function twin()";
    let _turn = turn().await;
    let folder = Folder::new();
    let calm = || {
        let mut calm = command(PROGRAM, &["--calls", "60", "--faults", "none", "--replicas", "1"]);
        calm.arg("--out").arg(&folder.0);
        calm
    };
    let sound = run(calm()).await;
    says(&sound, 0, "held");
    let cluster = PrivateCluster::start(&folder.0.join("postgres"), &Options::default())
        .await
        .expect("it starts");
    let mut sql = PgConnection::connect(&cluster.database_url("ticket_ledger"))
        .await
        .expect("connects");
    sqlx::raw_sql(TWIN).execute(&mut sql).await.expect("a trigger");
    sql.close().await.expect("it closes");
    cluster.stop(StopMode::Fast).await.expect("it stops");

    let ended = run(calm()).await;
    assert_eq!(ended.rules(), [4], "{}", ended.said());
    says(&ended, 1, "T-twin came to be during the run");
    // The earlier run's history is judged with the same database, and is as sound as before; both at the same time.
    let check = |name: &str| command(PROGRAM, &["check", folder.0.join(name).to_str().expect("a path")]);
    let (first, second) = tokio::join!(run(check("history.jsonl")), run(check("history-2.jsonl")));
    says(&first, 0, "held");
    assert_eq!(second.rules(), [4], "{}", second.said());
}
