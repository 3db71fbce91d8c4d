//! Metrics that are there before they are needed, and move when something happens.

use super::{metrics, number, until_at_least};
use crate::support::calls::ticket;
use crate::support::eventually;
use crate::support::scene::Scene;

/// Longer than any test.
const FOR_EVER_MS: u64 = 60_000;

#[tokio::test]
async fn what_alerts_are_made_of_is_there_before_it_first_moves() {
    let scene = Scene::new().await;
    let a = scene.replica().ready().await;
    let text = metrics(&a).await;
    for (name, labels) in [
        ("failed_requests", vec![""]),
        (
            "swept",
            vec!["what=\"scrubbed\"", "what=\"deleted\"", "what=\"set_aside\""],
        ),
        ("pool_timeouts", vec![""]),
        ("takeovers", vec!["by=\"waiter\"", "by=\"scan\""]),
        ("renewals", vec!["result=\"late\"", "result=\"failed\""]),
        ("joins", vec!["by=\"memory\"", "by=\"notify\"", "by=\"poll\""]),
        ("fenced", vec![""]),
        ("releases", vec![""]),
        ("hand_backs", vec![""]),
        ("possible_duplicates", vec![""]),
        (
            "spans_dropped",
            vec!["reason=\"queue_full\"", "reason=\"export_failed\""],
        ),
        (
            "calls",
            vec![
                "operation=\"create_ticket\",outcome=\"in_progress\"",
                "operation=\"get_ticket\",outcome=\"not_found\"",
            ],
        ),
    ] {
        for label in labels {
            let found = number(&text, &format!("ticket_ledger_{name}_total"), &[label]);
            assert_eq!(found, Some(0.0), "{name} {label} in {text}");
        }
    }
}

#[tokio::test]
async fn a_holder_that_stood_still_past_its_lease_counts_the_late_round_and_the_lost_claim_and_says_it() {
    let scene = Scene::new().await;
    let a = scene.replica().with("WORK_MS", FOR_EVER_MS).ready().await;
    let b = scene.replica().with("WORK_MS", 10).with("REPLICA_NAME", "second-house");
    let b = b.ready().await;
    let body = ticket("k", "Stood still");
    let first = a.http("POST", "/tickets", Some(&body));
    let second = async {
        scene.until("k", "running").await;
        a.pause();
        let answer = b.create("k", "Stood still").await;
        a.resume();
        answer
    };
    let (first, second) = tokio::join!(first, second);
    assert_eq!(second.body["replayed"], false, "{second:?}");
    assert_eq!(first.expect("an answer").body["replayed"], true);
    until_at_least(&a, "ticket_ledger_fenced_total", &[], 1.0).await;
    until_at_least(&a, "ticket_ledger_renewals_total", &["result=\"late\""], 1.0).await;
    let line = eventually("it is said", || async {
        a.find_log("a claim was lost to another attempt; its own work changes nothing")
    })
    .await;
    assert_eq!(line["request_id"], "k");
    assert_eq!(line["taken_by"], "second-house");
    assert_eq!(number(&metrics(&b).await, "ticket_ledger_fenced_total", &[]), Some(0.0));
}
