//! An operation called twice happens once.

use std::collections::HashSet;

use futures_util::future::join_all;

use crate::support::calls::ticket;
use crate::support::scene::Scene;

#[tokio::test]
async fn ten_identical_calls_over_three_replicas_are_one_fresh_answer_and_nine_replays() {
    let scene = Scene::new().await;
    let replicas = scene.replicas::<3>().await;
    for work_ms in [0, 1] {
        let request_id = format!("ten-{work_ms}");
        let calls = (0..10).map(|call| {
            let (replica, request_id) = (&replicas[call % 3], &request_id);
            async move {
                if call % 2 == 0 {
                    replica
                        .create(request_id, "Ten at once")
                        .await
                        .body
                        .as_object()
                        .expect("an object")
                        .clone()
                } else {
                    replica.tool("create_ticket", ticket(request_id, "Ten at once")).await
                }
            }
        });
        let answers = join_all(calls).await;
        let fresh = answers.iter().filter(|answer| answer["replayed"] == false).count();
        let ids: HashSet<_> = answers.iter().map(|answer| answer["ticket_id"].to_string()).collect();
        assert_eq!((fresh, ids.len()), (1, 1), "{answers:#?}");
        assert!(answers.iter().all(|answer| answer["status"] == "done"));
    }
    assert_eq!(scene.tickets().await, 2);
}
