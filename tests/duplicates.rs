//! A creation that happened a moment ago under another request_id is told, and nothing is undone.

use serde_json::{Value, json};

use crate::support::calls::ticket;
use crate::support::in_process::{Ending, InProcess, Knobs, note};
use crate::support::scene::Scene;

/// Lets everything remembered have been created this long before now.
async fn age_memories(scene: &Scene, interval: &str) {
    let sql = format!("update recent_creations set settled_at = settled_at - interval '{interval}'");
    sqlx::raw_sql(sqlx::AssertSqlSafe(sql))
        .execute(&scene.sql)
        .await
        .expect("time passes");
}

#[tokio::test]
async fn a_creation_under_another_request_id_names_the_earliest_one_across_replicas_and_is_replayed_so() {
    let scene = Scene::new().await;
    let [a, b, c] = scene.replicas().await;
    let first = a.create("k1", "Twin").await;
    assert_eq!(first.body.get("possible_duplicate_of"), None);
    let pair = json!({ "request_id": "k1", "result_id": first.text("ticket_id") });
    let second = b.create("k2", "Twin").await;
    let third = c.create("k3", "Twin").await;
    for twin in [&second, &third] {
        assert_eq!(twin.status, 201);
        assert_eq!(twin.body["possible_duplicate_of"], pair);
        let next = twin.text("next");
        assert!(
            next.contains("Report the pair") && next.contains("do not undo"),
            "{next}"
        );
        assert_ne!(twin.text("ticket_id"), first.text("ticket_id"));
    }
    // Stored with the answer: the replay says it when nobody remembers, and the first one never learns of it.
    age_memories(&scene, "1 day").await;
    let again = a.create("k2", "Twin").await;
    assert_eq!((again.status, &again.body["possible_duplicate_of"]), (200, &pair));
    assert_eq!(again.text("next"), second.text("next"));
    assert_eq!(b.create("k1", "Twin").await.body.get("possible_duplicate_of"), None);
    let over_mcp = c.tool("create_ticket", ticket("k3", "Twin")).await;
    assert_eq!(over_mcp["possible_duplicate_of"], pair);
    assert_eq!(scene.tickets().await, 3);
}

#[tokio::test]
async fn only_the_last_ten_minutes_count_and_only_what_is_the_same() {
    let scene = Scene::new().await;
    let [replica] = scene.replicas().await;
    replica.create("k1", "Twin").await;
    assert_eq!(
        replica
            .create("k2", "Not a twin")
            .await
            .body
            .get("possible_duplicate_of"),
        None
    );
    age_memories(&scene, "9 minutes 30 seconds").await;
    let twin = replica.create("k3", "Twin").await;
    assert_eq!(twin.body["possible_duplicate_of"]["request_id"], "k1");
    age_memories(&scene, "31 seconds").await;
    let twin = replica.create("k4", "Twin").await;
    assert_eq!(
        twin.body["possible_duplicate_of"]["request_id"], "k3",
        "k1 is too long ago"
    );
    age_memories(&scene, "11 minutes").await;
    assert_eq!(
        replica.create("k5", "Twin").await.body.get("possible_duplicate_of"),
        None
    );
}

#[tokio::test]
async fn what_creates_with_work_is_told_of_its_twins_too_and_what_failed_is_nobodys_twin() {
    let scene = Scene::new().await;
    let house = InProcess::start(&scene, Knobs::default()).await;
    let call = |id: &str, tool| house.call("anna", tool, json!({ "request_id": id, "text": "t" }));
    house.script.tell("t", Ending::Refuses);
    assert_eq!(call("k0", "note_slowly").await.what, "precondition_failed");
    house.script.tell("t", Ending::Goes);
    assert_eq!(call("k1", "note_slowly").await.body.get("possible_duplicate_of"), None);
    let twin = call("k2", "note_slowly").await;
    assert_eq!(
        twin.body["possible_duplicate_of"],
        json!({ "request_id": "k1", "result_id": "k1" })
    );
    // Another operation with the same arguments has another fingerprint.
    assert_eq!(call("k3", "note").await.body.get("possible_duplicate_of"), None);
    assert_eq!(
        call("k4", "note").await.body["possible_duplicate_of"]["request_id"],
        "k3"
    );
    // A refused effect leaves no memory either.
    let refused = json!({ "request_id": "r1", "text": "refused by its effect" });
    assert_eq!(house.call("anna", "note", refused).await.what, "precondition_failed");
    assert_eq!(scene.count("select count(*) from recent_creations").await, 4);
    assert_eq!(
        house
            .call("ben", "note", note("t"))
            .await
            .body
            .get("possible_duplicate_of"),
        None
    );
}

#[tokio::test]
async fn it_can_be_switched_off_and_costs_nothing_then() {
    let scene = Scene::new().await;
    let replica = scene.replica().with("POSSIBLE_DUPLICATES", "false").ready().await;
    for id in ["k1", "k2"] {
        let answer = replica.create(id, "Twin").await;
        assert_eq!((answer.status, answer.body.get("possible_duplicate_of")), (201, None));
    }
    assert_eq!(scene.count("select count(*) from recent_creations").await, 0);
}

#[tokio::test]
async fn beyond_loopback_where_everybody_is_one_principal_nobody_is_told() {
    let scene = Scene::new().await;
    let mut replica = scene
        .replica()
        .with("LISTEN_ADDR", "0.0.0.0:0")
        .with("INSECURE_ALLOW_ANONYMOUS", "true")
        .ready()
        .await;
    replica.address = replica.address.replace("0.0.0.0", "127.0.0.1");
    for id in ["k1", "k2"] {
        let answer = replica.create(id, "Twin").await;
        assert_eq!((answer.status, answer.body.get("possible_duplicate_of")), (201, None));
    }
}

#[tokio::test]
async fn admin_duplicates_groups_effects_however_far_apart_and_exits_with_1_if_there_are_any() {
    let scene = Scene::new().await;
    let house = InProcess::start(&scene, Knobs::default()).await;
    let create = |principal, id: &str, title: &str, body: &str| {
        let arguments = json!({ "request_id": id, "title": title, "body": body });
        house.call(principal, "create_ticket", arguments)
    };
    let first = create("anna", "k1", "Twin", "one").await;
    create("ben", "k1", "Twin", "one").await;
    create("anna", "k2", "Other", "one").await;
    let (status, text, _) = scene.admin(&["duplicates"]).await;
    assert_eq!(
        (status, text.as_str()),
        (0, "No duplicates."),
        "two principals' tickets are no duplicates"
    );
    let second = create("anna", "k3", "Twin", "one").await;
    create("anna", "k4", "Twin", "two").await;
    sqlx::raw_sql("update tickets set created_at = created_at - interval '100 days' where request_id = 'k1'")
        .execute(&scene.sql)
        .await
        .expect("time passes");
    let (status, text, _) = scene.admin(&["duplicates", "--json"]).await;
    let shown: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(status, 1);
    let ids = json!([first.body["ticket_id"], second.body["ticket_id"]]);
    assert_eq!(
        shown["duplicates"],
        json!([{ "title": "Twin", "ticket_ids": ids, "request_ids": ["k1", "k3"] }])
    );
    let (status, text, _) = scene.admin(&["duplicates"]).await;
    assert!(status == 1 && text.contains("k1") && text.contains("k3"), "{text}");
    let (status, text, _) = scene.admin(&["duplicates", "--by", "title", "--json"]).await;
    let shown: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(
        (status, &shown["duplicates"][0]["request_ids"]),
        (1, &json!(["k1", "k3", "k4"]))
    );
    // Since an hour ago there is one with this title and body.
    assert_eq!(scene.admin(&["duplicates", "--since", "1"]).await.0, 0);
    assert_eq!(scene.admin(&["duplicates", "--since", "1", "--by", "title"]).await.0, 1);
    assert_eq!(scene.tickets().await, 5, "it only looks");
}
