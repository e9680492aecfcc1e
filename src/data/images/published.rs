//! The image sets as their authors publish them: where, under which names, with which checksums, and of what size.
//!
//! [`PUBLISHED`] has them all. The readers take the names of unpacked folders from here, [`examine`](super::examine)
//! compares with the rest, and `docs/data.md` says it in words.
//!
//! ```
//! use muso::data::images::published::{CIFAR10, PUBLISHED};
//! assert_eq!(CIFAR10.files[0].name, "cifar-10-binary.tar.gz");
//! assert!(PUBLISHED.iter().any(|set| set.title == "Tiny ImageNet"));
//! ```

use super::Kind;

/// An image set as published.
#[derive(Debug, PartialEq, Eq)]
pub struct Published {
    /// Name that people know the set by.
    pub title: &'static str,
    /// Kinds that its files can be read as, the usual one first.
    pub kinds: &'static [Kind],
    /// Address of the folder that its files are in.
    pub address: &'static str,
    /// Files to fetch from there.
    pub files: &'static [PublishedFile],
    /// Folder that its archive unpacks to; empty where the files are read as they are.
    pub folder: &'static str,
    /// Number of training and test images.
    pub rows: [usize; 2],
    /// Number of classes.
    pub classes: usize,
    /// Whether each class has as many images as every other.
    pub balanced: bool,
    /// First training and test labels, where they tell a set from others with the same names and sizes.
    pub first_labels: [&'static [u8]; 2],
}

/// A file as published.
#[derive(Debug, PartialEq, Eq)]
pub struct PublishedFile {
    /// Name of the file at its address.
    pub name: &'static str,
    /// Checksum of the file, SHA-256 in hexadecimal digits.
    pub sha256: &'static str,
    /// Checksum of what the file holds before it is compressed, where several sources agree on one.
    pub contents: Option<&'static str>,
}

const fn file(name: &'static str, sha256: &'static str) -> PublishedFile {
    PublishedFile {
        name,
        sha256,
        contents: None,
    }
}

const fn idx(name: &'static str, sha256: &'static str, contents: &'static str) -> PublishedFile {
    PublishedFile {
        name,
        sha256,
        contents: Some(contents),
    }
}

/// MNIST, handwritten digits.
pub static MNIST: Published = Published {
    title: "MNIST",
    kinds: &[Kind::Mnist],
    address: "https://storage.googleapis.com/cvdf-datasets/mnist/",
    files: &[
        idx(
            "train-images-idx3-ubyte.gz",
            "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
            "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
        ),
        idx(
            "train-labels-idx1-ubyte.gz",
            "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
            "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
        ),
        idx(
            "t10k-images-idx3-ubyte.gz",
            "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
            "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
        ),
        idx(
            "t10k-labels-idx1-ubyte.gz",
            "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
            "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
        ),
    ],
    folder: "",
    rows: [60_000, 10_000],
    classes: 10,
    balanced: false,
    first_labels: [
        &[5, 0, 4, 1, 9, 2, 1, 3, 1, 4],
        &[7, 2, 1, 0, 4, 1, 4, 9, 5, 9],
    ],
};

/// Fashion-MNIST, pieces of clothing.
pub static FASHION: Published = Published {
    title: "Fashion-MNIST",
    kinds: &[Kind::Fashion],
    address: "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
    files: &[
        file(
            "train-images-idx3-ubyte.gz",
            "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
        ),
        file(
            "train-labels-idx1-ubyte.gz",
            "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
        ),
        file(
            "t10k-images-idx3-ubyte.gz",
            "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
        ),
        file(
            "t10k-labels-idx1-ubyte.gz",
            "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
        ),
    ],
    folder: "",
    rows: [60_000, 10_000],
    classes: 10,
    balanced: true,
    first_labels: [
        &[9, 0, 0, 3, 0, 2, 7, 2, 5, 5],
        &[9, 2, 1, 1, 6, 1, 4, 6, 5, 7],
    ],
};

/// CIFAR-10, its binary version.
pub static CIFAR10: Published = Published {
    title: "CIFAR-10",
    kinds: &[Kind::Cifar10],
    address: "https://www.cs.toronto.edu/~kriz/",
    files: &[file(
        "cifar-10-binary.tar.gz",
        "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
    )],
    folder: "cifar-10-batches-bin",
    rows: [50_000, 10_000],
    classes: 10,
    balanced: true,
    first_labels: [&[]; 2],
};

/// CIFAR-100, its binary version.
pub static CIFAR100: Published = Published {
    title: "CIFAR-100",
    kinds: &[Kind::Cifar100, Kind::Cifar20],
    address: "https://www.cs.toronto.edu/~kriz/",
    files: &[file(
        "cifar-100-binary.tar.gz",
        "58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec",
    )],
    folder: "cifar-100-binary",
    rows: [50_000, 10_000],
    classes: 100,
    balanced: true,
    first_labels: [&[]; 2],
};

/// Tiny ImageNet, 200 classes of ImageNet at 64×64.
pub static TINY_IMAGENET: Published = Published {
    title: "Tiny ImageNet",
    kinds: &[Kind::TinyImagenet],
    address: "http://cs231n.stanford.edu/",
    files: &[file(
        "tiny-imagenet-200.zip",
        "6198c8ae015e2b3e007c7841da39ec069199b9aa3bfa943a462022fe5e43c821",
    )],
    folder: "tiny-imagenet-200",
    rows: [100_000, 10_000],
    classes: 200,
    balanced: true,
    first_labels: [&[]; 2],
};

/// Every published set that can be read.
pub static PUBLISHED: [&Published; 5] = [&MNIST, &FASHION, &CIFAR10, &CIFAR100, &TINY_IMAGENET];
