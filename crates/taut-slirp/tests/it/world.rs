//! A caller of the library, on a thread of its own, and a guest: a stack of taut's that configures itself.
//!
//! ```text
//!   test ─ guest: taut's stack ── a pair of Unix sockets ── caller: poll(2), slirp_* ── sockets ─ test
//! ```

use std::cell::{Cell, RefCell};
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixDatagram;
use std::ptr;
use std::sync::mpsc::{self, Receiver, Sender, TryRecvError};
use std::thread::JoinHandle;
use std::time::Duration;

use libc::{in_addr, in6_addr, pollfd};
use slirp::ffi::{
    Slirp, SlirpCb, SlirpConfig, slirp_cleanup, slirp_handle_timer, slirp_input, slirp_new,
    slirp_pollfds_fill, slirp_pollfds_poll,
};
use taut::Stack;
use taut::device::{Frames, FramesOptions};
use taut_testbed::{PATIENCE, eventually, now};

pub(crate) const HOST: &str = "10.0.2.2";
pub(crate) const GUEST: &str = "10.0.2.15";

pub(crate) fn v4(text: &str) -> in_addr {
    in_addr { s_addr: text.parse::<Ipv4Addr>().unwrap().to_bits().to_be() }
}

pub(crate) fn v6(text: &str) -> in6_addr {
    in6_addr { s6_addr: text.parse::<std::net::Ipv6Addr>().unwrap().octets() }
}

pub(crate) fn at(address: &str, port: u16) -> SocketAddr {
    SocketAddr::new(address.parse().unwrap(), port)
}

/// A text that is never freed.
pub(crate) fn text(text: &str) -> *const c_char {
    CString::new(text).unwrap().into_raw()
}

/// QEMU's configuration, of version 4.
pub(crate) fn config() -> SlirpConfig {
    SlirpConfig {
        version: 4,
        restricted: 0,
        in_enabled: true,
        vnetwork: v4("10.0.2.0"),
        vnetmask: v4("255.255.255.0"),
        vhost: v4(HOST),
        in6_enabled: true,
        vprefix_addr6: v6("fec0::"),
        vprefix_len: 64,
        vhost6: v6("fec0::2"),
        vhostname: ptr::null(),
        tftp_server_name: ptr::null(),
        tftp_path: ptr::null(),
        bootfile: ptr::null(),
        vdhcp_start: v4(GUEST),
        vnameserver: v4("10.0.2.3"),
        vnameserver6: v6("fec0::3"),
        vdnssearch: ptr::null(),
        vdomainname: ptr::null(),
        if_mtu: 0,
        if_mru: 0,
        disable_host_loopback: false,
        enable_emu: false,
        outbound_addr: ptr::null(),
        outbound_addr6: ptr::null(),
        disable_dns: false,
        disable_dhcp: false,
    }
}

/// The state behind a caller's callbacks.
pub(crate) struct State {
    began: std::time::Instant,
    /// Frames go there, or are kept.
    socket: Option<UnixDatagram>,
    pub(crate) frames: RefCell<Vec<Vec<u8>>>,
    pub(crate) errors: RefCell<Vec<String>>,
    timer_ms: Cell<i64>,
    fds: RefCell<Vec<pollfd>>,
    /// Time that does not pass by itself.
    pub(crate) ahead_ns: Cell<i64>,
}

impl State {
    pub(crate) fn new(socket: Option<UnixDatagram>) -> Box<Self> {
        Box::new(Self {
            began: now(),
            socket,
            frames: RefCell::default(),
            errors: RefCell::default(),
            timer_ms: Cell::new(i64::MAX),
            fds: RefCell::default(),
            ahead_ns: Cell::new(1),
        })
    }

    fn now_ns(&self) -> i64 {
        self.ahead_ns.get() + self.began.elapsed().as_nanos() as i64
    }

    unsafe fn of<'a>(opaque: *mut c_void) -> &'a Self {
        unsafe { &*opaque.cast::<Self>() }
    }
}

unsafe extern "C" fn send_packet(bytes: *const c_void, len: usize, opaque: *mut c_void) -> isize {
    let state = unsafe { State::of(opaque) };
    let frame = unsafe { std::slice::from_raw_parts(bytes.cast::<u8>(), len) };
    match &state.socket {
        // A reset that found no room would not come again.
        Some(socket) => {
            let is_full = |error: &std::io::Error| error.kind() == std::io::ErrorKind::WouldBlock;
            while socket.send(frame).is_err_and(|error| is_full(&error)) {
                std::thread::yield_now();
            }
        }
        None => state.frames.borrow_mut().push(frame.to_vec()),
    }
    len as isize
}

unsafe extern "C" fn guest_error(message: *const c_char, opaque: *mut c_void) {
    let message = unsafe { CStr::from_ptr(message) }.to_string_lossy().into_owned();
    unsafe { State::of(opaque) }.errors.borrow_mut().push(message);
}

unsafe extern "C" fn clock_get_ns(opaque: *mut c_void) -> i64 {
    unsafe { State::of(opaque) }.now_ns()
}

unsafe extern "C" fn timer_new_opaque(_: c_int, _: *mut c_void, opaque: *mut c_void) -> *mut c_void {
    opaque
}

unsafe extern "C" fn timer_free(timer: *mut c_void, _: *mut c_void) {
    unsafe { State::of(timer) }.timer_ms.set(i64::MAX);
}

unsafe extern "C" fn timer_mod(timer: *mut c_void, at_ms: i64, _: *mut c_void) {
    unsafe { State::of(timer) }.timer_ms.set(at_ms);
}

unsafe extern "C" fn add_poll(fd: c_int, events: c_int, opaque: *mut c_void) -> c_int {
    let mut fds = unsafe { State::of(opaque) }.fds.borrow_mut();
    let map = [(1, libc::POLLIN), (2, libc::POLLOUT), (4, libc::POLLPRI)];
    let events = map.iter().filter(|(bit, _)| events & bit != 0).fold(0, |all, (_, bit)| all | bit);
    fds.push(pollfd { fd, events, revents: 0 });
    fds.len() as c_int - 1
}

unsafe extern "C" fn get_revents(place: c_int, opaque: *mut c_void) -> c_int {
    let seen = unsafe { State::of(opaque) }.fds.borrow()[place as usize].revents;
    let map =
        [(1, libc::POLLIN), (2, libc::POLLOUT), (4, libc::POLLPRI), (8, libc::POLLERR), (16, libc::POLLHUP)];
    map.iter().filter(|(_, bit)| seen & bit != 0).fold(0, |all, (bit, _)| all | bit)
}

pub(crate) const fn callbacks() -> SlirpCb {
    SlirpCb {
        send_packet: Some(send_packet),
        guest_error: Some(guest_error),
        clock_get_ns: Some(clock_get_ns),
        timer_new: None,
        timer_free: Some(timer_free),
        timer_mod: Some(timer_mod),
        register_poll_fd: None,
        unregister_poll_fd: None,
        notify: None,
        init_completed: None,
        timer_new_opaque: Some(timer_new_opaque),
    }
}

/// An instance without a loop: the test calls it.
pub(crate) struct Bare {
    pub(crate) slirp: *mut Slirp,
    pub(crate) state: Box<State>,
}

impl Bare {
    pub(crate) fn new(config: &SlirpConfig) -> Self {
        let state = State::new(None);
        let opaque = ptr::from_ref(&*state).cast_mut().cast();
        let slirp = unsafe { slirp_new(config, &callbacks(), opaque) };
        Self { slirp, state }
    }

    /// The library's answers to a frame.
    pub(crate) fn input(&self, frame: &[u8]) -> Vec<Vec<u8>> {
        unsafe { slirp_input(self.slirp, frame.as_ptr(), frame.len() as c_int) };
        self.state.frames.take()
    }

    /// One turn of a caller's loop, which waits for so long at most. Returns for how long it would have
    /// waited.
    pub(crate) fn turn(&self, most: Duration) -> Duration {
        turn(self.slirp, &self.state, &[], most).1
    }
}

impl Drop for Bare {
    fn drop(&mut self) {
        unsafe { slirp_cleanup(self.slirp) };
    }
}

/// One turn of a loop: which of `own` can be read, and how long the library would have waited.
fn turn(slirp: *mut Slirp, state: &State, own: &[c_int], most: Duration) -> (Vec<bool>, Duration) {
    let opaque = ptr::from_ref(state).cast_mut().cast::<c_void>();
    state.fds.replace(own.iter().map(|fd| pollfd { fd: *fd, events: libc::POLLIN, revents: 0 }).collect());
    let mut timeout = u32::MAX;
    unsafe { slirp_pollfds_fill(slirp, &raw mut timeout, Some(add_poll), opaque) };
    let until_timer = state.timer_ms.get().saturating_sub(state.now_ns() / 1_000_000).max(0);
    let wait = i64::from(timeout).min(until_timer).min(most.as_millis() as i64);
    let mut fds = state.fds.take();
    let count = unsafe { libc::poll(fds.as_mut_ptr(), fds.len() as libc::nfds_t, wait as c_int) };
    let seen = fds[..own.len()].iter().map(|one| one.revents != 0).collect();
    state.fds.replace(fds);
    unsafe { slirp_pollfds_poll(slirp, c_int::from(count < 0), Some(get_revents), opaque) };
    if state.timer_ms.get() <= state.now_ns() / 1_000_000 {
        state.timer_ms.set(i64::MAX);
        unsafe { slirp_handle_timer(slirp, 0, ptr::null_mut()) };
    }
    (seen, Duration::from_millis(timeout.into()))
}

/// The instance, and how to make another one.
struct Live<'a> {
    slirp: *mut Slirp,
    config: &'a SlirpConfig,
    state: &'a State,
}

impl<'a> Live<'a> {
    fn new(config: &'a SlirpConfig, state: &'a State) -> Self {
        let opaque = ptr::from_ref(state).cast_mut().cast();
        let slirp = unsafe { slirp_new(config, &callbacks(), opaque) };
        assert!(!slirp.is_null(), "{:?}", state.errors.borrow());
        Self { slirp, config, state }
    }
}

impl Drop for Live<'_> {
    fn drop(&mut self) {
        unsafe { slirp_cleanup(self.slirp) };
    }
}

type Command = Box<dyn FnOnce(&mut Live<'_>) + Send>;

/// The caller's thread.
pub(crate) struct Caller {
    commands: Option<Sender<Command>>,
    wake: UnixDatagram,
    thread: Option<JoinHandle<()>>,
}

/// A configuration may point at texts, which are never freed.
struct Sent(SlirpConfig);

unsafe impl Send for Sent {}

impl Caller {
    fn start(config: SlirpConfig, socket: UnixDatagram) -> Self {
        let (commands, received) = mpsc::channel();
        let (wake, woken) = UnixDatagram::pair().unwrap();
        let config = Sent(config);
        let thread = std::thread::spawn(move || {
            let config = config;
            socket.set_nonblocking(true).unwrap();
            let state = State::new(Some(socket.try_clone().unwrap()));
            serve(&config.0, &state, &socket, &woken, &received);
        });
        Self { commands: Some(commands), wake, thread: Some(thread) }
    }

    /// Calls the library on its thread.
    pub(crate) fn call<R: Send + 'static>(&self, call: impl FnOnce(*mut Slirp) -> R + Send + 'static) -> R {
        let (to, from) = mpsc::channel();
        self.command(Box::new(move |live| to.send(call(live.slirp)).unwrap()));
        from.recv_timeout(PATIENCE).unwrap()
    }

    /// Another instance has the guest from now on. `call` gets the old one and the new one.
    pub(crate) fn replace<R: Send + 'static>(
        &self,
        call: impl FnOnce(*mut Slirp, *mut Slirp) -> R + Send + 'static,
    ) -> R {
        let (to, from) = mpsc::channel();
        self.command(Box::new(move |live| {
            let new = Live::new(live.config, live.state);
            to.send(call(live.slirp, new.slirp)).unwrap();
            *live = new;
        }));
        from.recv_timeout(PATIENCE).unwrap()
    }

    fn command(&self, command: Command) {
        self.commands.as_ref().unwrap().send(command).unwrap();
        self.wake.send(&[0]).unwrap();
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        self.commands.take();
        _ = self.wake.send(&[0]);
        let ended = self.thread.take().map(JoinHandle::join);
        if !std::thread::panicking() {
            ended.unwrap().unwrap();
        }
    }
}

fn serve(
    config: &SlirpConfig,
    state: &State,
    socket: &UnixDatagram,
    woken: &UnixDatagram,
    commands: &Receiver<Command>,
) {
    let mut live = Live::new(config, state);
    let own = [socket.as_raw_fd(), woken.as_raw_fd()];
    let mut frame = vec![0; 70_000];
    loop {
        let (seen, _) = turn(live.slirp, state, &own, Duration::from_secs(1));
        if seen[0] {
            for _ in 0..64 {
                let Ok(len) = socket.recv(&mut frame) else { break };
                unsafe { slirp_input(live.slirp, frame.as_ptr(), len as c_int) };
            }
        }
        if seen[1] {
            woken.recv(&mut [0]).unwrap();
        }
        loop {
            match commands.try_recv() {
                Ok(command) => command(&mut live),
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => return,
            }
        }
    }
}

/// A caller and its guest.
pub(crate) struct World {
    pub(crate) guest: Stack,
    pub(crate) caller: Caller,
}

impl World {
    /// A guest that has its address of IPv4.
    pub(crate) fn new(config: SlirpConfig) -> Self {
        let world = Self::unconfigured(config);
        let own: IpAddr = GUEST.parse().unwrap();
        assert_eq!(world.guest.wait_for_address(Some(own), PATIENCE), Some(own));
        world
    }

    /// A guest that has none yet.
    pub(crate) fn unconfigured(config: SlirpConfig) -> Self {
        let (inside, outside) = UnixDatagram::pair().unwrap();
        // The lease may shorten it.
        let mtu = config.if_mtu.max(1_500) as u16;
        let caller = Caller::start(config, outside);
        let options = FramesOptions { dhcp: true, slaac: true, mtu, ..FramesOptions::default() };
        let frames = Frames::datagrams(inside, &[], &options).unwrap();
        Self { guest: Stack::builder().device(frames).build().unwrap(), caller }
    }

    /// Waits for the guest's address of IPv6.
    pub(crate) fn wait_for_v6(&self) {
        let is_global = |own: IpAddr| matches!(own, IpAddr::V6(own) if own.segments()[0] == 0xfec0);
        eventually("an address of IPv6", || self.guest.networks().iter().any(|own| is_global(own.address)));
    }
}
