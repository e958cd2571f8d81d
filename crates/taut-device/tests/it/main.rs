//! The tests of `taut-device`, one program: it is linked once.
#![allow(missing_docs, reason = "tests")]

mod namespace;
