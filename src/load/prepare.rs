//! What a run sees to before it lets callers loose: that the service answers, that writes are allowed, that the database is the
//! service's; and what there is for callers to write to.

use std::sync::Mutex;
use std::time::Duration;

use sqlx::{Connection, PgConnection};
use tokio::time::{Instant, sleep};

use super::address::with_password_as;
use super::driver::Driver;
use super::operator;
use super::stage::Stage;
use super::workload::{self, SHARED_QUESTIONS, SHARED_TICKETS, Shared, names_of};
use crate::postgres::Database;

/// How long the database may take to show what the service has saved.
const SHOWN_WITHIN: Duration = Duration::from_secs(5);

/// Sees to all of it.
///
/// # Errors
/// A sentence; at most one ticket has been made then, unless the service stopped making them.
pub(super) async fn prepare(
    driver: &Driver,
    stage: &Stage,
    database: &Database,
    seed: u64,
    run: &str,
    has_entries: bool,
) -> Result<Shared, String> {
    // Before anything is written.
    is_there(&stage.database_url, run)
        .await
        .map_err(|error| unread(&stage.database_url, &error))?;
    see_that_writes_are_allowed(stage, database).await?;
    shared(driver, seed, run, has_entries, &stage.database_url).await
}

/// Whether the database holds anything of this run.
async fn is_there(database_url: &str, run: &str) -> Result<bool, sqlx::Error> {
    let mut connection = PgConnection::connect(database_url).await?;
    let is_there = sqlx::query_scalar("select exists (select from requests where starts_with(request_id, $1))")
        .bind(names_of(run))
        .fetch_one(&mut connection)
        .await?;
    connection.close().await?;
    Ok(is_there)
}

fn unread(database_url: &str, error: &sqlx::Error) -> String {
    format!(
        "the ledger's tables cannot be read in {}, with which the run would be judged, so nothing was written: {error}. Name the \
         target's own database with --database-url.",
        with_password_as(database_url, None)
    )
}

/// Sees that what the service saves comes to this database: with another one everything would look lost.
async fn see_that_it_is_there(database_url: &str, run: &str) -> Result<(), String> {
    let began = Instant::now();
    loop {
        if is_there(database_url, run).await.unwrap_or(false) {
            return Ok(());
        }
        if began.elapsed() > SHOWN_WITHIN {
            return Err(format!(
                "the service has made a ticket, and the database holds nothing of this run. Is {} the right one? Name the target's own \
                 database with --database-url. Nothing else was written.",
                with_password_as(database_url, None)
            ));
        }
        sleep(Duration::from_millis(100)).await;
    }
}

/// Whether there is a board to post to.
pub(super) async fn are_entries_offered(driver: &Driver) -> Result<bool, String> {
    let Some(client) = driver.clients.first() else {
        return Ok(false);
    };
    if !client.is_answered().await {
        return Err("the service does not answer; is it running, at that address?".to_owned());
    }
    Ok(client.offers("/entries").await)
}

/// A run that was killed outright may have left writes stopped. On a Postgres of one's own nobody else has stopped them.
async fn see_that_writes_are_allowed(stage: &Stage, database: &Database) -> Result<(), String> {
    if !operator::are_writes_stopped(&stage.database_url).await {
        return Ok(());
    }
    if stage.cluster.is_some() {
        return operator::allow_writes(database).await;
    }
    Err(
        "an operator has stopped writes, or an earlier load test that was killed outright. Where nobody means it, allow them \
         (ticket-ledger admin allow-writes, with DATABASE_URL of that database) and start again."
            .to_owned(),
    )
}

/// Tickets to be commented on and set, and questions to be replied to.
async fn shared(
    driver: &Driver,
    seed: u64,
    run: &str,
    has_entries: bool,
    database_url: &str,
) -> Result<Shared, String> {
    let made = async |number: u64, is_question: bool, member: &str| {
        let intent = workload::preparation(seed, run, u64::MAX - number, is_question);
        let answer = driver.carry_out(&intent).await;
        answer.and_then(|answer| answer.result?.get(member)?.as_str().map(str::to_owned))
    };
    let mut shared = Shared::default();
    for number in 0..SHARED_TICKETS {
        let ticket = made(number, false, "ticket_id").await;
        shared
            .tickets
            .push(ticket.ok_or("the service does not create tickets; is it the one that was meant?")?);
        if number == 0 {
            see_that_it_is_there(database_url, run).await?;
        }
    }
    let mut questions = Vec::new();
    for number in (SHARED_TICKETS..SHARED_TICKETS + SHARED_QUESTIONS).take_while(|_| has_entries) {
        let question = made(number, true, "id").await;
        questions.push(question.ok_or("the service does not post questions, though it offers to")?);
    }
    shared.questions = Mutex::new(questions);
    Ok(shared)
}
