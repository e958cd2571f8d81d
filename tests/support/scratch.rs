//! A directory of a test's own, which goes when the test does, also when it fails. Called by tests that need files:
//!
//!     #[path = "../../../tests/support/scratch.rs"] mod scratch;
//!     let out = scratch::Scratch::new("sweep"); … out.0.join("table.txt") …

use std::fs;
use std::path::PathBuf;
use std::process;

/// The directory, and where it is.
pub(crate) struct Scratch(pub(crate) PathBuf);

impl Scratch {
    /// An empty one; names of tests that run in one process differ.
    pub(crate) fn new(test: &str) -> Self {
        let path = std::env::temp_dir().join(format!("taut-{test}-{}", process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        _ = fs::remove_dir_all(&self.0);
    }
}
