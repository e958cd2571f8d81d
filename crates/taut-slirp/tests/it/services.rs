//! Services at addresses of the link: programs, Unix sockets, the caller's own.

use std::cell::RefCell;
use std::ffi::{c_int, c_void};
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown};
use std::os::unix::net::UnixListener;
use std::ptr;

use libc::in_addr;
use slirp::ffi::{
    Slirp, SlirpConfig, slirp_add_exec, slirp_add_guestfwd, slirp_add_unix, slirp_remove_guestfwd,
    slirp_socket_can_recv, slirp_socket_recv,
};
use taut::blocking;
use taut_testbed::Scratch;

use crate::connections::connect;
use crate::world::{World, at, config, text, v4};

const SERVICE: &str = "10.0.2.100";

/// Sends, ends, and reads to the end.
fn exchange(world: &World, to: (&str, u16), sent: &[u8]) -> Vec<u8> {
    let mut stream = connect(world, at(to.0, to.1));
    stream.write_all(sent).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut got = Vec::new();
    stream.read_to_end(&mut got).unwrap();
    got
}

fn ip(of: in_addr) -> Ipv4Addr {
    Ipv4Addr::from_bits(u32::from_be(of.s_addr))
}

#[test]
fn slirp_14_a_program_serves_each_connection_also_of_a_restricted_guest() {
    for restricted in [0, 1] {
        let world = World::new(SlirpConfig { restricted, ..config() });
        let (added, chosen) = world.caller.call(|slirp| unsafe {
            let (mut at, mut any) = (v4(SERVICE), v4("0.0.0.0"));
            let programs = ["cat", "sh -c 'tr a-z A-Z; echo done'"].map(text);
            let added = [
                slirp_add_exec(slirp, programs[0], &raw mut at, 7),
                slirp_add_exec(slirp, programs[1], &raw mut any, 8),
                // Taken; the host's own; not of this network.
                slirp_add_exec(slirp, programs[0], &raw mut at, 7),
                slirp_add_exec(slirp, programs[0], &mut v4("10.0.2.2"), 7),
                slirp_add_exec(slirp, programs[0], &mut v4("10.0.3.4"), 7),
            ];
            (added, any.s_addr)
        });
        assert_eq!(added, [0, 0, -1, -1, -1]);
        // libslirp's choice.
        assert_eq!(ip(in_addr { s_addr: chosen }), Ipv4Addr::new(10, 0, 2, 4));
        let long = vec![b'x'; 300_000];
        assert!(exchange(&world, (SERVICE, 7), &long) == long);
        assert_eq!(exchange(&world, ("10.0.2.4", 8), b"hello\n"), b"HELLO\ndone\n");
        let removed = world
            .caller
            .call(|slirp| unsafe { [(); 2].map(|()| slirp_remove_guestfwd(slirp, v4(SERVICE), 7)) });
        assert_eq!(removed, [0, -1]);
    }
}

#[test]
fn slirp_46_a_program_is_no_child_of_the_caller() {
    let world = World::new(config());
    let added = world.caller.call(|slirp| unsafe {
        // Two that are no command lines, and one that says its parent.
        let lines = [" ", "sh -c 'echo", "sh -c 'read line; grep PPid /proc/$$/status'"].map(text);
        lines.map(|line| slirp_add_exec(slirp, line, &mut v4(SERVICE), 7))
    });
    assert_eq!(added, [-1, -1, 0]);
    let said = String::from_utf8(exchange(&world, (SERVICE, 7), b"hello\n")).unwrap();
    let parent: u32 = said.trim_start_matches("PPid:").trim().parse().expect(&said);
    assert_ne!(parent, std::process::id());
}

#[test]
fn slirp_14_a_unix_socket_serves() {
    let world = World::new(config());
    let scratch = Scratch::new("slirp-unix");
    let listener = UnixListener::bind(scratch.join("socket")).unwrap();
    let path = scratch.join("socket").to_str().unwrap().to_owned();
    let added =
        world.caller.call(move |slirp| unsafe { slirp_add_unix(slirp, text(&path), &mut v4(SERVICE), 80) });
    assert_eq!(added, 0);
    let serving = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut got = Vec::new();
        stream.read_to_end(&mut got).unwrap();
        stream.write_all(&[&got[..], b" there"].concat()).unwrap();
    });
    assert_eq!(exchange(&world, (SERVICE, 80), b"hello"), b"hello there");
    serving.join().unwrap();
}

/// A service that sends back what comes, in capital letters.
struct Capitals {
    slirp: *mut Slirp,
    waits: RefCell<Vec<u8>>,
}

unsafe extern "C" fn on_bytes(bytes: *const c_void, len: usize, opaque: *mut c_void) -> isize {
    let service = unsafe { &*opaque.cast::<Capitals>() };
    let bytes = unsafe { std::slice::from_raw_parts(bytes.cast::<u8>(), len) };
    service.waits.borrow_mut().extend(bytes.to_ascii_uppercase());
    // It may call back in at once.
    let mut waits = service.waits.borrow_mut();
    let room = unsafe { slirp_socket_can_recv(service.slirp, v4(SERVICE), 90) }.min(waits.len());
    unsafe { slirp_socket_recv(service.slirp, v4(SERVICE), 90, waits.as_ptr(), room as c_int) };
    waits.drain(..room);
    len as isize
}

fn add_capitals(world: &World) {
    let added = world.caller.call(|slirp| unsafe {
        let service = Box::into_raw(Box::new(Capitals { slirp, waits: RefCell::default() }));
        let none = slirp_socket_can_recv(slirp, v4(SERVICE), 90);
        (slirp_add_guestfwd(slirp, Some(on_bytes), service.cast(), &mut v4(SERVICE), 90), none)
    });
    assert_eq!(added, (0, 0));
}

#[test]
fn slirp_14_the_callers_own_service_calls_back_in() {
    let world = World::new(config());
    add_capitals(&world);
    let mut stream = connect(&world, at(SERVICE, 90));
    for _ in 0..20 {
        stream.write_all(&[b'a'; 1_000]).unwrap();
        let mut got = [0; 1_000];
        stream.read_exact(&mut got).unwrap();
        assert_eq!(got, [b'A'; 1_000]);
    }
    // One connection at a time, and none when it is removed.
    let second = blocking::TcpStream::connect(&world.guest, at(SERVICE, 90)).unwrap_err();
    assert_eq!(second.kind(), std::io::ErrorKind::ConnectionRefused);
    assert_eq!(world.caller.call(|slirp| unsafe { slirp_remove_guestfwd(slirp, v4(SERVICE), 90) }), 0);
    assert_eq!(stream.read(&mut [0]).unwrap_err().kind(), std::io::ErrorKind::ConnectionReset);
    // Bytes without a connection are lost.
    world.caller.call(|slirp| unsafe { slirp_socket_recv(slirp, v4(SERVICE), 90, b"x".as_ptr(), 1) });
    world.caller.call(|slirp| unsafe { slirp_socket_recv(slirp, v4(SERVICE), 90, ptr::null(), -1) });
}

#[test]
fn slirp_37_a_guest_connects_to_the_callers_service_again() {
    let world = World::new(config());
    add_capitals(&world);
    for _ in 0..3 {
        let mut stream = connect(&world, at(SERVICE, 90));
        stream.write_all(b"hello").unwrap();
        let mut got = [0; 5];
        stream.read_exact(&mut got).unwrap();
        assert_eq!(&got, b"HELLO");
        // The service has no way to end its half.
        stream.shutdown(Shutdown::Write).unwrap();
    }
}
