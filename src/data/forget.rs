//! The `--forget` argument: `class:K`, or a text file of row numbers.
//!
//! The program parses it before it opens anything large, so that a slip in the list is found at once.
//! [`ForgetSpec::check`] then holds the list against the number of rows. Row numbers count from 0 and are separated
//! by white space or commas; `#` starts a comment that runs to the end of its line.
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

use std::path::{Path, PathBuf};

use super::shown;
use crate::{Error, Result};

/// What the user asked to forget.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ForgetSpec {
    /// Every row of a class.
    Class(i64),
    /// Rows by number.
    Ids {
        /// The file that lists them.
        source: PathBuf,
        /// The row numbers, ascending, without repetition, at least one.
        ids: Vec<u64>,
    },
}

const ROW_NUMBERS: &str = "row numbers counted from 0, separated by white space or commas";

impl ForgetSpec {
    /// Parses the argument, and reads the file if it names one.
    pub fn parse(arg: &str) -> Result<Self> {
        if let Some(class) = arg.strip_prefix("class:") {
            return match number(class) {
                Ok(class) if i64::try_from(class).is_ok() => Ok(Self::Class(class as i64)),
                _ => Err(Error::selection(
                    format!("`.forget = {arg}`"),
                    format!("`{}` is not a class number", shown(class, 40)),
                    "class:K with K a whole number, 0 or more (a file of that name: ./class:…)",
                )),
            };
        }
        let source = PathBuf::from(arg);
        let bytes = std::fs::read(&source).map_err(|e| Error::io(&source, "read", e))?;
        let text = std::str::from_utf8(&bytes).map_err(|e| {
            let line = 1 + bytes[..e.valid_up_to()]
                .iter()
                .filter(|&&b| b == b'\n')
                .count();
            Error::format(
                &source,
                format!("line {line} is not UTF-8 text"),
                ROW_NUMBERS,
            )
        })?;
        let ids = parse_ids(&source, text)?;
        Ok(Self::Ids { source, ids })
    }

    /// Holds the list against a data set of `rows` rows: every number in range, and not every row listed.
    ///
    /// A class is not checked here; only the labels can tell.
    pub fn check(&self, rows: u64) -> Result<()> {
        let Self::Ids { source, ids } = self else {
            return Ok(());
        };
        let what = || source.display().to_string();
        if let Some(id) = ids.iter().find(|&&id| id >= rows) {
            return Err(Error::selection(
                what(),
                format!("row {id} is out of range"),
                format!("row numbers below {rows}, counted from 0"),
            ));
        }
        if ids.is_empty() {
            return Err(empty(source));
        }
        if ids.len() as u64 == rows {
            return Err(Error::selection(
                what(),
                format!("the list covers all {rows} rows"),
                "at least one row that is retained",
            ));
        }
        Ok(())
    }
}

/// Parses the text of a list of row numbers; `name` is what errors call it. The result is ascending.
pub fn parse_ids(name: &Path, text: &str) -> Result<Vec<u64>> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut found: Vec<(u64, usize)> = Vec::new();
    for (index, line) in text.split('\n').enumerate() {
        let line_number = index + 1;
        let listed = line.split('#').next().unwrap_or("");
        let separator = |c: char| c.is_whitespace() || c == ',';
        for token in listed.split(separator).filter(|token| !token.is_empty()) {
            let id = number(token).map_err(|why| {
                Error::format(
                    name,
                    format!("line {line_number}: `{}` {why}", shown(token, 40)),
                    ROW_NUMBERS,
                )
            })?;
            found.push((id, line_number));
        }
    }
    if found.is_empty() {
        return Err(empty(name));
    }
    found.sort_unstable();
    if let Some(pair) = found.windows(2).find(|pair| pair[0].0 == pair[1].0) {
        let ((id, first), (_, second)) = (pair[0], pair[1]);
        let lines = if first == second {
            format!("on line {first}")
        } else {
            format!("on lines {first} and {second}")
        };
        return Err(Error::selection(
            name.display().to_string(),
            format!("row {id} is listed twice, {lines}"),
            "every row at most once",
        ));
    }
    Ok(found.into_iter().map(|(id, _)| id).collect())
}

fn empty(name: &Path) -> Error {
    Error::selection(
        name.display().to_string(),
        "the list of rows to forget is empty",
        "at least one row number",
    )
}

/// Digits only: `u64::from_str` would also take a plus sign.
fn number(token: &str) -> Result<u64, &'static str> {
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
            ("", "the list of rows to forget is empty"),
            (" ,\r\n# 1 2 3", "the list of rows to forget is empty"),
            ("4 5\n6\n5", "row 5 is listed twice, on lines 1 and 3"),
            ("4 4", "row 4 is listed twice, on line 1"),
        ] {
            let message = ids(text).unwrap_err().to_string();
            assert!(
                message.starts_with("ids.txt: ") && message.contains(wanted),
                "{message}"
            );
        }
        let long = ids(&"y".repeat(1000)).unwrap_err().to_string();
        assert!(long.len() < 200, "{long}");
        assert!(!ids("\u{1b}[2J").unwrap_err().to_string().contains('\u{1b}'));
    }

    #[test]
    fn classes_and_files_are_told_apart() {
        assert_eq!(ForgetSpec::parse("class:7").unwrap(), ForgetSpec::Class(7));
        for bad in [
            "class:",
            "class:x",
            "class:-1",
            "class: 1",
            "class:9223372036854775808",
        ] {
            let message = ForgetSpec::parse(bad).unwrap_err().to_string();
            assert!(message.starts_with("`.forget = class:"), "{message}");
        }
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("list");
        std::fs::write(&path, "2\n1\n").unwrap();
        let spec = ForgetSpec::parse(path.to_str().unwrap()).unwrap();
        assert_eq!(
            spec,
            ForgetSpec::Ids {
                source: path.clone(),
                ids: vec![1, 2]
            }
        );
        std::fs::write(&path, b"2\n\xff\n").unwrap();
        let message = ForgetSpec::parse(path.to_str().unwrap())
            .unwrap_err()
            .to_string();
        assert!(message.contains("line 2 is not UTF-8"), "{message}");
        let missing = dir.path().join("missing");
        assert!(matches!(
            ForgetSpec::parse(missing.to_str().unwrap()),
            Err(Error::Io { .. })
        ));
    }

    #[test]
    fn lists_are_held_against_the_rows() {
        let spec = ForgetSpec::Ids {
            source: "ids.txt".into(),
            ids: vec![0, 1, 2],
        };
        assert!(spec.check(4).is_ok());
        let covers = spec.check(3).unwrap_err().to_string();
        assert!(covers.contains("covers all 3 rows"), "{covers}");
        let range = spec.check(2).unwrap_err().to_string();
        assert!(range.contains("row 2 is out of range"), "{range}");
        assert!(ForgetSpec::Class(3).check(1).is_ok());
    }
}
