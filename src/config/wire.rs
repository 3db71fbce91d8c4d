//! What a connection and its requests may cost.

use std::time::Duration;

use clap::Args;

use super::Findings;

/// The settings of this part.
#[derive(Debug, Clone, Args)]
#[command(rename_all = "kebab-case")]
pub struct Wire {
    /// Most connections at once; a caller past that is answered with 503
    #[arg(long, env = "MAX_CONNECTIONS", default_value_t = 4_096)]
    pub max_connections: usize,

    /// Most calls that one principal has under way on this replica; past that only what is recorded is answered, past twice that
    /// nothing is. It does not hold with AUTH=none
    #[arg(long, env = "MAX_CALLS_PER_PRINCIPAL", default_value_t = 64)]
    pub max_calls_per_principal: usize,

    /// How long the head of a request may take from its first byte, in ms (100 to 300000); then the connection is cut
    #[arg(long, env = "HEADER_TIMEOUT_MS", default_value_t = 10_000)]
    pub header_timeout_ms: u64,

    /// How long a connection may have no request, or leave an answer unread, in ms (100 to 3600000); then it is closed
    #[arg(long, env = "IDLE_TIMEOUT_MS", default_value_t = 75_000)]
    pub idle_timeout_ms: u64,

    /// Largest head of a request, in bytes
    #[arg(long, env = "MAX_HEADER_BYTES", default_value_t = 65_536)]
    pub max_header_bytes: usize,

    /// How deep the objects and lists of a body may be nested
    #[arg(long, env = "MAX_JSON_DEPTH", default_value_t = 64)]
    pub max_json_depth: usize,
}

impl Wire {
    pub(super) fn examine(&self, findings: &mut Findings) {
        findings.refuse(!(1..=1_000_000).contains(&self.max_connections), || {
            format!("MAX_CONNECTIONS is {}: it must be 1 to 1000000.", self.max_connections)
        });
        findings.refuse(!(1..=1_000_000).contains(&self.max_calls_per_principal), || {
            format!(
                "MAX_CALLS_PER_PRINCIPAL is {}: it must be 1 to 1000000.",
                self.max_calls_per_principal
            )
        });
        findings.refuse(!(100..=300_000).contains(&self.header_timeout_ms), || {
            format!(
                "HEADER_TIMEOUT_MS is {}: it must be 100 to 300000.",
                self.header_timeout_ms
            )
        });
        findings.refuse(!(100..=3_600_000).contains(&self.idle_timeout_ms), || {
            format!(
                "IDLE_TIMEOUT_MS is {}: it must be 100 to 3600000.",
                self.idle_timeout_ms
            )
        });
        findings.refuse(!(8_192..=1_048_576).contains(&self.max_header_bytes), || {
            format!(
                "MAX_HEADER_BYTES is {}: it must be 8192 to 1048576.",
                self.max_header_bytes
            )
        });
        findings.refuse(!(8..=120).contains(&self.max_json_depth), || {
            format!(
                "MAX_JSON_DEPTH is {}: it must be 8 (an MCP call's own frame and its arguments) to 120.",
                self.max_json_depth
            )
        });
    }

    /// See the setting.
    pub fn header_timeout(&self) -> Duration {
        Duration::from_millis(self.header_timeout_ms)
    }

    /// See the setting.
    pub fn idle_timeout(&self) -> Duration {
        Duration::from_millis(self.idle_timeout_ms)
    }
}
