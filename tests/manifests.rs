//! What deploy/ holds keeps the laws of tests/manifests/, and each of these laws notices when it is broken.

use std::time::Duration;

use tokio::process::Command;

/// Python packages are fetched, and a line may be slow.
const PATIENCE: Duration = Duration::from_secs(600);

#[tokio::test]
async fn every_overlay_renders_is_valid_and_keeps_the_laws_and_every_law_notices_a_breach() {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/manifests/run");
    let run = Command::new(script).kill_on_drop(true).output();
    let output = tokio::time::timeout(PATIENCE, run)
        .await
        .expect("it ends in time")
        .expect("bash runs");
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}\n{said}\n{errors}", output.status);
    let lines = |word: &str| said.lines().filter(|line| line.starts_with(word)).count();
    assert_eq!((lines("ok "), lines("MISSED ")), (6, 0), "{said}");
    assert_eq!(lines("named "), 6, "{said}");
    assert!(lines("caught ") >= 30, "{said}");
}
