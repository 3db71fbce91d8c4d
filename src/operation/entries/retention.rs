//! Retention: entries and records of deletions go when their time is over. Readers do not wait for that: what is past its retention
//! is not shown any more, removed or not.

use async_trait::async_trait;
use tracing::warn;

use super::Board;
use crate::ledger::Upkeep;
use crate::postgres::{Database, DatabaseError};

/// Most entries, and most records, that go in one statement, and the most statements in a row.
const MOST_ROWS: i64 = 500;
const MOST_ROUNDS: usize = 20;

/// Removes what is past its retention.
pub struct OldEntries {
    /// What the board is run with.
    pub board: Board,
}

#[async_trait]
impl Upkeep for OldEntries {
    fn name(&self) -> &'static str {
        "old_entries"
    }

    async fn run(&self, database: &Database) -> Result<u64, DatabaseError> {
        let mut all = 0;
        for _ in 0..MOST_ROUNDS {
            let (removed, set_aside) = retire(database, &self.board).await?;
            all += removed.unsigned_abs();
            if removed == 0 {
                if set_aside > 0 {
                    warn!(set_aside, "entries past their retention cannot be removed");
                }
                break;
            }
        }
        Ok(all)
    }
}

async fn retire(database: &Database, board: &Board) -> Result<(i64, i64), DatabaseError> {
    const SQL: &str = "select removed, set_aside from retire_entries($1, $2, $3)";
    let mut lent = database.lend().await?;
    let statement = sqlx::query_as(SQL)
        .bind(board.keep_entries_ms())
        .bind(board.keep_deletions_ms())
        .bind(MOST_ROWS);
    let answer = database
        .within("retire_entries", statement.fetch_one(lent.connection()))
        .await;
    lent.answered(answer)
}
