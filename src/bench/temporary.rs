//! A temporary folder for what is handed to other processes, and whether its disk has room.

use std::path::{Path, PathBuf};

use muso::{Error, Result, system};
use tempfile::TempDir;

/// A new folder that is removed when this is dropped.
pub(super) struct Temporary(TempDir);

impl Temporary {
    /// Makes one in `parent`, or in the system's temporary folder.
    pub(super) fn new(parent: Option<&Path>) -> Result<Self> {
        let parent = parent.map_or_else(std::env::temp_dir, Path::to_owned);
        let made = tempfile::Builder::new()
            .prefix("muso-bench-")
            .tempdir_in(&parent);
        made.map(Self).map_err(|e| Error::io(&parent, "write", e))
    }

    /// Returns the path of the folder.
    pub(super) fn path(&self) -> &Path {
        self.0.path()
    }

    /// Returns the path of a file in it.
    pub(super) fn join(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    /// Refuses to begin what the disk has no room for; half as much again is to be left.
    pub(super) fn needs(&self, bytes: u64) -> Result<()> {
        match system::free_bytes(self.path()) {
            Some(free) if free < bytes + bytes / 2 => Err(Error::format(
                self.path().parent().unwrap_or(self.path()),
                format!("{:.2} GB are free", free as f64 / 1e9),
                format!(
                    "{:.2} GB and half as much to spare; `.dir` names another place, and fewer `.rows` need less",
                    bytes as f64 / 1e9
                ),
            )),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_disk_has_no_room_for_is_refused() {
        let folder = Temporary::new(None).unwrap();
        assert!(folder.needs(0).is_ok());
        if let Some(free) = system::free_bytes(folder.path()) {
            // Others may write meanwhile, but not half of what is free.
            assert!(folder.needs(free / 4).is_ok());
            let said = folder.needs(free).unwrap_err().to_string();
            assert!(said.contains("`.dir`") && said.contains("GB"), "{said}");
        }
    }

    #[test]
    fn the_folder_goes_with_its_owner() {
        let folder = Temporary::new(None).unwrap();
        let path = folder.path().to_owned();
        std::fs::write(folder.join("file"), "x").unwrap();
        drop(folder);
        assert!(!path.exists());
        assert!(Temporary::new(Some(&path)).is_err());
    }
}
