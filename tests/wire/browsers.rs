//! MCP clients that run in a browser.

use crate::support::raw::Raw;
use crate::support::scene::Scene;

const PAGE: &str = "https://inspector.example.org";

#[tokio::test]
async fn a_page_of_an_allowed_origin_may_call_and_reads_what_it_needs_and_no_other_may() {
    let scene = Scene::new().await;
    let replica = scene
        .replica()
        .with("AUTH", "token")
        .with("ALLOWED_ORIGINS", PAGE)
        .ready()
        .await;
    let token = scene.token("page", &["--scopes", "tickets:read,tickets:write"]).await;
    let text = |answer: &crate::support::calls::Answer, name: &str| {
        answer
            .headers
            .get(name)
            .map(|value| value.to_str().expect("text").to_lowercase())
    };
    let preflight = |origin: &str, path: &str| {
        Raw::new("OPTIONS", path)
            .header("origin", origin)
            .header("access-control-request-method", "POST")
            .header(
                "access-control-request-headers",
                "authorization,mcp-protocol-version,idempotency-key",
            )
    };
    for path in ["/mcp", "/api/v1/tickets", "/.well-known/oauth-protected-resource/mcp"] {
        let asked = preflight(PAGE, path).send(&replica).await;
        assert_eq!(asked.status, 200, "{asked:?}");
        assert_eq!(text(&asked, "access-control-allow-origin").as_deref(), Some(PAGE));
        let headers = text(&asked, "access-control-allow-headers").expect("headers");
        for name in ["authorization", "mcp-protocol-version", "idempotency-key"] {
            assert!(headers.contains(name), "{headers}");
        }
        assert!(
            text(&asked, "access-control-allow-methods")
                .expect("methods")
                .contains("post")
        );
        assert_eq!(text(&asked, "access-control-allow-credentials"), None);
        let other = preflight("https://evil.example.org", path).send(&replica).await;
        assert_eq!(text(&other, "access-control-allow-origin"), None, "{other:?}");
    }
    let call = |origin: &str, token: &str| {
        let body = r#"{"title":"From a page","body":"b"}"#;
        let call = Raw::api("POST", "/tickets", body)
            .header("origin", origin)
            .header("idempotency-key", "k");
        if token.is_empty() {
            call
        } else {
            call.header("authorization", format!("Bearer {token}"))
        }
    };
    for (token, status) in [("", 401), (token.as_str(), 201), (token.as_str(), 200)] {
        let answer = call(PAGE, token).send(&replica).await;
        assert_eq!(answer.status, status, "{answer:?}");
        assert_eq!(text(&answer, "access-control-allow-origin").as_deref(), Some(PAGE));
        let exposed = text(&answer, "access-control-expose-headers").expect("exposed headers");
        for name in ["www-authenticate", "retry-after", "idempotency-replayed"] {
            assert!(exposed.contains(name), "{exposed}");
        }
    }
    let refused = call("https://evil.example.org", &token).send(&replica).await;
    assert_eq!(
        (refused.status, text(&refused, "access-control-allow-origin")),
        (403, None)
    );
}

#[tokio::test]
async fn every_answer_tells_browsers_to_keep_and_show_nothing_of_it() {
    let scene = Scene::new().await;
    let [replica] = scene.replicas().await;
    let answers = [
        Raw::new("GET", "/api/v1/tickets").send(&replica).await,
        Raw::new("GET", "/nothing").send(&replica).await,
        Raw::new("GET", "/api/v1/tickets")
            .header("host", "evil.example.org")
            .send(&replica)
            .await,
        Raw::mcp("{}").send(&replica).await,
    ];
    for answer in answers {
        for (name, value) in [
            ("cache-control", "no-store"),
            ("x-content-type-options", "nosniff"),
            ("content-security-policy", "default-src 'none'; frame-ancestors 'none'"),
            ("referrer-policy", "no-referrer"),
        ] {
            assert_eq!(answer.headers.get(name).expect(name), value, "{answer:?}");
        }
    }
}
