//! A directory for one test, which is removed when the test ends, even if it fails. Called by tests that need
//! files.

use std::env;
use std::fs::{self, DirBuilder};
use std::io;
use std::ops::Deref;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process;

/// The directory.
#[derive(Debug)]
pub struct Scratch(pub PathBuf);

impl Scratch {
    /// An empty directory, for this user only, with a short path. Tests that run in one process must use
    /// different names.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn make(name: &str) -> io::Result<Self> {
        let path = env::temp_dir().join(format!("taut-{name}-{}", process::id()));
        DirBuilder::new().mode(0o700).recursive(true).create(&path)?;
        Ok(Self(path))
    }

    /// [`make`](Self::make), for a test.
    ///
    /// # Panics
    /// When it cannot be made.
    #[must_use]
    pub fn new(test: &str) -> Self {
        Self::make(test).unwrap_or_else(|error| panic!("{}: {error}", env::temp_dir().display()))
    }
}

impl Deref for Scratch {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        _ = fs::remove_dir_all(&self.0);
    }
}
