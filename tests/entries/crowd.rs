//! Two hundred replies at once to one question, while an operator takes it away.

use std::collections::HashSet;

use futures_util::future::{join, join_all};
use serde_json::json;

use super::{Told, WAYS, Way, all_replies, call, ids, question, reply, three};
use crate::support::eventually;
use crate::support::replica::Replica;
use crate::support::scene::Scene;

const REPLIES: usize = 200;

async fn reply_all(replicas: &[Replica; 3], thread: &str) -> Vec<(String, Told)> {
    let posts = (0..REPLIES).map(|number| async move {
        let key = format!("reply-{number}");
        let told = call(
            &replicas[number % 3],
            WAYS[number % 2],
            "post_entry",
            reply(&key, thread),
        )
        .await;
        (key, told)
    });
    join_all(posts).await
}

/// Those that were saved; the others were refused, and said so.
fn saved(told: Vec<(String, Told)>) -> Vec<(String, Told)> {
    let (saved, refused): (Vec<_>, Vec<_>) = told.into_iter().partition(|(_, told)| told.status == 201);
    for (_, told) in refused {
        told.refused(404, "not_found");
    }
    saved.into_iter().map(|(key, told)| (key, told.fresh())).collect()
}

async fn until_some_are_saved(scene: &Scene, some: i64) {
    eventually("some are saved", || async {
        let replies = scene.count("select count(*) from entries where type = 'reply'").await;
        (replies >= some).then_some(())
    })
    .await;
}

#[tokio::test]
async fn while_their_question_is_deleted_each_is_saved_or_refused_and_none_is_lost() {
    let scene = Scene::new().await;
    let replicas = three(&scene).await;
    let asked = call(&replicas[0], Way::Http, "post_entry", question("q")).await.fresh();
    let deletion = async {
        until_some_are_saved(&scene, 20).await;
        let (status, said, _) = scene.admin(&["delete", "--yes", asked.id()]).await;
        assert_eq!(status, 0, "{said}");
        // Once it has been told, nothing is saved any more.
        scene.count("select count(*) from entries where type = 'reply'").await
    };
    let (told, when_told) = join(reply_all(&replicas, asked.id()), deletion).await;
    let saved = saved(told);
    let kept = scene.count("select count(*) from entries where type = 'reply'").await;
    assert_eq!(
        (kept, saved.len()),
        (when_told, usize::try_from(when_told).expect("a count"))
    );
    for (key, first) in &saved {
        let again = call(&replicas[1], Way::Mcp, "post_entry", reply(key, asked.id()))
            .await
            .replayed();
        assert_eq!((again.id(), &again.data["visible"]), (first.id(), &json!(false)));
    }
}

#[tokio::test]
async fn while_their_question_is_hidden_and_shown_again_every_saved_one_is_listed_afterwards() {
    let scene = Scene::new().await;
    let replicas = three(&scene).await;
    let asked = call(&replicas[0], Way::Http, "post_entry", question("q")).await.fresh();
    let moderation = async {
        let mut hidden = Vec::new();
        for some in [10, 40] {
            until_some_are_saved(&scene, some).await;
            assert_eq!(scene.admin(&["hide", asked.id()]).await.0, 0);
            let before = scene.count("select count(*) from entries where type = 'reply'").await;
            let refused = call(
                &replicas[2],
                Way::Http,
                "post_entry",
                reply(&format!("hidden-{some}"), asked.id()),
            )
            .await;
            hidden.push(refused);
            // Hidden, it takes no replies.
            let after = scene.count("select count(*) from entries where type = 'reply'").await;
            assert_eq!(before, after);
            assert_eq!(scene.admin(&["unhide", asked.id()]).await.0, 0);
            // Callers do as they are told: they come back.
            if some == 10 {
                let more = join_all((0..60).map(|number| {
                    let arguments = reply(&format!("more-{number}"), asked.id());
                    call(&replicas[number % 3], WAYS[number % 2], "post_entry", arguments)
                }));
                more.await.into_iter().for_each(|told| {
                    told.fresh();
                });
            }
        }
        hidden
    };
    let (told, hidden) = join(reply_all(&replicas, asked.id()), moderation).await;
    for told in hidden {
        told.refused(404, "not_found");
    }
    let saved: HashSet<_> = saved(told).iter().map(|(_, told)| told.id().to_owned()).collect();
    for way in WAYS {
        let listed: HashSet<_> = ids(&all_replies(&replicas[0], way, asked.id()).await)
            .into_iter()
            .collect();
        assert_eq!(listed.len(), saved.len() + 60);
        assert!(saved.is_subset(&listed));
    }
}
