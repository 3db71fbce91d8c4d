//! Addresses as they may stand in files and on screens that are passed around.

use url::Url;

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
    use super::with_password_as;

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
