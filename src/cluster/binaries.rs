//! Finding the server's programs on the machine, and choosing among several versions.

use std::fs;
use std::path::{Path, PathBuf};

use tokio::process::Command;

use super::account::Account;
use super::folder::{Folder, last_lines};
use super::{ClusterError, Options, fetch};

/// The programs without which a folder is of no use.
const PROGRAMS: [&str; 3] = ["initdb", "pg_ctl", "postgres"];

/// Where to look for a PostgreSQL server.
///
/// Besides these places, a server fetched earlier into the data folder is always found.
#[derive(Debug, Clone, Default)]
pub struct Search {
    /// `None` means the usual places of a machine.
    only: Option<Vec<PathBuf>>,
}

impl Search {
    /// The usual places: `PATH`, what `pg_config --bindir` says, Debian's and Homebrew's folders.
    pub fn machine() -> Self {
        Self::default()
    }

    /// These `bin` folders and no others; with none, the machine seems to have no server.
    pub fn only(places: &[PathBuf]) -> Self {
        Self {
            only: Some(places.to_vec()),
        }
    }

    /// The folders to look in, most preferred first.
    async fn places(&self, account: &Account) -> Vec<PathBuf> {
        if let Some(places) = &self.only {
            return places.clone();
        }
        let path = std::env::var_os("PATH").unwrap_or_default();
        // An entry like `.` would run whatever lies in the present folder.
        let mut places: Vec<PathBuf> = std::env::split_paths(&path)
            .filter(|place| place.is_absolute())
            .collect();
        let asked = account.command(Path::new("pg_config")).arg("--bindir").output().await;
        if let Ok(answer) = asked
            && answer.status.success()
        {
            places.push(String::from_utf8_lossy(&answer.stdout).trim().into());
        }
        places.extend(below("/usr/lib/postgresql".as_ref(), "", "bin"));
        for homebrew in ["/opt/homebrew/opt", "/usr/local/opt"] {
            places.extend(below(homebrew.as_ref(), "postgresql@", "bin"));
        }
        places
    }
}

/// The folders `parent/{prefix}*/{rest}`, in an order that is the same every time.
pub(super) fn below(parent: &Path, prefix: &str, rest: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(parent).into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> = entries
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(prefix))
        .map(|entry| entry.path().join(rest))
        .collect();
    found.sort();
    found
}

/// The version of a server: 15.18 is `(15, 18)`, and a beta of 18 is `(18, 0)`.
type Version = (u32, u32);

/// A folder with the programs of one server that runs on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Binaries {
    bindir: PathBuf,
    version: Version,
}

impl Binaries {
    /// Looks at a folder; `Err` says why it is of no use.
    async fn in_folder(bindir: &Path, account: &Account) -> Result<Self, String> {
        if let Some(missing) = missing_in(bindir) {
            return Err(format!("it has no {missing}"));
        }
        // Links to just these three are common; psql and the rest lie where they lead to.
        let postgres = fs::canonicalize(bindir.join("postgres")).unwrap_or_default();
        let real = postgres.parent().filter(|real| missing_in(real).is_none());
        let bindir = real.unwrap_or(bindir);
        // Run as the server's user, so that a server which that user may not run is no candidate.
        let mut postgres = account.command(&bindir.join("postgres"));
        let output = postgres.arg("--version").output().await;
        let output = output.map_err(|error| format!("its postgres does not run: {error}"))?;
        let said = String::from_utf8_lossy(&output.stdout);
        match version_in(&said) {
            Some(version) if output.status.success() => Ok(Self {
                bindir: bindir.to_owned(),
                version,
            }),
            _ => Err(format!("its postgres does not run: {}", last_lines(&output.stderr, 2))),
        }
    }

    pub fn bindir(&self) -> &Path {
        &self.bindir
    }

    pub fn major(&self) -> u32 {
        self.version.0
    }

    /// A command that runs one of the programs as the server's user.
    pub fn command(&self, program: &str, account: &Account) -> Command {
        account.command(&self.bindir.join(program))
    }
}

fn missing_in(bindir: &Path) -> Option<&'static str> {
    PROGRAMS.into_iter().find(|name| !bindir.join(name).is_file())
}

/// Chooses the programs for a data folder: of its cluster's major version, else the newest.
///
/// With nothing that fits, a server is fetched if that is allowed and the fetched one fits.
pub(super) async fn choose(options: &Options, folder: &Folder, account: &Account) -> Result<Binaries, ClusterError> {
    let cluster = folder.cluster_major()?;
    let fits = |binaries: &Binaries| cluster.is_none_or(|major| major == binaries.major());
    let mut found = Vec::new();
    if let Some(bindir) = &options.bindir {
        let given = Binaries::in_folder(bindir, account).await;
        found.push(given.map_err(|reason| ClusterError::BadBindir {
            bindir: bindir.clone(),
            reason,
        })?);
    } else {
        let mut places = options.search.places(account).await;
        places.extend(fetch::fetched(&folder.server()));
        for place in places {
            // Most folders on PATH have no server; that is no news.
            let here = Binaries::in_folder(&place, account).await;
            found.extend(here.ok().filter(|binaries| !found.contains(binaries)));
        }
    }
    // `max_by_key` takes the last of equals, and the most preferred place comes first.
    let best = found
        .iter()
        .rev()
        .filter(|binaries| fits(binaries))
        .max_by_key(|b| b.version);
    if let Some(best) = best {
        tracing::info!(bindir = %best.bindir.display(), major = best.major(), "server programs");
        return Ok(best.clone());
    }
    let fetching_helps = cluster.is_none_or(|major| major == fetch::MAJOR);
    match cluster {
        _ if fetching_helps && options.allow_fetch && options.bindir.is_none() => {
            let bindir = fetch::fetch(folder).await?;
            let fetched = Binaries::in_folder(&bindir, account).await;
            fetched.map_err(|reason| ClusterError::FetchFailed { reason })
        }
        Some(cluster) => Err(ClusterError::OtherMajor {
            folder: folder.data(),
            cluster,
            found: listed(&found),
        }),
        None => Err(ClusterError::NoServer),
    }
}

/// For a message: `PostgreSQL 17 (/usr/lib/postgresql/17/bin), …`, or that there is none.
fn listed(found: &[Binaries]) -> String {
    if found.is_empty() {
        return "no PostgreSQL server at all".to_owned();
    }
    let names: Vec<String> = found
        .iter()
        .map(|binaries| format!("PostgreSQL {} ({})", binaries.major(), binaries.bindir.display()))
        .collect();
    format!("only {}", names.join(", "))
}

/// Reads `postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)`.
fn version_in(said: &str) -> Option<Version> {
    let number = |text: &str| {
        let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        text[..end].parse::<u32>().ok()
    };
    let version = said.split_once("(PostgreSQL) ")?.1;
    let major = number(version)?;
    let word = version.split_whitespace().next()?;
    let minor = word.split_once('.').and_then(|(_, minor)| number(minor));
    Some((major, minor.unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::version_in;

    #[test]
    fn versions_are_read_from_what_postgres_says() {
        let read = |text: &str| version_in(text);
        assert_eq!(read("postgres (PostgreSQL) 18.6\n"), Some((18, 6)));
        assert_eq!(
            read("postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)\n"),
            Some((15, 18))
        );
        assert_eq!(read("postgres (PostgreSQL) 18beta1\n"), Some((18, 0)));
        assert_eq!(read("postgres (PostgreSQL) 19devel\n"), Some((19, 0)));
        assert_eq!(read("something else 15.1\n"), None);
    }
}
