//! A proxy in front of Postgres that cuts, delays and swallows.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::watch;

use super::cluster::TestCluster;

/// A TCP address that leads to a cluster's socket, as long as it is let through.
pub struct Proxy {
    pub port: u16,
    shared: Arc<Shared>,
}

struct Shared {
    upstream: PathBuf,
    /// New connections are closed at once, and the running ones were.
    down: AtomicBool,
    /// Raised with every cut; connections end when it changes.
    cuts: watch::Sender<u64>,
    /// Bytes from the server that still pass before the connection that carries them is cut; negative: no limit.
    replies_left: AtomicI64,
    /// Nothing passes in either direction, and nothing is closed.
    silent: watch::Sender<bool>,
    /// The connection on which the server says this next is cut before it gets through.
    unheard: Mutex<Option<&'static [u8]>>,
}

impl Proxy {
    pub async fn before(cluster: &TestCluster) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let shared = Arc::new(Shared {
            upstream: cluster.socket(),
            down: AtomicBool::new(false),
            cuts: watch::Sender::new(0),
            replies_left: AtomicI64::new(-1),
            silent: watch::Sender::new(false),
            unheard: Mutex::new(None),
        });
        let accepting = Arc::clone(&shared);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(carry(Arc::clone(&accepting), client));
            }
        });
        Self { port, shared }
    }

    /// The URL of a database behind this proxy, made from its URL on the socket.
    pub fn url(&self, direct: &str) -> String {
        url_at(self.port, direct)
    }

    /// Cuts every running connection.
    pub fn cut(&self) {
        self.shared.cuts.send_modify(|cuts| *cuts += 1);
    }

    /// Cuts every connection and takes no new ones, until [`Proxy::up`].
    pub fn down(&self) {
        self.shared.down.store(true, Ordering::SeqCst);
        self.cut();
    }

    pub fn up(&self) {
        self.shared.down.store(false, Ordering::SeqCst);
    }

    /// From now on nothing passes, and nobody is told.
    pub fn silence(&self, silent: bool) {
        self.shared.silent.send_replace(silent);
    }

    /// Cuts the connection on which the server says this next, before it gets through. A statement's last word, such as
    /// `SELECT 1`, comes when it is committed.
    pub fn cut_at_reply(&self, words: &'static [u8]) {
        *self.shared.unheard.lock().expect("the words") = Some(words);
    }

    /// Whether a connection was cut since [`Proxy::cut_at_reply`].
    pub fn has_cut_at_reply(&self) -> bool {
        self.shared.unheard.lock().expect("the words").is_none()
    }

    /// Lets so many more bytes from the server pass, over all connections, then cuts the one that carries the next.
    pub fn cut_after_reply_bytes(&self, bytes: i64) {
        self.shared.replies_left.store(bytes, Ordering::SeqCst);
    }
}

/// The URL of a database at a port of this machine, made from its URL on the socket.
pub fn url_at(port: u16, direct: &str) -> String {
    let database = direct
        .split('?')
        .next()
        .and_then(|url| url.rsplit('/').next())
        .expect("a database");
    format!("postgres://postgres@127.0.0.1:{port}/{database}?sslmode=disable")
}

impl Shared {
    fn is_to_be_unheard(&self, reply: &[u8]) -> bool {
        let mut unheard = self.unheard.lock().expect("the words");
        let said = unheard.is_some_and(|words| reply.windows(words.len()).any(|window| window == words));
        if said {
            *unheard = None;
        }
        said
    }
}

async fn carry(shared: Arc<Shared>, client: TcpStream) {
    if shared.down.load(Ordering::SeqCst) {
        return;
    }
    let mut cuts = shared.cuts.subscribe();
    let Ok(server) = UnixStream::connect(&shared.upstream).await else {
        return;
    };
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    tokio::select! {
        () = pipe(&shared, from_client, to_server, false) => {}
        () = pipe(&shared, from_server, to_client, true) => {}
        _ = cuts.changed() => {}
    }
}

async fn pipe(shared: &Shared, mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin, replies: bool) {
    let mut silent = shared.silent.subscribe();
    let mut buffer = vec![0; 16 * 1024];
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        if silent.wait_for(|silent| !silent).await.is_err() {
            return;
        }
        let mut passing = read;
        if replies && shared.is_to_be_unheard(&buffer[..read]) {
            return;
        }
        if replies {
            let left = shared.replies_left.load(Ordering::SeqCst);
            if left >= 0 {
                passing = read.min(usize::try_from(left).unwrap_or(0));
                let after = if passing < read { -1 } else { left - passing as i64 };
                shared.replies_left.store(after, Ordering::SeqCst);
            }
        }
        if to.write_all(&buffer[..passing]).await.is_err() || passing < read {
            return;
        }
    }
}
