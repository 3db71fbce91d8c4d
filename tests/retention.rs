//! How long results and keys are kept, what is told afterwards, and how the sweep goes about it.

use std::time::{Duration, SystemTime};

use futures_util::future::join;
use serde_json::json;
use sqlx::AssertSqlSafe;
use uuid::{NoContext, Timestamp, Uuid};

use crate::support::calls::ticket;
use crate::support::in_process::{Ending, InProcess, Knobs, note, notes};
use crate::support::scene::Scene;
use crate::support::stuck::Stuck;
use crate::support::{DEADLINE, eventually};

const DAY: Duration = Duration::from_secs(24 * 3_600);

/// Lets a request have been settled this long ago.
async fn age(scene: &Scene, request_id: &str, interval: &str) {
    let sql = format!(
        "update requests set settled_at = clock_timestamp() - interval '{interval}',
                created_at = created_at - interval '{interval}' where request_id = '{request_id}'"
    );
    sqlx::raw_sql(AssertSqlSafe(sql))
        .execute(&scene.sql)
        .await
        .expect("time passes");
}

/// One round of the sweep with the default retention: (scrubbed, deleted, set aside). `again` lets the pause since the last
/// one have passed.
async fn sweep(scene: &Scene, again: bool) -> (i64, i64, i64) {
    if again {
        sqlx::raw_sql("update sweep set swept_at = '-infinity', next_page = 0")
            .execute(&scene.sql)
            .await
            .expect("time passes");
    }
    let days = |days: u64| (DAY * days as u32).as_millis() as i64;
    let round = sqlx::query_as("select scrubbed, deleted, set_aside from sweep_requests($1, $2, 2048, 720)")
        .bind(days(7))
        .bind(days(30))
        .fetch_one(&scene.sql);
    // A sweep that waits for somebody is a failure, not a test that never ends.
    let round = tokio::time::timeout(DEADLINE, round).await;
    round.expect("it waits for nobody").expect("sweeps")
}

fn uuid_v7(age: Duration) -> String {
    let then = SystemTime::now() - age;
    let since = then.duration_since(SystemTime::UNIX_EPOCH).expect("after 1970");
    Uuid::new_v7(Timestamp::from_unix(NoContext, since.as_secs(), since.subsec_nanos())).to_string()
}

#[tokio::test]
async fn results_are_kept_for_7_days_and_keys_for_30_and_a_repeat_in_between_is_expired() {
    let scene = Scene::new().await;
    let [replica] = scene.replicas().await;
    let first = replica.create("k", "t").await;
    age(&scene, "k", "6 days 23 hours").await;
    assert_eq!(sweep(&scene, true).await, (0, 0, 0));
    assert_eq!(
        replica.create("k", "t").await.text("ticket_id"),
        first.text("ticket_id")
    );
    // Past seven days it is expired at once, before any sweep came by, and after one.
    age(&scene, "k", "7 days 1 minute").await;
    for swept in [None, Some((1, 0, 0)), Some((0, 0, 0))] {
        if let Some(expected) = swept {
            assert_eq!(sweep(&scene, true).await, expected);
        }
        let again = replica.create("k", "t").await;
        assert_eq!((again.status, again.code()), (410, "expired"));
        assert_eq!(again.body["error"]["recorded"], true);
        let found = replica.find("k").await;
        assert_eq!((&found["status"], found.get("result")), (&json!("expired"), None));
        // The fingerprint is kept.
        assert_eq!(replica.create("k", "another").await.code(), "conflict");
    }
    age(&scene, "k", "29 days 23 hours").await;
    assert_eq!(sweep(&scene, true).await, (0, 0, 0));
    age(&scene, "k", "30 days 1 minute").await;
    assert_eq!(sweep(&scene, true).await, (0, 1, 0));
    assert_eq!(scene.row("k").await, None);
    assert_eq!(scene.tickets().await, 1, "retention is the ledger's, not the tickets'");
}

#[tokio::test]
async fn after_its_row_was_swept_the_second_guard_answers_expired_and_there_is_one_effect() {
    let scene = Scene::new().await;
    let house = InProcess::start(&scene, Knobs::default()).await;
    for tool in ["create_ticket", "note", "note_slowly"] {
        let arguments = || {
            if tool == "create_ticket" {
                ticket(tool, "t")
            } else {
                note(tool)
            }
        };
        assert_eq!(house.call("anna", tool, arguments()).await.what, "done");
        age(&scene, tool, "31 days").await;
        assert_eq!(sweep(&scene, true).await, (0, 1, 0));
        // A ticket's tool says that it is there; the notes' says nothing of it.
        let found = if tool == "create_ticket" { "expired" } else { "unknown" };
        assert_eq!(house.find("anna", tool).await["status"], found);
        for _ in 0..2 {
            let again = house.call("anna", tool, arguments()).await;
            assert_eq!(again.what, "expired", "{tool}: {again:?}");
            assert_eq!(again.body["error"]["recorded"], true);
        }
    }
    assert_eq!((scene.tickets().await, notes(&scene).await), (1, 2));
    // Another principal's same key is not guarded by it.
    assert_eq!(house.call("ben", "note", note("note")).await.what, "done");
}

#[tokio::test]
async fn a_uuidv7_older_than_20_days_without_a_row_is_never_run() {
    let scene = Scene::new().await;
    let house = InProcess::start(&scene, Knobs::default()).await;
    for tool in ["note", "note_slowly"] {
        let old = uuid_v7(DAY * 20 + Duration::from_secs(60));
        for _ in 0..2 {
            let told = house.call("anna", tool, note(&old)).await;
            assert_eq!(
                (told.what, &told.body["error"]["recorded"]),
                ("expired", &json!(false)),
                "{tool}"
            );
            let message = told.body["error"]["message"].as_str().expect("a message");
            assert!(
                message.contains("nothing is stored under this id and nothing was run"),
                "{message}"
            );
        }
        let upper = old.to_uppercase();
        assert_eq!(
            house.call("anna", tool, note(&upper)).await.what,
            "expired",
            "written in capitals"
        );
        let found = house.find("anna", &old).await;
        assert_eq!(
            (&found["status"], &found["recorded"]),
            (&json!("expired"), &json!(false))
        );
        // Younger, from the future (clocks are off), or not a UUIDv7 at all: it runs.
        for young in [
            uuid_v7(DAY * 20 - Duration::from_secs(600)),
            Uuid::now_v7().to_string(),
            Uuid::new_v4().to_string(),
            format!("{old}-1"),
            old.replace('-', ""),
        ] {
            assert_eq!(house.call("anna", tool, note(&young)).await.what, "done", "{young}");
        }
    }
    assert_eq!(notes(&scene).await, 10);
}

#[tokio::test]
async fn a_uuidv7_that_has_a_row_is_answered_by_its_row_however_old_it_is() {
    let scene = Scene::new().await;
    let house = InProcess::start(&scene, Knobs::default()).await;
    let id = uuid_v7(DAY * 19);
    assert_eq!(house.call("anna", "note", note(&id)).await.what, "done");
    let old = uuid_v7(DAY * 25);
    sqlx::query("update requests set request_id = $1")
        .bind(&old)
        .execute(&scene.sql)
        .await
        .expect("time passes");
    let arguments = json!({ "request_id": old, "text": id });
    assert_eq!(house.call("anna", "note", arguments).await.what, "replayed");
    assert_eq!(house.call("anna", "note", note(&old)).await.what, "conflict");
}

#[tokio::test]
async fn the_sweep_touches_only_settled_and_released_rows() {
    let scene = Scene::new().await;
    let house = InProcess::start(&scene, Knobs::default()).await;
    house.script.tell("running", Ending::Holds);
    house.script.tell("released", Ending::Refuses);
    house.script.tell("fresh", Ending::Refuses);
    let running = house.spawn("anna", "note_slowly", note("running"));
    scene.until("running", "running").await;
    for id in ["done", "recent", "released", "fresh", "failed"] {
        house.call("anna", "note_slowly", note(id)).await;
    }
    sqlx::raw_sql("update requests set status = 'failed', lapses = 5 where request_id = 'failed'")
        .execute(&scene.sql)
        .await
        .expect("fails it");
    for id in ["running", "done", "released", "failed"] {
        age(&scene, id, "400 days").await;
    }
    assert_eq!(sweep(&scene, true).await, (0, 2, 0));
    for (id, left) in [
        ("running", true),
        ("failed", true),
        ("recent", true),
        ("fresh", true),
        ("done", false),
        ("released", false),
    ] {
        assert_eq!(scene.row(id).await.is_some(), left, "{id}");
    }
    house.script.tell("running", Ending::Goes);
    assert_eq!(running.await.expect("an answer").what, "done");
}

#[tokio::test]
async fn one_bad_row_is_set_aside_and_the_rest_go_on() {
    let scene = Scene::new().await;
    let house = InProcess::start(&scene, Knobs::default()).await;
    for place in 0..20 {
        house.call("anna", "note", note(&format!("k{place:02}"))).await;
    }
    sqlx::raw_sql(
        "create function refuse() returns trigger language plpgsql as $$ begin raise 'not this one'; end $$;
         create trigger refuse before delete or update on requests for each row
         when (old.request_id in ('k05', 'k13')) execute function refuse();
         alter table requests disable trigger refuse",
    )
    .execute(&scene.sql)
    .await
    .expect("a trigger");
    for place in 0..20 {
        age(
            &scene,
            &format!("k{place:02}"),
            if place < 10 { "8 days" } else { "31 days" },
        )
        .await;
    }
    sqlx::raw_sql("alter table requests enable trigger refuse")
        .execute(&scene.sql)
        .await
        .expect("enables");
    // For ever: the bad ones do not stop later rounds either.
    assert_eq!(sweep(&scene, true).await, (9, 9, 2));
    assert_eq!(sweep(&scene, true).await, (0, 0, 2));
    assert!(scene.row("k13").await.is_some());
    assert_eq!(
        scene
            .count("select count(*) from requests where result is not null")
            .await,
        2
    );
}

#[tokio::test]
async fn a_row_that_is_locked_is_not_waited_for() {
    let scene = Scene::new().await;
    let house = InProcess::start(&scene, Knobs::default()).await;
    for id in ["a", "b", "c"] {
        house.call("anna", "note", note(id)).await;
        age(&scene, id, "31 days").await;
    }
    let mut rival = Stuck::on(&scene).await;
    rival
        .run("update requests set replica = 'stuck' where request_id = 'b'")
        .await;
    assert_eq!(sweep(&scene, true).await, (0, 2, 0));
    rival.run("rollback").await;
    assert_eq!(sweep(&scene, true).await, (0, 1, 0));
}

#[tokio::test]
async fn one_replica_sweeps_at_a_time_and_the_others_do_not_wait_for_it() {
    let scene = Scene::new().await;
    let house = InProcess::start(&scene, Knobs::default()).await;
    for place in 0..10 {
        let id = format!("k{place}");
        house.call("anna", "note", note(&id)).await;
        age(&scene, &id, "31 days").await;
    }
    let mut rival = Stuck::on(&scene).await;
    rival.run("select from sweep for update").await;
    // With a rival at it this one does nothing.
    assert_eq!(sweep(&scene, false).await, (0, 0, 0));
    rival.run("rollback").await;
    let (one, other) = join(sweep(&scene, false), sweep(&scene, false)).await;
    let mut rounds = [one, other];
    rounds.sort_unstable();
    assert_eq!(rounds, [(0, 0, 0), (0, 10, 0)]);
    // And not again a moment later.
    house.call("anna", "note", note("late")).await;
    age(&scene, "late", "31 days").await;
    assert_eq!(sweep(&scene, false).await, (0, 0, 0));
    assert_eq!(sweep(&scene, true).await, (0, 1, 0));
}

#[tokio::test]
async fn the_sweep_walks_the_whole_table_round_after_round() {
    let scene = Scene::new().await;
    sqlx::raw_sql(
        "insert into requests (principal, request_id, operation, fingerprint, status, token, attempt, created_at,
                               claimed_at, settled_at, result, replica)
         select 'anna', 'k' || n, 'note', '\\x01', 'done', -n, 1, now(), now(), now() - interval '31 days',
                repeat('x', 700), 'r'
         from generate_series(1, 400) n",
    )
    .execute(&scene.sql)
    .await
    .expect("rows");
    let mut rounds = 0;
    while scene.count("select count(*) from requests").await > 0 {
        // Five pages a round, each where the last one ended.
        sqlx::raw_sql("update sweep set swept_at = '-infinity'; select sweep_requests(604800000, 2592000000, 5, 720)")
            .execute(&scene.sql)
            .await
            .expect("sweeps");
        rounds += 1;
        assert!(rounds < 60, "it does not get to the end");
    }
    assert!(rounds > 5, "it walked everything at once, in {rounds} rounds");
}

#[tokio::test]
async fn a_ledger_sweeps_by_itself() {
    let scene = Scene::new().await;
    let mut knobs = Knobs::default();
    knobs.limits.keep_results = Duration::from_secs(2);
    knobs.limits.keep_keys = Duration::from_secs(5);
    let house = InProcess::start(&scene, knobs).await;
    house.call("anna", "note", note("k")).await;
    eventually("its result is gone", || async {
        let scrubbed = "select count(*) from requests where result is null";
        (scene.count(scrubbed).await == 1).then_some(())
    })
    .await;
    eventually("its key is gone", || async {
        scene.row("k").await.is_none().then_some(())
    })
    .await;
    assert_eq!(house.call("anna", "note", note("k")).await.what, "expired");
}
