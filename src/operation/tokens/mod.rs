//! Bearer tokens of this service's own, for scripts: issued, listed and revoked by an operator, and found by their hash.

mod book;

use ring::rand::{SecureRandom, SystemRandom};
use sha2::{Digest, Sha256};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::caller::{LONGEST_ISSUER, LONGEST_SUBJECT, principal_of_subject, principal_of_token};
use super::scope::Scopes;
use crate::postgres::{Database, DatabaseError};

pub use self::book::{Grant, LookUpError, TokenBook};

/// What every token begins with, so that people and secret scanners know one when they see it.
pub const PREFIX: &str = "ticketledger_";

/// A token's hash: all that is kept of it.
pub type Hash = [u8; 32];

/// The hash of a token as it was sent.
pub fn hash(token: &str) -> Hash {
    Sha256::digest(token.as_bytes()).into()
}

/// A new token: the prefix and 256 random bits. It is shown once and kept nowhere.
///
/// # Errors
/// The machine has no randomness to give.
pub fn mint() -> Result<String, &'static str> {
    let mut secret = [0_u8; 32];
    SystemRandom::new()
        .fill(&mut secret)
        .map_err(|_| "the machine has no randomness to give")?;
    Ok(format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(secret)))
}

/// Why a token's name cannot be used, in a sentence.
pub fn refuse_name(name: &str) -> Option<&'static str> {
    let fits = (1..=64).contains(&name.len())
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte));
    (!fits).then_some("A token's name is 1 to 64 letters, digits, dots, dashes and underscores.")
}

/// Why a token cannot speak for this issuer and subject, in a sentence.
pub fn refuse_holder(issuer: &str, subject: &str) -> Option<&'static str> {
    let fits = (1..=LONGEST_ISSUER).contains(&issuer.len()) && (1..=LONGEST_SUBJECT).contains(&subject.len());
    let storable = !issuer.contains('\0') && !subject.contains('\0');
    (!fits || !storable).then_some("An issuer is 1 to 512 bytes and a subject 1 to 255 bytes, without NUL.")
}

/// A token to be issued.
pub struct Wanted<'a> {
    /// Its name.
    pub name: &'a str,
    /// The hash of what its caller will send.
    pub hash: Hash,
    /// What it allows; `None` leaves a known name's as they are.
    pub scopes: Option<Scopes>,
    /// (issuer, subject) for whom it speaks; `None` leaves a known name's as it is.
    pub holder: Option<(&'a str, &'a str)>,
    /// In how many days it expires; `None` for never.
    pub days: Option<u32>,
}

/// What came of [`issue`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Issued {
    /// The name is new.
    New,
    /// The name was known: its former token is void from now on.
    Rotated,
    /// The name was revoked, and a revoked name is never used again. Nothing was changed.
    Revoked,
    /// The name is known and speaks for somebody else. Nothing was changed.
    AnotherHolder,
    /// The name is new and no scopes were given. Nothing was changed.
    NoScopes,
}

/// Issues a token, or gives a known name a new one in place of its former. Leaves an audit row.
///
/// # Errors
/// Postgres cannot be reached.
pub async fn issue(database: &Database, wanted: &Wanted<'_>, actor: &str) -> Result<Issued, DatabaseError> {
    const SQL: &str = "
        with known as materialized (
            select scopes, issuer, subject, revoked_at from tokens where name = $1 for no key update
        ),
        judged as materialized (
            select case when exists (select from known where revoked_at is not null) then 'revoked'
                        when $4::text is not null and exists (select from known
                             where (issuer, subject) is distinct from ($4::text, $5::text)) then 'another holder'
                        when exists (select from known) then 'rotated'
                        when $3::text[] is null then 'no scopes'
                        else 'new' end as outcome
        ),
        saved as (
            insert into tokens as t (name, hash, scopes, issuer, subject, issued_at, expires_at)
            select $1, $2, coalesce($3::text[], (select scopes from known)), $4, $5, clock_timestamp(),
                   clock_timestamp() + $6::int * interval '1 day'
            from judged where outcome in ('new', 'rotated')
            on conflict (name) do update
            set hash = excluded.hash, scopes = excluded.scopes, issued_at = excluded.issued_at,
                expires_at = excluded.expires_at
            where t.revoked_at is null
        ),
        audited as (
            insert into audit (actor, action, subject, outcome) select $7, 'token issue', $1, outcome from judged
        )
        select outcome from judged";
    let scopes = wanted.scopes.map(Scopes::names);
    let days = wanted.days.map(|days| i32::try_from(days).unwrap_or(i32::MAX));
    let mut lent = database.lend().await?;
    let statement = sqlx::query_scalar::<_, String>(SQL)
        .bind(wanted.name)
        .bind(wanted.hash.as_slice())
        .bind(scopes)
        .bind(wanted.holder.map(|(issuer, _)| issuer))
        .bind(wanted.holder.map(|(_, subject)| subject))
        .bind(days)
        .bind(actor);
    let answer = database
        .within("issue_token", statement.fetch_one(lent.connection()))
        .await;
    Ok(match lent.answered(answer)?.as_str() {
        "new" => Issued::New,
        "rotated" => Issued::Rotated,
        "revoked" => Issued::Revoked,
        "no scopes" => Issued::NoScopes,
        _ => Issued::AnotherHolder,
    })
}

/// What came of [`revoke`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Revoked {
    /// It is void from now on.
    Now,
    /// It was so already.
    Already,
    /// There is no such name.
    Unknown,
}

/// Makes a token void, for good. Every replica knows within a second. Leaves an audit row.
///
/// # Errors
/// Postgres cannot be reached.
pub async fn revoke(database: &Database, name: &str, actor: &str) -> Result<Revoked, DatabaseError> {
    const SQL: &str = "
        with known as materialized (
            select revoked_at from tokens where name = $1 for no key update
        ),
        revoked as (
            update tokens set revoked_at = clock_timestamp()
            where name = $1 and exists (select from known where revoked_at is null)
        ),
        judged as (
            select case when not exists (select from known) then 'unknown'
                        when exists (select from known where revoked_at is null) then 'revoked'
                        else 'already so' end as outcome
        ),
        audited as (
            insert into audit (actor, action, subject, outcome) select $2, 'token revoke', $1, outcome from judged
        )
        select outcome from judged";
    let mut lent = database.lend().await?;
    let statement = sqlx::query_scalar::<_, String>(SQL).bind(name).bind(actor);
    let answer = database
        .within("revoke_token", statement.fetch_one(lent.connection()))
        .await;
    Ok(match lent.answered(answer)?.as_str() {
        "revoked" => Revoked::Now,
        "unknown" => Revoked::Unknown,
        _ => Revoked::Already,
    })
}

/// A token as an operator is shown it.
#[derive(Debug, Clone, sqlx::FromRow)]
pub struct Listed {
    /// Its name.
    pub name: String,
    /// What it allows.
    pub scopes: Vec<String>,
    /// For whom it speaks.
    pub issuer: Option<String>,
    /// For whom it speaks.
    pub subject: Option<String>,
    /// `valid`, `expired` or `revoked`.
    pub state: String,
    /// RFC 3339.
    pub issued_at: String,
    /// RFC 3339; `None` for never.
    pub expires_at: Option<String>,
    /// RFC 3339.
    pub revoked_at: Option<String>,
}

impl Listed {
    /// Whose requests are made with it.
    pub fn principal(&self) -> std::sync::Arc<str> {
        principal(&self.name, self.issuer.as_deref(), self.subject.as_deref())
    }
}

/// Whose requests are made with a token of this name.
pub fn principal(name: &str, issuer: Option<&str>, subject: Option<&str>) -> std::sync::Arc<str> {
    match (issuer, subject) {
        (Some(issuer), Some(subject)) => principal_of_subject(issuer, subject),
        _ => principal_of_token(name),
    }
}

/// All tokens, by name.
///
/// # Errors
/// Postgres cannot be reached.
pub async fn list(database: &Database) -> Result<Vec<Listed>, DatabaseError> {
    const SQL: &str = "
        select name, scopes, issuer, subject,
               case when revoked_at is not null then 'revoked'
                    when expires_at <= clock_timestamp() then 'expired' else 'valid' end as state,
               rfc3339(issued_at) as issued_at, rfc3339(expires_at) as expires_at, rfc3339(revoked_at) as revoked_at
        from tokens order by name";
    let mut lent = database.lend().await?;
    let answer = database
        .within("list_tokens", sqlx::query_as(SQL).fetch_all(lent.connection()))
        .await;
    lent.answered(answer)
}
