//! `ticket-ledger load`: an operator at work during a run, and limits.

use std::process::Stdio;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::support::eventually;
use crate::support::load::{Folder, command, run, turn};
use crate::support::scene::Scene;

const PROGRAM: &str = env!("CARGO_BIN_EXE_ticket-ledger");

/// The last act of the operator that a history shows, as `stop-writes end`.
fn last_act(folder: &Folder) -> String {
    let history = std::fs::read_to_string(folder.history()).unwrap_or_default();
    let mut records = history
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let acted = records.rfind(|record| record["kind"] == "acted");
    acted.map_or_else(String::new, |acted| {
        let word = |name: &str| acted[name].as_str().unwrap_or_default().to_owned();
        format!("{} {}", word("act"), word("phase"))
    })
}

async fn are_stopped(scene: &Scene) -> bool {
    scene.count("select count(*) from write_stop where stopped").await == 1
}

#[tokio::test]
async fn writes_that_a_load_test_stopped_are_allowed_again_when_it_is_killed() {
    let _turn = turn().await;
    let scene = Scene::new().await;
    // A stop lasts some tenths of a second: one of these kills falls into one.
    for _ in 0..20 {
        let folder = Folder::new();
        let mut endless = command(
            PROGRAM,
            &["--calls", "1000000", "--replicas", "1", "--balancer", "none"],
        );
        endless
            .args(["--faults", "stop-writes", "--fault-every-ms", "10", "--callers", "2"])
            .args(["--database-url", &scene.url])
            .arg("--out")
            .arg(&folder.0)
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let mut child = endless.spawn().expect("it starts");
        eventually("writes are stopped", || async {
            (last_act(&folder) == "stop-writes end").then_some(())
        })
        .await;
        kill(Pid::from_raw(child.id().expect("a pid").cast_signed()), Signal::SIGKILL).expect("it can be killed");
        child.wait().await.expect("it ends");
        let fell_into_one = last_act(&folder) == "stop-writes end";
        eventually("writes are allowed", || async {
            (!are_stopped(&scene).await).then_some(())
        })
        .await;
        eventually("the replica is gone", || async {
            folder.processes().is_empty().then_some(())
        })
        .await;
        if fell_into_one {
            return;
        }
    }
    panic!("no kill fell into a stop");
}

#[tokio::test]
async fn a_run_on_a_database_whose_writes_are_stopped_says_so_and_leaves_them_stopped() {
    let _turn = turn().await;
    let scene = Scene::new().await;
    let stopped = "update write_stop set stopped = true";
    let started = || {
        let folder = Folder::new();
        let mut calm = command(PROGRAM, &["--calls", "10", "--replicas", "1", "--balancer", "none"]);
        calm.args(["--faults", "none", "--database-url", &scene.url])
            .arg("--out")
            .arg(&folder.0);
        (folder, calm)
    };
    // The first run brings the schema.
    let (_folder, calm) = started();
    let ended = run(calm).await;
    assert!(ended.output.status.success(), "{}", ended.said());
    sqlx::query(stopped)
        .execute(&scene.sql)
        .await
        .expect("they are stopped");
    let (_folder, calm) = started();
    let ended = run(calm).await;
    assert_eq!(ended.output.status.code(), Some(3), "{}", ended.said());
    assert!(
        ended.said().contains("ticket-ledger admin allow-writes"),
        "{}",
        ended.said()
    );
    assert!(are_stopped(&scene).await);
}

#[tokio::test]
async fn no_more_is_saved_than_a_global_limit_allows_and_callers_end_refused() {
    let _turn = turn().await;
    let folder = Folder::new();
    let limited = [
        "--calls",
        "800",
        "--faults",
        "none",
        "--replicas",
        "2",
        "--limit-global",
        "60",
    ];
    let mut limited = command(PROGRAM, &limited);
    limited.arg("--out").arg(&folder.0);
    let ended = run(limited).await;
    assert!(ended.output.status.success(), "{}", ended.said());
    assert_eq!(ended.rules(), [0; 0], "{}", ended.said());
    let answers = &ended.summary["answers"];
    assert!(answers["rate_limited"].as_u64() > Some(0), "{}", ended.said());
    // A run that goes on into the next hour has its writes too.
    assert!(
        ended.summary["verdict"]["effects"].as_u64() <= Some(120),
        "{}",
        ended.said()
    );
    assert!(ended.summary["refused"].as_u64() > Some(0), "{}", ended.said());
    assert_eq!(ended.summary["given_up"], 0, "{}", ended.said());
}

#[tokio::test]
async fn a_target_without_entries_is_driven_without_them_and_its_writes_are_not_stopped_unasked() {
    let _turn = turn().await;
    let scene = Scene::new().await;
    let replica = scene.replica().ready().await;
    let target = format!("http://{}", replica.address);
    let folder = Folder::new();
    let driven = |faults: &[&str]| {
        let mut command = command(PROGRAM, &["--replicas", "0", &target, "--database-url", &scene.url]);
        command
            .args(["--calls", "60", "--callers", "4", "--fault-every-ms", "20"])
            .args(faults)
            .arg("--out")
            .arg(&folder.0);
        command
    };
    let ended = run(driven(&[])).await;
    assert!(ended.output.status.success(), "{}", ended.said());
    assert_eq!(last_act(&folder), "", "{}", ended.said());
    let ended = run(driven(&["--faults", "hide,stop-writes"])).await;
    assert!(ended.output.status.success(), "{}", ended.said());
    assert!(
        ended.said().contains("the target offers no entries (TOOLSETS): hide"),
        "{}",
        ended.said()
    );
    assert!(
        ended.summary["faults"]["stop-writes"].as_u64() > Some(0),
        "{}",
        ended.said()
    );
    assert!(!are_stopped(&scene).await);
}
