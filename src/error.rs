//! The one error type of the library.
//!
//! Every variant carries what was expected and what was found, so that its one-line message names the file,
//! field or value at fault. A message names a field of a parameter struct as `` `.ridge` `` and a value of it as
//! `` `.objective = ridge` ``; how a user spells that field is the caller's business, and the program turns fields into
//! its own options in one place. [`Error::is_input`] separates what the user can mend (the program exits with code 2)
//! from what they cannot (code 1).

use std::path::{Path, PathBuf};

/// The result of everything in this crate that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Everything that can go wrong in this crate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused to read, write or rename a file.
    #[error("{}: cannot {action}: {source}", path.display())]
    Io {
        /// Path of the file.
        path: PathBuf,
        /// The attempted action, as a verb phrase: "open", "read", "write".
        action: &'static str,
        /// Reason that the system gave.
        source: std::io::Error,
    },
    /// A file is not of the format or layout it should have.
    #[error("{}: {problem}; expected {expected}", path.display())]
    Format {
        /// Path of the file.
        path: PathBuf,
        /// Description of what the file has.
        problem: String,
        /// Description of what it should have.
        expected: String,
    },
    /// A value that must be finite is NaN or infinite.
    #[error("{}: `{tensor}` has {value} at row {row}, column {column}; every value must be finite", path.display())]
    NotFinite {
        /// Path of the file.
        path: PathBuf,
        /// The tensor within it.
        tensor: String,
        /// The row, counted from 0.
        row: u64,
        /// The column, counted from 0.
        column: usize,
        /// The value that is not finite.
        value: f64,
    },
    /// A value that is too large for the grid of exact sums.
    #[error("{}: `{tensor}` has {value:e} at row {row}, column {column}; the grid reaches to {reach:.3e} there, and a `.grid` of a larger range further", path.display())]
    OffGrid {
        /// Path of the file.
        path: PathBuf,
        /// The tensor within it.
        tensor: String,
        /// The row, counted from 0.
        row: u64,
        /// The column, counted from 0.
        column: usize,
        /// The value that is too large.
        value: f64,
        /// Magnitude that values of this column stay below.
        reach: f64,
    },
    /// A class label outside `0..classes`.
    #[error("{}: label {label} at row {row} is out of range; the head has {classes} classes, 0 to {}", path.display(), classes - 1)]
    LabelRange {
        /// Path of the file.
        path: PathBuf,
        /// The row, counted from 0.
        row: u64,
        /// The label out of range.
        label: i64,
        /// Number of classes.
        classes: usize,
    },
    /// The rows to forget are not a usable choice.
    #[error("{what}: {problem}; expected {expected}")]
    Selection {
        /// Origin of the choice: a file or an option.
        what: String,
        /// Description of the mistake.
        problem: String,
        /// Description of a usable choice.
        expected: String,
    },
    /// Two things that must agree in shape do not.
    #[error("{what}: {found}; expected {expected}")]
    Shape {
        /// The thing at fault.
        what: String,
        /// Shape that it has.
        found: String,
        /// The shape it should have.
        expected: String,
    },
    /// A parameter outside its domain.
    #[error("{name} = {value} is not usable; expected {expected}")]
    Parameter {
        /// Name of the parameter: `` `.field` `` of a parameter struct, or the key in a run file.
        name: &'static str,
        /// Value that was given.
        value: String,
        /// Domain that the value should be in.
        expected: String,
    },
    /// A parameter that has no safe default was not given.
    #[error("{name} is missing; expected {expected}")]
    Missing {
        /// Name of the parameter: `` `.field` `` of a parameter struct, or the key in a run file.
        name: &'static str,
        /// Description of a usable value.
        expected: String,
    },
    /// An input file was replaced, truncated or written to while it was being read.
    #[error("{}: the file changed while it was being read ({how}); nothing was written", path.display())]
    Changed {
        /// Path of the file.
        path: PathBuf,
        /// Description of the change.
        how: String,
    },
    /// A Cholesky pivot was not positive: the matrix is singular to working precision.
    #[error(
        "pivot {pivot} of {size} is {value:e}: the matrix is not positive definite to working precision; a larger ridge makes it so"
    )]
    NotPositiveDefinite {
        /// Index of the failed pivot.
        pivot: usize,
        /// Value of the pivot before the square root.
        value: f64,
        /// Order of the matrix.
        size: usize,
    },
    /// Sums of products of features are beyond f64.
    #[error(
        "the features are too large: sums of their products overflow f64; expected values up to about 1e150"
    )]
    Overflow,
    /// An iteration of the rank-revealing fallback did not converge.
    #[error("the eigendecomposition of a matrix of order {size} did not converge")]
    NoConvergence {
        /// Order of the matrix.
        size: usize,
    },
    /// Gradient descent left the range of its numbers.
    #[error("gradient descent diverged after {steps} steps; {advice}")]
    Diverged {
        /// Number of steps done.
        steps: usize,
        /// Remedy to try.
        advice: &'static str,
    },
    /// A device was asked for that this build or machine does not have.
    #[error("device {device} is not available: {why}")]
    Unavailable {
        /// The device as the user named it.
        device: String,
        /// Reason why it cannot be used.
        why: String,
    },
    /// A device has not enough memory left.
    #[error(
        "{device} is out of memory: {requested} bytes were asked for, {free} of {total} are free"
    )]
    DeviceMemory {
        /// The device as the user named it.
        device: String,
        /// Bytes that were requested.
        requested: u64,
        /// Bytes that were free.
        free: u64,
        /// Total memory of the device, in bytes.
        total: u64,
    },
    /// A kernel could not be launched or did not run to its end.
    #[error("kernel {kernel} failed ({shape}; {geometry}): {why}")]
    Kernel {
        /// Symbol of the kernel; the last one launched, when the failure came to light later.
        kernel: String,
        /// The shapes it was given.
        shape: String,
        /// Thread blocks and threads.
        geometry: String,
        /// Reason that the driver gave.
        why: String,
    },
    /// The CUDA driver refused something other than a kernel.
    #[error("the CUDA driver could not {doing}: {why}")]
    Driver {
        /// The attempted action, as a verb phrase.
        doing: &'static str,
        /// Reason that was given.
        why: String,
    },
    /// A lane of the scheduler did not make what it should.
    #[error("the lane `{lane}` {problem}")]
    Lane {
        /// Name of the lane in traces.
        lane: String,
        /// Description of the failure.
        problem: String,
    },
    /// The user asked to stop.
    #[error("interrupted; nothing was written")]
    Interrupted,
    /// The user asked to stop, and what was done is kept.
    #[error("interrupted; the run so far is in {}, and `.resume` goes on with it", folder.display())]
    Paused {
        /// Path of the folder.
        folder: PathBuf,
    },
}

impl Error {
    /// Returns whether the cause lies in what the user passed in, so that the program's exit code is 2.
    pub fn is_input(&self) -> bool {
        !matches!(
            self,
            Self::NotPositiveDefinite { .. }
                | Self::NoConvergence { .. }
                | Self::Diverged { .. }
                | Self::DeviceMemory { .. }
                | Self::Kernel { .. }
                | Self::Driver { .. }
                | Self::Lane { .. }
                | Self::Interrupted
                | Self::Paused { .. }
        )
    }

    /// Wraps an I/O error with the file and the action.
    pub fn io(path: impl AsRef<Path>, action: &'static str, source: std::io::Error) -> Self {
        Self::Io {
            path: path.as_ref().to_owned(),
            action,
            source,
        }
    }

    /// Returns the error for a file whose contents are not what they should be.
    pub fn format(
        path: impl AsRef<Path>,
        problem: impl Into<String>,
        expected: impl Into<String>,
    ) -> Self {
        Self::Format {
            path: path.as_ref().to_owned(),
            problem: problem.into(),
            expected: expected.into(),
        }
    }

    /// Returns the error for a choice of rows that cannot be used.
    pub fn selection(
        what: impl Into<String>,
        problem: impl Into<String>,
        expected: impl Into<String>,
    ) -> Self {
        Self::Selection {
            what: what.into(),
            problem: problem.into(),
            expected: expected.into(),
        }
    }
}

#[cfg(feature = "nn")]
impl From<muso_models::ConfigError> for Error {
    fn from(error: muso_models::ConfigError) -> Self {
        Self::Selection {
            what: "network".into(),
            problem: error.to_string(),
            expected: "a network that fits the images".into(),
        }
    }
}
