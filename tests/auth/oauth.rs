//! Access tokens of an OAuth issuer: which are good, and what the others are told, over MCP and over HTTP.

use ring::hmac;
use serde_json::{Value, json};

use super::{is_forbidden, is_unauthenticated};
use crate::support::bearer::Bearer;
use crate::support::calls::{Answer, client, ticket};
use crate::support::issuer::{Issuer, PUBLIC_URL, RESOURCE, Signer, base64, now, unsigned};
use crate::support::replica::{Replica, Start};
use crate::support::scene::Scene;

pub const ALL: &str = "tickets:read tickets:write";

pub fn start(scene: &Scene, issuer: &str) -> Start {
    scene
        .replica()
        .with("AUTH", "oauth")
        .with("PUBLIC_URL", PUBLIC_URL)
        .with("OAUTH_ISSUER", issuer)
}

async fn get(replica: &Replica, path: &str) -> Answer {
    let request = client().get(format!("http://{}{path}", replica.address));
    Answer::read(request.send().await.expect("an answer")).await
}

/// A token is refused by both ways, and why.
pub async fn refused(caller: Bearer<'_>, why: &str) {
    is_unauthenticated(&caller.create("refused", "No").await, Some(why));
    is_unauthenticated(&caller.mcp("create_ticket", ticket("refused", "No")).await, Some(why));
}

#[tokio::test]
async fn clients_find_the_issuer_without_a_token_and_are_led_there() {
    let scene = Scene::new().await;
    let issuer = Issuer::with(&[&Signer::es256("a")]).await;
    let replica = start(&scene, &issuer.url).ready().await;
    let expected = json!({
        "resource": RESOURCE,
        "authorization_servers": [issuer.url],
        "scopes_supported": ["tickets:read", "tickets:write"],
        "bearer_methods_supported": ["header"],
        "resource_name": "ticket-ledger",
    });
    for path in [
        "/.well-known/oauth-protected-resource",
        "/.well-known/oauth-protected-resource/mcp",
    ] {
        let metadata = get(&replica, path).await;
        assert_eq!((metadata.status, &metadata.body), (200, &expected), "{path}");
    }
    let challenge = "Bearer resource_metadata=\"https://tickets.example.org/.well-known/oauth-protected-resource/mcp\", \
                     scope=\"tickets:read tickets:write\"";
    for answer in [
        replica.by_nobody().create("k", "No").await,
        replica.by_nobody().mcp("list_tickets", json!({})).await,
        get(&replica, "/mcp").await,
        get(&replica, "/api/v1/nothing").await,
    ] {
        assert_eq!((answer.status, answer.challenge()), (401, challenge), "{answer:?}");
    }
    assert_eq!(get(&replica, "/nothing").await.status, 404);
    // Without an issuer there is nothing to find.
    let other = scene
        .replica()
        .with("AUTH", "token")
        .with("PUBLIC_URL", PUBLIC_URL)
        .ready()
        .await;
    assert_eq!(get(&other, "/.well-known/oauth-protected-resource").await.status, 404);
    let answer = other.by_nobody().create("k", "No").await;
    assert_eq!(
        answer.challenge(),
        "Bearer realm=\"ticket-ledger\", scope=\"tickets:read tickets:write\""
    );
}

#[tokio::test]
async fn a_token_is_good_by_whichever_of_the_issuers_keys_and_allows_what_it_says() {
    let scene = Scene::new().await;
    let keys = [Signer::es256("ec"), Signer::eddsa("ed"), Signer::rs256("rsa")];
    let issuer = Issuer::with(&[&keys[0], &keys[1], &keys[2]]).await;
    let replica = start(&scene, &issuer.url).ready().await;
    for key in &keys {
        let token = key.token(&issuer.claims(&key.kid, ALL));
        let created = replica.by(&token).create("k", "Let in").await;
        assert_eq!(created.status, 201, "{}: {created:?}", key.kid);
        // Another token of the same person.
        let token = key.token(&issuer.claims(&key.kid, ALL));
        let again = replica.by(&token).tool("create_ticket", ticket("k", "Let in")).await;
        assert_eq!(again["replayed"], true, "{again}");
    }
    assert_eq!(scene.tickets().await, 3);
    let principal = format!("oauth:[\"{}\",\"ec\"]", issuer.url);
    let rows = sqlx::query_scalar::<_, i64>("select count(*) from requests where principal = $1").bind(principal);
    assert_eq!(rows.fetch_one(&scene.sql).await.expect("a number"), 1);

    let key = &keys[0];
    let mut claims = issuer.claims("ec", "openid tickets:read");
    is_forbidden(&replica.by(&key.token(&claims)).create("k", "Let in").await, ALL);
    is_forbidden(
        &replica
            .by(&key.token(&claims))
            .mcp("create_ticket", ticket("k", "Let in"))
            .await,
        ALL,
    );
    claims["scope"] = json!("openid");
    assert_eq!(
        replica.by(&key.token(&claims)).tools().await,
        ["find_request", "new_request_id"]
    );
    let found = replica.by(&key.token(&claims)).find("k").await;
    assert_eq!((&found["status"], &found["result"]), (&json!("done"), &Value::Null));
    for (name, value) in [
        ("scope", json!(["tickets:read"])),
        ("scp", json!("tickets:read")),
        ("scp", json!(["tickets:read", "x"])),
        ("aud", json!(["https://elsewhere.example.org", RESOURCE])),
        ("nbf", json!(now() + 10)),
        ("exp", json!(now() - 10)),
    ] {
        let mut claims = issuer.claims("ec", "tickets:read");
        if name == "scp" {
            claims.as_object_mut().expect("claims").remove("scope");
        }
        claims[name] = value;
        let read = replica.by(&key.token(&claims)).http("GET", "/tickets", None).await;
        assert_eq!(read.status, 200, "{claims}: {read:?}");
    }
    for typ in ["JWT", "jwt", "application/at+jwt", "AT+JWT"] {
        let mut header = key.header();
        header["typ"] = json!(typ);
        let token = key.token_with(&header, &issuer.claims("ec", ALL));
        assert_eq!(
            replica.by(&token).http("GET", "/tickets", None).await.status,
            200,
            "{typ}"
        );
    }
    let logged = format!("{:?}", replica.log());
    assert!(!logged.contains("eyJ"), "{logged}");
}

#[tokio::test]
async fn a_token_that_is_not_good_is_refused_and_told_why() {
    let scene = Scene::new().await;
    let (key, strange) = (Signer::es256("a"), Signer::es256("a"));
    let issuer = Issuer::with(&[&key]).await;
    let replica = start(&scene, &issuer.url).ready().await;
    let claims = issuer.claims("anna", ALL);
    let good = key.token(&claims);
    let with = |name: &str, value: Value| {
        let mut claims = claims.clone();
        claims[name] = value;
        key.token(&claims)
    };
    let without = |name: &str| {
        let mut claims = claims.clone();
        claims.as_object_mut().expect("claims").remove(name);
        key.token(&claims)
    };
    let header = |name: &str, value: Value| {
        let mut header = key.header();
        header[name] = value;
        key.token_with(&header, &claims)
    };
    let claim = "the token lacks a claim, or has one that cannot be used";
    let cases = [
        (
            with("aud", json!("https://elsewhere.example.org/mcp")),
            "the token is for another audience",
        ),
        (
            with("aud", json!("https://tickets.example.org")),
            "the token is for another audience",
        ),
        (with("aud", json!([])), "the token is for another audience"),
        (
            with("iss", json!("https://elsewhere.example.org")),
            "the token is from another issuer",
        ),
        (
            with("iss", json!(format!("{}/", issuer.url))),
            "the token is from another issuer",
        ),
        (with("iss", json!([issuer.url])), claim),
        (with("exp", json!(now() - 60)), "the token has expired"),
        (with("exp", json!(0)), "the token has expired"),
        (with("nbf", json!(now() + 60)), "the token is not valid yet"),
        (with("exp", json!("tomorrow")), claim),
        (with("sub", json!("")), claim),
        (with("sub", json!(7)), claim),
        (with("sub", json!("x".repeat(256))), claim),
        (with("sub", json!("a\u{0}b")), claim),
        (without("aud"), claim),
        (without("iss"), claim),
        (without("exp"), claim),
        (without("sub"), claim),
        (strange.token(&claims), "the token was not signed by the issuer"),
        (header("typ", json!("dpop+jwt")), "the token is not an access token"),
        (header("typ", json!("logout+jwt")), "the token is not an access token"),
        (header("alg", json!("ES384")), "the issuer has no key of this name"),
        (
            header("alg", json!("HS256")),
            "the token is signed in a way that is not allowed",
        ),
        (header("crit", json!(["exp"])), "the token cannot be read"),
        (
            format!("{}.", unsigned(&json!({ "alg": "none" }), &claims)),
            "the token cannot be read",
        ),
        (
            format!("{}.", unsigned(&json!({ "alg": "None", "kid": "a" }), &claims)),
            "the token cannot be read",
        ),
        (
            format!("{}.", unsigned(&key.header(), &claims)),
            "the token was not signed by the issuer",
        ),
        (
            good[..good.len() - 6].to_owned(),
            "the token was not signed by the issuer",
        ),
        (
            good.rsplit_once('.').expect("parts").0.to_owned(),
            "the token cannot be read",
        ),
        ("x".to_owned(), "the token cannot be read"),
    ];
    for (token, why) in &cases {
        println!("{why}");
        refused(replica.by(token), why).await;
    }
    assert_eq!(replica.by(&good).create("k", "Good").await.status, 201);
    assert_eq!(scene.tickets().await, 1);
}

#[tokio::test]
async fn a_public_key_is_no_secret_to_sign_with_and_a_secret_is_no_public_key() {
    let scene = Scene::new().await;
    let key = Signer::rs256("rsa");
    let issuer = Issuer::with(&[&key]).await;
    // An issuer that publishes a shared secret by mistake must not have it used.
    issuer.publish_raw(json!({ "kty": "oct", "kid": "oct", "k": base64("secret") }));
    issuer.publish_raw(json!({ "kty": "RSA", "kid": "broken", "n": "!" }));
    issuer.publish_raw(json!("no key"));
    let replica = start(&scene, &issuer.url).ready().await;
    let claims = issuer.claims("anna", ALL);
    assert_eq!(
        replica
            .by(&key.token(&claims))
            .http("GET", "/tickets", None)
            .await
            .status,
        200
    );
    let jwk = key.jwk();
    let modulus = jwk["n"].as_str().expect("a modulus");
    let secrets = [
        modulus.to_owned(),
        jwk.to_string(),
        format!("{}\n", jwk),
        "secret".to_owned(),
    ];
    for secret in secrets {
        for kid in ["rsa", "oct"] {
            let message = unsigned(&json!({ "alg": "HS256", "typ": "at+jwt", "kid": kid }), &claims);
            let tag = hmac::sign(
                &hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes()),
                message.as_bytes(),
            );
            let token = format!("{message}.{}", base64(tag));
            refused(replica.by(&token), "the token is signed in a way that is not allowed").await;
        }
    }
    // What the operator does not allow is not allowed, however good it is.
    let strict = start(&scene, &issuer.url)
        .with("OAUTH_ALGORITHMS", "ES256,EdDSA")
        .ready()
        .await;
    refused(
        strict.by(&key.token(&claims)),
        "the token is signed in a way that is not allowed",
    )
    .await;
}

#[tokio::test]
async fn tokens_of_both_kinds_are_taken_side_by_side_and_one_persons_are_one() {
    let scene = Scene::new().await;
    let key = Signer::es256("a");
    let issuer = Issuer::with(&[&key]).await;
    let replica = start(&scene, &issuer.url).with("AUTH", "token,oauth").ready().await;
    let script = scene
        .token("script", &["--scopes", "tickets:write", "--for", &issuer.url, "anna"])
        .await;
    let person = key.token(&issuer.claims("anna", ALL));
    let first = replica.by(&person).tool("create_ticket", ticket("k", "Anna's")).await;
    let again = replica.by(&script).create("k", "Anna's").await;
    assert_eq!((again.status, &again.body["ticket_id"]), (200, &first["ticket_id"]));
    let stranger = key.token(&issuer.claims("bert", ALL));
    assert_eq!(replica.by(&stranger).create("k", "Anna's").await.status, 201);
    refused(
        replica.by("ticketledger_nothing"),
        "the token is unknown, expired or revoked",
    )
    .await;
}
