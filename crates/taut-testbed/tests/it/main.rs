//! The tests of `taut-testbed`, one program: it is linked once.
#![allow(missing_docs, reason = "tests")]

mod testbed;
