//! The official MCP clients and the conformance suite, each in the eras that it speaks.

use std::time::Duration;

use tokio::process::Command;

use crate::support::scene::Scene;

/// Some of them are large, and a line may be slow.
const PATIENCE: Duration = Duration::from_secs(900);

#[tokio::test]
async fn the_official_clients_and_the_conformance_suite_are_served_in_every_era() {
    let scene = Scene::new().await;
    let [replica] = scene.replicas().await;
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/clients/run");
    let run = Command::new(script)
        .arg(format!("http://{}/mcp", replica.address))
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(PATIENCE, run)
        .await
        .expect("it ends in time")
        .expect("bash runs");
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}\n{said}\n{errors}", output.status);
    assert_eq!(
        said.lines().filter(|line| line.starts_with("ok ")).count(),
        19,
        "{said}"
    );
    // Eleven runs of clients, of which each made one ticket and repeated it.
    assert_eq!(scene.tickets().await, 11);
    let row = scene.count("select count(*) from requests where status = 'done'").await;
    assert_eq!(row, 11);
}
