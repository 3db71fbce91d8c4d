//! The file of a report: opened before the run, so that a place where nothing can be written is said before and not after it.

use std::fs::File;
use std::io::{Seek, Write};
use std::path::{Path, PathBuf};

use super::{Judged, report};

/// A report that is to be written.
pub struct Page {
    path: PathBuf,
    file: File,
    /// Whether the file is there for this report alone: then it goes again if none is written.
    made: bool,
}

impl Page {
    /// Opens the file and changes nothing in it.
    ///
    /// # Errors
    /// A sentence: it cannot be written there.
    pub fn open(path: &Path) -> Result<Self, String> {
        let made = !path.exists();
        let file = File::options().write(true).create(true).truncate(false).open(path);
        Ok(Self {
            file: file.map_err(|error| cannot_write(path, &error))?,
            path: path.to_owned(),
            made,
        })
    }

    /// Writes the report.
    ///
    /// # Errors
    /// A sentence: it cannot be written there any more.
    pub fn write(mut self, judged: &Judged) -> Result<(), String> {
        let text = report::html(&judged.records, &judged.summary);
        // A device or a pipe has no length and no place to go back to.
        let _ = self.file.set_len(0).and_then(|()| self.file.rewind());
        let written = self.file.write_all(text.as_bytes());
        written.map_err(|error| cannot_write(&self.path, &error))?;
        self.made = false;
        Ok(())
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        if self.made {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn cannot_write(path: &Path, error: &std::io::Error) -> String {
    format!("the report cannot be written to {}: {error}", path.display())
}
