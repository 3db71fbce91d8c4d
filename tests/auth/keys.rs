//! The issuer's keys: found, renewed, withdrawn, and out of reach.

use serde_json::json;

use super::is_unauthenticated;
use super::oauth::{ALL, refused, start};
use crate::support::calls::ticket;
use crate::support::eventually;
use crate::support::issuer::{Issuer, Signer};
use crate::support::replica::Replica;
use crate::support::scene::Scene;

/// An issuer that publishes these keys, and a replica that asks it.
async fn with(keys: &[&Signer]) -> (Scene, Issuer, Replica) {
    let scene = Scene::new().await;
    let issuer = Issuer::with(keys).await;
    let replica = start(&scene, &issuer.url).ready().await;
    (scene, issuer, replica)
}

#[tokio::test]
async fn new_keys_are_fetched_when_a_token_names_one_and_old_ones_are_forgotten() {
    let (old, new, never) = (Signer::es256("old"), Signer::es256("new"), Signer::es256("never"));
    let (_scene, issuer, replica) = with(&[&old]).await;
    let (before, after) = (
        old.token(&issuer.claims("anna", ALL)),
        new.token(&issuer.claims("anna", ALL)),
    );
    assert_eq!(replica.by(&before).create("k", "Before").await.status, 201);
    assert_eq!(issuer.asked(), 1);
    issuer.publish(&[&new]);
    let again = replica.by(&after).create("k", "Before").await;
    assert_eq!((again.status, issuer.asked()), (200, 2), "{again:?}");
    refused(replica.by(&before), "the issuer has no key of this name").await;
    // However many tokens name however many keys, the issuer is asked no more.
    let unknown = (0..50).map(|number| {
        let mut header = never.header();
        header["kid"] = json!(format!("never-{number}"));
        never.token_with(&header, &issuer.claims("anna", ALL))
    });
    for token in unknown {
        let answer = replica.by(&token).http("GET", "/tickets", None).await;
        is_unauthenticated(&answer, Some("the issuer has no key of this name"));
    }
    assert_eq!(issuer.asked(), 2);
    // A token need not name a key where there is only one.
    let mut header = new.header();
    header.as_object_mut().expect("a header").remove("kid");
    let token = new.token_with(&header, &issuer.claims("anna", ALL));
    assert_eq!(replica.by(&token).http("GET", "/tickets", None).await.status, 200);
}

#[tokio::test]
async fn an_issuer_that_withdraws_every_key_is_believed() {
    let (key, unknown) = (Signer::es256("a"), Signer::es256("b"));
    let (_scene, issuer, replica) = with(&[&key]).await;
    let token = key.token(&issuer.claims("anna", ALL));
    assert_eq!(replica.by(&token).create("k", "Before").await.status, 201);
    issuer.publish(&[]);
    // A token of a key that nobody knows makes the replica ask.
    let asks = unknown.token(&issuer.claims("anna", ALL));
    refused(replica.by(&asks), "the issuer has no key of this name").await;
    refused(replica.by(&token), "the issuer has no key of this name").await;
    assert!(replica.logged("the issuer has no key that can verify a signature; no token is good"));
}

#[tokio::test]
async fn a_key_that_is_replaced_under_its_name_is_fetched_when_a_token_is_signed_with_the_new_one() {
    let (old, new, never) = (Signer::es256("a"), Signer::es256("a"), Signer::es256("a"));
    let (_scene, issuer, replica) = with(&[&old]).await;
    let (before, after) = (
        old.token(&issuer.claims("anna", ALL)),
        new.token(&issuer.claims("anna", ALL)),
    );
    assert_eq!(replica.by(&before).create("k", "Before").await.status, 201);
    issuer.publish(&[&new]);
    assert_eq!(replica.by(&after).create("k", "Before").await.status, 200);
    refused(replica.by(&before), "the token was not signed by the issuer").await;
    // However many tokens are signed by somebody else, the issuer is asked no more.
    let asked = issuer.asked();
    let forged = never.token(&issuer.claims("anna", ALL));
    for _ in 0..20 {
        refused(replica.by(&forged), "the token was not signed by the issuer").await;
    }
    assert_eq!((issuer.asked(), asked), (2, 2));
    // And they do not keep a key with a new name from being fetched.
    let next = Signer::es256("b");
    issuer.publish(&[&next]);
    let token = next.token(&issuer.claims("anna", ALL));
    assert_eq!(replica.by(&token).create("k", "Before").await.status, 200);
}

#[tokio::test]
async fn a_key_without_a_name_is_taken_where_it_is_the_only_one_and_many_keys_are_looked_at_as_far_as_is_said() {
    let scene = Scene::new().await;
    let (key, other) = (Signer::es256("a"), Signer::es256("b"));
    let issuer = Issuer::with(&[]).await;
    let mut nameless = key.jwk();
    nameless.as_object_mut().expect("a key").remove("kid");
    issuer.publish_raw(nameless);
    let token = key.token(&issuer.claims("anna", ALL));
    let replica = start(&scene, &issuer.url).ready().await;
    assert_eq!(
        replica.by(&token).create("k", "Named by the token alone").await.status,
        201
    );
    refused(
        replica.by(&other.token(&issuer.claims("anna", ALL))),
        "the token was not signed by the issuer",
    )
    .await;
    // Keys that cannot be read do not count.
    issuer.publish(&[]);
    (0..70).for_each(|_| issuer.publish_raw(json!({ "kty": "unheard of" })));
    issuer.publish_raw(key.jwk());
    let behind = start(&scene, &issuer.url).ready().await;
    assert_eq!(
        behind.by(&token).create("k", "Named by the token alone").await.status,
        200
    );
    (0..70).for_each(|_| issuer.publish_raw(other.jwk()));
    let many = start(&scene, &issuer.url).ready().await;
    assert_eq!(
        many.by(&token).create("k", "Named by the token alone").await.status,
        200
    );
    assert!(many.logged("the issuer has more keys than are looked at"));
}

#[tokio::test]
async fn callers_go_on_while_the_issuer_is_down_and_nobody_new_is_called_a_liar() {
    let (key, new) = (Signer::es256("a"), Signer::es256("b"));
    let (scene, issuer, replica) = with(&[&key]).await;
    let (known, unknown) = (
        key.token(&issuer.claims("anna", ALL)),
        new.token(&issuer.claims("anna", ALL)),
    );
    assert_eq!(replica.by(&known).create("k", "Before").await.status, 201);
    issuer.set_down(true);
    assert_eq!(replica.by(&known).create("k", "Before").await.status, 200);
    for answer in [
        replica.by(&unknown).create("k", "Before").await,
        replica.by(&unknown).mcp("create_ticket", ticket("k", "Before")).await,
    ] {
        assert_eq!((answer.status, answer.code()), (503, "unavailable"), "{answer:?}");
        assert!(answer.headers.contains_key("retry-after"), "{answer:?}");
    }
    assert_eq!(replica.by(&known).create("k", "Before").await.status, 200);
    // A replica that starts meanwhile takes nobody's word, and everybody's when the issuer is back.
    let late = start(&scene, &issuer.url).ready().await;
    assert_eq!(late.by(&known).create("k", "Before").await.status, 503);
    issuer.set_down(false);
    eventually("the keys are known", || async {
        (late.by(&known).create("k", "Before").await.status == 200).then_some(())
    })
    .await;
    let told = late
        .log()
        .into_iter()
        .filter(|line| line["message"] == "the issuer's keys cannot be fetched");
    assert_eq!(told.count(), 1, "once");
}

#[tokio::test]
async fn metadata_that_speaks_for_another_issuer_is_not_believed() {
    let scene = Scene::new().await;
    let key = Signer::es256("a");
    let issuer = Issuer::with(&[&key]).await;
    // Another name for the same host.
    let alias = issuer.url.replace("127.0.0.1", "localhost");
    let replica = start(&scene, &alias).ready().await;
    let mut claims = issuer.claims("anna", ALL);
    claims["iss"] = json!(alias);
    assert_eq!(replica.by(&key.token(&claims)).create("k", "No").await.status, 503);
    // With the keys' address given there is no metadata to doubt.
    let told = start(&scene, &alias)
        .with("OAUTH_JWKS_URL", format!("{}/keys", issuer.url))
        .ready()
        .await;
    assert_eq!(told.by(&key.token(&claims)).create("k", "Yes").await.status, 201);
}
