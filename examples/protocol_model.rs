//! Checks the model of the ledger's protocol with as many replicas, keys and faults as wanted:
//! `cargo run --release --example protocol_model -- --replicas 3`.

#[path = "../tests/protocol/check.rs"]
mod check;
#[path = "../tests/protocol/model.rs"]
mod model;
#[path = "../tests/protocol/state.rs"]
mod state;
#[path = "../tests/protocol/story.rs"]
mod story;

use std::process::ExitCode;

use clap::Parser;

use self::model::{KEYS, Protocol, REPLICAS, Way};
use self::story::{check, counter_example};

/// Walks through every state of the model of the ledger's protocol.
#[derive(Parser)]
struct Options {
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=REPLICAS as i64))]
    replicas: u8,
    /// The first one takes two steps, the second one takes one.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=KEYS as i64))]
    keys: u8,
    /// How many things go wrong at most: crashes, pauses, drains, failures, lost answers and notifications, callers that leave.
    #[arg(long, default_value_t = 2)]
    faults: u8,
}

fn main() -> ExitCode {
    let options = Options::parse();
    let ways = &[Way::TwoStep, Way::OneStep][..usize::from(options.keys)];
    let protocol = || Protocol::new(options.replicas.into(), ways, options.faults);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    println!(
        "{} replicas, {} keys, at most {} faults",
        options.replicas, options.keys, options.faults
    );
    let report = check(protocol(), threads);
    print!("{report}");
    // With names this time, so that the steps can be followed.
    let first = report.violations.first().map(|violation| violation.property);
    if let Some(violation) = first.and_then(|property| counter_example(protocol(), property)) {
        print!("the shortest way there:\n{violation}");
    }
    ExitCode::from(u8::from(!report.violations.is_empty()))
}
