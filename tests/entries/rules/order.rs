//! In which order a post is looked at: the source's limit, what is saved, the stop, the limit on all, the question.

use futures_util::future::join_all;
use serde_json::json;

use super::super::{Told, call, plain, question, reply};
use super::{Ground, Rule, rule, with};
use crate::support::calls::ticket;
use crate::support::cluster::TestCluster;
use crate::support::eventually;
use crate::support::proxy::Proxy;
use crate::support::replica::Start;

/// A refusal that says whose limit it was and when to come back.
#[track_caller]
fn limited(told: Told, limit: &str) -> Told {
    let told = told.refused(429, "rate_limited");
    assert_eq!(told.data["error"]["limit"], limit);
    let seconds = told.retry_after.expect("when to come back");
    assert!((1..=3_600).contains(&seconds), "{seconds}");
    told
}

/// Writes stop for a moment.
async fn while_stopped<T>(ground: &Ground, meanwhile: impl Future<Output = T>) -> T {
    ground.admin(&["stop-writes"]).await;
    let told = meanwhile.await;
    ground.admin(&["allow-writes"]).await;
    told
}

pub const RULES: &[Rule] = &[
    with(
        &[("LIMIT_PER_SOURCE_PER_HOUR", "3")],
        "The limit of the source comes before the comparison: a repeat uses a unit up too, and beyond the limit rate_limited does not say \
         whether it is saved. After the wait the same request_id and content are answered.",
        |ground, way| {
            Box::pin(async move {
                let asked = question(&ground.key());
                let first = ground.post(way, asked.clone()).await.fresh();
                ground.post(way, asked.clone()).await.replayed();
                let mut other = asked.clone();
                other["body"] = json!("Another.");
                ground.post(way, other).await.refused(409, "conflict");
                let refused = limited(ground.post(way, asked.clone()).await, "source");
                let unsaved = limited(ground.post(way, question(&ground.key())).await, "source");
                assert_eq!(refused.data["error"]["message"], unsaved.data["error"]["message"]);
                ground.next_hour().await;
                assert_eq!(ground.post(way, asked).await.replayed().id(), first.id());
            })
        },
    ),
    with(
        &[("LIMIT_PER_SOURCE_PER_HOUR", "5")],
        "A source's limit holds for all replicas together, and neither refused arguments nor reads count.",
        |ground, way| {
            Box::pin(async move {
                for _ in 0..4 {
                    let mut wrong = question(&ground.key());
                    wrong["title"] = json!("");
                    ground.post(way, wrong).await.refused(400, "invalid_argument");
                    let missing = ground.call(way, "get_thread", json!({ "id": "E-000000000000" }));
                    missing.await.refused(404, "not_found");
                }
                let told = join_all((0..12).map(|_| ground.post(way, question(&ground.key())))).await;
                let (fresh, refused): (Vec<_>, Vec<_>) = told.into_iter().partition(|told| told.status == 201);
                assert_eq!(fresh.len(), 5);
                for told in refused {
                    limited(told, "source");
                }
                ground
                    .call(way, "get_thread", json!({ "id": fresh[0].id() }))
                    .await
                    .read();
            })
        },
    ),
    rule(
        "What is saved is answered with replayed true while the operator has stopped posts.",
        |ground, way| {
            Box::pin(async move {
                let asked = question(&ground.key());
                let first = ground.post(way, asked.clone()).await.fresh();
                while_stopped(ground, async {
                    assert_eq!(ground.post(way, asked.clone()).await.replayed().id(), first.id());
                    let mut other = asked.clone();
                    other["body"] = json!("Another.");
                    ground.post(way, other).await.refused(409, "conflict");
                })
                .await;
            })
        },
    ),
    rule(
        "What is not saved is refused with writes_disabled, 503, while posts are stopped, on all replicas at once; when they are allowed \
         again the same request_id and content are saved.",
        |ground, way| {
            Box::pin(async move {
                let asked = question(&ground.key());
                while_stopped(ground, async {
                    for _ in 0..3 {
                        let told = ground.post(way, asked.clone()).await.refused(503, "writes_disabled");
                        assert!(told.retry_after.is_some());
                        let message = told.data["error"]["message"].as_str().expect("a message");
                        assert!(message.contains("not saved"), "{message}");
                    }
                    assert_eq!(ground.entries(asked["request_id"].as_str().expect("a text")).await, 0);
                })
                .await;
                ground.post(way, asked).await.fresh();
            })
        },
    ),
    with(
        &[("LIMIT_GLOBAL_PER_HOUR", "3")],
        "What is not saved is refused at the limit on all posts, which counts what all replicas save; what is saved is replayed all the same.",
        |ground, way| {
            Box::pin(async move {
                let asked = question(&ground.key());
                let first = ground.post(way, asked.clone()).await.fresh();
                let mut others = join_all((0..5).map(|_| ground.post(way, question(&ground.key())))).await;
                others.retain(|told| told.status != 201);
                assert_eq!(others.len(), 3);
                for told in others {
                    let told = limited(told, "global");
                    let message = told.data["error"]["message"].as_str().expect("a message");
                    assert!(message.contains("not saved"), "{message}");
                }
                // Tickets are posts of the same hour.
                let over_http = ground.replicas[0]
                    .post("/tickets", &ticket(&ground.key(), "A ticket"))
                    .await;
                limited(plain(&over_http), "global");
                assert_eq!(ground.post(way, asked).await.replayed().id(), first.id());
                ground.next_hour().await;
                ground.post(way, question(&ground.key())).await.fresh();
            })
        },
    ),
    with(
        &[("LIMIT_GLOBAL_PER_HOUR", "2"), ("LIMIT_PER_SOURCE_PER_HOUR", "8")],
        "The order is: the source's limit, what is saved, the stop, the limit on all, the question.",
        |ground, way| {
            Box::pin(async move {
                let saved = question(&ground.key());
                ground.post(way, saved.clone()).await.fresh();
                let orphan = reply(&ground.key(), "E-000000000000");
                // The question, when nothing else is in the way.
                ground.post(way, orphan.clone()).await.refused(404, "not_found");
                ground.post(way, question(&ground.key())).await.fresh();
                // The limit on all before the question.
                limited(ground.post(way, orphan.clone()).await, "global");
                while_stopped(ground, async {
                    // The stop before the limit on all; what is saved before the stop.
                    ground.post(way, orphan.clone()).await.refused(503, "writes_disabled");
                    ground.post(way, saved.clone()).await.replayed();
                    ground.post(way, orphan.clone()).await.refused(503, "writes_disabled");
                    ground.post(way, orphan.clone()).await.refused(503, "writes_disabled");
                    // The source's limit before what is saved.
                    limited(ground.post(way, saved.clone()).await, "source");
                })
                .await;
            })
        },
    ),
    rule(
        "A reply is not saved when its question is not there, is hidden or deleted, or is itself a reply; all are refused alike.",
        |ground, way| {
            Box::pin(async move {
                let (hidden, deleted, open) = (ground.ask(way).await, ground.ask(way).await, ground.ask(way).await);
                let itself = ground.post(way, reply(&ground.key(), open.id())).await.fresh();
                ground.admin(&["hide", hidden.id()]).await;
                ground.admin(&["delete", "--yes", deleted.id()]).await;
                let mut told = Vec::new();
                let key = ground.key();
                for parent in ["E-000000000000", "no-such-id", hidden.id(), deleted.id(), itself.id()] {
                    let answer = ground.post(way, reply(&key, parent)).await.refused(404, "not_found");
                    told.push(answer.data);
                }
                told.dedup();
                assert_eq!(told.len(), 1, "{told:#?}");
                assert_eq!(ground.entries(&key).await, 0);
                // The request_id is still free, and a question that is shown again takes replies again.
                ground.admin(&["unhide", hidden.id()]).await;
                ground.post(way, reply(&key, hidden.id())).await.fresh();
            })
        },
    ),
    rule(
        "unavailable, 503, is waited out; then the same request_id and content are answered, and there is one entry.",
        |ground, way| {
            Box::pin(async move {
                let proxy = Proxy::before(TestCluster::shared()).await;
                let replica = Start::on(&proxy.url(&ground.scene.url))
                    .with("TOOLSETS", "entries")
                    .ready()
                    .await;
                let asked = question(&ground.key());
                proxy.down();
                let told = call(&replica, way, "post_entry", asked.clone())
                    .await
                    .refused(503, "unavailable");
                assert!(told.retry_after.is_some());
                proxy.up();
                let told = eventually("it is saved", || async {
                    let told = call(&replica, way, "post_entry", asked.clone()).await;
                    (told.status < 300).then_some(told)
                })
                .await;
                assert!([200, 201].contains(&told.status), "{told:?}");
                assert_eq!(ground.entries(asked["request_id"].as_str().expect("a text")).await, 1);
            })
        },
    ),
];
