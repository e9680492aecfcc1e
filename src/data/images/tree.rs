//! Folders of JPEG and PNG files: Tiny ImageNet, and a folder for each class.
//!
//! Lists of classes, words and annotations have at most 8 MiB each and take at most 32 times their bytes.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use rayon::prelude::*;

use super::decode::{self, Fit};
use super::files::{check_folder, entries, image_files, lines, name_of, read_text, unpacked};
use super::published;
use super::set::ImageSet;
use crate::data::ClassNames;
use crate::data::shown;
use crate::{Error, Result};

const TINY_SIDE: usize = 64;

/// Paths and labels of some rows.
#[derive(Default)]
struct Listing {
    files: Vec<PathBuf>,
    labels: Vec<i64>,
}

impl Listing {
    fn add(&mut self, files: Vec<PathBuf>, class: i64) {
        self.labels.resize(self.labels.len() + files.len(), class);
        self.files.extend(files);
    }
}

/// Whether a folder has what only Tiny ImageNet has.
#[cfg(feature = "cli")]
pub(super) fn is_tiny_here(root: &Path) -> bool {
    root.join("wnids.txt").is_file() || root.join("val").join("val_annotations.txt").is_file()
}

/// Whether a folder has folders of images by class for training or testing.
#[cfg(feature = "cli")]
pub(super) fn is_here(root: &Path) -> bool {
    let parts = ["train", "test", "val"].map(|part| root.join(part));
    parts.iter().any(|part| has_classes(part))
}

/// Whether a folder has folders of images in it.
#[cfg(feature = "cli")]
pub(super) fn has_classes(folder: &Path) -> bool {
    class_folders(folder)
        .is_ok_and(|classes| classes.iter().any(|class| image_files(class).is_ok()))
}

/// Training and validation images of Tiny ImageNet, at 64×64 or scaled to a square of another side.
pub(super) fn tiny_imagenet(root: &Path, side: Option<usize>) -> Result<(ImageSet, ImageSet)> {
    check_folder(root)?;
    let root = &unpacked(root, published::TINY_IMAGENET.folder, &["wnids.txt"]);
    let ids_path = root.join("wnids.txt");
    let text = read_text(&ids_path)?;
    let mut ids = BTreeSet::new();
    for (line, id) in lines(&text) {
        let fault = |problem: &str| {
            let problem = format!("line {line}: `{}` {problem}", shown(id, 40));
            Error::format(&ids_path, problem, "one WordNet number on each line")
        };
        // It becomes part of a path, which must not lead elsewhere.
        if !id.bytes().all(|b| b.is_ascii_alphanumeric()) {
            return Err(fault("is not a WordNet number"));
        }
        if !ids.insert(id) {
            return Err(fault("is listed twice"));
        }
    }
    if ids.is_empty() {
        return Err(Error::format(
            &ids_path,
            "the file lists no classes",
            "one WordNet number on each line",
        ));
    }
    let mut words = words(&root.join("words.txt"), &ids)?;
    let classes = ClassNames::with_aliases(
        ids.iter()
            .map(|&id| (id.to_owned(), words.remove(id).unwrap_or_default())),
    );
    // Sorted and not in the order of the file, since that is how a network that was trained from the folders counts.
    let numbers: BTreeMap<&str, i64> = ids.iter().copied().zip(0..).collect();

    let mut train = Listing::default();
    for (&id, &class) in &numbers {
        train.add(
            image_files(&root.join("train").join(id).join("images"))?,
            class,
        );
    }
    let test = annotated(&root.join("val"), &numbers)?;
    let (side, fit) = match side {
        Some(side) => (side, Fit::Cover),
        None => (TINY_SIDE, Fit::Exact),
    };
    let set = |part: Listing| {
        ImageSet::from_files(part.files, side, side, fit, part.labels, classes.clone())
    };
    Ok((set(train)?, set(test)?))
}

/// The words of these WordNet numbers, when there is a file of them: `number TAB word, word`.
fn words(path: &Path, ids: &BTreeSet<&str>) -> Result<BTreeMap<String, Vec<String>>> {
    if !path.exists() {
        return Ok(BTreeMap::new());
    }
    let text = read_text(path)?;
    lines(&text)
        // A line without a tab is a fault, whosever it is.
        .filter(|(_, line)| line.split_once('\t').is_none_or(|(id, _)| ids.contains(id)))
        .map(|(number, line)| {
            let (id, words) = line.split_once('\t').ok_or_else(|| {
                Error::format(
                    path,
                    format!("line {number}: `{}`", shown(line, 40)),
                    "a WordNet number, a tab and words",
                )
            })?;
            let words = words.split(',').map(str::trim);
            let words = words.filter(|word| !word.is_empty()).map(str::to_owned);
            Ok((id.to_owned(), words.collect()))
        })
        .collect()
}

/// The validation images in the order of `val_annotations.txt`: `file TAB number TAB …`.
fn annotated(folder: &Path, numbers: &BTreeMap<&str, i64>) -> Result<Listing> {
    let path = folder.join("val_annotations.txt");
    let text = read_text(&path)?;
    let images = folder.join("images");
    let there: BTreeSet<String> = image_files(&images)?.iter().map(|p| name_of(p)).collect();
    let mut listing = Listing::default();
    for (number, line) in lines(&text) {
        let fault = |problem: String, expected: &str| {
            Error::format(&path, format!("line {number}: {problem}"), expected)
        };
        let mut fields = line.split('\t');
        let (Some(file), Some(id)) = (fields.next(), fields.next()) else {
            let problem = format!("`{}`", shown(line, 40));
            return Err(fault(problem, "a file name, a tab and a WordNet number"));
        };
        let Some(&class) = numbers.get(id) else {
            let problem = format!("class `{}` is not in wnids.txt", shown(id, 40));
            return Err(fault(problem, "a class of wnids.txt"));
        };
        if !there.contains(file) {
            let problem = format!("`{}` is not in {}", shown(file, 40), images.display());
            return Err(fault(problem, "the name of an image"));
        }
        listing.add(vec![images.join(file)], class);
    }
    if listing.files.is_empty() {
        return Err(Error::format(
            &path,
            "the file lists no images",
            "a file name, a tab and a WordNet number on each line",
        ));
    }
    Ok(listing)
}

/// Training and test images from `train/CLASS/*` and `test/CLASS/*` or `val/CLASS/*`; classes count by sorted name.
///
/// Without a side, all images must be of the size of the first.
pub(super) fn folder(root: &Path, side: Option<usize>) -> Result<(ImageSet, ImageSet)> {
    check_folder(root)?;
    let (train_folder, test_folder) = (root.join("train"), test_folder(root)?);
    if !train_folder.is_dir() {
        return Err(Error::format(
            root,
            "the folder has no folder train",
            "train/CLASS/ with the images of each class",
        ));
    }
    let class_folders = class_folders(&train_folder)?;
    let classes = ClassNames::new(class_folders.iter().map(|path| name_of(path)));
    let mut train = Listing::default();
    for (path, class) in class_folders.iter().zip(0..) {
        train.add(image_files(path)?, class);
    }
    let numbers: BTreeMap<String, i64> =
        class_folders.iter().map(|p| name_of(p)).zip(0..).collect();
    let mut test = Listing::default();
    for path in self::class_folders(&test_folder)? {
        let Some(&class) = numbers.get(&name_of(&path)) else {
            return Err(Error::format(
                &path,
                "this class has no training images",
                format!("the classes of {}", train_folder.display()),
            ));
        };
        test.add(image_files(&path)?, class);
    }
    let (height, width, fit) = match side {
        Some(side) => (side, side, Fit::Cover),
        None => {
            let (height, width) = common_size(&train.files, &test.files)?;
            (height, width, Fit::Exact)
        }
    };
    let set = |part: Listing| {
        ImageSet::from_files(part.files, height, width, fit, part.labels, classes.clone())
    };
    Ok((set(train)?, set(test)?))
}

fn test_folder(root: &Path) -> Result<PathBuf> {
    ["test", "val"]
        .iter()
        .map(|name| root.join(name))
        .find(|path| path.is_dir())
        .ok_or_else(|| {
            Error::format(
                root,
                "the folder has neither a folder test nor a folder val",
                "test/CLASS/ or val/CLASS/ with the images of each class",
            )
        })
}

fn class_folders(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = entries(folder)?;
    found.retain(|path| path.is_dir());
    if found.is_empty() {
        return Err(Error::format(
            folder,
            "the folder has no class folders",
            "a folder of images for each class",
        ));
    }
    Ok(found)
}

/// Height and width of the first image, which all others must have.
fn common_size(train: &[PathBuf], test: &[PathBuf]) -> Result<(usize, usize)> {
    let mut all = train.iter().chain(test);
    let Some(first) = all.next() else {
        return Ok((0, 0));
    };
    let wanted = decode::dimensions(first)?;
    let others: Vec<&PathBuf> = all.collect();
    let fault = others
        .par_iter()
        .find_map_first(|path| match decode::dimensions(path) {
            Ok(found) if found == wanted => None,
            Ok(found) => Some(Error::format(
                path,
                format!("the image is {}×{} (height×width)", found.0, found.1),
                format!(
                    "{}×{} like {}, or an image size to scale all images to",
                    wanted.0,
                    wanted.1,
                    first.display()
                ),
            )),
            Err(e) => Some(e),
        });
    match fault {
        Some(error) => Err(error),
        None => Ok(wanted),
    }
}
