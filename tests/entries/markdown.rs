//! A thread as one Markdown document, whatever posters wrote.

use futures_util::future::join_all;
use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag, TagEnd};
use serde_json::{Value, json};

use super::{WAYS, Way, call, over_http, question, reply, start, three};
use crate::support::calls::{Answer, client};
use crate::support::scene::Scene;

/// Every extension that there is, but those that only change letters.
fn options() -> Options {
    Options::all() - Options::ENABLE_SMART_PUNCTUATION
}

/// What a document is made of, without its words.
fn structure(document: &str) -> Vec<String> {
    let mut made_of = Vec::new();
    for event in Parser::new_ext(document, options()) {
        match event {
            Event::Start(tag) => made_of.push(format!("{:?}", tag.to_end())),
            Event::End(_) => made_of.push("end".to_owned()),
            Event::Text(_) | Event::SoftBreak => {}
            other => made_of.push(format!("{other:?}")),
        }
    }
    made_of
}

/// The words in every heading, and in every fence.
fn words(document: &str) -> (Vec<String>, Vec<String>) {
    let (mut headings, mut fences) = (Vec::new(), Vec::new());
    let mut text = String::new();
    for event in Parser::new_ext(document, options()) {
        match event {
            Event::Start(Tag::Heading { .. } | Tag::CodeBlock(_)) => text.clear(),
            Event::Text(words) => text.push_str(&words),
            Event::End(TagEnd::Heading(_)) => headings.push(text.clone()),
            Event::End(TagEnd::CodeBlock) => fences.push(text.clone()),
            _ => {}
        }
    }
    (headings, fences)
}

/// Where the links of a document lead.
fn links(document: &str) -> Vec<String> {
    Parser::new_ext(document, options())
        .filter_map(|event| match event {
            Event::Start(Tag::Link { dest_url, .. }) => Some(dest_url.into_string()),
            _ => None,
        })
        .collect()
}

const HOSTILE_BODIES: &[&str] = &[
    "# A heading\n\n## Replies\n\n### Reply E-000000000000\n",
    "```\nout of the fence\n```\n\n# Out\n",
    "```text\n````\n`````\n~~~~~~\n# Out",
    "~~~\n~~~~\n\n```` ````\n",
    "   ```\n# Out\n   ```   ",
    "</code></pre><script>alert(1)</script>\n<h1>Out</h1>\n<!--",
    "[link]: https://example.org/ \"reference\"\n\n[link] ![image](x) [^1]\n\n[^1]: note\n",
    "---\ntitle: front matter\n---\n+++\na = 1\n+++\n",
    "| a | b |\n|---|---|\n| 1 | 2 |\n\n- [ ] task\n\n***\n\nsetext\n===\n",
    "> quote\n\n    indented\n\n1. list\n\n$$\nmath\n$$\n\n:::note\n",
    "\u{2028}```\u{2028}# Out\u{2029}\u{85}```\u{85}# Out\u{b}```\u{c}# Out",
    "\t\n \n``` \n\n\n",
];

const HOSTILE_LINES: &[&str] = &[
    "# heading ### {#id .class}",
    "```",
    "*a* _b_ **c** ~~d~~ `e` $f$ ^g^ ||h||",
    "<script>alert(1)</script><!-- <?x ]]> &amp; &#35;",
    "[link](https://example.org) ![i](x) [^1] [[wiki]] [ref][link]",
    "--- title: x ---",
    "1. list",
    "- [ ] task",
    "| a | b |",
    "back\\slash\\ \\# \\\\",
    "https://example.org www.example.org anna@example.org",
    "\u{2028}# Out\u{2029}## Out",
    "> quote :+1: {{template}} {% tag %}",
    "\u{202E}# txet\u{202C} \u{200F}",
];

#[tokio::test]
async fn hostile_text_changes_nothing_of_the_documents_structure() {
    let scene = Scene::new().await;
    let replica = start(&scene).ready().await;
    let mut plain = None;
    for (number, body) in ["A text."].iter().chain(HOSTILE_BODIES).enumerate() {
        let line = |place: usize| match number {
            0 => "Anna",
            _ => HOSTILE_LINES[(number + place) % HOSTILE_LINES.len()],
        };
        let actor = |place: usize| json!({ "name": line(place), "model": line(place + 1), "trigger": line(place + 2) });
        let mut asked = question(&format!("q{number}"));
        asked["body"] = json!(body);
        asked["title"] = json!(line(0));
        asked["actor"] = actor(1);
        asked["submission_mode"] = json!(line(4));
        let asked = call(&replica, Way::Mcp, "post_entry", asked).await.fresh();
        for place in 0..2 {
            let mut answered = reply(&format!("q{number}-{place}"), asked.id());
            answered["body"] = json!(body);
            answered["actor"] = actor(5 + place);
            answered["submission_mode"] = json!(line(8 + place));
            call(&replica, Way::Mcp, "post_entry", answered).await.fresh();
        }
        let document = call(&replica, Way::Http, "read_thread", json!({ "id": asked.id() }))
            .await
            .read();
        let document = document.data.as_str().expect("a text").to_owned();
        let structure = structure(&document.replace(asked.id(), "E-000000000000"));
        let expected = plain.get_or_insert_with(|| structure.clone());
        let differs = structure.iter().zip(expected.iter()).find(|(is, plain)| is != plain);
        assert_eq!((differs, structure.len()), (None, expected.len()), "{document}");
        let (headings, fences) = words(&document);
        let title = line(0).replace(['\u{2028}', '\u{2029}'], " ");
        assert_eq!(headings[0], title.trim(), "{document}");
        assert_eq!(headings[1], "Replies");
        assert_eq!(
            (headings.len(), headings.last().expect("one").as_str()),
            (5, "How to reply")
        );
        // Whatever was written stands there as it was written.
        let written = format!("{body}\n");
        assert_eq!(fences[..3], [written.clone(), written.clone(), written], "{document}");
    }
}

#[tokio::test]
async fn the_document_is_the_same_by_both_ways_and_is_markdown_over_http() {
    let scene = Scene::new().await;
    let [one, two, _] = three(&scene).await;
    let asked = call(&one, Way::Http, "post_entry", question("q")).await.fresh();
    let id = asked.id();
    let url = format!("{}.md", asked.text("url"));
    for accept in ["text/markdown", "text/*;q=0.5", "*/*"] {
        let answer = client()
            .get(&url)
            .header("accept", accept)
            .send()
            .await
            .expect("an answer");
        assert_eq!(
            (answer.status().as_u16(), &answer.headers()["content-type"]),
            (200, &"text/markdown; charset=utf-8".parse().expect("a value"))
        );
    }
    let json_alone = client()
        .get(&url)
        .header("accept", "application/json")
        .send()
        .await
        .expect("an answer");
    assert_eq!(json_alone.status().as_u16(), 406);
    let json_route = client()
        .get(asked.text("url"))
        .header("accept", "text/markdown")
        .send()
        .await
        .expect("an answer");
    assert_eq!(json_route.status().as_u16(), 406);
    let over_http = Answer::read(client().get(&url).send().await.expect("an answer"))
        .await
        .body;
    let over_mcp = call(&one, Way::Mcp, "read_thread", json!({ "id": id })).await.read();
    assert_eq!(over_mcp.data, over_http);
    let document = over_http.as_str().expect("a text");
    assert!(
        document.starts_with("# Title of q\n\n") && document.contains("There are none yet."),
        "{document}"
    );
    for way in WAYS {
        for missing in ["E-000000000000", "x.md"] {
            let told = call(&two, way, "read_thread", json!({ "id": missing })).await;
            told.refused(404, "not_found");
        }
        let arguments = json!({ "id": id, "cursor": "broken" });
        call(&two, way, "read_thread", arguments)
            .await
            .refused(400, "invalid_argument");
    }
}

#[tokio::test]
async fn the_document_has_pages_that_lead_to_one_another() {
    let scene = Scene::new().await;
    let replica = start(&scene).ready().await;
    let asked = call(&replica, Way::Http, "post_entry", question("q")).await.fresh();
    let keys: Vec<_> = (0..120).map(|number| format!("r{number}")).collect();
    let posts = keys
        .iter()
        .map(|key| call(&replica, Way::Http, "post_entry", reply(key, asked.id())));
    let posted: Vec<_> = join_all(posts).await.into_iter().map(super::Told::fresh).collect();
    for number in 0..3 {
        let mut large = reply(&format!("large{number}"), asked.id());
        large["body"] = json!("語\n".repeat(16_384));
        call(&replica, Way::Http, "post_entry", large).await.fresh();
    }
    let mut url = format!("{}.md", asked.text("url"));
    let (mut pages, mut headings) = (Vec::new(), Vec::new());
    loop {
        let page = Answer::read(client().get(&url).send().await.expect("an answer")).await;
        assert_eq!(page.status, 200);
        let document = page.body.as_str().expect("a text").to_owned();
        assert!(document.chars().count() <= 100_000);
        headings.extend(
            words(&document)
                .0
                .into_iter()
                .filter(|heading| heading.starts_with("Reply E-")),
        );
        let next = links(&document).into_iter().find(|link| link.contains("?cursor="));
        pages.push(document);
        match next {
            Some(next) => url = next,
            None => break,
        }
    }
    assert_eq!((pages.len(), headings.len()), (4, 123));
    for told in &posted {
        let heading = format!("Reply {}", told.id());
        assert_eq!(headings.iter().filter(|shown| **shown == heading).count(), 1);
    }
    assert!(pages[0].contains("Who knows?") && !pages[1].contains("Who knows?"));
    assert!(pages.iter().all(|page| page.starts_with("# Title of q\n")));
}

#[tokio::test]
async fn what_the_document_says_of_replying_works_by_both_ways() {
    let scene = Scene::new().await;
    let replica = start(&scene).ready().await;
    let asked = call(&replica, Way::Http, "post_entry", question("q")).await.fresh();
    let document = call(&replica, Way::Mcp, "read_thread", json!({ "id": asked.id() }))
        .await
        .read();
    let document = document.data.as_str().expect("a text").to_owned();
    let mut in_json = false;
    let mut example = String::new();
    for event in Parser::new(&document) {
        match event {
            Event::Start(Tag::CodeBlock(CodeBlockKind::Fenced(info))) => in_json = &*info == "json",
            Event::Text(text) if in_json => example.push_str(&text),
            Event::End(TagEnd::CodeBlock) => in_json = false,
            _ => {}
        }
    }
    let mut arguments: Value = serde_json::from_str(&example).expect("JSON");
    let post = document
        .split("POST ")
        .nth(1)
        .and_then(|rest| rest.split('`').next())
        .expect("an address");
    let answer = client().post(post).json(&arguments).send().await.expect("an answer");
    assert_eq!(answer.status().as_u16(), 201);
    arguments["request_id"] = json!("another one");
    call(&replica, Way::Mcp, "post_entry", arguments).await.fresh();
    let listed = over_http(&replica, "list_replies", json!({ "thread_id": asked.id() })).await;
    assert_eq!(listed.data["replies"].as_array().expect("replies").len(), 2);
    let addresses = links(&document);
    for ending in ["/mcp".to_owned(), format!("/api/v1/threads/{}/replies", asked.id())] {
        assert!(
            addresses.iter().any(|address| address.ends_with(&ending)),
            "{addresses:?}"
        );
    }
}
