//! A folder for what is handed to other processes.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::{Error, Result};

/// A new folder that goes when this does.
pub(super) struct Temporary(PathBuf);

impl Temporary {
    /// Makes one in `parent`, or in the system's temporary folder.
    pub(super) fn new(parent: Option<&Path>) -> Result<Self> {
        let parent = parent.map_or_else(std::env::temp_dir, Path::to_owned);
        for attempt in 0.. {
            let path = parent.join(format!("muso-bench-{}-{attempt}", std::process::id()));
            match std::fs::create_dir(&path) {
                Ok(()) => return Ok(Self(path)),
                // Whoever made it may still be using it.
                Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists && attempt < 1_000 => {}
                Err(e) => return Err(Error::io(&path, "create", e)),
            }
        }
        unreachable!("the last attempt returns")
    }

    /// The folder.
    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    /// A place in it.
    pub(super) fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Refuses to begin what the disk has no room for; half as much again is to be left.
    pub(super) fn needs(&self, bytes: u64) -> Result<()> {
        match free_bytes(&self.0) {
            Some(free) if free < bytes + bytes / 2 => Err(Error::format(
                self.0.parent().unwrap_or(&self.0),
                format!("{:.2} GB are free", free as f64 / 1e9),
                format!(
                    "{:.2} GB and half as much to spare; --dir names another place, and fewer --rows need less",
                    bytes as f64 / 1e9
                ),
            )),
            _ => Ok(()),
        }
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        // What cannot be removed is left to whoever clears the temporary folder.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Bytes free where `path` is, from `df`, which every Unix has.
fn free_bytes(path: &Path) -> Option<u64> {
    let output = Command::new("df").arg("-Pk").arg(path).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let free = text.lines().nth(1)?.split_whitespace().nth(3)?;
    Some(free.parse::<u64>().ok()? * 1024)
}
