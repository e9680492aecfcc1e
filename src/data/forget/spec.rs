//! The former type of the streamed feature files, until they take a [`Forget`](super::Forget) too.

use std::path::{Path, PathBuf};

use super::list::RowList;
use crate::Result;

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

impl ForgetSpec {
    /// Parses the argument, and reads the file if it names one.
    pub fn parse(arg: &str) -> Result<Self> {
        if let Some(class) = arg.strip_prefix("class:") {
            return super::class_number(class).map(Self::Class);
        }
        let source = PathBuf::from(arg);
        let ids = RowList::read(Path::new(arg))?.into_ids();
        Ok(Self::Ids { source, ids })
    }

    /// Holds the list against a data set of `rows` rows: every number in range, and not every row listed.
    ///
    /// A class is not checked here; only the labels can tell.
    pub fn check(&self, rows: u64) -> Result<()> {
        match self {
            Self::Class(_) => Ok(()),
            Self::Ids { source, ids } => RowList::of(source, ids.clone()).check(rows),
        }
    }
}
