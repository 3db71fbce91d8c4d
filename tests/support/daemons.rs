//! Other people's programs that stand between clients, replicas and Postgres.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use tokio::net::TcpStream;
use tokio::process::{Child, Command};

use super::cluster::TestCluster;
use super::eventually;
use super::proxy::{Proxy, url_at};
use super::replica::Replica;

/// A running program with a folder of its own; both are gone when it is dropped.
struct Daemon {
    _child: Child,
    folder: PathBuf,
}

impl Daemon {
    /// Starts `name`, which listens on `port`, with `settings` in a file that `arguments` name as `settings`.
    async fn start(name: &str, port: u16, settings: &str, arguments: &[&str]) -> Self {
        let folder = std::env::temp_dir().join(format!("ticket-ledger-{name}-{}-{port}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        std::fs::write(folder.join("settings"), settings).expect("settings");
        let mut command = Command::new(program(name));
        command
            .args(arguments)
            .current_dir(&folder)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true);
        if nix::unistd::getuid().is_root() {
            // Such programs refuse to run as root, or change their user by themselves.
            let nobody = nix::unistd::User::from_name("nobody")
                .expect("users")
                .expect("a user named nobody");
            command.uid(nobody.uid.as_raw()).gid(nobody.gid.as_raw());
            std::fs::set_permissions(&folder, PermissionsExt::from_mode(0o777)).expect("a folder for all");
        }
        let child = command.spawn().expect("it starts");
        eventually(&format!("{name} listens"), || async {
            TcpStream::connect(("127.0.0.1", port)).await.ok().map(drop)
        })
        .await;
        Self { _child: child, folder }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// PgBouncer in transaction mode: what makes LISTEN silently deaf.
pub struct PgBouncer {
    _daemon: Daemon,
    /// PgBouncer runs as another user than Postgres, whose socket is private.
    _way: Proxy,
    port: u16,
}

impl PgBouncer {
    pub async fn before(cluster: &TestCluster) -> Self {
        let way = Proxy::before(cluster).await;
        let port = free_port();
        let settings = format!(
            "[databases]\n* = host=127.0.0.1 port={} user=postgres\n\
             [pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\nauth_type = any\n\
             pool_mode = transaction\nignore_startup_parameters = extra_float_digits\n",
            way.port
        );
        Self {
            _daemon: Daemon::start("pgbouncer", port, &settings, &["settings"]).await,
            _way: way,
            port,
        }
    }

    /// The URL of a database behind it, made from its URL on the socket.
    pub fn url(&self, direct: &str) -> String {
        url_at(self.port, direct)
    }
}

/// nginx in front of replicas, repeating a POST on another one after a lost connection, a time-out and a 502, and nothing
/// else.
pub struct Nginx {
    _daemon: Daemon,
    /// Where clients call.
    pub address: String,
}

impl Nginx {
    pub async fn before(replicas: &[&Replica]) -> Self {
        let port = free_port();
        let servers: String = replicas
            .iter()
            .map(|replica| format!("server {} max_fails=0;", replica.address))
            .collect();
        let settings = format!(
            "daemon off; master_process off; pid nginx.pid; error_log stderr;
             events {{ }}
             http {{
                 access_log off;
                 client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi; uwsgi_temp_path uwsgi;
                 scgi_temp_path scgi;
                 client_body_buffer_size 1m;
                 upstream replicas {{ {servers} }}
                 server {{
                     listen 127.0.0.1:{port};
                     location / {{
                         proxy_pass http://replicas;
                         proxy_set_header Host localhost;
                         proxy_read_timeout 25s;
                         proxy_next_upstream error timeout http_502 non_idempotent;
                         proxy_next_upstream_tries 2;
                     }}
                 }}
             }}"
        );
        let arguments = ["-e", "stderr", "-p", ".", "-c", "settings"];
        Self {
            _daemon: Daemon::start("nginx", port, &settings, &arguments).await,
            address: format!("127.0.0.1:{port}"),
        }
    }
}

fn program(name: &str) -> PathBuf {
    // Debian puts them where only root's PATH leads.
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin", "/usr/local/bin", "/opt/homebrew/bin"].map(|folder| Path::new(folder).to_owned()))
        .map(|folder| folder.join(name))
        .find(|program| program.exists())
        .unwrap_or_else(|| {
            panic!(
                "{name} is not installed. This test needs it: apt-get install {name} (Debian) or brew install {name}."
            )
        })
}

fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0")
        .and_then(|listener| listener.local_addr())
        .expect("a free port")
        .port()
}
