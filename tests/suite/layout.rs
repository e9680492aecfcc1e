//! The order of the stages, as the code has it: a stage imports earlier stages, the engine and the errors only.

use std::path::Path;

use crate::support::sources;

/// In flow order. What is not listed is no stage: `pipeline` and `cli` may know all of them.
const STAGES: [&str; 10] = [
    "data", "features", "gram", "solve", "labels", "train", "methods", "evaluate", "outcome",
    "report",
];
/// Open to every stage. `Error` and `Result` are re-exported at the root.
const COMMON: [&str; 10] = [
    "engine",
    "error",
    "progress",
    "scheduler",
    "seeds",
    "softmax",
    "system",
    "Error",
    "Result",
    "VERSION",
];

/// The first names after `crate::` in a text, also inside `crate::{a, b::c}`; comments do not count.
fn imported(text: &str) -> Vec<String> {
    let code: String = text
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"))
        .collect::<Vec<_>>()
        .join("\n");
    let mut names = Vec::new();
    for part in code.split("crate::").skip(1) {
        let Some(group) = part.strip_prefix('{') else {
            names.push(first_name(part));
            continue;
        };
        let mut depth = 0;
        let mut piece = String::new();
        for c in group.chars() {
            match c {
                '}' if depth == 0 => break,
                '{' => depth += 1,
                '}' => depth -= 1,
                ',' if depth == 0 => names.push(first_name(&std::mem::take(&mut piece))),
                _ => {}
            }
            piece.push(c);
        }
        names.push(first_name(&piece));
    }
    names.retain(|name| !name.is_empty());
    names
}

fn first_name(text: &str) -> String {
    let text = text.trim_start_matches(|c: char| c.is_whitespace() || c == ',');
    text.chars()
        .take_while(|c| c.is_alphanumeric() || *c == '_')
        .collect()
}

#[test]
fn the_scan_sees_imports() {
    let text = "use crate::data::X;\n// crate::cli\nuse crate::{solve::{a, b}, Error};\nlet x = crate::gram::y();";
    assert_eq!(imported(text), ["data", "solve", "Error", "gram"]);
}

#[test]
fn stages_import_only_earlier_stages() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut checked = 0;
    for (place, stage) in STAGES.iter().enumerate() {
        let files = sources(&root.join(stage));
        assert!(!files.is_empty(), "stage {stage} has no source");
        for file in files {
            for name in imported(&std::fs::read_to_string(&file).unwrap()) {
                let earlier = STAGES[..=place].contains(&name.as_str());
                assert!(
                    earlier || COMMON.contains(&name.as_str()),
                    "{} imports crate::{name}, which comes later",
                    file.display()
                );
                checked += 1;
            }
        }
    }
    assert!(checked > 20, "only {checked} imports were seen");
    // The engine stands on the device code, that on the matrix types, and no stage is known to any of them. The C interface
    // alone stands above the engine, which sums what a device leaves to the processor.
    for (room, known) in [
        ("engine", &["engine", "error", "gpu", "matrix"][..]),
        ("gpu", &["error", "gpu", "matrix"]),
    ] {
        let files = sources(&root.join(room));
        for file in files {
            for name in imported(&std::fs::read_to_string(&file).unwrap()) {
                let above = file.ends_with("gpu/capi.rs") && name == "engine";
                let may = above || known.contains(&name.as_str());
                assert!(may, "{}: {name}", file.display());
            }
        }
    }
}

/// The crate denies unsafe code; the device code may have it, and the module of int8 instructions, which stays small.
#[test]
fn unsafe_code_is_in_two_places() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let allows = |file: &Path| {
        let text = std::fs::read_to_string(file).unwrap();
        text.contains("allow(unsafe_code)") || text.contains("expect(unsafe_code)")
    };
    let mut found: Vec<_> = sources(&root).into_iter().filter(|f| allows(f)).collect();
    found.sort();
    let module = root.join("engine/cpu/exact/intrinsics.rs");
    assert_eq!(found, [module.clone(), root.join("gpu/mod.rs")]);
    // Each block says why it holds.
    let text = std::fs::read_to_string(module).unwrap();
    let count = |what: &str| text.matches(what).count();
    assert_eq!(count("unsafe {"), count("// SAFETY: "));
    assert!(text.lines().count() < 350, "no longer small");
}

/// The lanes know no stage, so every stage may run on them. The one exception is the overlap of label updates with
/// training: it stands above the stages up to the labels, and only what comes after those may use it.
#[test]
fn lanes_know_no_stage_and_label_updates_stand_above_the_labels() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let labels = STAGES.iter().position(|s| *s == "labels").unwrap();
    let files = sources(&root.join("scheduler"));
    for file in files {
        let above = file.ends_with("updates.rs");
        for name in imported(&std::fs::read_to_string(&file).unwrap()) {
            let known = ["engine", "error", "scheduler"].contains(&name.as_str())
                || above && STAGES[..=labels].contains(&name.as_str());
            assert!(known, "{} imports crate::{name}", file.display());
        }
    }
    for stage in &STAGES[..=labels] {
        let files = sources(&root.join(stage));
        for file in files {
            let text = std::fs::read_to_string(&file).unwrap();
            assert!(!text.contains("LabelUpdates"), "{}", file.display());
        }
    }
}

/// The tours of ARCHITECTURE.md lead forward only: every file that they name is there, none is visited twice, and no tour
/// has more than twenty stops.
#[test]
fn tours_visit_every_file_once() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(root.join("ARCHITECTURE.md")).unwrap();
    let tours = text
        .split("\n## ")
        .filter(|part| part.starts_with("A tour"));
    let mut seen = 0;
    for tour in tours {
        let name = tour.lines().next().unwrap();
        // The list, between the heading and the remarks under it.
        let stops = tour.split("\n\n").nth(1).unwrap();
        let numbered = |line: &&str| line.starts_with(|c: char| c.is_ascii_digit());
        let count = stops.lines().filter(numbered).count();
        assert!((10..=20).contains(&count), "{name}: {count} stops");
        let quoted = stops.split('`').skip(1).step_by(2);
        let mut visited: Vec<&str> = Vec::new();
        for file in quoted.filter(|text| text.ends_with(".rs")) {
            assert!(root.join(file).is_file(), "{name}: {file} is not there");
            assert!(!visited.contains(&file), "{name}: {file} is visited twice");
            visited.push(file);
        }
        assert!(visited.len() >= count, "{name}: {visited:?}");
        seen += 1;
    }
    assert_eq!(seen, 2);
}
