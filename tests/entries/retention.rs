//! Retention takes entries and records of deletions away, in bounded pieces, and one bad row stops nothing.

use std::time::Duration;

use ticket_ledger::ledger::Upkeep;
use ticket_ledger::operation::entries::{Board, OldEntries};

use crate::support::in_process::{InProcess, Knobs};
use crate::support::scene::Scene;

const HOUR: Duration = Duration::from_secs(3_600);

async fn fill(scene: &Scene) {
    const SQL: &str = "
        insert into entries (entry_id, type, title, body, actor_name, actor_model, actor_trigger, submission_mode, saved_via,
                             created_at, principal, request_id)
        select 'E-' || n, 'question', 't', 'b', 'n', 'm', 't', 'm', 'http',
               clock_timestamp() - case when n <= 1200 then interval '3 hours' else interval '1 hour' end, 'anna', 'e-' || n
        from generate_series(1, 1300) n;
        insert into deleted_entries (entry_id, type, created_at, deleted_at, principal, request_id)
        select 'D-' || n, 'question', clock_timestamp() - interval '9 hours',
               clock_timestamp() - case when n <= 600 then interval '5 hours' else interval '3 hours' end, 'anna', 'd-' || n
        from generate_series(1, 700) n;
        create function object() returns trigger language plpgsql as $$ begin raise 'no'; end $$;
        create trigger object before delete on entries for each row when (old.entry_id = 'E-7') execute function object();
        create trigger object before delete on deleted_entries for each row when (old.entry_id = 'D-7')
            execute function object()";
    sqlx::raw_sql(SQL).execute(&scene.sql).await.expect("fills");
}

#[tokio::test]
async fn what_is_past_its_retention_goes_and_a_row_that_cannot_go_stops_nothing() {
    let scene = Scene::new().await;
    let house = InProcess::start(&scene, Knobs::default()).await;
    fill(&scene).await;
    let chore = OldEntries {
        board: Board {
            public_url: "http://localhost".into(),
            keep_entries: HOUR * 2,
            keep_deletions: HOUR * 4,
        },
    };
    let database = house.service.ledger.database();
    assert_eq!(chore.run(database).await.expect("runs"), 1_199 + 599);
    assert_eq!(chore.run(database).await.expect("runs"), 0);
    for (sql, left) in [
        (
            "select count(*) from entries where created_at < clock_timestamp() - interval '2 hours'",
            1,
        ),
        ("select count(*) from entries", 101),
        (
            "select count(*) from deleted_entries where deleted_at < clock_timestamp() - interval '4 hours'",
            1,
        ),
        ("select count(*) from deleted_entries", 101),
    ] {
        assert_eq!(scene.count(sql).await, left, "{sql}");
    }
}

#[tokio::test]
async fn a_row_that_is_in_use_is_left_for_the_next_time_and_not_waited_for() {
    let scene = Scene::new().await;
    let house = InProcess::start(&scene, Knobs::default()).await;
    fill(&scene).await;
    let mut stuck = crate::support::stuck::Stuck::on(&scene).await;
    stuck
        .run("select * from entries where entry_id = 'E-1' for update")
        .await;
    let chore = OldEntries {
        board: Board {
            public_url: "http://localhost".into(),
            keep_entries: HOUR * 2,
            keep_deletions: HOUR * 4,
        },
    };
    let database = house.service.ledger.database();
    let run = tokio::time::timeout(crate::support::DEADLINE, chore.run(database)).await;
    assert_eq!(run.expect("it waits for nobody").expect("runs"), 1_198 + 599);
    stuck.run("rollback").await;
    assert_eq!(chore.run(database).await.expect("runs"), 1);
}
