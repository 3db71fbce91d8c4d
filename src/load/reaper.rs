//! Whoever kills a load test outright, with SIGKILL, gets rid of what it had started too.
//!
//! A child that waits for the end of its input, which comes when the load test ends, however it ends. A shell, so that it
//! outlives whoever kills by this program's name, and in a process group of its own.

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex};

use crate::unpoisoned;

/// Reads `+ GROUP` and `- GROUP` until its input ends, then kills the groups that are left; groups, because nginx's workers
/// outlive their master. `! 1` and `! 0` say whether writes are to be allowed then, which this program does. A Postgres is ended only if its working folder proves that it serves this data folder; that is
/// looked at for some seconds, because a start may be under way.
const SCRIPT: &str = r#"
groups=
stopped=0
while read -r sign group; do
    if [ "$sign" = ! ]; then stopped=$group; continue; fi
    rest=
    for known in $groups; do [ "$known" = "$group" ] || rest="$rest $known"; done
    groups=$rest
    [ "$sign" = - ] || groups="$groups $group"
done
for group in $groups; do kill -KILL "-$group"; done
if [ "$stopped" = 1 ]; then
    for _ in 1 2 3 4 5; do "$2" admin allow-writes && break; sleep 1; done
fi
for _ in 1 2 3 4 5 6 7 8 9 10; do
    if [ -n "$1" ] && read -r pid <"$1/postmaster.pid" && [ "$pid" -gt 1 ]; then
        place=$(readlink "/proc/$pid/cwd" || ps -o command= -p "$pid" | grep -oF -- "$1" | head -n 1)
        [ "$place" != "$1" ] || kill -QUIT "$pid"
    fi
    sleep 0.3
done
"#;

/// The list of what is to be killed if this process is.
#[derive(Clone)]
pub struct Reaper(Arc<Mutex<Listening>>);

struct Listening {
    child: Child,
    input: ChildStdin,
}

impl Reaper {
    /// Starts it. `data` is the data folder of a Postgres that is ended too: absolute, and free of symlinks. `database_url` is
    /// of the database whose writes it may have to allow.
    ///
    /// # Errors
    /// A sentence: there is no shell.
    pub fn start(data: Option<&Path>, database_url: Option<&str>) -> Result<Self, String> {
        let program = std::env::current_exe().map_err(|error| error.to_string())?;
        let mut child = Command::new("/bin/sh")
            .args(["-c", SCRIPT, "ticket-ledger-reaper"])
            .arg(data.unwrap_or(Path::new("")))
            .arg(program)
            .envs(database_url.map(|url| ("DATABASE_URL", url)))
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // A Ctrl-C at the terminal is for the load test, which stops in order.
            .process_group(0)
            .spawn()
            .map_err(|error| format!("/bin/sh could not be started: {error}"))?;
        let input = child.stdin.take().ok_or("sh has no input")?;
        Ok(Self(Arc::new(Mutex::new(Listening { child, input }))))
    }

    /// From now on this process group dies with this process.
    pub fn watch(&self, group: Option<u32>) {
        self.say('+', group);
    }

    /// This process group has ended.
    pub fn forget(&self, group: Option<u32>) {
        self.say('-', group);
    }

    /// Whether writes are stopped, or may be, and so are to be allowed when this process is killed.
    pub fn owes_allowing(&self, owes: bool) {
        self.say('!', Some(u32::from(owes)));
    }

    /// Everything has been stopped in order: there is nothing to be killed any more.
    pub fn dismiss(&self) {
        let mut listening = unpoisoned(self.0.lock());
        let _ = listening.child.kill();
        let _ = listening.child.wait();
    }

    fn say(&self, sign: char, group: Option<u32>) {
        if let Some(group) = group {
            // A line is far shorter than what a pipe holds, so this does not block.
            let _ = writeln!(unpoisoned(self.0.lock()).input, "{sign} {group}");
        }
    }
}
