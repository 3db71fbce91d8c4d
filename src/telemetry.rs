//! Logs: a line per call at info, errors once where they are handled. Identifiers are fields; arguments, results and who
//! calls never are.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt;

use crate::config::LogFormat;

/// What is logged unless RUST_LOG says otherwise. rmcp logs several lines a request, an error for every
/// caller that leaves, and the messages that clients are told. The listener's connection comes from a pool of sqlx's own, which complains when it is closed.
const DEFAULT: &str = "info,rmcp=off,sqlx=warn,sqlx_core::pool=error";

/// Starts logging to standard error. Does nothing when it has been started.
pub fn start(format: LogFormat) {
    start_at(format, DEFAULT);
}

/// Starts logging at another level than usual, unless RUST_LOG says otherwise.
pub fn start_at(format: LogFormat, filter: &str) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(filter));
    let builder = fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let _ = match format {
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
        LogFormat::Text => builder
            .with_target(false)
            .with_ansi(std::io::stderr().is_terminal())
            .try_init(),
    };
}
