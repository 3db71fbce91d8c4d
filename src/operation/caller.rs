//! Who calls, and by which way.

use std::sync::Arc;

/// By which way a call came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Via {
    /// MCP at /mcp.
    Mcp,
    /// HTTP below /api/v1.
    Http,
}

impl Via {
    /// Its name in rows and answers.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Mcp => "mcp",
            Self::Http => "http",
        }
    }
}

/// Who calls. The front puts it beside every request.
#[derive(Debug, Clone)]
pub struct Caller {
    /// Whose requests these are. Nobody sees another principal's.
    pub principal: Arc<str>,
    /// Whose units a write uses up: the principal, or its address where nobody is asked who they are.
    pub source: Arc<str>,
}
