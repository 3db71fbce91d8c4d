//! `ticket-ledger tools [URL]`: any MCP server's tools, as a client that may repeat calls sees them.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use rmcp::model::{ClientCapabilities, ClientConfig, Implementation, ProtocolVersion, Tool};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use rmcp::{ClientLifecycleMode, ClientServiceExt};

use super::Failure;

/// Longest wait for the server.
const LIMIT: Duration = Duration::from_secs(30);

#[derive(Debug, Args)]
pub struct Arguments {
    /// The server's URL
    #[arg(default_value = "http://127.0.0.1:8000/mcp")]
    url: String,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub async fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    let listed = tokio::time::timeout(LIMIT, list(&arguments.url)).await;
    let tools = listed.map_err(|_| {
        Failure::new(format!(
            "{} did not answer within {} s.",
            arguments.url,
            LIMIT.as_secs()
        ))
    })??;
    if arguments.json {
        println!("{}", serde_json::to_string_pretty(&tools)?);
        return Ok(ExitCode::SUCCESS);
    }
    let width = tools
        .iter()
        .map(|tool| tool.name.chars().count())
        .max()
        .unwrap_or(0)
        .max(4);
    println!(
        "{:width$}  readOnly  destructive  idempotent  openWorld  may a client repeat a call?",
        "tool"
    );
    for tool in &tools {
        let hints = tool.annotations.as_ref();
        let word = |hint: Option<bool>| match hint {
            Some(true) => "yes",
            Some(false) => "no",
            None => "not said",
        };
        let read_only = hints.and_then(|hints| hints.read_only_hint);
        let idempotent = hints.and_then(|hints| hints.idempotent_hint);
        let verdict = match (read_only, idempotent) {
            (Some(true), _) => "yes: it changes nothing",
            (_, Some(true)) => "yes: with the same arguments",
            _ => "no: find out first whether it was done",
        };
        println!(
            "{:width$}  {:8}  {:11}  {:10}  {:9}  {verdict}",
            tool.name,
            word(read_only),
            word(hints.and_then(|hints| hints.destructive_hint)),
            word(idempotent),
            word(hints.and_then(|hints| hints.open_world_hint)),
        );
    }
    Ok(ExitCode::SUCCESS)
}

async fn list(url: &str) -> Result<Vec<Tool>, Failure> {
    // Whoever starts a TLS client first chooses its cryptography for the process; a second choice is refused, and fine.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut client = reqwest::Client::builder();
    if url.starts_with("http://") {
        // Without TLS no certificates are needed, and a machine may have none.
        client = client.tls_certs_only([]);
    }
    let http = client.build()?;
    let transport =
        StreamableHttpClientTransport::with_client(http.clone(), StreamableHttpClientTransportConfig::with_uri(url));
    let identity = Implementation::new("ticket-ledger-tools", env!("CARGO_PKG_VERSION"));
    let served = ClientConfig::new(ClientCapabilities::default(), identity)
        .serve_with_lifecycle(
            transport,
            ClientLifecycleMode::Auto {
                preferred_versions: vec![ProtocolVersion::V_2026_07_28],
                legacy_version: Some(ProtocolVersion::V_2025_11_25),
            },
        )
        .await;
    let client = match served {
        Ok(client) => client,
        Err(error) => return Err(no_server(&http, url, &error).await),
    };
    let tools = client.list_all_tools().await?;
    let _ = client.cancel().await;
    Ok(tools)
}

/// Why no MCP server was found: an address that nobody answers at is told from one where somebody else does.
async fn no_server(client: &reqwest::Client, url: &str, error: &impl std::fmt::Display) -> Failure {
    Failure::new(match client.get(url).send().await {
        Err(error) if error.is_builder() => format!("{url} is not a URL such as http://127.0.0.1:8000/mcp."),
        Err(error) if error.is_connect() => format!("nothing answers at {url}. Is the server running?"),
        _ => format!("{url} does not answer as an MCP server: {error}"),
    })
}
