//! Files that appear whole or not at all.
//!
//! An [`OutputFile`] is opened when the run starts, so that a place that cannot be written to is found before hours of
//! work and not after, and is committed when everything that it should hold has been written. Between the two the data
//! lives under a temporary name in the same directory. A run that fails or is killed at any moment leaves the old file
//! or the new one, never a part of either; a temporary file that a killed run left behind is removed by the next one.
//!
//! ```
//! use muso::data::OutputFile;
//! let dir = tempfile::tempdir().unwrap();
//! let path = dir.path().join("head.bin");
//! let mut file = OutputFile::create(&path)?;
//! file.put(b"weights")?;
//! assert!(!path.exists());
//! file.commit()?;
//! assert_eq!(std::fs::read(&path).unwrap(), b"weights");
//! # Ok::<(), muso::Error>(())
//! ```

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::system::is_running;
use crate::{Error, Result};

/// An output that replaces its target in one step when it is committed, and vanishes when it is not.
#[derive(Debug)]
pub struct OutputFile {
    /// Path as the user wrote it; errors name this one.
    path: PathBuf,
    /// Behind all symbolic links; this is replaced.
    target: PathBuf,
    directory: PathBuf,
    temporary: PathBuf,
    writer: BufWriter<File>,
    renamed: bool,
}

impl OutputFile {
    /// Opens a temporary file beside `path`. What is at `path` stays as it is until [`commit`](Self::commit).
    ///
    /// A symbolic link stays a link: the file that it leads to is replaced. An existing file's permission bits carry
    /// over to the new one.
    ///
    /// # Errors
    /// If `path` is a directory, a device or a write-protected file, or if its directory cannot be written to.
    pub fn create(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let not_a_file = |problem: &str| Error::format(path, problem, "the name of a file");
        let last = path.as_os_str().as_encoded_bytes().last();
        if last.is_some_and(|&byte| std::path::is_separator(byte.into())) {
            return Err(not_a_file("the output names a directory"));
        }
        let existing = match fs::metadata(path) {
            Ok(found) if found.is_dir() => {
                return Err(not_a_file("the output is a directory"));
            }
            // Renaming over a device or a pipe would replace it, which nobody means.
            Ok(found) if !found.is_file() => {
                return Err(not_a_file("the output is not a regular file"));
            }
            Ok(found) if found.permissions().readonly() => {
                return Err(Error::io(path, "write", ErrorKind::PermissionDenied.into()));
            }
            Ok(found) => Some(found),
            Err(e) if e.kind() == ErrorKind::NotFound => None,
            Err(e) => return Err(Error::io(path, "write", e)),
        };
        if existing.is_some() {
            // Replacing by rename asks only for rights on the directory; rights on the file are to be respected too.
            let probe = OpenOptions::new().write(true).open(path);
            probe.map_err(|e| Error::io(path, "write", e))?;
        }
        let target = follow_links(path).map_err(|e| Error::io(path, "write", e))?;
        let Some(name) = target.file_name() else {
            return Err(not_a_file("the output has no file name"));
        };
        let directory = match target.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
            _ => PathBuf::from("."),
        };
        remove_stale(&directory, name);
        let (temporary, file) =
            create_temporary(&directory, name).map_err(|e| Error::io(path, "write", e))?;
        let mut output = Self {
            path: path.to_owned(),
            directory,
            temporary,
            writer: BufWriter::with_capacity(1 << 16, file),
            renamed: false,
            target: target.clone(),
        };
        if let Some(found) = existing {
            let permissions = found.permissions();
            let set = output.writer.get_mut().set_permissions(permissions);
            set.map_err(|e| output.fault("write", e))?;
        }
        Ok(output)
    }

    /// Returns the path as it was passed in.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the file that will be replaced: the path with its symbolic links followed.
    ///
    /// Two outputs with the same target would silently become one; [`commit_all`] refuses them.
    pub fn target(&self) -> &Path {
        &self.target
    }

    /// Writes all of `bytes`; like [`Write::write_all`], with an error that names the file.
    pub fn put(&mut self, bytes: &[u8]) -> Result<()> {
        let written = self.writer.write_all(bytes);
        written.map_err(|e| self.fault("write", e))
    }

    /// Makes what was written the contents of the target, in one step and lasting through a power cut.
    pub fn commit(self) -> Result<()> {
        commit_all(vec![self])
    }

    fn sync(&mut self) -> Result<()> {
        let synced = self
            .writer
            .flush()
            .and_then(|()| self.writer.get_ref().sync_all());
        synced.map_err(|e| self.fault("write", e))
    }

    fn rename(&mut self) -> Result<()> {
        fs::rename(&self.temporary, &self.target).map_err(|e| self.fault("replace", e))?;
        self.renamed = true;
        Ok(())
    }

    fn sync_directory(&self) -> Result<()> {
        sync_directory(&self.directory).map_err(|e| self.fault("sync the directory of", e))
    }

    /// Returns whether both replace the same file, however their directories are spelt.
    fn is_same_as(&self, other: &Self) -> bool {
        self.target == other.target
            || (self.target.file_name() == other.target.file_name()
                && matches!(
                    (self.directory.canonicalize(), other.directory.canonicalize()),
                    (Ok(a), Ok(b)) if a == b
                ))
    }

    fn fault(&self, action: &'static str, source: io::Error) -> Error {
        Error::io(&self.path, action, source)
    }
}

impl Write for OutputFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.writer.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.writer.flush()
    }
}

impl Drop for OutputFile {
    fn drop(&mut self) {
        if !self.renamed {
            // Nothing can be done about a failure here; the next run with this target tries again.
            let _ = fs::remove_file(&self.temporary);
        }
    }
}

/// Commits several outputs together: all are synced before the first is renamed, so that a full disk leaves every old
/// file in place.
///
/// # Errors
/// If two outputs have the same target, or if the system refuses; an error before the first rename changes nothing.
pub fn commit_all(mut files: Vec<OutputFile>) -> Result<()> {
    for (i, file) in files.iter().enumerate() {
        if let Some(other) = files[..i].iter().find(|other| other.is_same_as(file)) {
            return Err(Error::format(
                &file.path,
                format!("the same file as the output {}", other.path.display()),
                "a different file for each output",
            ));
        }
    }
    for file in &mut files {
        file.sync()?;
    }
    for file in &mut files {
        file.rename()?;
    }
    for file in &files {
        file.sync_directory()?;
    }
    Ok(())
}

/// Follows symbolic links in the last component of a path; the end need not exist.
fn follow_links(path: &Path) -> io::Result<PathBuf> {
    // As many as Linux itself follows.
    const LONGEST_CHAIN: usize = 40;
    let mut target = path.to_owned();
    for _ in 0..LONGEST_CHAIN {
        match fs::symlink_metadata(&target) {
            Ok(found) if found.file_type().is_symlink() => {
                let leads_to = fs::read_link(&target)?;
                target = match target.parent() {
                    Some(parent) => parent.join(leads_to),
                    None => leads_to,
                };
            }
            Err(e) if e.kind() != ErrorKind::NotFound => return Err(e),
            _ => return Ok(target),
        }
    }
    Err(io::Error::other("too many symbolic links"))
}

/// `.NAME.PID.COUNTER.tmp` up to and without the process id. Long names are cut, since the whole must fit into the 255
/// bytes that file systems allow.
fn temporary_prefix(name: &OsStr) -> OsString {
    const LONGEST: usize = 200;
    let mut prefix = OsString::from(".");
    if name.len() <= LONGEST {
        prefix.push(name);
    } else {
        let text = name.to_string_lossy();
        let whole_characters = |&end: &usize| text.is_char_boundary(end);
        let end = (0..=LONGEST).rev().find(whole_characters).unwrap_or(0);
        prefix.push(&text[..end]);
    }
    prefix.push(".");
    prefix
}

fn create_temporary(directory: &Path, name: &OsStr) -> io::Result<(PathBuf, File)> {
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    loop {
        let counter = COUNTER.fetch_add(1, Ordering::Relaxed);
        let mut file_name = temporary_prefix(name);
        file_name.push(format!("{}.{counter}.tmp", std::process::id()));
        let path = directory.join(file_name);
        match OpenOptions::new().write(true).create_new(true).open(&path) {
            Ok(file) => {
                // Tells other process id namespaces that this file is in use. Where a file system has no locks, the
                // process id alone must do.
                let _ = file.try_lock();
                return Ok((path, file));
            }
            // Left by an earlier process with this id, or made by one with the same id in another container.
            Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
            Err(e) => return Err(e),
        }
    }
}

/// Removes temporary files of the same target whose process is gone. Best effort: they are in nobody's way.
fn remove_stale(directory: &Path, name: &OsStr) {
    let prefix = temporary_prefix(name);
    let Ok(entries) = fs::read_dir(directory) else {
        return;
    };
    for entry in entries.flatten() {
        let Some(process) = process_of(&prefix, &entry.file_name()) else {
            continue;
        };
        // Where nobody says which processes exist, the file stays.
        if is_running(process) != Some(false) {
            continue;
        }
        let path = entry.path();
        if !entry.file_type().is_ok_and(|kind| kind.is_file()) {
            continue;
        }
        if let Ok(file) = File::open(&path)
            && !matches!(file.try_lock(), Err(fs::TryLockError::WouldBlock))
        {
            let _ = fs::remove_file(&path);
        }
    }
}

/// The process id in the name of a temporary file with this prefix.
fn process_of(prefix: &OsStr, file_name: &OsStr) -> Option<u32> {
    let rest = file_name
        .as_encoded_bytes()
        .strip_prefix(prefix.as_encoded_bytes())?
        .strip_suffix(b".tmp")?;
    let rest = std::str::from_utf8(rest).ok()?;
    let (process, counter) = rest.split_once('.').unwrap_or((rest, "0"));
    counter.parse::<u64>().ok()?;
    process.parse().ok()
}

#[cfg(unix)]
fn sync_directory(directory: &Path) -> io::Result<()> {
    match File::open(directory)?.sync_all() {
        // Some network file systems cannot sync a directory; theirs need no help of ours.
        Err(e) if matches!(e.kind(), ErrorKind::InvalidInput | ErrorKind::Unsupported) => Ok(()),
        result => result,
    }
}

#[cfg(not(unix))]
fn sync_directory(_: &Path) -> io::Result<()> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_temporaries_are_recognised() {
        let prefix = temporary_prefix(OsStr::new("a.b"));
        let process = |name: &str| process_of(&prefix, OsStr::new(name));
        assert_eq!(process(".a.b.12.3.tmp"), Some(12));
        assert_eq!(process(".a.b.12.tmp"), Some(12));
        for other in [
            "a.b",
            ".a.b.tmp",
            ".a.b.x.3.tmp",
            ".a.b.12.x.tmp",
            ".a.c.12.3.tmp",
            ".a.b.12.3",
        ] {
            assert_eq!(process(other), None, "{other}");
        }
    }

    #[test]
    fn everything_is_in_the_file_before_it_is_renamed() {
        let dir = tempfile::tempdir().unwrap();
        let mut output = OutputFile::create(dir.path().join("file")).unwrap();
        output.put(b"buffered").unwrap();
        output.sync().unwrap();
        assert_eq!(fs::read(&output.temporary).unwrap(), b"buffered");
    }

    #[test]
    fn long_names_are_cut_at_a_character() {
        let prefix = temporary_prefix(OsStr::new(&"é".repeat(120)));
        assert_eq!(prefix.to_str().unwrap(), format!(".{}.", "é".repeat(100)));
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("n".repeat(255));
        OutputFile::create(&path).unwrap().commit().unwrap();
        assert!(path.exists());
    }
}
