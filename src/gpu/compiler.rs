//! NVRTC, the compiler that burn's CUDA backend calls at run time: found with its headers and loaded, or one sentence that
//! says why not.
//!
//! burn panics where it does not find them. Networks on a CUDA device are reached through [`prepare`], which looks where
//! a toolkit usually is, and where the one was that compiled our kernels.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::error::{Error, Result};

/// Root of the CUDA toolkit that compiled the kernels.
const BUILT_WITH: &str = env!("MUSO_CUDA_ROOT");

/// Makes NVRTC and its headers known to this process, once.
///
/// # Errors
/// [`Error::Unavailable`] with what was looked for.
pub fn prepare() -> Result<()> {
    static OUTCOME: OnceLock<Option<String>> = OnceLock::new();
    match OUTCOME.get_or_init(|| load().err()) {
        None => Ok(()),
        Some(why) => Err(Error::Unavailable {
            device: "cuda".into(),
            why: why.clone(),
        }),
    }
}

fn load() -> Result<(), String> {
    let named = |variable: &str| std::env::var_os(variable).map(PathBuf::from);
    let known = ["/usr/local/cuda", "/opt/cuda", BUILT_WITH].map(PathBuf::from);
    let places = [named("CUDA_PATH"), named("CUDA_HOME")];
    let mut places = places.into_iter().flatten().chain(known);
    let Some(root) = places.find(|root| root.join("include/cuda_fp16.h").is_file()) else {
        return Err(
            "networks on it need the headers of a CUDA toolkit, which are not under $CUDA_PATH, $CUDA_HOME, \
             /usr/local/cuda or where the kernels were compiled"
                .into(),
        );
    };
    let libraries = ["lib64", "lib", "targets/x86_64-linux/lib"].map(|sub| root.join(sub));
    let find = |stem: &str| {
        libraries.iter().find_map(|folder| {
            let mut files: Vec<PathBuf> = std::fs::read_dir(folder)
                .ok()?
                .flatten()
                .map(|entry| entry.path())
                .filter(|path| {
                    let name = path.file_name().map(|n| n.to_string_lossy().into_owned());
                    name.is_some_and(|name| name.starts_with(stem))
                })
                .collect();
            files.sort();
            files.pop()
        })
    };
    // The compiler asks for the second by its name alone, and the loader knows what is loaded by name.
    for stem in ["libnvrtc-builtins.so", "libnvrtc.so"] {
        let file = find(stem).ok_or_else(|| {
            format!(
                "networks on it need NVRTC: there is no {stem} under {}",
                root.display()
            )
        })?;
        keep(&file)?;
    }
    // SAFETY: called once, behind a `OnceLock`, by whoever is about to open the device for a network; burn reads the
    // variable after that. Nothing else in this crate writes to the environment.
    unsafe { std::env::set_var("CUDA_PATH", &root) };
    Ok(())
}

/// Loads a library for good.
fn keep(file: &Path) -> Result<(), String> {
    // SAFETY: a library of the toolkit that the environment names or that built this program; its initialisers are those
    // that burn would run a moment later.
    let library = unsafe { libloading::Library::new(file) };
    library
        .map(std::mem::forget)
        .map_err(|error| format!("{} cannot be loaded: {error}", file.display()))
}
