//! MNIST and Fashion-MNIST: the embedded selection, and folders of the four IDX files.

use std::path::{Path, PathBuf};

use super::files::{check_folder, label_fault};
use super::set::ImageSet;
use super::{names, same_shape};
use crate::data::ClassNames;
use crate::data::idx::{self, IdxArray};
use crate::{Error, Result};

/// Training and test images of the Fashion-MNIST selection within the library.
pub(super) fn embedded_fashion() -> Result<(ImageSet, ImageSet)> {
    let part = |name: &str, images: &[u8], labels: &[u8]| {
        let images_name = PathBuf::from(format!("embedded Fashion-MNIST {name} images"));
        let labels_name = PathBuf::from(format!("embedded Fashion-MNIST {name} labels"));
        let images = idx::parse(&images_name, images)?;
        let labels = idx::parse(&labels_name, labels)?;
        pair(&images_name, images, &labels_name, labels, &names::FASHION)
    };
    let train = part(
        "train",
        include_bytes!("../embedded/fashion-train-images.idx3.gz"),
        include_bytes!("../embedded/fashion-train-labels.idx1.gz"),
    )?;
    let test = part(
        "test",
        include_bytes!("../embedded/fashion-test-images.idx3.gz"),
        include_bytes!("../embedded/fashion-test-labels.idx1.gz"),
    )?;
    Ok((train, test))
}

/// Training and test images from a folder of IDX files.
pub(super) fn open(root: &Path, classes: &[&str; 10]) -> Result<(ImageSet, ImageSet)> {
    check_folder(root)?;
    let part = |images: Result<PathBuf>, labels: Result<PathBuf>| {
        let (images, labels) = (images?, labels?);
        pair(
            &images,
            idx::read(&images)?,
            &labels,
            idx::read(&labels)?,
            classes,
        )
    };
    let [train_images, train_labels, test_images, test_labels] = files(root);
    let train = part(train_images, train_labels)?;
    let test = part(test_images, test_labels)?;
    same_shape(root, &train, &test)?;
    Ok((train, test))
}

/// The four files of a folder, under any of their usual names: training images and labels, test images and labels.
pub(super) fn files(root: &Path) -> [Result<PathBuf>; 4] {
    [
        ("train-images", "idx3"),
        ("train-labels", "idx1"),
        ("t10k-images", "idx3"),
        ("t10k-labels", "idx1"),
    ]
    .map(|(stem, kind)| find(root, stem, kind))
}

/// The file under any of its usual names. The name in the archive comes first, and what is unpacked before what is not.
fn find(root: &Path, stem: &str, kind: &str) -> Result<PathBuf> {
    let names = [
        format!("{stem}-{kind}-ubyte"),
        format!("{stem}.{kind}-ubyte"),
        format!("{stem}.{kind}"),
    ];
    let plain = names.iter().map(|name| root.join(name));
    let zipped = names.iter().map(|name| root.join(format!("{name}.gz")));
    plain
        .chain(zipped)
        .find(|path| path.exists())
        .ok_or_else(|| {
            Error::format(
                root,
                format!("the folder has no {}", names[0]),
                format!("{} or {}, plain or with .gz", names[0], names[1]),
            )
        })
}

fn pair(
    images_name: &Path,
    images: IdxArray,
    labels_name: &Path,
    labels: IdxArray,
    classes: &[&str; 10],
) -> Result<ImageSet> {
    let &[count, height, width] = &images.shape[..] else {
        return Err(Error::format(
            images_name,
            format!("an array of shape {:?}", images.shape),
            "images: count, height and width",
        ));
    };
    if count == 0 || height == 0 || width == 0 {
        return Err(Error::format(
            images_name,
            format!("no pixels: shape {:?}", images.shape),
            "at least one image",
        ));
    }
    if labels.shape != [count] {
        return Err(Error::format(
            labels_name,
            format!("an array of shape {:?}", labels.shape),
            format!("[{count}], a label for each image"),
        ));
    }
    let labels: Vec<i64> = labels.values.into_iter().map(i64::from).collect();
    if let Some(row) = labels.iter().position(|&l| l >= classes.len() as i64) {
        return Err(label_fault(
            labels_name,
            "label",
            row,
            labels[row],
            classes.len(),
        ));
    }
    ImageSet::new(
        [1, height, width],
        images.values,
        labels,
        ClassNames::new(*classes),
    )
}
