//! The dashboard and the alert rules speak of metrics that there are.

use std::collections::BTreeSet;

use serde_json::Value;

const ALERTS: &str = include_str!("../deploy/observability/alerts.yaml");
const DASHBOARD: &str = include_str!("../deploy/observability/dashboard.json");
const METRICS: &str = include_str!("../src/telemetry/metrics.rs");
const GAUGES: &str = include_str!("../src/ledger/gauges.rs");

/// Names as Prometheus shows them, by the names in the program.
fn known() -> BTreeSet<String> {
    let mut known = BTreeSet::new();
    for quoted in METRICS.split('"').chain(GAUGES.split('"')) {
        if quoted.starts_with("ticket_ledger.") {
            let name = quoted.replace('.', "_");
            known.insert(format!("{name}_total"));
            known.insert(format!("{name}_bucket"));
            known.insert(name);
        } else if quoted.ends_with(".duration") {
            known.insert(format!("{}_seconds_bucket", quoted.replace('.', "_")));
        }
    }
    known
}

fn names(expression: &str) -> BTreeSet<String> {
    expression
        .split(|character: char| !(character.is_ascii_alphanumeric() || character == '_'))
        .filter(|word| {
            ["ticket_ledger_", "mcp_server_", "http_server_"]
                .iter()
                .any(|start| word.starts_with(start))
        })
        .map(str::to_owned)
        .collect()
}

#[test]
fn every_alert_and_panel_asks_for_metrics_that_there_are() {
    let known = known();
    let dashboard: Value = serde_json::from_str(DASHBOARD).expect("JSON");
    let panels = dashboard["panels"].as_array().expect("panels");
    let of_panels = panels
        .iter()
        .flat_map(|panel| panel["targets"].as_array().expect("targets"));
    let mut asked: BTreeSet<String> = of_panels
        .flat_map(|target| names(target["expr"].as_str().expect("an expression")))
        .collect();
    let rules: Vec<&str> = ALERTS.lines().filter(|line| line.trim().starts_with("expr:")).collect();
    assert!(rules.len() >= 8 && panels.len() >= 8);
    asked.extend(rules.into_iter().flat_map(names));
    let unknown: Vec<_> = asked.difference(&known).collect();
    assert!(unknown.is_empty(), "{unknown:?} are no metrics");
}

#[test]
fn every_alert_says_what_to_do() {
    let alerts = ALERTS.matches("- alert:").count();
    assert!(alerts > 0);
    let says = ALERTS.lines().filter(|line| line.trim().starts_with("description:"));
    let said: Vec<usize> = says.map(str::len).collect();
    assert_eq!(said.len(), alerts);
    assert!(said.iter().all(|length| *length > 60), "{said:?}");
}

/// The rules against series as the program shows them. Where promtool is not installed, `deploy/check` or CI does it.
#[test]
fn every_rule_fires_when_it_should_and_not_before() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/observability");
    let run = std::process::Command::new("promtool")
        .args(["test", "rules", "alerts_test.yaml"])
        .current_dir(folder)
        .output();
    let Ok(output) = run else {
        eprintln!("promtool is not installed: the alert rules were not tried (Debian: apt-get install prometheus)");
        return;
    };
    let says = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    assert!(output.status.success(), "{says:?}");
}
