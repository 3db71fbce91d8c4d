//! The command line: nonsense is refused with its reason, what is doubtful is warned of, and help names every knob.

use std::process::Output;

use serde_json::Value;
use tokio::process::Command;

use crate::support::scene::Scene;

/// Runs the program to its end.
async fn run(arguments: &[&str], environment: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ticket-ledger"));
    command
        .args(arguments)
        .envs(environment.iter().copied())
        .kill_on_drop(true);
    let run = tokio::time::timeout(crate::support::DEADLINE, command.output());
    run.await.expect("it ends in time").expect("it runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[tokio::test]
async fn nonsense_is_refused_at_start_with_its_reason() {
    let cases = [
        ("LEASE_MS", "999", "shorter ones lapse under a busy but living replica"),
        ("LEASE_MS", "300001", "1000 to 300000"),
        ("WAIT_MS", "240001", "claude.ai ends a call at 240 s"),
        ("WAIT_MS", "99", "100 to 240000"),
        ("WORK_MS", "600001", "must not exceed WORK_LIMIT_MS"),
        ("WORK_LIMIT_MS", "9999", "at least LEASE_MS"),
        ("POOL_SIZE", "0", "1 to 1000 connections"),
        ("MAX_REPLICAS", "0", "1 to 10000"),
        ("RESULT_RETENTION_HOURS", "0", "clients repeat calls for half an hour"),
        ("KEY_RETENTION_HOURS", "167", "not be forgotten before results"),
        ("KEY_RETENTION_HOURS", "1000000", "ten years"),
        ("ENTRY_RETENTION_HOURS", "0", "at least 1 hour"),
        (
            "DELETION_RETENTION_HOURS",
            "719",
            "before the request_id of what was deleted",
        ),
        ("MAX_CALLS", "0", "no write could ever run"),
        ("MAX_BODY_BYTES", "1000", "262144"),
        ("GRACE_MS", "3600001", "at most an hour"),
        ("REPLICA_NAME", " ", "1 to 64 characters"),
        ("LISTEN_ADDR", "0.0.0.0:0", "insecure-allow-anonymous"),
        ("MAX_CONNECTIONS", "0", "1 to 1000000"),
        ("MAX_CALLS_PER_PRINCIPAL", "0", "1 to 1000000"),
        ("HEADER_TIMEOUT_MS", "99", "100 to 300000"),
        ("IDLE_TIMEOUT_MS", "99", "100 to 3600000"),
        ("MAX_HEADER_BYTES", "8191", "8192 to 1048576"),
        (
            "MAX_JSON_DEPTH",
            "121",
            "8 (an MCP call's own frame and its arguments) to 120",
        ),
        ("PUBLIC_URL", "tickets.example.org", "http or https URL"),
    ];
    for (name, value, reason) in cases {
        let output = run(
            &["serve"],
            &[("DATABASE_URL", "postgres://nowhere.invalid/x"), (name, value)],
        )
        .await;
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{name}={value}: {said}");
        let sentence = said
            .lines()
            .find(|line| line.starts_with("ticket-ledger: "))
            .unwrap_or_default();
        assert!(
            sentence.contains(name) && sentence.contains(reason),
            "{name}={value}: {said}"
        );
    }
}

#[tokio::test]
async fn all_that_is_wrong_is_said_at_once() {
    let environment = [
        ("DATABASE_URL", "postgres://nowhere.invalid/x"),
        ("LEASE_MS", "1"),
        ("WAIT_MS", "1"),
        ("POOL_SIZE", "0"),
    ];
    let said = text(&run(&["serve"], &environment).await.stderr);
    for name in ["LEASE_MS", "WAIT_MS", "POOL_SIZE"] {
        assert!(said.contains(&format!("ticket-ledger: {name} is")), "{said}");
    }
}

#[tokio::test]
async fn what_cannot_be_read_is_refused_with_the_name_of_its_flag() {
    let url = ("DATABASE_URL", "postgres://nowhere.invalid/x");
    for (name, value, flag) in [
        ("LEASE_MS", "ten", "--lease-ms"),
        ("LISTEN_ADDR", "here", "--listen-addr"),
        ("TOOLSETS", "weapons", "--toolsets"),
        ("LOG_FORMAT", "xml", "--log-format"),
        ("POSSIBLE_DUPLICATES", "perhaps", "--possible-duplicates"),
    ] {
        let output = run(&["serve"], &[url, (name, value)]).await;
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(flag) && said.contains(value), "{said}");
    }
    let output = run(&["serve"], &[]).await;
    assert_eq!(output.status.code(), Some(2));
    assert!(
        text(&output.stderr).contains("--database-url"),
        "{}",
        text(&output.stderr)
    );
}

#[tokio::test]
async fn what_is_doubtful_is_warned_of_and_served_all_the_same() {
    let scene = Scene::new().await;
    let cases = [
        ("WAIT_MS", "50001", "60 s"),
        (
            "LEASE_MS",
            "15001",
            "a waiter gives up before it can take a dead replica's claim over",
        ),
        ("RESULT_RETENTION_HOURS", "23", "repeated the next day"),
        ("POOL_SIZE", "2", "batches use two connections"),
        ("WORK_MS", "1", "for trying things out"),
    ];
    for (name, value, reason) in cases {
        let replica = scene.replica().with(name, value).ready().await;
        let warned = replica.log().into_iter().any(|line| {
            line["level"] == "WARN"
                && line["message"]
                    .as_str()
                    .is_some_and(|message| message.contains(name) && message.contains(reason))
        });
        assert!(warned, "{name}={value}: {:#?}", replica.log());
    }
    let replica = scene.replica().ready().await;
    // Of its settings nothing is said; a server that is short of connections may be complained of.
    let quiet = replica.log().into_iter().all(|line| {
        let message = line["message"].as_str().unwrap_or_default();
        line["level"] != "WARN" || cases.iter().all(|(name, ..)| !message.starts_with(name))
    });
    assert!(quiet, "{:#?}", replica.log());
}

#[tokio::test]
async fn help_names_every_knob_with_its_default_and_its_variable() {
    let knobs = [
        ("listen-addr", "127.0.0.1:8000"),
        ("admin-addr", "127.0.0.1:9000"),
        ("listen-database-url", ""),
        ("lease-ms", "10000"),
        ("wait-ms", "20000"),
        ("work-ms", "0"),
        ("work-limit-ms", "600000"),
        ("pool-size", "10"),
        ("max-replicas", "1"),
        ("replica-name", "made from the process id"),
        ("toolsets", "tickets"),
        ("result-retention-hours", "168"),
        ("key-retention-hours", "720"),
        ("entry-retention-hours", "8760"),
        ("deletion-retention-hours", "KEY_RETENTION_HOURS"),
        ("possible-duplicates", "true"),
        ("max-calls", "4096"),
        ("limit-per-source-per-hour", "0"),
        ("limit-global-per-hour", "0"),
        ("max-body-bytes", "1048576"),
        ("grace-ms", "10000"),
        ("allowed-hosts", "localhost,127.0.0.1,[::1]"),
        (
            "allowed-origins",
            "http://localhost:*,http://127.0.0.1:*,http://[::1]:*",
        ),
        ("insecure-allow-anonymous", ""),
        ("hash-request-ids", "false"),
        ("public-url", ""),
        ("auth", "none"),
        ("oauth-issuer", ""),
        ("oauth-audience", "PUBLIC_URL and /mcp"),
        ("oauth-jwks-url", "what the issuer's own metadata says"),
        (
            "oauth-algorithms",
            "RS256,RS384,RS512,PS256,PS384,PS512,ES256,ES384,EdDSA",
        ),
        ("oauth-leeway-seconds", "30"),
        ("trusted-proxies", ""),
        ("max-connections", "4096"),
        ("max-calls-per-principal", "64"),
        ("header-timeout-ms", "10000"),
        ("idle-timeout-ms", "75000"),
        ("max-header-bytes", "65536"),
        ("max-json-depth", "64"),
        ("log-format", "json"),
    ];
    for command in ["serve", "dev"] {
        let output = run(
            &[command, "--help"],
            &[("DATABASE_URL", "postgres://user:secret@host/x")],
        )
        .await;
        let help = text(&output.stdout);
        assert!(output.status.success() && !help.contains("secret"), "{help}");
        // A knob's own part of the text, up to the next knob, in one line.
        let parts: Vec<String> = help
            .split("\n      --")
            .skip(1)
            .map(|part| part.split_whitespace().collect::<Vec<_>>().join(" "))
            .collect();
        for (flag, default) in knobs {
            let part = parts.iter().find(|part| part.split([' ', '=']).next() == Some(flag));
            let part = part.unwrap_or_else(|| panic!("{command} --help does not name --{flag}"));
            let variable = flag.to_uppercase().replace('-', "_");
            assert!(part.contains(&format!("[env: {variable}")), "{part}");
            let shown = default.is_empty() || part.contains(&format!("[default: {default}]"));
            assert!(shown, "{part}");
        }
        let further = ["database-url", "data-dir", "pg-bindir"];
        for part in &parts {
            let flag = part.split([' ', '=']).next().unwrap_or_default();
            let known = knobs.iter().any(|(knob, _)| *knob == flag) || further.contains(&flag);
            assert!(
                known,
                "{command} has a knob --{flag} that this test does not know: add it"
            );
        }
    }
}

#[tokio::test]
async fn tools_shows_what_a_client_may_repeat() {
    let scene = Scene::new().await;
    let [replica] = scene.replicas().await;
    let url = format!("http://{}/mcp", replica.address);
    let output = run(&["tools", &url], &[]).await;
    let table = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    for (tool, row) in [
        ("create_ticket", "no no yes no yes: with the same arguments"),
        ("set_ticket_status", "no yes yes no yes: with the same arguments"),
        ("add_comment", "no no yes no yes: with the same arguments"),
        ("find_request", "yes no yes no yes: it changes nothing"),
        ("list_tickets", "yes no yes no yes: it changes nothing"),
    ] {
        let line = table
            .lines()
            .find(|line| line.starts_with(tool))
            .unwrap_or_else(|| panic!("no {tool}: {table}"));
        let words = line.split_whitespace().skip(1).collect::<Vec<_>>().join(" ");
        assert_eq!(words, row, "{table}");
    }
    assert_eq!(table.lines().count(), 8, "{table}");
    let output = run(&["tools", &url, "--json"], &[]).await;
    let listed: Vec<Value> = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(listed.len(), 7);
    assert!(
        listed.iter().all(|tool| tool["annotations"]["idempotentHint"] == true),
        "{listed:#?}"
    );

    let output = run(&["tools", "http://127.0.0.1:1/mcp"], &[]).await;
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    assert!(
        said.contains("nothing answers at http://127.0.0.1:1/mcp. Is the server running?"),
        "{said}"
    );
}

#[tokio::test]
async fn a_port_that_is_taken_is_said_in_a_sentence() {
    let scene = Scene::new().await;
    let [replica] = scene.replicas().await;
    for (name, taken) in [
        ("LISTEN_ADDR", &replica.address),
        ("ADMIN_ADDR", &replica.admin_address),
    ] {
        let mut environment = vec![
            ("DATABASE_URL", scene.url.as_str()),
            ("LISTEN_ADDR", "127.0.0.1:0"),
            ("ADMIN_ADDR", "127.0.0.1:0"),
        ];
        environment.push((name, taken));
        let output = run(&["serve"], &environment).await;
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        let sentence = format!(
            "ticket-ledger: cannot listen on {taken}: another program listens there already. Choose another address with {name}."
        );
        assert!(said.contains(&sentence), "{said}");
    }
}
