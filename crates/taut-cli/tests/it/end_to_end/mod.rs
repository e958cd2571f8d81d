//! The `taut` command against the kernel's TCP and common programs: curl, nginx, tshark.
//!
//! Each test runs in a network namespace of its own, which has no name and disappears with its last process.
//! Processes that a test starts are killed when the test ends, even if it fails.

mod capture;
mod compare;
mod config_file;
mod confinement;
mod dash;
mod demo;
mod drop_in;
mod gateway;
mod gateway_capture;
mod gateway_ctl;
mod gateway_guest;
mod gateway_load;
mod gateway_loopback;
mod gateway_machines;
mod gateway_operations;
mod gateway_policy;
mod gateway_ready;
mod gateway_run;
mod gateway_ways;
mod gone;
mod guide;
mod help;
mod http;
mod link;
mod log;
mod network;
mod observe;
mod pipe;
mod proxy;
mod qdisc;
mod replay;
mod rpm;
mod support;
mod usage;
mod wireguard;
