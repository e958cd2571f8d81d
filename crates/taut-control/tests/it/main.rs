//! The tests of `taut-control`, one program: it is linked once.
#![allow(missing_docs, reason = "tests")]

mod socket;
