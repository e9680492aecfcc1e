//! Data in and out: the first stage of the flow, and the last.
//!
//! In: [`idx`] and [`mnist`] read the digits of the linear experiment, [`images`] the sets that networks are trained on;
//! [`tensors`] streams feature files that are larger than memory and loads heads; [`forget`] says which rows are to be
//! forgotten, and [`classes`] what classes are called.
//! Out: [`output`] writes files that appear whole or not at all. [`digest`] tells files and rows apart.
//! Every reader takes its input for hostile: a bad file is a typed error that names it, never a panic and never an
//! allocation that the file does not back with bytes. Each says in its docs how much memory a file can make it take, and
//! `tests/suite/cli/hostile.rs` holds the program to it under a limit of the system.
//!
//! ```
//! use muso::data::{Digits, Forget, Labelled, TestRows};
//! let digits = Digits::parse(muso_digits::TRAIN, muso_digits::TEST)?;
//! let labels = Labelled::new(&digits.train_labels, &digits.test_labels);
//! let split = Forget::class(3).split(&labels, TestRows::RetainedClasses, 0)?;
//! assert_eq!((split.forget.len(), split.retain.len(), split.test.len()), (300, 300, 1028));
//! let retained = digits.train_images.select_rows(&split.retain);
//! assert_eq!(retained.rows(), 300);
//! # Ok::<(), muso::Error>(())
//! ```

#[cfg(feature = "nn")]
pub mod checkpoint;
pub mod classes;
pub mod digest;
pub mod forget;
#[cfg(feature = "datasets")]
pub mod idx;
#[cfg(feature = "datasets")]
pub mod images;
#[cfg(feature = "datasets")]
pub mod mnist;
pub mod output;
#[cfg(feature = "nn")]
mod pytorch;
pub mod rows;
pub mod tensors;
#[cfg(feature = "datasets")]
pub(crate) mod whole;

#[cfg(feature = "nn")]
pub use checkpoint::{read_checkpoint, read_state, write_state};
pub use classes::ClassNames;
pub use digest::Digest;
pub use forget::{
    Amount, Forget, ForgetClass, Labelled, Labels, RowList, Selection, Split, TestRows,
};
#[cfg(feature = "datasets")]
pub use mnist::Digits;
pub use output::{OutputFile, commit_all};
pub use rows::FeatureRows;
pub use tensors::{
    Head, LabelReader, MatrixReader, OutTensor, RowBuffer, RowsWriter, TensorFile, rounded,
    to_safetensors, to_safetensors_with,
};

#[cfg(feature = "datasets")]
pub(crate) const MIB: u64 = 1 << 20;
/// Longest configuration: a file, or the text of one beside the arrays of a checkpoint.
#[cfg(feature = "nn")]
pub(crate) const LONGEST_CONFIG: u64 = MIB;

/// Text from a file as a short printable piece of an error message, which is to stay one line.
pub(crate) fn shown(text: &str, longest: usize) -> String {
    let mut piece: String = text
        .chars()
        .take(longest)
        .flat_map(char::escape_debug)
        .collect();
    if text.chars().nth(longest).is_some() {
        piece.push('…');
    }
    piece
}
