//! `ticket-ledger dev`: everything in one command, on a private Postgres.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::parser::ValueSource;
use clap::{Args, CommandFactory, ValueEnum};
use tokio_util::sync::CancellationToken;

use super::serve::{Replica, start_telemetry, stop_on_signals};
use super::{Cli, Failure};
use crate::cluster::{Options, PrivateCluster, StopMode, default_folder};
use crate::config::access::Auth;
use crate::config::{Config, LogFormat};
use crate::operation::Toolset;
use crate::transport::{Admin, Server};

/// The database in a private cluster.
const DATABASE: &str = "ticket_ledger";

#[derive(Debug, Args)]
pub struct Arguments {
    /// A postgres:// URL of a database to use in place of a private one
    #[arg(long, env = "DATABASE_URL", hide_env_values = true)]
    database_url: Option<String>,

    /// Where the private Postgres keeps its data [default: the user's data folder]
    #[arg(long, env = "DATA_DIR")]
    data_dir: Option<PathBuf>,

    /// The folder with initdb, pg_ctl and postgres [default: searched for, else fetched]
    #[arg(long, env = "PG_BINDIR")]
    pg_bindir: Option<PathBuf>,

    #[command(flatten)]
    config: Config,
}

pub async fn run(mut arguments: Arguments) -> Result<ExitCode, Failure> {
    // For a person at a terminal who tries things out, unless they chose otherwise.
    let chosen = |flag: &str, variable: &str| {
        std::env::args().any(|argument| argument.starts_with(flag)) || std::env::var_os(variable).is_some()
    };
    if !chosen("--log-format", "LOG_FORMAT") {
        arguments.config.log_format = LogFormat::Text;
    }
    if !chosen("--toolsets", "TOOLSETS") {
        arguments.config.toolsets = Toolset::value_variants().to_vec();
    }
    let telemetry = start_telemetry(&arguments.config)?;
    // Set and empty is what a script leaves behind that wanted it unset.
    arguments.database_url = arguments.database_url.filter(|url| !url.is_empty());
    // From here on a signal ends it in order, also while its server starts.
    let stop = stop_on_signals()?;
    // The sockets first: a port that is taken is said before a server is started.
    let replica = Replica::prepare(&arguments.config).await?;
    let cluster = match &arguments.database_url {
        Some(_) => None,
        None => Some(start_cluster(&arguments).await?),
    };
    let served = serve(&arguments, replica, cluster.as_ref(), stop).await;
    if let Some(cluster) = cluster {
        cluster.stop(StopMode::Fast).await?;
        println!("Postgres is stopped; the tickets are kept.");
    }
    telemetry.finish().await;
    served.map(|()| ExitCode::SUCCESS)
}

async fn start_cluster(arguments: &Arguments) -> Result<PrivateCluster, Failure> {
    let folder = arguments.data_dir.clone().unwrap_or_else(default_folder);
    let options = Options {
        bindir: arguments.pg_bindir.clone(),
        ..Options::default()
    };
    println!("Starting a private Postgres in {} …", folder.display());
    Ok(PrivateCluster::start(&folder, &options).await?)
}

async fn serve(
    arguments: &Arguments,
    replica: Replica<'_>,
    cluster: Option<&PrivateCluster>,
    stop: CancellationToken,
) -> Result<(), Failure> {
    let url = match (&arguments.database_url, cluster) {
        (None, Some(cluster)) => {
            crate::postgres::make_database(&cluster.database_url("postgres"), DATABASE).await?;
            cluster.database_url(DATABASE)
        }
        (given, _) => given.clone().unwrap_or_default(),
    };
    crate::postgres::migrate(&url, Duration::from_secs(10)).await?;
    let greeting = url.clone();
    let private = cluster.is_some();
    let asks = arguments.config.access.asks(Auth::Token);
    let settings = settings_of_another(&arguments.config.toolsets);
    replica
        .run(url, stop, move |server, admin| {
            greet(server, admin, &greeting, &settings, private, asks)
        })
        .await
}

/// What another replica on the same database has to be told so that it answers as this one does: what this one offers, and every
/// setting that was chosen for it, as a shell reads them.
fn settings_of_another(toolsets: &[Toolset]) -> String {
    const OWN: [&str; 7] = [
        "DATABASE_URL",
        "DATA_DIR",
        "PG_BINDIR",
        "LISTEN_ADDR",
        "ADMIN_ADDR",
        "REPLICA_NAME",
        "LOG_FORMAT",
    ];
    let command = Cli::command();
    let matches = command.clone().get_matches();
    let matches = matches.subcommand().map_or(&matches, |(_, matches)| matches);
    let names = toolsets.iter().filter_map(ValueEnum::to_possible_value);
    let names: Vec<_> = names.map(|name| name.get_name().to_owned()).collect();
    let mut settings = format!("TOOLSETS={}", names.join(","));
    for argument in command.get_arguments() {
        let (id, name) = (argument.get_id().as_str(), argument.get_env().and_then(OsStr::to_str));
        let source = matches.try_get_raw(id).ok().and_then(|_| matches.value_source(id));
        let chosen = matches!(source, Some(ValueSource::CommandLine | ValueSource::EnvVariable));
        let (Some(name), true) = (name.filter(|name| *name != "TOOLSETS" && !OWN.contains(name)), chosen) else {
            continue;
        };
        let values = matches.get_raw(id).into_iter().flatten();
        let values: Vec<_> = values.map(|value| value.to_string_lossy()).collect();
        let value = if values.is_empty() {
            "true".to_owned()
        } else {
            values.join(",")
        };
        settings.push_str(&format!(" {name}='{}'", value.replace('\'', r"'\''")));
    }
    settings
}

/// What a newcomer needs, ready to paste.
fn greet(server: &Server, admin: &Admin, url: &str, settings: &str, private: bool, asks: bool) {
    let address = server.address;
    let other = address.port().wrapping_add(1).max(1024);
    let program =
        std::env::current_exe().map_or_else(|_| "ticket-ledger".to_owned(), |path| path.display().to_string());
    let other_admin = admin.address.port().wrapping_add(1).max(1024);
    let pid = std::process::id();
    let who = if asks {
        format!(
            "Callers have to say who they are; a token to send with -H 'Authorization: Bearer …':

  DATABASE_URL='{url}' {program} admin token issue try --scopes tickets:read,tickets:write

"
        )
    } else {
        String::new()
    };
    let stop = if private {
        "Ctrl-C stops it and its Postgres."
    } else {
        "Ctrl-C stops it."
    };
    println!(
        "
ticket-ledger takes calls.

  MCP           http://{address}/mcp
  HTTP          http://{address}/api/v1
  DATABASE_URL  {url}

Connect Claude Code:

  claude mcp add --transport http ticket-ledger http://{address}/mcp

Create a ticket; run it again, and it is the same ticket:

  curl -sS -w '\\n' http://{address}/api/v1/tickets -H 'Content-Type: application/json' \\
    -d '{{\"request_id\": \"my-first-intent\", \"title\": \"Printer on fire\", \"body\": \"Second floor.\"}}'

Start a second replica:

  DATABASE_URL='{url}' {settings} {program} serve --log-format text --listen-addr 127.0.0.1:{other} --admin-addr 127.0.0.1:{other_admin}

{who}Kill this one as a crash would; nothing is lost, and started again it recovers by itself:

  kill -9 {pid}

{stop}
"
    );
}
