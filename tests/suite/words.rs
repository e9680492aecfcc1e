//! What the code says to its users: the library speaks of fields, and only the program of options.

use std::path::{Path, PathBuf};

/// Library files whose texts are captions of pages and name whole commands that repeat them.
const CAPTIONS: [&str; 1] = ["src/pipeline/networks/demo.rs"];

/// The arguments of processes that a bench starts.
const NO_MESSAGES: [&str; 1] = ["src/bench/head/processes.rs"];

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|e| e == "rs") {
            found.push(path);
        }
    }
}

/// The string literals of a source with their lines, without those of its unit tests.
fn literals(text: &str) -> Vec<(usize, String)> {
    let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
    let bytes: Vec<char> = code.chars().collect();
    let (mut i, mut line) = (0, 1);
    let mut found = Vec::new();
    while i < bytes.len() {
        let next = bytes.get(i + 1).copied();
        match bytes[i] {
            '\n' => line += 1,
            '/' if next == Some('/') => {
                while i < bytes.len() && bytes[i] != '\n' {
                    i += 1;
                }
                continue;
            }
            // A character, not a lifetime.
            '\'' if next == Some('\\') => i += 3,
            '\'' if bytes.get(i + 2) == Some(&'\'') => i += 2,
            'r' if matches!(next, Some('"' | '#')) => {
                let hashes = bytes[i + 1..].iter().take_while(|c| **c == '#').count();
                if bytes.get(i + 1 + hashes) == Some(&'"') {
                    let (start, mut end) = (i + 2 + hashes, i + 2 + hashes);
                    let closing: Vec<char> = std::iter::once('"')
                        .chain(std::iter::repeat_n('#', hashes))
                        .collect();
                    while end < bytes.len() && !bytes[end..].starts_with(&closing) {
                        end += 1;
                    }
                    found.push((line, bytes[start..end].iter().collect()));
                    line += bytes[start..end].iter().filter(|c| **c == '\n').count();
                    i = end + hashes;
                }
            }
            '"' => {
                let (start, at) = (i + 1, line);
                i += 1;
                while i < bytes.len() && bytes[i] != '"' {
                    i += 1 + usize::from(bytes[i] == '\\');
                }
                // An escaped line end was stepped over.
                let literal: String = bytes[start..i.min(bytes.len())].iter().collect();
                line = at + literal.matches('\n').count();
                found.push((at, literal));
            }
            _ => {}
        }
        i += 1;
    }
    found
}

/// Whether a text names an option: two dashes and a word, at a place where a word may start.
fn names_an_option(text: &str) -> bool {
    text.match_indices("--").any(|(at, _)| {
        let before = text[..at].chars().next_back();
        let after = text[at + 2..].chars().next();
        after.is_some_and(|c| c.is_ascii_lowercase())
            && !text[..at].ends_with("var(")
            && before.is_none_or(|c| c.is_whitespace() || "(`'\"".contains(c))
    })
}

#[test]
fn the_scan_sees_literals() {
    let text = "let a = \"x --y\"; // \"no\"\nlet c = '\"'; let s = r#\"raw \"in\" it\"#;\nf(\"two\\\n lines\");\nlet l: &'static str = \"z\";";
    let found: Vec<(usize, String)> = literals(text);
    let wanted = [
        (1, "x --y"),
        (2, "raw \"in\" it"),
        (3, "two\\\n lines"),
        (5, "z"),
    ];
    assert_eq!(found.len(), wanted.len(), "{found:?}");
    for ((line, literal), (at, text)) in found.iter().zip(wanted) {
        assert_eq!((*line, literal.as_str()), (at, text));
    }
    assert!(names_an_option("give --ridge") && names_an_option("(--from head)"));
    assert!(
        !names_an_option("a -- b") && !names_an_option("var(--ink)") && !names_an_option("x--y")
    );
}

#[test]
fn the_library_names_fields_and_no_options() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    for folder in ["src", "models/src"] {
        sources(&root.join(folder), &mut files);
    }
    let mut checked = 0;
    for file in files {
        let name = file.strip_prefix(root).unwrap().display().to_string();
        let exempt = CAPTIONS.iter().chain(&NO_MESSAGES);
        if name.starts_with("src/cli/")
            || name.ends_with("/tests.rs")
            || name.ends_with("/sample.rs")
            || exempt.into_iter().any(|e| name.starts_with(e))
        {
            continue;
        }
        for (line, literal) in literals(&std::fs::read_to_string(&file).unwrap()) {
            checked += 1;
            assert!(
                !names_an_option(&literal),
                "{name}:{line} names an option: {literal:?}"
            );
        }
    }
    assert!(checked > 1_000, "only {checked} literals were seen");
}
