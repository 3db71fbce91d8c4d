//! Tokens of this service's own: issued, rotated, revoked, and what they allow.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{TICKETS, is_forbidden, is_unauthenticated};
use crate::support::calls::{Answer, client, ticket};
use crate::support::eventually;
use crate::support::raw::Raw;
use crate::support::replica::Replica;
use crate::support::scene::Scene;

const VOID: Option<&str> = Some("the token is unknown, expired or revoked");

pub async fn replica(scene: &Scene) -> Replica {
    scene.replica().with("AUTH", "token").ready().await
}

#[tokio::test]
async fn a_token_lets_its_bearer_in_by_both_ways_and_nothing_else_does() {
    let scene = Scene::new().await;
    let replica = replica(&scene).await;
    let token = scene.token("ci", &TICKETS).await;
    assert!(token.starts_with("ticketledger_") && token.len() == 56, "{token}");
    let created = replica.by(&token).create("k", "Let in").await;
    assert_eq!(created.status, 201, "{created:?}");
    let again = replica.by(&token).tool("create_ticket", ticket("k", "Let in")).await;
    assert_eq!(again["replayed"], true);
    assert_eq!(
        scene
            .count("select count(*) from requests where principal = 'token:ci'")
            .await,
        1
    );

    is_unauthenticated(&replica.by_nobody().create("x", "No").await, None);
    is_unauthenticated(&replica.by_nobody().mcp("create_ticket", ticket("x", "No")).await, None);
    let other = format!("{token}x");
    let cut = &token[..token.len() - 1];
    for wrong in [
        other.as_str(),
        cut,
        "ticketledger_",
        "ticketledger_'; drop table tokens; --",
        "eyJhbGciOiJub25lIn0.e30.",
    ] {
        let unreadable = wrong.contains('\'').then_some("the token cannot be read");
        is_unauthenticated(&replica.by(wrong).create("x", "No").await, unreadable.or(VOID));
        is_unauthenticated(
            &replica.by(wrong).mcp("create_ticket", ticket("x", "No")).await,
            unreadable.or(VOID),
        );
    }
    assert_eq!(scene.tickets().await, 1);
    let logged = format!("{:?}", replica.log());
    assert!(!logged.contains(&token) && !logged.contains("token:ci"), "{logged}");
}

#[tokio::test]
async fn a_token_is_taken_from_its_header_alone() {
    let scene = Scene::new().await;
    let replica = replica(&scene).await;
    let token = scene.token("ci", &TICKETS).await;
    let url = |path: &str| format!("http://{}{path}?access_token={token}", replica.address);
    for path in ["/api/v1/tickets", "/mcp"] {
        for named in [false, true] {
            let mut request = client().get(url(path));
            if named {
                request = request.header("authorization", format!("Bearer {token}"));
            }
            let answer = Answer::read(request.send().await.expect("an answer")).await;
            assert_eq!((answer.status, answer.code()), (400, "invalid_argument"), "{answer:?}");
            assert!(answer.challenge().contains("error=\"invalid_request\""), "{answer:?}");
        }
    }
    let get = |value: &str| Raw::new("GET", "/api/v1/tickets").header("authorization", value);
    for (value, status) in [
        (format!("Bearer {token}"), 200),
        (format!("bearer   {token} "), 200),
        (format!("Basic {token}"), 401),
        (token.clone(), 401),
        ("Bearer".to_owned(), 401),
        ("Bearer ".to_owned(), 401),
        (format!("Bearer {token} {token}"), 401),
        (format!("Bearer {token},Bearer {token}"), 401),
        ("Bearer \u{e9}".to_owned(), 401),
        (format!("Bearer {}", "x".repeat(30_000)), 401),
    ] {
        let answer = get(&value).send(&replica).await;
        assert_eq!(answer.status, status, "{value}: {answer:?}");
    }
    let twice = get(&format!("Bearer {token}")).and_header("authorization", format!("Bearer {token}"));
    assert_eq!(twice.send(&replica).await.status, 400);
}

#[tokio::test]
async fn tools_are_listed_and_called_by_scope() {
    let scene = Scene::new().await;
    let replica = replica(&scene).await;
    let reader = scene.token("reader", &["--scopes", "tickets:read,entries:write"]).await;
    let writer = scene.token("writer", &["--scopes", "tickets:write"]).await;
    let operator = scene.token("operator", &["--scopes", "admin"]).await;
    let (reader, writer, operator) = (replica.by(&reader), replica.by(&writer), replica.by(&operator));
    let ledger = ["find_request", "new_request_id"];
    let listed = |tools: &[&'static str]| [&ledger[..], tools].concat();
    assert_eq!(reader.tools().await, listed(&["get_ticket", "list_tickets"]));
    let writes = ["create_ticket", "set_ticket_status", "add_comment"];
    assert_eq!(writer.tools().await, listed(&writes));
    assert_eq!(operator.tools().await, ledger);

    is_forbidden(
        &reader.create("k", "No").await,
        "tickets:read tickets:write entries:write",
    );
    is_forbidden(
        &reader.mcp("create_ticket", ticket("k", "No")).await,
        "tickets:read tickets:write entries:write",
    );
    is_forbidden(
        &writer.http("GET", "/tickets", None).await,
        "tickets:read tickets:write",
    );
    is_forbidden(
        &writer.mcp("list_tickets", json!({})).await,
        "tickets:read tickets:write",
    );
    is_forbidden(
        &operator.mcp("create_ticket", ticket("k", "No")).await,
        "tickets:write admin",
    );
    // Before its arguments are looked at.
    is_forbidden(
        &reader.mcp("create_ticket", json!({})).await,
        "tickets:read tickets:write entries:write",
    );
    assert_eq!(writer.create("k", "Yes").await.status, 201);
    assert_eq!(
        reader.http("GET", "/tickets", None).await.body["tickets"][0]["title"],
        "Yes"
    );
    assert_eq!(
        reader.tool("new_request_id", json!({})).await["request_id"]
            .as_str()
            .map(str::len),
        Some(36)
    );
    assert_eq!(scene.tickets().await, 1);
}

#[tokio::test]
async fn a_replay_is_authorised_anew_and_its_result_is_not_found_either() {
    let scene = Scene::new().await;
    let replica = replica(&scene).await;
    let before = scene.token("ci", &TICKETS).await;
    let first = replica.by(&before).create("k", "Once").await;
    assert_eq!(first.status, 201);
    assert!(replica.by(&before).find("k").await["result"].is_object());
    // The same name, and so the same principal, with less.
    let after = scene.token("ci", &["--scopes", "tickets:read"]).await;
    let now = replica.by(&after);
    is_forbidden(&now.create("k", "Once").await, "tickets:read tickets:write");
    is_forbidden(
        &now.mcp("create_ticket", ticket("k", "Once")).await,
        "tickets:read tickets:write",
    );
    let found = now.find("k").await;
    assert_eq!(
        (&found["status"], &found["result"]),
        (&json!("done"), &Value::Null),
        "{found}"
    );
    assert_eq!(scene.tickets().await, 1);
}

#[tokio::test]
async fn a_token_is_revoked_on_every_replica_within_a_second_and_its_name_is_never_used_again() {
    let scene = Scene::new().await;
    let replicas = [replica(&scene).await, replica(&scene).await, replica(&scene).await];
    let token = scene.token("ci", &TICKETS).await;
    for replica in &replicas {
        assert_eq!(replica.by(&token).http("GET", "/tickets", None).await.status, 200);
    }
    // In steady use, so that it is remembered everywhere.
    let used = async {
        let mut refused = 0;
        while refused < replicas.len() {
            refused = 0;
            for replica in &replicas {
                refused += usize::from(replica.by(&token).http("GET", "/tickets", None).await.status == 401);
            }
        }
        Instant::now()
    };
    let revoked = async {
        let (status, said, _) = scene.admin(&["token", "revoke", "ci"]).await;
        assert_eq!(status, 0, "{said}");
        Instant::now()
    };
    let (refused, revoked) = tokio::join!(used, revoked);
    let late = refused.saturating_duration_since(revoked);
    assert!(late < Duration::from_secs(1), "{late:?}");
    is_unauthenticated(&replicas[0].by(&token).create("x", "No").await, VOID);

    let (status, said, _) = scene.admin(&["token", "revoke", "ci"]).await;
    assert!(status == 0 && said.contains("already"), "{said}");
    let (status, _, said) = scene.admin(&["token", "revoke", "nobody"]).await;
    assert!(status == 1 && said.contains("there is no token nobody"), "{said}");
    let (status, printed, said) = scene.admin(&["token", "issue", "ci", "--scopes", "tickets:read"]).await;
    assert!(
        status == 1 && said.contains("never used again") && printed.is_empty(),
        "{said}"
    );
    let audited: Vec<(String, String)> =
        sqlx::query_as("select action, outcome from audit where subject = 'ci' order by id")
            .fetch_all(&scene.sql)
            .await
            .expect("rows");
    let audited: Vec<_> = audited
        .iter()
        .map(|(action, outcome)| (action.as_str(), outcome.as_str()))
        .collect();
    let expected = [
        ("token issue", "new"),
        ("token revoke", "revoked"),
        ("token revoke", "already so"),
        ("token issue", "revoked"),
    ];
    assert_eq!(audited, expected);
}

#[tokio::test]
async fn issuing_for_a_known_name_rotates_and_nothing_that_is_secret_is_kept() {
    let scene = Scene::new().await;
    let replica = replica(&scene).await;
    let first = scene
        .token(
            "ci",
            &[&TICKETS[..], &["--for", "https://id.example.org", "anna"]].concat(),
        )
        .await;
    assert_eq!(replica.by(&first).create("k", "Anna's").await.status, 201);
    let second = scene.token("ci", &[]).await;
    eventually("the former token is void", || async {
        (replica.by(&first).http("GET", "/tickets", None).await.status == 401).then_some(())
    })
    .await;
    let again = replica.by(&second).create("k", "Anna's").await;
    assert_eq!(
        (again.status, &again.body["replayed"]),
        (200, &json!(true)),
        "the same principal, the same scopes"
    );
    let others = scene
        .admin(&["token", "issue", "ci", "--for", "https://id.example.org", "bert"])
        .await;
    assert!(
        others.0 == 1 && others.2.contains("speaks for somebody else"),
        "{others:?}"
    );
    let none = scene.admin(&["token", "issue", "new"]).await;
    assert!(none.0 == 2 && none.2.contains("needs --scopes"), "{none:?}");
    let odd = scene
        .admin(&["token", "issue", "a b", "--scopes", "tickets:read"])
        .await;
    assert!(odd.0 == 2 && odd.2.contains("1 to 64 letters"), "{odd:?}");
    let unknown = scene.admin(&["token", "issue", "c", "--scopes", "tickets:all"]).await;
    assert_eq!(unknown.0, 2, "{unknown:?}");

    let (_, listed, _) = scene.admin(&["token", "list", "--json"]).await;
    let listed: Value = serde_json::from_str(&listed).expect("JSON");
    assert_eq!(
        listed["tokens"][0]["principal"],
        r#"oauth:["https://id.example.org","anna"]"#
    );
    assert_eq!(listed["tokens"][0]["state"], "valid");
    let kept: String = sqlx::query_scalar(
        "select string_agg(t::text, ' ') || (select string_agg(a::text, ' ') from audit a) from tokens t",
    )
    .fetch_one(&scene.sql)
    .await
    .expect("a text");
    for secret in [&first, &second] {
        let secret = secret.trim_start_matches("ticketledger_");
        assert!(!kept.contains(secret) && !listed.to_string().contains(secret), "{kept}");
    }
}

#[tokio::test]
async fn a_token_expires_by_the_databases_clock() {
    let scene = Scene::new().await;
    let replica = replica(&scene).await;
    let token = scene
        .token("ci", &[&TICKETS[..], &["--expires-in", "1"]].concat())
        .await;
    assert_eq!(replica.by(&token).http("GET", "/tickets", None).await.status, 200);
    sqlx::query("update tokens set expires_at = clock_timestamp() + interval '700 milliseconds'")
        .execute(&scene.sql)
        .await
        .expect("updates");
    let began = Instant::now();
    eventually("it has expired", || async {
        (replica.by(&token).http("GET", "/tickets", None).await.status == 401).then_some(())
    })
    .await;
    // Half a second for what was remembered before the update.
    assert!(began.elapsed() < Duration::from_millis(1_900), "{:?}", began.elapsed());
    let (_, listed, _) = scene.admin(&["token", "list"]).await;
    assert!(listed.contains("ci  expired"), "{listed}");
}
