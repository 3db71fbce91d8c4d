//! The program with the feature `sabotage`, under a name of its own so that it is never taken for the sound one.

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let cli = ticket_ledger::command::Cli::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    match runtime {
        Ok(runtime) => runtime.block_on(ticket_ledger::command::run(cli)),
        Err(error) => {
            eprintln!("ticket-ledger: the runtime could not be started: {error}");
            ExitCode::FAILURE
        }
    }
}
