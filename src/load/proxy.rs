//! A proxy between a replica and Postgres that cuts, delays, and cuts after some bytes.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::watch;

/// Where a server is found.
#[derive(Debug, Clone)]
pub enum Upstream {
    /// A socket in the file system.
    Socket(PathBuf),
    /// Host and port.
    Tcp(String, u16),
}

/// A port of loopback that leads to Postgres.
pub struct Proxy {
    /// Where it listens.
    pub port: u16,
    state: Arc<State>,
}

struct State {
    upstream: Upstream,
    cuts: watch::Sender<u64>,
    delay_ms: AtomicU64,
    /// Bytes from the server that still pass before the connection that carries the next is cut; negative: no limit.
    bytes_left: AtomicI64,
}

impl Proxy {
    /// Starts to listen.
    ///
    /// # Errors
    /// No port is free.
    pub async fn start(upstream: Upstream) -> std::io::Result<Self> {
        let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await?;
        let port = listener.local_addr()?.port();
        let state = Arc::new(State {
            upstream,
            cuts: watch::Sender::new(0),
            delay_ms: AtomicU64::new(0),
            bytes_left: AtomicI64::new(-1),
        });
        let accepting = Arc::clone(&state);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(carry(Arc::clone(&accepting), client));
            }
        });
        Ok(Self { port, state })
    }

    /// Cuts every connection.
    pub fn cut(&self) {
        self.state.cuts.send_modify(|cuts| *cuts += 1);
    }

    /// Holds everything up by so long, until it is set to zero.
    pub fn delay(&self, delay: Duration) {
        let delay = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX);
        self.state.delay_ms.store(delay, Ordering::Relaxed);
    }

    /// Cuts the connection that carries the byte after so many from the server.
    pub fn cut_after(&self, bytes: i64) {
        self.state.bytes_left.store(bytes, Ordering::Relaxed);
    }
}

async fn carry(state: Arc<State>, client: TcpStream) {
    let _ = client.set_nodelay(true);
    let mut cuts = state.cuts.subscribe();
    let (from_client, to_client) = client.into_split();
    match &state.upstream {
        Upstream::Socket(path) => {
            let Ok(server) = UnixStream::connect(path).await else {
                return;
            };
            let (from_server, to_server) = server.into_split();
            tokio::select! {
                () = pipe(&state, from_client, to_server, false) => {}
                () = pipe(&state, from_server, to_client, true) => {}
                _ = cuts.changed() => {}
            }
        }
        Upstream::Tcp(host, port) => {
            let Ok(server) = TcpStream::connect((host.as_str(), *port)).await else {
                return;
            };
            let (from_server, to_server) = server.into_split();
            tokio::select! {
                () = pipe(&state, from_client, to_server, false) => {}
                () = pipe(&state, from_server, to_client, true) => {}
                _ = cuts.changed() => {}
            }
        }
    }
}

async fn pipe(state: &State, mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin, from_server: bool) {
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        let delay = state.delay_ms.load(Ordering::Relaxed);
        if delay > 0 {
            tokio::time::sleep(Duration::from_millis(delay)).await;
        }
        let passing = if from_server { state.let_pass(read) } else { read };
        if to.write_all(buffer.get(..passing).unwrap_or_default()).await.is_err() || passing < read {
            return;
        }
    }
}

impl State {
    fn let_pass(&self, read: usize) -> usize {
        let left = self.bytes_left.load(Ordering::Relaxed);
        let Ok(left) = usize::try_from(left) else { return read };
        let passing = read.min(left);
        let after = if passing < read {
            -1
        } else {
            i64::try_from(left - passing).unwrap_or(-1)
        };
        self.bytes_left.store(after, Ordering::Relaxed);
        passing
    }
}
