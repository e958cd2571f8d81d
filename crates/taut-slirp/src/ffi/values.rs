//! Values of C, read once and copied; and the texts that are handed out.

use std::ffi::{CStr, OsStr, c_char, c_int};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::ptr;

use libc::{in_addr, in6_addr, size_t, sockaddr, sockaddr_in, sockaddr_in6, socklen_t};

use crate::config::{Config, V4, V6};

/// `SlirpConfig` of libslirp.h.
#[repr(C)]
#[derive(Debug)]
pub struct SlirpConfig {
    pub version: u32,
    pub restricted: c_int,
    pub in_enabled: bool,
    pub vnetwork: in_addr,
    pub vnetmask: in_addr,
    pub vhost: in_addr,
    pub in6_enabled: bool,
    pub vprefix_addr6: in6_addr,
    pub vprefix_len: u8,
    pub vhost6: in6_addr,
    pub vhostname: *const c_char,
    pub tftp_server_name: *const c_char,
    pub tftp_path: *const c_char,
    pub bootfile: *const c_char,
    pub vdhcp_start: in_addr,
    pub vnameserver: in_addr,
    pub vnameserver6: in6_addr,
    pub vdnssearch: *const *const c_char,
    pub vdomainname: *const c_char,
    pub if_mtu: size_t,
    pub if_mru: size_t,
    pub disable_host_loopback: bool,
    pub enable_emu: bool,
    // Since version 2.
    pub outbound_addr: *const sockaddr_in,
    pub outbound_addr6: *const sockaddr_in6,
    // Since version 3.
    pub disable_dns: bool,
    // Since version 4.
    pub disable_dhcp: bool,
}

/// Versions of a configuration. Versions 5 and 6 add a network card's out-of-band controller, and callbacks
/// for other systems' sockets: neither means anything here.
pub(super) const VERSIONS: std::ops::RangeInclusive<u32> = 1..=6;
/// `SLIRP_TIMER_RA`.
pub(super) const TIMER_RA: c_int = 0;
/// Of hostxfwd.
pub(super) const HOSTFWD_UDP: c_int = 1;
pub(super) const HOSTFWD_V6ONLY: c_int = 2;
/// A text of a configuration at most.
pub(super) const DOMAINS_MAX: usize = 64;

/// # Safety
/// `from` is null or a text that ends with a zero.
pub(super) unsafe fn string(from: *const c_char) -> Option<String> {
    // SAFETY: by the contract of this function.
    (!from.is_null()).then(|| unsafe { CStr::from_ptr(from) }.to_string_lossy().into_owned())
}

/// # Safety
/// As [`string`].
pub(super) unsafe fn path(from: *const c_char) -> Option<PathBuf> {
    // SAFETY: by the contract of this function.
    (!from.is_null()).then(|| OsStr::from_bytes(unsafe { CStr::from_ptr(from) }.to_bytes()).into())
}

/// # Safety
/// `from` is null or a list of texts that ends with a null.
pub(super) unsafe fn strings(from: *const *const c_char) -> Vec<String> {
    let mut all = Vec::new();
    while !from.is_null() && all.len() < DOMAINS_MAX {
        // SAFETY: the end was not reached yet.
        let Some(one) = (unsafe { string(*from.add(all.len())) }) else { break };
        all.push(one);
    }
    all
}

pub(super) const fn v4(from: in_addr) -> Ipv4Addr {
    Ipv4Addr::from_bits(u32::from_be(from.s_addr))
}

pub(super) const fn v6(from: in6_addr) -> Ipv6Addr {
    Ipv6Addr::from_bits(u128::from_be_bytes(from.s6_addr))
}

/// A service's or a port's place; ports are numbers of the host.
pub(super) fn place(ip: Ipv4Addr, port: c_int) -> Option<SocketAddr> {
    Some(SocketAddr::new(ip.into(), u16::try_from(port).ok()?))
}

/// # Safety
/// `from` points to `len` bytes of an address.
pub(super) unsafe fn address(from: *const sockaddr, len: socklen_t) -> Option<SocketAddr> {
    if from.is_null() || (len as usize) < size_of::<libc::sa_family_t>() {
        return None;
    }
    // SAFETY: it has its family at least. It may lie anywhere.
    let family = c_int::from(unsafe { (&raw const (*from).sa_family).read_unaligned() });
    match family {
        libc::AF_INET if len as usize >= size_of::<sockaddr_in>() => {
            // SAFETY: it has the bytes of this one.
            let of = unsafe { from.cast::<sockaddr_in>().read_unaligned() };
            Some(SocketAddrV4::new(v4(of.sin_addr), u16::from_be(of.sin_port)).into())
        }
        libc::AF_INET6 if len as usize >= size_of::<sockaddr_in6>() => {
            // SAFETY: it has the bytes of this one.
            let of = unsafe { from.cast::<sockaddr_in6>().read_unaligned() };
            let port = u16::from_be(of.sin6_port);
            Some(SocketAddrV6::new(v6(of.sin6_addr), port, 0, of.sin6_scope_id).into())
        }
        _ => None,
    }
}

/// The path of a Unix socket's address.
///
/// # Safety
/// As [`address`].
pub(super) unsafe fn unix_path(from: *const sockaddr, len: socklen_t) -> Option<PathBuf> {
    let begin = std::mem::offset_of!(libc::sockaddr_un, sun_path);
    let len = (len as usize).checked_sub(begin).filter(|len| *len > 0)?;
    // SAFETY: longer than its family.
    let family = c_int::from(unsafe { (&raw const (*from).sa_family).read_unaligned() });
    if family != libc::AF_UNIX {
        return None;
    }
    // SAFETY: the address has so many bytes behind its family.
    let bytes = unsafe { std::slice::from_raw_parts(from.cast::<u8>().add(begin), len) };
    let bytes = bytes.split(|byte| *byte == 0).next().filter(|path| !path.is_empty())?;
    Some(OsStr::from_bytes(bytes).into())
}

/// # Safety
/// `from` points to a configuration of the version that it says.
pub(super) unsafe fn read_config(from: *const SlirpConfig) -> Option<(Config, u32, bool)> {
    // SAFETY: each field of version 1, and those of later ones only if the caller has them. Its pointers
    // are as libslirp.h says.
    unsafe {
        let version = (&raw const (*from).version).read();
        if !VERSIONS.contains(&version) {
            return None;
        }
        macro_rules! field {
            ($name:ident) => {
                (&raw const (*from).$name).read()
            };
            ($name:ident, $since:literal, $default:expr) => {
                if version >= $since { (&raw const (*from).$name).read() } else { $default }
            };
        }
        let guest = v4(field!(vdhcp_start));
        let of_v4 = V4 {
            network: v4(field!(vnetwork)),
            mask: v4(field!(vnetmask)),
            host: v4(field!(vhost)),
            guest,
            dns: v4(field!(vnameserver)),
        };
        let of_v6 = V6 {
            prefix: v6(field!(vprefix_addr6)),
            len: field!(vprefix_len),
            host: v6(field!(vhost6)),
            dns: v6(field!(vnameserver6)),
        };
        let from_v4 = field!(outbound_addr, 2, ptr::null());
        let from_v6 = field!(outbound_addr6, 2, ptr::null());
        let outbound =
            from_v4.as_ref().map(|at| SocketAddrV4::new(v4(at.sin_addr), u16::from_be(at.sin_port)));
        let outbound_v6 = from_v6
            .as_ref()
            .map(|at| SocketAddrV6::new(v6(at.sin6_addr), u16::from_be(at.sin6_port), 0, at.sin6_scope_id));
        let config = Config {
            restricted: field!(restricted) != 0,
            v4: field!(in_enabled).then_some(of_v4),
            v6: field!(in6_enabled).then_some(of_v6),
            host_name: string(field!(vhostname)),
            tftp_server_name: string(field!(tftp_server_name)),
            tftp_path: path(field!(tftp_path)),
            boot_file: string(field!(bootfile)),
            search: strings(field!(vdnssearch)),
            domain: string(field!(vdomainname)),
            mtu: field!(if_mtu),
            mru: field!(if_mru),
            has_host_loopback: !field!(disable_host_loopback),
            outbound,
            outbound_v6,
            has_dns: !field!(disable_dns, 3, false),
            has_dhcp: !field!(disable_dhcp, 4, false),
        };
        Some((config, version, field!(enable_emu)))
    }
}

/// A text for the caller, who frees it.
pub(super) fn text(text: &str) -> *mut c_char {
    let bytes = text.as_bytes();
    // SAFETY: the memory has room for the text and its zero.
    unsafe {
        let to = libc::malloc(bytes.len() + 1).cast::<u8>();
        if !to.is_null() {
            to.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
            to.add(bytes.len()).write(0);
        }
        to.cast()
    }
}
