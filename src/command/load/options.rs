//! The arguments of a run, and the command that asks for it again.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, ValueEnum};

use crate::command::Failure;
use crate::config::Config;
use crate::load::{Balancer, Fault, Options, with_password_as};
use crate::postgres::DatabaseError;

#[derive(Debug, Args)]
pub struct RunArguments {
    /// A deployment that runs already, such as https://example.org (with --replicas 0)
    target: Option<String>,

    /// How many replicas to start
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(0..=50))]
    replicas: u16,

    /// A postgres:// URL of a database to use in place of a private one; with a target, of the target's own. DATABASE_URL is not
    /// looked at, because it may name a database that is in use
    #[arg(long, env = "LOAD_DATABASE_URL", hide_env_values = true)]
    database_url: Option<String>,

    /// What stands before the replicas
    #[arg(long, value_enum, default_value = "auto")]
    balancer: Balancer,

    /// End when so many calls were made
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..))]
    calls: u64,

    /// Do not end before so many seconds have passed
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    at_least: u64,

    /// Do not end before every fault was injected so often, and kills ten times as often
    #[arg(long, default_value_t = 1)]
    each_fault: u64,

    /// Callers at once
    #[arg(long, default_value_t = 24, value_parser = clap::value_parser!(u16).range(1..=1_000))]
    callers: u16,

    // What each of them is, stands in the help.
    #[arg(long, value_delimiter = ',', help = faults_help())]
    faults: Vec<String>,

    /// Mean pause between two faults, in ms
    #[arg(long, default_value_t = 700, value_parser = clap::value_parser!(u64).range(10..=3_600_000))]
    fault_every_ms: u64,

    /// Makes the same workload again [default: chosen by chance]
    #[arg(long)]
    seed: Option<u64>,

    /// The replicas' lease, in ms; with a target, what it is set to
    #[arg(long, default_value_t = 2_000, value_parser = a_day())]
    lease_ms: u64,

    /// The replicas' wait, in ms; with a target, what it is set to
    #[arg(long, default_value_t = 20_000, value_parser = a_day())]
    wait_ms: u64,

    /// How long create_ticket works, in ms; 0: it is settled in one step; with a target, what it is set to
    #[arg(long, default_value_t = 50, value_parser = a_day())]
    work_ms: u64,

    /// How many writes the replicas allow each source in an hour; 0: any number. Of ten requests, nine come from many sources
    /// that hardly call so often, and one from a source that does
    #[arg(long, default_value_t = 60)]
    limit_per_source: u32,

    /// How many writes the replicas save in an hour; 0: any number
    #[arg(long, default_value_t = 0)]
    limit_global: u32,

    /// Where history, logs and data are put
    #[arg(long, default_value = "load-run")]
    out: PathBuf,

    /// The target may be written to: it is a test environment
    #[arg(long)]
    target_is_a_test_environment: bool,
}

impl RunArguments {
    /// What these arguments ask for.
    ///
    /// # Errors
    /// They make no sense, or the replicas would refuse them.
    pub fn into_options(self) -> Result<Options, Failure> {
        self.check_target()?;
        self.check_database()?;
        let ms = Duration::from_millis;
        let faults = faults(&self.faults, self.target.is_some())?;
        let mut options = Options {
            folder: self.out,
            database_url: self.database_url,
            replicas: usize::from(self.replicas),
            balancer: self.balancer,
            target: self.target,
            calls: self.calls,
            at_least: Duration::from_secs(self.at_least),
            each_fault: self.each_fault,
            callers: usize::from(self.callers),
            faults,
            fault_every: ms(self.fault_every_ms),
            seed: self.seed.unwrap_or_else(|| fastrand::u64(..)),
            lease: ms(self.lease_ms),
            wait: ms(self.wait_ms),
            work: ms(self.work_ms),
            limit_per_source: self.limit_per_source,
            limit_global: self.limit_global,
            progress: true,
            again: String::new(),
        };
        check_settings(&options)?;
        options.again = again(&options, self.target_is_a_test_environment);
        Ok(options)
    }

    /// Refuses a database's URL that is none, and says that DATABASE_URL counts for nothing here.
    fn check_database(&self) -> Result<(), Failure> {
        let Some(url) = &self.database_url else {
            if std::env::var_os("DATABASE_URL").is_some() {
                eprintln!(
                    "ticket-ledger: DATABASE_URL is set and not used: a load test writes thousands of tickets, and starts a Postgres of its \
                     own. To use a database all the same, name it with --database-url or LOAD_DATABASE_URL."
                );
            }
            return Ok(());
        };
        match crate::postgres::connect_options(url) {
            Ok(_) => Ok(()),
            Err(DatabaseError::Url(why)) => Err(Failure::usage(format!(
                "--database-url (or LOAD_DATABASE_URL) cannot be used ({why}): give a URL such as \
                 postgres://user:password@host:5432/database."
            ))),
            Err(error) => Err(Failure::usage(error.to_string())),
        }
    }

    fn check_target(&self) -> Result<(), Failure> {
        let Some(target) = &self.target else {
            if self.replicas == 0 {
                return Err(Failure::usage(
                    "--replicas 0 takes the URL of a deployment that runs already.",
                ));
            }
            return Ok(());
        };
        if !target.starts_with("http://") && !target.starts_with("https://") {
            return Err(Failure::usage(format!(
                "there is no command {target}, and it is no URL of a deployment. Give check, bench, or a URL such as https://example.org \
                 with --replicas 0."
            )));
        }
        if self.replicas > 0 {
            return Err(Failure::usage("a target runs already: give --replicas 0 with it."));
        }
        if !is_loopback(target) && !self.target_is_a_test_environment {
            return Err(Failure::usage(format!(
                "{target} is not on this machine, and a load test writes thousands of tickets: give --target-is-a-test-environment if \
                 it may."
            )));
        }
        if self.database_url.is_none() {
            return Err(Failure::usage(
                "give --database-url of the target's database: the history is judged with its tables.",
            ));
        }
        Ok(())
    }
}

/// Milliseconds, of which the replicas' own limits are what counts: so few that nothing overflows before they are asked.
fn a_day() -> clap::builder::RangedU64ValueParser {
    clap::value_parser!(u64).range(..=86_400_000)
}

/// What is said of --faults.
fn faults_help() -> String {
    let mut help = "Which faults, such as kill,pause; `none` for none [default: all, and with a target all but an operator's acts: hide, \
                    delete, stop-writes]. Behind a balancer, kills and rolling restarts alone come one at a time: the next when no call \
                    suffers from the last any more. There are:"
        .to_owned();
    for value in Fault::value_variants().iter().filter_map(Fault::to_possible_value) {
        let what = value.get_help().map(ToString::to_string).unwrap_or_default();
        help.push_str(&format!("\n  {:<13} {what}", value.get_name()));
    }
    help
}

/// Refuses what the replicas would refuse, before anything is started; a target refuses the same.
fn check_settings(options: &Options) -> Result<(), Failure> {
    /// A replica's settings as its command line has them.
    #[derive(Parser)]
    struct Replica {
        #[command(flatten)]
        config: Config,
    }
    let flags = options
        .replica_settings()
        .into_iter()
        .flat_map(|(name, value)| [format!("--{}", name.to_lowercase().replace('_', "-")), value]);
    let replica = Replica::try_parse_from(std::iter::once("replica".to_owned()).chain(flags))
        .map_err(|error| Failure::usage(error.to_string()))?;
    let findings = replica.config.examine();
    if findings.errors.is_empty() {
        return Ok(());
    }
    Err(Failure::usage(findings.errors.join("\nticket-ledger: ")))
}

fn faults(names: &[String], has_target: bool) -> Result<Vec<Fault>, Failure> {
    if names.is_empty() {
        let all = Fault::value_variants().iter().copied();
        let (acts, breaks): (Vec<_>, Vec<_>) = all.partition(|fault| has_target && fault.is_operators());
        if !acts.is_empty() {
            let names: Vec<_> = acts.into_iter().map(Fault::name).collect();
            eprintln!(
                "ticket-ledger: not done to a target, where whoever else writes would notice, unless --faults names them: {}",
                names.join(", ")
            );
        }
        return Ok(breaks);
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

/// The command that makes the same workload and the same faults again. Passwords are left out.
fn again(options: &Options, target_is_a_test_environment: bool) -> String {
    let faults: Vec<_> = options.faults.iter().map(|fault| fault.name()).collect();
    let ms = |span: Duration| span.as_millis().to_string();
    let balancer = options.balancer.to_possible_value();
    let faults = if faults.is_empty() {
        "none".to_owned()
    } else {
        faults.join(",")
    };
    let mut words: Vec<String> = [
        ("--seed", options.seed.to_string()),
        ("--calls", options.calls.to_string()),
        ("--at-least", options.at_least.as_secs().to_string()),
        ("--callers", options.callers.to_string()),
        ("--faults", faults),
        ("--fault-every-ms", ms(options.fault_every)),
        ("--each-fault", options.each_fault.to_string()),
        ("--replicas", options.replicas.to_string()),
        (
            "--balancer",
            balancer.map_or_else(String::new, |balancer| balancer.get_name().to_owned()),
        ),
        ("--lease-ms", ms(options.lease)),
        ("--wait-ms", ms(options.wait)),
        ("--work-ms", ms(options.work)),
        ("--limit-per-source", options.limit_per_source.to_string()),
        ("--limit-global", options.limit_global.to_string()),
        ("--out", options.folder.display().to_string()),
    ]
    .into_iter()
    .flat_map(|(flag, value)| [flag.to_owned(), value])
    .collect();
    if let Some(url) = &options.database_url {
        words.extend(["--database-url".to_owned(), with_password_as(url, Some("PASSWORD"))]);
    }
    if target_is_a_test_environment {
        words.push("--target-is-a-test-environment".to_owned());
    }
    if let Some(target) = &options.target {
        words.push(with_password_as(target, Some("PASSWORD")));
    }
    let words: Vec<_> = words.iter().map(|word| quoted(word)).collect();
    format!("ticket-ledger load {}", words.join(" "))
}

/// A word as a shell takes it for one.
fn quoted(word: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./:,@%+=".contains(&byte);
    if !word.is_empty() && word.bytes().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
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

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::{RunArguments, quoted};

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        run: RunArguments,
    }

    fn again(arguments: &[&str]) -> String {
        let words = std::iter::once("load").chain(arguments.iter().copied());
        let options = Command::parse_from(words).run.into_options();
        options.expect("they make sense").again
    }

    #[test]
    fn the_command_that_asks_again_asks_for_the_same() {
        let words = "--seed 7 --calls 5 --at-least 3 --callers 2 --faults kill,pause --fault-every-ms 50 --each-fault 4 \
                     --replicas 2 --balancer haproxy --lease-ms 1500 --wait-ms 9000 --work-ms 0 --limit-per-source 9 --limit-global 8 --out elsewhere";
        let given: Vec<_> = words.split_whitespace().collect();
        let printed = again(&given);
        assert_eq!(printed, format!("ticket-ledger load {}", given.join(" ")));
        let printed: Vec<_> = printed.split(' ').skip(2).collect();
        assert_eq!(again(&printed).split(' ').skip(2).collect::<Vec<_>>(), printed);
    }

    #[test]
    fn the_command_that_asks_again_names_target_and_database_without_their_passwords() {
        let printed = again(&[
            "--replicas",
            "0",
            "--database-url",
            "postgres://me:secret@db/x?password=secret",
            "--target-is-a-test-environment",
            "https://me:secret@example.org",
        ]);
        assert!(!printed.contains("secret"), "{printed}");
        assert!(
            printed.ends_with(
                " --database-url 'postgres://me:PASSWORD@db/x?password=PASSWORD' --target-is-a-test-environment \
                 https://me:PASSWORD@example.org/"
            ),
            "{printed}"
        );
    }

    #[test]
    fn a_word_is_quoted_for_a_shell_where_it_needs_to_be() {
        assert_eq!(quoted("kill,pause"), "kill,pause");
        assert_eq!(quoted("it's $x"), r"'it'\''s $x'");
        assert_eq!(quoted(""), "''");
    }
}
