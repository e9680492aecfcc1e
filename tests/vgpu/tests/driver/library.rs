//! The library as a file: its name, and that it is found under that of the real driver once it is loaded.

use std::{
    ffi::{CStr, CString, c_void},
    path::PathBuf,
    process::Command,
};

/// Where cargo puts the cdylib, beside this test or one directory up.
fn library() -> PathBuf {
    let own = std::env::current_exe().unwrap();
    let deps = own.parent().unwrap();
    let places = [
        deps.join("libvgpu.so"),
        deps.parent().unwrap().join("libvgpu.so"),
    ];
    places
        .into_iter()
        .find(|p| p.exists())
        .expect("cargo builds the cdylib with the tests")
}

fn open(name: &CStr) -> *mut c_void {
    // SAFETY: loading the library runs no code of the tests.
    unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_LAZY) }
}

fn symbol(library: *mut c_void, name: &CStr) -> *mut c_void {
    // SAFETY: a handle that `dlopen` returned.
    unsafe { libc::dlsym(library, name.as_ptr()) }
}

#[test]
fn once_loaded_by_its_path_it_answers_to_the_name_of_the_driver() {
    let path = CString::new(library().to_str().unwrap()).unwrap();
    let by_path = open(&path);
    assert!(!by_path.is_null());
    let by_name = open(c"libcuda.so");
    assert_eq!(symbol(by_path, c"cuInit"), symbol(by_name, c"cuInit"));
    // Functions are found by their plain name, in the version that a program was built for.
    let get = symbol(by_path, c"cuGetProcAddress_v2");
    assert!(!get.is_null());
    // SAFETY: the signature is that of cuda.h.
    let get: extern "C" fn(*const i8, *mut *mut c_void, i32, u64, *mut u32) -> u32 =
        unsafe { std::mem::transmute(get) };
    for (name, version, expected) in [
        (c"cuMemAlloc", 12_000, c"cuMemAlloc_v2"),
        (c"cuCtxCreate", 12_000, c"cuCtxCreate_v2"),
        (c"cuCtxCreate", 13_000, c"cuCtxCreate_v4"),
        (c"cuLaunchKernel", 11_000, c"cuLaunchKernel"),
    ] {
        let mut found = std::ptr::null_mut();
        assert_eq!(
            get(name.as_ptr(), &mut found, version, 0, std::ptr::null_mut()),
            0
        );
        assert_eq!(found, symbol(by_path, expected), "{name:?}");
    }
    let (mut found, mut status) = (by_path, 9);
    assert_ne!(
        get(c"cuNothing".as_ptr(), &mut found, 13_000, 0, &mut status),
        0
    );
    assert!(found.is_null() && status == 1);
}

#[test]
fn the_file_is_not_called_like_the_driver() {
    let directory = library();
    let directory = directory.parent().unwrap();
    for name in ["libcuda.so", "libcuda.so.1"] {
        assert!(
            !directory.join(name).exists(),
            "cargo test would load it instead of a real driver"
        );
    }
}

#[test]
fn a_link_of_that_name_on_the_search_path_is_enough() {
    let directory = std::env::temp_dir().join(format!("vgpu-link-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    for name in ["libcuda.so", "libcuda.so.1"] {
        let link = directory.join(name);
        let _ = std::fs::remove_file(&link);
        std::os::unix::fs::symlink(library(), link).unwrap();
    }
    let status = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "library::child_finds_the_driver", "--ignored"])
        .env("LD_LIBRARY_PATH", &directory)
        .output()
        .unwrap();
    std::fs::remove_dir_all(&directory).unwrap();
    assert!(
        status.status.success(),
        "{}",
        String::from_utf8_lossy(&status.stdout)
    );
}

#[test]
#[ignore = "run by the test above with a search path"]
fn child_finds_the_driver() {
    let (plain, numbered) = (open(c"libcuda.so"), open(c"libcuda.so.1"));
    assert!(!plain.is_null() && !numbered.is_null());
    assert_eq!(
        symbol(plain, c"vgpuReport"),
        symbol(numbered, c"vgpuReport")
    );
    assert!(!symbol(plain, c"vgpuReport").is_null());
}
