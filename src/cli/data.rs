//! `muso doctor --data`: what a folder of images holds, whether it is whole, and what to do if not.

use std::path::Path;

use muso::data::images::examine::{Advice, Examination, Found, Part, examine};
use muso::data::images::published::{PUBLISHED, Published, PublishedFile};
use serde_json::{Value, json};

use super::{Common, Outputs, flags, print, progress::Bar};

/// Faults and files that are listed; the others are counted.
const LISTED: usize = 10;

/// Examines a folder and prints what was found. The first fault, if there is one, is also the error.
pub(super) fn run(folder: &Path, common: &Common) -> anyhow::Result<()> {
    let mut outputs = Outputs::beside(&[]);
    let json = outputs.open("--json", common.json.as_deref())?;
    let mut found = examine(folder, &mut Bar::new())?;
    if let Some(mut file) = json {
        file.put(format!("{:#}\n", as_json(&found)).as_bytes())?;
        file.commit()?;
    }
    print(&text(&found))?;
    match found.faults.is_empty() {
        true => Ok(()),
        false => Err(found.faults.swap_remove(0).into()),
    }
}

fn text(found: &Examination) -> String {
    let mut out = format!("{}\n", found.path.display());
    let mut line = |name: &str, value: &str| out.push_str(&format!("  {name:<11} {value}\n"));
    match &found.found {
        None => line("holds", "no image set that can be read as it lies here"),
        Some(set) => {
            line("holds", &holds(found, set));
            if let Some(parts) = &set.parts {
                for (name, part) in ["training", "test"].iter().zip(parts) {
                    line(name, &images(part));
                }
            }
        }
    }
    let mut name = "checksums";
    for sum in found.sums.iter().take(LISTED) {
        let file = sum.path.file_name().unwrap_or_default().display();
        let said = match sum.is {
            Some(_) => "as published",
            None => "of no published file",
        };
        line(name, &format!("{file}: {said}"));
        name = "";
    }
    let whole = match (found.is_whole(), found.found.as_ref()) {
        (false, _) => "no",
        (true, Some(set)) if set.published.is_none() => "yes: every file can be read",
        _ => "yes",
    };
    line("whole", whole);
    let mut name = "wrong";
    for fault in found.faults.iter().take(LISTED) {
        line(name, &flags::spelt(&fault.to_string()));
        name = "";
    }
    if let Some(more @ 1..) = found.faults.len().checked_sub(LISTED) {
        line("", &format!("and {more} more"));
    }
    let mut name = "what to do";
    for step in found
        .advice
        .iter()
        .flat_map(|advice| steps(advice, &found.path))
    {
        line(name, &step);
        name = "";
    }
    if let Some(set) = &found.found
        && set.parts.is_some()
    {
        let kinds: Vec<&str> = set.kinds.iter().map(|kind| kind.name()).collect();
        let differ = set.parts.iter().flatten().any(|part| part.shape.is_none());
        let option = match differ {
            true => " --image-size PIXELS, since images differ in size",
            false => "",
        };
        let name = match found.is_whole() {
            true => "run with",
            false => "as it is",
        };
        let path = quoted(&found.path);
        let kinds = kinds.join(" (or ") + if kinds.len() > 1 { ")" } else { "" };
        line(name, &format!("--data {kinds} --data-path {path}{option}"));
    }
    out
}

fn holds(found: &Examination, set: &Found) -> String {
    match set.folder.strip_prefix(&found.path) {
        Ok(inner) if !inner.as_os_str().is_empty() => {
            format!("{} in {}", set.title, inner.display())
        }
        _ => set.title.clone(),
    }
}

fn images(part: &Part) -> String {
    let shape = match part.shape {
        Some([channels, height, width]) => format!("{channels}×{height}×{width}"),
        None => "several sizes".to_owned(),
    };
    let each = match part.of_class {
        (least, most) if least == most => format!("{least} each"),
        (least, most) => format!("{least} to {most} each"),
    };
    format!(
        "{} images of {shape}, {} classes of {each}",
        part.images, part.classes
    )
}

/// What a person does, a step a line.
fn steps(advice: &Advice, path: &Path) -> Vec<String> {
    match advice {
        Advice::Name(folder) => vec![format!("give {}", quoted(folder))],
        Advice::Unpack(archive, set) => {
            let into = archive.parent().filter(|p| !p.as_os_str().is_empty());
            let into = into.unwrap_or(Path::new("."));
            vec![
                unpack(archive, into),
                format!("then give {}", quoted(&into.join(set.folder))),
            ]
        }
        Advice::Fetch(set, files) => fetch(set, files, path),
        Advice::FetchAny => {
            let mut steps = vec![format!(
                "give the folder of a set, or of images as {}/train/CLASS/*.png and {0}/test/CLASS/*.png",
                path.display()
            )];
            let sets = PUBLISHED.iter().map(|set| {
                let names: Vec<&str> = set.files.iter().map(|file| file.name).collect();
                format!("{}: {}{}", set.title, set.address, names.join(", "))
            });
            steps.extend(sets);
            steps
        }
        Advice::Split => vec![
            "move the class folders into a folder train, and some images of each class into test/CLASS/"
                .to_owned(),
        ],
        Advice::Replace => vec!["replace or remove what is named above".to_owned()],
        other => vec![format!("{other:?}")],
    }
}

fn fetch(set: &Published, files: &[&PublishedFile], path: &Path) -> Vec<String> {
    let mut steps = Vec::new();
    for file in files {
        steps.push(format!("fetch {}{}", set.address, file.name));
        steps.push(format!("  SHA-256 {}", file.sha256));
        if !set.folder.is_empty() {
            steps.push(unpack(Path::new(file.name), Path::new(".")));
            steps.push(format!("then give the folder {}", set.folder));
        }
    }
    if set.folder.is_empty() {
        // Of a file that is there packed and plain, the plain one is read.
        let path = quoted(path);
        steps.push(format!(
            "to {path}, in place of what has these names with or without .gz"
        ));
    }
    steps
}

/// The command that unpacks an archive.
fn unpack(archive: &Path, into: &Path) -> String {
    let (archive, into) = (
        (quoted(archive), archive.extension().unwrap_or_default()),
        quoted(into),
    );
    match archive.1.eq_ignore_ascii_case("zip") {
        true => format!("unzip -q {} -d {into}", archive.0),
        false => format!("tar -xzf {} -C {into}", archive.0),
    }
}

/// A path as a shell takes it for one word.
fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let plain = |c: char| c.is_alphanumeric() || "/._-+~:\\".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        text
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

fn as_json(found: &Examination) -> Value {
    let part = |part: &Part| {
        json!({
            "images": part.images,
            "classes": part.classes,
            "images_of_class": [part.of_class.0, part.of_class.1],
            "shape": part.shape,
        })
    };
    let holds = found.found.as_ref().map(|set| {
        let parts = set
            .parts
            .as_ref()
            .map(|[train, test]| (part(train), part(test)));
        json!({
            "title": set.title,
            "kinds": set.kinds,
            "published": set.published.map(|set| set.title),
            "folder": set.folder.display().to_string(),
            "readable": parts.is_some(),
            "train": parts.as_ref().map(|(train, _)| train),
            "test": parts.as_ref().map(|(_, test)| test),
        })
    });
    let sums = found.sums.iter().map(|sum| {
        json!({ "file": sum.path.display().to_string(), "sha256": sum.sha256, "published": sum.is.map(|file| file.name) })
    });
    let faults = found
        .faults
        .iter()
        .map(|fault| flags::spelt(&fault.to_string()));
    let advice = found.advice.iter().map(|advice| steps(advice, &found.path));
    json!({
        "kind": "data",
        "path": found.path.display().to_string(),
        "whole": found.is_whole(),
        "holds": holds,
        "checksums": sums.collect::<Vec<_>>(),
        "faults": faults.collect::<Vec<_>>(),
        "advice": advice.flatten().collect::<Vec<_>>(),
    })
}
