//! What an old release has written is read, replayed and finished by this one, from whichever schema it comes.

use futures_util::future::join_all;
use serde_json::json;
use ticket_ledger::operation::caller::ANONYMOUS;
use ticket_ledger::operation::key::{canonical, fingerprint};

use super::start;
use crate::support::scene::Scene;
use crate::support::schema::{migrate, migrations, scene_after};

/// A request in every state, as the first release wrote it.
const REQUESTS: &str = "
    with written as (
        insert into requests (principal, request_id, operation, fingerprint, status, token, attempt, lapses, lease_until,
                              waiters, arguments, result, created_at, claimed_at, settled_at, replica)
        select $1, id, 'create_ticket', $2, status, token, 1, lapses, lease_until,
               waiters, case when settled_at is null or status = 'failed' then $3 end, result, now() - age, now() - age, settled_at, 'old'
        from (values
            ('done', 'done', -1, 0, null::timestamptz, false, $4, interval '1 hour', now() - interval '1 hour'),
            ('expired', 'done', -2, 0, null, false, null, interval '8 days', now() - interval '8 days'),
            ('released', 'released', -3, 0, null, false, null, interval '1 hour', now() - interval '1 hour'),
            ('failed', 'failed', -4, 5, null, false, null, interval '1 hour', now() - interval '1 hour'),
            ('abandoned', 'running', -5, 0, now() - interval '1 hour', true, null, interval '1 hour', null),
            ('handed-back', 'running', -6, 0, '-infinity', false, null, interval '1 hour', null),
            ('held', 'running', -7, 0, now() + interval '1 second', true, null, interval '1 minute', null)
        ) as old (id, status, token, lapses, lease_until, waiters, result, age, settled_at)
        returning principal, request_id, status
    )
    insert into unsettled select principal, request_id from written where status = 'running'";

const TICKET: &str = "
    insert into tickets (ticket_id, title, body, ticket_status, created_at, principal, request_id)
    values ('T-000000000001', 'Old', 'A body.', 'open', now() - interval '1 hour', $1, 'done')";

/// The stored answer of `done`. Its bytes are nobody's but the old release's.
const RESULT: &str =
    r#"{"ticket_id" : "T-000000000001","title":"Old", "ticket_status":"open","created_at":"2026-01-01T00:00:00.000Z"}"#;

async fn fill(scene: &Scene, has_tickets: bool) {
    let arguments = canonical(&json!({ "title": "Old", "body": "A body." }));
    sqlx::query(REQUESTS)
        .bind(ANONYMOUS)
        .bind(fingerprint("create_ticket", &arguments).0.as_slice())
        .bind(&arguments)
        .bind(RESULT)
        .execute(&scene.sql)
        .await
        .expect("an old release's requests");
    if has_tickets {
        let ticket = sqlx::query(TICKET).bind(ANONYMOUS);
        ticket.execute(&scene.sql).await.expect("an old release's ticket");
    }
}

async fn is_understood(scene: &Scene, has_tickets: bool, told: &str) {
    let replica = start(scene).ready().await;
    let again = replica.create("done", "Old").await;
    assert_eq!(
        (again.status, &again.body["replayed"]),
        (200, &json!(true)),
        "{told}: {again:?}"
    );
    let stored: serde_json::Value = serde_json::from_str(RESULT).expect("JSON");
    for (member, value) in stored.as_object().expect("an object") {
        assert_eq!(&again.body[member], value, "{told}: {again:?}");
    }
    assert_eq!(
        replica.find("done").await["result"]["ticket_id"],
        "T-000000000001",
        "{told}"
    );
    if has_tickets {
        let read = replica.get("/tickets/T-000000000001").await;
        assert_eq!((read.status, read.text("title")), (200, "Old"), "{told}");
    }
    let conflict = replica.create("done", "New").await;
    assert_eq!((conflict.status, conflict.code()), (409, "conflict"), "{told}");
    let expired = replica.create("expired", "Old").await;
    assert_eq!((expired.status, expired.code()), (410, "expired"), "{told}");
    let failed = replica.create("failed", "Old").await;
    assert_eq!((failed.status, failed.code()), (409, "failed"), "{told}");
    let freed = replica.create("released", "Anything").await;
    assert_eq!(
        (freed.status, &freed.body["replayed"]),
        (201, &json!(false)),
        "{told}: {freed:?}"
    );
    let held = replica.create("held", "Old").await;
    assert_eq!(held.body["status"], "done", "{told}: {held:?}");
    // Nobody asks for these.
    for (request_id, lapses) in [("abandoned", 1), ("handed-back", 0), ("held", 1)] {
        let row = scene.until(request_id, "done").await;
        assert_eq!((row.attempt, row.lapses), (2, lapses), "{told}: {request_id}");
    }
    let (status, said, why) = scene.admin(&["retry", "failed"]).await;
    assert_eq!(status, 0, "{told}: {said} {why}");
    assert_eq!(replica.create("failed", "Old").await.body["status"], "done", "{told}");
}

#[tokio::test]
async fn requests_of_every_earlier_schema_are_replayed_finished_and_freed_after_the_migrations_that_follow() {
    let all = migrations().await.len();
    let from_each = (1..=all).map(|count| async move {
        let scene = scene_after(count).await;
        let has_tickets = count > 1;
        fill(&scene, has_tickets).await;
        assert!(migrate(&scene.url).await.status.success());
        is_understood(&scene, has_tickets, &format!("after {count} of {all} migrations")).await;
        // released, failed, abandoned, handed-back and held, and the one that was there.
        assert_eq!(scene.tickets().await, 5 + i64::from(has_tickets));
    });
    join_all(from_each).await;
}
