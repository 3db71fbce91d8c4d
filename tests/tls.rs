//! Connections to Postgres may be encrypted, and its certificate checked.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

use sqlx::{Connection, PgConnection};

use crate::support::cluster::TestCluster;
use crate::support::eventually;
use crate::support::replica::Start;

/// A certificate for localhost that signs itself, and its key, in a folder that goes away.
struct Certificate(PathBuf);

impl Drop for Certificate {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Certificate {
    fn new(name: &str) -> Self {
        let made = Self(std::env::temp_dir().join(format!("ticket-ledger-tls-{}-{name}", std::process::id())));
        std::fs::create_dir_all(&made.0).expect("a folder");
        std::fs::set_permissions(&made.0, PermissionsExt::from_mode(0o755)).expect("a folder for all");
        let openssl = Command::new("openssl")
            .args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"])
            // One that may sign others is not taken for a server's.
            .args(["-addext", "subjectAltName=DNS:localhost", "-addext", "basicConstraints=critical,CA:FALSE"])
            .args(["-out", &made.file("server.crt"), "-keyout", &made.file("server.key")])
            .output()
            .expect("openssl is not installed. This test needs it: apt-get install openssl (Debian) or brew install openssl.");
        assert!(openssl.status.success(), "{}", String::from_utf8_lossy(&openssl.stderr));
        let key = made.file("server.key");
        std::fs::set_permissions(&key, PermissionsExt::from_mode(0o600)).expect("a private key");
        if nix::unistd::getuid().is_root() {
            // The server runs as another user, who must own it.
            let mut users = ["postgres", "nobody"].into_iter();
            let user = users.find_map(|name| nix::unistd::User::from_name(name).ok().flatten());
            let user = user.expect("the user that the server runs as");
            std::os::unix::fs::chown(&key, Some(user.uid.as_raw()), None).expect("the server's key");
        }
        made
    }

    fn file(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }
}

fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("an address").port()
}

#[tokio::test]
async fn a_replica_encrypts_its_connections_and_knows_the_server_by_its_certificate() {
    let certificate = Certificate::new("server");
    let port = free_port();
    let cluster = TestCluster::own(&[
        ("port", &port.to_string()),
        ("ssl", "on"),
        ("ssl_cert_file", &certificate.file("server.crt")),
        ("ssl_key_file", &certificate.file("server.key")),
    ])
    .await;
    let plain = cluster.database().await;
    let (_, database) = plain.rsplit_once('/').expect("a database");
    let checked = format!(
        "postgres://postgres@localhost:{port}/{database}?sslmode=verify-full&sslrootcert={}",
        certificate.file("server.crt")
    );
    let replica = Start::on(&checked).ready().await;
    assert_eq!(replica.create("secret", "By TLS").await.status, 201);
    let mut sql = PgConnection::connect(&plain).await.expect("connects");
    eventually("every connection of the replica is encrypted", || async {
        (replica.admin("/readyz").await.body["listener"] == "listening").then_some(())
    })
    .await;
    let (encrypted, open): (i64, i64) = sqlx::query_as(
        "select count(*) filter (where ssl), count(*) filter (where not ssl)
         from pg_stat_ssl join pg_stat_activity using (pid) where datname = current_database() and pid <> pg_backend_pid()",
    )
    .fetch_one(&mut sql)
    .await
    .expect("sessions");
    assert!(encrypted >= 3 && open == 0, "{encrypted} encrypted, {open} not");
    // A replica that does not know the server takes no calls, and says why.
    let unknown = format!("postgres://postgres@localhost:{port}/{database}?sslmode=verify-full");
    let stranger = Start::on(&unknown).bound().await;
    eventually("it says why it is not ready", || async {
        let log = stranger.log();
        log.iter()
            .any(|line| line.to_string().to_lowercase().contains("certificate"))
            .then_some(())
    })
    .await;
    assert_eq!(stranger.admin("/readyz").await.status, 503);
}

#[tokio::test]
async fn a_server_that_is_not_who_it_should_be_is_refused_with_a_sentence_that_says_what_to_do() {
    let (certificate, other) = (Certificate::new("right"), Certificate::new("wrong"));
    let port = free_port();
    let cluster = TestCluster::own(&[
        ("port", &port.to_string()),
        ("ssl", "on"),
        ("ssl_cert_file", &certificate.file("server.crt")),
        ("ssl_key_file", &certificate.file("server.key")),
    ])
    .await;
    let plain = cluster.database().await;
    let (_, database) = plain.rsplit_once('/').expect("a database");
    let url = |host: &str, mode: &str, authority: &Certificate| {
        let authority = authority.file("server.crt");
        format!("postgres://postgres@{host}:{port}/{database}?sslmode={mode}&sslrootcert={authority}")
    };
    let nobody =
        "its certificate is signed by nobody who is trusted here; name the authority that signed it with sslrootcert";
    let cases = [
        (url("localhost", "verify-full", &certificate), None),
        (url("localhost", "verify-full", &other), Some(nobody)),
        (url("localhost", "verify-ca", &other), Some(nobody)),
        (
            url("127.0.0.1", "verify-full", &certificate),
            Some("its certificate is for another host"),
        ),
        (url("127.0.0.1", "verify-ca", &certificate), None),
        // Encrypted, to whomever.
        (url("127.0.0.1", "require", &other), None),
    ];
    for (url, refused) in cases {
        is_refused(&url, refused).await;
    }
    let open = TestCluster::own(&[("port", &free_port().to_string())]).await;
    let url = format!("{}?sslmode=require", open.database().await);
    is_refused(
        &url,
        Some("no encrypted connection could be made, which sslmode in DATABASE_URL asks for"),
    )
    .await;
}

async fn is_refused(url: &str, sentence: Option<&str>) {
    let migrate = tokio::process::Command::new(env!("CARGO_BIN_EXE_ticket-ledger"))
        .arg("migrate")
        .env("DATABASE_URL", url)
        .output();
    let output = migrate.await.expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.success(), sentence.is_none(), "{url}: {said}");
    assert!(said.contains(sentence.unwrap_or_default()), "{url}: {said}");
}
