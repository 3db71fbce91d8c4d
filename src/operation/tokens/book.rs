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

use super::{Hash, hash, principal};
use crate::operation::scope::Scopes;
use crate::postgres::{Database, DatabaseError};
use crate::unpoisoned;

/// How long a token is taken for what it was when it was looked up.
const REMEMBERED: Duration = Duration::from_millis(500);
/// Most tokens that are remembered.
const MOST_REMEMBERED: usize = 10_000;
/// Most look-ups at once: tokens that are none must not keep the pool from calls that are some.
const MOST_LOOKUPS: usize = 2;
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
        }
    }

    /// What a token allows; `None` when it is none, or void.
    ///
    /// # Errors
    /// Postgres cannot be reached.
    pub async fn find(&self, token: &str) -> Result<Option<Grant>, DatabaseError> {
        let hash = hash(token);
        if let Some(grant) = self.recall(&hash) {
            return Ok(Some(grant));
        }
        let turn = tokio::time::timeout(TURN_LIMIT, self.turns.acquire()).await;
        let Ok(Ok(_turn)) = turn else {
            return Err(DatabaseError::Unreachable(
                "too many tokens are being looked up".to_owned(),
            ));
        };
        // Whoever was before in the queue may have looked for the same one.
        if let Some(grant) = self.recall(&hash) {
            return Ok(Some(grant));
        }
        // Counted from before the question: what is revoked after it was answered is still known in time.
        let asked = Instant::now();
        let Some(row) = self.look_up(&hash).await? else {
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

    fn remember(&self, hash: Hash, grant: &Grant, until: Instant) {
        let mut remembered = unpoisoned(self.remembered.lock());
        if remembered.len() >= MOST_REMEMBERED {
            let now = Instant::now();
            remembered.retain(|_, (_, until)| now < *until);
        }
        if remembered.len() < MOST_REMEMBERED {
            remembered.insert(hash, (grant.clone(), until));
        }
    }
}
