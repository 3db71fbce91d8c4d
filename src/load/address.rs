//! Addresses: as they may stand in files and on screens that are passed around, and as a proxy changes them.

use sqlx::postgres::PgSslMode;
use url::Url;

use super::proxy::Upstream;
use crate::postgres::connect_options;

/// Where a database's URL leads.
///
/// # Errors
/// A sentence: it is none.
pub fn upstream_of(url: &str) -> Result<Upstream, String> {
    let options = connect_options(url).map_err(|error| error.to_string())?;
    Ok(match options.get_socket() {
        Some(socket) => Upstream::Socket(socket.join(format!(".s.PGSQL.{}", options.get_port()))),
        None => Upstream::Tcp(options.get_host().to_owned(), options.get_port()),
    })
}

/// The same database by way of a proxy on this port of loopback, which knows no encryption.
///
/// # Errors
/// A sentence: it is no URL.
pub fn through(database_url: &str, port: u16) -> Result<String, String> {
    let unusable = |error: String| format!("the database's URL cannot be used ({error})");
    let options = connect_options(database_url).map_err(|error| unusable(error.to_string()))?;
    let mut url = Url::parse(database_url).map_err(|error| unusable(error.to_string()))?;
    url.set_host(Some("127.0.0.1"))
        .map_err(|error| unusable(error.to_string()))?;
    let no_host = |()| unusable("it takes no host".to_owned());
    url.set_port(Some(port)).map_err(no_host)?;
    let replaced = |name: &str| {
        // Whatever says where it is, and how it is encrypted.
        matches!(name, "host" | "hostaddr" | "port") || name.starts_with("ssl")
    };
    let kept: Vec<_> = url
        .query_pairs()
        .into_owned()
        .filter(|(name, _)| !replaced(name))
        .collect();
    if url.username().is_empty() && !kept.iter().any(|(name, _)| name == "user") {
        url.set_username(options.get_username()).map_err(no_host)?;
    }
    url.query_pairs_mut()
        .clear()
        .extend_pairs(kept)
        .append_pair("sslmode", "disable");
    Ok(url.to_string())
}

/// Whether a database's URL asks for more than the server happens to offer.
pub fn asks_for_encryption(database_url: &str) -> bool {
    connect_options(database_url).is_ok_and(|options| {
        matches!(
            options.get_ssl_mode(),
            PgSslMode::Require | PgSslMode::VerifyCa | PgSslMode::VerifyFull
        )
    })
}

/// The URL with `password` in the place of its password, wherever that stands; without one, it is taken out.
pub fn with_password_as(url: &str, password: Option<&str>) -> String {
    let parsed = Url::parse(url).ok();
    let known = |url: &Url| matches!(url.scheme(), "postgres" | "postgresql" | "http" | "https");
    let Some(mut url) = parsed.filter(known) else {
        // Whatever it is, it may hold one.
        return "…".to_owned();
    };
    if url.password().is_some() {
        // It fails for URLs without a host, which have no password.
        let _ = url.set_password(password);
    }
    if url.query_pairs().any(|(name, _)| name == "password") {
        let kept: Vec<_> = url
            .query_pairs()
            .into_owned()
            .filter_map(|(name, value)| match name.as_str() {
                "password" => password.map(|password| (name, password.to_owned())),
                _ => Some((name, value)),
            })
            .collect();
        url.query_pairs_mut().clear().extend_pairs(kept);
        if url.query() == Some("") {
            url.set_query(None);
        }
    }
    url.to_string()
}

#[cfg(test)]
mod tests {
    use super::{through, with_password_as};

    #[test]
    fn a_proxy_takes_the_servers_place_and_all_else_stays() {
        for (url, behind) in [
            (
                "postgres://me:a%40b@db:5432/x",
                "postgres://me:a%40b@127.0.0.1:1234/x?sslmode=disable",
            ),
            (
                "postgres://db:5432/x?user=me&password=a@b&application_name=y",
                "postgres://127.0.0.1:1234/x?user=me&password=a%40b&application_name=y&sslmode=disable",
            ),
            (
                "postgres://me@localhost/x?host=%2Ftmp%2Fa&port=5433&sslmode=require&sslrootcert=ca.pem",
                "postgres://me@127.0.0.1:1234/x?sslmode=disable",
            ),
            (
                "postgres:///x?host=/tmp/a&user=me",
                "postgres://127.0.0.1:1234/x?user=me&sslmode=disable",
            ),
        ] {
            assert_eq!(through(url, 1234).as_deref(), Ok(behind));
        }
    }

    #[test]
    fn a_password_is_taken_out_or_replaced_wherever_it_stands() {
        for (url, without, replaced) in [
            (
                "postgres://me:secret@db:5432/x",
                "postgres://me@db:5432/x",
                "postgres://me:PASSWORD@db:5432/x",
            ),
            (
                "postgres://me@db/x?password=secret&host=%2Ftmp",
                "postgres://me@db/x?host=%2Ftmp",
                "postgres://me@db/x?password=PASSWORD&host=%2Ftmp",
            ),
            (
                "postgres://me@db/x?password=secret",
                "postgres://me@db/x",
                "postgres://me@db/x?password=PASSWORD",
            ),
            (
                "postgres://me:a%40b@db/x?host=/tmp/a@b",
                "postgres://me@db/x?host=/tmp/a@b",
                "postgres://me:PASSWORD@db/x?host=/tmp/a@b",
            ),
            ("postgres://me@db/x", "postgres://me@db/x", "postgres://me@db/x"),
            ("me:secret in no form", "…", "…"),
        ] {
            assert_eq!(with_password_as(url, None), without);
            assert_eq!(with_password_as(url, Some("PASSWORD")), replaced);
        }
    }
}
