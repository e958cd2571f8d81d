//! `struct sockaddr`, both ways, and from a text. `sockaddr_in(7)`, `sockaddr_in6(7)`; called by the
//! functions of both forms.
#![expect(unsafe_code, reason = "memory of C, under the rules that the header states")]
#![expect(clippy::missing_safety_doc, reason = "the header states the rules of pointers once, at its top")]

use std::ffi::{c_char, c_int};
use std::net::{SocketAddr, SocketAddrV4, SocketAddrV6};

use libc::{AF_INET, AF_INET6, sa_family_t, sockaddr, sockaddr_in, sockaddr_in6, socklen_t};

use crate::border::{Answer, Errno, door_unit, given, text};

/// # Safety
/// `address` is NULL or has `len` bytes.
pub(crate) unsafe fn read(address: *const sockaddr, len: socklen_t) -> Answer<SocketAddr> {
    if address.is_null() {
        return Err(Errno(libc::EFAULT));
    }
    let len = len as usize;
    if len < size_of::<sa_family_t>() {
        return Err(Errno(libc::EINVAL));
    }
    match c_int::from(unsafe { (*address).sa_family }) {
        AF_INET if len >= size_of::<sockaddr_in>() => {
            let v4 = unsafe { address.cast::<sockaddr_in>().read_unaligned() };
            let ip = u32::from_be(v4.sin_addr.s_addr).into();
            Ok(SocketAddrV4::new(ip, u16::from_be(v4.sin_port)).into())
        }
        AF_INET6 if len >= size_of::<sockaddr_in6>() => {
            let v6 = unsafe { address.cast::<sockaddr_in6>().read_unaligned() };
            Ok(SocketAddrV6::new(v6.sin6_addr.s6_addr.into(), u16::from_be(v6.sin6_port), 0, 0).into())
        }
        AF_INET | AF_INET6 => Err(Errno(libc::EINVAL)),
        _ => Err(Errno(libc::EAFNOSUPPORT)),
    }
}

/// Writes as much of an address as there is room for, and how long it is. Does nothing for NULL, as
/// `accept(2)`.
///
/// # Safety
/// `into` is NULL, or has as many bytes as `len` says; then `len` is not NULL.
pub(crate) unsafe fn write(
    address: SocketAddr,
    into: *mut sockaddr,
    len: Option<&mut socklen_t>,
) -> Answer<()> {
    if into.is_null() {
        return Ok(());
    }
    let len = given(len)?;
    let mut put = |from: *const u8, size: usize| {
        unsafe { into.cast::<u8>().copy_from_nonoverlapping(from, size.min(*len as usize)) };
        *len = size as socklen_t;
    };
    match address {
        SocketAddr::V4(v4) => {
            let raw = sockaddr_in {
                sin_family: AF_INET as sa_family_t,
                sin_port: v4.port().to_be(),
                sin_addr: libc::in_addr { s_addr: u32::from(*v4.ip()).to_be() },
                sin_zero: [0; 8],
            };
            put((&raw const raw).cast(), size_of::<sockaddr_in>());
        }
        SocketAddr::V6(v6) => {
            let raw = sockaddr_in6 {
                sin6_family: AF_INET6 as sa_family_t,
                sin6_port: v6.port().to_be(),
                sin6_flowinfo: 0,
                sin6_addr: libc::in6_addr { s6_addr: v6.ip().octets() },
                sin6_scope_id: 0,
            };
            put((&raw const raw).cast(), size_of::<sockaddr_in6>());
        }
    }
    Ok(())
}

/// Reads an address and a port, `10.0.0.1:80` or `[fd00::1]:80`, into `address`. No names are looked up.
///
/// `len` is the room at `address`, 28 bytes or more; then the address's length. From any thread.
///
/// Returns 0; -EINVAL if the text is something else, or there is no room.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_address(
    text: *const c_char,
    address: *mut sockaddr,
    len: Option<&mut socklen_t>,
) -> c_int {
    door_unit(|| {
        let found = given(unsafe { self::text(text)? })?.parse().map_err(|_| Errno(libc::EINVAL))?;
        let len = given(len)?;
        if address.is_null() || (*len as usize) < size_of::<sockaddr_in6>() {
            return Err(Errno(libc::EINVAL));
        }
        unsafe { write(found, address, Some(len)) }
    })
}
