//! CIFAR-10 as published (binary version) or as PNG batches, and CIFAR-100 with either of its two labels.
//!
//! A binary record is the label (CIFAR-10) or the coarse and the fine label (CIFAR-100), one byte each, and 3072 bytes:
//! the red, green and blue plane of 32×32. A PNG batch is 1024 pixels wide; each of its rows is one image, pixel after
//! pixel, and its labels are in a JSON list of all training or test rows.
//!
//! Reading takes twice the bytes of the binary files and of the pixels of PNG batches, of which one has at most 192 MiB,
//! and twelve times those of the JSON lists, which have at most 8 MiB.

use std::path::{Path, PathBuf};

use rayon::prelude::*;

use super::files::{
    LONGEST_LIST, check_folder, class_names, entries, label_fault, name_of, read_bytes, unpacked,
};
use super::set::ImageSet;
use super::{decode, names, published};
use crate::data::{ClassNames, MIB, shown};
use crate::{Error, Result};

/// Longest binary file; that of CIFAR-100 has 154 MB.
const LONGEST_PART: u64 = 1024 * MIB;
const SHAPE: [usize; 3] = [3, 32, 32];
const PLANE: usize = 32 * 32;
const IMAGE: usize = 3 * PLANE;
const BATCHES: [&str; 6] = [
    "data_batch_1",
    "data_batch_2",
    "data_batch_3",
    "data_batch_4",
    "data_batch_5",
    "test_batch",
];
const TRAIN_BATCHES: usize = 5;

/// Labels of `N` kinds and pixels of some rows, CHW.
struct Rows<const N: usize> {
    labels: [Vec<i64>; N],
    pixels: Vec<u8>,
}

/// Meaning of a label byte, and the number of its classes.
type LabelKind = (&'static str, usize);

const LABEL: [LabelKind; 1] = [("label", 10)];
const COARSE_AND_FINE: [LabelKind; 2] = [("coarse label", 20), ("fine label", 100)];

impl<const N: usize> Rows<N> {
    fn new() -> Self {
        Self {
            labels: [const { Vec::new() }; N],
            pixels: Vec::new(),
        }
    }
}

/// Whether a folder has batches of CIFAR-10 in any version.
#[cfg(feature = "cli")]
pub(super) fn is_here10(root: &Path) -> bool {
    BATCHES.iter().any(|stem| {
        let name = |extension: &str| root.join(format!("{stem}{extension}"));
        ["", ".bin", ".png"].map(name).iter().any(|p| p.is_file())
    })
}

/// Whether a folder has the files of CIFAR-100: the binary ones under a name that is read, or those of the Python version.
#[cfg(feature = "cli")]
pub(super) fn is_here100(root: &Path) -> bool {
    let python = root.join("train").is_file() && root.join("meta").is_file();
    python
        || ["train", "test"]
            .iter()
            .any(|stem| one_file(root, stem).is_ok())
}

/// What is wrong with each binary file of CIFAR-10 or CIFAR-100 that is there, taken by itself.
#[cfg(feature = "cli")]
pub(super) fn faults_of_files(root: &Path, fine: bool) -> Vec<Error> {
    let check = |path: &Path| {
        let bytes = read_bytes(path, LONGEST_PART)?;
        match fine {
            true => records(path, &bytes, COARSE_AND_FINE, &mut Rows::new()),
            false => records(path, &bytes, LABEL, &mut Rows::new()),
        }
    };
    let files: Vec<PathBuf> = match fine {
        true => ["train", "test"]
            .iter()
            .filter_map(|stem| one_file(root, stem).ok())
            .collect(),
        false => BATCHES
            .iter()
            .map(|stem| root.join(format!("{stem}.bin")))
            .filter(|path| path.exists())
            .collect(),
    };
    files.iter().filter_map(|path| check(path).err()).collect()
}

/// Training and test images of CIFAR-10.
pub(super) fn open10(root: &Path) -> Result<(ImageSet, ImageSet)> {
    check_folder(root)?;
    let root = &unpacked(
        root,
        published::CIFAR10.folder,
        &["data_batch_1.bin", "data_batch_1.png", "test_batch.bin"],
    );
    let classes = class_names(&root.join("batches.meta.txt"), &names::CIFAR10)?;
    let present = |extension: &str| {
        let path = |stem| root.join(format!("{stem}.{extension}"));
        let (here, missing): (Vec<_>, Vec<_>) = BATCHES.iter().map(path).partition(|p| p.exists());
        (here, missing)
    };
    let ((binary, no_binary), (png, no_png)) = (present("bin"), present("png"));
    if no_binary.is_empty() {
        return binary10(&binary, &classes);
    }
    if no_png.is_empty() {
        return png10(root, &png, &classes);
    }
    // The layout that is there in part is the one that is meant.
    let (missing, layout) = match (binary.is_empty(), png.is_empty()) {
        (false, _) => (no_binary, ".bin"),
        (true, false) => (no_png, ".png"),
        (true, true) => {
            let problem = if root.join(BATCHES[0]).exists() {
                "this is the Python version of CIFAR-10"
            } else {
                "the folder has no CIFAR-10 batches"
            };
            return Err(Error::format(
                root,
                problem,
                "data_batch_1.bin to data_batch_5.bin and test_batch.bin (the binary version), or the same as .png",
            ));
        }
    };
    let missing: Vec<String> = missing.iter().map(|path| name_of(path)).collect();
    Err(Error::format(
        root,
        format!("missing: {}", missing.join(", ")),
        format!("all six CIFAR-10 batches as {layout}"),
    ))
}

fn binary10(paths: &[PathBuf], classes: &ClassNames) -> Result<(ImageSet, ImageSet)> {
    let part = |paths: &[PathBuf]| {
        let mut rows = Rows::new();
        for path in paths {
            records(path, &read_bytes(path, LONGEST_PART)?, LABEL, &mut rows)?;
        }
        let [labels] = rows.labels;
        ImageSet::new(SHAPE, rows.pixels, labels, classes.clone())
    };
    let (train, test) = paths.split_at(TRAIN_BATCHES);
    Ok((part(train)?, part(test)?))
}

fn png10(root: &Path, paths: &[PathBuf], classes: &ClassNames) -> Result<(ImageSet, ImageSet)> {
    let labels = |name: &str| -> Result<(PathBuf, Vec<i64>)> {
        // The published package spells it so.
        let path = root.join(format!("{name}_lables.json"));
        let labels = json_labels(&path, &read_bytes(&path, LONGEST_LIST)?)?;
        Ok((path, labels))
    };
    let (train_labels, test_labels) = (labels("train")?, labels("test")?);
    let batches: Result<Vec<Vec<u8>>> = paths.par_iter().map(|path| png_batch(path)).collect();
    let mut train = batches?;
    let test = train.split_off(TRAIN_BATCHES);
    let part = |pixels: Vec<u8>, (path, labels): (PathBuf, Vec<i64>)| {
        if labels.len() * IMAGE != pixels.len() {
            return Err(Error::format(
                path,
                format!("{} labels", labels.len()),
                format!("{}, one for each image", pixels.len() / IMAGE),
            ));
        }
        ImageSet::new(SHAPE, pixels, labels, classes.clone())
    };
    Ok((
        part(train.concat(), train_labels)?,
        part(test.concat(), test_labels)?,
    ))
}

fn png_batch(path: &Path) -> Result<Vec<u8>> {
    let (_, width, pixels) = decode::rgb_png(path)?;
    if width != PLANE {
        return Err(Error::format(
            path,
            format!("rows of {width} pixels"),
            format!("rows of {PLANE} pixels, each a 32×32 image"),
        ));
    }
    let mut planes = vec![0; pixels.len()];
    for (image, planes) in pixels
        .chunks_exact(IMAGE)
        .zip(planes.chunks_exact_mut(IMAGE))
    {
        decode::split_planes(image, planes);
    }
    Ok(planes)
}

fn json_labels(path: &Path, bytes: &[u8]) -> Result<Vec<i64>> {
    let labels: Vec<i64> = serde_json::from_slice(bytes).map_err(|e| {
        Error::format(
            path,
            format!("not a list of labels ({})", shown(&e.to_string(), 120)),
            "a JSON list of numbers from 0 to 9",
        )
    })?;
    match labels.iter().position(|label| !(0..10).contains(label)) {
        Some(row) => Err(label_fault(path, "label", row, labels[row], 10)),
        None => Ok(labels),
    }
}

/// Training and test images of CIFAR-100: labelled by the 100 fine classes, or by the 20 coarse ones with the fine ones
/// beside them.
pub(super) fn open100(root: &Path, coarse: bool) -> Result<(ImageSet, ImageSet)> {
    check_folder(root)?;
    let root = &unpacked(root, published::CIFAR100.folder, &["train.bin", "test.bin"]);
    let fine_names = class_names(&root.join("fine_label_names.txt"), &names::CIFAR100)?;
    let coarse_names = class_names(&root.join("coarse_label_names.txt"), &names::CIFAR20)?;
    let part = |stem: &str| {
        let path = one_file(root, stem)?;
        let mut rows = Rows::new();
        let bytes = read_bytes(&path, LONGEST_PART)?;
        records(&path, &bytes, COARSE_AND_FINE, &mut rows)?;
        let [coarse_labels, fine_labels] = rows.labels;
        if coarse {
            ImageSet::new(SHAPE, rows.pixels, coarse_labels, coarse_names.clone())?
                .with_fine(fine_labels, fine_names.clone())
        } else {
            ImageSet::new(SHAPE, rows.pixels, fine_labels, fine_names.clone())
        }
    };
    Ok((part("train")?, part("test")?))
}

/// `train.bin`, or the only `train*.bin`.
fn one_file(root: &Path, stem: &str) -> Result<PathBuf> {
    let exact = root.join(format!("{stem}.bin"));
    if exact.exists() {
        return Ok(exact);
    }
    let mut found = entries(root)?;
    found.retain(|path| {
        let name = name_of(path);
        name.starts_with(stem) && name.ends_with(".bin")
    });
    match &found[..] {
        [path] => Ok(path.clone()),
        [] => Err(Error::format(
            root,
            if root.join(stem).exists() {
                "this is the Python version of CIFAR-100".to_owned()
            } else {
                format!("the folder has no {stem}.bin")
            },
            format!("{stem}.bin of CIFAR-100 (the binary version), or one file {stem}*.bin"),
        )),
        [first, second, ..] => Err(Error::format(
            root,
            format!("both {} and {}", name_of(first), name_of(second)),
            format!("{stem}.bin, or only one file {stem}*.bin"),
        )),
    }
}

/// Appends the records of a file: one byte for each kind of label, then the pixels.
fn records<const N: usize>(
    path: &Path,
    bytes: &[u8],
    kinds: [LabelKind; N],
    rows: &mut Rows<N>,
) -> Result<()> {
    let record = N + IMAGE;
    if bytes.is_empty() || !bytes.len().is_multiple_of(record) {
        return Err(Error::format(
            path,
            format!(
                "{} bytes, which is {} records of {record} bytes and {} bytes more",
                bytes.len(),
                bytes.len() / record,
                bytes.len() % record
            ),
            "whole records, at least one",
        ));
    }
    rows.pixels.reserve(bytes.len() / record * IMAGE);
    for (row, record) in bytes.chunks_exact(record).enumerate() {
        let (labels, pixels) = record.split_at(N);
        for ((&label, (kind, classes)), column) in labels.iter().zip(kinds).zip(&mut rows.labels) {
            if usize::from(label) >= classes {
                return Err(label_fault(path, kind, row, label.into(), classes));
            }
            column.push(label.into());
        }
        rows.pixels.extend_from_slice(pixels);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn records_or_error<const N: usize>(bytes: &[u8], kinds: [LabelKind; N]) {
        let mut rows = Rows::new();
        match records(Path::new("x.bin"), bytes, kinds, &mut rows) {
            Ok(()) => assert_eq!(rows.pixels.len(), rows.labels[0].len() * IMAGE),
            Err(e) => assert!(e.is_input() && e.to_string().starts_with("x.bin: ")),
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_records_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..4 * 3074)) {
            records_or_error(&bytes, LABEL);
            records_or_error(&bytes, COARSE_AND_FINE);
        }

        #[test]
        fn any_bytes_are_labels_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            if let Err(e) = json_labels(Path::new("x.json"), &bytes) {
                prop_assert!(e.is_input() && e.to_string().starts_with("x.json: "));
            }
        }

        #[test]
        fn whole_records_are_read(labels in prop::collection::vec(0_u8..120, 1..4), fill: u8) {
            let mut bytes = Vec::new();
            for &label in &labels {
                bytes.extend([0, label]);
                bytes.extend([fill; IMAGE]);
            }
            let mut rows = Rows::new();
            let read = records(Path::new("x.bin"), &bytes, COARSE_AND_FINE, &mut rows);
            match labels.iter().position(|&label| label >= 100) {
                Some(row) => {
                    let wanted = format!("fine label {} at row {row} is out of range", labels[row]);
                    prop_assert!(read.unwrap_err().to_string().contains(&wanted));
                }
                None => {
                    read.unwrap();
                    let labels: Vec<i64> = labels.into_iter().map(i64::from).collect();
                    prop_assert_eq!(rows.pixels, vec![fill; labels.len() * IMAGE]);
                    prop_assert_eq!(&rows.labels[1], &labels);
                }
            }
        }
    }
}
