//! `ticket-ledger load`: proof under fire.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};

use super::Failure;
use super::serve::stop_on_signals;
use crate::load::{self, Balancer, Fault, Options, Summary};

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
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

#[derive(Debug, Args)]
struct RunArguments {
    /// A deployment that runs already, such as https://example.org (with --replicas 0)
    target: Option<String>,

    /// How many replicas to start
    #[arg(long, default_value_t = 3)]
    replicas: usize,

    /// A postgres:// URL of a database to use in place of a private one
    #[arg(long, env = "LOAD_DATABASE_URL", hide_env_values = true)]
    database_url: Option<String>,

    /// What stands before the replicas
    #[arg(long, value_enum, default_value = "auto")]
    balancer: Balancer,

    /// End when so many calls were made
    #[arg(long, default_value_t = 10_000)]
    calls: u64,

    /// Do not end before so many seconds have passed
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    at_least: u64,

    /// Do not end before every fault was injected so often, and kills ten times as often
    #[arg(long, default_value_t = 1)]
    each_fault: u64,

    /// Callers at once
    #[arg(long, default_value_t = 24)]
    callers: usize,

    /// Which faults; `none` for none [default: all]
    #[arg(long, value_delimiter = ',')]
    faults: Vec<String>,

    /// Mean pause between two faults, in ms
    #[arg(long, default_value_t = 700)]
    fault_every_ms: u64,

    /// Makes the same workload again [default: chosen by chance]
    #[arg(long)]
    seed: Option<u64>,

    /// The replicas' lease, in ms
    #[arg(long, default_value_t = 2_000)]
    lease_ms: u64,

    /// The replicas' wait, in ms
    #[arg(long, default_value_t = 20_000)]
    wait_ms: u64,

    /// How long create_ticket works, in ms; 0: it is settled in one step
    #[arg(long, default_value_t = 50)]
    work_ms: u64,

    /// Where history, logs and data are put
    #[arg(long, default_value = "load-run")]
    out: PathBuf,

    /// The target may be written to: it is a test environment
    #[arg(long)]
    target_is_a_test_environment: bool,
}

pub async fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    crate::telemetry::start_logs(crate::config::LogFormat::Text, Some("warn"));
    let (judged, output, again) = match arguments.action {
        Some(Action::Bench(arguments)) => return bench(arguments).await,
        Some(Action::Check {
            history,
            database_url,
            output,
        }) => (load::check(&history, database_url).await, output, String::new()),
        None => {
            let options = options(&arguments.run)?;
            let again = again(&options, &arguments.run);
            let stop = stop_on_signals()?;
            (load::run(options, stop).await, arguments.output, again)
        }
    };
    let (summary, records) = judged.map_err(Failure::new)?;
    if let Some(report) = &output.report {
        load::write_report(report, &records, &summary).map_err(Failure::new)?;
    }
    show(&summary, output.json, &again)?;
    Ok(if summary.verdict.violations.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(1)
    })
}

async fn bench(arguments: BenchArguments) -> Result<ExitCode, Failure> {
    let options = load::bench::Options {
        folder: arguments.out,
        seconds: arguments.seconds,
        rounds: usize::try_from(arguments.rounds)?,
        progress: true,
    };
    let report = load::bench::run(options, stop_on_signals()?)
        .await
        .map_err(Failure::new)?;
    if arguments.json {
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        report.print();
    }
    Ok(ExitCode::SUCCESS)
}

fn show(summary: &Summary, json: bool, again: &str) -> Result<(), Failure> {
    if json {
        println!("{}", serde_json::to_string_pretty(summary)?);
    } else {
        summary.print();
    }
    if !summary.verdict.violations.is_empty() && !again.is_empty() {
        eprintln!("\nThe same workload again:\n  {again}");
    }
    Ok(())
}

fn options(arguments: &RunArguments) -> Result<Options, Failure> {
    if let Some(target) = &arguments.target {
        if arguments.replicas > 0 {
            return Err(Failure::usage("a target runs already: give --replicas 0 with it."));
        }
        if !is_loopback(target) && !arguments.target_is_a_test_environment {
            return Err(Failure::usage(format!(
                "{target} is not on this machine, and a load test writes thousands of tickets: give --target-is-a-test-environment if \
                 it may."
            )));
        }
        if arguments.database_url.is_none() {
            return Err(Failure::usage(
                "give --database-url of the target's database: the history is judged with its tables.",
            ));
        }
    } else if arguments.replicas == 0 {
        return Err(Failure::usage(
            "--replicas 0 takes the URL of a deployment that runs already.",
        ));
    }
    if arguments.callers == 0 || arguments.callers > 1_000 {
        return Err(Failure::usage("--callers must be 1 to 1000."));
    }
    let ms = Duration::from_millis;
    Ok(Options {
        folder: arguments.out.clone(),
        database_url: arguments.database_url.clone(),
        replicas: arguments.replicas,
        balancer: arguments.balancer,
        target: arguments.target.clone(),
        calls: arguments.calls,
        at_least: Duration::from_secs(arguments.at_least),
        each_fault: arguments.each_fault,
        callers: arguments.callers,
        faults: faults(&arguments.faults)?,
        fault_every: ms(arguments.fault_every_ms.max(10)),
        seed: arguments.seed.unwrap_or_else(|| fastrand::u64(..)),
        lease: ms(arguments.lease_ms),
        wait: ms(arguments.wait_ms),
        work: ms(arguments.work_ms),
        progress: true,
    })
}

fn faults(names: &[String]) -> Result<Vec<Fault>, Failure> {
    if names.is_empty() {
        return Ok(Fault::value_variants().to_vec());
    }
    if names == ["none"] {
        return Ok(Vec::new());
    }
    names
        .iter()
        .map(|name| {
            Fault::from_str(name, false).map_err(|_| {
                let known: Vec<_> = Fault::value_variants().iter().map(|fault| fault.name()).collect();
                Failure::usage(format!(
                    "there is no fault {name}; there are none, or: {}.",
                    known.join(", ")
                ))
            })
        })
        .collect()
}

/// The command that makes the same workload and the same faults again.
fn again(options: &Options, arguments: &RunArguments) -> String {
    let faults: Vec<_> = options.faults.iter().map(|fault| fault.name()).collect();
    format!(
        "ticket-ledger load --seed {} --calls {} --callers {} --faults {} --fault-every-ms {} --each-fault {} --replicas {} \
         --lease-ms {} --wait-ms {} --work-ms {}",
        options.seed,
        options.calls,
        options.callers,
        if faults.is_empty() {
            "none".to_owned()
        } else {
            faults.join(",")
        },
        arguments.fault_every_ms,
        options.each_fault,
        options.replicas,
        arguments.lease_ms,
        arguments.wait_ms,
        arguments.work_ms,
    )
}

fn is_loopback(target: &str) -> bool {
    let host = target.split_once("://").map_or(target, |(_, rest)| rest);
    let host = host.split('/').next().unwrap_or_default();
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    name == "localhost"
        || name
            .trim_matches(['[', ']'])
            .parse::<std::net::IpAddr>()
            .is_ok_and(|address| address.is_loopback())
}
