//! MNIST threes and sevens as matrices: the data of the paper's Table 1.
//!
//! [`Digits::parse`] is the first step of the linear experiment; its images go to the random features, its labels to a
//! [`Forget`](super::Forget). The bytes are the caller's: the program has the first 300 threes and the first 300 sevens
//! of the training set, and every three and seven of the test set, from the crate `muso-digits`, since MNIST is not
//! under the licence of this library.
//!
//! ```
//! let digits = muso::data::Digits::parse(muso_digits::TRAIN, muso_digits::TEST)?;
//! assert_eq!((digits.train_images.rows(), digits.train_images.cols()), (600, 784));
//! assert_eq!((digits.train_labels[0], digits.train_labels[300]), (3, 7));
//! # Ok::<(), muso::Error>(())
//! ```

use std::path::Path;

use super::idx::{self, IdxArray};
use crate::engine::Matrix;
use crate::{Error, Result};

/// Mean of all MNIST training pixels, scaled to 0..1.
pub const PIXEL_MEAN: f64 = 0.1307;
/// Standard deviation of all MNIST training pixels, scaled to 0..1.
pub const PIXEL_STD: f64 = 0.3081;

/// Digits for the linear experiment, training and test rows.
#[derive(Clone, Debug, PartialEq)]
pub struct Digits {
    /// An image a row, normalised; 600×784 in `muso-digits`: 300 threes, then 300 sevens.
    pub train_images: Matrix,
    /// The digit of each training row.
    pub train_labels: Vec<i64>,
    /// An image a row, normalised; 2038×784 in `muso-digits`, in the order of the MNIST test set.
    pub test_images: Matrix,
    /// The digit of each test row.
    pub test_labels: Vec<i64>,
}

impl Digits {
    /// Unpacks IDX files, plain or gzip, images and labels of each part; a pixel x becomes (x/255 − 0.1307)/0.3081.
    ///
    /// # Errors
    /// [`Error::Format`] where a file is no IDX, [`Error::Shape`] where images and labels do not agree.
    pub fn parse(train: [&[u8]; 2], test: [&[u8]; 2]) -> Result<Self> {
        let (train_images, train_labels) = unpack("train", train)?;
        let (test_images, test_labels) = unpack("test", test)?;
        Ok(Self {
            train_images,
            train_labels,
            test_images,
            test_labels,
        })
    }
}

fn unpack(part: &str, [images, labels]: [&[u8]; 2]) -> Result<(Matrix, Vec<i64>)> {
    let name = format!("MNIST {part}");
    let images = idx::parse(Path::new(&format!("{name} images")), images)?;
    let labels = idx::parse(Path::new(&format!("{name} labels")), labels)?;
    pair(&name, images, labels)
}

fn pair(name: &str, images: IdxArray, labels: IdxArray) -> Result<(Matrix, Vec<i64>)> {
    match (&images.shape[..], &labels.shape[..]) {
        (&[count, height, width], &[label_count]) if count == label_count => {
            let pixels = images
                .values
                .iter()
                .map(|&x| (f64::from(x) / 255.0 - PIXEL_MEAN) / PIXEL_STD)
                .collect();
            Ok((
                Matrix::from_vec(count, height * width, pixels),
                labels.values.iter().map(|&x| i64::from(x)).collect(),
            ))
        }
        (images, labels) => Err(Error::Shape {
            what: name.to_owned(),
            found: format!("images {images:?} and labels {labels:?}"),
            expected: "images [N, height, width] and labels [N]".to_owned(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_selection_is_the_one_in_the_notice() {
        let digits = Digits::parse(muso_digits::TRAIN, muso_digits::TEST).unwrap();
        assert_eq!(
            digits.train_labels,
            [vec![3; 300], vec![7; 300]].concat(),
            "threes, then sevens"
        );
        assert_eq!(
            (digits.test_images.rows(), digits.test_images.cols()),
            (2038, 784)
        );
        let threes = digits.test_labels.iter().filter(|&&l| l == 3).count();
        let sevens = digits.test_labels.iter().filter(|&&l| l == 7).count();
        assert_eq!((threes, sevens), (1010, 1028));
        // Test set order: MNIST's first test images are 7 2 1 0 4 1 4 9 5 9 0 6 9 0 1 5 9 7 3 4.
        assert_eq!(digits.test_labels[..3], [7, 7, 3]);
    }

    #[test]
    fn pixels_are_normalised_and_whole() {
        let digits = Digits::parse(muso_digits::TRAIN, muso_digits::TEST).unwrap();
        // Sums of the raw bytes, taken from the source files.
        for (images, raw_sum) in [
            (&digits.train_images, 15_649_475.0),
            (&digits.test_images, 52_550_321.0),
        ] {
            let sum: f64 = images
                .as_slice()
                .iter()
                .map(|x| ((x * PIXEL_STD + PIXEL_MEAN) * 255.0).round())
                .sum();
            assert_eq!(sum, raw_sum);
        }
        assert_eq!(digits.train_images[(0, 0)], -PIXEL_MEAN / PIXEL_STD);
    }

    #[test]
    fn images_and_labels_must_agree() {
        let array = |shape: &[usize]| IdxArray {
            shape: shape.to_vec(),
            values: vec![0; shape.iter().product()],
        };
        let error = pair("x", array(&[2, 2, 2]), array(&[3])).unwrap_err();
        assert!(error.to_string().contains("[2, 2, 2]"), "{error}");
    }
}
