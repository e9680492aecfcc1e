//! What a folder holds, and whether it is whole: what a person asks before a run, and after one that complained.
//!
//! [`examine`] tells by content which of the sets of [`open`] a folder has, reads all of it with the
//! readers that a run would use, and compares with the set as [published](super::published): checksums of archives that
//! lie there, numbers of images, images of each class. An [`Examination`] names every fault and what to do about them.
//!
//! ```
//! use muso::data::images::examine::{Advice, examine};
//! let folder = tempfile::tempdir().unwrap();
//! let found = examine(folder.path(), &mut ())?;
//! assert_eq!(found.faults[0].to_string().split(": ").nth(1), Some("the folder is empty; expected an image set"));
//! assert!(matches!(found.advice[..], [Advice::FetchAny]));
//! # Ok::<(), muso::Error>(())
//! ```

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use rayon::prelude::*;
use sha2::{Digest, Sha256};

use super::files::{check_folder, entries, name_of};
use super::published::{
    CIFAR10, CIFAR100, FASHION, MNIST, PUBLISHED, Published, PublishedFile, TINY_IMAGENET,
};
use super::{Dataset, ImageSet, Kind, cifar, decode, gray, open, open_resized, tree};
use crate::data::idx::{self, IdxArray};
use crate::progress::{Progress, check};
use crate::{Error, Result};

/// What was found out about a folder.
#[derive(Debug)]
#[non_exhaustive]
pub struct Examination {
    /// Path that was examined.
    pub path: PathBuf,
    /// The image set in it, if there is one.
    pub found: Option<Found>,
    /// Files whose checksums were compared.
    pub sums: Vec<Sum>,
    /// Everything that is wrong; nothing is where the set is whole.
    pub faults: Vec<Error>,
    /// What to do about the faults, in this order.
    pub advice: Vec<Advice>,
}

/// An image set in a folder.
#[derive(Debug)]
#[non_exhaustive]
pub struct Found {
    /// Name that people know the set by.
    pub title: String,
    /// Kinds that a run may read it as, the usual one first.
    pub kinds: Vec<Kind>,
    /// The published set that it is, or is a part of.
    pub published: Option<&'static Published>,
    /// Folder that the files are in.
    pub folder: PathBuf,
    /// Training and test images, where a run could read them.
    pub parts: Option<[Part; 2]>,
}

/// The training or the test images of a set.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Part {
    /// Number of images.
    pub images: usize,
    /// Number of classes, those without an image here among them.
    pub classes: usize,
    /// Images of the smallest and of the largest class.
    pub of_class: (usize, usize),
    /// Channels, height and width; absent where images differ and a run has to scale them.
    pub shape: Option<[usize; 3]>,
}

/// A file whose checksum was compared with those of published files.
#[derive(Debug)]
#[non_exhaustive]
pub struct Sum {
    /// Path of the file.
    pub path: PathBuf,
    /// Its SHA-256 in hexadecimal digits.
    pub sha256: String,
    /// The published file that it is, byte for byte.
    pub is: Option<&'static PublishedFile>,
}

/// Something to do about a fault.
#[derive(Debug)]
#[non_exhaustive]
pub enum Advice {
    /// Name this folder instead.
    Name(PathBuf),
    /// Unpack an archive, which is whole.
    Unpack(PathBuf, &'static Published),
    /// Fetch the named files of a set, and unpack what is an archive.
    Fetch(&'static Published, Vec<&'static PublishedFile>),
    /// Fetch any of the published sets, or name another folder.
    FetchAny,
    /// Put the class folders into one folder for training and one for testing.
    Split,
    /// Replace or remove the files that are named.
    Replace,
}

/// Layouts that can be told apart by the names of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Layout {
    Idx,
    Cifar10,
    Cifar100,
    TinyImagenet,
    Folder,
}

impl Layout {
    /// The layout of the files right in this folder.
    fn of(folder: &Path) -> Option<Self> {
        if gray::files(folder).iter().any(Result::is_ok) {
            Some(Self::Idx)
        } else if cifar::is_here10(folder) {
            Some(Self::Cifar10)
        } else if tree::is_tiny_here(folder) {
            Some(Self::TinyImagenet)
        } else if cifar::is_here100(folder) {
            Some(Self::Cifar100)
        } else if tree::is_here(folder) {
            Some(Self::Folder)
        } else {
            None
        }
    }

    fn title(self) -> &'static str {
        match self {
            Self::Idx => "an image set in IDX files",
            Self::Cifar10 => CIFAR10.title,
            Self::Cifar100 => CIFAR100.title,
            Self::TinyImagenet => TINY_IMAGENET.title,
            Self::Folder => "a folder of images for each class",
        }
    }

    /// The published set with the layout, if there is only one.
    fn published(self) -> Option<&'static Published> {
        match self {
            Self::Cifar10 => Some(&CIFAR10),
            Self::Cifar100 => Some(&CIFAR100),
            Self::TinyImagenet => Some(&TINY_IMAGENET),
            Self::Idx | Self::Folder => None,
        }
    }
}

/// Says what a folder holds, and whether it is whole. Reads all of it; `progress` hears of it and may stop it.
///
/// # Errors
/// If there is no such folder, if it cannot be listed, or if `progress` stops it. Whatever is wrong with the contents is
/// among the [faults](Examination::faults).
pub fn examine(path: &Path, progress: &mut dyn Progress) -> Result<Examination> {
    let mut found = Examination {
        path: path.to_owned(),
        found: None,
        sums: Vec::new(),
        faults: Vec::new(),
        advice: Vec::new(),
    };
    if path.is_file() {
        found.file(path, progress)?;
        return Ok(found);
    }
    check_folder(path)?;
    let here = entries(path)?;
    let archives = here
        .iter()
        .filter(|path| path.is_file() && is_archive(path));
    for archive in archives {
        let sum = Sum::of(archive, progress)?;
        found.sums.push(sum);
    }
    // A run goes into the folder that a published archive unpacks to by itself.
    let within = subfolders(path);
    let (layout, root) = match (Layout::of(path), &within[..]) {
        (Some(layout), _) => (layout, path.to_owned()),
        (None, [(root, layout)])
            if layout
                .published()
                .is_some_and(|set| path.join(set.folder) == *root) =>
        {
            (*layout, root.clone())
        }
        _ => {
            found.nothing(&here, within);
            return Ok(found);
        }
    };
    // Archives usually lie beside the folder that they unpack to.
    if let Some(set) = layout.published()
        && let Some(above) = root.parent()
    {
        for file in set.files {
            let archive = above.join(file.name);
            if archive.is_file() && !found.sums.iter().any(|sum| sum.path == archive) {
                found.sums.push(Sum::of(&archive, progress)?);
            }
        }
    }
    let mut set = Found {
        title: layout.title().to_owned(),
        kinds: layout
            .published()
            .map_or(vec![Kind::Folder], |set| set.kinds.to_vec()),
        published: layout.published(),
        folder: root,
        parts: None,
    };
    match layout {
        Layout::Idx => found.idx(&mut set),
        Layout::Cifar10 | Layout::Cifar100 => found.cifar(&mut set, layout == Layout::Cifar100),
        Layout::TinyImagenet | Layout::Folder => found.images(&mut set, progress)?,
    }
    found.compare(&set);
    found.advise(&set);
    found.found = Some(set);
    Ok(found)
}

impl Examination {
    /// Returns whether there is a set that a run can read and nothing is wrong with it.
    pub fn is_whole(&self) -> bool {
        self.faults.is_empty() && self.found.as_ref().is_some_and(|set| set.parts.is_some())
    }

    fn fault(&mut self, path: &Path, problem: impl Into<String>, expected: impl Into<String>) {
        self.faults.push(Error::format(path, problem, expected));
    }

    /// A file where a folder should be: a packed set, or a part of one.
    fn file(&mut self, path: &Path, progress: &mut dyn Progress) -> Result<()> {
        let above = path.parent().filter(|above| above.is_dir());
        let (mut problem, mut expected) = ("this is not a folder".to_owned(), "a folder");
        if is_archive(path) {
            let sum = Sum::of(path, progress)?;
            if let Some((set, _)) = sum.set() {
                problem = format!("this is {} as published, still packed", set.title);
                expected = "the folder that its files are in";
                self.advice.push(match set.folder {
                    "" => Advice::Name(above.unwrap_or(Path::new(".")).to_owned()),
                    _ => Advice::Unpack(path.to_owned(), set),
                });
            } else if let Some((set, file)) = named(path) {
                problem = format!(
                    "this is not {} as published: its SHA-256 is {}",
                    file.name, sum.sha256
                );
                expected = file.sha256;
                self.advice.push(Advice::Fetch(set, vec![file]));
            }
            self.sums.push(sum);
        } else if let Some(above) = above
            && Layout::of(above).is_some()
        {
            self.advice.push(Advice::Name(above.to_owned()));
        }
        self.fault(path, problem, expected);
        Ok(())
    }

    /// A folder without a set right in it: the set may be packed, below, above or not there at all.
    fn nothing(&mut self, here: &[PathBuf], within: Vec<(PathBuf, Layout)>) {
        let path = self.path.clone();
        let expected = "an image set";
        for i in 0..self.sums.len() {
            let sum = &self.sums[i];
            match (sum.set(), named(&sum.path)) {
                (Some((set, file)), _) if set.folder.is_empty() => {
                    let problem = format!("{} under another name", set.title);
                    let fault = Error::format(&sum.path, problem, file.name);
                    self.faults.push(fault);
                }
                (Some((set, _)), _) if within.is_empty() => {
                    self.advice.push(Advice::Unpack(sum.path.clone(), set));
                    self.faults.push(Error::format(
                        &sum.path,
                        format!("{} is still packed", set.title),
                        "its files, unpacked",
                    ));
                }
                (None, Some((set, file))) => {
                    self.advice.push(Advice::Fetch(set, vec![file]));
                    let fault = sum.fault(file);
                    self.faults.push(fault);
                }
                _ => {}
            }
        }
        if !within.is_empty() {
            let listed: Vec<String> = within
                .iter()
                .take(8)
                .map(|(folder, layout)| {
                    let inner = folder.strip_prefix(&path).unwrap_or(folder);
                    format!("{} in {}", layout.title(), inner.display())
                })
                .collect();
            let what = match &listed[..] {
                [_] => "the image set is",
                _ => "several image sets are",
            };
            let problem = format!("{what} further down: {}", listed.join(", "));
            self.fault(&path, problem, "the folder of one image set");
            let named = within.into_iter().map(|(folder, _)| Advice::Name(folder));
            self.advice.extend(named.take(8));
            return;
        }
        if !self.faults.is_empty() {
            return;
        }
        let absolute = fs::canonicalize(&path).unwrap_or_else(|_| path.clone());
        let above = absolute.ancestors().skip(1).take(3);
        let mut above = above.filter_map(|folder| Some((folder, Layout::of(folder)?)));
        if let Some((folder, layout)) = above.next() {
            let problem = format!("this is a folder within {}", layout.title());
            self.fault(&path, problem, format!("{}", folder.display()));
            self.advice.push(Advice::Name(folder.to_owned()));
            return;
        }
        if tree::has_classes(&path) {
            let problem = "class folders, but no folders train and test";
            self.fault(&path, problem, "train/CLASS/ and test/CLASS/ or val/CLASS/");
            self.advice.push(Advice::Split);
            return;
        }
        let problem = match here {
            [] => "the folder is empty",
            _ => "nothing here looks like an image set",
        };
        self.fault(&path, problem, expected);
        self.advice.push(Advice::FetchAny);
    }

    /// MNIST, Fashion-MNIST, or another set in IDX files.
    fn idx(&mut self, set: &mut Found) {
        let paths = gray::files(&set.folder);
        let mut arrays: Vec<Option<(PathBuf, IdxArray)>> = Vec::new();
        for path in paths {
            let read = path.and_then(|path| Ok((idx::read(&path)?, path)));
            arrays.push(match read {
                Ok((array, path)) => Some((path, array)),
                Err(fault) => {
                    self.faults.push(fault);
                    None
                }
            });
        }
        // Any part that is known tells whose the rest should be.
        let contents: Vec<Option<String>> = arrays
            .iter()
            .map(|array| array.as_ref().map(|(_, array)| contents_sum(array)))
            .collect();
        let known = |set: &Published| {
            self.sums.iter().any(|sum| sum.is_of(set))
                || (set.files.iter().zip(&contents))
                    .any(|(file, sum)| sum.is_some() && file.contents == sum.as_deref())
                || (set.first_labels.iter().zip([&arrays[1], &arrays[3]])).any(|(first, labels)| {
                    let labels = labels.as_ref().map(|(_, array)| &array.values);
                    labels.is_some_and(|labels| labels.starts_with(first))
                })
        };
        set.published = [&MNIST, &FASHION].into_iter().find(|set| known(set));
        if let Some(published) = set.published {
            set.title = published.title.to_owned();
            set.kinds = published.kinds.to_vec();
        } else {
            set.kinds = vec![Kind::Mnist, Kind::Fashion];
        }
        if self.faults.is_empty() {
            let data = open(set.kinds[0], Some(&set.folder));
            self.open(set, data);
        }
        let Some(published) = set.published else {
            return;
        };
        for ((array, sum), file) in arrays.iter().zip(&contents).zip(published.files) {
            let (Some((path, _)), Some(sum)) = (array, sum) else {
                continue;
            };
            let packed = self.sums.iter().find(|sum| sum.path == *path);
            if packed.is_some_and(|sum| sum.is == Some(file)) {
                continue;
            }
            if let Some(wanted) = file.contents
                && wanted != sum
            {
                let problem = format!(
                    "the file is intact but not that of {}: SHA-256 of its contents {sum}",
                    published.title
                );
                self.faults.push(Error::format(path, problem, wanted));
            }
        }
    }

    fn cifar(&mut self, set: &mut Found, fine: bool) {
        self.faults = cifar::faults_of_files(&set.folder, fine);
        // With coarse labels the fine ones come as well.
        let kind = if fine { Kind::Cifar20 } else { Kind::Cifar10 };
        let data = open(kind, Some(&set.folder));
        if self.faults.is_empty() || data.is_ok() {
            self.open(set, data);
        } else if let Err(error) = data
            && !self
                .faults
                .iter()
                .any(|fault| fault.to_string() == error.to_string())
        {
            self.faults.push(error);
        }
    }

    fn images(&mut self, set: &mut Found, progress: &mut dyn Progress) -> Result<()> {
        // Scaled, since whether the images of a folder are of one size is seen below.
        let data = match set.kinds[0] {
            Kind::Folder => open_resized(Kind::Folder, Some(&set.folder), 1),
            kind => open(kind, Some(&set.folder)),
        };
        let data = match data {
            Ok(data) => data,
            Err(fault) => {
                self.faults.push(fault);
                return Ok(());
            }
        };
        let parts = [data.train.files(), data.test.files()];
        let files = parts.concat();
        let mut sizes = Vec::with_capacity(files.len());
        for (done, some) in files.chunks(IMAGES_AT_A_TIME).enumerate() {
            let done = done * IMAGES_AT_A_TIME;
            check(progress, "decoding", done as u64, files.len() as u64)?;
            sizes.par_extend(some.par_iter().map(|path| decode::whole(path)));
        }
        let published = set.published.is_some();
        let mut common = None;
        let mut differ = false;
        for (path, size) in files.iter().zip(sizes) {
            let wanted = [data.train.shape()[1], data.train.shape()[2]];
            match size {
                Ok((height, width)) if published && [height, width] != wanted => {
                    self.faults.push(decode::wrong_size(
                        path,
                        (height, width),
                        (wanted[0], wanted[1]),
                    ));
                }
                Ok(size) => differ |= *common.get_or_insert(size) != size,
                Err(fault) => self.faults.push(fault),
            }
        }
        let shape = common
            .filter(|_| !differ)
            .map(|(height, width)| [3, height, width]);
        let part = |images: &ImageSet| Part {
            shape,
            ..Part::of(images)
        };
        set.parts = Some([part(&data.train), part(&data.test)]);
        Ok(())
    }

    /// Takes a set as a run would read it, or what a run would complain about.
    fn open(&mut self, set: &mut Found, data: Result<Dataset>) {
        match data {
            Ok(data) => {
                set.parts = Some([Part::of(&data.train), Part::of(&data.test)]);
                if let Some(fault) = coarse_fault(&set.folder, &data) {
                    self.faults.push(fault);
                }
            }
            Err(fault) => self.faults.push(fault),
        }
    }

    /// Holds what was read against what is published.
    fn compare(&mut self, set: &Found) {
        let Some(published) = set.published else {
            return;
        };
        for sum in &self.sums {
            // A file of MNIST that was packed anew has other bytes and the same contents, which were compared.
            if let (None, Some((of, file))) = (sum.is, named(&sum.path))
                && of.folder == published.folder
                && !of.folder.is_empty()
            {
                self.faults.push(sum.fault(file));
            }
        }
        let Some(parts) = &set.parts else { return };
        for ((part, rows), name) in parts.iter().zip(published.rows).zip(["training", "test"]) {
            let title = published.title;
            if part.images != rows {
                let problem = format!("{} {name} images", part.images);
                let expected = format!("{rows} of {title}");
                self.faults
                    .push(Error::format(&set.folder, problem, expected));
            } else if part.classes != published.classes {
                let problem = format!("{} classes", part.classes);
                let expected = format!("{} of {title}", published.classes);
                self.faults
                    .push(Error::format(&set.folder, problem, expected));
            } else if published.balanced && part.of_class.0 != part.of_class.1 {
                let problem = format!(
                    "wrong labels: from {} to {} {name} images of a class",
                    part.of_class.0, part.of_class.1
                );
                let expected = format!("{} of each", rows / published.classes);
                self.faults
                    .push(Error::format(&set.folder, problem, expected));
            }
        }
    }

    fn advise(&mut self, set: &Found) {
        if self.faults.is_empty() {
            return;
        }
        let Some(published) = set.published else {
            self.advice.push(Advice::Replace);
            return;
        };
        let packed = self.sums.iter().find(|sum| sum.is_of(published));
        self.advice.push(match packed {
            Some(sum) if !published.folder.is_empty() => {
                Advice::Unpack(sum.path.clone(), published)
            }
            _ => {
                // Those of which something is wrong; all where that is not of one file.
                let said: Vec<String> = self.faults.iter().map(Error::to_string).collect();
                let stem = |file: &PublishedFile| file.name.split("-idx").next().unwrap_or("");
                let wrong = |file: &&PublishedFile| said.iter().any(|s| s.contains(stem(file)));
                let mut files: Vec<_> = published.files.iter().filter(wrong).collect();
                if files.is_empty() {
                    files = published.files.iter().collect();
                }
                Advice::Fetch(published, files)
            }
        });
    }
}

impl Part {
    fn of(images: &ImageSet) -> Self {
        let usual = (images.labels(), images.classes());
        let (labels, classes) = images.fine().unwrap_or(usual);
        let mut counts = vec![0; classes.len()];
        for &label in labels {
            // Readers have refused labels that are no class.
            counts[label as usize] += 1;
        }
        let least = counts.iter().copied().min().unwrap_or(0);
        Self {
            images: images.len(),
            classes: counts.len(),
            of_class: (least, counts.into_iter().max().unwrap_or(0)),
            shape: Some(images.shape()),
        }
    }
}

impl Sum {
    fn of(path: &Path, progress: &mut dyn Progress) -> Result<Self> {
        let fault = |e| Error::io(path, "read", e);
        let mut file = File::open(path).map_err(fault)?;
        let total = file.metadata().map_err(fault)?.len();
        let mut buffer = vec![0; 1 << 20];
        let (mut hash, mut done) = (Sha256::new(), 0);
        loop {
            check(progress, "checksums", done, total)?;
            match file.read(&mut buffer).map_err(fault)? {
                0 => break,
                n => {
                    hash.update(&buffer[..n]);
                    done += n as u64;
                }
            }
        }
        let sha256 = hex(hash);
        let mut known = PUBLISHED.iter().flat_map(|set| set.files);
        let is = known.find(|file| file.sha256 == sha256);
        Ok(Self {
            path: path.to_owned(),
            sha256,
            is,
        })
    }

    /// The published set that the file is of.
    fn set(&self) -> Option<(&'static Published, &'static PublishedFile)> {
        let file = self.is?;
        let set = PUBLISHED.into_iter().find(|set| set.files.contains(file))?;
        Some((set, file))
    }

    fn is_of(&self, set: &Published) -> bool {
        self.is.is_some_and(|file| set.files.contains(file))
    }

    fn fault(&self, file: &PublishedFile) -> Error {
        let problem = format!("not the published archive: SHA-256 {}", self.sha256);
        Error::format(&self.path, problem, file.sha256)
    }
}

/// Images that are decoded between two looks at whether to stop.
const IMAGES_AT_A_TIME: usize = 1024;

fn hex(hash: Sha256) -> String {
    let bytes = hash.finalize();
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The checksum of an IDX file as it is before it is packed.
fn contents_sum(array: &IdxArray) -> String {
    let mut hash = Sha256::new();
    hash.update([0, 0, 8, array.shape.len() as u8]);
    for &extent in &array.shape {
        hash.update((extent as u32).to_be_bytes());
    }
    hash.update(&array.values);
    hex(hash)
}

fn is_archive(path: &Path) -> bool {
    let extension = path.extension().unwrap_or_default();
    ["gz", "tgz", "zip"]
        .iter()
        .any(|known| extension.eq_ignore_ascii_case(known))
}

/// The published file of this name; of those that share one, the first.
fn named(path: &Path) -> Option<(&'static Published, &'static PublishedFile)> {
    let name = name_of(path);
    let of = |set: &'static Published| set.files.iter().find(|f| f.name == name).map(|f| (set, f));
    PUBLISHED.into_iter().find_map(of)
}

/// The sets in the folders of a folder, and in those of folders without one.
fn subfolders(path: &Path) -> Vec<(PathBuf, Layout)> {
    /// Folders that are looked into: a folder of sets has few.
    const MOST: usize = 64;
    let folders = |path: &Path| -> Vec<PathBuf> {
        let found = entries(path).unwrap_or_default().into_iter();
        found.filter(|path| path.is_dir()).take(MOST).collect()
    };
    let mut found = Vec::new();
    for folder in folders(path) {
        match Layout::of(&folder) {
            Some(layout) => found.push((folder, layout)),
            None => {
                let inner = folders(&folder).into_iter();
                found.extend(inner.filter_map(|f| Layout::of(&f).map(|layout| (f, layout))));
            }
        }
    }
    found
}

/// A fine class of CIFAR-100 with two coarse ones.
fn coarse_fault(folder: &Path, data: &Dataset) -> Option<Error> {
    let (fine, names) = data.train.fine()?;
    let mut coarse_of = BTreeMap::new();
    for (row, (&fine, &coarse)) in fine.iter().zip(data.train.labels()).enumerate() {
        let known = *coarse_of.entry(fine).or_insert(coarse);
        if known != coarse {
            let name = names.name(fine).unwrap_or("?");
            return Some(Error::format(
                folder,
                format!("wrong labels: {name} has coarse label {known}, and {coarse} at row {row}"),
                "one coarse label for each fine one",
            ));
        }
    }
    None
}
