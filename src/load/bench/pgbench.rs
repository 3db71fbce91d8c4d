//! What the same Postgres does by itself: pgbench and a table with a row like a ticket's.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;

/// A ticket's row with its primary key, and nothing of the ledger. The second guard, a ticket's order and foreign keys are
/// the service's own business.
pub const TABLE: &str = "
    create table bench_plain (
        ticket_id     text        collate \"C\" primary key,
        title         text        not null,
        body          text        not null,
        ticket_status text        collate \"C\" not null,
        created_at    timestamptz not null,
        principal     text        collate \"C\" not null,
        request_id    text        collate \"C\" not null
    )";

const SCRIPT: &str = "\
insert into bench_plain values (gen_random_uuid()::text, 'Ticket of a client that is pgbench itself', \
'The printer on the second floor has caught fire again, and the one beside it does not look well either. \
Somebody has put a blanket over both of them; please send whoever mended the first one in spring.', \
'open', clock_timestamp(), 'anonymous', gen_random_uuid()::text);
";

/// pgbench, if it is there.
pub struct Pgbench {
    program: PathBuf,
    script: PathBuf,
    url: String,
}

impl Pgbench {
    /// Finds it beside the server's programs, or on the PATH.
    ///
    /// # Errors
    /// A sentence: there is none.
    pub fn find(bindir: &Path, folder: &Path, url: &str) -> Result<Self, String> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let program = std::iter::once(bindir.to_owned())
            .chain(std::env::split_paths(&path))
            .map(|folder| folder.join("pgbench"))
            .find(|program| program.is_file())
            .ok_or_else(|| format!("there is no pgbench in {} and none on the PATH", bindir.display()))?;
        let script = folder.join("insert.sql");
        std::fs::write(&script, SCRIPT).map_err(|error| format!("{} cannot be written: {error}", script.display()))?;
        Ok(Self {
            program,
            script,
            url: url.to_owned(),
        })
    }

    /// Inserts on `connections` connections for `span`; rows a second, without the time that connecting took, and rows.
    ///
    /// # Errors
    /// A sentence.
    pub async fn insert_for(&self, connections: usize, span: Duration) -> Result<(f64, f64), String> {
        // Its clock runs while it connects.
        let seconds = span.as_secs().max(1) + connections as u64 / 100;
        self.insert(connections, &format!("--time={seconds}")).await
    }

    /// Connects and inserts a row on each of `connections` connections: what connecting costs.
    ///
    /// # Errors
    /// A sentence.
    pub async fn insert_once(&self, connections: usize) -> Result<(f64, f64), String> {
        self.insert(connections, "--transactions=1").await
    }

    async fn insert(&self, connections: usize, until: &str) -> Result<(f64, f64), String> {
        let output = Command::new(&self.program)
            .args(["--no-vacuum", "--protocol=prepared", "--jobs=1"])
            .arg(format!("--client={connections}"))
            .arg(until)
            .arg("--file")
            .arg(&self.script)
            .arg(&self.url)
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output()
            .await
            .map_err(|error| format!("pgbench does not run: {error}"))?;
        let said = String::from_utf8_lossy(&output.stdout);
        let figure = |before: &str| {
            said.lines()
                .filter_map(|line| line.strip_prefix(before))
                .find_map(|line| line.split([' ', '/']).next()?.parse::<f64>().ok())
        };
        figure("tps = ")
            .zip(figure("number of transactions actually processed: "))
            .ok_or_else(|| {
                let complaint = String::from_utf8_lossy(&output.stderr);
                format!("it gave no figure {}", complaint.lines().last().unwrap_or_default())
            })
    }
}
