//! Nothing but dependencies.
//!
//! criterion and proptest switch on features of crates that burn depends on as well (regex, ciborium, either). Cargo gives
//! dev-dependencies no say in a build without tests, so that `cargo run` and `cargo test` would each compile burn, several
//! minutes of it. As a default member of the workspace this crate has the same features switched on in every build, and
//! nothing of it is published. `.ci/dependencies.py` compares the two.
