//! Compiling programs once, with the nvcc that the build script of the kernels finds.
//!
//! PTX is kept in the target directory under a name that holds a hash of the source, the
//! flags and the compiler, so that a second run compiles nothing.

use std::{
    fs,
    hash::{DefaultHasher, Hash, Hasher},
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
};

/// The build script's search; of what else it does these suites need nothing.
#[allow(dead_code, unreachable_pub)]
#[path = "../../../../kernels/toolkit.rs"]
mod toolkit;

/// The compiler, or why there is none.
pub(crate) fn compiler() -> &'static Result<PathBuf, String> {
    static FOUND: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    FOUND.get_or_init(|| toolkit::Toolkit::find().map(|found| found.nvcc().to_owned()))
}

/// The PTX of a program for `compute_{arch}`, with line information.
///
/// # Errors
/// What the compiler said.
pub(crate) fn compile(source: &Path, arch: u32) -> Result<String, String> {
    let nvcc = compiler().as_ref().map_err(Clone::clone)?;
    let flags = ["-ptx", "-lineinfo", "-std=c++17"];
    let target = format!("-arch=compute_{arch}");
    let read = |path: &Path| fs::read(path).map_err(|e| format!("{}: {e}", path.display()));
    let mut hasher = DefaultHasher::new();
    (read(source)?, flags, arch, nvcc).hash(&mut hasher);
    let common = source.with_file_name("common.cuh");
    if common.is_file() {
        read(&common)?.hash(&mut hasher);
    }
    let stem = source.file_stem().unwrap_or_default().to_string_lossy();
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let cached = folder.join(format!("{stem}.{arch}.{:016x}.ptx", hasher.finish()));
    if let Ok(text) = fs::read_to_string(&cached) {
        return Ok(text);
    }
    // Two runs at once must not see each other's half-written files.
    let partial = cached.with_extension(format!("{}.partial", std::process::id()));
    let output = Command::new(nvcc)
        .args(flags)
        .arg(target)
        .arg(source)
        .arg("-o")
        .arg(&partial)
        .output()
        .map_err(|e| format!("{}: {e}", nvcc.display()))?;
    if !output.status.success() {
        return Err(format!(
            "nvcc {}: {}",
            source.display(),
            String::from_utf8_lossy(&output.stderr)
        ));
    }
    fs::rename(&partial, &cached).map_err(|e| format!("{}: {e}", cached.display()))?;
    fs::read_to_string(&cached).map_err(|e| format!("{}: {e}", cached.display()))
}
