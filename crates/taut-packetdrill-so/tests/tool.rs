//! The shared object as its user sees it: a program in C loads it, and calls all of its functions as packetdrill does,
//! from two threads (`tool.c`).

#![cfg(all(target_os = "linux", target_env = "gnu"))]

use std::path::{Path, PathBuf};
use std::process::Command;

/// The shared object, which cargo puts beside the test programs.
fn shared_object() -> PathBuf {
    let deps = std::env::current_exe().unwrap().parent().unwrap().to_owned();
    let found = [&deps, deps.parent().unwrap_or(&deps)].map(|folder| folder.join("libtaut_packetdrill.so"));
    found.into_iter().find(|path| path.exists()).expect("cargo has built the shared object")
}

#[test]
fn pkt_13_a_program_in_c_calls_all_32_functions() {
    if Command::new("cc").arg("--version").output().is_err() {
        println!("skipped: there is no C compiler");
        return;
    }
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tool.c");
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("tool");
    let built = Command::new("cc")
        .args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-pthread", "-o"])
        .args([&program, &source])
        .arg("-ldl")
        .output()
        .unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let run = Command::new(&program).arg(shared_object()).output().unwrap();
    let text = String::from_utf8_lossy(&run.stdout) + String::from_utf8_lossy(&run.stderr);
    assert_eq!(text.trim(), "32 functions", "{:?}", run.status);
}
