//! An input file that is read by position and watched for changes.
//!
//! It stands below the formats: they ask it for bytes at an offset and never see a file handle.
//!
//! ```
//! use muso::data::{TensorFile, to_safetensors, OutTensor};
//! let dir = tempfile::tempdir().unwrap();
//! let path = dir.path().join("labels.safetensors");
//! std::fs::write(&path, to_safetensors(&[("labels", OutTensor::Integers(&[1, 2]))])?).unwrap();
//! let file = TensorFile::open(&path)?;
//! assert!(file.unchanged().is_ok());
//! std::fs::remove_file(&path).unwrap();
//! assert!(file.unchanged().unwrap_err().to_string().contains("removed"));
//! # Ok::<(), muso::Error>(())
//! ```

use std::fs::{self, File, Metadata};
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::{Error, Result};

/// Metadata that must stay the same for a file to count as unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    len: u64,
    modified: Option<SystemTime>,
    /// Device and inode numbers, where there are such.
    identity: Option<(u64, u64)>,
}

impl Stamp {
    fn of(found: &Metadata) -> Self {
        Self {
            len: found.len(),
            modified: found.modified().ok(),
            identity: identity(found),
        }
    }

    fn difference(&self, now: &Self) -> Option<String> {
        if self.identity != now.identity {
            Some("it was replaced by another file".to_owned())
        } else if self.len != now.len {
            Some(format!("it went from {} to {} bytes", self.len, now.len))
        } else if self.modified != now.modified {
            Some("it was written to".to_owned())
        } else {
            None
        }
    }
}

/// A whole number of values of every type.
const PIECE: u64 = 1 << 16;

#[derive(Debug)]
pub(in crate::data) struct Source {
    path: PathBuf,
    place: Place,
    len: u64,
}

#[derive(Debug)]
enum Place {
    File {
        file: File,
        stamp: Stamp,
    },
    /// A file's bytes, which nobody else can change.
    Memory(Vec<u8>),
}

impl Source {
    pub(in crate::data) fn open(path: &Path) -> Result<Self> {
        let failed = |e| Error::io(path, "open", e);
        // Asked before opening, since opening a pipe would wait for a writer.
        if !fs::metadata(path).map_err(failed)?.is_file() {
            return Err(Error::format(
                path,
                "not a regular file",
                "a regular file, since it is read by position and more than once",
            ));
        }
        let file = File::open(path).map_err(failed)?;
        let stamp = Stamp::of(&file.metadata().map_err(failed)?);
        Ok(Self {
            path: path.to_owned(),
            len: stamp.len,
            place: Place::File { file, stamp },
        })
    }

    /// Takes the bytes that a file has, or would have; `name` is for messages.
    pub(in crate::data) fn memory(name: &Path, bytes: Vec<u8>) -> Self {
        Self {
            path: name.to_owned(),
            len: bytes.len() as u64,
            place: Place::Memory(bytes),
        }
    }

    pub(in crate::data) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the length of the file in bytes when it was opened.
    pub(in crate::data) fn len(&self) -> u64 {
        self.len
    }

    /// Fills `buffer` from `offset`. The caller has checked the range against [`len`](Self::len), so a short read
    /// means that the file shrank.
    pub(in crate::data) fn read_exact_at(
        &self,
        mut buffer: &mut [u8],
        mut offset: u64,
    ) -> Result<()> {
        while !buffer.is_empty() {
            let read = match &self.place {
                Place::File { file, .. } => read_at(file, buffer, offset),
                Place::Memory(bytes) => {
                    let mut rest = &bytes[bytes.len().min(offset as usize)..];
                    rest.read(buffer)
                }
            };
            match read {
                Ok(0) => {
                    return Err(self.changed(format!(
                        "it had {} bytes and now ends at {offset} or before",
                        self.len
                    )));
                }
                Ok(n) => {
                    buffer = &mut buffer[n..];
                    offset += n as u64;
                }
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(Error::io(&self.path, "read", e)),
            }
        }
        Ok(())
    }

    /// Reads `len` bytes from `begin` and passes them on in pieces of at most [`PIECE`].
    pub(in crate::data) fn pieces(
        &self,
        begin: u64,
        len: u64,
        mut take: impl FnMut(&[u8]),
    ) -> Result<()> {
        let mut bytes = vec![0; len.min(PIECE) as usize];
        for at in (begin..begin + len).step_by(PIECE as usize) {
            let count = (begin + len - at).min(PIECE) as usize;
            self.read_exact_at(&mut bytes[..count], at)?;
            take(&bytes[..count]);
        }
        Ok(())
    }

    pub(in crate::data) fn unchanged(&self) -> Result<()> {
        let Place::File { file, stamp } = &self.place else {
            return Ok(());
        };
        let failed = |e| Error::io(&self.path, "examine", e);
        let opened = file.metadata().map_err(failed)?;
        let at_path = match fs::metadata(&self.path) {
            Ok(found) => found,
            Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                return Err(self.changed("it was removed".to_owned()));
            }
            Err(e) => return Err(failed(e)),
        };
        for now in [opened, at_path] {
            if let Some(how) = stamp.difference(&Stamp::of(&now)) {
                return Err(self.changed(how));
            }
        }
        Ok(())
    }

    fn changed(&self, how: String) -> Error {
        Error::Changed {
            path: self.path.clone(),
            how,
        }
    }
}

#[cfg(unix)]
fn identity(found: &Metadata) -> Option<(u64, u64)> {
    use std::os::unix::fs::MetadataExt;
    Some((found.dev(), found.ino()))
}

#[cfg(not(unix))]
fn identity(_: &Metadata) -> Option<(u64, u64)> {
    None
}

#[cfg(unix)]
fn read_at(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    std::os::unix::fs::FileExt::read_at(file, buffer, offset)
}

#[cfg(windows)]
fn read_at(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    std::os::windows::fs::FileExt::seek_read(file, buffer, offset)
}
