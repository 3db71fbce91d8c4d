//! The user as whom the server runs, since PostgreSQL refuses to run as root.

use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, chown};
use std::path::Path;
use std::process::Stdio;
use std::{fs, io};

use nix::unistd::{Uid, User, getegid, geteuid};
use tokio::process::Command;

use super::ClusterError;

/// The user as whom every server program runs.
#[derive(Debug)]
pub(super) struct Account {
    name: String,
    uid: u32,
    gid: u32,
    /// Whether this process is root and so has to become that user.
    switch: bool,
}

impl Account {
    /// Oneself; or, since Postgres refuses root, the owner of the data, `postgres` or `nobody`.
    pub fn for_data(data: &Path) -> Result<Self, ClusterError> {
        let switch = geteuid().is_root();
        let owner = fs::metadata(data).map(|data| (data.uid(), data.gid()));
        let (uid, gid) = match owner {
            _ if !switch => (geteuid().as_raw(), getegid().as_raw()),
            Ok(owner) if owner.0 != 0 => owner,
            _ => ["postgres", "nobody"]
                .iter()
                .find_map(|name| User::from_name(name).ok().flatten())
                .map(|user| (user.uid.as_raw(), user.gid.as_raw()))
                .ok_or(ClusterError::NoAccount)?,
        };
        let name = match User::from_uid(Uid::from_raw(uid)) {
            Ok(Some(user)) => format!("user {}", user.name),
            _ => format!("user {uid}"),
        };
        Ok(Self { name, uid, gid, switch })
    }

    /// A command that runs as this user, out of reach of the terminal and of `PG…` variables.
    pub fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        // Its own process group: a Ctrl-C meant for us must not cut a start or a stop short.
        command.process_group(0).stdin(Stdio::null());
        // Server programs complain about a present folder that they may not enter.
        command.current_dir("/").env("LC_ALL", "C");
        // PGPORT, PGSERVICE and the like are for the person's own servers.
        for (name, _) in std::env::vars_os() {
            if name.as_bytes().starts_with(b"PG") {
                command.env_remove(name);
            }
        }
        if self.switch {
            command.uid(self.uid).gid(self.gid);
        }
        command
    }

    /// Makes sure that this user may enter the folder, or says which part bars the way.
    pub async fn check_reach(&self, folder: &Path) -> Result<(), ClusterError> {
        if !self.switch || self.may_enter(folder).await {
            return Ok(());
        }
        let mut blocked = folder;
        for ancestor in folder.ancestors().skip(1) {
            if self.may_enter(ancestor).await {
                break;
            }
            blocked = ancestor;
        }
        Err(ClusterError::NotReachable {
            account: self.name.clone(),
            blocked: blocked.to_owned(),
        })
    }

    /// Asks the kernel by entering, since rights are more than mode bits.
    async fn may_enter(&self, folder: &Path) -> bool {
        let mut command = self.command(Path::new("/bin/sh"));
        command.args(["-c", ":"]).current_dir(folder);
        command.status().await.is_ok()
    }

    /// Makes a folder that only this user (and root) may enter; one that is there is kept.
    ///
    /// In a shared temp folder somebody else may have been first: then this is an error.
    pub fn make_private_folder(&self, folder: &Path) -> Result<(), ClusterError> {
        let made = fs::DirBuilder::new().mode(0o700).create(folder);
        match made {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(ClusterError::io("make", folder)(error));
            }
            _ => {}
        }
        let found = fs::symlink_metadata(folder).map_err(ClusterError::io("read", folder))?;
        let ours = [self.uid, geteuid().as_raw()].contains(&found.uid());
        if !found.is_dir() || !ours {
            return Err(ClusterError::ForeignFolder {
                folder: folder.to_owned(),
                account: self.name.clone(),
            });
        }
        fs::set_permissions(folder, fs::Permissions::from_mode(0o700))
            .and_then(|()| self.give(folder))
            .map_err(ClusterError::io("set the rights of", folder))
    }

    /// Makes this user the owner of the path.
    pub fn give(&self, path: &Path) -> io::Result<()> {
        if self.switch {
            chown(path, Some(self.uid), Some(self.gid))?;
        }
        Ok(())
    }
}
