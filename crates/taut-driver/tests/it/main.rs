//! The tests of `taut-driver`, one program: it is linked once.
#![allow(missing_docs, reason = "tests")]

mod device;
mod hosts;
mod line;
mod slow_device;
mod wake;
