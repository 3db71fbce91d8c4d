//! The load test notices a broken ledger: each way to break it is caught by the rule that it breaks.

use std::path::Path;
use std::time::Duration;

use crate::support::load::{Ended, Folder, command, run, turn};

/// Nothing is killed; duplicates, repeats and leaving callers suffice. The wait is longer than any join may take.
const CALM: &str = "--faults none --calls 600 --at-least 3 --lease-ms 1000 --wait-ms 12000 --work-ms 100";
/// Callers leave during the work, and some of them for good. They are few, so that the work has begun by then.
const LEAVING: &str =
    "--faults none --calls 4000 --callers 12 --limit-per-source 0 --lease-ms 1000 --wait-ms 6000 --work-ms 200";
/// Replicas stand still past their lease while others take their claims over.
const PAUSES: &str =
    "--faults pause --fault-every-ms 300 --each-fault 5 --calls 600 --lease-ms 1000 --wait-ms 6000 --work-ms 200";
/// Replicas die, and their connections to Postgres break in the middle of an answer.
const DEATHS: &str = "--faults kill,db-cut-after --fault-every-ms 400 --calls 600 --at-least 12 --lease-ms 1000 --wait-ms 6000 --work-ms 50";
/// Replicas die, and nothing else is wrong. With this seed the one that was started first, whose clock would be ahead of all
/// others, is among the first to die; where it survives, no claim shows a clock's fault.
const KILLS: &str = "--seed 5 --faults kill --fault-every-ms 400 --calls 300 --at-least 12 --limit-per-source 0 --lease-ms 1000 --wait-ms 3000 --work-ms 300";

/// An operator hides and deletes entries and stops writes.
const MODERATED: &str = "--faults hide,delete,stop-writes --fault-every-ms 200 --each-fault 8 --calls 800 --lease-ms 1000 --wait-ms 12000 --work-ms 50";

/// A way to break the ledger, the checker's rule that it breaks, and the load that shows it.
const TABLE: [(&str, u64, &str); 10] = [
    ("no-fence", 1, PAUSES),
    ("attempt-for-token", 2, CALM),
    ("no-row-check", 1, CALM),
    ("workers-clock", 5, KILLS),
    ("no-notify", 5, CALM),
    ("release-on-disconnect", 5, LEAVING),
    ("effect-outside", 1, DEATHS),
    ("parent-unseen", 9, MODERATED),
    ("stop-unseen", 10, MODERATED),
    ("fate-unseen", 8, MODERATED),
];

/// The longest that a run may take to show a sabotage.
const LIMIT: Duration = Duration::from_secs(120);

#[tokio::test]
async fn every_sabotage_is_caught_by_the_rule_that_it_breaks() {
    let program = build().await;
    let mut lines = Vec::new();
    let mut wrong = Vec::new();
    for (kind, rule, load) in TABLE {
        let ended = load_with(&program, kind, load).await;
        let rules = ended.rules();
        lines.push(format!(
            "{kind:<22} rule {rule}; broken: {rules:?}, in {:.0?}",
            ended.took
        ));
        let caught = ended.output.status.code() == Some(1) && rules.contains(&rule);
        if !caught || ended.took > LIMIT || !repeatable(&ended) {
            wrong.push(format!("{kind} is not caught by rule {rule}:\n{}", ended.said()));
        }
    }
    println!("{}", lines.join("\n"));
    assert!(wrong.is_empty(), "{}\n{}", lines.join("\n"), wrong.join("\n"));
}

#[tokio::test]
async fn the_same_loads_without_a_sabotage_break_no_rule() {
    let program = build().await;
    for load in [CALM, LEAVING, PAUSES, DEATHS, KILLS, MODERATED] {
        let ended = load_with(&program, "", load).await;
        assert!(ended.output.status.success(), "{load:?}: {}", ended.said());
        assert_eq!(ended.rules(), [0; 0], "{}", ended.said());
        assert!(ended.summary["calls"].as_u64() >= Some(300), "{}", ended.said());
    }
}

/// Whether a failing run says how to run it again.
fn repeatable(ended: &Ended) -> bool {
    let seed = format!("ticket-ledger load --seed {}", ended.summary["seed"]);
    String::from_utf8_lossy(&ended.output.stderr).contains(&seed)
}

async fn load_with(program: &str, kind: &str, load: &str) -> Ended {
    let _turn = turn().await;
    let folder = Folder::new();
    let mut command = command(program, &load.split_whitespace().collect::<Vec<_>>());
    command.arg("--out").arg(&folder.0);
    if !kind.is_empty() {
        command.env("TICKET_LEDGER_SABOTAGE", kind);
    }
    run(command).await
}

/// `cargo build` of the program that can be sabotaged, beside the sound one: only this crate is compiled again, and nothing
/// that this test runs from is replaced.
fn cargo_build(target: &Path) -> tokio::process::Command {
    let mut cargo = tokio::process::Command::new(env!("CARGO"));
    cargo
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .args(["build", "--quiet", "--features", "sabotage"])
        .args(["--example", "ticket-ledger-sabotaged", "--target-dir"])
        .arg(target);
    // What the outer cargo told this test of its package would look like a change to the build scripts that read it, and most
    // dependencies would be compiled again, every time in turn.
    for (name, _) in std::env::vars() {
        if name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_") {
            cargo.env_remove(name);
        }
    }
    cargo
}

fn target() -> &'static Path {
    let sound = Path::new(env!("CARGO_BIN_EXE_ticket-ledger"));
    sound.ancestors().nth(2).expect("the target directory")
}

async fn build() -> String {
    let _turn = turn().await;
    let built = cargo_build(target()).status().await.expect("cargo runs");
    assert!(built.success());
    let program = target().join("debug/examples/ticket-ledger-sabotaged");
    program.to_str().expect("a path").to_owned()
}

#[tokio::test]
async fn a_build_without_debug_assertions_such_as_a_release_cannot_be_sabotaged() {
    let _turn = turn().await;
    let mut cargo = cargo_build(target());
    // This crate as in a release; its dependencies as they are, so that they need not be compiled again.
    cargo.args(["--config", "profile.dev.package.ticket-ledger.debug-assertions=false"]);
    let built = cargo.output().await.expect("cargo runs");
    let said = String::from_utf8_lossy(&built.stderr).into_owned();
    assert!(
        !built.status.success() && said.contains("it is for debug builds alone"),
        "{said}"
    );
}
