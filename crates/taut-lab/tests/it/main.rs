//! The tests of `taut-lab`, one program: it is linked once.
#![allow(missing_docs, reason = "tests")]

mod example;
mod host;
mod keys;
mod mechanisms;
mod published;
mod recorded;
mod run;
mod scenario;
