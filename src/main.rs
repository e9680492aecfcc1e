//! The `muso` program: parse, call, print. Everything it does is in the library, but for the harness of `muso bench`.

mod bench;
mod cli;

fn main() -> std::process::ExitCode {
    #[cfg(all(feature = "cuda", feature = "nn"))]
    muso::gpu::compiler::announce();
    cli::main()
}
