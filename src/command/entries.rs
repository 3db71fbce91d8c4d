//! What an operator does to entries.

use std::io::{IsTerminal, Write};
use std::process::ExitCode;

use clap::{Subcommand, ValueEnum};
use serde_json::{Value, json};

use super::Failure;
use crate::operation::entries::moderation::{self, Listed, MOST_LISTED, Moderated};
use crate::postgres::Database;

#[derive(Debug, Subcommand)]
pub enum Action {
    /// Hides an entry: it is kept, and nobody can read it; a hidden question takes no replies
    Hide {
        /// The id that its post returned
        entry_id: String,
    },
    /// Shows a hidden entry again
    Unhide {
        /// The id that its post returned
        entry_id: String,
    },
    /// Deletes an entry for good, after asking; a repeat of its post is told so and does not make it again
    Delete {
        /// The id that its post returned
        entry_id: String,
        /// Do not ask
        #[arg(long)]
        yes: bool,
    },
    /// Lists the entries that are hidden, or those that were deleted
    Entries {
        /// Which of them
        #[arg(value_enum)]
        which: Which,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Which {
    Hidden,
    Deleted,
}

pub async fn run(database: &Database, action: Action, operator: &str, as_json: bool) -> Result<ExitCode, Failure> {
    match action {
        Action::Hide { entry_id } => set_hidden(database, &entry_id, true, operator, as_json).await,
        Action::Unhide { entry_id } => set_hidden(database, &entry_id, false, operator, as_json).await,
        Action::Delete { entry_id, yes } => {
            if !yes && !confirm(database, &entry_id).await? {
                println!("{entry_id}: left as it is.");
                return Ok(ExitCode::FAILURE);
            }
            delete(database, &entry_id, operator, as_json).await
        }
        Action::Entries { which } => list(database, which, as_json).await,
    }
}

async fn set_hidden(
    database: &Database,
    entry_id: &str,
    hidden: bool,
    operator: &str,
    as_json: bool,
) -> Result<ExitCode, Failure> {
    let (status, sentence) = match (
        moderation::set_hidden(database, entry_id, hidden, operator).await?,
        hidden,
    ) {
        (Moderated::Changed, true) => (
            "changed",
            "It is hidden: nobody can read it, and if it is a question it takes no replies. Show it again with unhide.",
        ),
        (Moderated::Changed, false) => (
            "changed",
            "It is not hidden any more, and can be read again unless its question is hidden.",
        ),
        (Moderated::AlreadySo, true) => ("already so", "It was hidden already; nothing was changed."),
        (Moderated::AlreadySo, false) => ("already so", "It was not hidden; nothing was changed."),
        (Moderated::Deleted, _) => {
            return Err(Failure::new(format!(
                "{entry_id} was deleted, so there is nothing to hide or to show. Nothing was changed."
            )));
        }
        (Moderated::Unknown, _) => return Err(no_such_entry(entry_id)),
    };
    say(
        as_json,
        entry_id,
        sentence,
        json!({ "entry_id": entry_id, "hidden": hidden, "status": status }),
    );
    Ok(ExitCode::SUCCESS)
}

async fn delete(database: &Database, entry_id: &str, operator: &str, as_json: bool) -> Result<ExitCode, Failure> {
    let (status, sentence) = match moderation::delete(database, entry_id, operator).await? {
        Moderated::Changed => (
            "changed",
            "It is deleted. A repeat of its post is told so, and does not make it again.",
        ),
        Moderated::AlreadySo | Moderated::Deleted => ("already so", "It was deleted already; nothing was changed."),
        Moderated::Unknown => return Err(no_such_entry(entry_id)),
    };
    say(
        as_json,
        entry_id,
        sentence,
        json!({ "entry_id": entry_id, "deleted": true, "status": status }),
    );
    Ok(ExitCode::SUCCESS)
}

fn say(as_json: bool, entry_id: &str, sentence: &str, told: Value) {
    if as_json {
        println!("{told}");
    } else {
        println!("{entry_id}: {sentence}");
    }
}

fn no_such_entry(entry_id: &str) -> Failure {
    Failure::new(format!(
        "there is no entry {entry_id}, and no record of one; check the id. Nothing was changed."
    ))
}

/// Asks whoever sits at the terminal. What is not there needs no asking.
async fn confirm(database: &Database, entry_id: &str) -> Result<bool, Failure> {
    let Some((entry, replies)) = moderation::find(database, entry_id).await? else {
        return Ok(true);
    };
    if !std::io::stdin().is_terminal() {
        return Err(Failure::usage(format!(
            "deleting {entry_id} cannot be undone, and there is nobody to ask: say --yes if it is meant, or hide it instead. Nothing was \
             changed."
        )));
    }
    let what = match (&entry.title, &entry.parent_id) {
        (Some(title), _) => format!("the question {title:?}, whose {replies} replies nobody can read then"),
        (_, Some(question)) => format!("a reply to {question}"),
        _ => "an entry".to_owned(),
    };
    // Where JSON goes to standard output, a question there would spoil it.
    eprint!(
        "{entry_id} is {what}, posted {}. Delete it for good? [y/N] ",
        entry.created_at
    );
    std::io::stderr().flush()?;
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer)?;
    Ok(["y", "yes"].contains(&answer.trim().to_lowercase().as_str()))
}

async fn list(database: &Database, which: Which, as_json: bool) -> Result<ExitCode, Failure> {
    let (name, entries) = match which {
        Which::Hidden => ("hidden", moderation::hidden(database).await?),
        Which::Deleted => ("deleted", moderation::deleted(database).await?),
    };
    let more = i64::try_from(entries.len()).is_ok_and(|listed| listed >= MOST_LISTED);
    if as_json {
        let entries: Vec<_> = entries.iter().map(|entry| shown(name, entry)).collect();
        println!("{}", json!({ name: entries, "more": more }));
        return Ok(ExitCode::SUCCESS);
    }
    if entries.is_empty() {
        println!("No entry is {name}.");
    }
    for entry in &entries {
        let what = match (&entry.title, &entry.parent_id) {
            (Some(title), _) => format!("question {title:?}"),
            (_, Some(question)) => format!("reply to {question}"),
            _ => entry.kind.clone(),
        };
        let since = entry.since.as_deref().unwrap_or_default();
        println!(
            "{}  {name} {since}  posted {}  {what}",
            entry.entry_id, entry.created_at
        );
    }
    if more {
        println!("These are the latest {MOST_LISTED}; there may be more.");
    }
    Ok(ExitCode::SUCCESS)
}

fn shown(name: &str, entry: &Listed) -> Value {
    let mut shown = json!({
        "entry_id": entry.entry_id, "type": entry.kind, "created_at": entry.created_at, "request_id": entry.request_id,
        format!("{name}_at"): entry.since,
    });
    for (member, value) in [("title", &entry.title), ("parent_id", &entry.parent_id)] {
        if let Some(value) = value {
            shown[member] = json!(value);
        }
    }
    shown
}
