//! The listeners of a replica, and the order of its layers.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::middleware::from_fn_with_state;
use axum::routing::any;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tracing::{error, warn};

use super::front::{Front, pass};
use super::health::{self, Health};
use super::{http, mcp};
use crate::config::Config;
use crate::lifecycle::Lifecycle;
use crate::operation::caller::Caller;
use crate::operation::run::Service;

/// After the last call is answered, how long a connection may take to carry the answer away.
const LINGER: Duration = Duration::from_secs(2);

/// What the transports are made from.
pub struct Transports<'a> {
    /// Hosts, origins and sizes.
    pub config: &'a Config,
    /// What runs the calls.
    pub service: Arc<Service>,
    /// Where the replica stands.
    pub lifecycle: Lifecycle,
    /// Who everybody is.
    pub principal: Arc<str>,
    /// The replica's name.
    pub replica: Arc<str>,
}

/// Running listeners.
pub struct Server {
    calls: JoinHandle<()>,
    health: JoinHandle<()>,
    /// Where MCP and HTTP are found.
    pub address: SocketAddr,
    /// Where health is found.
    pub admin_address: SocketAddr,
}

impl Server {
    /// Serves on sockets that are bound already.
    ///
    /// # Errors
    /// A socket's own address cannot be read.
    pub fn start(transports: &Transports<'_>, calls: TcpListener, admin: TcpListener) -> std::io::Result<Self> {
        let address = calls.local_addr()?;
        let admin_address = admin.local_addr()?;
        let lifecycle = transports.lifecycle.clone();
        let calls =
            axum::serve(calls, transports.router()).with_graceful_shutdown(async move { lifecycle.draining().await });
        let health = health::router(Health {
            lifecycle: transports.lifecycle.clone(),
            ledger: Arc::clone(&transports.service.ledger),
            replica: Arc::clone(&transports.replica),
        });
        Ok(Self {
            address,
            admin_address,
            calls: tokio::spawn(async {
                if let Err(error) = calls.await {
                    error!(%error, "the listener failed");
                }
            }),
            health: tokio::spawn(async {
                if let Err(error) = axum::serve(admin, health).await {
                    error!(%error, "the admin listener failed");
                }
            }),
        })
    }

    /// Waits until the answers are out; health is answered to the end.
    pub async fn finish(self) {
        if tokio::time::timeout(LINGER, self.calls).await.is_err() {
            warn!("connections are still open; leaving");
        }
        self.health.abort();
    }
}

impl Transports<'_> {
    /// The layers, outermost first: front (arrival, stage, Host, Origin, hand-back), then one of the two transports.
    fn router(&self) -> Router {
        let limit = self.config.max_body_bytes;
        let front = Front {
            lifecycle: self.lifecycle.clone(),
            hosts: self.config.allowed_hosts.clone().into(),
            origins: self.config.allowed_origins.clone().into(),
            caller: Caller {
                principal: Arc::clone(&self.principal),
                source: Arc::clone(&self.principal),
            },
        };
        let endpoint = mcp::endpoint(&self.service, limit);
        Router::new()
            .route("/mcp", any(mcp::serve).with_state(endpoint))
            .nest(http::ROOT, http::router(&self.service, limit))
            .fallback(http::no_such_path)
            .layer(from_fn_with_state(front, pass))
    }
}
