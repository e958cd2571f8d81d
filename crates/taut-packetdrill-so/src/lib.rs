//! A shared object with packetdrill's user-space interface (`--so_filename`): the original tool then drives this stack
//! instead of a kernel.
//!
//! The tool calls [`packetdrill_interface_init`], which fills a table of 264 bytes: a pointer for our use, and 32
//! functions. Socket calls come from two threads: the second one makes the calls that block. Time is virtual and is
//! only seen through two functions, so a script takes milliseconds.
//!
//! | file | has |
//! |---|---|
//! | `table.rs` | the table: order and types of the functions |
//! | `clock.rs` | the stack, its time, and the two threads |
//! | `calls.rs` | socket calls: C's values to those of `taut-script`, whose sockets do the work |
//! | `device.rs` | packets and time |
//! | `settings.rs` | flags, and the sysctls of the tool's network namespace |
//!
//! There is one stack: `init` makes it, `free` drops it. What the tool does not call through the table, such as
//! `getsockopt(TCP_INFO)` in its code blocks, goes to the kernel, and fails there.

// The tool loads it with RTLD_DEEPBIND, which glibc alone has.
#![cfg(all(target_os = "linux", target_env = "gnu"))]

mod calls;
mod clock;
mod device;
mod settings;
mod table;
