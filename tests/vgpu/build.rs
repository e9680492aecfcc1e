//! Linker settings of the cdylib.
//!
//! The name in the library is `libcuda.so`: once a process has loaded the file by its path, every later
//! `dlopen("libcuda.so")` is answered with it, whatever lies on the search path. The file keeps its own name, so that
//! nobody gets the virtual device who did not ask for it. Never unloading it keeps worker threads and the report at
//! the end of the process alive when a loader closes its handle.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_TARGET_OS").as_deref() == Ok("linux") {
        println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libcuda.so");
        println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    }
}
