//! Pages: everything once, in order, and never too much at a time.

use std::collections::HashSet;

use futures_util::future::join_all;
use serde_json::{Map, Value, json};

use super::{comment, make};
use crate::support::calls::ticket;
use crate::support::replica::Replica;
use crate::support::scene::Scene;

const MOST_CHARACTERS: usize = 100_000;

/// Reads page after page; returns the pages.
async fn walk(replica: &Replica, tool: &str, mut arguments: Value) -> Vec<Map<String, Value>> {
    let mut pages = Vec::new();
    loop {
        let page = replica.tool(tool, arguments.clone()).await;
        let next = page.get("next_cursor").cloned();
        pages.push(page);
        match next {
            Some(cursor) => arguments["cursor"] = cursor,
            None => return pages,
        }
        assert!(pages.len() < 1_000, "the pages do not end");
    }
}

fn members(pages: &[Map<String, Value>], list: &str, member: &str) -> Vec<String> {
    let items = pages.iter().flat_map(|page| page[list].as_array().expect("a list"));
    items
        .map(|item| item[member].as_str().expect("a text").to_owned())
        .collect()
}

#[tokio::test]
async fn comments_present_throughout_appear_exactly_once_and_in_order() {
    let scene = Scene::new().await;
    let [replica] = scene.replicas().await;
    let id = make(&replica, "many", "Many", "b").await["ticket_id"].clone();
    // Sixty in order, then sixty at once, many of which share a batch and so a time.
    let mut expected = Vec::new();
    for number in 0..60 {
        let added = comment(&replica, &format!("c{number}"), &id, &format!("Comment {number}")).await;
        expected.push(added["comment_id"].as_str().expect("an id").to_owned());
    }
    let keys: Vec<_> = (60..120).map(|number| format!("c{number}")).collect();
    let at_once = join_all(keys.iter().map(|key| comment(&replica, key, &id, key))).await;
    let at_once: HashSet<_> = at_once.iter().map(|added| added["comment_id"].to_string()).collect();
    assert_eq!(at_once.len(), 60);

    let first = replica.tool("get_ticket", json!({ "ticket_id": id })).await;
    // One that comes meanwhile may be seen, and shifts nothing.
    comment(&replica, "late", &id, "Late").await;
    let mut rest = walk(
        &replica,
        "get_ticket",
        json!({ "ticket_id": id, "cursor": first["next_cursor"] }),
    )
    .await;
    rest.insert(0, first);
    let sizes: Vec<_> = rest
        .iter()
        .map(|page| page["comments"].as_array().expect("a list").len())
        .collect();
    assert_eq!(sizes, [50, 50, 21]);
    let seen = members(&rest, "comments", "comment_id");
    assert_eq!(seen[..60], expected);
    assert_eq!(seen.iter().collect::<HashSet<_>>().len(), 121, "{seen:?}");
    let times = members(&rest, "comments", "created_at");
    assert!(times.is_sorted(), "{times:?}");
    let whole = walk(&replica, "get_ticket", json!({ "ticket_id": id })).await;
    assert_eq!(members(&whole, "comments", "comment_id"), seen);

    // A batch may give one time to all of them; then the ids decide.
    sqlx::query("update comments set created_at = clock_timestamp()::timestamptz(0)")
        .execute(&scene.sql)
        .await
        .expect("one time for all");
    let tied = walk(&replica, "get_ticket", json!({ "ticket_id": id })).await;
    let mut expected = seen;
    expected.sort();
    assert_eq!(members(&tied, "comments", "comment_id"), expected);
}

#[tokio::test]
async fn a_page_holds_at_most_a_hundred_thousand_characters() {
    let scene = Scene::new().await;
    let [replica] = scene.replicas().await;
    for (name, body, size, count) in [
        ("small", 10, 19_000, 11),
        ("wide", 0, 3_000, 60),
        ("full", 60_000, 60_000, 3),
    ] {
        let id = make(&replica, name, "Long", &"語\n".repeat(body / 4)).await["ticket_id"].clone();
        for number in 0..count {
            comment(&replica, &format!("{name}{number}"), &id, &"語\n".repeat(size / 4)).await;
        }
        let pages = walk(&replica, "get_ticket", json!({ "ticket_id": id })).await;
        for page in &pages {
            let characters = Value::Object(page.clone()).to_string().chars().count();
            assert!(characters <= MOST_CHARACTERS, "{name}: {characters}");
        }
        let seen = members(&pages, "comments", "comment_id");
        assert_eq!(seen.iter().collect::<HashSet<_>>().len(), count, "{name}");
        assert_eq!(seen.len(), count, "{name}");
        assert!(pages.len() > 1, "{name}");
    }
    // The largest bodies that there can be: each on a page, however it is written in JSON.
    let id = make(&replica, "largest", "Long", &"x".repeat(65_536)).await["ticket_id"].clone();
    for number in 0..2 {
        comment(&replica, &format!("largest{number}"), &id, &"y".repeat(65_536)).await;
    }
    let pages = walk(&replica, "get_ticket", json!({ "ticket_id": id })).await;
    for page in &pages {
        let characters = Value::Object(page.clone()).to_string().chars().count();
        assert!(characters <= MOST_CHARACTERS, "{characters}");
    }
    assert_eq!(members(&pages, "comments", "comment_id").len(), 2);
}

#[tokio::test]
async fn tickets_present_throughout_are_listed_exactly_once() {
    let scene = Scene::new().await;
    let [replica] = scene.replicas().await;
    let keys: Vec<_> = (0..120).map(|number| format!("t{number}")).collect();
    join_all(keys.iter().map(|key| replica.tool("create_ticket", ticket(key, key)))).await;
    let first = replica.tool("list_tickets", json!({ "query": "t" })).await;
    make(&replica, "late", "t late", "b").await;
    let mut pages = walk(
        &replica,
        "list_tickets",
        json!({ "query": "t", "cursor": first["next_cursor"] }),
    )
    .await;
    pages.insert(0, first);
    let seen = members(&pages, "tickets", "title");
    assert_eq!(seen.len(), 121);
    let distinct: HashSet<_> = seen.iter().map(String::as_str).collect();
    assert!(keys.iter().all(|key| distinct.contains(key.as_str())), "{seen:?}");
    assert_eq!(distinct.len(), 121);
    assert_eq!(pages[0]["tickets"].as_array().expect("a list").len(), 50);
}
