//! `ticket-ledger healthcheck`: for container engines, in images that have neither a shell nor curl.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use serde_json::Value;

use super::Failure;

/// Longest wait for the replica's answer.
const LIMIT: Duration = Duration::from_secs(3);

#[derive(Debug, Args)]
pub struct Arguments {
    /// Where the replica's /livez and /readyz are found
    #[arg(long, env = "ADMIN_ADDR", default_value = "127.0.0.1:9000")]
    admin_addr: SocketAddr,

    /// Ask only whether it runs, not whether it takes calls
    #[arg(long)]
    live: bool,
}

pub async fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    let path = if arguments.live { "livez" } else { "readyz" };
    let url = format!("http://{}/{path}", on_this_machine(arguments.admin_addr));
    // Whoever makes an HTTP client first chooses its cryptography for the process, also where nothing is encrypted.
    let _ = rustls::crypto::ring::default_provider().install_default();
    // No certificates are needed, and no proxy leads to this machine.
    let client = reqwest::Client::builder()
        .tls_certs_only([])
        .no_proxy()
        .timeout(LIMIT)
        .build()?;
    let response = client.get(&url).send().await.map_err(|_| {
        Failure::new(format!(
            "nothing answers at {url} within {} s: the replica does not run, or ADMIN_ADDR is another one.",
            LIMIT.as_secs()
        ))
    })?;
    let status = response.status();
    if status.is_success() {
        let does = if arguments.live { "runs" } else { "takes calls" };
        println!("The replica {does}.");
        return Ok(ExitCode::SUCCESS);
    }
    let said: Value = response.json().await.unwrap_or_default();
    Err(Failure::new(
        match (said["stage"].as_str(), said["database"].as_str()) {
            (Some(stage), Some(database)) => {
                format!("the replica does not take calls (stage: {stage}, database: {database}).")
            }
            _ => format!("{url} answers {status}, as no replica does: something else listens there."),
        },
    ))
}

/// The address that leads there from this machine: one that stands for all of them is reached by loopback.
fn on_this_machine(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}
