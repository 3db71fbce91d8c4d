//! `ticket-ledger migrate`.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;

use super::Failure;

#[derive(Debug, Args)]
pub struct Arguments {
    /// A postgres:// URL of the database
    #[arg(long, env = "DATABASE_URL", hide_env_values = true)]
    database_url: String,
}

pub async fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    super::log_for_a_person();
    crate::postgres::migrate(&arguments.database_url, Duration::from_secs(10)).await?;
    println!("The schema is up to date.");
    Ok(ExitCode::SUCCESS)
}
