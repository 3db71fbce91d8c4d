//! The listeners of a replica, and the order of its layers.

use std::future::pending;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::middleware::from_fn_with_state;
use axum::routing::{any, get};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tracing::warn;

use super::auth::{Door, METADATA, admit, metadata};
use super::connection::Limits;
use super::console::{self, Console};
use super::front::{Front, pass};
use super::health::{self, Health};
use super::{body, cors, http, listen, mcp};
use crate::config::Config;
use crate::lifecycle::Lifecycle;
use crate::operation::run::Service;

/// After the last call is answered, how long a connection may take to carry the answer away.
const LINGER: Duration = Duration::from_secs(2);

/// Connections to the admin address at once: probes, a scraper and some people. They must not take the files that calls need.
const MOST_ADMINS: usize = 64;

/// What the transports are made from.
pub struct Transports<'a> {
    /// Hosts, origins and sizes.
    pub config: &'a Config,
    /// What runs the calls.
    pub service: Arc<Service>,
    /// Where the replica stands.
    pub lifecycle: Lifecycle,
    /// The replica's name.
    pub replica: Arc<str>,
    /// Who is let in. One for calls and for the console, because it has the issuer's keys.
    pub door: Arc<Door>,
}

/// The listener for calls.
pub struct Server {
    calls: JoinHandle<()>,
    /// Where MCP and HTTP are found.
    pub address: SocketAddr,
}

/// The listener for health, from the beginning to the end of a replica's life.
pub struct Admin {
    health: JoinHandle<()>,
    /// Where health is found.
    pub address: SocketAddr,
}

impl Server {
    /// Takes calls; stops listening when the replica drains.
    ///
    /// # Errors
    /// The listener's own address cannot be read.
    pub fn start(transports: &Transports<'_>, listener: TcpListener) -> std::io::Result<Self> {
        let address = listener.local_addr()?;
        let lifecycle = transports.lifecycle.clone();
        let limits = transports.limits();
        let (router, most) = (transports.router(), transports.config.wire.max_connections);
        let calls = async move { listen::serve(listener, router, most, limits, lifecycle.draining()).await };
        Ok(Self {
            address,
            calls: tokio::spawn(calls),
        })
    }

    /// Waits until the answers are out.
    pub async fn finish(self) {
        if tokio::time::timeout(LINGER, self.calls).await.is_err() {
            warn!("connections are still open; leaving");
        }
    }
}

impl Admin {
    /// Answers /livez, /readyz, /metrics and /console.
    ///
    /// # Errors
    /// The listener's own address cannot be read.
    pub fn start(transports: &Transports<'_>, listener: TcpListener) -> std::io::Result<Self> {
        let address = listener.local_addr()?;
        let health = health::router(Health {
            lifecycle: transports.lifecycle.clone(),
            ledger: Arc::clone(&transports.service.ledger),
            replica: Arc::clone(&transports.replica),
        })
        .merge(console::router(
            Console {
                ledger: Arc::clone(&transports.service.ledger),
                hosts: transports.config.hosts().into(),
            },
            Arc::clone(&transports.door),
        ));
        Ok(Self {
            address,
            // To the end of the replica's life, which finish says.
            health: tokio::spawn(listen::serve(
                listener,
                health,
                MOST_ADMINS,
                transports.limits(),
                pending(),
            )),
        })
    }

    /// Stops.
    pub fn finish(self) {
        self.health.abort();
    }
}

impl Transports<'_> {
    fn limits(&self) -> Limits {
        let wire = &self.config.wire;
        Limits {
            header: wire.header_timeout(),
            idle: wire.idle_timeout(),
            header_bytes: wire.max_header_bytes,
        }
    }

    /// The layers, outermost first: what browsers ask before they call, front (arrival, stage, Host, Origin, hand-back), the door (who calls), then one of the two
    /// transports.
    fn router(&self) -> Router {
        let limit = body::Limits {
            bytes: self.config.max_body_bytes,
            depth: self.config.wire.max_json_depth,
        };
        let front = Front {
            lifecycle: self.lifecycle.clone(),
            hosts: self.config.hosts().into(),
            origins: self.config.allowed_origins.clone().into(),
        };
        let endpoint = mcp::endpoint(&self.service, limit);
        let door = Arc::clone(&self.door);
        let open = Arc::clone(&door);
        // Both places of RFC 9728: that of the resource with its path, and that of clients which leave the path out.
        let metadata = get(move || async move {
            match metadata(open.challenge()) {
                Some(response) => response,
                None => http::no_such_path().await,
            }
        });
        Router::new()
            .route(mcp::PATH, any(mcp::serve).with_state(endpoint))
            .nest(http::ROOT, http::router(&self.service, limit))
            .layer(from_fn_with_state(door, admit))
            .route(METADATA, metadata.clone())
            .route(&format!("{METADATA}/mcp"), metadata)
            .fallback(http::no_such_path)
            .layer(from_fn_with_state(front, pass))
            .layer(cors::layer(&self.config.allowed_origins))
    }
}
