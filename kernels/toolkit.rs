//! Finding and running the CUDA compiler: what `build.rs` and the kernel tests of the virtual GPU share.
//!
//! A `.cu` becomes PTX once for each virtual architecture, and every cubin is assembled from one of those, so that the
//! slow half of the compiler runs twice a module however many devices are asked for.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// The virtual architectures that modules are compiled for: everything from Turing on, and what has f64 tensor cores,
/// `cp.async` and bf16.
pub(crate) const PTX_ARCHS: [u32; 2] = [75, 80];

/// What is passed to nvcc beside the architecture. f64 sums are spelled out as `fma`, so contraction changes nothing,
/// and no fast-math flag may ever stand here.
pub(crate) const FLAGS: [&str; 3] = ["-std=c++17", "-lineinfo", "--fmad=false"];

/// Environment variables that the search reads.
pub(crate) const VARIABLES: [&str; 4] = ["NVCC", "CUDA_HOME", "CUDA_PATH", "VIRTUAL_ENV"];

/// What to do when there is no compiler.
pub(crate) const REMEDY: &str = "feature `cuda` needs nvcc, which is not at $NVCC, under $CUDA_HOME or $CUDA_PATH, on the PATH \
or in the active Python's site-packages. To install one there:\n\n    \
pip install 'nvidia-cuda-nvcc==13.0.*' 'nvidia-nvvm==13.0.*' 'nvidia-cuda-crt==13.0.*' 'nvidia-cuda-runtime==13.0.*' \
nvidia-cuda-cccl 'nvidia-cuda-nvrtc==13.0.*'\n";

/// A working nvcc.
#[derive(Clone, Debug)]
pub(crate) struct Toolkit {
    nvcc: PathBuf,
    /// Major and minor version.
    pub(crate) version: (i32, i32),
}

/// What ptxas says of one kernel on one device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Resources {
    /// The exported symbol.
    pub(crate) kernel: String,
    /// Architecture, as in sm_80.
    pub(crate) arch: u32,
    /// Registers a thread.
    pub(crate) registers: u32,
    /// Bytes of static shared memory.
    pub(crate) shared: u32,
    /// Bytes of stack a thread.
    pub(crate) stack: u32,
    /// Bytes stored and loaded because registers ran out.
    pub(crate) spills: u32,
}

impl Toolkit {
    /// Looks at `$NVCC`, `$CUDA_HOME`, `$CUDA_PATH`, the PATH, the active virtual environment and the active Python.
    ///
    /// # Errors
    /// [`REMEDY`], or why the nvcc that was named does not run.
    pub(crate) fn find() -> Result<Self, String> {
        let named = |variable: &str| env::var_os(variable).filter(|value| !value.is_empty());
        if let Some(nvcc) = named("NVCC") {
            return Self::at(PathBuf::from(nvcc));
        }
        let homes = ["CUDA_HOME", "CUDA_PATH"].into_iter().filter_map(named);
        let homes = homes.map(|home| Path::new(&home).join("bin"));
        let path = env::var_os("PATH").unwrap_or_default();
        let directories = homes
            .chain(env::split_paths(&path))
            .chain(python_packages());
        let candidates =
            directories.map(|bin| bin.join(format!("nvcc{}", env::consts::EXE_SUFFIX)));
        match candidates.into_iter().find(|nvcc| nvcc.is_file()) {
            Some(nvcc) => Self::at(nvcc),
            None => Err(REMEDY.into()),
        }
    }

    fn at(nvcc: PathBuf) -> Result<Self, String> {
        let output = run(&nvcc, &["--version".into()])?;
        let version = output
            .split_once("release ")
            .and_then(|(_, rest)| rest.split_once(','))
            .and_then(|(version, _)| version.split_once('.'))
            .and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)))
            .ok_or_else(|| format!("{} --version is not understood:\n{output}", nvcc.display()))?;
        Ok(Self { nvcc, version })
    }

    /// The compiler.
    pub(crate) fn nvcc(&self) -> &Path {
        &self.nvcc
    }

    /// `source` (.cu) → PTX for compute_`arch`.
    ///
    /// # Errors
    /// What nvcc printed.
    pub(crate) fn ptx(&self, source: &Path, arch: u32, to: &Path) -> Result<(), String> {
        let mut arguments: Vec<OsString> = FLAGS.iter().map(OsString::from).collect();
        arguments.extend([format!("-arch=compute_{arch}").into(), "-ptx".into()]);
        arguments.extend([source.into(), "-o".into(), to.into()]);
        run(&self.nvcc, &arguments)?;
        let text = fs::read_to_string(to).map_err(|e| format!("{}: {e}", to.display()))?;
        let folder = source.parent().unwrap_or(Path::new(""));
        let folder = fs::canonicalize(folder).unwrap_or_default();
        fs::write(to, portable(&text, &folder)).map_err(|e| format!("{}: {e}", to.display()))
    }

    /// PTX → machine code for sm_`arch`; returns the assembler's report. Line information stays with the PTX: the
    /// assembler would keep a copy of the text with every cubin and make it four times as large.
    ///
    /// # Errors
    /// What nvcc printed.
    pub(crate) fn cubin(&self, ptx: &Path, arch: u32, to: &Path) -> Result<String, String> {
        let text = fs::read_to_string(ptx).map_err(|e| format!("{}: {e}", ptx.display()))?;
        let bare = to.with_extension("ptx");
        fs::write(&bare, without_lines(&text)).map_err(|e| format!("{}: {e}", bare.display()))?;
        let mut arguments: Vec<OsString> = vec![format!("-arch=sm_{arch}").into()];
        arguments.extend(["-cubin", "-Xptxas", "-v"].map(OsString::from));
        arguments.extend([bare.clone().into(), "-o".into(), to.into()]);
        let report = run(&self.nvcc, &arguments)?;
        fs::remove_file(&bare).map_err(|e| format!("{}: {e}", bare.display()))?;
        Ok(report)
    }
}

/// PTX that is the same wherever it was compiled: source files are named from the folder of kernels on, those of the
/// toolkit from its `include` on, and names of the toolkit's own functions carry no hash of the source's folder.
fn portable(ptx: &str, kernels: &Path) -> String {
    let mut lines: Vec<String> = ptx.lines().map(str::to_owned).collect();
    for line in lines
        .iter_mut()
        .filter(|line| line.trim_start().starts_with(".file"))
    {
        let mut parts: Vec<&str> = line.split('"').collect();
        let Some(path) = parts.get(1) else {
            continue;
        };
        let path = fs::canonicalize(path).unwrap_or_else(|_| path.into());
        let shown = |path: &Path| path.display().to_string().replace('\\', "/");
        let whole = shown(&path);
        let name = match (path.strip_prefix(kernels), whole.rsplit_once("/include/")) {
            (Ok(own), _) => format!("kernels/{}", shown(own)),
            (Err(_), Some((_, header))) => format!("include/{header}"),
            (Err(_), None) => whole.rsplit('/').next().unwrap_or_default().to_owned(),
        };
        parts[1] = &name;
        *line = parts.join("\"");
    }
    // Debug strings are lists of numbers, which go on from line to line.
    let numbers = |line: &str| -> Option<Vec<u8>> {
        let list = line.trim_start().strip_prefix(".b8 ")?;
        list.split(',')
            .map(|number| number.trim().parse().ok())
            .collect()
    };
    let listed: Vec<(usize, Vec<u8>)> = (0..lines.len())
        .filter_map(|n| Some((n, numbers(&lines[n])?)))
        .collect();
    let mut bytes: Vec<u8> = listed.iter().flat_map(|(_, list)| list).copied().collect();
    const MARK: &[u8] = b"_INTERNAL_";
    const HASH: usize = 8;
    for at in 0..bytes.len().saturating_sub(MARK.len() + HASH) {
        if bytes[at..].starts_with(MARK) {
            bytes[at + MARK.len()..][..HASH].fill(b'0');
        }
    }
    let mut rest = bytes.as_slice();
    for (n, list) in listed {
        let now;
        (now, rest) = rest.split_at(list.len());
        if now != list {
            let now: Vec<String> = now.iter().map(u8::to_string).collect();
            lines[n] = format!(".b8 {}", now.join(","));
        }
    }
    lines.join("\n") + "\n"
}

/// PTX without `.loc`, `.file` and the sections they refer to.
fn without_lines(ptx: &str) -> String {
    let mut out = String::with_capacity(ptx.len());
    let mut in_section = false;
    for line in ptx.lines() {
        let word = line.split_whitespace().next().unwrap_or_default();
        in_section |= word == ".section";
        if !in_section && word != ".loc" && word != ".file" {
            out.push_str(line);
            out.push('\n');
        }
        in_section &= word != "}";
    }
    out
}

/// The architecture of [`PTX_ARCHS`] that a cubin for sm_`arch` is assembled from.
pub(crate) fn ptx_arch_for(arch: u32) -> u32 {
    let usable = PTX_ARCHS.into_iter().filter(|&ptx| ptx <= arch);
    usable.max().unwrap_or(PTX_ARCHS[0])
}

/// Reads `-Xptxas -v`.
pub(crate) fn parse_report(report: &str, arch: u32) -> Vec<Resources> {
    let mut found: Vec<Resources> = Vec::new();
    for line in report.lines() {
        if let Some((_, rest)) = line.split_once("Compiling entry function '") {
            let kernel = rest.split('\'').next().unwrap_or_default().to_owned();
            found.push(Resources {
                kernel,
                arch,
                ..Resources::default()
            });
        }
        if let Some(current) = found.last_mut() {
            let before = |unit: &str| number_before(line, unit);
            current.registers = before(" registers").unwrap_or(current.registers);
            current.shared = before(" bytes smem").unwrap_or(current.shared);
            current.stack = before(" bytes stack frame").unwrap_or(current.stack);
            if let (Some(stores), Some(loads)) =
                (before(" bytes spill stores"), before(" bytes spill loads"))
            {
                current.spills = stores + loads;
            }
        }
    }
    found
}

/// The number that stands right before `unit`.
fn number_before(line: &str, unit: &str) -> Option<u32> {
    let (before, _) = line.split_once(unit)?;
    let start = before
        .rfind(|c: char| !c.is_ascii_digit())
        .map_or(0, |at| at + 1);
    before[start..].parse().ok()
}

/// Where pip puts nvcc: the virtual environment that is active, then the Python on the PATH.
fn python_packages() -> Vec<PathBuf> {
    let mut sites = Vec::new();
    if let Some(environment) = env::var_os("VIRTUAL_ENV") {
        let library = Path::new(&environment).join("lib");
        let versions = fs::read_dir(library).into_iter().flatten().flatten();
        sites.extend(versions.map(|version| version.path().join("site-packages")));
        sites.push(Path::new(&environment).join("Lib").join("site-packages"));
    }
    let script = "import sysconfig; print(sysconfig.get_paths()['purelib'])";
    for python in ["python3", "python"] {
        if let Ok(site) = run(Path::new(python), &["-c".into(), script.into()]) {
            sites.push(PathBuf::from(site.trim()));
        }
    }
    let bins = sites.iter().flat_map(|site| {
        let packages = site.join("nvidia");
        ["cu13", "cuda_nvcc"].map(|package| packages.join(package).join("bin"))
    });
    bins.collect()
}

/// Runs to the end and returns all that was printed.
fn run(program: &Path, arguments: &[OsString]) -> Result<String, String> {
    let output = Command::new(program)
        .args(arguments)
        .output()
        .map_err(|error| format!("{} could not be started: {error}", program.display()))?;
    let mut printed = String::from_utf8_lossy(&output.stdout).into_owned();
    printed.push_str(&String::from_utf8_lossy(&output.stderr));
    if output.status.success() {
        Ok(printed)
    } else {
        let arguments: Vec<_> = arguments.iter().map(|a| a.to_string_lossy()).collect();
        let command = format!("{} {}", program.display(), arguments.join(" "));
        Err(format!("{command}\n{printed}"))
    }
}
