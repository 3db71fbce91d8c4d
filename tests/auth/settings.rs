//! Which settings go together.

use clap::Parser;
use ticket_ledger::config::{Config, Findings};

#[derive(Parser)]
struct Knobs {
    #[command(flatten)]
    config: Config,
}

fn config(arguments: &str) -> Config {
    let arguments = std::iter::once("ticket-ledger").chain(arguments.split_whitespace());
    Knobs::try_parse_from(arguments)
        .unwrap_or_else(|error| panic!("{error}"))
        .config
}

fn examined(arguments: &str) -> Findings {
    config(arguments).examine()
}

const OAUTH: &str = "--auth oauth --public-url https://t.example.org --oauth-issuer https://id.example.org";

#[test]
fn what_goes_together_is_accepted() {
    for good in [
        "",
        "--auth token",
        "--auth token --listen-addr 0.0.0.0:80",
        "--auth none --listen-addr 0.0.0.0:80 --insecure-allow-anonymous",
        OAUTH,
        &format!("{OAUTH} --listen-addr [::]:80"),
        "--auth token,oauth --public-url http://127.0.0.1:8000 --oauth-issuer http://127.0.0.1:9 --oauth-audience x",
        "--public-url https://t.example.org/ --trusted-proxies 10.0.0.0/8,192.0.2.1,fd00::/8",
    ] {
        assert_eq!(examined(good).errors, Vec::<String>::new(), "{good}");
    }
}

#[test]
fn what_does_not_go_together_is_refused_with_its_reason() {
    for (bad, reason) in [
        ("--auth none,token", "none beside another would let everybody in"),
        ("--listen-addr 0.0.0.0:80", "AUTH=token or AUTH=oauth"),
        ("--listen-addr [::]:80", "insecure-allow-anonymous"),
        ("--auth oauth", "needs PUBLIC_URL"),
        ("--auth oauth --public-url https://t.example.org", "needs OAUTH_ISSUER"),
        (
            "--auth oauth --public-url http://t.example.org --oauth-issuer https://id",
            "must be https",
        ),
        (
            "--auth oauth --public-url https://t --oauth-issuer http://id.example.org",
            "OAUTH_ISSUER is",
        ),
        (
            "--auth oauth --public-url https://t --oauth-issuer https://id?x=1",
            "OAUTH_ISSUER is",
        ),
        ("--public-url https://t.example.org/mcp", "nothing behind it"),
        ("--public-url https://user@t.example.org", "nothing behind it"),
        ("--public-url ftp://t.example.org", "nothing behind it"),
        (
            &format!("{OAUTH} --oauth-jwks-url http://id/keys"),
            "OAUTH_JWKS_URL must be",
        ),
        (
            &format!("{OAUTH} --oauth-jwks-url https://a:b@id/keys"),
            "without a name and password",
        ),
        (&format!("{OAUTH} --oauth-audience="), "OAUTH_AUDIENCE is empty"),
        (&format!("{OAUTH} --oauth-leeway-seconds 301"), "at most 300"),
    ] {
        let errors = examined(bad).errors;
        assert!(errors.iter().any(|error| error.contains(reason)), "{bad}: {errors:?}");
    }
    for (unreadable, flag) in [
        ("--auth everybody", "--auth"),
        ("--oauth-algorithms HS256", "--oauth-algorithms"),
        ("--oauth-algorithms none", "--oauth-algorithms"),
        ("--trusted-proxies balancer", "--trusted-proxies"),
        ("--allowed-hosts localhost,*", "no sign for all"),
        ("--allowed-origins null", "any page"),
        ("--allowed-origins https://claude.ai/", "without anything behind it"),
    ] {
        let arguments = std::iter::once("ticket-ledger").chain(unreadable.split_whitespace());
        let error = Knobs::try_parse_from(arguments).err().expect(unreadable).to_string();
        assert!(error.contains(flag), "{error}");
    }
}

#[test]
fn what_is_set_in_vain_is_warned_of() {
    let warned = |arguments: &str, words: &str| {
        examined(arguments)
            .warnings
            .iter()
            .any(|warning| warning.contains(words))
    };
    assert!(warned("--oauth-issuer https://id.example.org", "they are not used"));
    assert!(!warned(OAUTH, "they are not used"));
    assert!(warned(
        "--listen-addr 0.0.0.0:80 --insecure-allow-anonymous",
        "nobody is asked who they are"
    ));
    assert!(!warned(
        "--listen-addr 0.0.0.0:80 --auth token",
        "nobody is asked who they are"
    ));
}

#[test]
fn the_public_host_is_an_allowed_one_and_strangers_that_share_a_principal_are_told_no_duplicates() {
    let hosts = config("--public-url https://t.example.org:8443/").hosts();
    assert_eq!(hosts, ["localhost", "127.0.0.1", "[::1]", "t.example.org:8443"]);
    assert_eq!(
        config("--public-url HTTPS://T.example.org").public_origin().as_deref(),
        Some("https://t.example.org")
    );
    let tells = |arguments: &str| config(arguments).limits().tell_duplicates;
    assert!(tells("") && tells("--auth token --listen-addr 0.0.0.0:80"));
    assert!(!tells("--listen-addr 0.0.0.0:80 --insecure-allow-anonymous"));
}
