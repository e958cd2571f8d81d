//! The tests of `taut-ethernet`, one program: it is linked once.
#![allow(missing_docs, reason = "tests")]

mod link;

mod autoconf;
mod dhcp;
mod dhcp_v6;
mod ethernet;
mod groups;
mod ports;
mod services;
