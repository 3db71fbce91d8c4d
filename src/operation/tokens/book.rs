//! Finding a token, at every call.
//!
//! A token that was found is remembered for half a second, so that one in steady use costs Postgres two reads a second, and a
//! revocation is known everywhere within one. One that was not found is not remembered: what strangers send must not fill
//! memory. While Postgres is out of reach nobody is let in: a token may have been revoked meanwhile.
//!
//! Looking up by hash is as good as a comparison in constant time. How long the look-up takes depends on the hash, and whoever
//! sends a token does not choose its hash: to learn from the time that the first bytes of two hashes agree does not help to find
//! a token whose next byte agrees too.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::Instant;
use tracing::warn;

use super::{Hash, hash, principal};
use crate::operation::scope::Scopes;
use crate::postgres::{Database, DatabaseError};
use crate::unpoisoned;

/// How long a token is taken for what it was when it was looked up.
const REMEMBERED: Duration = Duration::from_millis(500);
/// Most tokens that are remembered.
const MOST_REMEMBERED: usize = 10_000;
/// Most look-ups at once, of tokens that were good a moment ago and of others: those that are none must not keep the pool from calls
/// that are some, nor those that are some from being looked up.
const MOST_LOOKUPS: usize = 2;
/// A token that was good within this time does not wait behind strangers'.
const GOOD_A_MOMENT_AGO: Duration = Duration::from_secs(60);
/// How often it is said that too many tokens are being looked up.
const SAY_EVERY: Duration = Duration::from_secs(60);
/// Longest wait for one's turn.
const TURN_LIMIT: Duration = Duration::from_secs(2);

/// What a token allows, and to whom.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// Whose requests are made with it.
    pub principal: Arc<str>,
    /// What it allows.
    pub scopes: Scopes,
}

/// Every token that may be sent.
pub struct TokenBook {
    database: Database,
    remembered: Mutex<HashMap<Hash, (Grant, Instant)>>,
    turns: Semaphore,
    strangers_turns: Semaphore,
    said: Mutex<Option<Instant>>,
}

/// Why nobody knows whether a token is good.
#[derive(Debug, thiserror::Error)]
pub enum LookUpError {
    /// Others are in front.
    #[error("too many tokens are being looked up")]
    Crowded,
    /// Postgres cannot be asked.
    #[error(transparent)]
    Database(#[from] DatabaseError),
}

#[derive(sqlx::FromRow)]
struct Row {
    name: String,
    scopes: Vec<String>,
    issuer: Option<String>,
    subject: Option<String>,
    left_ms: Option<i64>,
}

impl TokenBook {
    /// The tokens of this database.
    pub fn new(database: Database) -> Self {
        Self {
            database,
            remembered: Mutex::default(),
            turns: Semaphore::new(MOST_LOOKUPS),
            strangers_turns: Semaphore::new(MOST_LOOKUPS),
            said: Mutex::default(),
        }
    }

    /// What a token allows; `None` when it is none, or void.
    ///
    /// # Errors
    /// Postgres cannot be reached, or too many tokens are being looked up.
    pub async fn find(&self, token: &str) -> Result<Option<Grant>, LookUpError> {
        let hash = hash(token);
        if let Some(grant) = self.recall(&hash) {
            return Ok(Some(grant));
        }
        let turns = if self.was_good(&hash) {
            &self.turns
        } else {
            &self.strangers_turns
        };
        let turn = tokio::time::timeout(TURN_LIMIT, turns.acquire()).await;
        let Ok(Ok(_turn)) = turn else {
            self.say_crowded();
            return Err(LookUpError::Crowded);
        };
        // Whoever was before in the queue may have looked for the same one.
        if let Some(grant) = self.recall(&hash) {
            return Ok(Some(grant));
        }
        // Counted from before the question: what is revoked after it was answered is still known in time.
        let asked = Instant::now();
        let Some(row) = self.look_up(&hash).await? else {
            unpoisoned(self.remembered.lock()).remove(&hash);
            return Ok(None);
        };
        let left = row
            .left_ms
            .map(|left| Duration::from_millis(left.max(0).unsigned_abs()));
        let grant = Grant {
            principal: principal(&row.name, row.issuer.as_deref(), row.subject.as_deref()),
            scopes: Scopes::named(row.scopes.iter().map(String::as_str)),
        };
        self.remember(
            hash,
            &grant,
            asked + left.map_or(REMEMBERED, |left| left.min(REMEMBERED)),
        );
        Ok(Some(grant))
    }

    async fn look_up(&self, hash: &Hash) -> Result<Option<Row>, DatabaseError> {
        const SQL: &str = "
            select name, scopes, issuer, subject,
                   (extract(epoch from expires_at - clock_timestamp()) * 1000)::bigint as left_ms
            from tokens
            where hash = $1 and revoked_at is null and (expires_at is null or expires_at > clock_timestamp())";
        let mut lent = self.database.lend().await?;
        let statement = sqlx::query_as(SQL).bind(hash.as_slice());
        let answer = self
            .database
            .within("find_token", statement.fetch_optional(lent.connection()))
            .await;
        lent.answered(answer)
    }

    fn recall(&self, hash: &Hash) -> Option<Grant> {
        let remembered = unpoisoned(self.remembered.lock());
        let (grant, until) = remembered.get(hash)?;
        (Instant::now() < *until).then(|| grant.clone())
    }

    fn was_good(&self, hash: &Hash) -> bool {
        let remembered = unpoisoned(self.remembered.lock());
        let until = remembered.get(hash).map(|(_, until)| *until);
        until.is_some_and(|until| until.elapsed() < GOOD_A_MOMENT_AGO)
    }

    /// Whoever sends many tokens that are none must not fill the log too.
    fn say_crowded(&self) {
        let mut said = unpoisoned(self.said.lock());
        if said.is_none_or(|said| said.elapsed() >= SAY_EVERY) {
            *said = Some(Instant::now());
            warn!(
                "more tokens that were not good lately are being looked up than there are turns for; some callers get 503"
            );
        }
    }

    fn remember(&self, hash: Hash, grant: &Grant, until: Instant) {
        let mut remembered = unpoisoned(self.remembered.lock());
        if remembered.len() >= MOST_REMEMBERED {
            remembered.retain(|_, (_, until)| until.elapsed() < GOOD_A_MOMENT_AGO);
        }
        if remembered.len() < MOST_REMEMBERED {
            remembered.insert(hash, (grant.clone(), until));
        }
    }
}
