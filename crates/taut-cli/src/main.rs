//! The `taut` command. Its code is in the library of this package, where tests can call it.

fn main() -> std::process::ExitCode {
    taut_cli::main()
}
