//! Pages stay right while replies come and go.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::future::{join, join_all};
use serde_json::json;

use super::{WAYS, Way, all_replies, call, ids, question, reply, start, three};
use crate::support::scene::Scene;
use crate::support::stuck::Stuck;

#[tokio::test]
async fn replies_present_throughout_appear_exactly_once_while_others_come_and_go() {
    let scene = Scene::new().await;
    let replicas = three(&scene).await;
    let asked = call(&replicas[0], Way::Http, "post_entry", question("q")).await.fresh();
    let keys: Vec<_> = (0..120).map(|number| format!("r{number}")).collect();
    let posts = keys.iter().zip(0..).map(|(key, number): (_, usize)| {
        call(
            &replicas[number % 3],
            WAYS[number % 2],
            "post_entry",
            reply(key, asked.id()),
        )
    });
    let posted: Vec<_> = join_all(posts).await.into_iter().map(super::Told::fresh).collect();
    let first_forty: HashSet<_> = posted[..40].iter().map(|told| told.id().to_owned()).collect();
    let over = AtomicBool::new(false);
    let coming_and_going = async {
        for number in 0.. {
            if over.load(Ordering::Relaxed) {
                break;
            }
            let key = format!("late-{number}");
            call(&replicas[0], Way::Http, "post_entry", reply(&key, asked.id()))
                .await
                .fresh();
            // One of the eighty others is put out of sight and shown again.
            let sql = "update entries set hidden_at = case when hidden_at is null then clock_timestamp() end where entry_id = $1";
            sqlx::query(sql)
                .bind(posted[40 + number % 80].id())
                .execute(&scene.sql)
                .await
                .expect("hides");
        }
    };
    let walking = async {
        for round in 0..6 {
            let seen = ids(&all_replies(&replicas[1 + round % 2], WAYS[round % 2], asked.id()).await);
            let distinct: HashSet<_> = seen.iter().cloned().collect();
            assert_eq!(distinct.len(), seen.len(), "something appears twice");
            assert!(first_forty.is_subset(&distinct), "something is missing");
        }
        over.store(true, Ordering::Relaxed);
    };
    join(coming_and_going, walking).await;
}

#[tokio::test]
async fn a_page_has_50_replies_in_the_order_of_their_times_and_ids() {
    let scene = Scene::new().await;
    let replica = start(&scene).ready().await;
    let asked = call(&replica, Way::Mcp, "post_entry", question("q")).await.fresh();
    let posts = (0..101).map(|number| {
        call(
            &replica,
            Way::Mcp,
            "post_entry",
            reply(&format!("r{number}"), asked.id()),
        )
    });
    let posted: HashSet<_> = join_all(posts).await.iter().map(|told| told.id().to_owned()).collect();
    for way in WAYS {
        let mut sizes = Vec::new();
        let mut arguments = json!({ "thread_id": asked.id() });
        loop {
            let page = call(&replica, way, "list_replies", arguments.clone()).await.read();
            sizes.push(page.data["replies"].as_array().expect("replies").len());
            match page.data.get("next_cursor") {
                Some(cursor) => arguments["cursor"] = cursor.clone(),
                None => break,
            }
        }
        assert_eq!(sizes, [50, 50, 1]);
        let all = all_replies(&replica, way, asked.id()).await;
        assert_eq!(ids(&all).into_iter().collect::<HashSet<_>>(), posted);
        let order: Vec<_> = all
            .iter()
            .map(|entry| {
                (
                    entry["created_at"].as_str().expect("a time"),
                    entry["id"].as_str().expect("an id"),
                )
            })
            .collect();
        assert!(order.is_sorted(), "{order:?}");
        for broken in ["", "x", "AAAA", "MTIz", &"A".repeat(300), "99999999999999999999.E-1"] {
            let arguments = json!({ "thread_id": asked.id(), "cursor": broken });
            let told = call(&replica, way, "list_replies", arguments).await;
            told.refused(400, "invalid_argument");
        }
    }
    // A page has at most 100,000 characters.
    let asked = call(&replica, Way::Mcp, "post_entry", question("q2")).await.fresh();
    for number in 0..4 {
        let mut large = reply(&format!("large{number}"), asked.id());
        large["body"] = json!("語".repeat(20_000));
        call(&replica, Way::Http, "post_entry", large).await.fresh();
    }
    let page = call(&replica, Way::Http, "list_replies", json!({ "thread_id": asked.id() }))
        .await
        .read();
    assert_eq!(page.data["replies"].as_array().expect("replies").len(), 4);
    assert!(page.data.to_string().chars().count() <= 100_000);
    let mut large = reply("large4", asked.id());
    large["body"] = json!("x".repeat(60_000));
    call(&replica, Way::Http, "post_entry", large).await.fresh();
    let page = call(&replica, Way::Http, "list_replies", json!({ "thread_id": asked.id() }))
        .await
        .read();
    assert_eq!(page.data["replies"].as_array().expect("replies").len(), 4);
    assert_eq!(all_replies(&replica, Way::Http, asked.id()).await.len(), 5);
}

#[tokio::test]
async fn a_cursor_is_good_for_its_own_list_and_as_it_was_given_out() {
    let scene = Scene::new().await;
    let replica = start(&scene).ready().await;
    let mut asked = Vec::new();
    for key in ["q1", "q2"] {
        asked.push(call(&replica, Way::Http, "post_entry", question(key)).await.fresh());
    }
    let posts = (0..60).map(|number| {
        call(
            &replica,
            Way::Mcp,
            "post_entry",
            reply(&format!("r{number}"), asked[0].id()),
        )
    });
    join_all(posts).await;
    join_all((0..60).map(|number| replica.create(format!("t{number}").leak(), "A ticket"))).await;
    let page = call(
        &replica,
        Way::Http,
        "list_replies",
        json!({ "thread_id": asked[0].id() }),
    )
    .await;
    let cursor = page.read().data["next_cursor"].as_str().expect("a cursor").to_owned();
    let tickets = replica.get("/tickets").await;
    let of_tickets = tickets.body["next_cursor"].as_str().expect("a cursor").to_owned();
    let length = cursor.len();
    let last = if cursor.ends_with('A') { "B" } else { "A" };
    for (broken, thread) in [
        (cursor[..length - 3].to_owned(), asked[0].id()),
        (format!("{}{last}", &cursor[..length - 1]), asked[0].id()),
        (
            format!("{}{}", if cursor.starts_with('M') { "N" } else { "M" }, &cursor[1..]),
            asked[0].id(),
        ),
        (cursor.clone(), asked[1].id()),
        (of_tickets.clone(), asked[0].id()),
    ] {
        for way in WAYS {
            let arguments = json!({ "thread_id": thread, "cursor": broken });
            let told = call(&replica, way, "list_replies", arguments).await;
            told.refused(400, "invalid_argument");
        }
        let document = replica.get(&format!("/threads/{thread}.md?cursor={broken}")).await;
        assert_eq!(document.status, 400, "{broken}: {document:?}");
    }
    let strange = replica.get(&format!("/tickets?cursor={cursor}")).await;
    assert_eq!(
        (strange.status, strange.code()),
        (400, "invalid_argument"),
        "{strange:?}"
    );
    assert_eq!(replica.get(&format!("/tickets?cursor={of_tickets}")).await.status, 200);
    let document = replica
        .get(&format!("/threads/{}.md?cursor={cursor}", asked[0].id()))
        .await;
    assert_eq!(document.status, 200, "{document:?}");
}

#[tokio::test]
async fn a_reply_that_is_committed_late_does_not_slip_in_before_a_place_that_was_told() {
    let scene = Scene::new().await;
    let [one, two, _] = three(&scene).await;
    let asked = call(&one, Way::Http, "post_entry", question("q")).await.fresh();
    // A post that has its time and is not committed: the transaction of a batch that stands still.
    let mut stuck = Stuck::on(&scene).await;
    let (_, early): (String, String) =
        sqlx::query_as("select question_id, rfc3339(posted_at) from enter_threads(array[$1], 1000000)")
            .bind(asked.id())
            .fetch_one(&mut stuck.0)
            .await
            .expect("a time");
    let later = call(&two, Way::Http, "post_entry", reply("later", asked.id()));
    let unstuck = async {
        crate::support::eventually("the later one waits for the thread", || async {
            let waiting = scene.count("select count(*) from pg_locks where locktype = 'advisory' and not granted");
            (waiting.await > 0).then_some(())
        })
        .await;
        assert!(all_replies(&one, Way::Http, asked.id()).await.is_empty());
        stuck.run("commit").await;
    };
    let (later, ()) = join(later, unstuck).await;
    assert!(later.fresh().text("created_at") > early.as_str());
    // Nor does a clock that went back put a reply before one that is there.
    sqlx::query("update entries set created_at = created_at + interval '1 hour' where type = 'reply'")
        .execute(&scene.sql)
        .await
        .expect("the clock goes back");
    let last = call(&two, Way::Mcp, "post_entry", reply("last", asked.id()))
        .await
        .fresh();
    let order = ids(&all_replies(&one, Way::Http, asked.id()).await);
    assert_eq!(order[1], last.id());
}
