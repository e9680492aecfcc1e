//! What the code says to its users: messages that name fields, not options, and docs that say something.

use std::path::Path;

use crate::support::sources;

/// Library files whose texts are captions of pages and name whole commands that repeat them.
const CAPTIONS: [&str; 1] = ["src/pipeline/networks/demo.rs"];

/// The arguments of processes that a bench starts.
const NO_MESSAGES: [&str; 1] = ["src/bench/head/processes.rs"];

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
    let mut checked = 0;
    for file in ["src", "models/src"]
        .map(|folder| sources(&root.join(folder)))
        .concat()
    {
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

/// Docs that fit any item, and so say nothing of the one they are on.
const EMPTY_PHRASES: [&str; 14] = [
    "carries it out",
    "completes it",
    "does it",
    "how it went",
    "how to run",
    "how to solve",
    "in a few words",
    "for a terminal",
    "the same as above",
    "what it holds",
    "what it is",
    "what was done",
    "what was found",
    "where it is",
];

/// What a public item is called: `pub` and its kind, or a public field.
fn public_name(line: &str) -> Option<&str> {
    let rest = line.trim_start().strip_prefix("pub ")?;
    let kinds = [
        "async ",
        "const ",
        "enum ",
        "extern \"C\" ",
        "fn ",
        "mod ",
        "static ",
        "struct ",
        "trait ",
        "type ",
        "unsafe ",
    ];
    let mut name = rest;
    while let Some(rest) = kinds.iter().find_map(|kind| name.strip_prefix(kind)) {
        name = rest;
    }
    let end = name
        .find(|c: char| !c.is_alphanumeric() && c != '_')
        .unwrap_or(name.len());
    (end > 0 && name != rest || name[end..].starts_with(':')).then_some(&name[..end])
}

/// The public items of a source with the line and the text of their docs, without those of its unit tests.
fn documented(text: &str) -> Vec<(usize, &str, String)> {
    let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
    let mut found = Vec::new();
    let (mut doc, mut start) = (Vec::new(), 0);
    for (number, line) in (1..).zip(code.lines()) {
        let trimmed = line.trim_start();
        if let Some(text) = trimmed.strip_prefix("///") {
            if doc.is_empty() {
                start = number;
            }
            doc.push(text.trim());
        } else if !trimmed.starts_with("#[") {
            match public_name(line) {
                Some(name) if !doc.is_empty() => found.push((start, name, doc.join(" "))),
                _ => {}
            }
            doc.clear();
        }
    }
    found
}

/// Whether a doc is empty talk: fewer than three words, shorter than the name it explains, or a phrase that fits all.
fn says_nothing(name: &str, doc: &str) -> bool {
    let phrase = doc.trim_end_matches('.').to_lowercase();
    doc.split_whitespace().count() < 3
        || doc.chars().count() < name.len()
        || EMPTY_PHRASES.contains(&phrase.as_str())
}

#[test]
fn the_scan_sees_docs() {
    let text = "/// One.\n/// Two.\n#[must_use]\npub const fn long_name<T>() {}\n\
                    /// λ.\n    pub ridge: f64,\nfn f() {}\n/// Private.\nfn g() {}\npub use a::b;\n\
                #[cfg(test)]\nmod tests {\n/// No.\npub fn t() {}\n";
    let found = documented(text);
    assert_eq!(
        found,
        [
            (1, "long_name", "One. Two.".to_owned()),
            (5, "ridge", "λ.".to_owned())
        ]
    );
    assert!(says_nothing("ridge", "λ.") && says_nothing("run", "What was done."));
    assert!(says_nothing("largest_row_sum_of_all", "The sum of it."));
    assert!(!says_nothing("ridge", "λ, the ridge on the diagonal."));
}

#[test]
fn docs_of_public_items_say_something() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (mut checked, mut wrong) = (0, Vec::new());
    for file in ["src", "models/src"]
        .map(|folder| sources(&root.join(folder)))
        .concat()
    {
        let place = file.strip_prefix(root).unwrap().display().to_string();
        for (line, name, doc) in documented(&std::fs::read_to_string(&file).unwrap()) {
            checked += 1;
            if says_nothing(name, &doc) {
                wrong.push(format!("{place}:{line}: `{name}` is documented by {doc:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(checked > 800, "only {checked} docs were seen");
}
