//! The small core: what `--no-default-features` compiles, module by module, and what it depends on.

use std::path::{Path, PathBuf};

use crate::support::cargo;

/// Everything that the core has at the root of the crate.
const ROOMS: [&str; 19] = [
    "data",
    "engine",
    "error",
    "evaluate",
    "features",
    "forgetting",
    "gram",
    "labels",
    "matrix",
    "methods",
    "outcome",
    "pipeline",
    "progress",
    "scheduler",
    "seeds",
    "softmax",
    "solve",
    "system",
    "train",
];

/// What it depends on, and nothing else.
const DEPENDENCIES: [&str; 13] = [
    "bytemuck",
    "faer",
    "half",
    "pulp",
    "rand",
    "rand_chacha",
    "rand_distr",
    "rayon",
    "serde",
    "serde_json",
    "thiserror",
    "twox-hash",
    "muso",
];

/// Follows `mod name;` from a file, leaving out what a feature or the tests switch on.
fn modules(file: &Path, folder: &Path, prefix: &str, found: &mut Vec<(String, PathBuf)>) {
    let text = std::fs::read_to_string(file).unwrap();
    let mut conditional = false;
    for line in text.lines() {
        let line = line.trim();
        if line.starts_with("#[cfg(") {
            conditional = true;
            continue;
        }
        let declared = line
            .strip_suffix(';')
            .and_then(|l| l.split_once("mod "))
            .filter(|(before, _)| before.is_empty() || before.starts_with("pub"))
            .map(|(_, name)| name);
        if let Some(name) = declared.filter(|_| !conditional) {
            let (flat, nested) = (
                folder.join(format!("{name}.rs")),
                folder.join(name).join("mod.rs"),
            );
            let path = format!("{prefix}{name}");
            let inner = format!("{path}::");
            let at = if flat.exists() { flat } else { nested };
            assert!(at.exists(), "no source for {path}");
            found.push((path, at.clone()));
            modules(&at, &folder.join(name), &inner, found);
        }
        if !line.is_empty() && !line.starts_with("//") {
            conditional = false;
        }
    }
}

/// Counts lines that are neither blank nor comments, up to the tests at a file's end.
fn code_lines(file: &Path) -> usize {
    let text = std::fs::read_to_string(file).unwrap();
    let product = text.split("\n#[cfg(test)]\nmod tests").next().unwrap();
    let lines = product.lines().map(str::trim);
    lines
        .filter(|line| !line.is_empty() && !line.starts_with("//"))
        .count()
}

#[test]
fn the_core_has_no_reports_benches_images_or_networks() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found = Vec::new();
    modules(&src.join("lib.rs"), &src, "", &mut found);
    let mut rooms: Vec<&str> = found
        .iter()
        .filter(|(path, _)| !path.contains("::"))
        .map(|(path, _)| path.as_str())
        .collect();
    rooms.sort_unstable();
    assert_eq!(rooms, ROOMS);
    for (path, _) in &found {
        for word in [
            "report",
            "bench",
            "images",
            "mnist",
            "idx",
            "networks",
            "checkpoint",
            "paper",
            "cuda",
        ] {
            let within = path.split("::").any(|part| part == word);
            assert!(!within, "the core compiles {path}");
        }
    }
    let lines: usize = found.iter().map(|(_, file)| code_lines(file)).sum();
    assert!(
        lines < 15_500,
        "the core has grown to {lines} lines of code"
    );
}

#[test]
fn the_core_depends_on_little() {
    let listed = cargo(&[
        "tree",
        "--no-default-features",
        "-e",
        "normal",
        "--depth",
        "1",
        "--prefix",
        "none",
        "-p",
        "muso",
    ]);
    let mut names: Vec<&str> = listed
        .lines()
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    names.sort_unstable();
    let mut wanted = DEPENDENCIES;
    wanted.sort_unstable();
    assert_eq!(names, wanted);
}
