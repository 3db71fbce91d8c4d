//! The Postgres that all tests of this process share; it is gone, folder and all, when the process ends, however it ends.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};

use sqlx::{AssertSqlSafe, Connection, PgConnection};
use ticket_ledger::cluster::{Options, PrivateCluster};

/// A Postgres of this process's own.
pub struct TestCluster {
    pub cluster: PrivateCluster,
    _reaper: Child,
}

const TEMPLATE: &str = "template_of_tests";

static SHARED: LazyLock<TestCluster> = LazyLock::new(|| start_in_a_thread(Vec::new()));
static NEXT: AtomicU32 = AtomicU32::new(0);

impl TestCluster {
    /// The one that all tests share. Tests that stop or restart their server make their own.
    pub fn shared() -> &'static Self {
        &SHARED
    }

    /// One that a test may stop, restart and kill, with settings of its own; with a `port` it is reached by TCP.
    pub async fn own(settings: &[(&str, &str)]) -> Self {
        let settings = settings
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        tokio::task::spawn_blocking(move || start_in_a_thread(settings))
            .await
            .expect("a cluster starts")
    }

    /// A fresh database with the newest schema; returns its URL.
    pub async fn database(&self) -> String {
        let name = format!("test_{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let mut maintenance = PgConnection::connect(&self.cluster.database_url("postgres"))
            .await
            .expect("connects");
        // Two databases cannot be made from one template at the same moment.
        sqlx::raw_sql("select pg_advisory_lock(1)")
            .execute(&mut maintenance)
            .await
            .expect("locks");
        sqlx::raw_sql(AssertSqlSafe(format!("create database {name} template {TEMPLATE}")))
            .execute(&mut maintenance)
            .await
            .expect("makes a database");
        maintenance.close().await.expect("closes");
        self.cluster.database_url(&name)
    }

    /// The path of the server's socket, for proxies.
    pub fn socket(&self) -> PathBuf {
        let url = self.cluster.database_url("postgres");
        let folder = url.rsplit_once("host=").expect("a socket").1.replace("%2F", "/");
        Path::new(&folder).join(".s.PGSQL.5432")
    }
}

fn start_in_a_thread(settings: Vec<(String, String)>) -> TestCluster {
    std::thread::spawn(|| {
        tokio::runtime::Runtime::new()
            .expect("a runtime")
            .block_on(start(settings))
    })
    .join()
    .expect("a cluster starts")
}

async fn start(settings: Vec<(String, String)>) -> TestCluster {
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let folder = std::env::temp_dir().join(format!("ticket-ledger-test-{}-{number}", std::process::id()));
    let port = settings.iter().find(|(name, _)| name == "port");
    let options = Options {
        port: port.map(|(_, port)| port.parse().expect("a port")),
        settings,
        // Another server than the machine's newest, for instance to try another major version.
        bindir: std::env::var_os("PG_BINDIR").map(PathBuf::from),
        ..Options::default()
    };
    let cluster = PrivateCluster::start(&folder, &options).await.expect("Postgres starts");
    // From now on the reaper answers for server and folder: its input ends when this process does.
    let reaper = Command::new("sh")
        .arg("-c")
        .arg(
            r#"cat >/dev/null
            pid=$(head -n 1 "$1/data/postmaster.pid" 2>/dev/null)
            [ -z "$pid" ] || kill -QUIT "$pid" 2>/dev/null
            for _ in $(seq 100); do [ -n "$pid" ] && kill -0 "$pid" 2>/dev/null || break; sleep 0.1; done
            rm -rf "$1""#,
        )
        .arg("sh")
        .arg(&folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        // A Ctrl-C that ends the tests must not end it too.
        .process_group(0)
        .spawn()
        .expect("sh runs");
    ticket_ledger::postgres::make_database(&cluster.database_url("postgres"), TEMPLATE)
        .await
        .expect("a template");
    ticket_ledger::postgres::migrate(&cluster.database_url(TEMPLATE), super::DEADLINE)
        .await
        .expect("migrates");
    TestCluster {
        cluster,
        _reaper: reaper,
    }
}
