//! With feature `cuda`: kernels/*.cu → PTX and cubins, embedded with a table of them in `$OUT_DIR/kernels.rs`.
//!
//! Without the feature nothing happens and nothing is needed. With it, each module is compiled to PTX for the
//! architectures of `toolkit::PTX_ARCHS` and assembled for the devices in [`ARCHS`] (or `MUSO_CUDA_ARCHS`, such as
//! `80,90`; empty for PTX only), as many jobs at once as Cargo allows. Results are kept under the hash of what went in,
//! so that a change to one kernel compiles that module only.
//!
//! The table: the tile sizes of `kernels/common/tiles.h` as constants, `MODULES` with the images of each module, and
//! `RESOURCES`, what the assembler said of each kernel on each device. Where `DOCS_RS` is set there is no compiler and
//! nothing is run: both lists are empty, which is enough for documentation.

#[path = "kernels/toolkit.rs"]
mod toolkit;

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{env, fs};

use toolkit::{FLAGS, PTX_ARCHS, Toolkit, VARIABLES, parse_report, ptx_arch_for};

/// Devices that machine code is embedded for; others compile the PTX when they load it.
const ARCHS: &str = "80,86,89,90,100,120";
const KERNELS: &str = "kernels";
/// Set where docs.rs builds documentation.
const DOCS_RS: &str = "DOCS_RS";
/// The toolkit of the driver bindings in Cargo.toml: what documentation names where there is none.
const CUDA: (i32, i32) = (13, 0);

type Result<T> = std::result::Result<T, String>;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if env::var_os("CARGO_FEATURE_CUDA").is_none() {
        return;
    }
    println!("cargo::rerun-if-changed={KERNELS}");
    for variable in VARIABLES.iter().chain(&["MUSO_CUDA_ARCHS"]) {
        println!("cargo::rerun-if-env-changed={variable}");
    }
    println!("cargo::rerun-if-env-changed={DOCS_RS}");
    let made = if env::var_os(DOCS_RS).is_some() {
        write(CUDA, &[], &[])
    } else {
        build()
    };
    if let Err(message) = made {
        for line in message.lines() {
            println!("cargo::error={line}");
        }
        std::process::exit(1);
    }
}

fn build() -> Result<()> {
    let out = out()?;
    let toolkit = Toolkit::find()?;
    let archs = device_archs()?;
    let headers = read_all(&Path::new(KERNELS).join("common"), &["h", "cuh"])?;
    let modules: Vec<Module> = read_all(Path::new(KERNELS), &["cu"])?
        .iter()
        .map(|source| Module::new(&out, source, &headers, &toolkit))
        .collect::<Result<_>>()?;

    let each = |archs: &[u32]| -> Vec<(usize, u32)> {
        let of = |module| archs.iter().map(move |&arch| (module, arch));
        (0..modules.len()).flat_map(of).collect()
    };
    in_parallel(&each(&PTX_ARCHS), |&(m, arch)| {
        modules[m].compile(&toolkit, arch)
    })?;
    in_parallel(&each(&archs), |&(m, arch)| {
        modules[m].assemble(&toolkit, arch)
    })?;
    write(toolkit.version, &modules, &archs)
}

/// Writes the table to `$OUT_DIR`.
fn write(version: (i32, i32), modules: &[Module], archs: &[u32]) -> Result<()> {
    let table = table(version, modules, archs)?;
    fs::write(out()?.join("kernels.rs"), table).map_err(|e| format!("kernels.rs: {e}"))
}

fn out() -> Result<PathBuf> {
    let out = env::var_os("OUT_DIR").ok_or("OUT_DIR is not set")?;
    Ok(PathBuf::from(out))
}

/// One `.cu` and where its images are kept.
struct Module {
    name: String,
    source: PathBuf,
    directory: PathBuf,
}

impl Module {
    fn new(out: &Path, source: &Source, headers: &[Source], toolkit: &Toolkit) -> Result<Self> {
        // The standard library's hasher is enough for the name of a cache directory: it starts from fixed keys, and
        // should another release of Rust change it, the kernels are compiled once more.
        let mut hash = DefaultHasher::new();
        source.text.hash(&mut hash);
        for header in headers {
            header.text.hash(&mut hash);
        }
        FLAGS.hash(&mut hash);
        include_str!("kernels/toolkit.rs").hash(&mut hash);
        toolkit.nvcc().hash(&mut hash);
        toolkit.version.hash(&mut hash);
        let name = source.path.file_stem().unwrap_or_default();
        let name = name.to_string_lossy().into_owned();
        let directory = out.join(format!("{name}-{:016x}", hash.finish()));
        fs::create_dir_all(&directory).map_err(|e| format!("{}: {e}", directory.display()))?;
        Ok(Self {
            name,
            source: source.path.clone(),
            directory,
        })
    }

    fn ptx(&self, arch: u32) -> PathBuf {
        self.directory.join(format!("compute_{arch}.ptx"))
    }

    fn cubin(&self, arch: u32) -> PathBuf {
        self.directory.join(format!("sm_{arch}.cubin"))
    }

    fn report(&self, arch: u32) -> PathBuf {
        self.directory.join(format!("sm_{arch}.txt"))
    }

    fn compile(&self, toolkit: &Toolkit, arch: u32) -> Result<()> {
        once(&self.ptx(arch), |to| toolkit.ptx(&self.source, arch, to))
    }

    fn assemble(&self, toolkit: &Toolkit, arch: u32) -> Result<()> {
        once(&self.cubin(arch), |to| {
            let report = toolkit.cubin(&self.ptx(ptx_arch_for(arch)), arch, to)?;
            fs::write(self.report(arch), report).map_err(|e| e.to_string())
        })
    }
}

/// Makes a file unless it is there; under another name first, so that a build that was stopped leaves no half of one.
fn once(file: &Path, make: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    if file.exists() {
        return Ok(());
    }
    // The compiler minds the extension, so the new name keeps it.
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let unfinished = file.with_file_name(format!("unfinished-{name}"));
    make(&unfinished)?;
    fs::rename(&unfinished, file).map_err(|e| format!("{}: {e}", file.display()))
}

/// Runs `work` over all jobs on as many threads as Cargo allows; the first failure in their order is returned.
fn in_parallel<J: Sync>(jobs: &[J], work: impl Fn(&J) -> Result<()> + Sync) -> Result<()> {
    let allowed = env::var("NUM_JOBS").ok().and_then(|n| n.parse().ok());
    let threads = allowed.unwrap_or(1_usize).clamp(1, jobs.len().max(1));
    let next = AtomicUsize::new(0);
    let failures = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some((number, job)) = {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    jobs.get(number).map(|job| (number, job))
                } {
                    if let Err(message) = work(job)
                        && let Ok(mut failures) = failures.lock()
                    {
                        failures.push((number, message));
                    }
                }
            });
        }
    });
    let mut failures = failures.into_inner().map_err(|e| e.to_string())?;
    failures.sort();
    match failures.into_iter().next() {
        Some((_, message)) => Err(message),
        None => Ok(()),
    }
}

/// `$MUSO_CUDA_ARCHS` or [`ARCHS`].
fn device_archs() -> Result<Vec<u32>> {
    let text = env::var("MUSO_CUDA_ARCHS").unwrap_or_else(|_| ARCHS.into());
    let words = text.split([',', ' ']).filter(|word| !word.is_empty());
    words
        .map(|word| {
            let arch = word.parse().ok().filter(|&arch| arch >= PTX_ARCHS[0]);
            arch.ok_or_else(|| {
                format!("MUSO_CUDA_ARCHS: `{word}` is not an architecture; expected numbers from 75 on, such as {ARCHS}")
            })
        })
        .collect()
}

struct Source {
    path: PathBuf,
    text: String,
}

/// The files of a directory with one of these extensions, by name.
fn read_all(directory: &Path, extensions: &[&str]) -> Result<Vec<Source>> {
    let failed = |error| format!("{}: {error}", directory.display());
    let mut paths = Vec::new();
    for entry in fs::read_dir(directory).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let extension = path.extension().unwrap_or_default().to_string_lossy();
        if extensions.contains(&extension.as_ref()) {
            paths.push(path);
        }
    }
    paths.sort();
    let read = |path: PathBuf| {
        let text = fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        Ok(Source { path, text })
    };
    paths.into_iter().map(read).collect()
}

/// What the table is made of.
const TYPES: &str = "
/// Code for one architecture.
#[derive(Debug)]
pub struct Image {
    /// compute_… of PTX, sm_… of machine code.
    pub arch: u32,
    /// The PTX text, or the cubin.
    pub bytes: &'static [u8],
}

/// One `.cu`.
#[derive(Debug)]
pub struct Module {
    /// Its stem.
    pub name: &'static str,
    /// PTX, oldest architecture first.
    pub ptx: &'static [Image],
    /// Machine code.
    pub cubins: &'static [Image],
}

/// What ptxas says of one kernel on one device.
#[derive(Clone, Copy, Debug)]
pub struct Resources {
    /// The exported symbol.
    pub kernel: &'static str,
    /// Architecture, as in sm_80.
    pub arch: u32,
    /// Registers a thread.
    pub registers: u32,
    /// Bytes of static shared memory.
    pub shared: u32,
    /// Bytes of stack a thread.
    pub stack: u32,
    /// Bytes stored and loaded because registers ran out.
    pub spills: u32,
}
";

fn table(version: (i32, i32), modules: &[Module], archs: &[u32]) -> Result<String> {
    let read = |path: &Path| {
        fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
    };
    let mut out = String::from("// Made by build.rs from kernels/.\n\n");
    for line in read(&Path::new(KERNELS).join("common/tiles.h"))?.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        if let ["#define", name, value] = words[..]
            && let Ok(value) = value.parse::<usize>()
        {
            out += &format!("/// As in tiles.h.\npub const {name}: usize = {value};\n");
        }
    }
    out += TYPES;
    out += "\n/// Version of nvcc.\n";
    out += &format!("pub const TOOLKIT: (i32, i32) = {version:?};\n\n");
    out += "/// The modules, by name.\npub static MODULES: &[Module] = &[\n";
    for module in modules {
        let ptx = images(&PTX_ARCHS, |arch| module.ptx(arch));
        let cubins = images(archs, |arch| module.cubin(arch));
        let name = &module.name;
        out += &format!("    Module {{ name: {name:?}, ptx: &[{ptx}], cubins: &[{cubins}] }},\n");
    }
    out += "];\n\n/// Every kernel on every device that machine code was made for.\n";
    out += "pub static RESOURCES: &[Resources] = &[\n";
    for module in modules {
        for &arch in archs {
            for resources in parse_report(&read(&module.report(arch))?, arch) {
                // The fields have the same names and order here and there.
                out += &format!("    {resources:?},\n");
            }
        }
    }
    out += "];\n";
    Ok(out)
}

fn images(archs: &[u32], file: impl Fn(u32) -> PathBuf) -> String {
    let image = |&arch: &u32| {
        let file = file(arch);
        format!("Image {{ arch: {arch}, bytes: include_bytes!({file:?}) }}, ")
    };
    archs.iter().map(image).collect()
}
