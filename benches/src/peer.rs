//! Plain blocking kernel sockets. They are every stack's peer, and both ends of the kernel's own row.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::net::PORT;
use crate::probe::{Probe, histogram};

/// How much an application hands over at once, for every stack alike.
pub const CHUNK: usize = 128 << 10;
/// Connections under way at once in the connection-rate measurement.
pub const BATCH: usize = 32;

/// How long a call blocks before it looks whether it should stop.
const TICK: Duration = Duration::from_millis(200);

fn interrupted(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

/// Whether the error only says that the other side was stopped first.
fn over(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe | ErrorKind::ConnectionAborted)
}

fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_read_timeout(Some(TICK))?;
    stream.set_write_timeout(Some(TICK))
}

/// Sets the congestion control that taut uses by default, whatever the machine's default is: one that paces (bbr)
/// is slower over a link like this, and costs more.
fn use_cubic(fd: i32) -> Result<()> {
    let name = "cubic";
    // SAFETY: a name and its length.
    let done = unsafe {
        libc::setsockopt(fd, libc::IPPROTO_TCP, libc::TCP_CONGESTION, name.as_ptr().cast(), name.len() as u32)
    };
    if done != 0 {
        return Err(io::Error::last_os_error()).context("TCP_CONGESTION cubic");
    }
    Ok(())
}

/// Listens on [`PORT`] of all addresses with a long backlog.
pub fn listen() -> Result<TcpListener> {
    // std's backlog of 128 is enough for the batch, but not for thousands of idle connections at once.
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, PORT)).context("bind")?;
    use_cubic(listener.as_raw_fd())?;
    // SAFETY: system calls on a socket that lives.
    unsafe {
        libc::listen(listener.as_raw_fd(), 4096);
        let tick = libc::timeval { tv_sec: 0, tv_usec: TICK.as_micros() as libc::suseconds_t };
        libc::setsockopt(
            listener.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_RCVTIMEO,
            (&raw const tick).cast(),
            size_of_val(&tick) as libc::socklen_t,
        );
    }
    Ok(listener)
}

/// Accepts one connection; `None` when asked to stop first.
fn accept(listener: &TcpListener, probe: &Probe) -> Result<Option<TcpStream>> {
    while !probe.stopped() {
        match listener.accept() {
            Ok((stream, _)) => {
                prepare(&stream)?;
                return Ok(Some(stream));
            }
            Err(error) if interrupted(&error) => {}
            Err(error) => return Err(error).context("accept"),
        }
    }
    Ok(None)
}

/// Connects, trying again while the other side is not up yet.
pub fn connect(to: Ipv4Addr) -> Result<TcpStream> {
    let begun = Instant::now();
    loop {
        let connected = start_connecting(to, Some(use_cubic)).and_then(|stream| {
            wait_connected(&stream)?;
            prepare(&stream)?;
            Ok(stream)
        });
        match connected {
            Err(_) if begun.elapsed() < Duration::from_secs(3) => {
                std::thread::sleep(Duration::from_millis(10))
            }
            settled => return settled,
        }
    }
}

/// Reads until told to stop; counts the bytes.
pub fn drain(mut stream: impl Read, probe: &Probe) -> Result<()> {
    let mut buffer = vec![0; CHUNK];
    while !probe.stopped() {
        match stream.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => probe.add(count as u64),
            Err(error) if interrupted(&error) => {}
            Err(error) if over(&error) => break,
            Err(error) => return Err(error).context("read"),
        }
    }
    Ok(())
}

/// Writes until told to stop.
pub fn pour(mut stream: impl Write, probe: &Probe) -> Result<()> {
    let buffer = vec![0x5a; CHUNK];
    while !probe.stopped() {
        match stream.write(&buffer) {
            Ok(_) => {}
            Err(error) if interrupted(&error) => {}
            Err(error) if over(&error) => break,
            Err(error) => return Err(error).context("write"),
        }
    }
    Ok(())
}

/// Sends back each byte that comes.
pub fn echo(mut stream: impl Read + Write, probe: &Probe) -> Result<()> {
    let mut byte = [0];
    while !probe.stopped() {
        match stream.read(&mut byte) {
            Ok(0) => break,
            Ok(_) => {}
            Err(error) if interrupted(&error) => continue,
            Err(error) if over(&error) => break,
            Err(error) => return Err(error).context("read"),
        }
        match stream.write_all(&byte) {
            Ok(()) => {}
            Err(error) if over(&error) => break,
            Err(error) => return Err(error).context("write"),
        }
    }
    Ok(())
}

/// Sends a byte, waits for it to come back, notes how long that took.
pub fn ping(mut stream: impl Read + Write, probe: &Probe) -> Result<()> {
    let mut taken_ns = histogram();
    let mut byte = [0];
    while !probe.stopped() {
        let begun = Instant::now();
        stream.write_all(&byte).context("write")?;
        let answered = loop {
            match stream.read_exact(&mut byte) {
                // On a busy machine the peer may not have run for as long as a read waits.
                Err(error) if interrupted(&error) && !probe.stopped() => {}
                settled => break settled,
            }
        };
        match answered {
            Ok(()) => {}
            // The peer may have stopped before it answered.
            Err(_) if probe.stopped() => break,
            Err(error) => return Err(error).context("ping"),
        }
        if probe.measuring() {
            taken_ns.saturating_record(begun.elapsed().as_nanos() as u64);
        }
        probe.add(1);
    }
    probe.keep_latencies(taken_ns);
    Ok(())
}

/// Serves connections of one byte and its answer, one after the other.
pub fn serve(listener: &TcpListener, probe: &Probe) -> Result<()> {
    let mut byte = [0];
    while let Some(mut stream) = accept(listener, probe)? {
        match stream.read(&mut byte).and_then(|count| stream.write_all(&byte[..count])) {
            Ok(()) => {}
            Err(error) if over(&error) || interrupted(&error) => {}
            Err(error) => return Err(error).context("serve"),
        }
    }
    Ok(())
}

/// Opens, uses and resets connections, [`BATCH`] at a time; counts those that were answered.
pub fn dial(to: Ipv4Addr, probe: &Probe) -> Result<()> {
    let mut batch = Vec::with_capacity(BATCH);
    let mut byte = [0];
    while !probe.stopped() {
        for _ in 0..BATCH {
            batch.push(start_connecting(to, None)?);
        }
        for stream in &mut batch {
            wait_connected(stream)?;
            stream.write_all(&byte).context("write the request")?;
        }
        for stream in &mut batch {
            stream.read_exact(&mut byte).context("read the answer")?;
            probe.add(1);
        }
        // With SO_LINGER at zero each close is a RST, and no side keeps a TIME-WAIT.
        batch.clear();
    }
    Ok(())
}

/// `prepare` may set options first: some of what a congestion control does at the start cannot be undone later.
fn start_connecting(to: Ipv4Addr, prepare: Option<fn(i32) -> Result<()>>) -> Result<TcpStream> {
    // SAFETY: system calls on a descriptor that is owned from the first line on; all pointers are to live values
    // of the size given.
    unsafe {
        let fd = libc::socket(libc::AF_INET, libc::SOCK_STREAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC, 0);
        if fd < 0 {
            return Err(io::Error::last_os_error()).context("socket");
        }
        let fd = OwnedFd::from_raw_fd(fd);
        if let Some(prepare) = prepare {
            prepare(fd.as_raw_fd())?;
        }
        let linger = libc::linger { l_onoff: 1, l_linger: 0 };
        libc::setsockopt(
            fd.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_LINGER,
            (&raw const linger).cast(),
            size_of_val(&linger) as libc::socklen_t,
        );
        let at = libc::sockaddr_in {
            sin_family: libc::AF_INET as libc::sa_family_t,
            sin_port: PORT.to_be(),
            sin_addr: libc::in_addr { s_addr: u32::from(to).to_be() },
            sin_zero: [0; 8],
        };
        if libc::connect(fd.as_raw_fd(), (&raw const at).cast(), size_of_val(&at) as libc::socklen_t) != 0 {
            let error = io::Error::last_os_error();
            if error.raw_os_error() != Some(libc::EINPROGRESS) {
                return Err(error).context("connect");
            }
        }
        Ok(TcpStream::from(fd))
    }
}

/// Waits for a connection begun by [`start_connecting`], and makes its socket a blocking one.
fn wait_connected(stream: &TcpStream) -> Result<()> {
    let mut waited = libc::pollfd { fd: stream.as_raw_fd(), events: libc::POLLOUT, revents: 0 };
    // SAFETY: one pollfd.
    if unsafe { libc::poll(&mut waited, 1, 3_000) } == 0 {
        bail!("a connection was not established within 3 s");
    }
    if let Some(error) = stream.take_error()? {
        return Err(error).context("connect");
    }
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(Duration::from_secs(3)))?;
    Ok(())
}

/// Opens connections until `wanted()` are open, and holds them until told to stop.
pub fn hold(to: Ipv4Addr, probe: &Probe, wanted: impl Fn() -> usize) -> Result<()> {
    let mut open: Vec<TcpStream> = Vec::with_capacity(16 << 10);
    while !probe.stopped() {
        let missing = wanted().saturating_sub(open.len()).min(BATCH);
        if missing == 0 {
            std::thread::sleep(Duration::from_millis(1));
            continue;
        }
        let begun = open.len();
        for _ in 0..missing {
            open.push(start_connecting(to, None)?);
        }
        for stream in &open[begun..] {
            wait_connected(stream)?;
            probe.add(1);
        }
    }
    Ok(())
}

/// Accepts connections and keeps them until told to stop.
pub fn accept_and_hold(listener: &TcpListener, probe: &Probe) -> Result<()> {
    let mut held = Vec::with_capacity(16 << 10);
    while let Some(stream) = accept(listener, probe)? {
        held.push(stream);
    }
    Ok(())
}

/// What the kernel peer does in a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Accepts one connection and reads it.
    Drain,
    /// Accepts one connection and writes to it.
    Pour,
    /// Accepts one connection and answers each byte.
    Echo,
    /// Accepts connections of one request each.
    Serve,
    /// Makes connections of one request each.
    Dial,
}

/// Runs the peer in its own thread; returns when it listens, if its role is to.
pub fn spawn(
    ns: &crate::net::NetNs,
    role: Role,
    to: Ipv4Addr,
    core: Option<usize>,
    probe: &Arc<Probe>,
) -> Result<std::thread::JoinHandle<()>> {
    let probe = Arc::clone(probe);
    let (listening, listens) = std::sync::mpsc::channel();
    let ns = ns.try_clone()?;
    let thread = std::thread::Builder::new().name("peer".into()).spawn(move || {
        probe.not_the_stack();
        let run = || -> Result<()> {
            ns.enter()?;
            if let Some(core) = core {
                crate::cpu::pin(core)?;
            }
            if role == Role::Dial {
                let _ = listening.send(());
                return dial(to, &probe);
            }
            let listener = listen()?;
            let _ = listening.send(());
            if role == Role::Serve {
                return serve(&listener, &probe);
            }
            let Some(stream) = accept(&listener, &probe)? else { return Ok(()) };
            stream.set_nodelay(role == Role::Echo)?;
            match role {
                Role::Drain => drain(&stream, &probe),
                Role::Pour => pour(&stream, &probe),
                _ => echo(&stream, &probe),
            }
        };
        // What breaks after the stop is the other side going away.
        if let Err(error) = run()
            && !probe.stopped()
        {
            probe.fail(error.context("kernel peer"));
        }
    })?;
    // An error instead of the sign is in the probe already.
    let _ = listens.recv();
    Ok(thread)
}
