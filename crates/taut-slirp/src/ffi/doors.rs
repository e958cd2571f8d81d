//! The exported functions. Each is a door: it reads C's values, enters the instance, and lets no panic out.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::net::SocketAddr;
use std::ptr;

use libc::{in_addr, in6_addr, size_t, sockaddr, socklen_t};

use super::callbacks::{AddPollCb, Callbacks, GetREventsCb, ReadCb, SlirpCb, WriteCb};
use super::instance::{CallerService, Slirp, begin, door, instance};
use super::values::{
    HOSTFWD_UDP, HOSTFWD_V6ONLY, SlirpConfig, TIMER_RA, VERSIONS, address, place, read_config, string, text,
    unix_path, v4,
};
use crate::engine::{Engine, Service};
use crate::forward::At;
use crate::saved;
use crate::settings::Settings;

// ---- names ----

/// The jump to a function that has the name of libslirp's.
#[cfg(target_arch = "x86_64")]
macro_rules! jump {
    () => {
        "jmp {function}"
    };
}

#[cfg(target_arch = "aarch64")]
macro_rules! jump {
    () => {
        "b {function}"
    };
}

#[cfg(target_arch = "riscv64")]
macro_rules! jump {
    () => {
        "tail {function}"
    };
}

/// Gives functions the names of libslirp's. By `no_mangle`, rustc would list the names in a version script
/// of its own, without versions, and a linker keeps what the first script says.
macro_rules! export {
    ($($name:ident)*) => { $(
        std::arch::global_asm!(
            concat!(".pushsection .text.", stringify!($name), ",\"ax\",@progbits"),
            concat!(".globl ", stringify!($name)),
            concat!(".type ", stringify!($name), ",@function"),
            concat!(stringify!($name), ":"),
            jump!(),
            concat!(".size ", stringify!($name), ", .-", stringify!($name)),
            ".popsection",
            function = sym $name
        );
    )* };
}

export! {
    slirp_add_exec slirp_add_guestfwd slirp_add_hostfwd slirp_add_hostxfwd slirp_add_unix slirp_cleanup
    slirp_connection_info slirp_handle_timer slirp_init slirp_input slirp_neighbor_info slirp_new
    slirp_pollfds_fill slirp_pollfds_fill_socket slirp_pollfds_poll slirp_remove_guestfwd slirp_remove_hostfwd
    slirp_remove_hostxfwd slirp_socket_can_recv slirp_socket_recv slirp_state_load slirp_state_save
    slirp_state_version slirp_version_string
}

// ---- making and freeing ----

pub unsafe extern "C" fn slirp_new(
    config: *const SlirpConfig,
    callbacks: *const SlirpCb,
    opaque: *mut c_void,
) -> *mut Slirp {
    door(None, ptr::null_mut(), || {
        if config.is_null() || callbacks.is_null() {
            return ptr::null_mut();
        }
        // SAFETY: the caller's promise.
        let Some((config, version, has_emu)) = (unsafe { read_config(config) }) else {
            // SAFETY: as above; this one has been there since the first version.
            let callbacks = unsafe { Callbacks::read(callbacks, *VERSIONS.start(), opaque) };
            callbacks.guest_error("slirp: the configuration's version is none of 1 to 6");
            return ptr::null_mut();
        };
        // SAFETY: as above.
        let callbacks = unsafe { Callbacks::read(callbacks, version, opaque) };
        if !config.is_possible() {
            callbacks.guest_error("slirp: there is no such network");
            return ptr::null_mut();
        }
        if has_emu {
            callbacks.guest_error(
                "slirp: enable_emu is not supported: protocols with addresses inside pass as they are",
            );
        }
        let has_v6 = config.v6.is_some();
        let engine =
            Settings::of_environment().and_then(|settings| Engine::new(config, settings, callbacks.now()));
        match engine {
            Ok(engine) => begin(engine, callbacks, has_v6),
            Err(why) => {
                callbacks.guest_error(&format!("slirp: {why}"));
                ptr::null_mut()
            }
        }
    })
}

pub unsafe extern "C" fn slirp_init(
    restricted: c_int,
    in_enabled: bool,
    vnetwork: in_addr,
    vnetmask: in_addr,
    vhost: in_addr,
    in6_enabled: bool,
    vprefix_addr6: in6_addr,
    vprefix_len: u8,
    vhost6: in6_addr,
    vhostname: *const c_char,
    tftp_server_name: *const c_char,
    tftp_path: *const c_char,
    bootfile: *const c_char,
    vdhcp_start: in_addr,
    vnameserver: in_addr,
    vnameserver6: in6_addr,
    vdnssearch: *const *const c_char,
    vdomainname: *const c_char,
    callbacks: *const SlirpCb,
    opaque: *mut c_void,
) -> *mut Slirp {
    let config = SlirpConfig {
        version: 1,
        restricted,
        in_enabled,
        vnetwork,
        vnetmask,
        vhost,
        in6_enabled,
        vprefix_addr6,
        vprefix_len,
        vhost6,
        vhostname,
        tftp_server_name,
        tftp_path,
        bootfile,
        vdhcp_start,
        vnameserver,
        vnameserver6,
        vdnssearch,
        vdomainname,
        if_mtu: 0,
        if_mru: 0,
        disable_host_loopback: false,
        enable_emu: false,
        outbound_addr: ptr::null(),
        outbound_addr6: ptr::null(),
        disable_dns: false,
        disable_dhcp: false,
    };
    // SAFETY: the caller's promise, for the parts of the configuration.
    unsafe { slirp_new(&raw const config, callbacks, opaque) }
}

pub unsafe extern "C" fn slirp_cleanup(slirp: *mut Slirp) {
    if slirp.is_null() {
        return;
    }
    // SAFETY: the caller has it no more.
    let slirp = unsafe { Box::from_raw(slirp) };
    let timer = slirp.timer.get();
    if let (Some(free), false) = (slirp.callbacks.timer_free, timer.is_null()) {
        // SAFETY: the timer is the caller's own, and not used after this.
        unsafe { free(timer, slirp.callbacks.opaque) };
    }
    door(None, (), || drop(slirp));
}

// ---- the caller's loop ----

pub unsafe extern "C" fn slirp_pollfds_fill(
    slirp: *mut Slirp,
    timeout: *mut u32,
    add_poll: AddPollCb,
    opaque: *mut c_void,
) {
    // SAFETY: the caller's promise.
    let (slirp, timeout) = unsafe { (instance(slirp), timeout.as_mut()) };
    let (Some(slirp), Some(timeout), Some(add_poll)) = (slirp, timeout, add_poll) else { return };
    door(Some(slirp), (), || {
        slirp.is_polling.set(true);
        slirp.act(|_| ());
        let is_turn = !slirp.is_finishing.get();
        let waits = slirp.with(|engine| {
            if is_turn {
                engine.begin_turn();
            }
            engine.wait(*timeout)
        });
        let Some((all, most)) = waits else { return };
        *timeout = most;
        let mut keys = Vec::with_capacity(all.len());
        for one in all {
            // SAFETY: the callback is the caller's, for this argument.
            let place = unsafe { add_poll(one.fd, one.interest, opaque) };
            // A caller without room says -1.
            keys.extend((place >= 0).then_some((one.key, place)));
        }
        slirp.with(|engine| engine.waited = keys);
        slirp.is_polling.set(false);
    });
}

/// Of version 4.9: on Unix, a socket is a file.
pub unsafe extern "C" fn slirp_pollfds_fill_socket(
    slirp: *mut Slirp,
    timeout: *mut u32,
    add_poll: AddPollCb,
    opaque: *mut c_void,
) {
    // SAFETY: the caller's promise.
    unsafe { slirp_pollfds_fill(slirp, timeout, add_poll, opaque) };
}

pub unsafe extern "C" fn slirp_pollfds_poll(
    slirp: *mut Slirp,
    select_error: c_int,
    get_revents: GetREventsCb,
    opaque: *mut c_void,
) {
    // SAFETY: the caller's promise.
    let (Some(slirp), Some(get_revents)) = (unsafe { instance(slirp) }, get_revents) else { return };
    door(Some(slirp), (), || {
        slirp.is_polling.set(true);
        let waited = slirp.with(|engine| std::mem::take(&mut engine.waited)).unwrap_or_default();
        let mut seen = Vec::with_capacity(waited.len());
        if select_error == 0 {
            for (key, place) in waited {
                // SAFETY: the callback is the caller's, for a place that it gave out.
                seen.push((key, unsafe { get_revents(place, opaque) }));
            }
        }
        slirp.act(|engine| engine.on_ready(&seen));
        slirp.is_polling.set(false);
    });
}

pub unsafe extern "C" fn slirp_input(slirp: *mut Slirp, frame: *const u8, len: c_int) {
    // SAFETY: the caller's promise.
    let Some(slirp) = (unsafe { instance(slirp) }) else { return };
    let Some(len) = usize::try_from(len).ok().filter(|len| *len > 0 && !frame.is_null()) else { return };
    // SAFETY: the caller's promise.
    let frame = unsafe { std::slice::from_raw_parts(frame, len) };
    door(Some(slirp), (), || _ = slirp.act(|engine| engine.input(frame)));
}

pub unsafe extern "C" fn slirp_handle_timer(slirp: *mut Slirp, _id: c_int, _opaque: *mut c_void) {
    // SAFETY: the caller's promise.
    let Some(slirp) = (unsafe { instance(slirp) }) else { return };
    door(Some(slirp), (), || {
        slirp.armed_ms.set(i64::MIN);
        slirp.act(|_| ());
    });
}

/// A caller's timer without names of timers.
pub(super) unsafe extern "C" fn on_timer(slirp: *mut c_void) {
    // SAFETY: the argument that `make_timer` gave.
    unsafe { slirp_handle_timer(slirp.cast(), TIMER_RA, ptr::null_mut()) };
}

// ---- forwarded ports ----

/// Without a place, an address or a port makes no sense.
fn add_forward(slirp: &Slirp, at: Option<At>, only_v6: bool, guest: Option<SocketAddr>) -> c_int {
    let added = match at.zip(guest) {
        Some((at, guest)) => slirp.act(|engine| engine.add_forward(at, only_v6, guest)),
        None => Some(Err(std::io::ErrorKind::InvalidInput.into())),
    };
    match added {
        Some(Ok(())) => 0,
        Some(Err(error)) => {
            // SAFETY: the place is this thread's own.
            unsafe { *libc::__errno_location() = error.raw_os_error().unwrap_or(libc::EINVAL) };
            -1
        }
        None => -1,
    }
}

fn remove_forward(slirp: &Slirp, at: &At) -> c_int {
    if slirp.act(|engine| engine.remove_forward(at)) == Some(true) { 0 } else { -1 }
}

fn port_at(is_udp: bool, at: SocketAddr) -> At {
    if is_udp { At::Udp(at) } else { At::Tcp(at) }
}

pub unsafe extern "C" fn slirp_add_hostfwd(
    slirp: *mut Slirp,
    is_udp: c_int,
    host_addr: in_addr,
    host_port: c_int,
    guest_addr: in_addr,
    guest_port: c_int,
) -> c_int {
    // SAFETY: the caller's promise.
    let Some(slirp) = (unsafe { instance(slirp) }) else { return -1 };
    door(Some(slirp), -1, || {
        let (at, guest) = (place(v4(host_addr), host_port), place(v4(guest_addr), guest_port));
        add_forward(slirp, at.map(|at| port_at(is_udp != 0, at)), false, guest)
    })
}

pub unsafe extern "C" fn slirp_remove_hostfwd(
    slirp: *mut Slirp,
    is_udp: c_int,
    host_addr: in_addr,
    host_port: c_int,
) -> c_int {
    // SAFETY: the caller's promise.
    let Some(slirp) = (unsafe { instance(slirp) }) else { return -1 };
    door(Some(slirp), -1, || {
        let at = place(v4(host_addr), host_port);
        at.map_or(-1, |at| remove_forward(slirp, &port_at(is_udp != 0, at)))
    })
}

/// # Safety
/// As [`address`].
unsafe fn forwarded_at(from: *const sockaddr, len: socklen_t, flags: c_int) -> Option<At> {
    let is_udp = flags & HOSTFWD_UDP != 0;
    // SAFETY: by the contract of this function.
    unsafe {
        match address(from, len) {
            Some(at) => Some(port_at(is_udp, at)),
            None if is_udp || from.is_null() => None,
            None => unix_path(from, len).map(At::Unix),
        }
    }
}

pub unsafe extern "C" fn slirp_add_hostxfwd(
    slirp: *mut Slirp,
    haddr: *const sockaddr,
    haddrlen: socklen_t,
    gaddr: *const sockaddr,
    gaddrlen: socklen_t,
    flags: c_int,
) -> c_int {
    // SAFETY: the caller's promise.
    let Some(slirp) = (unsafe { instance(slirp) }) else { return -1 };
    door(Some(slirp), -1, || {
        // SAFETY: the caller's promise.
        let (at, guest) = unsafe { (forwarded_at(haddr, haddrlen, flags), address(gaddr, gaddrlen)) };
        add_forward(slirp, at, flags & HOSTFWD_V6ONLY != 0, guest)
    })
}

pub unsafe extern "C" fn slirp_remove_hostxfwd(
    slirp: *mut Slirp,
    haddr: *const sockaddr,
    haddrlen: socklen_t,
    flags: c_int,
) -> c_int {
    // SAFETY: the caller's promise.
    let Some(slirp) = (unsafe { instance(slirp) }) else { return -1 };
    door(Some(slirp), -1, || {
        // SAFETY: the caller's promise.
        let at = unsafe { forwarded_at(haddr, haddrlen, flags) };
        at.map_or(-1, |at| remove_forward(slirp, &at))
    })
}

// ---- services on the link ----

/// Adds a service. An address that is not given is chosen, and returned.
fn add_service(
    slirp: &Slirp,
    guest_addr: &mut in_addr,
    guest_port: c_int,
    service: Service,
) -> Option<SocketAddr> {
    let asked = v4(*guest_addr);
    let usual = slirp.with(|engine| engine.core.config.v4.map(|v4| v4.usual_service())).flatten();
    let ip = if asked.is_unspecified() { usual? } else { asked };
    let at = place(ip, guest_port)?;
    let is_added = slirp.act(|engine| {
        let may = engine.may_serve(at);
        if may {
            engine.add_service(at, service);
        }
        may
    });
    guest_addr.s_addr = ip.to_bits().to_be();
    is_added.filter(|is_added| *is_added).map(|_| at)
}

pub unsafe extern "C" fn slirp_add_exec(
    slirp: *mut Slirp,
    cmdline: *const c_char,
    guest_addr: *mut in_addr,
    guest_port: c_int,
) -> c_int {
    // SAFETY: the caller's promise.
    let (slirp, line, at) = unsafe { (instance(slirp), string(cmdline), guest_addr.as_mut()) };
    let (Some(slirp), Some(line), Some(at)) = (slirp, line, at) else { return -1 };
    door(Some(slirp), -1, || {
        let mut words = shlex::split(&line).unwrap_or_default().into_iter();
        let Some(name) = words.next() else { return -1 };
        let program = Service::Program { name, arguments: words.collect() };
        add_service(slirp, at, guest_port, program).map_or(-1, |_| 0)
    })
}

pub unsafe extern "C" fn slirp_add_unix(
    slirp: *mut Slirp,
    unixsock: *const c_char,
    guest_addr: *mut in_addr,
    guest_port: c_int,
) -> c_int {
    // SAFETY: the caller's promise.
    let (slirp, path, at) = unsafe { (instance(slirp), string(unixsock), guest_addr.as_mut()) };
    let (Some(slirp), Some(path), Some(at)) = (slirp, path, at) else { return -1 };
    door(Some(slirp), -1, || add_service(slirp, at, guest_port, Service::Unix(path)).map_or(-1, |_| 0))
}

pub unsafe extern "C" fn slirp_add_guestfwd(
    slirp: *mut Slirp,
    write: WriteCb,
    opaque: *mut c_void,
    guest_addr: *mut in_addr,
    guest_port: c_int,
) -> c_int {
    // SAFETY: the caller's promise.
    let (Some(slirp), Some(at)) = (unsafe { (instance(slirp), guest_addr.as_mut()) }) else { return -1 };
    door(Some(slirp), -1, || {
        let Some(at) = add_service(slirp, at, guest_port, Service::Caller) else { return -1 };
        slirp.services.borrow_mut().push(CallerService { at, write, opaque });
        0
    })
}

pub unsafe extern "C" fn slirp_remove_guestfwd(
    slirp: *mut Slirp,
    guest_addr: in_addr,
    guest_port: c_int,
) -> c_int {
    // SAFETY: the caller's promise.
    let Some(slirp) = (unsafe { instance(slirp) }) else { return -1 };
    door(Some(slirp), -1, || {
        let Some(at) = place(v4(guest_addr), guest_port) else { return -1 };
        slirp.services.borrow_mut().retain(|service| service.at != at);
        if slirp.act(|engine| engine.remove_service(at)) == Some(true) { 0 } else { -1 }
    })
}

pub unsafe extern "C" fn slirp_socket_can_recv(
    slirp: *mut Slirp,
    guest_addr: in_addr,
    guest_port: c_int,
) -> size_t {
    // SAFETY: the caller's promise.
    let Some(slirp) = (unsafe { instance(slirp) }) else { return 0 };
    door(Some(slirp), 0, || {
        let at = place(v4(guest_addr), guest_port);
        at.and_then(|at| slirp.with(|engine| engine.service_room(at))).unwrap_or(0)
    })
}

pub unsafe extern "C" fn slirp_socket_recv(
    slirp: *mut Slirp,
    guest_addr: in_addr,
    guest_port: c_int,
    buf: *const u8,
    size: c_int,
) {
    // SAFETY: the caller's promise.
    let Some(slirp) = (unsafe { instance(slirp) }) else { return };
    let Some(len) = usize::try_from(size).ok().filter(|len| *len > 0 && !buf.is_null()) else { return };
    // SAFETY: the caller's promise.
    let bytes = unsafe { std::slice::from_raw_parts(buf, len) };
    door(Some(slirp), (), || {
        if let Some(at) = place(v4(guest_addr), guest_port) {
            slirp.act(|engine| engine.serve(at, bytes));
        }
    });
}

// ---- tables, state, version ----

pub unsafe extern "C" fn slirp_connection_info(slirp: *mut Slirp) -> *mut c_char {
    // SAFETY: the caller's promise.
    let slirp = unsafe { instance(slirp) };
    door(slirp, ptr::null_mut(), || {
        text(&slirp.and_then(|slirp| slirp.with(|engine| engine.connection_info())).unwrap_or_default())
    })
}

pub unsafe extern "C" fn slirp_neighbor_info(slirp: *mut Slirp) -> *mut c_char {
    // SAFETY: the caller's promise.
    let slirp = unsafe { instance(slirp) };
    door(slirp, ptr::null_mut(), || {
        text(&slirp.and_then(|slirp| slirp.with(|engine| engine.neighbor_info())).unwrap_or_default())
    })
}

/// Until version 4.7 it returned nothing.
pub unsafe extern "C" fn slirp_state_save(slirp: *mut Slirp, write: WriteCb, opaque: *mut c_void) -> c_int {
    // SAFETY: the caller's promise.
    let (Some(slirp), Some(write)) = (unsafe { instance(slirp) }, write) else { return -libc::EINVAL };
    door(Some(slirp), -libc::EINVAL, || {
        // Without an engine, after a panic, the guest has no connection.
        let state = saved::write(&slirp.with(|engine| engine.save()).unwrap_or_default());
        let mut left = &state[..];
        while !left.is_empty() {
            // SAFETY: the callback is the caller's, for this argument; the bytes live until it returns.
            let written = unsafe { write(left.as_ptr().cast(), left.len(), opaque) };
            let rest = usize::try_from(written).ok().filter(|count| *count > 0);
            let Some(rest) = rest.and_then(|count| left.get(count..)) else { return -libc::EIO };
            left = rest;
        }
        0
    })
}

pub unsafe extern "C" fn slirp_state_load(
    slirp: *mut Slirp,
    version: c_int,
    read: ReadCb,
    opaque: *mut c_void,
) -> c_int {
    // SAFETY: the caller's promise.
    let (Some(slirp), Some(read)) = (unsafe { instance(slirp) }, read) else { return -libc::EINVAL };
    door(Some(slirp), -libc::EINVAL, || {
        let mut fill = |mut into: &mut [u8]| {
            while !into.is_empty() {
                // SAFETY: the callback is the caller's, for this argument; there is room for so many bytes.
                let got = unsafe { read(into.as_mut_ptr().cast(), into.len(), opaque) };
                let Some(rest) = usize::try_from(got).ok().filter(|got| (1..=into.len()).contains(got))
                else {
                    return false;
                };
                into = &mut into[rest..];
            }
            true
        };
        let Some(saved) = saved::read(version, &mut fill) else { return -libc::EINVAL };
        if slirp.act(|engine| engine.load(saved)) == Some(true) { 0 } else { -libc::EINVAL }
    })
}

pub extern "C" fn slirp_state_version() -> c_int {
    saved::VERSION
}

pub extern "C" fn slirp_version_string() -> *const c_char {
    // The version whose interface it is; programs read a number in front.
    const VERSION: &CStr =
        match CStr::from_bytes_with_nul(concat!("4.9.0 (taut ", env!("CARGO_PKG_VERSION"), ")\0").as_bytes())
        {
            Ok(text) => text,
            Err(_) => c"4.9.0 (taut)",
        };
    VERSION.as_ptr()
}
