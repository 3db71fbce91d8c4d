//! Fencing tokens, drawn from one sequence in blocks.

use tokio::sync::Mutex;

use super::state::Token;
use crate::postgres::{Database, DatabaseError};

/// How many tokens one step of the sequence stands for; the migration says the same.
const BLOCK: Token = 1024;

/// Hands out tokens that nobody else has or will have.
#[derive(Debug, Default)]
pub(super) struct Tokens(Mutex<Block>);

#[derive(Debug, Default)]
struct Block {
    next: Token,
    end: Token,
    /// How many times Postgres had been lost when the block was drawn.
    losses: u64,
}

impl Tokens {
    /// The next token.
    ///
    /// # Errors
    /// The block is used up and Postgres cannot be reached, or was lost while others drew.
    pub(super) async fn draw(&self, database: &Database) -> Result<Token, DatabaseError> {
        let before = database.reach().losses();
        let mut block = self.0.lock().await;
        // A block does not outlive a loss of the server: after a failover the new primary may never have heard of it.
        let losses = database.reach().losses();
        if block.next == block.end || block.losses != losses {
            // Whoever queued here while another one found Postgres out of reach shares in what it found: one after the
            // other they would all wait as long, the last one for minutes.
            if losses != before {
                return Err(DatabaseError::Unreachable("it was lost a moment ago".to_owned()));
            }
            let mut lent = database.lend().await?;
            let statement = sqlx::query_scalar::<_, i64>("select nextval('claim_tokens')");
            let answer = database
                .within("draw_tokens", statement.fetch_one(lent.connection()))
                .await;
            let first = lent.answered(answer)?;
            *block = Block {
                next: first,
                end: first + BLOCK,
                losses,
            };
        }
        let token = block.next;
        block.next += 1;
        Ok(token)
    }
}
