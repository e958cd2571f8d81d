//! Programs in C against the library that cargo built for these tests: installed by scripts/ffi, compiled
//! by `cc` with warnings as errors, and run as they are, under valgrind, and with the address sanitizer.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use taut_testbed::live;

const CRATE: &str = env!("CARGO_MANIFEST_DIR");

/// How a program is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    Plain,
    Valgrind,
    Sanitized,
}

pub const ALL: [How; 3] = [How::Plain, How::Valgrind, How::Sanitized];

/// Where the header and the libraries are installed. `None` if a program is missing that installs, compiles
/// or checks them; then the test has said so.
pub fn prefix() -> Option<&'static Path> {
    static PREFIX: OnceLock<PathBuf> = OnceLock::new();
    for program in ["cc", "pkg-config", "valgrind"] {
        if Command::new(program).arg("--version").output().is_err() {
            live::skip(&format!("not installed: {program} (run make setup)"));
            return None;
        }
    }
    Some(PREFIX.get_or_init(|| {
        // target/PROFILE/deps, where this program is.
        let test = std::env::current_exe().unwrap();
        let built = test.parent().unwrap();
        let prefix = built.parent().unwrap().join("taut-ffi-tests");
        let mut install = Command::new(Path::new(CRATE).join("../../scripts/ffi"));
        succeeds(install.arg(&prefix).env("TAUT_FFI_BUILT", built));
        prefix
    }))
}

/// Runs a command that must succeed, and returns what it prints.
pub fn succeeds(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    printed(command, &output)
}

/// The output of a command that must have succeeded.
pub fn printed(command: &Command, output: &Output) -> String {
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}\n{said}", output.status);
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The words of `pkg-config`.
pub fn flags(prefix: &Path, arguments: &[&str]) -> Vec<String> {
    let mut command = Command::new("pkg-config");
    command.args(arguments).arg("taut").env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig"));
    succeeds(&mut command).split_whitespace().map(str::to_owned).collect()
}

/// Compiles a program of this crate, by its path in it, and returns how to run it.
pub fn program(prefix: &Path, source: &str, how: How) -> Command {
    let source = Path::new(CRATE).join(source);
    let folder = prefix.join("bin");
    fs::create_dir_all(&folder).unwrap();
    let name = source.file_stem().unwrap().to_str().unwrap();
    let program = folder.join(format!("{name}-{how:?}"));
    // Another test may compile the same, or run it.
    let own = folder.join(format!("{name}-{how:?}-{:?}", std::thread::current().id()));
    let mut compile = Command::new("cc");
    compile.args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-g", "-pthread"]);
    if how == How::Sanitized {
        compile.args(["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]);
    }
    compile.arg(&source).args(flags(prefix, &["--cflags", "--libs"])).arg("-o").arg(&own);
    succeeds(&mut compile);
    fs::rename(&own, &program).unwrap();
    // One that hangs ends, a hundred times later than it should.
    let mut run = Command::new("timeout");
    run.arg("240").env("LD_LIBRARY_PATH", prefix.join("lib"));
    if how == How::Valgrind {
        valgrind(&mut run);
    }
    run.arg(program);
    run
}

/// Any finding is a failure, a leak too.
fn valgrind(command: &mut Command) {
    command.args(["valgrind", "--quiet", "--error-exitcode=99", "--leak-check=full"]);
    command.args(["--show-leak-kinds=definite,indirect", "--errors-for-leak-kinds=definite,indirect"]);
    command.arg(format!("--suppressions={CRATE}/tests/c/valgrind.supp"));
}
