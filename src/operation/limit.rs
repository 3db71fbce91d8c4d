//! The limit on what one source calls for in an hour of the database's clock, over all replicas together.
//!
//! A unit is taken, and committed, before the ledger is asked: repeats use units up too. What is refused for its arguments and
//! what only reads does not.

use async_trait::async_trait;

use crate::ledger::Upkeep;
use crate::postgres::{Database, DatabaseError};

/// What came of asking for a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// The call may go on.
    Taken,
    /// The hour's units are used up.
    UsedUp {
        /// Until the next hour, in seconds.
        retry_after_seconds: u64,
    },
}

/// Takes one of the `most` units that `source` has in this hour.
///
/// # Errors
/// Postgres cannot be reached. Whether a unit was taken is not known then; nothing else has happened.
pub async fn take_unit(database: &Database, source: &str, most: i64) -> Result<Unit, DatabaseError> {
    // hour_after is asked once the row is held: whoever waited for it may have come in another hour.
    const SQL: &str = "
        with taken as (
            insert into source_units as u (source, hour, used) values ($1, this_hour(), 1)
            on conflict (source) do update
            set hour = hour_after(u.hour), used = case when u.hour = hour_after(u.hour) then u.used + 1 else 1 end
            where u.hour <> hour_after(u.hour) or u.used < $2
            returning 1
        )
        select exists (select from taken), seconds_of_hour_left()";
    let mut lent = database.lend().await?;
    let statement = sqlx::query_as::<_, (bool, i64)>(SQL).bind(source).bind(most);
    let answer = database
        .within("take_unit", statement.fetch_one(lent.connection()))
        .await;
    Ok(match lent.answered(answer)? {
        (true, _) => Unit::Taken,
        (false, seconds) => Unit::UsedUp {
            retry_after_seconds: seconds.unsigned_abs().max(1),
        },
    })
}

/// Forgets the sources that have not called since yesterday.
pub struct IdleSources;

#[async_trait]
impl Upkeep for IdleSources {
    fn name(&self) -> &'static str {
        "idle_sources"
    }

    async fn run(&self, database: &Database) -> Result<u64, DatabaseError> {
        const SQL: &str = "delete from source_units where hour < clock_timestamp() - interval '1 day'";
        let mut lent = database.lend().await?;
        let answer = database
            .within("forget_idle_sources", sqlx::query(SQL).execute(lent.connection()))
            .await;
        lent.answered(answer).map(|done| done.rows_affected())
    }
}
