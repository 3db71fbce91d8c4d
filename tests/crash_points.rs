//! A replica that dies, or stands still past its lease, before or after any commit: one effect, one answer.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use serde_json::Value;
use ticket_ledger::fault::POINTS;

use crate::support::DEADLINE;
use crate::support::calls::ticket;
use crate::support::replica::{LEASE_MS, Replica};
use crate::support::scene::Scene;

const REQUEST: &str = "walked";
/// How long an impatient client waits before it leaves and asks another replica: less than a lease.
const IMPATIENCE: Duration = Duration::from_millis(700);
/// A few walks at once: most of each is waiting for a lease.
const AT_ONCE: usize = 3;

#[derive(Debug, Clone, Copy, PartialEq)]
enum Fault {
    Exit,
    Stop,
}

#[tokio::test]
async fn a_replica_that_dies_at_any_point_leaves_one_effect_and_one_answer() {
    walk_all(Fault::Exit).await;
}

#[tokio::test]
async fn a_replica_that_stands_still_at_any_point_past_its_lease_leaves_one_effect_and_one_answer() {
    walk_all(Fault::Stop).await;
}

async fn walk_all(fault: Fault) {
    futures_util::stream::iter(POINTS)
        .for_each_concurrent(AT_ONCE, |point| walk(point, fault))
        .await;
}

/// One point: a call on a replica with the fault, repeated on two others by a client that does not like to wait.
async fn walk(point: &'static str, fault: Fault) {
    let scene = Scene::new().await;
    let family = point.split('.').next().expect("a family");
    let faulty = start_faulty(&scene, point, family, fault).await;
    let others = match family {
        // They would take the claim over before the replica with the fault does.
        "take_over" => None,
        _ => Some(start_others(&scene, family).await),
    };
    if family == "take_over" {
        leave_a_claim_behind(&scene).await;
    }
    if family == "release" {
        sqlx::raw_sql("alter table tickets add constraint refuses_all check (false) not valid")
            .execute(&scene.sql)
            .await
            .expect("alters");
    }
    let body = ticket(REQUEST, "Walked");
    let call = faulty.http("POST", "/tickets", Some(&body));
    let repeats = async {
        if family == "hand_back" {
            scene.until(REQUEST, "running").await;
            faulty.terminate();
        }
        at_the_point(&faulty, fault).await;
        let stopped = Instant::now();
        if family == "release" {
            sqlx::raw_sql("alter table tickets drop constraint refuses_all")
                .execute(&scene.sql)
                .await
                .expect("alters");
        }
        let others = match others {
            Some(others) => others,
            None => start_others(&scene, family).await,
        };
        let answers = [
            until_done(&others).await,
            until_done(&others[..1]).await,
            until_done(&others[1..]).await,
        ];
        if fault == Fault::Stop {
            let past = Duration::from_millis(LEASE_MS + 200);
            tokio::time::sleep(past.saturating_sub(stopped.elapsed())).await;
            faulty.resume();
        }
        (answers, others)
    };
    let (first, (answers, others)) = tokio::join!(call, repeats);
    assert!(faulty.logged("crash point"), "{point} was not reached");

    let mut told: Vec<Value> = answers.into();
    told.extend(first.ok().map(|answer| answer.body));
    told.push(until_done(&others).await);
    if fault == Fault::Stop && family != "hand_back" {
        told.push(until_done(std::slice::from_ref(&faulty)).await);
    }
    one_effect_and_one_answer(&scene, point, fault, &told).await;
}

async fn start_faulty(scene: &Scene, point: &str, family: &str, fault: Fault) -> Replica {
    let work_ms = match family {
        "one_step" => 0,
        "renew" => LEASE_MS,
        // Longer than the test: it is handed back.
        "hand_back" => 60_000,
        _ => 100,
    };
    let effect = if fault == Fault::Exit { "exit" } else { "stop" };
    let replica = scene
        .replica()
        .with("TICKET_LEDGER_FAULT", format!("{point}:{effect}"))
        .with("WORK_MS", work_ms)
        .with("POOL_SIZE", 3);
    let replica = if family == "hand_back" {
        replica.with("GRACE_MS", 100)
    } else {
        replica
    };
    replica.ready().await
}

async fn start_others(scene: &Scene, family: &str) -> [Replica; 2] {
    let work_ms = if family == "one_step" { 0 } else { 100 };
    let start = || scene.replica().with("WORK_MS", work_ms).with("POOL_SIZE", 3).ready();
    let (one, two) = tokio::join!(start(), start());
    [one, two]
}

/// A claim whose replica was killed at work.
async fn leave_a_claim_behind(scene: &Scene) {
    let victim = scene.replica().with("WORK_MS", 60_000).ready().await;
    let body = ticket(REQUEST, "Walked");
    let kill = async {
        scene.until(REQUEST, "running").await;
        victim.strike();
    };
    let (answer, ()) = tokio::join!(victim.http("POST", "/tickets", Some(&body)), kill);
    assert!(answer.is_err(), "a killed replica answered: {answer:?}");
}

async fn at_the_point(faulty: &Replica, fault: Fault) {
    match fault {
        Fault::Exit => faulty.dead().await,
        Fault::Stop => faulty.stopped().await,
    }
}

/// Calls one replica after the other until one of them says that it is done.
async fn until_done(replicas: &[Replica]) -> Value {
    let began = Instant::now();
    let body = ticket(REQUEST, "Walked");
    let mut last = None;
    for replica in replicas.iter().cycle() {
        assert!(began.elapsed() < DEADLINE, "never done: {last:?}");
        let call = replica.http("POST", "/tickets", Some(&body));
        match tokio::time::timeout(IMPATIENCE, call).await {
            Ok(Ok(answer)) if answer.body["status"] == "done" => return answer.body,
            Ok(Ok(answer)) if answer.code() == "unavailable" => last = Some(answer),
            Ok(Ok(answer)) => panic!("neither done nor unavailable: {answer:?}"),
            // Lost, or left.
            Ok(Err(_)) | Err(_) => {}
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    unreachable!("a cycle of replicas has no end")
}

async fn one_effect_and_one_answer(scene: &Scene, point: &str, fault: Fault, told: &[Value]) {
    let done: Vec<_> = told.iter().filter(|answer| answer["status"] == "done").collect();
    let ids: HashSet<_> = done.iter().map(|answer| answer["ticket_id"].to_string()).collect();
    let times: HashSet<_> = done.iter().map(|answer| answer["answered_at"].to_string()).collect();
    let fresh = done.iter().filter(|answer| answer["replayed"] == false).count();
    assert_eq!((ids.len(), times.len()), (1, 1), "{point} {fault:?}: {told:#?}");
    assert!(fresh <= 1, "{point} {fault:?}: {told:#?}");
    let ticket_ids: Vec<String> = sqlx::query_scalar("select to_json(ticket_id)::text from tickets")
        .fetch_all(&scene.sql)
        .await
        .expect("tickets");
    assert_eq!(ticket_ids, ids.into_iter().collect::<Vec<_>>(), "{point} {fault:?}");
    let row = scene.row(REQUEST).await.expect("a row");
    assert_eq!((row.status.as_str(), row.lapsed), ("done", None), "{point} {fault:?}");
    assert_eq!(
        scene.count("select count(*) from unsettled").await,
        0,
        "{point} {fault:?}"
    );
}
