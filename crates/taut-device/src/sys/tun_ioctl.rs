//! The ioctls that make a descriptor of `/dev/net/tun` the queue of an interface. `linux/if_tun.h`.
//!
//! The type of an ioctl's argument depends on its number, which the compiler cannot check. So each ioctl is
//! here once, with the argument that the kernel expects, and [`Tun`](crate::Tun) calls the safe functions.

use std::ffi::CStr;
use std::fs::File;
use std::io;

use rustix::ioctl::{IntegerSetter, Opcode, Setter, Updater, ioctl, opcode};

const TUNSETIFF: Opcode = opcode::write::<i32>(b'T', 202);
const TUNSETOFFLOAD: Opcode = opcode::write::<u32>(b'T', 208);
const TUNGETIFF: Opcode = opcode::read::<u32>(b'T', 210);
const TUNSETVNETHDRSZ: Opcode = opcode::write::<i32>(b'T', 216);

/// Length of an interface's name in the kernel, its end marker included.
pub(crate) const IFNAMSIZ: usize = 16;

/// `struct ifreq`; TUNSETIFF uses its name and flags.
#[repr(C)]
struct InterfaceRequest {
    name: [u8; IFNAMSIZ],
    flags: u16,
    unused: [u8; 22],
}

/// Attaches to the interface `name`, which has fewer than [`IFNAMSIZ`] bytes. Returns its name: the kernel
/// replaces `%d` by a number.
pub(crate) fn attach(file: &File, name: &str, flags: u16) -> io::Result<String> {
    let mut request = InterfaceRequest { name: [0; IFNAMSIZ], flags, unused: [0; 22] };
    request.name[..name.len()].copy_from_slice(name.as_bytes());
    #[expect(unsafe_code, reason = "no library has this ioctl")]
    // SAFETY: TUNSETIFF reads and writes one ifreq, as large as this one or smaller.
    unsafe {
        ioctl(file, Updater::<TUNSETIFF, _>::new(&mut request))?;
    }
    let name = CStr::from_bytes_until_nul(&request.name).map_err(|_| io::ErrorKind::InvalidData)?;
    Ok(name.to_string_lossy().into_owned())
}

/// The interface that a descriptor is a queue of: its name and its flags.
pub(crate) fn attached(file: &File) -> io::Result<(String, u16)> {
    let mut request = InterfaceRequest { name: [0; IFNAMSIZ], flags: 0, unused: [0; 22] };
    #[expect(unsafe_code, reason = "no library has this ioctl")]
    // SAFETY: TUNGETIFF writes one ifreq, as large as this one or smaller.
    unsafe {
        ioctl(file, Updater::<TUNGETIFF, _>::new(&mut request))?;
    }
    let name = CStr::from_bytes_until_nul(&request.name).map_err(|_| io::ErrorKind::InvalidData)?;
    Ok((name.to_string_lossy().into_owned(), request.flags))
}

/// Sets the length of the virtio-net header in front of each packet.
pub(crate) fn set_header_len(file: &File, bytes: i32) -> io::Result<()> {
    #[expect(unsafe_code, reason = "no library has this ioctl")]
    // SAFETY: TUNSETVNETHDRSZ reads one int.
    let result = unsafe { ioctl(file, Setter::<TUNSETVNETHDRSZ, i32>::new(bytes)) };
    Ok(result?)
}

/// Sets the kinds of super-packets that this process takes.
pub(crate) fn set_offload(file: &File, flags: u32) -> io::Result<()> {
    #[expect(unsafe_code, reason = "no library has this ioctl")]
    // SAFETY: TUNSETOFFLOAD takes its flags by value.
    let result = unsafe { ioctl(file, IntegerSetter::<TUNSETOFFLOAD>::new_usize(flags as usize)) };
    Ok(result?)
}
