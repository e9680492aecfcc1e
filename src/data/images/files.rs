//! What the readers share: text files, sorted folders, and messages about what is missing.

use std::fs;
use std::path::{Path, PathBuf};

use crate::data::{ClassNames, MIB, whole};
use crate::{Error, Result};

/// Longest image and longest batch of images.
pub(super) const LONGEST_IMAGE: u64 = 256 * MIB;
/// Longest list of labels, classes or names.
pub(super) const LONGEST_LIST: u64 = 8 * MIB;

/// The bytes of a regular file of at most `most`. Anything else under its name could keep us waiting for ever.
pub(super) fn read_bytes(path: &Path, most: u64) -> Result<Vec<u8>> {
    check_file(path)?;
    whole::read_bytes(path, most)
}

pub(super) fn read_text(path: &Path) -> Result<String> {
    check_file(path)?;
    whole::read_text(path, LONGEST_LIST)
}

fn check_file(path: &Path) -> Result<()> {
    let found = fs::metadata(path).map_err(|e| Error::io(path, "open", e))?;
    if !found.is_file() {
        return Err(Error::format(path, "this is not a regular file", "a file"));
    }
    Ok(())
}

/// The lines of a text that are not blank, numbered from 1.
pub(super) fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let numbered = (1..).zip(text.lines());
    numbered
        .map(|(number, line)| (number, line.trim()))
        .filter(|(_, line)| !line.is_empty())
}

/// Class names from a file of one name on each line if there is one, else those that are published.
pub(super) fn class_names(path: &Path, published: &[&str]) -> Result<ClassNames> {
    if !path.exists() {
        return Ok(ClassNames::new(published.iter().copied()));
    }
    let text = read_text(path)?;
    let names: Vec<&str> = lines(&text).map(|(_, name)| name).collect();
    if names.len() != published.len() {
        return Err(Error::format(
            path,
            format!("{} names", names.len()),
            format!("{} class names, one on each line", published.len()),
        ));
    }
    Ok(ClassNames::new(names))
}

/// Lists a folder, sorted by name, without hidden entries.
pub(super) fn entries(folder: &Path) -> Result<Vec<PathBuf>> {
    let fault = |e| Error::io(folder, "list the folder", e);
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).map_err(fault)? {
        let path = entry.map_err(fault)?.path();
        if !name_of(&path).starts_with('.') {
            found.push(path);
        }
    }
    found.sort_unstable();
    Ok(found)
}

/// The JPEG and PNG files of a folder by their extensions, sorted by name.
pub(super) fn image_files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files = entries(folder)?;
    files.retain(|path| {
        let extension = path.extension().unwrap_or_default();
        ["jpg", "jpeg", "png"]
            .iter()
            .any(|known| extension.eq_ignore_ascii_case(known))
    });
    if files.is_empty() {
        return Err(Error::format(
            folder,
            "the folder has no images",
            "at least one .jpg, .jpeg or .png file",
        ));
    }
    Ok(files)
}

pub(super) fn name_of(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

/// The folder itself or, when it has none of the files, the folder within it that the published archive unpacks to.
pub(super) fn unpacked(root: &Path, archive: &str, files: &[&str]) -> PathBuf {
    let inner = root.join(archive);
    let here = files.iter().any(|name| root.join(name).exists());
    if !here && inner.is_dir() {
        inner
    } else {
        root.to_owned()
    }
}

/// A folder, before anything in it is looked for: the message is then about the folder.
pub(super) fn check_folder(path: &Path) -> Result<()> {
    let found = fs::metadata(path).map_err(|e| Error::io(path, "open", e))?;
    if !found.is_dir() {
        return Err(Error::format(path, "this is not a folder", "a folder"));
    }
    Ok(())
}

/// A label that is no class.
pub(super) fn label_fault(
    path: &Path,
    kind: &str,
    row: usize,
    label: i64,
    classes: usize,
) -> Error {
    Error::format(
        path,
        format!("{kind} {label} at row {row} is out of range"),
        format!("labels of {classes} classes, 0 to {}", classes - 1),
    )
}
