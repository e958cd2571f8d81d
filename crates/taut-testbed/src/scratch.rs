//! A directory for one test, which is removed when the test ends, even if it fails. Called by tests that need
//! files.

use std::env;
use std::fs;
use std::path::PathBuf;
use std::process;

/// The directory.
#[derive(Debug)]
pub struct Scratch(pub PathBuf);

impl Scratch {
    /// An empty directory. Tests that run in one process must use different names.
    ///
    /// # Panics
    /// When it cannot be made.
    #[must_use]
    pub fn new(test: &str) -> Self {
        let path = env::temp_dir().join(format!("taut-{test}-{}", process::id()));
        fs::create_dir_all(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        Self(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        _ = fs::remove_dir_all(&self.0);
    }
}
