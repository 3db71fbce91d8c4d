//! Rule 7: the answers that the service has.

use super::told::{Answer, Sent};

impl Answer<'_> {
    /// What is wrong with an answer to a call that sent this.
    pub(super) fn what_is_wrong(&self, sent: &Sent, balanced: bool) -> Option<String> {
        let over_http = self.way == "http";
        let (status, outcome) = (self.status, self.outcome);
        let right: &[u16] = match (outcome, over_http) {
            ("done", _) => return self.what_is_wrong_with_done(sent, over_http),
            ("in_progress", true) => &[202],
            ("conflict" | "failed", true) => &[409],
            ("unavailable", true) => &[502, 503],
            // Of a deployment that has limits, or whose operator has stopped writes.
            ("rate_limited", true) => &[429],
            ("writes_disabled", true) => &[503],
            // A tool's result, but for a replica that is stopping.
            ("unavailable", false) => &[200, 502],
            ("in_progress" | "conflict" | "failed" | "rate_limited" | "writes_disabled", false) => &[200],
            // A page of the balancer's own.
            ("none", _) if balanced => &[502, 503],
            _ => {
                return Some(format!(
                    "answered with {outcome} (HTTP {status}), which this call cannot be"
                ));
            }
        };
        (!right.contains(&status)).then(|| format!("answered with {outcome} and HTTP {status}"))
    }

    fn what_is_wrong_with_done(&self, sent: &Sent, over_http: bool) -> Option<String> {
        let Some(replayed) = self.replayed else {
            return Some("answered with done, and not whether it is replayed".to_owned());
        };
        let creates = sent.tool != "set_ticket_status";
        let right = if over_http && creates && !replayed { 201 } else { 200 };
        if self.status != right {
            return Some(format!(
                "answered with done, replayed {replayed} and HTTP {}",
                self.status
            ));
        }
        let members: &[&str] = match sent.tool.as_str() {
            "create_ticket" => &["ticket_id", "title", "ticket_status", "created_at", "answered_at"],
            "add_comment" => &["comment_id", "ticket_id", "created_at", "answered_at"],
            _ => &["ticket_id", "ticket_status", "previous_status", "answered_at"],
        };
        let text = |name: &str| self.result?.get(name)?.as_str().filter(|text| !text.is_empty());
        if let Some(missing) = members.iter().find(|name| text(name).is_none()) {
            return Some(format!("answered with done without {missing}"));
        }
        let known = |name: &&String| members.contains(&name.as_str()) || name.as_str() == "possible_duplicate_of";
        if let Some(strange) = self.result.and_then(|result| result.keys().find(|name| !known(name))) {
            return Some(format!(
                "answered with done and {strange}, which {} does not have",
                sent.tool
            ));
        }
        let fits = match sent.tool.as_str() {
            "create_ticket" => {
                text("title") == Some(&format!("load {}", sent.mark)) && text("ticket_status") == Some("open")
            }
            "add_comment" => text("ticket_id") == sent.ticket.as_deref(),
            _ => text("ticket_id")
                .zip(text("ticket_status"))
                .is_some_and(|(ticket, status)| sent.mark == format!("{ticket} {status}")),
        };
        (!fits).then(|| "answered with done for other arguments than were sent".to_owned())
    }
}

/// What is wrong with an answer of find_request.
pub(super) fn wrong_with_found(http: u16, status: &str, has_result: bool, balanced: bool) -> Option<String> {
    let right = match status {
        "done" => http == 200 && has_result,
        "running" | "abandoned" | "unknown" | "failed" => http == 200 && !has_result,
        "unavailable" => matches!(http, 502 | 503),
        "none" => balanced && matches!(http, 502 | 503),
        _ => false,
    };
    (!right).then(|| {
        let with = if has_result { "a result" } else { "no result" };
        format!("find_request answered {status} with {with} and HTTP {http}")
    })
}
