//! MNIST threes and sevens, the data of the paper's Table 1, as IDX files in gzip.
//!
//! The first 300 threes and the first 300 sevens of the training set, and every three and seven of the test set. The
//! files are under CC BY-SA 3.0, which is why they are a crate of their own: the program `muso` links it, the library
//! does not. `NOTICE` says where they are from and what was selected. They become matrices by
//! `muso::data::Digits::parse`.
//!
//! ```
//! let gzip = [0x1f, 0x8b];
//! for file in muso_digits::TRAIN.into_iter().chain(muso_digits::TEST) {
//!     assert_eq!(file[..2], gzip);
//! }
//! ```

/// Training images, 600×28×28, and their labels: 300 threes, then 300 sevens.
pub const TRAIN: [&[u8]; 2] = [
    include_bytes!("../train-images.idx3.gz"),
    include_bytes!("../train-labels.idx1.gz"),
];

/// Test images, 2038×28×28, and their labels, in the order of the MNIST test set.
pub const TEST: [&[u8]; 2] = [
    include_bytes!("../test-images.idx3.gz"),
    include_bytes!("../test-labels.idx1.gz"),
];

/// Credit for the digits, their licence and where its text is: what a program that contains them has to say.
pub const CREDIT: &str = "MNIST digits, a selection of threes and sevens: Yann LeCun, Corinna Cortes and Christopher J.C. Burges,
  http://yann.lecun.com/exdb/mnist/, CC BY-SA 3.0, https://creativecommons.org/licenses/by-sa/3.0/";
