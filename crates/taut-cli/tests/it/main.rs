//! The tests of `taut-cli`, one program: it is linked once.
#![allow(missing_docs, reason = "tests")]

mod end_to_end;
mod lab;
mod lab_page;
mod own_controller;
mod reference;
