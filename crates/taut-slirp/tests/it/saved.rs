//! States that are saved and loaded: connections that continue, those that are reset, versions.

use std::cell::{Cell, RefCell};
use std::ffi::{c_int, c_void};
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use slirp::ffi::{
    Slirp, slirp_add_guestfwd, slirp_connection_info, slirp_socket_recv, slirp_state_load, slirp_state_save,
    slirp_state_version,
};
use socket2::{Domain, Socket, Type};
use taut::blocking;
use taut_testbed::PATIENCE;

use crate::connections::connect;
use crate::frames::{Random, arp_request, tcp_frame};
use crate::instance::taken;
use crate::world::{Bare, GUEST, HOST, World, at, config, v4};

const SERVICE: &str = "10.0.2.100";
const PORT: c_int = 90;

/// A saved state.
struct File {
    bytes: Vec<u8>,
    at: Cell<usize>,
}

unsafe extern "C" fn write(bytes: *const c_void, len: usize, opaque: *mut c_void) -> isize {
    let file = unsafe { &mut *opaque.cast::<File>() };
    file.bytes.extend_from_slice(unsafe { std::slice::from_raw_parts(bytes.cast(), len) });
    len as isize
}

/// In pieces, as a stream may come.
unsafe extern "C" fn read(into: *mut c_void, len: usize, opaque: *mut c_void) -> isize {
    let file = unsafe { &*opaque.cast::<File>() };
    let left = &file.bytes[file.at.get()..];
    let count = len.min(left.len()).min(10_000);
    unsafe { into.cast::<u8>().copy_from_nonoverlapping(left.as_ptr(), count) };
    file.at.set(file.at.get() + count);
    count as isize
}

unsafe extern "C" fn full(_: *const c_void, _: usize, _: *mut c_void) -> isize {
    -1
}

unsafe extern "C" fn write_ten(bytes: *const c_void, len: usize, opaque: *mut c_void) -> isize {
    unsafe { write(bytes, len.min(10), opaque) }
}

/// There is no room for more.
unsafe extern "C" fn write_ten_once(bytes: *const c_void, len: usize, opaque: *mut c_void) -> isize {
    let is_full = unsafe { &*opaque.cast::<File>() }.bytes.len() >= 10;
    if is_full { 0 } else { unsafe { write(bytes, len.min(10), opaque) } }
}

fn save(slirp: *mut Slirp) -> Vec<u8> {
    let mut file = File { bytes: Vec::new(), at: Cell::new(0) };
    assert_eq!(unsafe { slirp_state_save(slirp, Some(write), (&raw mut file).cast()) }, 0);
    file.bytes
}

/// The result, and how many bytes were not read.
fn load(slirp: *mut Slirp, version: c_int, bytes: &[u8]) -> (c_int, usize) {
    let mut file = File { bytes: bytes.to_vec(), at: Cell::new(0) };
    let result = unsafe { slirp_state_load(slirp, version, Some(read), (&raw mut file).cast()) };
    (result, bytes.len() - file.at.get())
}

/// A service that keeps all bytes.
unsafe extern "C" fn keep(bytes: *const c_void, len: usize, opaque: *mut c_void) -> isize {
    let kept = unsafe { &*opaque.cast::<RefCell<Vec<u8>>>() };
    kept.borrow_mut().extend_from_slice(unsafe { std::slice::from_raw_parts(bytes.cast(), len) });
    len as isize
}

/// Adds that service. Its memory is never freed.
fn add_service(slirp: *mut Slirp) -> &'static RefCell<Vec<u8>> {
    let kept: &'static RefCell<Vec<u8>> = Box::leak(Box::default());
    let opaque = std::ptr::from_ref(kept).cast_mut().cast();
    assert_eq!(unsafe { slirp_add_guestfwd(slirp, Some(keep), opaque, &mut v4(SERVICE), PORT) }, 0);
    kept
}

fn say(slirp: *mut Slirp, bytes: &[u8]) {
    unsafe { slirp_socket_recv(slirp, v4(SERVICE), PORT, bytes.as_ptr(), bytes.len() as c_int) };
}

fn is_reset(guest: &mut blocking::TcpStream) {
    assert_eq!(guest.read(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset);
}

#[test]
fn slirp_16_after_a_load_flows_are_over_and_new_ones_begin() {
    let world = World::new(config());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut guest = connect(&world, at(HOST, port));
    let saved = world.caller.call(save);
    let version = slirp_state_version();
    let wrong = world.caller.call({
        let saved = saved.clone();
        move |slirp| {
            let other = saved.iter().map(|byte| byte ^ 1).collect::<Vec<u8>>();
            let cut = &saved[..saved.len() - 1];
            [(version, &[][..]), (version, &other), (version, cut), (version + 1, &saved)]
                .map(|(version, bytes)| load(slirp, version, bytes).0)
        }
    });
    assert_eq!(wrong, [-libc::EINVAL; 4]);
    guest.write_all(b"still open").unwrap();
    assert_eq!(world.caller.call(move |slirp| load(slirp, version, &saved)), (0, 0));
    is_reset(&mut guest);
    _ = connect(&world, at(HOST, port));
    let failed = unsafe { |slirp| slirp_state_save(slirp, Some(full), std::ptr::null_mut()) };
    assert!(world.caller.call(failed) < 0);
}

/// In another process, as it were. Bytes that the guest has not acknowledged when the state is saved come
/// once.
#[test]
fn slirp_31_a_connection_to_a_service_continues_and_others_are_reset_before_they_are_used() {
    let world = World::new(config());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut other = connect(&world, at(HOST, listener.local_addr().unwrap().port()));
    let _host = listener.accept().unwrap();
    let service = world.caller.call(|slirp| Kept(add_service(slirp)));
    let mut guest = connect(&world, at(SERVICE, PORT as u16));
    guest.write_all(b"before, ").unwrap();
    // Bytes without a connection are lost, and the guest has one a moment before.
    service.gets(&world, b"before, ");
    let mut got = [0; 4];
    world.caller.call(|slirp| say(slirp, b"yes."));
    guest.read_exact(&mut got).unwrap();
    // A service without the one that the state needs: as libslirp, refused.
    let (results, kept) = world.caller.replace(|old, new| {
        say(old, &[b'x'; 100_000]);
        let state = save(old);
        let refused = load(new, 4, &state).0;
        let kept = add_service(new);
        let loaded = load(new, 4, &state);
        say(new, b"again");
        ((refused, loaded), Kept(kept))
    });
    assert_eq!(results, (-libc::EINVAL, (0, 0)));
    // 64 KiB: what the service may say ahead (libslirp: `slirp_socket_can_recv`).
    let mut got = vec![0; 65_536 + 5];
    guest.read_exact(&mut got).unwrap();
    assert!(got[..65_536].iter().all(|byte| *byte == b'x') && got.ends_with(b"again"));
    guest.write_all(b"after").unwrap();
    kept.gets(&world, b"after");
    is_reset(&mut other);
}

/// As write(2) may.
#[test]
fn slirp_44_a_state_is_written_in_pieces_or_not_at_all() {
    let bare = Bare::new(&config());
    let whole = save(bare.slirp);
    assert!(whole.len() > 10);
    let save_by = |write| {
        let mut file = File { bytes: Vec::new(), at: Cell::new(0) };
        let result = unsafe { slirp_state_save(bare.slirp, Some(write), (&raw mut file).cast()) };
        (result, file.bytes)
    };
    assert_eq!(save_by(write_ten), (0, whole));
    assert_eq!(save_by(write_ten_once).0, -libc::EIO);
}

/// The state has the guest's station: of packets that wait until a station is found, the latest 16
/// are kept.
#[test]
fn slirp_42_each_of_many_connections_is_reset_in_another_process() {
    let world = World::new(config());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = at(HOST, listener.local_addr().unwrap().port());
    let mut all: Vec<_> = (0..40).map(|_| (connect(&world, to), listener.accept().unwrap())).collect();
    assert_eq!(world.caller.replace(|old, new| load(new, 4, &save(old))), (0, 0));
    all.iter_mut().for_each(|(guest, _)| is_reset(guest));
}

/// The bytes that a service keeps, for its own thread.
struct Kept(&'static RefCell<Vec<u8>>);

unsafe impl Send for Kept {}

impl Kept {
    /// Waits until the service has these bytes.
    fn gets(&self, world: &World, bytes: &[u8]) {
        taut_testbed::eventually("the service gets it", || {
            let kept = Kept(self.0);
            world.caller.call(move |_| { kept }.0.borrow().clone()) == bytes
        });
    }
}

/// In a loaded machine, a guest that waits for its connection repeats its SYN.
#[test]
fn slirp_33_a_connection_that_was_being_opened_begins_again() {
    let world = World::new(config());
    let listener = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    listener.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    listener.listen(0).unwrap();
    let to = listener.local_addr().unwrap().as_socket().unwrap();
    // Its queue is full: further SYNs are not answered.
    let first = TcpStream::connect(to).unwrap();
    let (stack, (done, connected)) = (world.guest.clone(), std::sync::mpsc::channel());
    std::thread::spawn(move || done.send(blocking::TcpStream::connect(&stack, at(HOST, to.port())).is_ok()));
    taut_testbed::eventually("the guest has begun", || {
        world.caller.call(|slirp| taken(unsafe { slirp_connection_info(slirp) })).contains("TCP[SYN_RCVD]")
    });
    assert_eq!(world.caller.call(|slirp| load(slirp, 4, &save(slirp))), (0, 0));
    drop((listener.accept().unwrap(), first));
    assert!(connected.recv_timeout(PATIENCE).unwrap());
}

/// The state of Debian's libslirp 4.7.0: a connection of the guest's port 5555 to the service, which has sent
/// and received five bytes, the last ones not acknowledged. Between its three parts are 131,400 bytes each,
/// the rings of its buffers, in the second of which is what it has sent.
const LIBSLIRPS: [&str; 3] = [
    "2a0000000000026402000a5a0000020f02000ab3150000060000000400000000000201480000000000000000",
    "00000005000201480000000500000000",
    "0004000600003840000000000006000005b4000000000000020000000700000002000003e9000000020000000100001f40000201\
     48000003ee000003e9000003e8000103ed0000000700000b683fffc000000000010000000200100004000200001f400000000000\
     0000000000000000000000000003ee",
];
/// As it was saved, the guest's next number is this, and the service's first byte that is not acknowledged
/// this.
const GUESTS_NEXT: u32 = 1_006;
const SERVICES_FIRST: u32 = 2;

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u32> = text.chars().filter_map(|digit| digit.to_digit(16)).collect();
    digits.chunks(2).map(|pair| (pair[0] * 16 + pair[1]) as u8).collect()
}

/// The same of a guest that has ended its half before the service sent: in the state CLOSE_WAIT.
const LIBSLIRPS_HALF: [&str; 3] = [
    "2a0000000000026402000a5a0000020f02000ab3150000060000001400000000000201480000000000000000",
    LIBSLIRPS[1],
    "000500020000383f000000000003000005b4000000000000020000000700000002000003ee000000020000000100001f40000201\
     48000003ef000003ee000003e8000103ee0000000700000b683fffc000000100020000000200080002000200001f400000000000\
     0000000000000000000000000003ef",
];

/// One of them with the end of the list, and 130 bytes about packets and leases. Its rings have this length.
fn libslirps(parts: [&str; 3], length: usize) -> Vec<u8> {
    let [mut head, mut between, tail] = parts.map(hex);
    head[32..36].copy_from_slice(&(length as u32).to_be_bytes());
    between[4..8].copy_from_slice(&(length as u32).to_be_bytes());
    let ring = |bytes: &[u8]| [bytes, &vec![0; length - bytes.len()]].concat();
    [head, ring(&[]), between, ring(b"world"), tail, vec![0; 131]].concat()
}

/// Which versions libslirp 4.7.0 takes: its warning says "too new for local version_id 4".
#[test]
fn slirp_32_states_of_libslirp_are_loaded() {
    let bare = Bare::new(&config());
    for (version, len) in [(-1, 1), (0, 1), (1, 1), (2, 3), (3, 131), (4, 131)] {
        assert_eq!(load(bare.slirp, version, &vec![0; len]), (0, 0), "{version}");
    }
    for version in [5, 6, c_int::MAX] {
        assert_eq!(load(bare.slirp, version, &[0; 131]).0, -libc::EINVAL, "{version}");
    }
    let state = libslirps(LIBSLIRPS, 131_400);
    assert_eq!(state.len(), 263_110);
    assert_eq!(load(bare.slirp, 4, &state).0, -libc::EINVAL, "without the service");
    let kept = add_service(bare.slirp);
    bare.input(&arp_request(GUEST, HOST));
    assert_eq!(load(bare.slirp, 4, &state), (0, 0));
    // Bytes that were not acknowledged come again, from their first number on.
    bare.turn(Duration::ZERO);
    let (seq, ack, payload) = last_segment(&bare.state.frames.take());
    assert_eq!((seq, ack, &payload[..]), (SERVICES_FIRST, GUESTS_NEXT, &b"world"[..]));
    let ends = ((GUEST, 5_555), (SERVICE, PORT as u16));
    let again = tcp_frame(ends, (GUESTS_NEXT, SERVICES_FIRST + 5), 0x18, b"again");
    let (seq, ack, _) = last_segment(&bare.input(&again));
    assert_eq!((seq, ack), (SERVICES_FIRST + 5, GUESTS_NEXT + 5));
    assert_eq!(*kept.borrow(), b"again");
}

/// The last one of TCP among these frames.
fn last_segment(frames: &[Vec<u8>]) -> (u32, u32, Vec<u8>) {
    let of = |frame: &Vec<u8>| (frame[12..14] == [8, 0] && frame[23] == 6).then(|| segment(frame));
    frames.iter().filter_map(of).next_back().unwrap()
}

/// Sequence number, acknowledgement and payload.
fn segment(frame: &[u8]) -> (u32, u32, Vec<u8>) {
    let number = |at: usize| u32::from_be_bytes(frame[at..at + 4].try_into().unwrap());
    let end = 14 + usize::from(u16::from_be_bytes([frame[16], frame[17]]));
    (number(38), number(42), frame[34 + 4 * usize::from(frame[46] >> 4)..end].to_vec())
}

#[test]
fn slirp_35_damaged_states_change_nothing_else() {
    let world = World::new(config());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    world.caller.call(|slirp| _ = add_service(slirp));
    let _guests = [connect(&world, at(HOST, port)), connect(&world, at(SERVICE, PORT as u16))];
    let states = [world.caller.call(save), libslirps(LIBSLIRPS, 8), libslirps(LIBSLIRPS_HALF, 8)];
    world.caller.call(move |slirp| {
        let mut random = Random(1);
        for _ in 0..20_000 {
            let mut state = states[random.below(3)].clone();
            state.truncate(random.below(2 * state.len()));
            for _ in 0..random.below(4) {
                let place = random.below(state.len());
                if let Some(byte) = state.get_mut(place) {
                    *byte = random.next() as u8;
                }
            }
            load(slirp, random.below(6) as c_int, &state);
        }
    });
    _ = connect(&world, at(HOST, port));
}

/// RFC 9293 §3.6: the other half stays open.
#[test]
fn slirp_38_a_connection_whose_guest_has_ended_its_half_continues() {
    let world = World::new(config());
    world.caller.call(|slirp| _ = add_service(slirp));
    let mut guest = connect(&world, at(SERVICE, PORT as u16));
    guest.write_all(b"all of it").unwrap();
    guest.shutdown(Shutdown::Write).unwrap();
    taut_testbed::eventually("its end has arrived", || {
        world.caller.call(|slirp| taken(unsafe { slirp_connection_info(slirp) })).contains("TCP[CLOSE_WAIT]")
    });
    // Twice, so that a state that was loaded is saved.
    for round in [&b"first "[..], b"second"] {
        let kept = world.caller.replace(|old, new| {
            say(old, &[b'x'; 50_000]);
            let kept = add_service(new);
            assert_eq!(load(new, 4, &save(old)), (0, 0));
            say(new, round);
            Kept(kept)
        });
        let mut got = vec![0; 50_006];
        guest.read_exact(&mut got).unwrap();
        assert!(got[..50_000].iter().all(|byte| *byte == b'x') && got.ends_with(round));
        let table = world.caller.call(|slirp| taken(unsafe { slirp_connection_info(slirp) }));
        assert!(table.contains("TCP[CLOSE_WAIT]"), "{table}");
        let nothing = world.caller.call(move |_| { kept }.0.borrow().clone());
        assert_eq!(nothing, b"", "the service had all before it was saved");
    }
    // Another connection takes its place, as without a load.
    let mut next = connect(&world, at(SERVICE, PORT as u16));
    is_reset(&mut guest);
    let established = |slirp| taken(unsafe { slirp_connection_info(slirp) }).contains("TCP[ESTABLISHED]");
    taut_testbed::eventually("the service has the connection", || world.caller.call(established));
    world.caller.call(|slirp| say(slirp, b"hello"));
    next.read_exact(&mut [0; 5]).unwrap();
}

#[test]
fn slirp_39_a_half_of_libslirps_that_is_open_continues() {
    let bare = Bare::new(&config());
    let kept = add_service(bare.slirp);
    bare.input(&arp_request(GUEST, HOST));
    assert_eq!(load(bare.slirp, 4, &libslirps(LIBSLIRPS_HALF, 131_400)), (0, 0));
    bare.turn(Duration::ZERO);
    // The guest's end has the number behind its last byte.
    let (seq, ack, payload) = last_segment(&bare.state.frames.take());
    assert_eq!((seq, ack, &payload[..]), (SERVICES_FIRST, GUESTS_NEXT + 1, &b"world"[..]));
    let ends = ((GUEST, 5_555), (SERVICE, PORT as u16));
    let fin_again = tcp_frame(ends, (GUESTS_NEXT, SERVICES_FIRST + 5), 0x11, b"");
    let (seq, ack, _) = last_segment(&bare.input(&fin_again));
    assert_eq!((seq, ack), (SERVICES_FIRST + 5, GUESTS_NEXT + 1));
    say(bare.slirp, b"more");
    bare.turn(Duration::ZERO);
    let (seq, ack, payload) = last_segment(&bare.state.frames.take());
    assert_eq!((seq, ack, &payload[..]), (SERVICES_FIRST + 5, GUESTS_NEXT + 1, &b"more"[..]));
    assert_eq!(*kept.borrow(), b"");
}
