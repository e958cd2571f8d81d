//! Gives the sources of the simulator a name, `TAUT_SOURCES`: a number that differs when one of them does.
//! A sweep keeps it beside each figure, and so never takes a figure of other code for one of this.

use std::path::{Path, PathBuf};
use std::{env, fs};

/// What a simulated figure comes from.
const PARTS: [&str; 6] = ["taut-wire", "taut-core", "taut-ethernet", "taut-link", "taut-sim", "taut-lab"];

fn main() {
    let here = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default());
    let mut hash = Fnv::new();
    for part in PARTS {
        let sources = here.join("../crates").join(part).join("src");
        println!("cargo::rerun-if-changed={}", sources.display());
        let mut files = Vec::new();
        collect(&sources, &mut files);
        files.sort();
        for file in files {
            hash.add(file.strip_prefix(&sources).unwrap_or(&file).to_string_lossy().as_bytes());
            hash.add(&fs::read(&file).unwrap_or_default());
        }
    }
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-env=TAUT_SOURCES={:016x}", hash.0);
}

fn collect(directory: &Path, into: &mut Vec<PathBuf>) {
    // Where the sources are elsewhere, as in a source distribution, there is the package's version alone.
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            collect(&path, into);
        } else {
            into.push(path);
        }
    }
}

/// FNV-1a, 64 bits: the same with every compiler.
struct Fnv(u64);

impl Fnv {
    const fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    /// Adds a text and its length, so that the end of one is not the beginning of the next.
    fn add(&mut self, bytes: &[u8]) {
        for byte in bytes.iter().copied().chain((bytes.len() as u64).to_le_bytes()) {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}
