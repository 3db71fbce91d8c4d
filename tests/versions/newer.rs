//! This release on the schema of the next one, whose migration runs beneath it: an old replica during an update, or after it was
//! rolled back.

use std::time::Instant;

use serde_json::json;

use super::{is_replayed, start, use_everything};
use crate::support::DEADLINE;
use crate::support::calls::ticket;
use crate::support::scene::Scene;
use crate::support::schema::{apply, made_up, migrate, migrations};

/// The most that a migration may do at once: a column that old code leaves out in every table, one that it leaves at its
/// default, a table, an index, a function, and more values where a check names those that are allowed.
const NEXT_RELEASE: &str = "
    do $$
    declare
        name text;
    begin
        for name in select relname from pg_class
                    where relnamespace = 'public'::regnamespace and relkind = 'r' and relname <> '_sqlx_migrations'
        loop
            execute format('alter table %I add column noted_by_the_next text,
                                           add column counted_by_the_next integer not null default 7', name);
        end loop;
    end
    $$;
    create table watchers (
        ticket_id  text collate \"C\" not null references tickets,
        principal  text collate \"C\" not null,
        request_id text collate \"C\" not null,
        constraint watchers_request unique (principal, request_id)
    );
    create index tickets_by_status on tickets (ticket_status, created_at);
    create function of_the_next() returns integer language sql return 7;
    alter table requests drop constraint requests_status_check;
    alter table requests add constraint requests_status_check
        check (status in ('running', 'done', 'released', 'failed', 'outcome_unknown'));
    alter table past_attempts drop constraint past_attempts_ending_check;
    alter table past_attempts add constraint past_attempts_ending_check
        check (ending in ('lapsed', 'handed back', 'released', 'withdrawn'));";

/// What the next release's migration Job does: after a deadlock with the statements of old replicas it is started again.
async fn update(scene: &Scene) {
    let mut known = migrations().await;
    known.push(made_up(known.last().expect("migrations").version + 1, NEXT_RELEASE));
    let began = Instant::now();
    while let Err(error) = apply(&scene.url, known.clone()).await {
        assert!(
            error.to_string().contains("deadlock") && began.elapsed() < DEADLINE,
            "{error}"
        );
    }
}

#[tokio::test]
async fn a_release_goes_on_while_the_next_ones_migration_runs_beneath_it_and_can_be_started_on_it() {
    let scene = Scene::new().await;
    let old = start(&scene).ready().await;
    let before = use_everything(&old, "before").await;
    let slow = start(&scene).with("WORK_MS", 60_000).ready().await;
    let body = ticket("across", "Across");
    let lost = slow.http("POST", "/tickets", Some(&body));
    let rest = async {
        scene.until("across", "running").await;
        update(&scene).await;
        // Its holder renews on the new schema, all tools work, and what was written before is replayed.
        scene.until_renewed("across").await;
        let after = use_everything(&old, "after").await;
        // As does a replica that is started only now, as after a roll back.
        let late = start(&scene).with("WORK_MS", 10).ready().await;
        is_replayed(&late, &before).await;
        is_replayed(&late, &after).await;
        let rolled_back = use_everything(&late, "late").await;
        is_replayed(&old, &rolled_back).await;
        // A caller that joined what was begun before the update outlives its holder.
        let joined = async { late.create("across", "Across").await };
        let strike = async {
            scene.until_waited_for("across").await;
            slow.strike();
        };
        let (joined, ()) = tokio::join!(joined, strike);
        assert_eq!(
            (joined.status, &joined.body["replayed"]),
            (201, &json!(false)),
            "{joined:?}"
        );
        let row = scene.row("across").await.expect("a row");
        assert_eq!((row.status.as_str(), row.attempt, row.lapses), ("done", 2, 1));
        assert_eq!(old.admin("/readyz").await.status, 200);
    };
    let (lost, ()) = tokio::join!(lost, rest);
    assert!(lost.is_err(), "{lost:?}");
    // before, after, late and across.
    assert_eq!(scene.tickets().await, 4);
    let counted = "select count(*) from requests where counted_by_the_next = 7 and noted_by_the_next is null";
    assert_eq!(
        scene.count(counted).await,
        scene.count("select count(*) from requests").await
    );
}

#[tokio::test]
async fn migrate_of_an_old_release_leaves_the_next_ones_schema_as_it_is_and_operators_go_on() {
    let scene = Scene::new().await;
    update(&scene).await;
    let applied = "select count(*) * 1000000 + max(version) from _sqlx_migrations where success";
    let before = scene.count(applied).await;
    for _ in 0..2 {
        let output = migrate(&scene.url).await;
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{output:?}");
        assert_eq!(said, "The schema is up to date.\n");
    }
    assert_eq!(scene.count(applied).await, before);
    let replica = start(&scene).ready().await;
    let writes = use_everything(&replica, "now").await;
    let entry = writes[3].answer["id"].as_str().expect("an id");
    for arguments in [
        &["stop-writes"][..],
        &["allow-writes"],
        &["duplicates"],
        &["token", "issue", "nightly", "--scopes", "tickets:read"],
        &["token", "list"],
        &["hide", entry],
        &["unhide", entry],
        &["delete", entry, "--yes"],
        &["entries", "deleted"],
    ] {
        let (status, said, why) = scene.admin(arguments).await;
        assert_eq!(status, 0, "{arguments:?}: {said} {why}");
    }
}

#[tokio::test]
async fn a_request_in_a_state_that_only_the_next_release_knows_is_unavailable_here_and_never_run() {
    let scene = Scene::new().await;
    update(&scene).await;
    let replica = start(&scene).ready().await;
    assert_eq!(replica.create("k", "t").await.status, 201);
    let newer = "update requests set status = 'outcome_unknown', result = null where request_id = 'k'";
    sqlx::raw_sql(newer)
        .execute(&scene.sql)
        .await
        .expect("a newer release's row");
    let before = scene.row("k").await;
    for title in ["t", "another"] {
        let answer = replica.create("k", title).await;
        assert_eq!((answer.status, answer.code()), (503, "unavailable"), "{answer:?}");
    }
    let found = replica.find_answer("k").await;
    assert_eq!((found.status, found.code()), (503, "unavailable"), "{found:?}");
    assert_eq!(scene.row("k").await, before);
    assert_eq!(scene.tickets().await, 1);
}
