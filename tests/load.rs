//! `ticket-ledger load`: all faults break no rule, and what goes wrong with the load test itself is said and cleared away.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Stdio;

use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use ticket_ledger::cluster::{Options, PrivateCluster, StopMode};
use tokio::process::Child;

use crate::support::cluster::TestCluster;
use crate::support::eventually;
use crate::support::load::{Ended, Folder, command, run, turn};

const PROGRAM: &str = env!("CARGO_BIN_EXE_ticket-ledger");

/// Exit statuses.
const BROKEN: Option<i32> = Some(1);
const USAGE: Option<i32> = Some(2);
const UNKNOWN: Option<i32> = Some(3);

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
    assert_eq!(faults.len(), 13, "{}", ended.said());
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
    assert_eq!(checked.output.status.code(), UNKNOWN, "{}", checked.said());
    assert_eq!(checked.summary["outcome"], "incomplete", "{}", checked.said());
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
    assert_eq!(broken.output.status.code(), UNKNOWN);
    assert!(folder.processes().is_empty(), "{:?}", folder.processes());
}

#[tokio::test]
async fn a_history_is_judged_with_the_tables_of_its_run_or_not_at_all() {
    let _turn = turn().await;
    let folder = Folder::new();
    let calm = || {
        let mut calm = command(PROGRAM, &["--calls", "60", "--faults", "none", "--replicas", "1"]);
        calm.arg("--out").arg(&folder.0);
        calm
    };
    let first = run(calm()).await;
    assert!(first.output.status.success(), "{}", first.said());
    // A second run keeps the history of the first, and both are judged with the same Postgres.
    let second = run(calm()).await;
    assert!(second.output.status.success(), "{}", second.said());
    let histories = [folder.history(), folder.0.join("history-2.jsonl")];
    assert_eq!(second.summary["history"], histories[1].to_str().expect("a path"));
    let check = |history: &Path| command(PROGRAM, &["check", history.to_str().expect("a path")]);
    for (history, ended) in histories.iter().zip([&first, &second]) {
        let again = run(check(history)).await;
        assert!(again.output.status.success(), "{}", again.said());
        assert_eq!(again.summary["calls"], ended.summary["calls"], "{}", again.said());
    }

    // Something is wrong: the command that makes the workload again is printed here too.
    let mut wrong = std::fs::read_to_string(&histories[1]).expect("a history");
    wrong = wrong.replace("\"outcome\":\"done\"", "\"outcome\":\"dome\"");
    std::fs::write(&histories[1], wrong).expect("writes");
    let checked = run(check(&histories[1])).await;
    assert_eq!(checked.output.status.code(), BROKEN, "{}", checked.said());
    let again = format!("ticket-ledger load --seed {} --calls 60", second.summary["seed"]);
    assert!(checked.said().contains(&again), "{}", checked.said());

    // A Postgres that runs already is left running.
    let postgres = folder.0.join("postgres");
    let cluster = PrivateCluster::start(&postgres, &Options::default())
        .await
        .expect("it starts");
    let pid = cluster.postmaster_pid();
    drop(cluster);
    assert!(run(check(&histories[0])).await.output.status.success());
    let cluster = PrivateCluster::start(&postgres, &Options::default())
        .await
        .expect("it runs");
    assert_eq!(cluster.postmaster_pid(), pid);
    cluster.stop(StopMode::Fast).await.expect("it stops");

    // Another database is not that of the run.
    let mut elsewhere = check(&histories[0]);
    elsewhere
        .arg("--database-url")
        .arg(TestCluster::shared().database().await);
    let elsewhere = run(elsewhere).await;
    assert_eq!(elsewhere.output.status.code(), UNKNOWN, "{}", elsewhere.said());
    assert!(
        elsewhere.said().contains("holds nothing of this run"),
        "{}",
        elsewhere.said()
    );

    // Where the folder has gone, no new Postgres is made in its place.
    let moved = Folder::new();
    std::fs::rename(&folder.0, &moved.0).expect("it moves");
    let gone = run(check(&moved.history())).await;
    assert_eq!(gone.output.status.code(), UNKNOWN, "{}", gone.said());
    assert!(
        gone.said().contains("there is no Postgres there any more"),
        "{}",
        gone.said()
    );
    assert!(!folder.0.exists());
}

#[tokio::test]
async fn a_history_in_which_nothing_happened_shows_nothing() {
    let _turn = turn().await;
    let folder = Folder::new();
    let mut calm = command(
        PROGRAM,
        &[
            "--calls",
            "1",
            "--faults",
            "none",
            "--replicas",
            "1",
            "--balancer",
            "none",
        ],
    );
    calm.arg("--out").arg(&folder.0);
    assert!(run(calm).await.output.status.success());
    let history = folder.history();
    let text = std::fs::read_to_string(&history).expect("a history");
    let lines: Vec<_> = text.lines().collect();
    // Interrupted before its first call; of a run that came to its end all that is in the tables must have been sent.
    let end = lines[lines.len() - 1].replace("\"interrupted\":false", "\"interrupted\":true");
    std::fs::write(&history, format!("{}\n{end}\n", lines[0])).expect("writes");
    let checked = command(PROGRAM, &["check", history.to_str().expect("a path")])
        .output()
        .await;
    let checked = checked.expect("it runs");
    assert_eq!(checked.status.code(), UNKNOWN);
    let printed = String::from_utf8_lossy(&checked.stdout);
    assert!(
        printed.contains("nothing to judge") && !printed.contains("no violation"),
        "{printed}"
    );
}

#[tokio::test]
async fn a_report_that_cannot_be_written_is_said_before_the_run_and_a_verdict_is_not_lost_with_its_output() {
    let folder = Folder::new();
    let report = folder.0.join("nowhere/report.html");
    let ended = refused(&["--report", report.to_str().expect("a path")]).await;
    assert_eq!(ended.output.status.code(), UNKNOWN, "{}", ended.said());
    assert!(
        ended.said().contains("the report cannot be written"),
        "{}",
        ended.said()
    );

    let _turn = turn().await;
    let report = std::env::temp_dir().join(format!("ticket-ledger-report-{}.html", std::process::id()));
    let mut full = command(
        PROGRAM,
        &["--calls", "20", "--faults", "none", "--replicas", "1", "--report"],
    );
    full.arg(&report).arg("--out").arg(&folder.0);
    let disk = std::fs::File::options()
        .write(true)
        .open("/dev/full")
        .expect("a full disk");
    let full = full.stdout(disk).stderr(Stdio::piped()).spawn().expect("it starts");
    let ended = full.wait_with_output().await.expect("it runs");
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert_eq!(ended.status.code(), UNKNOWN, "{said}");
    assert!(said.contains("standard output cannot be written"), "{said}");
    assert!(said.contains("VERDICT     no violation"), "{said}");
    let page = std::fs::read_to_string(&report).expect("a report");
    std::fs::remove_file(&report).expect("it is there");
    assert!(
        page.contains("No violation.") && page.contains("1 replica behind "),
        "{page}"
    );
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
        (UNKNOWN, UNKNOWN)
    );
}

#[tokio::test]
async fn an_unknown_fault_is_refused_with_those_that_there_are() {
    let ended = refused(&["--faults", "kill,earthquake"]).await;
    assert_eq!(ended.output.status.code(), USAGE, "{}", ended.said());
    let said = ended.said();
    assert!(said.contains("there is no fault earthquake"), "{said}");
    assert!(said.contains("pg-immediate") && said.contains("answer-cut"), "{said}");
}

#[tokio::test]
async fn what_makes_no_sense_is_refused_with_its_reason_before_anything_is_started() {
    for (arguments, words) in [
        (["--calls", "0"], "0 is not in 1.."),
        (["--callers", "0"], "0 is not in 1..=1000"),
        (["--lease-ms", "1"], "LEASE_MS is 1: a lease must be 1000 to 300000 ms"),
        (["--replicas", "0"], "takes the URL of a deployment"),
    ] {
        let ended = refused(&arguments).await;
        assert_eq!(ended.output.status.code(), USAGE, "{}", ended.said());
        assert!(ended.said().contains(words), "{}", ended.said());
    }
}

#[tokio::test]
async fn a_balancer_that_is_missing_is_said_before_anything_is_started() {
    for (balancer, words) in [
        (
            "auto",
            "neither nginx nor HAProxy is installed: install it (Debian: apt-get install nginx",
        ),
        (
            "nginx",
            "nginx is not installed: install it (Debian: apt-get install nginx",
        ),
        (
            "haproxy",
            "HAProxy is not installed: install it (Debian: apt-get install haproxy",
        ),
    ] {
        let folder = Folder::new();
        let mut command = command(PROGRAM, &["--balancer", balancer]);
        command.arg("--out").arg(&folder.0).env("PATH", &folder.0);
        let ended = run(command).await;
        assert_eq!(ended.output.status.code(), UNKNOWN, "{}", ended.said());
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
    let database = TestCluster::shared().database().await;
    let ended = refused(&["--replicas", "0", &target, "--database-url", &database]).await;
    assert_eq!(ended.output.status.code(), UNKNOWN, "{}", ended.said());
    assert!(ended.said().contains("does not answer"), "{}", ended.said());
}

/// An endless run with all faults, in a process group of its own, once it has killed a replica.
async fn endless(folder: &Folder) -> Child {
    let mut endless = command(PROGRAM, &["--calls", "1000000"]);
    endless.arg("--out").arg(&folder.0).process_group(0);
    let child = endless
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("it starts");
    eventually("the run is under way", || async {
        let history = std::fs::read_to_string(folder.history()).unwrap_or_default();
        history.contains("\"fault\":\"kill\"").then_some(())
    })
    .await;
    assert!(folder.processes().len() > 5, "{:?}", folder.processes());
    child
}

fn pid(child: &Child) -> Pid {
    Pid::from_raw(child.id().expect("a pid").cast_signed())
}

#[tokio::test]
async fn ctrl_c_in_the_middle_stops_all_that_was_started_and_what_there_is_still_checks() {
    let _turn = turn().await;
    let folder = Folder::new();
    let child = endless(&folder).await;
    // As a terminal does: to all of the group.
    killpg(pid(&child), Signal::SIGINT).expect("it can be signalled");
    let ended = tokio::time::timeout(crate::support::DEADLINE, child.wait_with_output());
    let output = ended.await.expect("it ends in time").expect("it ends");
    assert_eq!(output.status.code(), UNKNOWN);
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(printed.contains("The history does not come to its end"), "{printed}");
    assert!(printed.contains("no violation so far"), "{printed}");
    assert!(printed.contains("3 replicas behind nginx"), "{printed}");
    assert!(folder.processes().is_empty(), "{:?}", folder.processes());

    let history = folder.history();
    let checked = run(command(PROGRAM, &["check", history.to_str().expect("a path")])).await;
    assert_eq!(checked.summary["outcome"], "incomplete", "{}", checked.said());
    assert!(
        checked.summary["verdict"]["calls"].as_u64() > Some(0),
        "{}",
        checked.said()
    );
    assert!(folder.processes().is_empty(), "{:?}", folder.processes());
}

#[tokio::test]
async fn a_load_test_that_is_killed_takes_all_that_it_started_with_it() {
    let _turn = turn().await;
    let folder = Folder::new();
    let mut child = endless(&folder).await;
    kill(pid(&child), Signal::SIGKILL).expect("it can be signalled");
    child.wait().await.expect("it ends");
    eventually("replicas, balancer and Postgres are gone", || async {
        folder.processes().is_empty().then_some(())
    })
    .await;
    // Its history says what it had come to, up to its last moment.
    let history = folder.history();
    let checked = run(command(PROGRAM, &["check", history.to_str().expect("a path")])).await;
    assert_eq!(checked.summary["outcome"], "incomplete", "{}", checked.said());
}
