//! `ticket-ledger load`: proof under fire.

mod options;

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};

use self::options::RunArguments;
use super::Failure;
use super::serve::stop_on_signals;
use crate::load::{self, Judged, Outcome, Page};

/// A rule was broken.
const BROKEN: u8 = 1;
/// Nothing can be said: it could not be run or judged, did not come to its end, or too little was settled.
const UNKNOWN: u8 = 3;

const STATUSES: &str = "Exit status:
  0  the run came to its end, and no rule was broken
  1  a rule was broken
  2  arguments that make no sense
  3  it could not be run or judged, did not come to its end, or too little was settled to say anything";

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, after_help = STATUSES)]
pub struct Arguments {
    #[command(subcommand)]
    action: Option<Action>,

    #[command(flatten)]
    run: RunArguments,

    #[command(flatten)]
    output: Output,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Judges a history that was recorded before
    #[command(after_help = STATUSES)]
    Check {
        /// The history, such as load-run/history.jsonl
        history: PathBuf,
        /// The database whose tables it is judged with [default: the one that the history names]
        #[arg(long)]
        database_url: Option<String>,
        #[command(flatten)]
        output: Output,
    },
    /// Measures the service beside pgbench on one Postgres, and how long waiters wait
    Bench(BenchArguments),
}

#[derive(Debug, Args)]
struct BenchArguments {
    /// How long each cell is measured in each round
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=600))]
    seconds: u64,

    /// How often everything is measured; what is printed are medians
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=1_000))]
    rounds: u64,

    /// Where data and logs are put; on the disk that is to be measured
    #[arg(long, default_value = "bench-run")]
    out: PathBuf,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct Output {
    /// Write a page with throughput, latency and faults over time
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub async fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    crate::telemetry::start_logs(crate::config::LogFormat::Text, Some("warn"));
    let (judged, output) = match arguments.action {
        Some(Action::Bench(arguments)) => return bench(arguments).await,
        Some(Action::Check {
            history,
            database_url,
            output,
        }) => {
            let page = open(&output)?;
            (load::check(&history, database_url).await, (output, page))
        }
        None => {
            let options = arguments.run.into_options()?;
            let page = open(&arguments.output)?;
            let stop = stop_on_signals()?;
            (load::run(options, stop).await, (arguments.output, page))
        }
    };
    let judged = judged.map_err(unknown)?;
    tell(&judged, output.0.json, output.1)
}

/// Opens the report's file, before anything else is done.
fn open(output: &Output) -> Result<Option<Page>, Failure> {
    output.report.as_deref().map(Page::open).transpose().map_err(unknown)
}

async fn bench(arguments: BenchArguments) -> Result<ExitCode, Failure> {
    let options = load::bench::Options {
        folder: arguments.out,
        seconds: arguments.seconds,
        rounds: usize::try_from(arguments.rounds)?,
        progress: true,
    };
    let report = load::bench::run(options, stop_on_signals()?).await.map_err(unknown)?;
    say(&if arguments.json {
        serde_json::to_string_pretty(&report)?
    } else {
        report.to_string()
    })
    .map_err(unknown)?;
    Ok(ExitCode::SUCCESS)
}

/// Tells the verdict, in every way that was asked for and is possible, and makes it the exit status.
fn tell(judged: &Judged, json: bool, page: Option<Page>) -> Result<ExitCode, Failure> {
    let summary = &judged.summary;
    let text = if json {
        serde_json::to_string_pretty(summary)?
    } else {
        summary.to_string()
    };
    let told = say(&text).inspect_err(|_| {
        // Hours of work are not to end in nothing because of a full disk.
        eprintln!("{text}");
    });
    if summary.outcome == Outcome::Broken && !summary.again.is_empty() {
        eprintln!("\nThe same workload again:\n  {}", summary.again);
    }
    let written = page.map_or(Ok(()), |page| page.write(judged));
    let untold: Vec<_> = [told, written].into_iter().filter_map(Result::err).collect();
    for reason in &untold {
        eprintln!("ticket-ledger: {reason}");
    }
    Ok(match summary.outcome {
        Outcome::Broken => ExitCode::from(BROKEN),
        Outcome::Held if untold.is_empty() => ExitCode::SUCCESS,
        Outcome::Held | Outcome::Incomplete | Outcome::Unsettled | Outcome::Nothing => ExitCode::from(UNKNOWN),
    })
}

fn say(text: &str) -> Result<(), String> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{}", text.trim_end())
        .and_then(|()| out.flush())
        .map_err(|error| format!("standard output cannot be written: {error}"))
}

fn unknown(sentence: String) -> Failure {
    Failure::with_status(UNKNOWN, sentence)
}
