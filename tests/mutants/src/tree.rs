//! Copies the repository, writes the mutants into the copy and builds it, once.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::BufRead;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::sites::{self, Form, Mutant};
use crate::{Asked, FOLDERS, Outcome};

/// Which mutant is on.
pub(crate) const SWITCH: &str = "MUSO_MUTANT";
/// A file that gets the number of every mutant that is asked for.
pub(crate) const LOG: &str = "MUSO_MUTANTS_LOG";

/// A part of a file that an error points at.
#[derive(Debug)]
struct Place {
    file: String,
    range: Range<usize>,
    /// The error itself is there; else it only has to do with it.
    primary: bool,
}

/// A copy of the repository with all mutants in it, and its build.
pub(crate) struct Tree {
    /// The working folder, for what is found.
    pub(crate) work: PathBuf,
    /// The copy.
    pub(crate) root: PathBuf,
    /// The test programs: of the library, and the integration tests.
    pub(crate) programs: BTreeMap<String, PathBuf>,
}

impl Tree {
    /// Draws mutants and builds them, or takes up what an earlier run has built.
    pub(crate) fn make(asked: &Asked) -> Outcome<(Self, Vec<Mutant>)> {
        let mut tree = Self {
            work: asked.work.clone(),
            root: asked.work.join("tree"),
            programs: BTreeMap::new(),
        };
        let state = asked.work.join("mutants.json");
        if let Ok(text) = fs::read_to_string(&state) {
            let mutants = tree.restore(&serde_json::from_str(&text)?)?;
            eprintln!("going on with {} mutants", mutants.len());
            return Ok((tree, mutants));
        }
        let files = copy(&asked.root, &tree.root)?;
        let target = asked.work.join("target");
        if !target.exists() {
            seed_target(&asked.root.join("target/release"), &target.join("release"))?;
        }
        let mut all = Vec::new();
        for file in &files {
            let in_folder = |folder: &&str| file.starts_with(&format!("src/{folder}/"));
            if file.ends_with(".rs") && FOLDERS.iter().any(in_folder) {
                all.extend(sites::of_file(&tree.root, file)?);
            }
        }
        eprintln!("{} sites", all.len());
        // Some will not compile.
        let mut mutants = sites::draw(all, asked.count + asked.count / 4, asked.seed);
        let sources = tree.sources(&mutants)?;
        loop {
            let edited = tree.write(&sources, &mutants)?;
            let faults = tree.build(&target)?;
            if faults.is_empty() {
                break;
            }
            let gone = blamed(&faults, &edited);
            if gone.is_empty() {
                return Err(format!("no mutant explains {faults:?}").into());
            }
            eprintln!("{} do not compile", gone.len());
            mutants.retain(|mutant| !gone.contains(&mutant.number));
        }
        fs::write(state, tree.state(&mutants).to_string())?;
        eprintln!("{} mutants are built", mutants.len());
        Ok((tree, mutants))
    }

    fn state(&self, mutants: &[Mutant]) -> Value {
        let one = |m: &Mutant| {
            json!([
                m.number,
                m.file,
                m.line,
                m.range.start,
                m.range.end,
                m.form.name(),
                m.original,
                m.mutated
            ])
        };
        json!({
            "programs": self.programs,
            "mutants": mutants.iter().map(one).collect::<Vec<_>>(),
        })
    }

    fn restore(&mut self, state: &Value) -> Outcome<Vec<Mutant>> {
        let broken = "mutants.json is not what this program wrote";
        for (name, path) in state["programs"].as_object().ok_or(broken)? {
            let path = path.as_str().ok_or(broken)?;
            self.programs.insert(name.clone(), path.into());
        }
        let list = state["mutants"].as_array().ok_or(broken)?;
        let one = |entry: &Value| {
            let number = |i: usize| entry[i].as_u64().map(|n| n as usize);
            let text = |i: usize| entry[i].as_str().map(str::to_owned);
            Some(Mutant {
                number: number(0)? as u32,
                file: text(1)?,
                line: number(2)?,
                range: number(3)?..number(4)?,
                form: Form::named(&text(5)?)?,
                original: text(6)?,
                mutated: text(7)?,
            })
        };
        list.iter()
            .map(|entry| one(entry).ok_or_else(|| broken.into()))
            .collect()
    }

    /// The texts of the files that mutants are in, and of the crate's root.
    fn sources(&self, mutants: &[Mutant]) -> Outcome<BTreeMap<String, String>> {
        let mut sources = BTreeMap::new();
        for file in mutants
            .iter()
            .map(|m| m.file.as_str())
            .chain(["src/lib.rs"])
        {
            if !sources.contains_key(file) {
                sources.insert(file.to_owned(), fs::read_to_string(self.root.join(file))?);
            }
        }
        Ok(sources)
    }

    /// Writes the sources with these mutants in them; returns where each has come to lie.
    fn write(
        &self,
        sources: &BTreeMap<String, String>,
        mutants: &[Mutant],
    ) -> Outcome<Vec<(u32, String, Range<usize>)>> {
        let mut edited = Vec::new();
        for (file, text) in sources {
            let mut out = String::new();
            let mut done = 0;
            // Mutants are in the order of the file and do not overlap.
            for mutant in mutants.iter().filter(|m| m.file == *file) {
                out.push_str(&text[done..mutant.range.start]);
                let start = out.len();
                out.push_str(&mutant.switched());
                edited.push((mutant.number, file.clone(), start..out.len()));
                done = mutant.range.end;
            }
            out.push_str(&text[done..]);
            if file == "src/lib.rs" {
                let most = mutants.iter().map(|m| m.number).max().unwrap_or(0);
                out.push_str(&switch(most));
            }
            fs::write(self.root.join(file), out)?;
        }
        Ok(edited)
    }

    /// Builds the test programs; returns the places of errors.
    fn build(&mut self, target: &Path) -> Outcome<Vec<Vec<Place>>> {
        let mut cargo = Command::new("cargo")
            .args(["test", "--release", "--no-run", "--lib", "--test", "suite"])
            .args(["--message-format=json"])
            .env("CARGO_TARGET_DIR", target)
            .current_dir(&self.root)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let said = cargo.stdout.take().ok_or("cargo says nothing")?;
        let mut faults = Vec::new();
        for line in std::io::BufReader::new(said).lines() {
            let message: Value = serde_json::from_str(&line?).unwrap_or_default();
            if let Some(program) = message["executable"].as_str()
                && message["profile"]["test"] == true
                && let Some(name) = message["target"]["name"].as_str()
            {
                self.programs.insert(name.to_owned(), program.into());
            }
            let message = &message["message"];
            if message["level"] == "error" {
                let spans = message["spans"].as_array().into_iter().flatten();
                let place = |span: &Value| {
                    let byte = |key: &str| span[key].as_u64().map(|n| n as usize);
                    Some(Place {
                        file: span["file_name"].as_str()?.to_owned(),
                        range: byte("byte_start")?..byte("byte_end")?,
                        primary: span["is_primary"] == true,
                    })
                };
                let places: Vec<_> = spans.filter_map(place).collect();
                // The last line only counts the others.
                if !places.is_empty() {
                    faults.push(places);
                }
            }
        }
        let succeeded = cargo.wait()?.success();
        if !succeeded && faults.is_empty() {
            return Err(
                "cargo failed without naming a place; run it in the copy to see why".into(),
            );
        }
        Ok(faults)
    }
}

/// The mutants that errors lie in; where an error lies in none, those that it has to do with.
fn blamed(faults: &[Vec<Place>], edited: &[(u32, String, Range<usize>)]) -> BTreeSet<u32> {
    let mut gone = BTreeSet::new();
    for places in faults {
        let at = |primary: bool| {
            let places = places.iter().filter(move |place| place.primary == primary);
            places.flat_map(|place| {
                let there = edited.iter().filter(|(_, file, range)| {
                    *file == place.file
                        && range.start < place.range.end
                        && place.range.start < range.end
                });
                there.map(|(number, ..)| *number)
            })
        };
        let mut own = at(true).peekable();
        if own.peek().is_some() {
            gone.extend(own);
        } else {
            gone.extend(at(false));
        }
    }
    gone
}

/// The module that the mutants ask.
fn switch(most: u32) -> String {
    format!(
        r#"
/// Says which mutant is switched on.
pub mod mutants {{
    use std::io::Write;
    use std::sync::OnceLock;
    use std::sync::atomic::{{AtomicBool, Ordering}};

    static ASKED: [AtomicBool; {count}] = [const {{ AtomicBool::new(false) }}; {count}];

    /// Returns whether it is this one.
    pub fn on(number: u32) -> bool {{
        static CHOSEN: OnceLock<(u32, Option<std::ffi::OsString>)> = OnceLock::new();
        let (chosen, log) = CHOSEN.get_or_init(|| {{
            let chosen = std::env::var("{SWITCH}").ok();
            (chosen.and_then(|text| text.parse().ok()).unwrap_or(0), std::env::var_os("{LOG}"))
        }});
        if let Some(log) = log
            && !ASKED[number as usize].swap(true, Ordering::Relaxed)
        {{
            let file = std::fs::OpenOptions::new().append(true).create(true).open(log);
            if let Ok(mut file) = file {{
                let _ = file.write_all(format!("{{number}}\n").as_bytes());
            }}
        }}
        number == *chosen
    }}
}}
"#,
        count = most + 1
    )
}

/// Copies what git knows, as it is in the working tree; returns the names.
fn copy(from: &Path, to: &Path) -> Outcome<Vec<String>> {
    let listed = Command::new("git")
        .args([
            "ls-files",
            "-z",
            "--cached",
            "--others",
            "--exclude-standard",
        ])
        .current_dir(from)
        .output()?;
    let names: Vec<String> = String::from_utf8(listed.stdout)?
        .split_terminator('\0')
        .map(str::to_owned)
        .collect();
    for name in &names {
        let (source, copy) = (from.join(name), to.join(name));
        // A file that is deleted and not yet committed is in the list.
        if source.is_file() {
            fs::create_dir_all(copy.parent().unwrap_or(to))?;
            fs::copy(source, copy)?;
        }
    }
    Ok(names)
}

/// Gives a build the dependencies that are compiled already.
fn seed_target(from: &Path, to: &Path) -> Outcome<()> {
    if !from.exists() {
        return Ok(());
    }
    fs::create_dir_all(to)?;
    for part in [".fingerprint", "build", "deps"] {
        let copied = Command::new("cp")
            .arg("-a")
            .args([&from.join(part), to])
            .status()?;
        if !copied.success() {
            return Err(format!("{part} of the target folder could not be copied").into());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_laid_to_the_mutant_that_it_is_in() {
        let place = |range: Range<usize>, primary: bool| Place {
            file: "a.rs".into(),
            range,
            primary,
        };
        let edited = [
            (1, "a.rs".to_owned(), 10..20),
            (2, "a.rs".to_owned(), 30..40),
            (3, "b.rs".to_owned(), 10..20),
        ];
        let own = vec![place(12..13, true), place(35..36, false)];
        assert_eq!(blamed(&[own], &edited), [1].into());
        let elsewhere = vec![place(50..60, true), place(35..36, false)];
        assert_eq!(blamed(&[elsewhere], &edited), [2].into());
        let touching = vec![place(20..30, true)];
        assert!(blamed(&[touching], &edited).is_empty());
    }
}
