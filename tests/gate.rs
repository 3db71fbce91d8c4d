//! What an unsaved write has to pass beside its own operation's conditions: the limit of its source, the write stop, the limit on
//! all writes. In this order, over all replicas.

use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::join_all;
use serde_json::json;
use ticket_ledger::ledger::{Limits, set_write_stop};

use crate::support::eventually;
use crate::support::in_process::{Ending, InProcess, Knobs, note, notes};
use crate::support::scene::Scene;
use crate::support::stuck::Stuck;

fn limited(units_per_hour: i64, most_writes_per_hour: i64) -> Knobs {
    let knobs = Knobs::default();
    Knobs {
        units_per_hour,
        limits: Limits {
            most_writes_per_hour,
            ..knobs.limits
        },
        ..knobs
    }
}

async fn switch(house: &InProcess, stopped: bool) -> bool {
    set_write_stop(house.service.ledger.database(), stopped, "test")
        .await
        .expect("the stop is switched")
}

#[tokio::test]
async fn a_saved_request_is_replayed_while_writes_are_stopped_and_an_unsaved_one_is_refused() {
    let scene = Scene::new().await;
    let house = InProcess::start(&scene, Knobs::default()).await;
    for tool in ["note", "note_slowly"] {
        let (saved, unsaved) = (format!("saved-{tool}"), format!("unsaved-{tool}"));
        assert_eq!(house.call("anna", tool, note(&saved)).await.what, "done");
        assert!(switch(&house, true).await);
        assert!(!switch(&house, true).await, "already so");
        assert_eq!(house.call("anna", tool, note(&saved)).await.what, "replayed");
        let mut other = note(&saved);
        other["text"] = json!("something else");
        assert_eq!(house.call("anna", tool, other).await.what, "conflict");
        let refused = house.call("anna", tool, note(&unsaved)).await;
        assert_eq!(refused.what, "writes_disabled", "{refused:?}");
        assert!(refused.body["error"]["retry_after_seconds"].as_u64().is_some());
        assert_eq!(house.find("anna", &unsaved).await["status"], "unknown");
        assert!(switch(&house, false).await);
        assert_eq!(house.call("anna", tool, note(&unsaved)).await.what, "done");
    }
    assert_eq!(notes(&scene).await, 4);
    assert_eq!(
        scene
            .count("select count(*) from audit where action = 'stop-writes'")
            .await,
        4
    );
}

#[tokio::test]
async fn a_released_request_is_refused_while_writes_are_stopped_and_runs_afterwards() {
    let scene = Scene::new().await;
    let house = InProcess::start(&scene, Knobs::default()).await;
    house.script.tell("k", Ending::Refuses);
    let refused = house.call("anna", "note_slowly", note("k")).await;
    assert!(
        scene.row("k").await.is_some_and(|row| row.status == "released"),
        "{refused:?}"
    );
    house.script.tell("k", Ending::Goes);
    switch(&house, true).await;
    assert_eq!(
        house.call("anna", "note_slowly", note("k")).await.what,
        "writes_disabled"
    );
    switch(&house, false).await;
    assert_eq!(house.call("anna", "note_slowly", note("k")).await.what, "done");
}

#[tokio::test]
async fn nothing_is_saved_once_the_stop_has_been_told() {
    let scene = Scene::new().await;
    let houses = [
        InProcess::start(&scene, Knobs::default()).await,
        InProcess::start(&scene, Knobs::default()).await,
    ];
    for round in 0..5 {
        let calls: Vec<_> = (0..200)
            .map(|call| {
                let tool = if call % 4 == 0 { "note_slowly" } else { "note" };
                houses[call % 2].spawn("anna", tool, note(&format!("{round}-{call}")))
            })
            .collect();
        eventually("a few are saved", || async { (notes(&scene).await > 0).then_some(()) }).await;
        switch(&houses[0], true).await;
        let told = notes(&scene).await;
        let answers = join_all(calls).await;
        let done = answers
            .iter()
            .filter(|told| told.as_ref().expect("an answer").what == "done")
            .count();
        let refused = answers
            .iter()
            .filter(|told| told.as_ref().expect("an answer").what == "writes_disabled")
            .count();
        assert_eq!(done + refused, 200);
        assert_eq!(notes(&scene).await, told, "saved after the stop was told");
        sqlx::query("delete from notes")
            .execute(&scene.sql)
            .await
            .expect("deletes");
        switch(&houses[0], false).await;
    }
}

#[tokio::test]
async fn the_global_limit_is_exact_over_replicas_and_says_when_to_come_back() {
    let scene = Scene::new().await;
    let houses = [
        InProcess::start(&scene, limited(0, 25)).await,
        InProcess::start(&scene, limited(0, 25)).await,
    ];
    let answers = join_all((0..60).map(|call| {
        let tool = if call % 3 == 0 { "note_slowly" } else { "note" };
        houses[call % 2].call("anna", tool, note(&format!("k-{call}")))
    }))
    .await;
    let done = answers.iter().filter(|told| told.what == "done").count();
    assert_eq!(done, 25, "{answers:?}");
    assert_eq!(notes(&scene).await, 25);
    let limited: Vec<_> = answers.iter().filter(|told| told.what == "rate_limited").collect();
    assert_eq!(limited.len(), 35);
    for told in limited {
        assert_eq!(told.body["error"]["limit"], "global");
        let seconds = told.body["error"]["retry_after_seconds"].as_u64().expect("seconds");
        assert!((1..=3_600).contains(&seconds), "{seconds}");
    }
    // The next hour of the database's clock has units of its own.
    sqlx::query("update saved_writes set hour = hour - interval '1 hour'")
        .execute(&scene.sql)
        .await
        .expect("updates");
    assert_eq!(houses[0].call("anna", "note", note("next-hour")).await.what, "done");
}

/// Puts this database's hour into a table, so that it can be over while somebody waits.
async fn own_the_hour(scene: &Scene) {
    let sql = "create table the_hour as select date_trunc('hour', clock_timestamp(), 'UTC') as hour;
        create or replace function this_hour() returns timestamptz language sql volatile strict return (select hour from the_hour)";
    sqlx::raw_sql(sql).execute(&scene.sql).await.expect("replaced");
}

async fn move_the_hour(scene: &Scene, by: i32) {
    sqlx::query("update the_hour set hour = hour + $1 * interval '1 hour'")
        .bind(by)
        .execute(&scene.sql)
        .await
        .expect("moved");
}

#[tokio::test]
async fn who_waits_for_the_count_across_the_edge_of_an_hour_is_counted_in_the_hour_that_comes() {
    for (limits, held) in [
        (limited(0, 5), "select from saved_writes for update"),
        (limited(5, 0), "select from source_units for update"),
    ] {
        let scene = Scene::new().await;
        let house = InProcess::start(&scene, limits).await;
        own_the_hour(&scene).await;
        for call in 0..5 {
            let told = house.call("anna", "note", note(&format!("old-{call}"))).await;
            assert_eq!(told.what, "done", "{told:?}");
        }
        let told = house.call("anna", "note", note("too many")).await;
        assert_eq!(told.what, "rate_limited", "{told:?}");
        let mut holder = Stuck::on(&scene).await;
        holder.run(held).await;
        let waiting = join_all((0..4).map(|call| house.call("anna", "note", note(&format!("edge-{call}"))).boxed()));
        let edge = async {
            eventually("a call waits for the count", || async {
                let waiting = "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()";
                (scene.count(waiting).await > 0).then_some(())
            })
            .await;
            move_the_hour(&scene, 1).await;
            holder.run("commit").await;
        };
        let (waited, ()) = tokio::join!(waiting, edge);
        assert!(waited.iter().all(|told| told.what == "done"), "{held}: {waited:?}");
        // One is left of the new hour's five, and none when the clock is set back across its edge.
        assert_eq!(house.call("anna", "note", note("new-1")).await.what, "done");
        assert_eq!(house.call("anna", "note", note("new-2")).await.what, "rate_limited");
        move_the_hour(&scene, -1).await;
        assert_eq!(house.call("anna", "note", note("back")).await.what, "rate_limited");
        // A clock that was far ahead does not stop writes until then.
        move_the_hour(&scene, -30).await;
        assert_eq!(house.call("anna", "note", note("right again")).await.what, "done");
        assert_eq!(notes(&scene).await, 11);
    }
}

#[tokio::test]
async fn a_source_uses_a_unit_for_repeats_and_conflicts_and_none_for_bad_arguments_and_reads() {
    let scene = Scene::new().await;
    let house = InProcess::start(&scene, limited(3, 0)).await;
    assert_eq!(house.call("anna", "note", note("k")).await.what, "done");
    assert_eq!(
        house.call("anna", "note", json!({ "request_id": "k" })).await.what,
        "invalid_argument"
    );
    assert_eq!(house.find("anna", "k").await["status"], "done");
    assert_eq!(house.call("anna", "note", note("k")).await.what, "replayed");
    let mut other = note("k");
    other["text"] = json!("something else");
    assert_eq!(house.call("anna", "note", other).await.what, "conflict");
    let used_up = house.call("anna", "note", note("k")).await;
    assert_eq!(used_up.what, "rate_limited", "{used_up:?}");
    assert_eq!(used_up.body["error"]["limit"], "source");
    // Another source has its own, and a limited one may still read.
    assert_eq!(house.call("ben", "note", note("k")).await.what, "done");
    assert_eq!(house.find("anna", "k").await["status"], "done");
    // The next hour.
    sqlx::query("update source_units set hour = hour - interval '1 hour'")
        .execute(&scene.sql)
        .await
        .expect("updates");
    assert_eq!(house.call("anna", "note", note("k")).await.what, "replayed");
}

#[tokio::test]
async fn the_limit_of_a_source_comes_before_the_stop_and_holds_over_replicas() {
    let scene = Scene::new().await;
    let houses = [
        InProcess::start(&scene, limited(10, 0)).await,
        InProcess::start(&scene, limited(10, 0)).await,
    ];
    let answers = join_all((0..30).map(|call| houses[call % 2].call("anna", "note", note(&format!("k-{call}"))))).await;
    assert_eq!(answers.iter().filter(|told| told.what == "done").count(), 10);
    switch(&houses[0], true).await;
    assert_eq!(houses[0].call("anna", "note", note("k-99")).await.what, "rate_limited");
    assert_eq!(
        houses[0].call("ben", "note", note("k-99")).await.what,
        "writes_disabled"
    );
}

#[tokio::test]
async fn a_stop_that_has_to_wait_for_a_stuck_write_says_so_and_changes_nothing() {
    let scene = Scene::new().await;
    let house = InProcess::start(
        &scene,
        Knobs {
            lock_limit: Duration::from_millis(200),
            ..Knobs::default()
        },
    )
    .await;
    let mut stuck = Stuck::on(&scene).await;
    stuck.run("select * from pass_gate(0, 0)").await;
    let refused = set_write_stop(house.service.ledger.database(), true, "test").await;
    assert!(refused.is_err(), "{refused:?}");
    assert_eq!(house.call("anna", "note", note("k")).await.what, "done");
    stuck.run("rollback").await;
    assert!(switch(&house, true).await);
}
