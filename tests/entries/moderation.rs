//! What an operator does to entries, by the command line.

use serde_json::{Value, json};
use tokio::process::Command;

use super::{Way, call, question, reply, start};
use crate::support::scene::Scene;

async fn audit(scene: &Scene) -> Vec<(String, String, String)> {
    sqlx::query_as("select action, subject, outcome from audit where actor <> '' order by id")
        .fetch_all(&scene.sql)
        .await
        .expect("an audit")
}

#[tokio::test]
async fn every_act_says_what_it_did_is_audited_and_may_be_repeated() {
    let scene = Scene::new().await;
    let replica = start(&scene).ready().await;
    let asked = call(&replica, Way::Http, "post_entry", question("q")).await.fresh();
    let id = asked.id();
    let mut expected = Vec::new();
    for (act, arguments, words, member) in [
        (
            "hide",
            vec!["hide", id],
            ["is hidden", "hidden already"],
            json!({ "hidden": true }),
        ),
        (
            "unhide",
            vec!["unhide", id],
            ["can be read again", "was not hidden"],
            json!({ "hidden": false }),
        ),
        (
            "delete",
            vec!["delete", id, "--yes"],
            ["is deleted", "deleted already"],
            json!({ "deleted": true }),
        ),
    ] {
        let (status, said, _) = scene.admin(&arguments).await;
        assert!(status == 0 && said.starts_with(id) && said.contains(words[0]), "{said}");
        let (status, said, _) = scene.admin(&arguments).await;
        assert!(status == 0 && said.contains(words[1]), "{said}");
        let (status, said, _) = scene.admin(&[&arguments[..], &["--json"]].concat()).await;
        let mut told = json!({ "entry_id": id, "status": "already so" });
        told.as_object_mut()
            .expect("an object")
            .extend(member.as_object().expect("an object").clone());
        assert_eq!((status, serde_json::from_str::<Value>(&said).expect("JSON")), (0, told));
        for outcome in ["changed", "already so", "already so"] {
            expected.push((act.to_owned(), id.to_owned(), outcome.to_owned()));
        }
    }
    assert_eq!(audit(&scene).await, expected);
    // What is deleted is not hidden or shown, and what is unknown is not acted on.
    for act in ["hide", "unhide"] {
        let (status, _, said) = scene.admin(&[act, id]).await;
        assert!(
            status == 1 && said.contains("was deleted") && said.contains("Nothing was changed"),
            "{said}"
        );
    }
    for arguments in [
        vec!["hide", "E-0"],
        vec!["unhide", "E-0"],
        vec!["delete", "E-0"],
        vec!["delete", "E-0", "--yes"],
    ] {
        let (status, _, said) = scene.admin(&arguments).await;
        assert!(
            status == 1 && said.contains("no entry E-0") && said.contains("Nothing was changed"),
            "{said}"
        );
    }
    let changed = scene
        .count("select count(*) from audit where outcome in ('changed', 'already so')")
        .await;
    assert_eq!(changed, 9);
}

/// `admin delete` at a terminal at which somebody types this.
async fn at_a_terminal(scene: &Scene, id: &str, typed: &str) -> (bool, String) {
    let command = format!("{} admin delete {id}", env!("CARGO_BIN_EXE_ticket-ledger"));
    let typing = format!("printf '%s\\n' {typed} | script -qec '{command}' /dev/null");
    let output = Command::new("sh")
        .args(["-c", &typing])
        .env("DATABASE_URL", &scene.url)
        .output()
        .await
        .expect("sh runs");
    (
        output.status.success(),
        String::from_utf8_lossy(&output.stdout).into_owned(),
    )
}

#[tokio::test]
async fn deleting_asks_before_and_refuses_where_there_is_nobody_to_ask() {
    let scene = Scene::new().await;
    let replica = start(&scene).ready().await;
    let asked = call(&replica, Way::Http, "post_entry", question("q")).await.fresh();
    call(&replica, Way::Http, "post_entry", reply("r", asked.id()))
        .await
        .fresh();
    let (status, _, said) = scene.admin(&["delete", asked.id()]).await;
    assert!(
        status == 2 && said.contains("--yes") && said.contains("Nothing was changed"),
        "{said}"
    );
    let (success, said) = at_a_terminal(&scene, asked.id(), "n").await;
    assert!(
        said.contains("the question \"Title of q\", whose 1 replies") && said.contains("[y/N]"),
        "{said}"
    );
    assert!(!success && said.contains("left as it is"), "{said}");
    assert_eq!(scene.count("select count(*) from entries").await, 2);
    let (success, said) = at_a_terminal(&scene, asked.id(), "yes").await;
    assert!(success && said.contains("is deleted"), "{said}");
    assert_eq!(scene.count("select count(*) from entries").await, 1);
    // There is nothing left to ask about.
    assert_eq!(scene.admin(&["delete", asked.id()]).await.0, 0);
}

#[tokio::test]
async fn what_is_hidden_and_what_was_deleted_is_listed() {
    let scene = Scene::new().await;
    let replica = start(&scene).ready().await;
    for which in ["hidden", "deleted"] {
        let (status, said, _) = scene.admin(&["entries", which]).await;
        assert_eq!((status, said), (0, format!("No entry is {which}.")));
    }
    let asked = call(&replica, Way::Http, "post_entry", question("q")).await.fresh();
    let one = call(&replica, Way::Http, "post_entry", reply("one", asked.id()))
        .await
        .fresh();
    let two = call(&replica, Way::Http, "post_entry", reply("two", asked.id()))
        .await
        .fresh();
    scene.admin(&["hide", asked.id()]).await;
    scene.admin(&["hide", one.id()]).await;
    scene.admin(&["delete", two.id(), "--yes"]).await;
    let listed = |which| {
        let scene = &scene;
        async move {
            let (status, said, _) = scene.admin(&["entries", which, "--json"]).await;
            assert_eq!(status, 0);
            let mut told: Value = serde_json::from_str(&said).expect("JSON");
            assert_eq!(told["more"], false);
            for entry in told[which].as_array_mut().expect("a list") {
                let since = entry.as_object_mut().expect("an object").remove(&format!("{which}_at"));
                assert!(since.is_some_and(|since| since.as_str().is_some_and(|time| time.ends_with('Z'))));
            }
            told[which].clone()
        }
    };
    let shown = |told: &super::Told, request_id: &str, name: &str, value: &str| {
        json!({
            "entry_id": told.id(), "type": told.data["type"], "created_at": told.data["created_at"], "request_id": request_id,
            name: value,
        })
    };
    let expected = json!([
        shown(&one, "one", "parent_id", asked.id()),
        shown(&asked, "q", "title", "Title of q"),
    ]);
    assert_eq!(listed("hidden").await, expected);
    assert_eq!(
        listed("deleted").await,
        json!([shown(&two, "two", "parent_id", asked.id())])
    );
    let (_, said, _) = scene.admin(&["entries", "hidden"]).await;
    assert!(
        said.contains(asked.id()) && said.contains("question \"Title of q\""),
        "{said}"
    );
    assert!(
        said.contains(one.id()) && said.contains(&format!("reply to {}", asked.id())),
        "{said}"
    );
}

#[tokio::test]
async fn possible_duplicates_are_listed_with_those_among_tickets() {
    let scene = Scene::new().await;
    let replica = start(&scene).ready().await;
    replica.create("t1", "Twin").await;
    replica.create("t2", "Twin").await;
    let mut posted = Vec::new();
    for (key, title, body, name) in [
        ("q1", "Twin", "one", "Anna"),
        ("q2", "Twin", "one", "Anna"),
        ("q3", "Twin", "two", "Anna"),
        ("q4", "Twin", "one", "Ben"),
    ] {
        let mut asked = question(key);
        asked["title"] = json!(title);
        asked["body"] = json!(body);
        asked["actor"]["name"] = json!(name);
        posted.push(call(&replica, Way::Http, "post_entry", asked).await.fresh());
    }
    let mut replies = Vec::new();
    for (key, thread) in [("r1", 0), ("r2", 0), ("r3", 1)] {
        let mut answered = reply(key, posted[thread].id());
        answered["body"] = json!("The same.");
        replies.push(call(&replica, Way::Http, "post_entry", answered).await.fresh());
    }
    let (status, said, _) = scene.admin(&["duplicates", "--json"]).await;
    let shown: Value = serde_json::from_str(&said).expect("JSON");
    let groups = shown["duplicates"].as_array().expect("groups");
    assert_eq!((status, groups.len()), (1, 3), "{shown:#}");
    assert_eq!(groups[0]["request_ids"], json!(["t1", "t2"]));
    let questions = json!({
        "title": "Twin", "entry_ids": [posted[0].id(), posted[1].id()], "request_ids": ["q1", "q2"],
    });
    assert_eq!(groups[1], questions);
    let twins = json!({
        "parent_id": posted[0].id(), "entry_ids": [replies[0].id(), replies[1].id()], "request_ids": ["r1", "r2"],
    });
    assert_eq!(groups[2], twins);
    // By the title alone, which replies do not have.
    let (_, said, _) = scene.admin(&["duplicates", "--by", "title"]).await;
    assert!(
        said.contains("\"Twin\": 3 questions") && !said.contains("replies"),
        "{said}"
    );
    let (_, said, _) = scene.admin(&["duplicates"]).await;
    assert!(said.contains(&format!("2 replies to {}", posted[0].id())), "{said}");
}
