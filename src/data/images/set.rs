//! Labelled images of one shape, in memory or in files.
//!
//! This is what every reader of [`images`](super) returns and what the [`Loader`](super::Loader) takes. A small set
//! keeps its pixels packed in memory; a set that is a folder of JPEG or PNG files keeps only the paths and decodes an
//! image when it is asked for. Clones and subsets share the pixels and paths.
//!
//! ```
//! use muso::data::images::{ClassNames, ImageSet};
//! // Two images of one channel, 2×2.
//! let pixels = vec![0, 1, 2, 3, 10, 11, 12, 13];
//! let set = ImageSet::new([1, 2, 2], pixels, vec![1, 0], ClassNames::new(["cat", "dog"]))?;
//! let mut image = [0; 4];
//! set.subset(&[1])?.read(0, &mut image)?;
//! assert_eq!(image, [10, 11, 12, 13]);
//! # Ok::<(), muso::Error>(())
//! ```

use std::path::PathBuf;
use std::sync::Arc;

use super::decode::{self, Fit};
use crate::data::ClassNames;
use crate::{Error, Result};

/// Labelled images of one shape. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ImageSet {
    shape: [usize; 3],
    source: Arc<Source>,
    /// The image in the source that each row is.
    images: Arc<[usize]>,
    labels: Labels,
    fine: Option<Labels>,
}

#[derive(Debug)]
enum Source {
    /// CHW, one image after the other.
    Packed(Vec<u8>),
    Files(Vec<PathBuf>, Fit),
}

#[derive(Clone, Debug)]
struct Labels {
    of_rows: Arc<[i64]>,
    classes: ClassNames,
}

impl Labels {
    fn new(what: &str, of_rows: Vec<i64>, classes: ClassNames) -> Result<Self> {
        let known = 0..classes.len() as i64;
        if let Some((row, label)) = (0..).zip(&of_rows).find(|(_, l)| !known.contains(l)) {
            let row: u64 = row;
            return Err(Error::Shape {
                what: what.to_owned(),
                found: format!("label {label} at row {row}"),
                expected: format!("labels of {} classes, counted from 0", classes.len()),
            });
        }
        Ok(Self {
            of_rows: of_rows.into(),
            classes,
        })
    }

    fn subset(&self, rows: &[usize]) -> Self {
        Self {
            of_rows: rows.iter().map(|&row| self.of_rows[row]).collect(),
            classes: self.classes.clone(),
        }
    }
}

impl ImageSet {
    /// Builds a set of images of this shape (channels, height, width) from their bytes, each image channel by channel
    /// and row by row.
    ///
    /// # Errors
    /// If an extent of the shape is 0, if the numbers of pixels and labels do not agree, or if a label is not a class.
    pub fn new(
        shape: [usize; 3],
        pixels: Vec<u8>,
        labels: Vec<i64>,
        classes: ClassNames,
    ) -> Result<Self> {
        let size = image_size(shape)?;
        if size.checked_mul(labels.len()) != Some(pixels.len()) {
            return Err(Error::Shape {
                what: "image pixels".to_owned(),
                found: format!("{} bytes for {} labels", pixels.len(), labels.len()),
                expected: format!("{size} bytes for each image of shape {shape:?}"),
            });
        }
        Self::from_source(shape, Source::Packed(pixels), labels, classes)
    }

    /// RGB images that are decoded from their files when they are read.
    pub(super) fn from_files(
        files: Vec<PathBuf>,
        height: usize,
        width: usize,
        fit: Fit,
        labels: Vec<i64>,
        classes: ClassNames,
    ) -> Result<Self> {
        let shape = [3, height, width];
        image_size(shape)?;
        if files.len() != labels.len() {
            return Err(Error::Shape {
                what: "image files".to_owned(),
                found: format!("{} for {} labels", files.len(), labels.len()),
                expected: "one for each label".to_owned(),
            });
        }
        Self::from_source(shape, Source::Files(files, fit), labels, classes)
    }

    fn from_source(
        shape: [usize; 3],
        source: Source,
        labels: Vec<i64>,
        classes: ClassNames,
    ) -> Result<Self> {
        let images = (0..labels.len()).collect();
        Ok(Self {
            shape,
            source: Arc::new(source),
            images,
            labels: Labels::new("image labels", labels, classes)?,
            fine: None,
        })
    }

    /// Adds a second, finer label to each image.
    ///
    /// # Errors
    /// If there is not one for each image, or if one is not a class.
    pub fn with_fine(mut self, labels: Vec<i64>, classes: ClassNames) -> Result<Self> {
        if labels.len() != self.len() {
            return Err(Error::Shape {
                what: "fine labels".to_owned(),
                found: labels.len().to_string(),
                expected: format!("{}, one for each image", self.len()),
            });
        }
        self.fine = Some(Labels::new("fine labels", labels, classes)?);
        Ok(self)
    }

    /// Channels, height and width.
    pub fn shape(&self) -> [usize; 3] {
        self.shape
    }

    /// Returns the number of images.
    pub fn len(&self) -> usize {
        self.images.len()
    }

    /// Returns whether there is no image.
    pub fn is_empty(&self) -> bool {
        self.images.is_empty()
    }

    /// Returns the class of each image.
    pub fn labels(&self) -> &[i64] {
        &self.labels.of_rows
    }

    /// Returns the classes that the labels count.
    pub fn classes(&self) -> &ClassNames {
        &self.labels.classes
    }

    /// Returns the finer labels and their classes, when the set has them: in CIFAR-20 the 100 classes within the 20.
    pub fn fine(&self) -> Option<(&[i64], &ClassNames)> {
        let fine = self.fine.as_ref()?;
        Some((&fine.of_rows, &fine.classes))
    }

    /// Returns the images of these rows, in this order; a row may come more than once.
    ///
    /// # Errors
    /// If a row is out of range.
    pub fn subset(&self, rows: &[usize]) -> Result<Self> {
        for &row in rows {
            self.check_row(row)?;
        }
        Ok(Self {
            shape: self.shape,
            source: Arc::clone(&self.source),
            images: rows.iter().map(|&row| self.images[row]).collect(),
            labels: self.labels.subset(rows),
            fine: self.fine.as_ref().map(|fine| fine.subset(rows)),
        })
    }

    /// Writes the image of a row to `image`, channel by channel and row by row.
    ///
    /// # Errors
    /// If the row is out of range, if `image` is not of the size of an image, or if its file cannot be decoded.
    pub fn read(&self, row: usize, image: &mut [u8]) -> Result<()> {
        let [channels, height, width] = self.shape;
        if image.len() != channels * height * width {
            return Err(Error::Shape {
                what: "image buffer".to_owned(),
                found: format!("{} bytes", image.len()),
                expected: format!("{} bytes for {:?}", channels * height * width, self.shape),
            });
        }
        self.check_row(row)?;
        match &*self.source {
            Source::Packed(_) => {
                if let Some(packed) = self.packed(row) {
                    image.copy_from_slice(packed);
                }
                Ok(())
            }
            Source::Files(files, fit) => {
                decode::rgb_planes(&files[self.images[row]], height, width, *fit, image)
            }
        }
    }

    /// The bytes of a row that is in memory, without a copy.
    pub(super) fn packed(&self, row: usize) -> Option<&[u8]> {
        let size: usize = self.shape.iter().product();
        match &*self.source {
            Source::Packed(bytes) => bytes.chunks_exact(size).nth(*self.images.get(row)?),
            Source::Files(..) => None,
        }
    }

    /// The files of the rows, where each is one.
    #[cfg(feature = "cli")]
    pub(super) fn files(&self) -> Vec<&std::path::Path> {
        match &*self.source {
            Source::Files(files, _) => self.images.iter().map(|&i| files[i].as_path()).collect(),
            Source::Packed(_) => Vec::new(),
        }
    }

    pub(super) fn check_row(&self, row: usize) -> Result<()> {
        if row < self.len() {
            return Ok(());
        }
        Err(Error::selection(
            "image set",
            format!("row {row} is out of range"),
            format!("row numbers below {}, counted from 0", self.len()),
        ))
    }
}

/// The bytes of one image.
fn image_size(shape: [usize; 3]) -> Result<usize> {
    let [channels, height, width] = shape;
    channels
        .checked_mul(height)
        .and_then(|size| size.checked_mul(width))
        .filter(|&size| size > 0)
        .ok_or_else(|| Error::Shape {
            what: "image shape".to_owned(),
            found: format!("{shape:?}"),
            expected: "channels, height and width of at least 1 that fit in memory".to_owned(),
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn two() -> ClassNames {
        ClassNames::new(["a", "b"])
    }

    fn set() -> ImageSet {
        ImageSet::new([1, 1, 2], vec![1, 2, 3, 4, 5, 6], vec![0, 1, 0], two()).unwrap()
    }

    #[test]
    fn rows_come_back() {
        let set = set()
            .with_fine(vec![2, 1, 0], ClassNames::new(["x", "y", "z"]))
            .unwrap();
        let part = set.subset(&[2, 0, 2]).unwrap().subset(&[0, 1]).unwrap();
        assert_eq!((part.len(), part.labels()), (2, &[0, 0][..]));
        assert_eq!(part.fine().unwrap().0, [0, 2]);
        let mut image = [0; 2];
        part.read(0, &mut image).unwrap();
        assert_eq!(image, [5, 6]);
        part.read(1, &mut image).unwrap();
        assert_eq!(image, [1, 2]);
        assert!(set.subset(&[]).unwrap().is_empty());
    }

    #[test]
    fn each_fault_has_its_own_line() {
        let new = |shape, bytes, labels| ImageSet::new(shape, vec![0; bytes], labels, two());
        let set = set();
        for (result, wanted) in [
            (new([1, 0, 2], 0, vec![]), "image shape: [1, 0, 2]"),
            (new([usize::MAX, 2, 2], 0, vec![]), "fit in memory"),
            (new([1, 1, 2], 5, vec![0, 1]), "5 bytes for 2 labels"),
            (new([1, 1, 2], 4, vec![0, 2]), "label 2 at row 1"),
            (new([1, 1, 2], 2, vec![-1]), "label -1 at row 0"),
            (set.clone().with_fine(vec![0], two()), "fine labels: 1"),
            (
                set.clone().with_fine(vec![0, 0, 9], two()),
                "label 9 at row 2",
            ),
            (set.subset(&[3]), "row 3 is out of range"),
        ] {
            let error = result.unwrap_err();
            assert!(error.is_input());
            assert!(error.to_string().contains(wanted), "{error}");
        }
        let message = |row, bytes: usize| {
            let error = set.read(row, &mut vec![0; bytes]).unwrap_err();
            error.to_string()
        };
        assert!(message(3, 2).contains("row 3 is out of range"));
        assert!(message(0, 3).contains("image buffer: 3 bytes"));
    }
}
