//! Duplicates, for operators: entries that agree, however far apart.

use crate::postgres::{Database, DatabaseError};

/// Entries that agree in chosen fields.
#[derive(Debug, sqlx::FromRow)]
pub struct TwinEntries {
    /// The title of the first of them, if they are questions.
    pub title: Option<String>,
    /// The question that they answer, if they are replies.
    pub parent_id: Option<String>,
    /// The entries, in the order in which they were posted.
    pub entry_ids: Vec<String>,
    /// The request_ids under which they were posted, in the same order.
    pub request_ids: Vec<String>,
}

/// Groups entries of one principal and one poster that agree in title, body, or both, however far apart they were posted. Replies are to
/// the same question, and have no title: they are looked at only where the body counts.
///
/// # Errors
/// Postgres cannot be reached.
pub async fn twin_entries(
    database: &Database,
    since_hours: Option<u32>,
    by_title: bool,
    by_body: bool,
) -> Result<Vec<TwinEntries>, DatabaseError> {
    const SQL: &str = "
        select (array_agg(title order by created_at))[1] as title, parent_id,
               array_agg(entry_id order by created_at, entry_id) as entry_ids,
               array_agg(request_id order by created_at, entry_id) as request_ids
        from entries
        where ($1::int is null or created_at > clock_timestamp() - $1 * interval '1 hour')
          and (type = 'question' or $3)
        group by principal, parent_id, actor_name, case when $2 then title end,
                 case when $3 then sha256(convert_to(body, 'UTF8')) end
        having count(*) > 1
        order by min(created_at)";
    let mut lent = database.lend().await?;
    let statement = sqlx::query_as(SQL)
        .bind(since_hours.map(|hours| i32::try_from(hours).unwrap_or(i32::MAX)))
        .bind(by_title)
        .bind(by_body);
    let answer = database
        .within("find_twin_entries", statement.fetch_all(lent.connection()))
        .await;
    lent.answered(answer)
}
