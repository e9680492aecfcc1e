//! Lists of row numbers: their text, and what can be wrong with them.
//!
//! Row numbers count from 0 and are separated by white space or commas; `#` starts a comment that runs to the end of
//! its line. A list is read piece by piece, from a file or a pipe, and takes 16 bytes for each number, up to three times
//! that while it grows; it has at most 16 777 216 of them.
//!
//! ```
//! use std::path::Path;
//! use muso::data::forget::parse_ids;
//! let ids = parse_ids(Path::new("ids.txt"), "# withdrawn\n12, 7\n\n3 # asked twice\n")?;
//! assert_eq!(ids, [3, 7, 12]);
//! let error = parse_ids(Path::new("ids.txt"), "1\n2\n1\n").unwrap_err();
//! assert!(error.to_string().contains("row 1 is listed twice, on lines 1 and 3"));
//! # Ok::<(), muso::Error>(())
//! ```

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

use crate::data::shown;
use crate::{Error, Result};

/// Digits that a number may have, zeros before it included.
const LONGEST_NUMBER: usize = 64;
const MOST_IDS: usize = 1 << 24;
const ROW_NUMBERS: &str = "row numbers counted from 0, separated by white space or commas";

/// The numbers of rows to forget, and the file that lists them if there is one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowList {
    source: Option<PathBuf>,
    ids: Vec<u64>,
}

impl RowList {
    /// Takes row numbers in any order.
    ///
    /// # Errors
    /// If there is none, or if one is listed twice.
    pub fn new(ids: impl IntoIterator<Item = u64>) -> Result<Self> {
        let mut ids: Vec<u64> = ids.into_iter().collect();
        ids.sort_unstable();
        let list = Self { source: None, ids };
        if list.ids.is_empty() {
            return Err(empty(list.name()));
        }
        match list.ids.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(twice(list.name(), pair[0], "")),
            None => Ok(list),
        }
    }

    /// Reads a text file of row numbers.
    ///
    /// # Errors
    /// If the file cannot be read, or as [`parse_ids`].
    pub fn read(path: &Path) -> Result<Self> {
        let file = File::open(path).map_err(|e| Error::io(path, "read", e))?;
        Ok(Self {
            source: Some(path.to_owned()),
            ids: parse(path, file)?,
        })
    }

    /// Takes rows that are known to ascend without repetition, as read from `source`.
    pub(crate) fn of(source: &Path, ids: Vec<u64>) -> Self {
        Self {
            source: Some(source.to_owned()),
            ids,
        }
    }

    /// Returns the row numbers, ascending, without repetition, at least one.
    pub fn ids(&self) -> &[u64] {
        &self.ids
    }

    /// Returns the row numbers without the rest.
    pub fn into_ids(self) -> Vec<u64> {
        self.ids
    }

    /// Returns the file that the list was read from.
    pub fn source(&self) -> Option<&Path> {
        self.source.as_deref()
    }

    /// Holds the list against a data set of `rows` rows: every number in range, and not every row listed.
    ///
    /// # Errors
    /// If a number is too large, or if no row is left.
    pub fn check(&self, rows: u64) -> Result<()> {
        if let Some(id) = self.ids.iter().find(|&&id| id >= rows) {
            return Err(Error::selection(
                self.name(),
                format!("row {id} is out of range"),
                format!("row numbers below {rows}, counted from 0"),
            ));
        }
        if self.ids.len() as u64 == rows {
            return Err(Error::selection(
                self.name(),
                format!("the list covers all {rows} rows"),
                "at least one row that is retained",
            ));
        }
        Ok(())
    }

    fn name(&self) -> String {
        let field = || "`.forget`".to_owned();
        self.source
            .as_ref()
            .map_or_else(field, |path| path.display().to_string())
    }
}

/// Parses the text of a list of row numbers; `name` is what errors call it. The result is ascending.
///
/// # Errors
/// If there is no number, if something is not a number, or if a row is listed twice.
pub fn parse_ids(name: &Path, text: &str) -> Result<Vec<u64>> {
    parse(name, text.as_bytes())
}

/// The numbers of a list that is being read, with their lines.
struct Listing<'a> {
    name: &'a Path,
    found: Vec<(u64, usize)>,
    line: usize,
    in_comment: bool,
    /// The number that is being read.
    token: String,
}

impl Listing<'_> {
    fn text(&mut self, text: &str) -> Result<()> {
        for c in text.chars() {
            if self.in_comment {
                self.in_comment = c != '\n';
            } else if c.is_whitespace() || matches!(c, ',' | '#') {
                self.end_of_token()?;
                self.in_comment = c == '#';
            } else {
                self.token.push(c);
                if self.token.len() > LONGEST_NUMBER {
                    self.end_of_token()?;
                }
            }
            self.line += usize::from(c == '\n');
        }
        Ok(())
    }

    fn end_of_token(&mut self) -> Result<()> {
        if self.token.is_empty() {
            return Ok(());
        }
        let fault = |why: &str| {
            let token = shown(&self.token, 40);
            let problem = format!("line {}: `{token}` {why}", self.line);
            Error::format(self.name, problem, ROW_NUMBERS)
        };
        let id = number(&self.token).map_err(fault)?;
        if self.token.len() > LONGEST_NUMBER {
            return Err(fault("goes on"));
        }
        if self.found.len() == MOST_IDS {
            let problem = format!("more than {MOST_IDS} row numbers");
            return Err(Error::format(
                self.name,
                problem,
                format!("at most {MOST_IDS}"),
            ));
        }
        self.found.push((id, self.line));
        self.token.clear();
        Ok(())
    }
}

fn parse(name: &Path, mut text: impl Read) -> Result<Vec<u64>> {
    let mut listing = Listing {
        name,
        found: Vec::new(),
        line: 1,
        in_comment: false,
        token: String::new(),
    };
    let mut piece = vec![0; 1 << 16];
    // Bytes at the front that are the beginning of a character.
    let mut kept = 0;
    let mut is_start = true;
    loop {
        let read = match text.read(&mut piece[kept..]) {
            Err(e) if e.kind() == ErrorKind::Interrupted => continue,
            read => read.map_err(|e| Error::io(name, "read", e))?,
        };
        let bytes = &piece[..kept + read];
        let (good, broken) = match std::str::from_utf8(bytes) {
            Ok(good) => (good, false),
            Err(e) => {
                let good = std::str::from_utf8(&bytes[..e.valid_up_to()]).unwrap_or_default();
                (good, e.error_len().is_some() || read == 0)
            }
        };
        let rest = good.len()..bytes.len();
        if !good.is_empty() {
            let marked = good.strip_prefix('\u{feff}').filter(|_| is_start);
            listing.text(marked.unwrap_or(good))?;
            is_start = false;
        }
        if broken {
            let problem = format!("line {} is not UTF-8 text", listing.line);
            return Err(Error::format(name, problem, ROW_NUMBERS));
        }
        if read == 0 {
            break;
        }
        kept = rest.len();
        piece.copy_within(rest, 0);
    }
    listing.end_of_token()?;
    let mut found = listing.found;
    if found.is_empty() {
        return Err(empty(name.display().to_string()));
    }
    found.sort_unstable();
    if let Some(pair) = found.windows(2).find(|pair| pair[0].0 == pair[1].0) {
        let ((id, first), (_, second)) = (pair[0], pair[1]);
        let lines = if first == second {
            format!(", on line {first}")
        } else {
            format!(", on lines {first} and {second}")
        };
        return Err(twice(name.display().to_string(), id, &lines));
    }
    Ok(found.into_iter().map(|(id, _)| id).collect())
}

fn empty(name: String) -> Error {
    Error::selection(name, "the list of rows is empty", "at least one row number")
}

fn twice(name: String, id: u64, where_listed: &str) -> Error {
    Error::selection(
        name,
        format!("row {id} is listed twice{where_listed}"),
        "every row at most once",
    )
}

/// Takes digits only: `u64::from_str` would also take a plus sign.
pub(super) fn number(token: &str) -> Result<u64, &'static str> {
    let all_digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if all_digits(token) {
        token
            .parse()
            .map_err(|_| "is larger than any row number can be")
    } else if token.strip_prefix('-').is_some_and(all_digits) {
        Err("is negative")
    } else {
        Err("is not a row number")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(text: &str) -> Result<Vec<u64>> {
        parse_ids(Path::new("ids.txt"), text)
    }

    #[test]
    fn every_separator_is_understood() {
        assert_eq!(
            ids("\u{feff}5,4\r\n3\t 2\r\n# 9\r\n1 # 8\r\n,0,\n").unwrap(),
            [0, 1, 2, 3, 4, 5]
        );
        assert_eq!(ids("18446744073709551615").unwrap(), [u64::MAX]);
    }

    #[test]
    fn each_fault_names_file_line_and_token() {
        for (text, wanted) in [
            ("1\nx7\n", "line 2: `x7` is not a row number"),
            ("1\n2 -3\n", "line 2: `-3` is negative"),
            ("+3", "line 1: `+3` is not a row number"),
            ("1.0", "line 1: `1.0` is not a row number"),
            ("-", "line 1: `-` is not a row number"),
            ("18446744073709551616", "larger than any row number"),
            ("٣", "is not a row number"),
            ("", "the list of rows is empty"),
            (" ,\r\n# 1 2 3", "the list of rows is empty"),
            ("4 5\n6\n5", "row 5 is listed twice, on lines 1 and 3"),
            ("4 4", "row 4 is listed twice, on line 1"),
        ] {
            let message = ids(text).unwrap_err().to_string();
            assert!(
                message.starts_with("ids.txt: ") && message.contains(wanted),
                "{message}"
            );
        }
        for digits in ["9", "0"] {
            let long = ids(&digits.repeat(100_000)).unwrap_err().to_string();
            assert!(long.len() < 200 && long.contains("line 1"), "{long}");
        }
        let long = ids(&"y".repeat(1000)).unwrap_err().to_string();
        assert!(long.len() < 200, "{long}");
        assert!(!ids("\u{1b}[2J").unwrap_err().to_string().contains('\u{1b}'));
    }

    /// Characters, numbers and the mark at the start may be cut anywhere when a list comes piece by piece.
    #[test]
    fn pieces_do_not_matter() {
        struct Dribble<'a>(&'a [u8]);
        impl Read for Dribble<'_> {
            fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
                let count = self.0.len().min(1);
                buffer[..count].copy_from_slice(&self.0[..count]);
                self.0 = &self.0[count..];
                Ok(count)
            }
        }
        for text in [
            "\u{feff}12,7\u{3000}3 # ä\n45",
            "1\n\u{feff}2",
            "1 \u{3000}x",
            "1\n1",
        ] {
            let whole = ids(text).map_err(|e| e.to_string());
            let pieces = parse(Path::new("ids.txt"), Dribble(text.as_bytes()));
            assert_eq!(pieces.map_err(|e| e.to_string()), whole, "{text:?}");
        }
        for (bytes, line) in [(&b"1\n2\xe3\x80"[..], 2), (b"\xff", 1), (b"1\n2\n\xe3x", 3)] {
            let said = parse(Path::new("ids.txt"), Dribble(bytes)).unwrap_err();
            let wanted = format!("line {line} is not UTF-8");
            assert!(said.to_string().contains(&wanted), "{said}");
        }
    }

    #[test]
    fn files_are_read_with_their_names() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("list");
        std::fs::write(&path, "2\n1\n").unwrap();
        let list = RowList::read(&path).unwrap();
        assert_eq!(
            (list.ids(), list.source()),
            (&[1, 2][..], Some(path.as_path()))
        );
        std::fs::write(&path, b"2\n\xff\n").unwrap();
        let message = RowList::read(&path).unwrap_err().to_string();
        assert!(message.contains("line 2 is not UTF-8"), "{message}");
        let missing = dir.path().join("missing");
        assert!(matches!(RowList::read(&missing), Err(Error::Io { .. })));
    }

    #[test]
    fn lists_are_held_against_the_rows() {
        let list = RowList::new([2, 0, 1]).unwrap();
        assert_eq!(list.ids(), [0, 1, 2]);
        assert!(list.check(4).is_ok());
        let covers = list.check(3).unwrap_err().to_string();
        assert!(covers.contains("covers all 3 rows"), "{covers}");
        let range = list.check(2).unwrap_err().to_string();
        assert!(range.contains("row 2 is out of range"), "{range}");
        let message = |ids: &[u64]| RowList::new(ids.iter().copied()).unwrap_err().to_string();
        assert!(message(&[]).contains("`.forget`: the list of rows is empty"));
        assert!(message(&[5, 1, 5]).contains("`.forget`: row 5 is listed twice"));
    }
}
