//! What has become of an entry, for those who repeat its post or ask for its request.

use super::{Board, Code, Refusal};
use crate::operation::Reader;
use crate::operation::refusals::database_unavailable;

/// What has become of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// Everybody can read it.
    Visible,
    /// It is saved, and it or its question cannot be read.
    Hidden,
    /// An operator has deleted it.
    Deleted,
    /// Neither it nor a record of its deletion is there.
    Gone,
}

/// Looks up what became of the entry that the caller posted under this request_id.
///
/// # Errors
/// `unavailable`.
pub async fn fate(reader: &Reader<'_>, board: &Board, request_id: &str) -> Result<Fate, Refusal> {
    const SQL: &str = "
        select e.entry_id is not null, d.entry_id is not null,
               coalesce(e.hidden_at is null and (e.type = 'question' or q.entry_id is not null), false)
        from (select $1::text as principal, $2::text as request_id,
                     clock_timestamp() - $3::bigint * interval '1 millisecond' as oldest) asked
        left join entries e
            on e.principal = asked.principal and e.request_id = asked.request_id and e.created_at > asked.oldest
        left join entries q
            on q.entry_id = e.parent_id and q.type = 'question' and q.hidden_at is null and q.created_at > asked.oldest
        left join deleted_entries d on d.principal = asked.principal and d.request_id = asked.request_id";
    let database = reader.ledger.database();
    let unavailable = |error| database_unavailable(&error);
    let mut lent = database.lend().await.map_err(unavailable)?;
    let statement = sqlx::query_as::<_, (bool, bool, bool)>(SQL)
        .bind(&*reader.caller.principal)
        .bind(request_id)
        .bind(board.keep_entries_ms());
    let answer = database
        .within("what_became_of_it", statement.fetch_one(lent.connection()))
        .await;
    Ok(match lent.answered(answer).map_err(unavailable)? {
        (true, _, true) => Fate::Visible,
        (true, _, false) => Fate::Hidden,
        (false, true, _) => Fate::Deleted,
        (false, false, _) => Fate::Gone,
    })
}

/// It was saved, and it is not there any more.
pub fn deleted() -> (String, String) {
    (
        "This entry was saved, and an operator has deleted it since. It was not made again.".to_owned(),
        "Tell whoever asked for it. Do not post it again, neither with this request_id nor with a new one.".to_owned(),
    )
}

/// As a refusal.
pub fn deleted_refusal() -> Refusal {
    let (message, next) = deleted();
    Refusal::new(Code::Deleted, message, next)
}
