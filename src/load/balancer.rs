//! A real balancer in front of the replicas, which repeats POSTs on another replica.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use clap::ValueEnum;
use tokio::process::{Child, Command};

use super::fleet::free_port;
use super::reaper::Reaper;

/// Which balancer stands before the replicas.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// nginx if it is there, else HAProxy.
    Auto,
    Nginx,
    Haproxy,
    /// None: callers choose a replica themselves, and another one when they repeat.
    None,
}

/// The largest body that goes through: a replica's MAX_BODY_BYTES.
const LARGEST_BODY: usize = 1_048_576;
/// HAProxy sends again only what its buffer holds, headers and its own bookkeeping included.
const ROOM_FOR_HEADERS: usize = 131_072;

impl Kind {
    /// The balancer's name and program.
    ///
    /// # Errors
    /// It is not installed.
    pub fn look_for(self) -> Result<Option<(&'static str, PathBuf)>, String> {
        let nginx = || find("nginx").map(|program| ("nginx", program));
        let haproxy = || find("haproxy").map(|program| ("HAProxy", program));
        let (missing, package, found) = match self {
            Self::None => return Ok(None),
            Self::Nginx => ("nginx is not", "nginx", nginx()),
            Self::Haproxy => ("HAProxy is not", "haproxy", haproxy()),
            Self::Auto => ("neither nginx nor HAProxy is", "nginx", nginx().or_else(haproxy)),
        };
        found.map(Some).ok_or_else(|| {
            format!(
                "{missing} installed: install it (Debian: apt-get install {package}; macOS: brew install {package}), choose another one with \
                 --balancer, or let callers choose a replica themselves with --balancer none."
            )
        })
    }
}

/// A running balancer.
pub struct Balancer {
    child: Child,
    reaper: Reaper,
    /// Its base URL.
    pub base: String,
    /// Its name and version.
    pub about: String,
}

/// The replicas that one call may reach: the first and one other.
pub const TRIES: u64 = 2;

impl Balancer {
    /// Starts the balancer that was asked for before these ports.
    ///
    /// # Errors
    /// It is not installed, or does not start.
    pub async fn start(
        kind: Kind,
        folder: &Path,
        ports: &[u16],
        wait: Duration,
        reaper: &Reaper,
    ) -> Result<Option<Self>, String> {
        let Some((name, program)) = kind.look_for()? else {
            return Ok(None);
        };
        let port = free_port().map_err(|error| format!("no port is free: {error}"))?;
        let timeout = wait + Duration::from_secs(5);
        let file = folder.join("balancer.conf");
        let config = match name {
            "nginx" => nginx(folder, port, ports, timeout),
            _ => haproxy(port, ports, timeout),
        };
        fs::write(&file, config).map_err(|error| format!("{} cannot be written: {error}", file.display()))?;
        let log = fs::File::create(folder.join("balancer.log")).map_err(|error| error.to_string())?;
        let mut command = Command::new(&program);
        match name {
            "nginx" => command
                .arg("-c")
                .arg(&file)
                .arg("-p")
                .arg(folder)
                .arg("-e")
                .arg("stderr"),
            _ => command.arg("-db").arg("-f").arg(&file),
        };
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| format!("{name} could not be started: {error}"))?;
        reaper.watch(child.id());
        let mut balancer = Self {
            child,
            reaper: reaper.clone(),
            base: format!("http://127.0.0.1:{port}"),
            about: about(name, &program).await,
        };
        balancer.until_listening(port, folder).await?;
        Ok(Some(balancer))
    }

    async fn until_listening(&mut self, port: u16, folder: &Path) -> Result<(), String> {
        for _ in 0..200 {
            if tokio::net::TcpStream::connect(("127.0.0.1", port)).await.is_ok() {
                return Ok(());
            }
            if let Ok(Some(status)) = self.child.try_wait() {
                return Err(format!(
                    "{} ended ({status}); see {}",
                    self.about,
                    folder.join("balancer.log").display()
                ));
            }
            tokio::time::sleep(Duration::from_millis(25)).await;
        }
        Err(format!(
            "{} does not listen; see {}",
            self.about,
            folder.join("balancer.log").display()
        ))
    }

    /// Stops it.
    pub async fn stop(mut self) {
        let group = self.child.id();
        if let Some(pid) = group {
            // nginx's workers end with their master only when it is asked.
            let pid = nix::unistd::Pid::from_raw(pid.cast_signed());
            let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM);
        }
        if tokio::time::timeout(Duration::from_secs(5), self.child.wait())
            .await
            .is_err()
        {
            let _ = self.child.kill().await;
        }
        self.reaper.forget(group);
    }
}

/// The balancer's name and version, as it tells them.
async fn about(name: &str, program: &Path) -> String {
    let told = Command::new(program).arg("-v").stdin(Stdio::null()).output().await;
    let told = told.map(|told| [told.stdout, told.stderr].concat()).unwrap_or_default();
    let told = String::from_utf8_lossy(&told);
    let is_version = |word: &&str| word.starts_with(|first: char| first.is_ascii_digit()) && word.contains('.');
    match told.split([' ', '/', '\n']).find(is_version) {
        Some(version) => format!("{name} {version}"),
        None => name.to_owned(),
    }
}

fn find(program: &str) -> Option<PathBuf> {
    // Balancers lie in sbin, which is beside the bin that most users have in their PATH.
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .flat_map(|folder| [folder.join(program), folder.join("../sbin").join(program)])
        .find(|candidate| candidate.is_file())
}

fn nginx(folder: &Path, port: u16, ports: &[u16], timeout: Duration) -> String {
    let servers: String = ports
        .iter()
        .map(|port| format!("        server 127.0.0.1:{port} max_fails=0;\n"))
        .collect();
    let folder = folder.display();
    let user = if nix::unistd::getuid().is_root() {
        "user root;\n"
    } else {
        ""
    };
    let timeout = timeout.as_secs();
    format!(
        "{user}daemon off;
worker_processes 1;
pid {folder}/nginx.pid;
events {{ worker_connections 4096; }}
http {{
    access_log off;
    client_body_temp_path {folder}/nginx-body;
    proxy_temp_path {folder}/nginx-proxy;
    fastcgi_temp_path {folder}/nginx-unused;
    uwsgi_temp_path {folder}/nginx-unused;
    scgi_temp_path {folder}/nginx-unused;
    client_max_body_size {LARGEST_BODY};
    client_body_buffer_size {LARGEST_BODY};
    upstream replicas {{
{servers}        keepalive 32;
    }}
    server {{
        listen 127.0.0.1:{port} backlog=4096;
        location / {{
            proxy_pass http://replicas;
            proxy_http_version 1.1;
            proxy_set_header Connection \"\";
            proxy_set_header Host $http_host;
            proxy_connect_timeout 2s;
            proxy_read_timeout {timeout}s;
            proxy_next_upstream error timeout http_502 non_idempotent;
            proxy_next_upstream_tries {TRIES};
        }}
    }}
}}
"
    )
}

fn haproxy(port: u16, ports: &[u16], timeout: Duration) -> String {
    let servers: String = ports
        .iter()
        .enumerate()
        .map(|(place, port)| format!("    server replica{} 127.0.0.1:{port}\n", place + 1))
        .collect();
    let timeout = timeout.as_secs();
    let buffer = LARGEST_BODY + ROOM_FOR_HEADERS;
    let again = TRIES - 1;
    // Without health checks every server is always tried, as with nginx's max_fails=0.
    format!(
        "global
    maxconn 8192
    tune.bufsize {buffer}
defaults
    mode http
    timeout connect 2s
    timeout client {timeout}s
    timeout server {timeout}s
    retries {again}
    option redispatch 1
    retry-on conn-failure empty-response response-timeout 502
frontend calls
    bind 127.0.0.1:{port} backlog 4096
    option http-buffer-request
    default_backend replicas
backend replicas
    balance roundrobin
{servers}"
    )
}
