//! The console: what an operator sees, in a real browser and as data, while a call is taken over.

use std::path::PathBuf;
use std::process::Stdio;

use serde_json::Value;

use crate::support::calls::{Answer, client, ticket};
use crate::support::eventually;
use crate::support::replica::Replica;
use crate::support::scene::Scene;

fn browser() -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .flat_map(|folder| ["chromium", "chromium-browser", "google-chrome"].map(|name| folder.join(name)))
        .find(|path| path.is_file())
        .expect("a browser: install chromium (Debian: apt-get install chromium)")
}

/// What the page shows once it has loaded, as text.
async fn seen(replica: &Replica, fragment: &str) -> String {
    let profile = std::env::temp_dir().join(format!("console-{}", uuid::Uuid::new_v4()));
    let output = tokio::process::Command::new(browser())
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--no-first-run",
        ])
        .args([
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
        ])
        .arg("--disable-dev-shm-usage")
        .arg(format!("--user-data-dir={}", profile.display()))
        .args(["--virtual-time-budget=3000", "--dump-dom"])
        .arg(format!("http://{}/console{fragment}", replica.admin_address))
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(crate::support::DEADLINE, output)
        .await
        .expect("the browser ends in time")
        .expect("the browser runs");
    let _ = std::fs::remove_dir_all(&profile);
    let html = String::from_utf8_lossy(&output.stdout).into_owned();
    let body = html.split("<script>").next().unwrap_or_default();
    let body = body.split("</style>").last().unwrap_or_default();
    let body = body.replace("<bdi>", "").replace("</bdi>", "");
    let mut text = String::new();
    // In a tag, and there in a quoted value, which may hold anything.
    let (mut inside, mut quoted) = (false, false);
    for character in body.chars() {
        match character {
            '"' if inside => quoted = !quoted,
            '<' if !inside => inside = true,
            '>' if inside && !quoted => {
                inside = false;
                text.push(' ');
            }
            other if !inside => text.push(other),
            _ => {}
        }
    }
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

async fn state(replica: &Replica) -> Value {
    replica.admin("/console/state").await.body
}

#[tokio::test]
async fn the_page_shows_a_takeover_as_it_happens_and_the_request_with_both_its_attempts() {
    let scene = Scene::new().await;
    let a = scene
        .replica()
        .with("WORK_MS", 60_000)
        .with("REPLICA_NAME", "first-house");
    let a = a.ready().await;
    let b = scene.replica().with("WORK_MS", 10).with("REPLICA_NAME", "second-house");
    let b = b.ready().await;
    let body = ticket("k-<b>taken</b>", "Taken over");
    let first = a.http("POST", "/tickets", Some(&body));
    let watch = async {
        scene.until("k-<b>taken</b>", "running").await;
        eventually("both replicas' rows are up to date", || async {
            let state = state(&b).await;
            let replicas = state["replicas"].as_array()?;
            let ready = replicas.iter().filter(|replica| replica["stage"] == "ready");
            let claims: u64 = replicas.iter().filter_map(|replica| replica["claims"].as_u64()).sum();
            (ready.count() == 2 && claims == 1).then_some(())
        })
        .await;
        let text = seen(&b, "#k-%3Cb%3Etaken%3C%2Fb%3E").await;
        assert!(
            text.contains("k-&lt;b&gt;taken&lt;/b&gt; create_ticket running"),
            "{text}"
        );
        assert!(text.contains("Attempt 1 on first-house: running"), "{text}");
        assert!(text.contains("first-house ready 1 0 heard"), "{text}");
        a.strike();
        b.create("k-<b>taken</b>", "Taken over").await
    };
    let (lost, answer) = tokio::join!(first, watch);
    assert!(lost.is_err());
    assert_eq!(answer.body["status"], "done", "{answer:?}");
    let text = seen(&b, "#k-%3Cb%3Etaken%3C%2Fb%3E").await;
    assert!(text.contains("Attempt 1 on first-house: lapsed"), "{text}");
    assert!(text.contains("Attempt 2 on second-house: done"), "{text}");
    assert!(text.contains("Everything is settled."), "{text}");
    assert!(
        text.contains("k-&lt;b&gt;taken&lt;/b&gt; 1 first-house lapsed"),
        "{text}"
    );
    // Neither the title nor the body.
    assert!(!text.contains("Taken over") && !text.contains("A body"), "{text}");
}

#[tokio::test]
async fn the_page_shows_conflicts_possible_duplicates_rates_and_the_write_stop_of_all_replicas() {
    let scene = Scene::new().await;
    let [a, b] = scene.replicas().await;
    a.create("k", "First").await;
    assert_eq!(b.create("k", "Second").await.code(), "conflict");
    let twin = b.create("k-2", "First").await;
    assert_eq!(twin.body["possible_duplicate_of"]["request_id"], "k", "{twin:?}");
    sqlx::query("select set_write_stop(true)")
        .execute(&scene.sql)
        .await
        .expect("stops");
    eventually("the other replica's page knows", || async {
        let state = state(&a).await;
        let has = |kind: &str, request_id: &str| {
            state["replicas"].as_array().is_some_and(|replicas| {
                replicas.iter().any(|replica| {
                    let list = replica["lately"][kind].as_array();
                    list.is_some_and(|list| list.iter().any(|entry| entry["request_id"] == request_id))
                })
            })
        };
        (has("conflicts", "k") && has("duplicates", "k-2")).then_some(())
    })
    .await;
    let text = seen(&a, "").await;
    assert!(text.contains("Writes are stopped."), "{text}");
    assert!(text.contains("conflict 1 · done 2"), "{text}");
}

#[tokio::test]
async fn what_cannot_be_seen_in_a_request_id_is_shown_by_its_code() {
    let scene = Scene::new().await;
    let a = scene.replica().ready().await;
    for hidden in ["k\u{202e}txt.exe", "\u{200b}", "\u{3164}"] {
        a.create(hidden, "First").await;
        assert_eq!(a.create(hidden, "Second").await.code(), "conflict");
    }
    eventually("they are among the conflicts", || async {
        let conflicts = state(&a).await["replicas"][0]["lately"]["conflicts"]
            .as_array()
            .map(Vec::len);
        (conflicts == Some(3)).then_some(())
    })
    .await;
    let text = seen(&a, "#k%E2%80%AEtxt.exe").await;
    for shown in [
        "k⟨U+202E⟩txt.exe of",
        "⟨U+200B⟩ create_ticket",
        "⟨U+3164⟩ create_ticket",
    ] {
        assert!(text.contains(shown), "{shown} is not in {text}");
    }
    assert!(!text.contains('\u{202e}'), "{text}");
    // As many characters as a request_id may have, all of them outside the first plane.
    let long = "😀".repeat(64);
    a.create(&long, "Long").await;
    let answer = a
        .admin(&format!("/console/request?request_id={}", "%F0%9F%98%80".repeat(64)))
        .await;
    assert_eq!(answer.body[0]["request_id"], *long);
    let page = a.admin("/console").await;
    assert!(
        page.body.as_str().expect("text").contains("maxlength=\"128\""),
        "UTF-16 units are counted"
    );
}

#[tokio::test]
async fn a_replica_that_stopped_is_put_away_and_holds_no_claims() {
    let scene = Scene::new().await;
    let [a] = scene.replicas().await;
    let start = scene.replica().with("REPLICA_NAME", "third-house");
    let mut third = start.ready().await;
    third.terminate();
    assert!(third.ended().await.success());
    eventually("its last row is read", || async {
        let state = state(&a).await;
        let replicas = state["replicas"].as_array()?;
        replicas
            .iter()
            .any(|replica| replica["stage"] == "stopped")
            .then_some(())
    })
    .await;
    let text = seen(&a, "").await;
    assert!(text.contains("1 stopped or gone in the last 15 minutes"), "{text}");
    assert!(text.contains("third-house stopped – – –"), "{text}");
}

#[tokio::test]
async fn the_console_is_told_only_to_an_address_or_an_allowed_name_and_reads_alone() {
    let scene = Scene::new().await;
    let a = scene.replica().ready().await;
    for (host, status) in [("evil.example.org", 403), ("localhost", 200), ("127.0.0.1:1", 200)] {
        let request = client()
            .get(format!("http://{}/console/state", a.admin_address))
            .header("host", host);
        let answer = Answer::read(request.send().await.expect("an answer")).await;
        assert_eq!(answer.status, status, "{host}: {answer:?}");
    }
    for path in ["/console", "/console/state", "/console/request?request_id=k"] {
        let request = client().post(format!("http://{}{path}", a.admin_address));
        assert_eq!(request.send().await.expect("an answer").status(), 405, "{path}");
    }
    for (query, status) in [
        ("", 400),
        ("?request_id=", 400),
        ("?request_id=%00", 400),
        ("?request_id=unknown", 200),
    ] {
        let answer = a.admin(&format!("/console/request{query}")).await;
        assert_eq!(answer.status, status, "{query}: {answer:?}");
    }
    let page = a.admin("/console").await;
    let policy = page.headers["content-security-policy"].to_str().expect("text");
    assert!(policy.starts_with("default-src 'none'"), "{policy}");
}

#[tokio::test]
async fn where_nobody_is_asked_who_they_are_only_this_machine_is_an_operator() {
    let scene = Scene::new().await;
    let a = scene.replica().with("TRUSTED_PROXIES", "127.0.0.1/32").ready().await;
    for (caller, status) in [("203.0.113.9", 403), ("127.0.0.1", 200)] {
        let request = client()
            .get(format!("http://{}/console/state", a.admin_address))
            .header("x-forwarded-for", caller);
        let answer = Answer::read(request.send().await.expect("an answer")).await;
        assert_eq!(answer.status, status, "{caller}: {answer:?}");
    }
}

#[tokio::test]
async fn where_callers_are_asked_who_they_are_the_console_tells_operators_alone() {
    let scene = Scene::new().await;
    let writer = scene.token("writer", &["--scopes", "tickets:read,tickets:write"]).await;
    let operator = scene.token("operator", &["--scopes", "admin"]).await;
    let a = scene.replica().with("AUTH", "token").ready().await;
    // The page itself shows nothing, and asks for a token.
    assert_eq!(a.admin("/console").await.status, 200);
    for path in ["/console/state", "/console/request?request_id=k"] {
        assert_eq!(a.admin(path).await.status, 401, "{path}");
        for (token, status) in [(&writer, 403), (&operator, 200), (&"tl_none".to_owned(), 401)] {
            let request = client()
                .get(format!("http://{}{path}", a.admin_address))
                .header("authorization", format!("Bearer {token}"));
            assert_eq!(request.send().await.expect("an answer").status(), status, "{path}");
        }
    }
}
