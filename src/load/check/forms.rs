//! Rule 7: the answers that the service has.

use serde_json::Value;

use super::told::{Answer, Sent};

impl Answer<'_> {
    /// What is wrong with an answer to a call that sent this.
    pub(super) fn what_is_wrong(&self, sent: &Sent, balanced: bool) -> Option<String> {
        let over_http = self.way == "http";
        let (status, outcome) = (self.status, self.outcome);
        let is_post = sent.tool == "post_entry";
        let is_reply = sent.entry.as_ref().is_some_and(|entry| entry.parent_id.is_some());
        // What HTTP answers; over MCP it stands in the envelope of those tools that have one.
        let http: &[u16] = match outcome {
            "done" => match self.what_is_wrong_with_done(sent) {
                Some(wrong) => return Some(wrong),
                None if self.replayed == Some(false) && sent.tool != "set_ticket_status" => &[201],
                None => &[200],
            },
            "in_progress" => &[202],
            "conflict" | "failed" => &[409],
            "unavailable" => &[502, 503],
            // Of a deployment that has limits, or whose operator has stopped writes.
            "rate_limited" if matches!(self.limit, Some("source" | "global")) => &[429],
            "writes_disabled" => &[503],
            "not_found" if is_reply => &[404],
            "deleted" if is_post => &[410],
            // A page of the balancer's own.
            "none" if balanced => &[502, 503],
            _ => {
                return Some(format!(
                    "answered with {outcome} (HTTP {status}), which this call cannot be"
                ));
            }
        };
        let said = match self.replayed {
            Some(replayed) => format!("answered with {outcome}, replayed {replayed}"),
            None => format!("answered with {outcome}"),
        };
        // A tool's result, but for a replica that is stopping, or a balancer in its place.
        let bare = outcome == "none" || outcome == "unavailable" && status == 502;
        if over_http || bare {
            return (!http.contains(&status)).then(|| format!("{said} and HTTP {status}"));
        }
        if status != 200 {
            return Some(format!("{said} and HTTP {status}"));
        }
        let told = self.told_status;
        let right = if is_post {
            told.is_some_and(|told| http.contains(&told))
        } else {
            told.is_none()
        };
        (!right).then(|| format!("{said} and http_status {told:?}"))
    }

    fn what_is_wrong_with_done(&self, sent: &Sent) -> Option<String> {
        let Some(replayed) = self.replayed else {
            return Some("answered with done, and not whether it is replayed".to_owned());
        };
        let members: &[&str] = match sent.tool.as_str() {
            "create_ticket" => &["ticket_id", "title", "ticket_status", "created_at", "answered_at"],
            "add_comment" => &["comment_id", "ticket_id", "created_at", "answered_at"],
            "post_entry" if sent.entry.as_ref().is_some_and(|entry| entry.parent_id.is_some()) => &[
                "id",
                "type",
                "parent_id",
                "url",
                "bookmark_url",
                "saved_via",
                "created_at",
                "answered_at",
            ],
            "post_entry" => &["id", "type", "url", "saved_via", "created_at", "answered_at"],
            _ => &["ticket_id", "ticket_status", "previous_status", "answered_at"],
        };
        let member = |name: &str| self.result?.get(name);
        let text = |name: &str| member(name)?.as_str().filter(|text| !text.is_empty());
        if let Some(missing) = members.iter().find(|name| text(name).is_none()) {
            return Some(format!("answered with done without {missing}"));
        }
        let may_be_hidden = sent.tool == "post_entry" && replayed && member("visible") == Some(&Value::Bool(false));
        let known = |name: &&String| {
            members.contains(&name.as_str())
                || name.as_str() == "possible_duplicate_of"
                || may_be_hidden && name.as_str() == "visible"
        };
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
            "post_entry" => sent.entry.as_ref().is_some_and(|entry| {
                let (id, url) = (text("id").unwrap_or_default(), text("url").unwrap_or_default());
                let thread = entry.parent_id.as_deref().unwrap_or(id);
                let reply = text("bookmark_url").is_none_or(|place| place == format!("{url}/replies/{id}"));
                text("type") == Some(&entry.kind)
                    && text("parent_id") == entry.parent_id.as_deref()
                    && url.ends_with(&format!("/api/v1/threads/{thread}"))
                    && reply
            }),
            _ => text("ticket_id")
                .zip(text("ticket_status"))
                .is_some_and(|(ticket, status)| sent.mark == format!("{ticket} {status}")),
        };
        (!fits).then(|| "answered with done for other arguments than were sent".to_owned())
    }
}

/// What is wrong with an answer of find_request on a request; `posts` says whether an entry was posted under it.
pub(super) fn wrong_with_found(
    http: u16,
    status: &str,
    has_result: bool,
    posts: bool,
    balanced: bool,
) -> Option<String> {
    let right = match status {
        "done" => http == 200 && has_result,
        "running" | "abandoned" | "unknown" | "failed" => http == 200 && !has_result,
        "deleted" => posts && http == 410 && !has_result,
        "unavailable" => matches!(http, 502 | 503),
        "none" => balanced && matches!(http, 502 | 503),
        "lost" => http == 0,
        _ => false,
    };
    (!right).then(|| {
        let with = if has_result { "a result" } else { "no result" };
        format!("find_request answered {status} with {with} and HTTP {http}")
    })
}
