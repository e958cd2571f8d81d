//! The name and the symbol versions of the shared library: those of libslirp.
//!
//! rustc passes a version script of its own, without versions. lld takes both, GNU ld does not. So rustc's
//! lld links the library, or the system's. Without either, the symbols have no versions: programs load the
//! library, and glibc says so.

use std::env;
use std::path::PathBuf;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=libslirp.map");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libslirp.so.0");
    let folder = env::var("CARGO_MANIFEST_DIR").unwrap_or_default();
    if let Some(lld) = rustcs_lld() {
        println!("cargo::rustc-cdylib-link-arg=-B{}", lld.display());
    } else if Command::new("ld.lld").arg("--version").output().is_err() {
        println!("cargo::warning=no lld: the symbols of libslirp.so have no versions");
        return;
    }
    println!("cargo::rustc-cdylib-link-arg=-fuse-ld=lld");
    println!("cargo::rustc-cdylib-link-arg=-Wl,--version-script={folder}/libslirp.map");
}

/// The folder from which a C compiler takes rustc's lld.
fn rustcs_lld() -> Option<PathBuf> {
    let (rustc, host) = (env::var_os("RUSTC")?, env::var("HOST").ok()?);
    let sysroot = Command::new(rustc).args(["--print", "sysroot"]).output().ok()?;
    let sysroot = PathBuf::from(String::from_utf8(sysroot.stdout).ok()?.trim());
    let folder = sysroot.join("lib/rustlib").join(host).join("bin/gcc-ld");
    folder.join("ld.lld").is_file().then_some(folder)
}
