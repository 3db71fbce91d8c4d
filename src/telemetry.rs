//! Logs: a line per call at info, errors once where they are handled. Identifiers are fields; arguments, results and who
//! calls never are.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt;

use crate::config::LogFormat;

/// What is logged unless RUST_LOG says otherwise. rmcp logs several lines a request, and warns with the message of every
/// error that a client is told. The listener's connection comes from a pool of sqlx's own, which complains when it is closed.
const DEFAULT: &str = "info,rmcp=error,sqlx=warn,sqlx_core::pool=error";

/// Starts logging to standard error. Does nothing when it has been started.
pub fn start(format: LogFormat) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(DEFAULT));
    let builder = fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let _ = match format {
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
        LogFormat::Text => builder
            .with_target(false)
            .with_ansi(std::io::stderr().is_terminal())
            .try_init(),
    };
}
