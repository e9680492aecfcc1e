//! Outputs are opened before the work, so that an unwritable place is found at once, and must not be the same file as
//! each other or as an input.

use std::path::{Path, PathBuf};

use muso::Error;
use muso::data::OutputFile;

/// The outputs of a command and the inputs that none of them may be.
pub(super) struct Outputs {
    /// Option and file, in its canonical spelling.
    taken: Vec<(String, PathBuf)>,
}

impl Outputs {
    /// Makes sure that no output will be one of these inputs.
    pub(super) fn beside(inputs: &[(&str, Option<&Path>)]) -> Self {
        let mut outputs = Self { taken: Vec::new() };
        for (name, path) in inputs {
            outputs.keep(name, *path);
        }
        outputs
    }

    /// Refuses this file as one of the outputs that are opened from here on.
    pub(super) fn keep(&mut self, name: &str, input: Option<&Path>) {
        // An input that is not there is found out when it is opened.
        if let Some(Ok(path)) = input.map(std::fs::canonicalize) {
            self.taken.push((name.to_owned(), path));
        }
    }

    /// Opens an output under a temporary name; none where no path was given.
    pub(super) fn open(
        &mut self,
        name: &str,
        path: Option<&Path>,
    ) -> muso::Result<Option<OutputFile>> {
        let Some(path) = path else { return Ok(None) };
        let file = OutputFile::create(path)?;
        let target = canonical(file.target()).map_err(|e| Error::io(path, "write", e))?;
        if let Some((other, _)) = self.taken.iter().find(|(_, taken)| *taken == target) {
            return Err(Error::format(
                path,
                format!("{name} is the same file as {other}"),
                "a file of its own",
            ));
        }
        self.taken.push((name.to_owned(), target));
        Ok(Some(file))
    }
}

/// Returns the one spelling of a file that need not exist, in a directory that does.
fn canonical(target: &Path) -> std::io::Result<PathBuf> {
    let directory = match target.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let name = target.file_name().unwrap_or_default();
    Ok(directory.canonicalize()?.join(name))
}
