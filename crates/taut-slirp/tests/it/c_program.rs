//! A caller in C (`tests/c/program.c`), compiled with all warnings as errors and run under valgrind.

use std::path::Path;
use std::process::Command;

use taut_testbed::{Scratch, live};

use crate::symbols::library;

#[test]
fn slirp_04_the_whole_life_of_an_instance_under_valgrind() {
    if !live::ready(&["cc", "valgrind"]) {
        return;
    }
    let scratch = Scratch::new("slirp-c");
    let (folder, program) = (library(&scratch), scratch.join("program"));
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c/program.c");
    let mut compile = Command::new("cc");
    compile.args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-g", "-o"]).arg(&program).arg(source);
    let status = compile.arg(folder.join("libslirp.so.0")).status().unwrap();
    assert!(status.success());
    let mut valgrind = Command::new("valgrind");
    valgrind.args(["-q", "--error-exitcode=9", "--leak-check=full", "--errors-for-leak-kinds=definite"]);
    let output = valgrind.arg(&program).env("LD_LIBRARY_PATH", &folder).output().unwrap();
    println!("{}", String::from_utf8_lossy(&output.stdout));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
