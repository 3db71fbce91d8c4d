//! The commands, a file each.

mod admin;
mod dev;
mod entries;
mod files;
mod healthcheck;
mod load;
mod migrate;
mod serve;
mod tokens;
mod tools;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::config::LogFormat;

/// An AI agent's write, called twice, happens once.
#[derive(Debug, Parser)]
#[command(version, about, args_conflicts_with_subcommands = true)]
pub struct Cli {
    #[command(subcommand)]
    command: Option<Command>,

    #[command(flatten)]
    dev: dev::Arguments,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// A replica with a private Postgres, for trying things out (the default)
    Dev(dev::Arguments),
    /// One replica on DATABASE_URL
    Serve(serve::Arguments),
    /// Brings the schema up to date; safe to run from several places
    Migrate(migrate::Arguments),
    /// Asks the replica on this machine whether it takes calls; exits with 1 if it does not
    Healthcheck(healthcheck::Arguments),
    /// What an operator does by hand
    Admin(admin::Arguments),
    /// Proof under fire: replicas, a balancer, clients and faults, and a check of the whole history
    Load(load::Arguments),
    /// Any MCP server's tools with their hints, and which calls a client may repeat
    Tools(tools::Arguments),
}

/// A sentence for whoever started the command, which then ends with status 1 (2 for unusable arguments, or one of its own).
#[derive(Debug)]
pub struct Failure {
    sentence: String,
    status: u8,
}

impl Failure {
    /// The command could not do what it was asked.
    pub fn new(sentence: impl Into<String>) -> Self {
        Self {
            sentence: sentence.into(),
            status: 1,
        }
    }

    /// The command ends with a status of its own.
    pub fn with_status(status: u8, sentence: impl Into<String>) -> Self {
        Self {
            sentence: sentence.into(),
            status,
        }
    }

    /// The command was asked something that makes no sense.
    pub fn usage(sentence: impl Into<String>) -> Self {
        Self {
            sentence: sentence.into(),
            status: 2,
        }
    }
}

impl<E: std::error::Error> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::new(error.to_string())
    }
}

/// Runs the command that the arguments name.
pub async fn run(cli: Cli) -> ExitCode {
    let done = match cli.command.unwrap_or(Command::Dev(cli.dev)) {
        Command::Dev(arguments) => dev::run(arguments).await,
        Command::Serve(arguments) => serve::run(arguments).await,
        Command::Migrate(arguments) => migrate::run(arguments).await,
        Command::Healthcheck(arguments) => healthcheck::run(arguments).await,
        Command::Admin(arguments) => admin::run(arguments).await,
        Command::Load(arguments) => load::run(arguments).await,
        Command::Tools(arguments) => tools::run(arguments).await,
    };
    match done {
        Ok(status) => status,
        Err(failure) => {
            eprintln!("ticket-ledger: {}", failure.sentence);
            ExitCode::from(failure.status)
        }
    }
}

/// Logs for a command that a person runs.
fn log_for_a_person() {
    crate::telemetry::start_logs(LogFormat::Text, None);
}
