//! The tests of `taut-script`, one program: it is linked once.
#![allow(missing_docs, reason = "tests")]

mod failures;
mod scripts;
