//! What is published: every package carries the texts of the licences that it names, and nothing under another one.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::support::{cargo, sources};

/// A package that is published.
struct Package {
    name: String,
    license: String,
    root: PathBuf,
    /// Paths from the root of the package, without those that Cargo makes.
    files: Vec<String>,
}

impl Package {
    fn read(&self, file: &str) -> Vec<u8> {
        let path = self.root.join(file);
        std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
    }

    /// The licences of its expression.
    fn licences(&self) -> BTreeSet<&str> {
        let words = self.license.split([' ', '(', ')']);
        words
            .filter(|word| !["", "AND", "OR"].contains(word))
            .collect()
    }
}

fn published() -> Vec<Package> {
    let metadata = cargo(&["metadata", "--no-deps", "--format-version", "1"]);
    let metadata: Value = serde_json::from_str(&metadata).unwrap();
    let mut found = Vec::new();
    for package in metadata["packages"].as_array().unwrap() {
        // `publish = false` is an empty list of registries.
        if package["publish"].as_array().is_some_and(Vec::is_empty) {
            continue;
        }
        let text = |key: &str| package[key].as_str().unwrap().to_owned();
        let name = text("name");
        let listed = cargo(&["package", "--list", "--allow-dirty", "-p", &name]);
        let made = ["Cargo.lock", "Cargo.toml.orig", ".cargo_vcs_info.json"];
        found.push(Package {
            license: text("license"),
            root: Path::new(&text("manifest_path"))
                .parent()
                .unwrap()
                .to_owned(),
            files: listed
                .lines()
                .map(|line| line.replace('\\', "/"))
                .filter(|file| !made.contains(&file.as_str()))
                .collect(),
            name,
        });
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    found
}

#[test]
fn packages_carry_the_licences_that_they_name() {
    let packages = published();
    let names: Vec<&str> = packages.iter().map(|p| p.name.as_str()).collect();
    assert_eq!(names, ["muso", "muso-digits", "muso-models"]);
    let ours = Path::new(env!("CARGO_MANIFEST_DIR"));
    for package in &packages {
        let name = &package.name;
        let texts: BTreeSet<&str> = package
            .files
            .iter()
            .filter_map(|file| file.strip_prefix("LICENSE-"))
            .collect();
        // The files have the usual short name of Apache-2.0.
        let short = |licence| {
            if licence == "Apache-2.0" {
                "APACHE"
            } else {
                licence
            }
        };
        let named: BTreeSet<&str> = package.licences().into_iter().map(short).collect();
        assert_eq!(texts, named, "{name} is under {}", package.license);
        for text in ["LICENSE-MIT", "LICENSE-APACHE"] {
            let same = package.read(text) == std::fs::read(ours.join(text)).unwrap();
            assert!(same, "{text} of {name} is another text than ours");
        }
        let by_sa = name == "muso-digits";
        assert_eq!(package.licences().contains("CC-BY-SA-3.0"), by_sa, "{name}");
        if by_sa {
            let text = package.read("LICENSE-CC-BY-SA-3.0");
            assert!(text.starts_with(b"Creative Commons Legal Code"));
        }
    }
}

/// What is not text is somebody's data: a notice in the same folder names it and says under which licence it is, which is
/// one of the package's own. The digits are in their own package and in no other, under any name.
#[test]
fn data_is_under_a_licence_of_its_package() {
    let packages = published();
    let digits: Vec<&[u8]> = muso_digits::TRAIN
        .into_iter()
        .chain(muso_digits::TEST)
        .collect();
    let mut checked = 0;
    for package in &packages {
        let mut found = 0;
        for file in &package.files {
            let bytes = package.read(file);
            if std::str::from_utf8(&bytes).is_ok_and(|text| !text.contains('\0')) {
                continue;
            }
            let place = format!("{file} of {}", package.name);
            let (folder, name) = file.rsplit_once('/').unwrap_or(("", file));
            let notice = format!("{folder}/NOTICE");
            let notice = notice.trim_start_matches('/');
            assert!(
                package.files.iter().any(|file| file == notice),
                "{place} has no notice beside it"
            );
            let said = String::from_utf8(package.read(notice)).unwrap();
            assert!(said.contains(name), "{notice} does not name {place}");
            let (licence, words) = match package.name.as_str() {
                "muso-digits" => ("CC-BY-SA-3.0", "Attribution-ShareAlike 3.0"),
                _ => ("MIT", "The MIT License (MIT)"),
            };
            assert!(package.licences().contains(licence), "{place}");
            assert!(said.contains(words), "{place}: {notice}");
            found += usize::from(digits.contains(&&bytes[..]));
            checked += 1;
        }
        let wanted = if package.name == "muso-digits" { 4 } else { 0 };
        assert_eq!(found, wanted, "files of digits in {}", package.name);
    }
    assert_eq!(checked, 8, "four files each of digits and clothes");
}

/// The program has the digits, and hands their bytes to the library, which neither names their crate nor needs it.
#[test]
fn the_library_has_no_digits() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let program = ["cli", "bench", "main.rs"].map(|part| src.join(part));
    let mut users = 0;
    for file in sources(&src) {
        let text = std::fs::read_to_string(&file).unwrap();
        let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
        let mut lines = code.lines().map(str::trim_start);
        let uses = lines.any(|line| !line.starts_with("//") && line.contains("muso_digits"));
        let allowed = program.iter().any(|part| file.starts_with(part));
        assert!(!uses || allowed, "{} is library code", file.display());
        users += usize::from(uses);
    }
    assert!(users > 0, "the scan sees nothing");

    for (features, wanted) in [("nn,report", false), ("cli", true)] {
        let tree = cargo(&[
            "tree",
            "--no-default-features",
            "--features",
            features,
            "-e",
            "normal",
            "--prefix",
            "none",
            "-p",
            "muso",
        ]);
        assert!(tree.lines().any(|line| line.starts_with("muso ")));
        let found = tree.lines().any(|line| line.starts_with("muso-digits "));
        assert_eq!(found, wanted, "{features}");
    }
}

/// The text of a line of CITATION.cff behind its key, without quotes.
fn cited<'a>(text: &'a str, key: &str) -> &'a str {
    let lines = text.lines().map(str::trim_start);
    let mut values = lines.filter_map(|line| line.strip_prefix(key)?.strip_prefix(": "));
    values
        .next_back()
        .unwrap_or_else(|| panic!("no {key}"))
        .trim_matches('"')
}

#[test]
fn what_is_cited_is_this_version_and_the_paper_of_the_readme() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |file: &str| std::fs::read_to_string(root.join(file)).unwrap();
    let citation = read("CITATION.cff");
    assert_eq!(cited(&citation, "version"), env!("CARGO_PKG_VERSION"));
    // The last title and address are those of the paper. Lines of the README may break anywhere.
    let words: Vec<String> = read("README.md")
        .split_whitespace()
        .map(String::from)
        .collect();
    let link = format!(
        "[{}]({})",
        cited(&citation, "title"),
        cited(&citation, "url")
    );
    assert!(words.join(" ").contains(&link), "the README has no {link}");

    // The published crates depend on one another by version as well.
    let manifest = read("Cargo.toml");
    let paths: Vec<&str> = manifest
        .lines()
        .filter(|line| line.starts_with("muso-") && line.contains("path = "))
        .collect();
    assert!(paths.len() >= 3, "{paths:?}");
    let version = format!("version = \"{}\"", env!("CARGO_PKG_VERSION"));
    for line in paths {
        assert!(line.contains(&version), "{line}");
    }
}
