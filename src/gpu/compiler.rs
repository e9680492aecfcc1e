//! NVRTC, the compiler that burn's CUDA backend calls at run time: found with its headers and loaded, or one sentence that
//! says why not.
//!
//! Nothing is taken from where this program was built. Headers and library come from one toolkit, the first that has both
//! in the order of [`ORDER`], which docs/gpu.md explains; `muso doctor` prints what was found where.
//!
//! burn takes the headers from the folder that the environment variable `CUDA_PATH` names, whenever it compiles, and panics
//! without. A program whose networks may run on a CUDA device calls [`announce`] first thing, or is started with the
//! variable set; [`prepare`] then loads the library, and [`Workplace::new`](crate::pipeline::networks::Workplace::new)
//! calls that.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use cudarc::nvrtc::sys;

use super::driver::open_library;
use crate::error::{Error, Result};

/// Where a toolkit is looked for, first to last.
pub const ORDER: [&str; 7] = [
    "$CUDA_PATH",
    "$CUDA_HOME",
    "$VIRTUAL_ENV",
    "$CONDA_PREFIX",
    "standard folders",
    "loader's path",
    "beside the program",
];

/// Folders that toolkits and distributions install to.
const STANDARD: [&str; 3] = ["/usr/local/cuda", "/opt/cuda", "/usr"];

/// The header that burn's kernels include first.
const HEADER: &str = "include/cuda_fp16.h";

/// How the names of the libraries begin: what the compiler loads by name, and the compiler.
const LIBRARIES: [&str; 2] = if cfg!(windows) {
    ["nvrtc-builtins64_", "nvrtc64_"]
} else {
    ["libnvrtc-builtins.so", "libnvrtc.so"]
};

/// A folder that may be a CUDA toolkit, as it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The entry of [`ORDER`] that led here.
    pub from: &'static str,
    /// The folder that `include` is in.
    pub root: PathBuf,
    /// Whether the headers are there.
    pub headers: bool,
    /// What the compiler loads by name, and the compiler, if both are there.
    libraries: Option<[PathBuf; 2]>,
}

impl Place {
    /// Returns the compiler's library, if it and what it loads are there.
    pub fn library(&self) -> Option<&Path> {
        self.libraries.as_ref().map(|[_, nvrtc]| nvrtc.as_path())
    }

    /// Returns whether headers and library are both there.
    pub fn is_whole(&self) -> bool {
        self.headers && self.libraries.is_some()
    }

    /// Looks at `root`, for libraries in `folders` as well as in the usual ones below.
    fn look(from: &'static str, root: PathBuf, folders: &[PathBuf]) -> Self {
        let arch = std::env::consts::ARCH;
        let usual = [
            "lib64".into(),
            "lib".into(),
            format!("targets/{arch}-linux/lib"),
            format!("lib/{arch}-linux-gnu"),
            "bin".into(),
            "bin/x64".into(),
            String::new(),
        ];
        let mut folders = folders.to_vec();
        folders.extend(usual.map(|below| root.join(below)));
        Self {
            from,
            headers: root.join(HEADER).is_file(),
            libraries: folders.iter().find_map(|folder| libraries_in(folder)),
            root,
        }
    }
}

/// The newest libraries of a folder that has them all.
fn libraries_in(folder: &Path) -> Option<[PathBuf; 2]> {
    let entries = std::fs::read_dir(folder).ok()?.flatten();
    let names: Vec<OsString> = entries.map(|entry| entry.file_name()).collect();
    let newest = |stem: &str| {
        let fits = |name: &&OsString| name.to_string_lossy().starts_with(stem);
        names
            .iter()
            .filter(fits)
            .max()
            .map(|name| folder.join(name))
    };
    let [builtins, nvrtc] = LIBRARIES.map(newest);
    Some([builtins?, nvrtc?])
}

/// What a search goes by; a test makes its own.
struct Surroundings<'a> {
    /// Value of an environment variable.
    variable: &'a dyn Fn(&str) -> Option<OsString>,
    /// Where `/` is.
    base: &'a Path,
    /// The folder of the running program.
    program: Option<PathBuf>,
}

impl Surroundings<'_> {
    /// The value of a variable that is set to something.
    fn named(&self, variable: &str) -> Option<PathBuf> {
        let value = (self.variable)(variable).filter(|value| !value.is_empty());
        value.map(PathBuf::from)
    }

    /// A path from `/`.
    fn rooted(&self, path: &Path) -> PathBuf {
        self.base.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// Every place that was named or has something, in the order of [`ORDER`].
    fn places(&self) -> Vec<Place> {
        let [path, home, venv, conda, standard, loader, program] = ORDER;
        let mut places = Vec::new();
        for from in [path, home] {
            let named = self.named(from.trim_start_matches('$'));
            places.extend(named.map(|root| Place::look(from, root, &[])));
        }
        let below = |from, root| Place::look(from, root, &[]);
        for from in [venv, conda] {
            let Some(prefix) = self.named(from.trim_start_matches('$')) else {
                continue;
            };
            let mut roots = python_packages(&prefix);
            if from == conda {
                roots.push(prefix.join(format!("targets/{}-linux", std::env::consts::ARCH)));
                roots.push(prefix);
            }
            places.extend(roots.into_iter().map(|root| below(from, root)));
        }
        let roots = STANDARD.map(|root| self.rooted(Path::new(root)));
        places.extend(roots.map(|root| below(standard, root)));
        for folder in self.loader_path() {
            // Three folders up at most: TOOLKIT/targets/ARCH/lib.
            let mut above = folder.ancestors().skip(1).take(3);
            let root = above.find(|root| root.join(HEADER).is_file());
            let root = root.or(folder.parent()).unwrap_or(&folder).to_owned();
            places.push(Place::look(loader, root, &[folder]));
        }
        places.extend(self.program.clone().map(|root| below(program, root)));
        let named = |place: &Place| [path, home].contains(&place.from);
        places.retain(|place| named(place) || place.headers || place.libraries.is_some());
        places
    }

    /// The folders that the dynamic loader is told to search and that have the library. Relative ones are left out: they
    /// would be another folder in every working directory.
    fn loader_path(&self) -> Vec<PathBuf> {
        let listed = (self.variable)("LD_LIBRARY_PATH").unwrap_or_default();
        let mut folders: Vec<PathBuf> = std::env::split_paths(&listed).collect();
        let settings = self.rooted(Path::new("/etc/ld.so.conf.d"));
        let entries = std::fs::read_dir(settings).into_iter().flatten().flatten();
        let mut files: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
        files.sort();
        for file in files {
            let text = std::fs::read_to_string(file).unwrap_or_default();
            let lines = text.lines().map(str::trim);
            let folder = |line: &str| self.rooted(Path::new(line));
            folders.extend(lines.filter(|line| line.starts_with('/')).map(folder));
        }
        folders.retain(|folder| folder.is_absolute() && libraries_in(folder).is_some());
        folders
    }
}

/// Where pip puts the toolkit that compiled the kernels, or another of the same major version.
fn python_packages(prefix: &Path) -> Vec<PathBuf> {
    let toolkit = format!("cu{}", super::module::table::TOOLKIT.0);
    let versions = std::fs::read_dir(prefix.join("lib"))
        .into_iter()
        .flatten()
        .flatten();
    let mut sites: Vec<PathBuf> = versions
        .map(|version| version.path().join("site-packages"))
        .collect();
    sites.sort();
    sites.push(prefix.join("Lib/site-packages"));
    let roots = sites.iter().map(|site| site.join("nvidia").join(&toolkit));
    roots.collect()
}

/// Returns the places that were named or have a part of a toolkit, in the order of [`ORDER`]; the first that
/// [`is_whole`](Place::is_whole) is the one that is used. They are looked for once in a process.
pub fn places() -> &'static [Place] {
    static PLACES: OnceLock<Vec<Place>> = OnceLock::new();
    PLACES.get_or_init(|| {
        let program = std::env::current_exe().ok();
        let surroundings = Surroundings {
            variable: &|name| std::env::var_os(name),
            base: Path::new("/"),
            program: program.and_then(|file| file.parent().map(Path::to_owned)),
        };
        surroundings.places()
    })
}

/// Returns the toolkit that networks on CUDA use.
pub fn toolkit() -> Option<&'static Place> {
    places().iter().find(|place| place.is_whole())
}

/// Sets the environment variable `CUDA_PATH` to [`toolkit`] for burn. The first statement of `main` is the place: where the
/// process has other threads already, or where there is no toolkit, nothing is done.
pub fn announce() {
    // The C library's environment has no lock, and drivers and the like read it from threads of their own.
    let threads = std::fs::read_dir("/proc/self/task").map_or(0, Iterator::count);
    if (threads == 1 || cfg!(windows))
        && let Some(place) = toolkit()
    {
        // SAFETY: no other thread reads the environment meanwhile, since there is none, as was just counted, and only this
        // one could start it. On Windows the system locks the environment.
        unsafe { std::env::set_var("CUDA_PATH", &place.root) };
    }
}

/// Makes sure that burn will find the headers, and loads NVRTC, once.
///
/// # Errors
/// [`Error::Unavailable`] with what was looked for, or with the value of `CUDA_PATH` to start the program with.
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
    let found = toolkit().and_then(|place| Some((&place.root, place.libraries.as_ref()?)));
    let Some((root, [builtins, nvrtc])) = found else {
        return Err(format!(
            "networks on it need NVRTC and the headers of a CUDA toolkit, which are not together in one of: {}",
            ORDER.join(", ")
        ));
    };
    if muso_models::cuda::toolkit_root().as_ref() != Some(root) {
        return Err(format!(
            "networks on it need the environment variable CUDA_PATH from the start of the program: CUDA_PATH={}",
            root.display()
        ));
    }
    // The compiler asks for the first by its name alone, and burn for the second; the loader knows what is loaded by name.
    std::mem::forget(open(builtins)?);
    let ours = open(nvrtc)?;
    let name = b"nvrtcVersion\0";
    type Function = unsafe extern "C" fn();
    // SAFETY: the first looks for the library by its names, as burn does a moment later; of the functions, the addresses
    // are compared, and none is called.
    let same = unsafe {
        sys::is_culib_present()
            && match (
                sys::culib().get::<Function>(name),
                ours.get::<Function>(name),
            ) {
                (Ok(bound), Ok(ours)) => *bound as usize == *ours as usize,
                _ => false,
            }
    };
    std::mem::forget(ours);
    if same {
        Ok(())
    } else {
        Err(format!(
            "the loader finds another NVRTC before {}, and burn would use it with the headers of this one: set CUDA_PATH \
             to the toolkit of the other, or take that from the loader's path",
            nvrtc.display()
        ))
    }
}

/// Loads a library.
fn open(file: &Path) -> Result<libloading::Library, String> {
    // SAFETY: a library of a toolkit that the environment names, that the system installed or that came with the program;
    // its initialisers are those that burn would run a moment later.
    let library = unsafe { open_library(file) };
    library.map_err(|why| format!("networks on it need NVRTC, which cannot be loaded: {why}"))
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::fs;

    use super::*;

    /// A folder with variables that name toolkits in it, none of which is there yet.
    struct Machine {
        folder: tempfile::TempDir,
        variables: HashMap<&'static str, OsString>,
    }

    impl Machine {
        /// One toolkit for each entry of [`ORDER`], where the entry leads.
        fn new() -> (Self, Vec<PathBuf>) {
            let folder = tempfile::tempdir().expect("a temporary directory");
            let at = |path: &str| folder.path().join(path);
            let packages = format!(
                "venv/lib/python3.9/site-packages/nvidia/cu{}",
                super::super::module::table::TOOLKIT.0
            );
            let roots = [
                "path", "home", &packages, "conda", "opt/cuda", "loader", "program",
            ];
            let roots = roots.map(at).to_vec();
            let variables = [
                ("CUDA_PATH", at("path")),
                ("CUDA_HOME", at("home")),
                ("VIRTUAL_ENV", at("venv")),
                ("CONDA_PREFIX", at("conda")),
                ("LD_LIBRARY_PATH", at("loader/targets/any/lib")),
            ];
            let variables = variables.map(|(name, path)| (name, path.into())).into();
            (Self { folder, variables }, roots)
        }

        fn places(&self) -> Vec<Place> {
            let surroundings = Surroundings {
                variable: &|name| self.variables.get(name).cloned(),
                base: self.folder.path(),
                program: Some(self.folder.path().join("program")),
            };
            surroundings.places()
        }

        fn used(&self) -> Option<(&'static str, PathBuf)> {
            let whole = self.places().into_iter().find(Place::is_whole)?;
            Some((whole.from, whole.root))
        }
    }

    fn install(root: &Path, folder: &str) {
        fs::create_dir_all(root.join(folder)).unwrap();
        fs::create_dir_all(root.join("include")).unwrap();
        fs::write(root.join(HEADER), "").unwrap();
        for stem in LIBRARIES {
            fs::write(root.join(folder).join(format!("{stem}.13")), "").unwrap();
        }
    }

    #[test]
    fn the_first_whole_toolkit_in_the_order_is_used() {
        let (machine, roots) = Machine::new();
        let folders = ["lib64", "lib", "lib", "lib", "lib64", "targets/any/lib", ""];
        for (root, folder) in roots.iter().zip(folders) {
            install(root, folder);
        }
        // What has lost a part is passed over, whichever it is.
        let lost = [0, 1, 2, 1, 2, 0, 0];
        for (n, (root, folder)) in roots.iter().zip(folders).enumerate() {
            assert_eq!(machine.used(), Some((ORDER[n], root.clone())));
            let part = match lost[n] {
                0 => root.join(HEADER),
                k => root.join(folder).join(format!("{}.13", LIBRARIES[k - 1])),
            };
            fs::remove_file(part).unwrap();
        }
        assert_eq!(machine.used(), None);
        let halves: Vec<&str> = machine.places().iter().map(|place| place.from).collect();
        assert_eq!(halves, ORDER);
    }

    #[test]
    fn what_is_not_named_or_not_absolute_is_no_place() {
        let (mut machine, roots) = Machine::new();
        // Named, so it is told of, though it is not there.
        let named: Vec<&str> = machine.places().iter().map(|place| place.from).collect();
        assert_eq!(named, ORDER[..2]);
        for root in &roots[..4] {
            install(root, "lib");
        }
        machine.variables.insert("CUDA_PATH", OsString::new());
        machine.variables.remove("CUDA_HOME");
        machine.variables.remove("VIRTUAL_ENV");
        assert_eq!(machine.used(), Some((ORDER[3], roots[3].clone())));
        machine.variables.remove("CONDA_PREFIX");
        assert_eq!(machine.places(), []);

        // The tests run in the folder of the package, from which this leads to a toolkit.
        install(&roots[5], "lib");
        let here = std::env::current_dir().unwrap();
        let up: PathBuf = here.ancestors().skip(1).map(|_| "..").collect();
        let relative = up.join(roots[5].strip_prefix("/").unwrap()).join("lib");
        assert!(libraries_in(&relative).is_some());
        machine.variables.insert("LD_LIBRARY_PATH", relative.into());
        assert_eq!(machine.places(), []);
        // The system's list of folders is the loader's path, too.
        fs::create_dir_all(machine.folder.path().join("etc/ld.so.conf.d")).unwrap();
        let list = machine.folder.path().join("etc/ld.so.conf.d/cuda.conf");
        fs::write(list, "# a comment\n/loader/lib\n").unwrap();
        assert_eq!(machine.used(), Some((ORDER[5], roots[5].clone())));
    }

    #[test]
    fn the_newest_library_of_a_folder_is_taken() {
        let (machine, roots) = Machine::new();
        install(&roots[0], "lib");
        for name in ["libnvrtc.so.12", "libnvrtc.so", "libnvrtc.alt.so.13"] {
            fs::write(roots[0].join("lib").join(name), "").unwrap();
        }
        let place = &machine.places()[0];
        assert_eq!(
            place.library(),
            Some(roots[0].join("lib/libnvrtc.so.13").as_path())
        );
    }

    #[test]
    fn nothing_is_announced_beside_other_threads() {
        let value = || std::env::var_os("CUDA_PATH");
        let before = value();
        std::thread::scope(|scope| scope.spawn(announce).join()).unwrap();
        assert_eq!(value(), before);
    }

    #[test]
    fn the_page_has_the_order() {
        let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/gpu.md");
        let text = fs::read_to_string(page).unwrap();
        let entries = text.lines().filter_map(|line| {
            let (number, entry) = line.split_once(". ")?;
            number.parse::<usize>().ok()?;
            Some(entry.split([':', ',']).next()?.replace('`', ""))
        });
        assert_eq!(entries.collect::<Vec<_>>(), ORDER);
    }
}
