//! Text comes back in NFC and with `\n`, and otherwise unchanged.

use serde_json::json;

use super::{WAYS, all_replies, call, question, reply, start, three};
use crate::support::scene::Scene;

#[tokio::test]
async fn text_comes_back_in_nfc_with_unix_line_ends_and_otherwise_unchanged() {
    let scene = Scene::new().await;
    let replicas = three(&scene).await;
    let texts = [
        ("日本語のテキスト、「引用」、濁点", None),
        ("👩‍👩‍👧‍👦 🏳️‍🌈 👍🏽 \u{1F1EF}\u{1F1F5}", None),
        // NFD: e and an acute, ka and a dakuten, Hangul jamo.
        ("Cafe\u{301} か\u{3099} \u{1100}\u{1161}", Some("Café が 가")),
        ("\u{200F}שלום\u{200E} \u{202E}abc\u{202C} \u{2066}x\u{2069}", None),
        ("one\r\ntwo\rthree\n\r\nfive", Some("one\ntwo\nthree\n\nfive")),
        (
            "\u{feff}\u{200b}\u{1}\u{7f}\t \\ \" ' % _ <b> &amp; \u{2028}\u{10FFFF}",
            None,
        ),
        ("  leading and trailing  \n\n", None),
    ];
    for (number, (text, expected)) in texts.into_iter().enumerate() {
        let expected = expected.unwrap_or(text);
        for (place, way) in WAYS.into_iter().enumerate() {
            let key = format!("{number}-{}", way.name());
            let mut asked = question(&key);
            asked["body"] = json!(text);
            let line = expected.lines().next().expect("a line");
            let one_line = !line.chars().any(char::is_control);
            if one_line {
                asked["title"] = json!(text.split(['\r', '\n']).next());
                asked["actor"]["name"] = asked["title"].clone();
            }
            let posted = call(&replicas[place], way, "post_entry", asked).await.fresh();
            let thread = json!({ "id": posted.id() });
            let read = call(&replicas[2], way, "get_thread", thread).await.read();
            assert_eq!(read.text("body"), expected, "{text:?}");
            if one_line {
                assert_eq!((read.text("title"), &read.data["actor"]["name"]), (line, &json!(line)));
            }
            // Compared as it is kept: the same request in another form of the same text.
            let mut answered = reply(&format!("{key}-reply"), posted.id());
            answered["body"] = json!(text);
            call(&replicas[place], way, "post_entry", answered.clone())
                .await
                .fresh();
            answered["body"] = json!(expected);
            call(&replicas[2], way.other(), "post_entry", answered).await.replayed();
            let listed = all_replies(&replicas[2], way, posted.id()).await;
            assert_eq!(listed[0]["body"], expected);
        }
    }
}

#[tokio::test]
async fn bodies_of_64_kib_come_back_whole() {
    let scene = Scene::new().await;
    let replica = start(&scene).ready().await;
    let kib = 65_536;
    let bodies = [
        "x".repeat(kib),
        "語".repeat(kib / 3) + "x",
        "👍".repeat(kib / 4),
        "\n".repeat(kib - 1) + "x",
        "\u{1}".repeat(kib),
        // Shorter once it is in NFC.
        "e\u{301}".repeat(kib / 2),
    ];
    for (number, body) in bodies.into_iter().enumerate() {
        for way in WAYS {
            let mut asked = question(&format!("{number}-{}", way.name()));
            asked["body"] = json!(body);
            let posted = call(&replica, way, "post_entry", asked).await.fresh();
            let read = call(&replica, way, "get_thread", json!({ "id": posted.id() })).await;
            let expected = body.replace("e\u{301}", "é");
            assert!(read.text("body") == expected, "{number} by {way:?}");
        }
    }
}
