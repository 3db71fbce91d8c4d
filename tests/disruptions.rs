//! Replicas die, or are restarted in turn, behind a balancer that repeats POSTs: no client notices, and nothing is doubled.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::support::load::{Folder, command, run, turn};

const PROGRAM: &str = env!("CARGO_BIN_EXE_ticket-ledger");

/// Runs these faults alone behind this balancer, and returns the history's records.
async fn unnoticed(balancer: &str, faults: &str, further: &[&str]) -> Vec<Value> {
    let _turn = turn().await;
    let folder = Folder::new();
    let mut command = command(PROGRAM, &["--balancer", balancer, "--faults", faults]);
    command
        .args(["--calls", "300", "--fault-every-ms", "200", "--lease-ms", "1000"])
        .args(further)
        .arg("--out")
        .arg(&folder.0);
    let ended = run(command).await;
    let log = || std::fs::read_to_string(folder.0.join("balancer.log")).unwrap_or_default();
    assert!(ended.output.status.success(), "{}", ended.said());
    assert_eq!(ended.summary["outcome"], "held", "{}", ended.said());
    assert_eq!(ended.summary["one_at_a_time"], true, "{}", ended.said());
    assert_eq!(ended.summary["visible"], 0, "{}\n{}", ended.said(), log());
    assert!(ended.summary["calls"].as_u64() >= Some(300), "{}", ended.said());
    let history = std::fs::read_to_string(folder.history()).expect("a history");
    let lines = history.lines().map(serde_json::from_str);
    lines.collect::<Result<_, _>>().expect("records")
}

/// How many faults of this kind there were.
fn count(records: &[Value], kind: &str) -> usize {
    let begun = |record: &&Value| record["fault"] == kind && record["phase"] == "begin";
    records.iter().filter(begun).count()
}

#[tokio::test]
async fn kills_alone_behind_nginx_are_not_noticed_by_any_client() {
    let records = unnoticed("nginx", "kill", &["--at-least", "10", "--each-fault", "0"]).await;
    let kills = count(&records, "kill");
    assert!(kills >= 3, "{kills} kills");
}

#[tokio::test]
async fn kills_and_rolling_restarts_behind_haproxy_are_not_noticed_by_any_client() {
    let records = unnoticed("haproxy", "kill,rolling", &["--at-least", "10", "--each-fault", "0"]).await;
    let kills = count(&records, "kill");
    let restarts = count(&records, "rolling");
    assert!(kills >= 1 && restarts >= 3, "{kills} kills, {restarts} restarts");
}

#[tokio::test]
async fn a_rolling_restart_of_three_replicas_behind_nginx_is_not_noticed_by_any_client() {
    let records = unnoticed("nginx", "rolling", &["--each-fault", "2"]).await;
    // Each of them was restarted under load: calls were under way.
    let mut under_way = BTreeSet::new();
    let mut restarted = BTreeSet::new();
    for record in &records {
        let call = record["call"].as_u64();
        match record["kind"].as_str() {
            Some("invoked") => assert!(under_way.insert(call)),
            Some("answered" | "lost") => assert!(under_way.remove(&call)),
            Some("fault") if record["phase"] == "begin" && !under_way.is_empty() => {
                restarted.insert(record["target"].to_string());
            }
            _ => {}
        }
    }
    assert_eq!(restarted.len(), 3, "{restarted:?}");
}
