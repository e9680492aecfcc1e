//! Image sets for networks: readers, class names, normalisation and batches.
//!
//! [`open`] reads any of the known sets ([`Kind`]) as a [`Dataset`] of two [`ImageSet`]s. A name that a person types
//! becomes the rows to forget by [`Dataset::labelled`] and [`Forget`](super::Forget). The [`Loader`] turns rows into
//! batches of floats. Nothing here knows of a network.
//!
//! ```
//! use muso::data::{Forget, TestRows};
//! use muso::data::images::{self, Kind, Loader, LoaderOptions, shuffled};
//! let fashion = images::open(Kind::Fashion, None)?;
//! let forget = Forget::class("ankle boot");
//! let split = forget.split(&fashion.labelled(), TestRows::RetainedClasses, 0)?;
//! assert_eq!((split.forget.len(), split.retain.len(), split.test.len()), (200, 1800, 900));
//!
//! let order = shuffled(&split.retain, 7);
//! let options = LoaderOptions::new(128, fashion.normalisation.clone());
//! let mut seen = 0;
//! for batch in Loader::new(&fashion.train, order, options)? {
//!     let batch = batch?;
//!     assert_eq!(batch.shape, [batch.labels.len(), 1, 28, 28]);
//!     seen += batch.rows.len();
//! }
//! assert_eq!(seen, 1800);
//! # Ok::<(), muso::Error>(())
//! ```

mod cifar;
mod decode;
#[cfg(feature = "cli")]
pub mod examine;
mod files;
mod gray;
mod loader;
mod names;
mod normalise;
pub mod published;
mod set;
mod tree;

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::{Labelled, Labels, shown};
use crate::{Error, Result};

pub use super::ClassNames;
pub use loader::{Augment, Batch, Loader, LoaderOptions, PadWith, shuffled};
pub use normalise::Normalisation;
pub use set::ImageSet;

/// The image sets that can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Fashion-MNIST: the selection within the library (2000 and 1000 images), or a folder of the four IDX files.
    Fashion,
    /// MNIST: a folder of the four IDX files, plain or gzip.
    Mnist,
    /// CIFAR-10: a folder of the six batches, as `.bin` (the published binary version) or as `.png`.
    Cifar10,
    /// CIFAR-100 with its 100 fine labels: a folder with `train.bin` and `test.bin` (the published binary version).
    Cifar100,
    /// CIFAR-100 with its 20 coarse labels, the fine ones beside them.
    Cifar20,
    /// Tiny ImageNet: its folder as published. Classes count by sorted WordNet number.
    TinyImagenet,
    /// Images of one's own: `train/CLASS/*` and `test/CLASS/*` or `val/CLASS/*`, JPEG or PNG. Classes count by sorted name.
    Folder,
}

impl Kind {
    /// Every kind of image set.
    pub const ALL: [Self; 7] = [
        Self::Fashion,
        Self::Mnist,
        Self::Cifar10,
        Self::Cifar100,
        Self::Cifar20,
        Self::TinyImagenet,
        Self::Folder,
    ];

    /// Returns the name, as it is written and parsed.
    pub fn name(self) -> &'static str {
        match self {
            Self::Fashion => "fashion",
            Self::Mnist => "mnist",
            Self::Cifar10 => "cifar10",
            Self::Cifar100 => "cifar100",
            Self::Cifar20 => "cifar20",
            Self::TinyImagenet => "tiny-imagenet",
            Self::Folder => "folder",
        }
    }

    fn listed() -> String {
        Self::ALL.map(Self::name).join(", ")
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Kind {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::ALL
            .into_iter()
            .find(|kind| kind.name() == text)
            .ok_or_else(|| Error::Parameter {
                name: "data set",
                value: shown(text, 40),
                expected: format!("one of {}", Self::listed()),
            })
    }
}

/// An image set: what to train on, what to test on, and how to scale the pixels.
#[derive(Clone, Debug)]
pub struct Dataset {
    /// Name of the set's [`Kind`].
    pub name: String,
    /// The images to train on.
    pub train: ImageSet,
    /// The images to test on, of the same shape and classes.
    pub test: ImageSet,
    /// Maps pixels to numbers. A network that was trained elsewhere may need another.
    pub normalisation: Normalisation,
}

/// The largest side that images can be scaled to.
pub const LARGEST_IMAGE_SIZE: usize = 4096;

/// Opens an image set. Only [`Kind::Fashion`] does without a folder.
///
/// MNIST and CIFAR are loaded into memory; of Tiny ImageNet and folders only the names of the files are.
///
/// # Errors
/// If a file is missing or not what it should be. A file of a folder that cannot be decoded shows when it is read.
pub fn open(kind: Kind, folder: Option<&Path>) -> Result<Dataset> {
    open_with(kind, folder, None)
}

/// Opens a set as [`open`] does, with every image scaled to squares of this side, its shorter side fitted and the
/// middle kept.
///
/// # Errors
/// Also if the kind is not [`Kind::TinyImagenet`] or [`Kind::Folder`], whose images alone can be scaled.
pub fn open_resized(kind: Kind, folder: Option<&Path>, image_size: usize) -> Result<Dataset> {
    let fault = |expected: String| Error::Parameter {
        name: "image size",
        value: image_size.to_string(),
        expected,
    };
    if !matches!(kind, Kind::TinyImagenet | Kind::Folder) {
        let expected = format!("none for {kind}: only tiny-imagenet and folder can be scaled");
        return Err(fault(expected));
    }
    if !(1..=LARGEST_IMAGE_SIZE).contains(&image_size) {
        return Err(fault(format!("1 to {LARGEST_IMAGE_SIZE}")));
    }
    open_with(kind, folder, Some(image_size))
}

fn open_with(kind: Kind, folder: Option<&Path>, side: Option<usize>) -> Result<Dataset> {
    let (train, test) = match (kind, folder) {
        (Kind::Fashion, None) => gray::embedded_fashion()?,
        (Kind::Fashion, Some(root)) => gray::open(root, &names::FASHION)?,
        (Kind::Mnist, Some(root)) => gray::open(root, &names::DIGITS)?,
        (Kind::Cifar10, Some(root)) => cifar::open10(root)?,
        (Kind::Cifar100, Some(root)) => cifar::open100(root, false)?,
        (Kind::Cifar20, Some(root)) => cifar::open100(root, true)?,
        (Kind::TinyImagenet, Some(root)) => tree::tiny_imagenet(root, side)?,
        (Kind::Folder, Some(root)) => tree::folder(root, side)?,
        (_, None) => {
            return Err(Error::Missing {
                name: "data folder",
                expected: format!("the folder of the {kind} files (only fashion is built in)"),
            });
        }
    };
    Ok(Dataset {
        name: kind.to_string(),
        train,
        test,
        normalisation: Normalisation::of(kind),
    })
}

impl Dataset {
    /// Returns the labels and class names, with the finer ones if there are any, to hold a [`Forget`](super::Forget)
    /// against.
    pub fn labelled(&self) -> Labelled<'_> {
        let coarse =
            Labelled::new(self.train.labels(), self.test.labels()).with_names(self.train.classes());
        match (self.train.fine(), self.test.fine()) {
            (Some((train, names)), Some((test, _))) => coarse.with_fine(Labels {
                train,
                test,
                names: Some(names),
            }),
            _ => coarse,
        }
    }
}

/// A network takes training and test images alike, so they must be of one shape.
fn same_shape(root: &Path, train: &ImageSet, test: &ImageSet) -> Result<()> {
    if train.shape() == test.shape() {
        return Ok(());
    }
    Err(Error::format(
        root,
        format!("test images of shape {:?}", test.shape()),
        format!("{:?} like the training images", train.shape()),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_written_as_they_are_parsed() {
        for kind in Kind::ALL {
            assert_eq!(kind.to_string().parse::<Kind>().unwrap(), kind);
            let json = serde_json::to_string(&kind).unwrap();
            assert_eq!(json, format!("\"{kind}\""));
            assert_eq!(serde_json::from_str::<Kind>(&json).unwrap(), kind);
        }
        let message = "cifar".parse::<Kind>().unwrap_err().to_string();
        assert!(message.contains("cifar10, cifar100"), "{message}");
    }

    #[test]
    fn the_embedded_set_takes_the_classes_in_turn() {
        let fashion = open(Kind::Fashion, None).unwrap();
        assert_eq!((fashion.train.len(), fashion.test.len()), (2000, 1000));
        for set in [&fashion.train, &fashion.test] {
            assert_eq!(set.shape(), [1, 28, 28]);
            assert!((0_i64..).zip(set.labels()).all(|(i, &l)| l == i % 10));
        }
        // The mean and deviation of the whole set are those of the normalisation; the selection is near them.
        let mut image = [0; 784];
        let (mut sum, mut squares) = (0.0, 0.0);
        for row in 0..2000 {
            fashion.train.read(row, &mut image).unwrap();
            for x in image.map(|x| f64::from(x) / 255.0) {
                sum += x;
                squares += x * x;
            }
        }
        let mean = sum / (2000.0 * 784.0);
        let std = (squares / (2000.0 * 784.0) - mean * mean).sqrt();
        assert!((mean - 0.2860).abs() < 0.01, "{mean}");
        assert!((std - 0.3530).abs() < 0.01, "{std}");
    }

    #[test]
    fn only_the_embedded_set_does_without_a_folder() {
        for kind in Kind::ALL {
            assert_eq!(open(kind, None).is_ok(), kind == Kind::Fashion);
            assert!(open_resized(kind, None, 32).unwrap_err().is_input());
        }
        let message = open(Kind::Cifar20, None).unwrap_err().to_string();
        assert!(message.contains("cifar20"), "{message}");
    }
}
