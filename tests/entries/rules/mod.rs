//! The rules of the board, a sentence each, by both ways on three replicas. They are those of a live service, whose notes for its
//! users say them one by one.

mod gone;
mod order;
mod same;

use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde_json::Value;

use super::{Told, WAYS, Way, call, question, start};
use crate::support::replica::Replica;
use crate::support::scene::Scene;

type Holds = for<'a> fn(&'a Ground, Way) -> BoxFuture<'a, ()>;

/// A sentence, the settings under which it is tried, and what is tried. Calls whose way does not matter go the given way too.
struct Rule {
    sentence: &'static str,
    settings: &'static [(&'static str, &'static str)],
    holds: Holds,
}

/// A rule that needs no settings, and shares its replicas with the others.
const fn rule(sentence: &'static str, holds: Holds) -> Rule {
    with(&[], sentence, holds)
}

/// A rule that is tried on replicas of its own with these settings.
const fn with(settings: &'static [(&'static str, &'static str)], sentence: &'static str, holds: Holds) -> Rule {
    Rule {
        sentence,
        settings,
        holds,
    }
}

/// Three replicas on one database, which take turns.
struct Ground {
    scene: Scene,
    replicas: [Replica; 3],
    turn: AtomicUsize,
}

impl Ground {
    async fn new(settings: &[(&str, &str)]) -> Self {
        let scene = Scene::new().await;
        let ready = || {
            let start = settings
                .iter()
                .fold(start(&scene), |start, (name, value)| start.with(name, value));
            start.ready()
        };
        let replicas = [ready().await, ready().await, ready().await];
        Self {
            scene,
            replicas,
            turn: AtomicUsize::new(0),
        }
    }

    fn turn(&self) -> usize {
        self.turn.fetch_add(1, Ordering::Relaxed)
    }

    /// Calls a tool on the next replica.
    async fn call(&self, way: Way, tool: &str, arguments: Value) -> Told {
        call(&self.replicas[self.turn() % 3], way, tool, arguments).await
    }

    async fn post(&self, way: Way, arguments: Value) -> Told {
        self.call(way, "post_entry", arguments).await
    }

    /// A request_id that nobody has used.
    fn key(&self) -> String {
        format!("key-{}", self.turn())
    }

    /// Posts a question of its own.
    async fn ask(&self, way: Way) -> Told {
        self.post(way, question(&self.key())).await.fresh()
    }

    /// What an operator does; it must succeed.
    async fn admin(&self, arguments: &[&str]) {
        let (status, _, said) = self.scene.admin(arguments).await;
        assert_eq!(status, 0, "{arguments:?}: {said}");
    }

    async fn run(&self, sql: &'static str, id: &str) {
        let done = sqlx::query(sql).bind(id).execute(&self.scene.sql).await.expect("runs");
        assert_eq!(done.rows_affected(), 1, "{sql}");
    }

    /// How many entries a request has.
    async fn entries(&self, request_id: &str) -> i64 {
        sqlx::query_scalar("select count(*) from entries where request_id = $1")
            .bind(request_id)
            .fetch_one(&self.scene.sql)
            .await
            .expect("a number")
    }

    /// Lets the hour be over whose units are used up.
    async fn next_hour(&self) {
        let sql = "update source_units set hour = hour - interval '1 hour'; update saved_writes set hour = hour - interval '1 hour'";
        sqlx::raw_sql(sql).execute(&self.scene.sql).await.expect("time passes");
    }
}

#[tokio::test]
async fn every_sentence_holds_by_both_ways_on_three_replicas() {
    let shared = Ground::new(&[]).await;
    let mut broken = Vec::new();
    for rule in same::RULES.iter().chain(order::RULES).chain(gone::RULES) {
        for way in WAYS {
            let own = match rule.settings {
                [] => None,
                settings => Some(Ground::new(settings).await),
            };
            let held = (rule.holds)(own.as_ref().unwrap_or(&shared), way);
            if AssertUnwindSafe(held).catch_unwind().await.is_err() {
                broken.push(format!("{way:?}: {}", rule.sentence));
                // Whatever it left behind is not the next one's.
                shared.admin(&["allow-writes"]).await;
            }
        }
    }
    assert!(broken.is_empty(), "\n{}", broken.join("\n"));
}
