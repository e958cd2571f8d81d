//! The five calls of `bpf(2)` by which an interface hands packets to an `AF_XDP` socket: a map of sockets, a
//! program, a socket in the map, the program on the interface, another program in its place. linux/bpf.h.
//! Called by `xdp`.
//!
//! A library for BPF (aya, libbpf) loads object files that a compiler has made, with relocations and type
//! information. The program here has a few dozen instructions, which `xdp/program.rs` writes itself.

use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};

use super::check;

/// `enum bpf_cmd`.
const MAP_CREATE: i64 = 0;
const MAP_UPDATE_ELEM: i64 = 2;
const PROG_LOAD: i64 = 5;
const LINK_CREATE: i64 = 28;
const LINK_UPDATE: i64 = 29;
/// `enum bpf_map_type`, `bpf_prog_type`, `bpf_attach_type`.
const MAP_TYPE_XSKMAP: u32 = 17;
const PROG_TYPE_XDP: u32 = 6;
const ATTACH_XDP: u32 = 37;
/// The program also takes packets that lie in several pieces: Linux 5.18.
const PROG_HAS_FRAGS: u32 = 1 << 5;

/// Where the program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// In the driver, before a packet has a descriptor of the kernel.
    Driver,
    /// In front of the kernel's stack, on any interface.
    Generic,
}

/// The parts of `union bpf_attr` that these calls read, each with padding where the kernel has it.
#[repr(C)]
struct MapCreate {
    map_type: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
    map_flags: u32,
}

#[repr(C)]
struct MapUpdate {
    map_fd: u32,
    padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}

#[repr(C)]
struct ProgLoad {
    prog_type: u32,
    insn_cnt: u32,
    insns: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log_buf: u64,
    kern_version: u32,
    prog_flags: u32,
    prog_name: [u8; 16],
    prog_ifindex: u32,
    expected_attach_type: u32,
}

#[repr(C)]
struct LinkCreate {
    prog_fd: u32,
    target_ifindex: u32,
    attach_type: u32,
    flags: u32,
}

#[repr(C)]
struct LinkUpdate {
    link_fd: u32,
    new_prog_fd: u32,
    flags: u32,
    old_prog_fd: u32,
}

/// Makes a call with these attributes. Returns its result, which is a descriptor for calls that make
/// something.
fn bpf<A>(command: i64, attributes: &A) -> io::Result<i32> {
    #[expect(unsafe_code, reason = "no library has this system call alone")]
    // SAFETY: the kernel reads as many bytes as the attributes have. The addresses in them are of memory that
    // outlives the call, and that these calls only read: the callers below see to that.
    let result = unsafe {
        libc::syscall(libc::SYS_bpf, command, (&raw const *attributes).cast::<u8>(), size_of::<A>())
    };
    let result = i32::try_from(result).unwrap_or(-1);
    check(result)?;
    Ok(result)
}

/// A descriptor that a call has made.
fn made<A>(command: i64, attributes: &A) -> io::Result<OwnedFd> {
    let fd = bpf(command, attributes)?;
    #[expect(unsafe_code, reason = "a descriptor from a system call")]
    // SAFETY: the call has made it, and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// A map from numbers of queues to sockets.
pub(crate) fn socket_map(queues: u32) -> io::Result<OwnedFd> {
    let attributes = MapCreate {
        map_type: MAP_TYPE_XSKMAP,
        key_size: 4,
        value_size: 4,
        max_entries: queues,
        map_flags: 0,
    };
    made(MAP_CREATE, &attributes)
}

/// Packets of this queue go to this socket.
pub(crate) fn set_socket(map: &OwnedFd, queue: u32, socket: &OwnedFd) -> io::Result<()> {
    let value = socket.as_raw_fd();
    let attributes = MapUpdate {
        map_fd: map.as_raw_fd() as u32,
        padding: 0,
        key: (&raw const queue).expose_provenance() as u64,
        value: (&raw const value).expose_provenance() as u64,
        flags: 0,
    };
    bpf(MAP_UPDATE_ELEM, &attributes).map(|_| ())
}

/// Loads a program for interfaces.
pub(crate) fn load(instructions: &[u64]) -> io::Result<OwnedFd> {
    // Only programs under the kernel's licence may call some functions; `bpf_redirect_map` is open to all.
    let license = c"Apache-2.0";
    let attributes = ProgLoad {
        prog_type: PROG_TYPE_XDP,
        insn_cnt: instructions.len() as u32,
        insns: instructions.as_ptr().expose_provenance() as u64,
        license: license.as_ptr().expose_provenance() as u64,
        log_level: 0,
        log_size: 0,
        log_buf: 0,
        kern_version: 0,
        prog_flags: PROG_HAS_FRAGS,
        prog_name: *b"taut_xdp\0\0\0\0\0\0\0\0",
        prog_ifindex: 0,
        expected_attach_type: ATTACH_XDP,
    };
    made(PROG_LOAD, &attributes)
}

/// Runs a program on an interface, for as long as the descriptor is open.
pub(crate) fn attach(program: &OwnedFd, interface: u32, place: Place) -> io::Result<OwnedFd> {
    // linux/if_link.h: XDP_FLAGS_DRV_MODE, XDP_FLAGS_SKB_MODE
    let flags = match place {
        Place::Driver => 1 << 2,
        Place::Generic => 1 << 1,
    };
    let attributes = LinkCreate {
        prog_fd: program.as_raw_fd() as u32,
        target_ifindex: interface,
        attach_type: ATTACH_XDP,
        flags,
    };
    made(LINK_CREATE, &attributes)
}

/// Puts a program in the place of the one that runs; no packet comes in between. Linux 5.9.
pub(crate) fn replace(link: &OwnedFd, program: &OwnedFd) -> io::Result<()> {
    let attributes = LinkUpdate {
        link_fd: link.as_raw_fd() as u32,
        new_prog_fd: program.as_raw_fd() as u32,
        flags: 0,
        old_prog_fd: 0,
    };
    bpf(LINK_UPDATE, &attributes).map(|_| ())
}
