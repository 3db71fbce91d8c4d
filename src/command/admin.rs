//! `ticket-ledger admin`: what an operator does by hand.

use std::process::ExitCode;
use std::sync::Arc;

use clap::{Args, Subcommand, ValueEnum};
use serde_json::json;

use super::{Failure, entries, tokens};
use crate::ledger::{Key, Retried, retry, set_write_stop};
use crate::operation::caller::ANONYMOUS;
use crate::operation::entries::{TwinEntries, twin_entries};
use crate::operation::tickets::{TwinGroup, twins};
use crate::postgres::{Database, Reach, Settings};

#[derive(Debug, Args)]
pub struct Arguments {
    /// A postgres:// URL of the database
    #[arg(long, env = "DATABASE_URL", hide_env_values = true, global = true)]
    database_url: Option<String>,

    /// Print JSON
    #[arg(long, global = true)]
    json: bool,

    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Lets a failed request run again: its next caller or the next scan takes it up
    Retry {
        /// The request_id that its caller sent
        request_id: String,
        /// Whose request it is: anonymous, token:NAME, or oauth:["ISSUER","SUBJECT"]
        #[arg(long, default_value = ANONYMOUS)]
        principal: String,
    },
    /// Stops all writes on all replicas at once; what is saved is still replayed, and reads go on
    StopWrites,
    /// Allows writes again
    AllowWrites,
    /// Bearer tokens for scripts
    #[command(subcommand)]
    Token(tokens::Action),
    #[command(flatten)]
    Entries(entries::Action),
    /// Groups tickets, and entries, that agree, however far apart; exits with 1 if there are any
    Duplicates {
        /// Only those of the last so many hours
        #[arg(long, value_name = "HOURS")]
        since: Option<u32>,
        /// In what they agree
        #[arg(long, value_enum, value_delimiter = ',', default_value = "title,body")]
        by: Vec<Field>,
    },
}

/// A field of a ticket or an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Field {
    Title,
    Body,
}

pub async fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    super::log_for_a_person();
    let Some(url) = arguments.database_url else {
        return Err(Failure::usage(
            "DATABASE_URL is not set: give the URL of the deployment's database (ticket-ledger dev prints its own).",
        ));
    };
    let database = Database::new(&Settings::by_hand(url), Arc::new(Reach::default()))?;
    match arguments.action {
        Action::Retry { request_id, principal } => {
            let key = Key {
                principal: principal.into(),
                request_id: request_id.as_str().into(),
            };
            let retried = retry(&database, &key, &operator()).await?;
            let (status, sentence) = match retried {
                Retried::Freed => (
                    "freed",
                    "It may run again; its next caller or the next scan takes it up.",
                ),
                Retried::NotFailed => ("already so", "It is not failed; nothing was changed."),
                Retried::Unknown => {
                    return Err(Failure::new(format!(
                        "no request {request_id} is recorded for this principal; check the request_id and --principal."
                    )));
                }
            };
            if arguments.json {
                println!("{}", json!({ "request_id": request_id, "status": status }));
            } else {
                println!("{request_id}: {sentence}");
            }
            Ok(ExitCode::SUCCESS)
        }
        Action::Entries(action) => entries::run(&database, action, &operator(), arguments.json).await,
        Action::StopWrites => switch_writes(&database, true, arguments.json).await,
        Action::AllowWrites => switch_writes(&database, false, arguments.json).await,
        Action::Token(action) => tokens::run(&database, action, &operator(), arguments.json).await,
        Action::Duplicates { since, by } => {
            let (title, body) = (by.contains(&Field::Title), by.contains(&Field::Body));
            let tickets = twins(&database, since, title, body).await?;
            let entries = twin_entries(&database, since, title, body).await?;
            show(&tickets, &entries, arguments.json);
            Ok(if tickets.is_empty() && entries.is_empty() {
                ExitCode::SUCCESS
            } else {
                ExitCode::from(1)
            })
        }
    }
}

async fn switch_writes(database: &Database, stopped: bool, as_json: bool) -> Result<ExitCode, Failure> {
    let changed = set_write_stop(database, stopped, &operator()).await?;
    let status = if changed { "changed" } else { "already so" };
    if as_json {
        println!(
            "{}",
            json!({ "writes": if stopped { "stopped" } else { "allowed" }, "status": status })
        );
    } else {
        let sentence = match (stopped, changed) {
            (true, true) => {
                "Writes are stopped on all replicas: nothing new is saved from now on. Allow them with allow-writes."
            }
            (true, false) => "Writes were stopped already; nothing was changed.",
            (false, true) => "Writes are allowed again on all replicas.",
            (false, false) => "Writes were allowed already; nothing was changed.",
        };
        println!("{sentence}");
    }
    Ok(ExitCode::SUCCESS)
}

fn show(tickets: &[TwinGroup], entries: &[TwinEntries], as_json: bool) {
    if as_json {
        let tickets = tickets.iter().map(
            |group| json!({ "title": group.title, "ticket_ids": group.ticket_ids, "request_ids": group.request_ids }),
        );
        let entries = entries.iter().map(|group| {
            let (name, value) = match (&group.title, &group.parent_id) {
                (Some(title), _) => ("title", title.as_str()),
                (None, question) => ("parent_id", question.as_deref().unwrap_or_default()),
            };
            json!({ name: value, "entry_ids": group.entry_ids, "request_ids": group.request_ids })
        });
        let groups: Vec<_> = tickets.chain(entries).collect();
        println!("{}", json!({ "duplicates": groups }));
        return;
    }
    if tickets.is_empty() && entries.is_empty() {
        println!("No duplicates.");
    }
    for group in tickets {
        println!("{:?}: {} tickets", group.title, group.ticket_ids.len());
        show_members(&group.ticket_ids, &group.request_ids);
    }
    for group in entries {
        match (&group.title, &group.parent_id) {
            (Some(title), _) => println!("{title:?}: {} questions", group.entry_ids.len()),
            (None, question) => println!(
                "{} replies to {}",
                group.entry_ids.len(),
                question.as_deref().unwrap_or_default()
            ),
        }
        show_members(&group.entry_ids, &group.request_ids);
    }
}

fn show_members(ids: &[String], request_ids: &[String]) {
    for (id, request) in ids.iter().zip(request_ids) {
        println!("  {id}  request_id {request}");
    }
}

/// Who does it, for the audit: the name of this user on this machine.
fn operator() -> String {
    nix::unistd::User::from_uid(nix::unistd::getuid())
        .ok()
        .flatten()
        .map_or_else(|| "unknown".to_owned(), |user| user.name)
}
