//! An instance: versions of its configuration, tables, time, and callers that call back in.

use std::cell::Cell;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::net::{TcpListener, UdpSocket};
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use slirp::ffi::{
    Slirp, SlirpConfig, slirp_add_hostfwd, slirp_cleanup, slirp_connection_info, slirp_init, slirp_input,
    slirp_neighbor_info, slirp_new, slirp_pollfds_fill, slirp_pollfds_poll, slirp_version_string,
};
use taut_testbed::eventually;

use crate::connections::connect;
use crate::frames::{arp_request, guest_mac, udp_frame};
use crate::world::{Bare, GUEST, HOST, State, World, at, callbacks, config, v4, v6};

/// Whether there can be an instance, and what was said.
fn made(config: &SlirpConfig) -> (bool, Vec<String>) {
    let state = State::new(None);
    let slirp = unsafe { slirp_new(config, &callbacks(), ptr::from_ref(&*state).cast_mut().cast()) };
    unsafe { slirp_cleanup(slirp) };
    let errors = state.errors.take();
    (!slirp.is_null(), errors)
}

#[test]
fn slirp_13_versions_and_values_of_a_configuration() {
    for version in 1..=6 {
        assert_eq!(made(&SlirpConfig { version, ..config() }), (true, Vec::new()), "{version}");
    }
    for version in [0, 7, u32::MAX] {
        let (is_made, errors) = made(&SlirpConfig { version, ..config() });
        assert!(!is_made && errors.len() == 1 && errors[0].contains("1 to 6"), "{version}: {errors:?}");
    }
    // libslirp's limits.
    for (mtu, is_possible) in [(67, false), (68, true), (65_521, true), (65_522, false)] {
        assert_eq!(made(&SlirpConfig { if_mtu: mtu, ..config() }).0, is_possible, "{mtu}");
        assert_eq!(made(&SlirpConfig { if_mru: mtu, ..config() }).0, is_possible, "{mtu}");
    }
    for wrong in [
        SlirpConfig { vhost: v4("10.0.3.2"), ..config() },
        SlirpConfig { vnetmask: v4("255.0.255.0"), ..config() },
        SlirpConfig { vprefix_len: 127, ..config() },
    ] {
        let (is_made, errors) = made(&wrong);
        assert!(!is_made && errors.len() == 1, "{errors:?}");
    }
    let (is_made, errors) = made(&SlirpConfig { enable_emu: true, ..config() });
    assert!(is_made && errors.len() == 1 && errors[0].contains("enable_emu"), "{errors:?}");
    assert!(unsafe { slirp_new(ptr::null(), &callbacks(), ptr::null_mut()) }.is_null());
    unsafe { slirp_cleanup(ptr::null_mut()) };
}

/// Fields of later versions are not read: here they point nowhere.
#[test]
fn slirp_13_later_fields_are_not_read() {
    let nowhere = ptr::dangling::<libc::sockaddr_in>();
    let old = SlirpConfig { version: 1, outbound_addr: nowhere, disable_dhcp: true, ..config() };
    assert!(made(&old).0);
    let world = World::new(SlirpConfig { version: 3, disable_dhcp: true, ..config() });
    drop(world);
    let state = State::new(None);
    let no = ptr::null();
    let slirp = unsafe {
        slirp_init(
            0,
            true,
            v4("10.0.2.0"),
            v4("255.255.255.0"),
            v4(HOST),
            true,
            v6("fec0::"),
            64,
            v6("fec0::2"),
            no,
            no,
            no,
            no,
            v4(GUEST),
            v4("10.0.2.3"),
            v6("fec0::3"),
            ptr::null(),
            no,
            &callbacks(),
            ptr::from_ref(&*state).cast_mut().cast(),
        )
    };
    assert!(!slirp.is_null());
    unsafe { slirp_cleanup(slirp) };
}

pub(crate) fn taken(text: *mut c_char) -> String {
    let taken = unsafe { CStr::from_ptr(text) }.to_str().unwrap().to_owned();
    // As g_free does.
    unsafe { libc::free(text.cast()) };
    taken
}

#[test]
fn slirp_15_tables_have_libslirps_form() {
    let world = World::new(config());
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let free_udp = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    world.caller.call(move |slirp| unsafe {
        slirp_add_hostfwd(slirp, 0, v4("127.0.0.1"), free.into(), v4("0.0.0.0"), 22);
        slirp_add_hostfwd(slirp, 1, v4("0.0.0.0"), free_udp.into(), v4(GUEST), 53);
    });
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let _guest = connect(&world, at(HOST, port));
    // The guest is connected before its last ACK is here.
    let mut connections = String::new();
    eventually("the connection is open", || {
        connections = world.caller.call(|slirp| taken(unsafe { slirp_connection_info(slirp) }));
        connections.contains("TCP[ESTABLISHED]")
    });
    let rows: Vec<Vec<&str>> = connections.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(
        connections.lines().next(),
        Some("  Protocol[State]    FD  Source Address  Port   Dest. Address  Port RecvQ SendQ")
    );
    let row = |name: &str| {
        rows.iter().find(|row| row[0] == name).unwrap_or_else(|| panic!("{name}: {connections}"))
    };
    let (free, free_udp, port) = (free.to_string(), free_udp.to_string(), port.to_string());
    assert_eq!(row("TCP[HOST_FORWARD]")[2..], ["127.0.0.1", &free, GUEST, "22", "0", "0"]);
    assert_eq!(row("UDP[HOST_FORWARD]")[2..], ["*", &free_udp, GUEST, "53", "0", "0"]);
    let open = row("TCP[ESTABLISHED]");
    assert_eq!((open[2], &open[4..6]), (GUEST, &[HOST, &port[..]][..]));
    let neighbours = world.caller.call(|slirp| taken(unsafe { slirp_neighbor_info(slirp) }));
    assert!(
        neighbours.lines().any(|line| line.starts_with("  ARP ") && line.ends_with(GUEST)),
        "{neighbours}"
    );
    let version = unsafe { CStr::from_ptr(slirp_version_string()) }.to_str().unwrap();
    assert!(version.starts_with("4.9.") && version.contains("taut"), "{version}");
}

/// A caller that calls back in for each frame.
struct Mirror {
    slirp: Cell<*mut Slirp>,
    /// Frames that are answered, and those that have come.
    most: u32,
    frames: Cell<u32>,
    /// Calls of `reflect` that are under way, and at most.
    depth: Cell<u32>,
    deepest: Cell<u32>,
}

impl Mirror {
    fn new(most: u32) -> Box<Self> {
        let cell = || Cell::new(0);
        let slirp = Cell::new(ptr::null_mut());
        let mirror = Box::new(Self { slirp, most, frames: cell(), depth: cell(), deepest: cell() });
        let mut table = callbacks();
        table.send_packet = Some(reflect);
        table.clock_get_ns = Some(no_time);
        (table.guest_error, table.timer_new_opaque, table.timer_mod, table.timer_free) =
            (None, None, None, None);
        let opaque = ptr::from_ref(&*mirror).cast_mut().cast();
        mirror.slirp.set(unsafe { slirp_new(&config(), &table, opaque) });
        mirror
    }

    fn input(&self, frame: &[u8]) {
        unsafe { slirp_input(self.slirp.get(), frame.as_ptr(), frame.len() as c_int) };
    }

    /// For how long a loop would wait, a second at most.
    fn fill(&self) -> u32 {
        let mut timeout = 1_000;
        unsafe {
            slirp_pollfds_fill(self.slirp.get(), &raw mut timeout, Some(no_poll), ptr::null_mut());
        }
        timeout
    }
}

impl Drop for Mirror {
    fn drop(&mut self) {
        unsafe { slirp_cleanup(self.slirp.get()) };
    }
}

unsafe extern "C" fn reflect(bytes: *const c_void, len: usize, opaque: *mut c_void) -> isize {
    let mirror = unsafe { &*opaque.cast::<Mirror>() };
    mirror.frames.set(mirror.frames.get() + 1);
    mirror.depth.set(mirror.depth.get() + 1);
    mirror.deepest.set(mirror.deepest.get().max(mirror.depth.get()));
    if mirror.frames.get() <= mirror.most {
        mirror.input(unsafe { std::slice::from_raw_parts(bytes.cast(), len) });
        mirror.input(&arp_request(GUEST, HOST));
        mirror.fill();
    }
    mirror.depth.set(mirror.depth.get() - 1);
    len as isize
}

unsafe extern "C" fn no_poll(_: c_int, _: c_int, _: *mut c_void) -> c_int {
    0
}

unsafe extern "C" fn no_time(_: *mut c_void) -> i64 {
    7
}

#[test]
fn slirp_23_a_caller_may_call_back_in() {
    let mirror = Mirror::new(3);
    mirror.input(&arp_request(GUEST, HOST));
    // Each call has its answer.
    assert!(mirror.frames.get() >= 4, "{}", mirror.frames.get());
}

/// A guest that answers each frame at once, as libslirp allows (`if_start_busy`).
#[test]
fn slirp_43_a_caller_that_answers_each_frame_at_once_goes_no_deeper() {
    let mirror = Mirror::new(10_000);
    mirror.input(&arp_request(GUEST, HOST));
    assert_eq!(mirror.deepest.get(), 1);
    // A call ends although there is more to do, and the loop does not wait.
    assert_eq!(mirror.frames.get(), 64);
    let mut waits = vec![mirror.fill()];
    while mirror.frames.get() <= 10_000 {
        let before = mirror.frames.get();
        waits.push(mirror.fill());
        assert!(mirror.frames.get() > before, "{before}");
    }
    assert_eq!(mirror.deepest.get(), 1);
    assert!(waits.pop() > Some(0) && waits.iter().all(|wait| *wait == 0), "{waits:?}");
}

/// libvdeslirp reads one frame of the guest's in a turn of its loop, and vde_plug one of the library's in a
/// turn of its own: if more leave than come, each waits in the end until the other reads.
#[test]
fn slirp_49_into_a_queue_that_is_read_frame_by_frame_no_more_leave_than_come() {
    for (mtu, leave) in [(0, 1), (9_000, 3)] {
        let bare = Bare::new(&SlirpConfig { in6_enabled: false, if_mtu: mtu, if_mru: mtu, ..config() });
        let ask =
            |count: usize| -> usize { (0..count).map(|_| bare.input(&arp_request(GUEST, HOST)).len()).sum() };
        let turn = || {
            let wait = bare.turn(Duration::ZERO);
            (wait.is_zero(), bare.state.frames.take().len())
        };
        assert_eq!(turn(), (false, 0));
        assert_eq!(ask(70), 64);
        // The loop does not wait for the rest.
        assert_eq!(turn(), (true, 6));
        for _ in 0..8 {
            assert_eq!(ask(3), 3, "several in a turn are no queue");
            assert_eq!(turn(), (false, 0));
        }
        for _ in 0..4 {
            assert_eq!(ask(1), 1);
            assert_eq!(turn(), (false, 0));
        }
        assert_eq!(ask(3), leave, "{mtu}");
        assert_eq!(turn(), (leave == 1, 3 - leave));
        assert_eq!(ask(20), 20);
    }
}

#[test]
fn slirp_24_a_clock_that_stands_still_does_not_make_a_loop_spin() {
    // The machine has stopped while a SYN-ACK is due for retransmission.
    let bare = Bare::new(&config());
    bare.input(&arp_request(GUEST, HOST));
    let waits: Vec<Duration> = (0..3).map(|_| bare.turn(Duration::ZERO)).collect();
    // The router's first advertisement is out; the next one is in 16 s at most.
    assert!(waits[2] <= Duration::from_secs(16) && !waits[2].is_zero(), "{waits:?}");
    drop(bare);
    let state = State::new(None);
    let mut table = callbacks();
    table.clock_get_ns = Some(no_time);
    let slirp = unsafe { slirp_new(&config(), &table, ptr::from_ref(&*state).cast_mut().cast()) };
    let fill = || {
        let mut timeout = u32::MAX;
        unsafe { slirp_pollfds_fill(slirp, &raw mut timeout, Some(no_poll), ptr::null_mut()) };
        timeout
    };
    fill();
    assert!(fill() >= 50);
    unsafe { slirp_cleanup(slirp) };
}

/// How often the loop of another thread was to look again.
static NOTIFIED: AtomicU32 = AtomicU32::new(0);

unsafe extern "C" fn on_notify(_: *mut c_void) {
    NOTIFIED.fetch_add(1, Relaxed);
}

unsafe extern "C" fn full_poll(_: c_int, _: c_int, _: *mut c_void) -> c_int {
    -1
}

unsafe extern "C" fn no_events(place: c_int, _: *mut c_void) -> c_int {
    panic!("place {place} was never given out")
}

#[test]
fn slirp_28_a_loop_on_another_thread_is_notified_of_a_new_file_alone() {
    let state = State::new(None);
    let mut table = callbacks();
    table.notify = Some(on_notify);
    let slirp = unsafe { slirp_new(&config(), &table, ptr::from_ref(&*state).cast_mut().cast()) };
    let mut timeout = u32::MAX;
    let input = |frame: &[u8]| unsafe { slirp_input(slirp, frame.as_ptr(), frame.len() as c_int) };
    unsafe { slirp_pollfds_fill(slirp, &raw mut timeout, Some(full_poll), ptr::null_mut()) };
    input(&arp_request(GUEST, HOST));
    assert_eq!(NOTIFIED.load(Relaxed), 0);
    // A socket of the host's for the guest's port, and a flow's end.
    input(&udp_frame(HOST, 1_000, 9, b"hello"));
    assert_eq!(NOTIFIED.load(Relaxed), 1);
    // A caller that has no room for files.
    unsafe {
        slirp_pollfds_fill(slirp, &raw mut timeout, Some(full_poll), ptr::null_mut());
        slirp_pollfds_poll(slirp, 0, Some(no_events), ptr::null_mut());
        slirp_cleanup(slirp);
    }
}

#[test]
fn slirp_25_an_instance_takes_no_file_and_no_thread_with_it() {
    let count = || {
        let of = |folder: &str| std::fs::read_dir(folder).unwrap().count();
        (of("/proc/self/fd"), of("/proc/self/task"))
    };
    eventually("other tests have ended, or stand still", || {
        let before = count();
        for _ in 0..20 {
            let bare = Bare::new(&config());
            bare.input(&arp_request(GUEST, HOST));
            bare.turn(Duration::ZERO);
        }
        count() == before
    });
    assert_ne!(guest_mac(), [0; 6]);
    _ = CString::default();
}
