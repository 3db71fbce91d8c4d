//! What a request_id may be, and whose it is.

use proptest::prelude::*;
use serde_json::json;
use sqlx::{Connection, PgConnection};
use ticket_ledger::ledger::Key;
use ticket_ledger::operation::key::check_request_id;

use crate::support::calls::ticket;
use crate::support::in_process::{Ending, InProcess, Knobs, notes};
use crate::support::scene::Scene;

/// The rule in other words than the program's: Unicode's own lists, spelled out.
fn is_allowed(request_id: &str) -> bool {
    let points: Vec<u32> = request_id.chars().map(u32::from).collect();
    let is_control = |point: &u32| *point < 0x20 || (0x7f..=0x9f).contains(point);
    let is_white = |point: &&u32| {
        matches!(
            **point,
            0x20 | 0x85 | 0xa0 | 0x1680 | 0x2000..=0x200a | 0x2028 | 0x2029 | 0x202f | 0x205f | 0x3000
        )
    };
    (1..=64).contains(&points.len())
        && !points.iter().any(is_control)
        && points.first().filter(is_white).is_none()
        && points.last().filter(is_white).is_none()
}

/// Any characters, with those that the rule is about much more often than chance would have them.
fn request_ids() -> impl Strategy<Value = String> {
    let character = prop_oneof![
        4 => any::<char>(),
        4 => prop::char::range('a', 'z'),
        1 => prop::sample::select(vec![' ', '\t', '\n', '\0', '\u{7f}', '\u{85}', '\u{a0}', '\u{2028}', '\u{3000}', '\u{200b}']),
    ];
    prop_oneof![
        prop::collection::vec(character.clone(), 0..6),
        prop::collection::vec(character, 60..70),
        prop::collection::vec(prop::char::range('\u{10000}', '\u{10fff}'), 62..67),
    ]
    .prop_map(String::from_iter)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2_000) })]

    #[test]
    fn a_request_id_is_1_to_64_code_points_without_controls_and_without_white_space_at_its_ends(id in request_ids()) {
        let checked = check_request_id(&id);
        prop_assert_eq!(checked.is_ok(), is_allowed(&id), "{:?}", id);
        if let Err(refusal) = checked {
            prop_assert_eq!(refusal.code.as_str(), "invalid_argument");
        }
    }
}

#[tokio::test]
async fn what_a_request_id_may_not_be_is_invalid_argument_over_http_and_nothing_is_stored() {
    let scene = Scene::new().await;
    let [replica] = scene.replicas().await;
    let long = "é".repeat(65);
    for wrong in [
        "",
        " ",
        "k1 ",
        " k1",
        "k\n1",
        "k\u{0}1",
        "k\u{7f}",
        "\u{85}k",
        "k\u{3000}",
        &long,
    ] {
        let answer = replica.create(wrong, "Wrong key").await;
        assert_eq!((answer.status, answer.code()), (400, "invalid_argument"), "{wrong:?}");
    }
    for wrong in [
        json!({ "title": "t", "body": "b" }),
        json!({ "request_id": null, "title": "t", "body": "b" }),
        json!({ "request_id": 7, "title": "t", "body": "b" }),
    ] {
        let answer = replica.post("/tickets", &wrong).await;
        assert_eq!((answer.status, answer.code()), (400, "invalid_argument"), "{wrong}");
    }
    assert_eq!(scene.count("select count(*) from requests").await, 0);
    assert_eq!(scene.tickets().await, 0);
}

#[tokio::test]
async fn request_ids_are_compared_byte_for_byte_and_not_normalised() {
    let scene = Scene::new().await;
    let [a, b] = scene.replicas().await;
    let widest = "\u{1f600}".repeat(64);
    // The last two look alike: composed, decomposed.
    let ids = [
        "Key",
        "key",
        "k 1",
        "k1",
        "k\u{200b}1",
        "'; --",
        "%",
        &widest,
        "caf\u{e9}",
        "cafe\u{301}",
    ];
    for id in ids {
        let first = a.create(id, "One title").await;
        assert_eq!((first.status, first.text("request_id")), (201, id));
        let again = b.create(id, "One title").await;
        assert_eq!(again.status, 200, "{id:?} is its own repeat: {again:?}");
        assert_eq!(again.text("ticket_id"), first.text("ticket_id"));
        assert_eq!(b.find(id).await["status"], "done");
    }
    assert_eq!(scene.tickets().await, ids.len() as i64);
}

#[tokio::test]
async fn two_principals_share_nothing_under_one_request_id() {
    let scene = Scene::new().await;
    let house = InProcess::start(&scene, Knobs::default()).await;
    let anna = house.call("anna", "create_ticket", ticket("same", "Anna's")).await;
    // Neither a replay nor a conflict, which would tell that somebody else used the key.
    assert_eq!(house.find("ben", "same").await["status"], "unknown");
    let ben = house.call("ben", "create_ticket", ticket("same", "Ben's")).await;
    assert_eq!((anna.what, ben.what), ("done", "done"));
    assert_ne!(anna.body["ticket_id"], ben.body["ticket_id"]);
    assert_eq!(house.find("anna", "same").await["result"]["title"], "Anna's");
    assert_eq!(house.find("ben", "same").await["result"]["title"], "Ben's");
    // The same arguments are no twins when they are two principals'.
    let carl = house.call("carl", "create_ticket", ticket("other", "Anna's")).await;
    assert_eq!(carl.body.get("possible_duplicate_of"), None);
    assert_eq!(scene.tickets().await, 3);
}

#[tokio::test]
async fn a_principal_is_not_blocked_by_anothers_request_under_the_same_request_id() {
    let scene = Scene::new().await;
    let house = InProcess::start(&scene, Knobs::default()).await;
    house.script.tell("anna's", Ending::Holds);
    let anna = house.spawn("anna", "note_slowly", json!({ "request_id": "same", "text": "anna's" }));
    scene.until("same", "running").await;
    // Anna's work runs, her row is locked by a stuck transaction, and so is her key.
    let mut stuck = PgConnection::connect(&scene.url).await.expect("connects");
    sqlx::raw_sql("begin; update requests set replica = 'stuck' where principal = 'anna'")
        .execute(&mut stuck)
        .await
        .expect("locks");
    let key = Key {
        principal: "anna".into(),
        request_id: "same".into(),
    };
    sqlx::query("select pg_advisory_xact_lock($1)")
        .bind(key.hash64())
        .execute(&mut stuck)
        .await
        .expect("locks");
    for (principal, tool) in [("ben", "note_slowly"), ("carl", "note")] {
        let told = house.call(principal, tool, json!({ "request_id": "same", "text": principal }));
        assert_eq!(told.await.what, "done", "{principal}");
    }
    assert!(!anna.is_finished());
    sqlx::raw_sql("rollback").execute(&mut stuck).await.expect("lets go");
    house.script.tell("anna's", Ending::Goes);
    assert_eq!(anna.await.expect("an answer").what, "done");
    assert_eq!(notes(&scene).await, 3);
}
