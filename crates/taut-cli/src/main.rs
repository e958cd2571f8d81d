//! The `taut` command. What it does stands in the library beside it, where tests reach it.

fn main() -> std::process::ExitCode {
    taut_cli::main()
}
