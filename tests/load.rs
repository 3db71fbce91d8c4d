//! `ticket-ledger load`: all faults break no rule, and what goes wrong with the load test itself is said and cleared away.

use std::collections::BTreeMap;
use std::path::Path;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use crate::support::eventually;
use crate::support::load::{Ended, Folder, command, run, turn};

const PROGRAM: &str = env!("CARGO_BIN_EXE_ticket-ledger");

/// What `load` with these arguments says and comes to; it needs no turn, because it is refused.
async fn refused(arguments: &[&str]) -> Ended {
    let folder = Folder::new();
    let mut command = command(PROGRAM, arguments);
    command.arg("--out").arg(&folder.0);
    let ended = run(command).await;
    assert!(folder.processes().is_empty(), "{}", ended.said());
    ended
}

/// Copies the history of a run, up to `bytes`.
fn cut_short(history: &Path, bytes: usize) {
    let whole = std::fs::read(history).expect("a history");
    std::fs::write(history, &whole[..bytes]).expect("writes");
}

#[tokio::test]
async fn a_minute_of_all_faults_breaks_no_rule() {
    let _turn = turn().await;
    let folder = Folder::new();
    let mut command = command(PROGRAM, &["--calls", "2000", "--at-least", "55"]);
    command.arg("--out").arg(&folder.0);
    let ended = run(command).await;
    // The seed and the command that repeats it stand in what it said.
    assert!(ended.output.status.success(), "{}", ended.said());
    assert_eq!(ended.rules(), [0; 0], "{}", ended.said());
    assert_eq!(ended.summary["verdict"]["complete"], true, "{}", ended.said());
    assert!(ended.summary["calls"].as_u64() >= Some(2_000), "{}", ended.said());
    let faults: BTreeMap<String, u64> = serde_json::from_value(ended.summary["faults"].clone()).expect("counts");
    assert_eq!(faults.len(), 10, "{}", ended.said());
    assert!(faults["kill"] >= 10, "{}", ended.said());
    assert!(folder.processes().is_empty(), "{:?}", folder.processes());
}

#[tokio::test]
async fn a_history_that_was_cut_short_by_a_crash_is_checked_as_far_as_it_goes() {
    let _turn = turn().await;
    let folder = Folder::new();
    let mut calm = command(PROGRAM, &["--calls", "150", "--faults", "none"]);
    calm.arg("--out").arg(&folder.0);
    let ended = run(calm).await;
    assert!(ended.output.status.success(), "{}", ended.said());
    let calls = ended.summary["verdict"]["calls"].as_u64();

    let history = folder.history();
    let text = std::fs::read(&history).expect("a history");
    // In the middle of a line, two thirds down.
    let mut middle = text.len() * 2 / 3;
    while text[middle - 1] == b'\n' || text[middle] == b'\n' {
        middle += 1;
    }
    cut_short(&history, middle);
    let check = || command(PROGRAM, &["check", history.to_str().expect("a path")]);
    let checked = run(check()).await;
    assert!(checked.output.status.success(), "{}", checked.said());
    assert_eq!(checked.summary["verdict"]["complete"], false, "{}", checked.said());
    let judged = checked.summary["verdict"]["calls"].as_u64();
    assert!(judged > Some(0) && judged < calls, "{}", checked.said());
    let printed = check().output().await.expect("it runs");
    let printed = String::from_utf8_lossy(&printed.stdout).into_owned();
    assert!(printed.contains("The history does not come to its end"), "{printed}");

    // A broken line in the middle is not what a crash leaves, and is not passed over.
    let mut text = std::fs::read(&history).expect("a history");
    let line = text.iter().position(|byte| *byte == b'\n').expect("a line");
    text.insert(line + 1, b'x');
    std::fs::write(&history, text).expect("writes");
    let broken = run(check()).await;
    assert!(broken.said().contains("line 2 of"), "{}", broken.said());
    assert_eq!(broken.output.status.code(), Some(1));
    assert!(folder.processes().is_empty(), "{:?}", folder.processes());
}

#[tokio::test]
async fn a_history_that_is_none_is_refused_in_a_sentence() {
    let folder = Folder::new();
    std::fs::create_dir_all(&folder.0).expect("a folder");
    let history = folder.history();
    let check = || command(PROGRAM, &["check", history.to_str().expect("a path")]);
    let missing = run(check()).await;
    assert!(
        missing.said().contains("history.jsonl cannot be read"),
        "{}",
        missing.said()
    );
    std::fs::write(&history, "").expect("writes");
    let empty = run(check()).await;
    assert!(empty.said().contains("holds no history"), "{}", empty.said());
    assert_eq!(
        (missing.output.status.code(), empty.output.status.code()),
        (Some(1), Some(1))
    );
}

#[tokio::test]
async fn an_unknown_fault_is_refused_with_those_that_there_are() {
    let ended = refused(&["--faults", "kill,earthquake"]).await;
    assert_eq!(ended.output.status.code(), Some(2), "{}", ended.said());
    let said = ended.said();
    assert!(said.contains("there is no fault earthquake"), "{said}");
    assert!(said.contains("pg-immediate") && said.contains("answer-cut"), "{said}");
}

#[tokio::test]
async fn a_balancer_that_is_missing_is_said_before_anything_is_started() {
    for (balancer, words) in [
        ("auto", "neither nginx nor HAProxy is installed"),
        ("nginx", "nginx is not installed"),
        ("haproxy", "HAProxy is not installed"),
    ] {
        let folder = Folder::new();
        let mut command = command(PROGRAM, &["--balancer", balancer]);
        command.arg("--out").arg(&folder.0).env("PATH", &folder.0);
        let ended = run(command).await;
        assert_eq!(ended.output.status.code(), Some(1), "{}", ended.said());
        assert!(ended.said().contains(words), "{}", ended.said());
        assert!(ended.said().contains("--balancer none"), "{}", ended.said());
        assert!(!folder.0.join("postgres").exists());
    }
}

#[tokio::test]
async fn a_target_where_nobody_listens_is_said_at_once() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let target = format!("http://{}", free.local_addr().expect("an address"));
    drop(free);
    let database = crate::support::cluster::TestCluster::shared().database().await;
    let ended = refused(&["--replicas", "0", &target, "--database-url", &database]).await;
    assert_eq!(ended.output.status.code(), Some(1), "{}", ended.said());
    assert!(ended.said().contains("does not answer"), "{}", ended.said());
}

#[tokio::test]
async fn ctrl_c_in_the_middle_stops_all_that_was_started_and_what_there_is_still_checks() {
    let _turn = turn().await;
    let folder = Folder::new();
    let mut endless = command(PROGRAM, &["--calls", "1000000"]);
    endless.arg("--out").arg(&folder.0).process_group(0);
    let child = endless
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::null())
        .spawn()
        .expect("it starts");
    let group = Pid::from_raw(child.id().expect("a pid").cast_signed());
    eventually("the run is under way", || async {
        let history = std::fs::read_to_string(folder.history()).unwrap_or_default();
        history.contains("\"fault\":\"kill\"").then_some(())
    })
    .await;
    assert!(folder.processes().len() > 5, "{:?}", folder.processes());
    // As a terminal does: to all of the group.
    killpg(group, Signal::SIGINT).expect("it can be signalled");
    let ended = tokio::time::timeout(crate::support::DEADLINE, child.wait_with_output());
    let output = ended.await.expect("it ends in time").expect("it ends");
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(printed.contains("The history does not come to its end"), "{printed}");
    assert!(printed.contains("no violation"), "{printed}");
    assert!(folder.processes().is_empty(), "{:?}", folder.processes());

    let history = folder.history();
    let checked = run(command(PROGRAM, &["check", history.to_str().expect("a path")])).await;
    assert!(checked.output.status.success(), "{}", checked.said());
    assert!(
        checked.summary["verdict"]["calls"].as_u64() > Some(0),
        "{}",
        checked.said()
    );
    assert!(folder.processes().is_empty(), "{:?}", folder.processes());
}
