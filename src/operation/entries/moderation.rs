//! What an operator does to entries: hides them, shows them again, deletes them, and looks at what was done.

use sqlx::FromRow;

use crate::postgres::{Database, DatabaseError};

/// Most entries that are listed, the latest first.
pub const MOST_LISTED: i64 = 1_000;

/// What came of an act.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moderated {
    /// It was done.
    Changed,
    /// It was so already.
    AlreadySo,
    /// There is only a record that the entry was deleted.
    Deleted,
    /// There is no such entry, and no record of one.
    Unknown,
}

impl Moderated {
    fn named(outcome: &str) -> Self {
        match outcome {
            "changed" => Self::Changed,
            "already so" => Self::AlreadySo,
            "deleted" => Self::Deleted,
            _ => Self::Unknown,
        }
    }
}

/// Hides an entry or shows it again. Returns when no reply is on its way into a thread that has been hidden. Leaves an audit row.
///
/// # Errors
/// Postgres cannot be reached, or something holds the thread up; then nothing is changed.
pub async fn set_hidden(
    database: &Database,
    id: &str,
    hidden: bool,
    operator: &str,
) -> Result<Moderated, DatabaseError> {
    let mut lent = database.lend().await?;
    let statement = sqlx::query_scalar::<_, String>("select set_entry_hidden($1, $2, $3)")
        .bind(id)
        .bind(hidden)
        .bind(operator);
    let answer = database
        .within("set_entry_hidden", statement.fetch_one(lent.connection()))
        .await;
    lent.answered(answer).map(|outcome| Moderated::named(&outcome))
}

/// Deletes an entry, for good, and scrubs the stored answer of its request. Leaves an audit row.
///
/// # Errors
/// As [`set_hidden`].
pub async fn delete(database: &Database, id: &str, operator: &str) -> Result<Moderated, DatabaseError> {
    let mut lent = database.lend().await?;
    let statement = sqlx::query_scalar::<_, String>("select delete_entry($1, $2)")
        .bind(id)
        .bind(operator);
    let answer = database
        .within("delete_entry", statement.fetch_one(lent.connection()))
        .await;
    lent.answered(answer).map(|outcome| Moderated::named(&outcome))
}

/// An entry as an operator is shown it.
#[derive(Debug, FromRow)]
pub struct Listed {
    /// Its id.
    pub entry_id: String,
    /// question or reply.
    pub kind: String,
    /// The question of a reply.
    pub parent_id: Option<String>,
    /// Of a question that is not deleted.
    pub title: Option<String>,
    /// When it was posted.
    pub created_at: String,
    /// When it was hidden or deleted; null when neither.
    pub since: Option<String>,
    /// The request_id of its post.
    pub request_id: String,
}

/// The entries that are hidden, the latest first; at most [`MOST_LISTED`].
///
/// # Errors
/// Postgres cannot be reached.
pub async fn hidden(database: &Database) -> Result<Vec<Listed>, DatabaseError> {
    const SQL: &str = "
        select entry_id, type as kind, parent_id, title, rfc3339(created_at) as created_at, rfc3339(hidden_at) as since, request_id
        from entries
        where hidden_at is not null
        order by hidden_at desc, entry_id
        limit $1";
    let mut lent = database.lend().await?;
    let statement = sqlx::query_as(SQL).bind(MOST_LISTED);
    let answer = database
        .within("list_hidden", statement.fetch_all(lent.connection()))
        .await;
    lent.answered(answer)
}

/// The entries that were deleted, the latest first, as long as it is known; at most [`MOST_LISTED`].
///
/// # Errors
/// Postgres cannot be reached.
pub async fn deleted(database: &Database) -> Result<Vec<Listed>, DatabaseError> {
    const SQL: &str = "
        select entry_id, type as kind, parent_id, null as title, rfc3339(created_at) as created_at, rfc3339(deleted_at) as since,
               request_id
        from deleted_entries
        order by deleted_at desc, entry_id
        limit $1";
    let mut lent = database.lend().await?;
    let statement = sqlx::query_as(SQL).bind(MOST_LISTED);
    let answer = database
        .within("list_deleted", statement.fetch_all(lent.connection()))
        .await;
    lent.answered(answer)
}

/// An entry that is there, and how many replies stand under it.
///
/// # Errors
/// Postgres cannot be reached.
pub async fn find(database: &Database, id: &str) -> Result<Option<(Listed, i64)>, DatabaseError> {
    #[derive(FromRow)]
    struct Found {
        #[sqlx(flatten)]
        entry: Listed,
        replies: i64,
    }
    const SQL: &str = "
        select entry_id, type as kind, parent_id, title, rfc3339(created_at) as created_at, rfc3339(hidden_at) as since, request_id,
               (select count(*) from entries r where r.parent_id = e.entry_id) as replies
        from entries e
        where entry_id = $1";
    let mut lent = database.lend().await?;
    let statement = sqlx::query_as::<_, Found>(SQL).bind(id);
    let answer = database
        .within("find_entry", statement.fetch_optional(lent.connection()))
        .await;
    Ok(lent.answered(answer)?.map(|found| (found.entry, found.replies)))
}
