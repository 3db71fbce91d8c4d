//! Duplicates, for operators: tickets that agree, however far apart.

use crate::postgres::{Database, DatabaseError};

/// Tickets that agree in chosen fields.
#[derive(Debug, sqlx::FromRow)]
pub struct TwinGroup {
    /// The title of the first of them.
    pub title: String,
    /// The tickets, in the order in which they were created.
    pub ticket_ids: Vec<String>,
    /// The request_ids under which they were created, in the same order.
    pub request_ids: Vec<String>,
}

/// Groups tickets of one principal that agree in title, body, or both, however far apart they were created.
///
/// # Errors
/// Postgres cannot be reached.
pub async fn twins(
    database: &Database,
    since_hours: Option<u32>,
    by_title: bool,
    by_body: bool,
) -> Result<Vec<TwinGroup>, DatabaseError> {
    const SQL: &str = "
        select (array_agg(title order by created_at))[1] as title,
               array_agg(ticket_id order by created_at, ticket_id) as ticket_ids,
               array_agg(request_id order by created_at, ticket_id) as request_ids
        from tickets
        where $1::int is null or created_at > clock_timestamp() - $1 * interval '1 hour'
        group by principal, case when $2 then title end, case when $3 then sha256(convert_to(body, 'UTF8')) end
        having count(*) > 1
        order by min(created_at)";
    let mut lent = database.lend().await?;
    let statement = sqlx::query_as(SQL)
        .bind(since_hours.map(|hours| i32::try_from(hours).unwrap_or(i32::MAX)))
        .bind(by_title)
        .bind(by_body);
    let answer = database.within("twins", statement.fetch_all(lent.connection())).await;
    lent.answered(answer)
}
