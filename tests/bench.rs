//! `load bench` measures everything that it names. How fast anything is, is no promise and not tested.

use std::path::PathBuf;
use std::process::Stdio;

use serde_json::Value;
use tokio::process::Command;

/// The shortest bench, on a Postgres and in a folder of its own.
async fn shortest(name: &str, path: Option<&str>) -> Value {
    let folder = Folder(std::env::temp_dir().join(format!("ticket-ledger-bench-{name}-{}", std::process::id())));
    let mut command = Command::new(env!("CARGO_BIN_EXE_ticket-ledger"));
    command
        .args(["load", "bench", "--seconds", "1", "--rounds", "1", "--json", "--out"])
        .arg(&folder.0)
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    if let Some(path) = path {
        command.env("PATH", path);
    }
    let output = command.output().await.expect("runs");
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{complaint}");
    assert!(
        !folder.0.join("postgres/data/postmaster.pid").exists(),
        "its Postgres was left running"
    );
    serde_json::from_slice(&output.stdout).expect("JSON")
}

struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn positive(value: &Value) -> bool {
    value.as_f64().is_some_and(|value| value > 0.0)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bench_measures_every_cell_and_every_wait_that_it_names() {
    let report = shortest("whole", None).await;
    let cells = report["cells"].as_array().expect("cells");
    let unmeasured = report["unmeasured"].as_array().expect("what was not measured");
    // Some machines have a server without pgbench; then that is said, and only that.
    let without_pgbench = unmeasured
        .iter()
        .any(|said| said.as_str().is_some_and(|said| said.contains("pgbench")));
    assert_eq!(unmeasured.len(), usize::from(without_pgbench), "{unmeasured:?}");
    let never = report["never_measured"].as_array().map(Vec::len);
    assert!(never > Some(0), "{report:#}");
    let mut wanted = vec![
        ("create_ticket, POSSIBLE_DUPLICATES=false", 64),
        ("create_ticket, LIMIT_PER_SOURCE_PER_HOUR", 64),
        ("create_ticket, LIMIT_GLOBAL_PER_HOUR", 64),
        ("create_ticket, one call in ten traced", 64),
        ("create_ticket, every call traced", 64),
        ("replay of create_ticket", 64),
    ];
    for connections in [1, 8, 64, 256] {
        wanted.push(("create_ticket over MCP", connections));
        if !without_pgbench {
            wanted.push(("pgbench, one-row INSERT", connections));
        }
    }
    for (what, connections) in &wanted {
        let cell = cells
            .iter()
            .find(|cell| cell["what"] == *what && cell["connections"] == *connections)
            .unwrap_or_else(|| panic!("no cell for {what} at {connections}: {report:#}"));
        assert!(positive(&cell["per_second"]), "{cell}");
        assert_eq!(cell["rounds"].as_array().map(Vec::len), Some(1), "{cell}");
        assert_eq!(positive(&cell["to_pgbench"]), !without_pgbench, "{cell}");
        let is_ours = !what.starts_with("pgbench");
        assert_eq!(positive(&cell["latency_ms"]["p50"]), is_ours, "{cell}");
    }
    assert_eq!(cells.len(), wanted.len(), "{report:#}");
    let costs = report["costs"].as_array().expect("costs");
    assert_eq!(costs.len(), 5, "{report:#}");
    for cost in costs {
        assert!(positive(&cost["calls_ratio"]), "{cost}");
    }
    for wait in ["joins_ms", "takeovers_ms", "beyond_lease_ms"] {
        for figure in ["samples", "p50", "p99"] {
            assert!(positive(&report[wait][figure]), "{wait}: {}", report[wait]);
        }
    }
}

#[tokio::test]
async fn a_bench_is_refused_what_it_cannot_measure_with() {
    for arguments in [["--seconds", "0"], ["--rounds", "0"]] {
        let output = Command::new(env!("CARGO_BIN_EXE_ticket-ledger"))
            .args(["load", "bench"])
            .args(arguments)
            .output()
            .await
            .expect("runs");
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
    }
}
