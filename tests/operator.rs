//! What lapsed five times is failed until an operator allows a retry, and every such act is audited.

use serde_json::{Value, json};

use crate::support::eventually;
use crate::support::in_process::{Ending, InProcess, Knobs, note, notes};
use crate::support::scene::Scene;

/// `ticket-ledger admin retry …`: its exit status, its output and what it says on standard error.
async fn retry(scene: &Scene, arguments: &[&str]) -> (i32, String, String) {
    scene.admin(&[&["retry"], arguments].concat()).await
}

async fn audit(scene: &Scene) -> Vec<(String, String, String)> {
    sqlx::query_as("select action, subject, outcome from audit order by id")
        .fetch_all(&scene.sql)
        .await
        .expect("an audit")
}

/// Lets the lease of a running request lapse, as if its holder had died: the holder's token is nobody's any more.
async fn lapse(scene: &Scene, request_id: &str) {
    let lapsed = sqlx::query(
        "update requests set lease_until = clock_timestamp() - interval '1 ms', token = -token
         where request_id = $1 and status = 'running' and token > 0",
    )
    .bind(request_id)
    .execute(&scene.sql)
    .await
    .expect("lapses");
    assert_eq!(lapsed.rows_affected(), 1, "it runs");
}

/// A request whose every attempt dies, until it is failed. Returns how many attempts were begun.
async fn poison(scene: &Scene, house: &InProcess, id: &str) {
    house.script.tell(id, Ending::Holds);
    let call = house.spawn("anna", "note_slowly", note(id));
    for attempt in 1..=5 {
        // A server that started a moment ago counts nobody's lease as lapsed, so this may take one lease.
        eventually("the next attempt runs", || async {
            scene
                .row(id)
                .await
                .filter(|row| row.status == "running" && row.attempt == attempt && row.token > 0)
        })
        .await;
        lapse(scene, id).await;
    }
    let row = scene.until(id, "failed").await;
    assert_eq!((row.lapses, row.attempt), (5, 5), "{row:?}");
    // Whoever waited is told, whatever attempts it had begun itself.
    assert_eq!(call.await.expect("an answer").what, "failed");
}

#[tokio::test]
async fn what_lapsed_five_times_is_failed_and_stays_so_until_admin_retry_which_is_audited() {
    let scene = Scene::new().await;
    let (house, other) = (
        InProcess::start(&scene, Knobs::default()).await,
        InProcess::start(&scene, Knobs::default()).await,
    );
    other.script.tell("k", Ending::Holds);
    poison(&scene, &house, "k").await;
    let begun = house.script.begun() + other.script.begun();
    for house in [&house, &other] {
        let told = house.call("anna", "note_slowly", note("k")).await;
        assert_eq!(told.what, "failed");
        let (message, next) = (&told.body["error"]["message"], &told.body["error"]["next"]);
        assert!(message.as_str().expect("a message").contains("not done"), "{message}");
        assert!(next.as_str().expect("a next").contains("admin retry"), "{next}");
        assert_eq!(house.find("anna", "k").await["status"], "failed");
        let conflict = json!({ "request_id": "k", "text": "other" });
        assert_eq!(house.call("anna", "note_slowly", conflict).await.what, "conflict");
    }
    assert_eq!(
        house.script.begun() + other.script.begun(),
        begun,
        "nobody tries it again"
    );
    assert_eq!(
        (notes(&scene).await, scene.count("select count(*) from unsettled").await),
        (0, 0)
    );

    // A request is whose it is.
    let (status, _, said) = retry(&scene, &["k"]).await;
    assert!(status == 1 && said.contains("no request k"), "{said}");
    for house in [&house, &other] {
        house.script.tell("k", Ending::Goes);
    }
    let (status, text, _) = retry(&scene, &["k", "--principal", "anna", "--json"]).await;
    let shown: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!((status, &shown["status"]), (0, &json!("freed")));
    // Nobody calls: a scan takes it up.
    let row = scene.until("k", "done").await;
    assert_eq!(row.lapses, 0);
    assert_eq!(house.call("anna", "note_slowly", note("k")).await.what, "replayed");
    assert_eq!(notes(&scene).await, 1);
    // Run again: success, already so.
    let (status, text, _) = retry(&scene, &["k", "--principal", "anna", "--json"]).await;
    let shown: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!((status, &shown["status"]), (0, &json!("already so")));
    let entry = |outcome: &str| ("retry".to_owned(), "k".to_owned(), outcome.to_owned());
    let audited = audit(&scene).await;
    assert_eq!(audited[audited.len() - 2..], [entry("freed"), entry("not failed")]);
    let who = scene.count("select count(*) from audit where actor = '' or done_at > clock_timestamp()");
    assert_eq!(who.await, 0);
}

#[tokio::test]
async fn after_admin_retry_the_next_caller_runs_it_with_five_lapses_ahead_of_it_again() {
    let scene = Scene::new().await;
    // Leases so long that no scan comes by.
    let mut knobs = Knobs::default();
    knobs.limits.lease = std::time::Duration::from_secs(2);
    let house = InProcess::start(&scene, knobs).await;
    poison(&scene, &house, "k").await;
    assert_eq!(retry(&scene, &["k", "--principal", "anna"]).await.0, 0);
    let call = house.spawn("anna", "note_slowly", note("k"));
    eventually("it runs again", || async {
        scene
            .row("k")
            .await
            .filter(|row| row.status == "running" && row.attempt == 6 && row.lapses == 0)
    })
    .await;
    lapse(&scene, "k").await;
    house.script.tell("k", Ending::Goes);
    let told = call.await.expect("an answer").what;
    assert!(["done", "replayed"].contains(&told), "{told}");
    let row = scene.row("k").await.expect("a row");
    assert_eq!((row.status.as_str(), row.lapses), ("done", 1));
    assert_eq!(notes(&scene).await, 1);
}

#[tokio::test]
async fn admin_retry_leaves_what_runs_is_done_or_was_released_as_it_is() {
    let scene = Scene::new().await;
    let house = InProcess::start(&scene, Knobs::default()).await;
    house.script.tell("running", Ending::Holds);
    house.script.tell("released", Ending::Refuses);
    let running = house.spawn("anna", "note_slowly", note("running"));
    for id in ["done", "released"] {
        house.call("anna", "note_slowly", note(id)).await;
    }
    scene.until("running", "running").await;
    for id in ["running", "done", "released"] {
        let before = scene.row(id).await.expect("a row");
        let (status, text, _) = retry(&scene, &[id, "--principal", "anna"]).await;
        assert!(status == 0 && text.contains("not failed"), "{text}");
        let after = scene.row(id).await.expect("a row");
        assert_eq!(
            (before.status, before.token, before.attempt),
            (after.status, after.token, after.attempt)
        );
    }
    assert_eq!(audit(&scene).await.len(), 3);
    house.script.tell("running", Ending::Goes);
    assert_eq!(running.await.expect("an answer").what, "done");
}
