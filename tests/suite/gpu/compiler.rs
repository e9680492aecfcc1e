//! NVRTC and its headers: found at run time, and by nothing that the build left in the program.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use muso::gpu::compiler::{ORDER, toolkit};
use serde_json::Value;

use super::virtual_library;

/// Has burn find the toolkit in this process, whose tests run in threads; called by the loader, when there are none.
#[used]
#[cfg_attr(target_os = "linux", unsafe(link_section = ".init_array"))]
#[allow(unsafe_code)] // The attribute above.
static ANNOUNCE: extern "C" fn() = {
    extern "C" fn announce() {
        muso::gpu::compiler::announce();
    }
    announce
};

/// A folder with as much of a toolkit as the search looks at.
fn install(root: &Path) {
    for folder in ["include", "lib"] {
        fs::create_dir_all(root.join(folder)).unwrap();
    }
    for file in [
        "include/cuda_fp16.h",
        "lib/libnvrtc.so.13",
        "lib/libnvrtc-builtins.so.13.0",
    ] {
        fs::write(root.join(file), "").unwrap();
    }
}

/// The doctor's list of toolkits where only these variables name some, and what it prints.
fn doctor(variables: &[(&str, &Path)]) -> (Vec<Value>, String) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("doctor.json");
    let mut command = Command::new(env!("CARGO_BIN_EXE_muso"));
    command.arg("doctor").arg("--json").arg(&file);
    for name in ORDER.iter().filter_map(|entry| entry.strip_prefix('$')) {
        command.env_remove(name);
    }
    let output = command.envs(variables.iter().copied()).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let json: Value = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
    let places = json["toolkits"].as_array().unwrap().clone();
    (places, String::from_utf8(output.stdout).unwrap())
}

#[test]
fn doctor_says_what_was_found_where() {
    let folder = tempfile::tempdir().unwrap();
    let [path, home] = ["path", "home"].map(|name| folder.path().join(name));
    install(&home);
    let variables = [("CUDA_PATH", path.as_path()), ("CUDA_HOME", &home)];
    let (places, said) = doctor(&variables);
    let line = |root: &Path, rest: &str| format!("{}: {rest}\n", root.display());
    assert!(
        said.contains(&line(&path, "no headers, no NVRTC")),
        "{said}"
    );
    assert!(
        said.contains(&line(&home, "headers, libnvrtc.so.13; used")),
        "{said}"
    );
    let used = |place: &&Value| place["used"] == true;
    let of = |from: &str| places.iter().find(|place| place["from"] == from).unwrap();
    assert_eq!(of("$CUDA_PATH")["headers"], false);
    assert_eq!(of("$CUDA_HOME")["root"], home.to_str().unwrap());
    assert_eq!(places.iter().filter(used).count(), 1);

    // What the first lacked is there now: it goes before the second.
    install(&path);
    let (places, _) = doctor(&variables);
    assert_eq!(places.iter().find(used).unwrap()["from"], "$CUDA_PATH");
}

/// What is found first is what is used, and a library that does not load is one line, not a panic of burn.
#[test]
fn a_library_that_cannot_be_loaded_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("broken");
    install(&root);
    let mut train = Command::new(env!("CARGO_BIN_EXE_muso"));
    train.current_dir(folder.path()).env("CUDA_PATH", &root);
    train.env("MUSO_VGPU", virtual_library());
    train.args(["train", "--device", "cuda", "--epochs", "1", "--out", "run"]);
    let output = train.output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    let library = root.join("lib/libnvrtc-builtins.so.13.0");
    for word in [library.to_str().unwrap(), "cannot be loaded"] {
        assert!(said.contains(word), "no {word:?} in: {said}");
    }
    assert!(!folder.path().join("run").exists());
}

/// Whoever can write to a folder of the build machine must not be able to run code here.
#[test]
fn no_path_of_the_build_is_in_the_program() {
    let program = fs::read(env!("CARGO_BIN_EXE_muso")).unwrap();
    let has = |path: &Path| {
        let path = path.to_str().unwrap().as_bytes();
        program.windows(path.len()).any(|bytes| bytes == path)
    };
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    // The toolkit of the build is the one of the tests. The look-up itself knows folders by custom.
    let toolkit = toolkit().map(|place| place.root.clone());
    let own = toolkit.filter(|root| {
        !["/usr/local/cuda", "/opt/cuda", "/usr"]
            .map(PathBuf::from)
            .contains(root)
    });
    for path in own.iter().map(PathBuf::as_path).chain([root]) {
        assert!(!has(path), "the program has {}", path.display());
    }
    let known = "/usr/local/cuda";
    assert!(has(Path::new(known)), "the scan does not see {known}");
}
