//! The `muso` program: parse, call, print. Everything it does is in the library.

mod cli;

fn main() -> std::process::ExitCode {
    cli::main()
}
