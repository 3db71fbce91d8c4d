//! PgBouncer in transaction mode in front of the tests' Postgres: what makes LISTEN silently deaf.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Stdio;

use tokio::net::TcpStream;
use tokio::process::{Child, Command};

use super::cluster::TestCluster;
use super::eventually;
use super::proxy::Proxy;

/// A running PgBouncer; it ends when dropped, and its folder goes with it.
pub struct PgBouncer {
    _child: Child,
    /// PgBouncer runs as another user than Postgres, whose socket is private.
    _way: Proxy,
    port: u16,
    folder: PathBuf,
}

impl PgBouncer {
    pub async fn before(cluster: &TestCluster) -> Self {
        let way = Proxy::before(cluster).await;
        let port = free_port();
        let folder = std::env::temp_dir().join(format!("ticket-ledger-pgbouncer-{}-{port}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        std::fs::set_permissions(&folder, PermissionsExt::from_mode(0o755)).expect("a folder for all");
        let settings = folder.join("pgbouncer.ini");
        let text = format!(
            "[databases]\n* = host=127.0.0.1 port={} user=postgres\n\
             [pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\nauth_type = any\n\
             pool_mode = transaction\nignore_startup_parameters = extra_float_digits\n",
            way.port
        );
        std::fs::write(&settings, text).expect("settings");
        let mut command = Command::new(program());
        command
            .arg(&settings)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true);
        if nix::unistd::getuid().is_root() {
            // It refuses to run as root.
            let nobody = nix::unistd::User::from_name("nobody")
                .expect("users")
                .expect("a user named nobody");
            command.uid(nobody.uid.as_raw()).gid(nobody.gid.as_raw());
        }
        let child = command.spawn().expect("PgBouncer starts");
        eventually("PgBouncer listens", || async {
            TcpStream::connect(("127.0.0.1", port)).await.ok().map(drop)
        })
        .await;
        Self {
            _child: child,
            _way: way,
            port,
            folder,
        }
    }

    /// The URL of a database behind it, made from its URL on the socket.
    pub fn url(&self, direct: &str) -> String {
        super::proxy::url_at(self.port, direct)
    }
}

impl Drop for PgBouncer {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn program() -> PathBuf {
    // Debian puts it where only root's PATH leads.
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/usr/local/bin".into(), "/opt/homebrew/bin".into()])
        .map(|folder| folder.join("pgbouncer"))
        .find(|program| program.exists())
        .expect("PgBouncer is not installed. This test needs it: apt-get install pgbouncer (Debian) or brew install pgbouncer.")
}

fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0")
        .and_then(|listener| listener.local_addr())
        .expect("a free port")
        .port()
}
