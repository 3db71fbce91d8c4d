//! All replicas' connections must fit into what the server allows; a replica says at its start when they do not.

use serde_json::Value;
use sqlx::{AssertSqlSafe, Connection, PgConnection};

use crate::support::cluster::TestCluster;
use crate::support::replica::Replica;
use crate::support::scene::Scene;

/// What the replica said of the budget of all replicas: how many it wants and how many are allowed.
fn complaint(replica: &Replica) -> Option<(Value, Value)> {
    let found = replica.log().into_iter().find(|line| {
        let message = line["message"].as_str().unwrap_or_default();
        line["level"] == "WARN" && message.starts_with("MAX_REPLICAS x (POOL_SIZE + 2)")
    });
    found.map(|line| (line["wanted"].clone(), line["allowed"].clone()))
}

#[tokio::test]
async fn a_replica_says_at_its_start_when_all_of_them_together_want_too_many_connections() {
    // Three are kept for superusers.
    let cluster = TestCluster::own(&[("max_connections", "21")]).await;
    let scene = Scene::on(&cluster).await;
    let start = |replicas: u32| {
        scene
            .replica()
            .with("POOL_SIZE", 4)
            .with("MAX_REPLICAS", replicas)
            .ready()
    };
    for (replicas, said) in [(1, None), (3, None), (4, Some((24.into(), 18.into())))] {
        // The sentence stands in the log before "ready" does.
        assert_eq!(complaint(&start(replicas).await), said, "{replicas} replicas");
    }
    let mut sql = PgConnection::connect(&scene.url).await.expect("connects");
    for (limit, said) in [
        ("alter role postgres connection limit 17", Some((18.into(), 17.into()))),
        ("alter role postgres connection limit -1", None),
    ] {
        sqlx::raw_sql(AssertSqlSafe(limit))
            .execute(&mut sql)
            .await
            .expect("a limit");
        assert_eq!(complaint(&start(3).await), said, "{limit}");
    }
}
