//! Files that are read whole: configurations, labels, lists of names, images. Each kind has a length that it never
//! exceeds, and no more than that is ever read, even of a pipe or a device that has no end.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use super::MIB;
#[cfg(feature = "nn")]
use super::shown;
use crate::{Error, Result};

/// Reads a file of at most `most` bytes; a growing one costs twice what it has.
pub(crate) fn read_bytes(path: &Path, most: u64) -> Result<Vec<u8>> {
    let file = File::open(path).map_err(|e| Error::io(path, "open", e))?;
    let too_long = || {
        let most = most / MIB;
        Error::format(
            path,
            format!("more than {most} MiB"),
            format!("at most {most} MiB"),
        )
    };
    let known = file.metadata().map_or(0, |found| found.len());
    if known > most {
        return Err(too_long());
    }
    let mut bytes = Vec::new();
    bytes
        .try_reserve_exact(known as usize + 1)
        .map_err(|e| Error::io(path, "read", e.into()))?;
    file.take(most + 1)
        .read_to_end(&mut bytes)
        .map_err(|e| Error::io(path, "read", e))?;
    if bytes.len() as u64 > most {
        return Err(too_long());
    }
    Ok(bytes)
}

/// Reads a UTF-8 text of at most `most` bytes.
pub(crate) fn read_text(path: &Path, most: u64) -> Result<String> {
    String::from_utf8(read_bytes(path, most)?).map_err(|e| {
        let bytes = &e.as_bytes()[..e.utf8_error().valid_up_to()];
        let line = 1 + bytes.iter().filter(|&&b| b == b'\n').count();
        Error::format(path, format!("line {line} is not UTF-8 text"), "UTF-8 text")
    })
}

/// Parses a TOML text out of a file, of at most [`LONGEST_CONFIG`](super::LONGEST_CONFIG) bytes: parsed it takes up to 100
/// times its length. The error is one line.
#[cfg(feature = "nn")]
pub(crate) fn parse_toml<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, String> {
    use super::LONGEST_CONFIG;
    if text.len() as u64 > LONGEST_CONFIG {
        return Err(format!("more than {} MiB of TOML", LONGEST_CONFIG / MIB));
    }
    toml::from_str(text).map_err(|error| {
        let line = |at: usize| 1 + text[..at.min(text.len())].matches('\n').count();
        let place = error
            .span()
            .map(|span| format!("line {}: ", line(span.start)));
        let said: Vec<&str> = error.message().lines().collect();
        shown(
            &format!("{}{}", place.unwrap_or_default(), said.join(" ")),
            600,
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_long_is_not_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("text");
        std::fs::write(&path, vec![b'x'; MIB as usize]).unwrap();
        assert_eq!(read_text(&path, MIB).unwrap().len() as u64, MIB);
        std::fs::write(&path, vec![b'x'; MIB as usize + 1]).unwrap();
        let message = read_text(&path, MIB).unwrap_err().to_string();
        assert!(message.contains("more than 1 MiB"), "{message}");
        std::fs::write(&path, b"one\ntwo\xff").unwrap();
        let message = read_text(&path, MIB).unwrap_err().to_string();
        assert!(message.contains("line 2 is not UTF-8"), "{message}");
        if cfg!(unix) {
            let message = read_bytes(Path::new("/dev/zero"), MIB)
                .unwrap_err()
                .to_string();
            assert!(message.contains("more than 1 MiB"), "{message}");
        }
    }
}
