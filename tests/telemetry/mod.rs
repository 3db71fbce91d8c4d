//! What operators are told of calls: logs, spans and metrics that say what happened, all of it, and no more.

mod collectors;
mod logs;
mod messages;
mod metrics;
mod spans;

use crate::support::eventually;
use crate::support::replica::Replica;

/// The metrics of a replica as they are scraped.
async fn metrics(replica: &Replica) -> String {
    let answer = replica.admin("/metrics").await;
    answer.body.as_str().expect("text").to_owned()
}

/// The number of the series with this name and all of these labels, if there is one.
fn number(metrics: &str, name: &str, labels: &[&str]) -> Option<f64> {
    let line = metrics.lines().find(|line| {
        let rest = line.strip_prefix(name);
        rest.is_some_and(|rest| rest.starts_with(['{', ' '])) && labels.iter().all(|label| line.contains(label))
    })?;
    line.rsplit(' ').next()?.parse().ok()
}

/// Waits until a series shows at least this.
async fn until_at_least(replica: &Replica, name: &str, labels: &[&str], least: f64) {
    eventually(&format!("{name} with {labels:?} is {least}"), || async {
        number(&metrics(replica).await, name, labels).filter(|number| *number >= least)
    })
    .await;
}
