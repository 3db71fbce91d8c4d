//! The traps of claiming in SQL: no statement waits for another request.

use futures_util::future::join_all;

use crate::support::eventually;
use crate::support::in_process::{Ending, InProcess, Knobs, note, notes};
use crate::support::scene::Scene;
use crate::support::stuck::Stuck;

/// Makes sure that nothing that this database's sessions run waits for a lock: twenty looks, each a statement of its own.
async fn nobody_waits_for_a_lock(scene: &Scene) {
    for _ in 0..20 {
        let waiting = scene
            .count(
                "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'",
            )
            .await;
        assert_eq!(waiting, 0, "a statement waits for a lock");
    }
}

const TOOLS: [&str; 2] = ["note", "note_slowly"];

#[tokio::test]
async fn a_claim_polls_beside_an_uncommitted_rival_and_executes_when_it_rolls_back() {
    let scene = Scene::new().await;
    let house = InProcess::start(&scene, Knobs::default()).await;
    for tool in TOOLS {
        let id = format!("k-{tool}");
        let mut rival = Stuck::on(&scene).await;
        rival.lock("anna", &id).await;
        sqlx::query(
            "insert into requests (principal, request_id, operation, fingerprint, status, token, attempt, created_at,
                                   claimed_at, settled_at, result, replica)
             values ('anna', $1, 'note', '\\x01', 'done', -1, 1, now(), now(), now(), '{}', 'rival')",
        )
        .bind(&id)
        .execute(&mut rival.0)
        .await
        .expect("inserts");
        let begun = house.script.begun();
        let waiter = house.spawn("anna", tool, note(&id));
        // Others' keys, and this principal's other keys, pass at once; in batches and alone.
        let others = join_all((0..20).map(|other| {
            let principal = ["anna", "ben"][other % 2];
            house.call(principal, tool, note(&format!("other-{tool}-{other}")))
        }))
        .await;
        assert!(others.iter().all(|told| told.what == "done"), "{others:?}");
        nobody_waits_for_a_lock(&scene).await;
        assert!(!waiter.is_finished(), "there is no row to answer from yet");
        rival.run("rollback").await;
        assert_eq!(waiter.await.expect("an answer").what, "done", "{tool}");
        assert!(house.script.begun() > begun);
        assert_eq!(scene.row(&id).await.expect("a row").replica, "in-process");
    }
    assert_eq!(notes(&scene).await, 42);
}

#[tokio::test]
async fn a_claim_beside_an_uncommitted_rival_replays_when_it_commits() {
    let scene = Scene::new().await;
    let house = InProcess::start(&scene, Knobs::default()).await;
    for tool in TOOLS {
        let id = format!("k-{tool}");
        // A settled row, taken away and put back by a transaction that is not committed yet.
        assert_eq!(house.call("anna", tool, note(&id)).await.what, "done");
        let kept = format!("kept_{tool}");
        sqlx::raw_sql(sqlx::AssertSqlSafe(format!(
            "create table {kept} as table requests; delete from requests where request_id = '{id}'"
        )))
        .execute(&scene.sql)
        .await
        .expect("takes it away");
        let mut rival = Stuck::on(&scene).await;
        rival.lock("anna", &id).await;
        sqlx::raw_sql(sqlx::AssertSqlSafe(format!(
            "insert into requests select * from {kept} where request_id = '{id}'"
        )))
        .execute(&mut rival.0)
        .await
        .expect("inserts");
        let waiter = house.spawn("anna", tool, note(&id));
        house.script.until_begun(1).await;
        assert_eq!(house.call("ben", tool, note(&id)).await.what, "done");
        nobody_waits_for_a_lock(&scene).await;
        assert!(!waiter.is_finished());
        rival.run("commit").await;
        assert_eq!(waiter.await.expect("an answer").what, "replayed", "{tool}");
    }
    assert_eq!(notes(&scene).await, 4);
}

#[tokio::test]
async fn a_claim_whose_key_is_locked_without_a_row_waits_alone() {
    let scene = Scene::new().await;
    let house = InProcess::start(&scene, Knobs::default()).await;
    let mut rival = Stuck::on(&scene).await;
    for tool in TOOLS {
        rival.lock("anna", tool).await;
    }
    let waiters: Vec<_> = TOOLS.iter().map(|tool| house.spawn("anna", tool, note(tool))).collect();
    for tool in TOOLS {
        let others = join_all((0..10).map(|other| house.call("ben", tool, note(&format!("{tool}-{other}")))));
        assert!(others.await.iter().all(|told| told.what == "done"));
    }
    nobody_waits_for_a_lock(&scene).await;
    assert!(waiters.iter().all(|waiter| !waiter.is_finished()));
    rival.run("rollback").await;
    for waiter in waiters {
        assert_eq!(waiter.await.expect("an answer").what, "done");
    }
}

#[tokio::test]
async fn a_committed_row_that_a_rival_updates_holds_up_neither_its_own_callers_nor_other_keys() {
    let scene = Scene::new().await;
    let house = InProcess::start(&scene, Knobs::default()).await;
    for tool in TOOLS {
        assert_eq!(house.call("anna", tool, note(tool)).await.what, "done");
    }
    let mut rival = Stuck::on(&scene).await;
    rival.run("update requests set replica = 'stuck'").await;
    for tool in TOOLS {
        // One batch with the locked key and others in it.
        let ids: Vec<_> = (0..10).map(|other| format!("{tool}-{other}")).collect();
        let calls = [("anna", tool)]
            .into_iter()
            .chain(ids.iter().map(|id| ("ben", id.as_str())))
            .map(|(principal, id)| house.call(principal, tool, note(id)));
        let told: Vec<_> = join_all(calls).await.into_iter().map(|told| told.what).collect();
        assert_eq!(told[0], "replayed");
        assert!(told[1..].iter().all(|what| *what == "done"), "{told:?}");
    }
    nobody_waits_for_a_lock(&scene).await;
    rival.run("rollback").await;
}

#[tokio::test]
async fn a_locked_row_does_not_hold_up_the_renewal_of_other_claims_nor_their_waiters() {
    let scene = Scene::new().await;
    let (holder, waiter) = (
        InProcess::start(&scene, Knobs::default()).await,
        InProcess::start(&scene, Knobs::default()).await,
    );
    let ids = ["a", "b", "c", "d"];
    for id in ids {
        holder.script.tell(id, Ending::Holds);
    }
    let work: Vec<_> = ids
        .iter()
        .map(|id| holder.spawn("anna", "note_slowly", note(id)))
        .collect();
    holder.script.until_begun(ids.len()).await;
    // The first in key order, where a renewal that waits would wait before it renews anything.
    let mut rival = Stuck::on(&scene).await;
    rival
        .run("update requests set replica = 'stuck' where request_id = 'a'")
        .await;
    let waits: Vec<_> = ids
        .iter()
        .map(|id| waiter.spawn("anna", "note_slowly", note(id)))
        .collect();
    let leases = "select count(*) from requests where lease_until > clock_timestamp() and request_id > 'a'";
    let renewals = "select extract(epoch from min(lease_until) - min(claimed_at))::bigint from requests
                    where request_id > 'a'";
    // Three leases long they stay alive.
    eventually("the others were renewed for three leases", || async {
        assert_eq!(scene.count(leases).await, 3, "a live claim lapsed");
        (scene.count(renewals).await >= 5).then_some(())
    })
    .await;
    for id in &ids[1..] {
        scene.until_waited_for(id).await;
        holder.script.tell(id, Ending::Goes);
    }
    for call in work.into_iter().skip(1).chain(waits.into_iter().skip(1)) {
        let told = call.await.expect("an answer").what;
        assert!(["done", "replayed"].contains(&told), "{told}");
    }
    assert_eq!(notes(&scene).await, 3);
    assert_eq!(scene.row("a").await.expect("a row").attempt, 1, "nobody took it over");
    rival.run("rollback").await;
}

#[tokio::test]
async fn renewing_registering_settling_and_releasing_are_heap_only_updates() {
    let scene = Scene::new().await;
    let (holder, waiter) = (
        InProcess::start(&scene, Knobs::default()).await,
        InProcess::start(&scene, Knobs::default()).await,
    );
    // Few enough that one renewal of all of them fits into what the fillfactor leaves free in a page.
    let ids = ["a", "b", "c", "d"];
    for id in ids {
        holder.script.tell(id, Ending::Holds);
    }
    let work: Vec<_> = ids
        .iter()
        .map(|id| holder.spawn("anna", "note_slowly", note(id)))
        .collect();
    holder.script.until_begun(ids.len()).await;
    let waits: Vec<_> = ids
        .iter()
        .map(|id| waiter.spawn("anna", "note_slowly", note(id)))
        .collect();
    for id in ids {
        scene.until_waited_for(id).await;
    }
    eventually("they were renewed", || async {
        let renewed = "select count(*) from requests where lease_until > claimed_at + interval '1.6 seconds'";
        (scene.count(renewed).await == 4).then_some(())
    })
    .await;
    for (place, id) in ids.into_iter().enumerate() {
        // Settling, and releasing; of what was released, reclaiming and settling by a waiter.
        holder.script.tell(id, [Ending::Goes, Ending::Refuses][place % 2]);
    }
    for call in work.into_iter().chain(waits) {
        call.await.expect("an answer");
    }
    // Statistics arrive a while after the fact: 4 registrations, 4 renewals at least, 4 ends, 2 reclaims and their ends.
    let updates = eventually("the updates are counted", || async {
        let updates: (i64, i64) =
            sqlx::query_as("select n_tup_upd, n_tup_hot_upd from pg_stat_user_tables where relname = 'requests'")
                .fetch_one(&scene.sql)
                .await
                .expect("statistics");
        (updates.0 >= 16).then_some(updates)
    })
    .await;
    assert_eq!(updates.0, updates.1, "an update touched an index");
}
