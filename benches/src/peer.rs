//! Plain blocking kernel sockets. They are every stack's peer, and both ends of the kernel's own row.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use taut_core::ConnOptions;
use taut_testbed::{Kernel, socket};

use crate::net::{self, PORT};
use crate::probe::{Probe, histogram};

/// How much an application writes or reads in one call, the same for every stack.
pub const CHUNK: usize = 128 << 10;
/// Connections in progress at a time in the connection-rate measurement.
pub const BATCH: usize = 32;

/// How long a call blocks before it checks whether to stop.
const TICK: Duration = Duration::from_millis(200);

pub fn interrupted(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

/// Whether the error only says that the other side was stopped first.
pub fn over(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe | ErrorKind::ConnectionAborted)
}

fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_read_timeout(Some(TICK))?;
    stream.set_write_timeout(Some(TICK))
}

/// The congestion control that taut uses by default, whatever the machine's default is: one that paces (bbr)
/// is slower over a link like this, and costs more.
pub const CONGESTION: &str = "cubic";

/// Listens on [`PORT`] of all addresses.
pub fn listen() -> Result<TcpListener> {
    let at = (Ipv4Addr::UNSPECIFIED, PORT).into();
    let listener = taut_testbed::listen(at, Some(CONGESTION)).context("listen")?;
    set_socket_timeout(&listener, Timeout::Recv, Some(TICK))?;
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

/// Connects, and tries again while the other side is not up yet.
pub fn connect(to: Ipv4Addr) -> Result<TcpStream> {
    let begun = Instant::now();
    loop {
        let connected = start_connecting(to, Some(CONGESTION)).and_then(|stream| {
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
pub fn drain(stream: impl Read, probe: &Probe) -> Result<()> {
    drain_counting(stream, probe, |_| {})
}

/// [`drain`] that also tells `count` how many bytes each read returned.
pub fn drain_counting(mut stream: impl Read, probe: &Probe, count: impl Fn(u64)) -> Result<()> {
    let mut buffer = vec![0; CHUNK];
    while !probe.stopped() {
        match stream.read(&mut buffer) {
            Ok(0) => break,
            Ok(bytes) => {
                probe.add(bytes as u64);
                count(bytes as u64);
            }
            Err(error) if interrupted(&error) => {}
            Err(error) if over(&error) => break,
            Err(error) => return Err(error).context("read"),
        }
    }
    Ok(())
}

/// Writes until told to stop, [`CHUNK`] bytes at a time.
pub fn pour(stream: impl Write, probe: &Probe) -> Result<()> {
    pour_chunks(stream, probe, CHUNK)
}

/// Writes until told to stop, `chunk` bytes at a time.
pub fn pour_chunks(stream: impl Write, probe: &Probe, chunk: usize) -> Result<()> {
    pour_counting(stream, probe, chunk, |_| {})
}

/// [`pour_chunks`] that also tells `count` how many bytes each write took. A chunk that is taken in parts is
/// written to its end.
pub fn pour_counting(mut stream: impl Write, probe: &Probe, chunk: usize, count: impl Fn(u64)) -> Result<()> {
    let buffer = vec![0x5a; chunk];
    let mut written = 0;
    while !probe.stopped() {
        match stream.write(&buffer[written..]) {
            Ok(bytes) => {
                written = (written + bytes) % chunk;
                count(bytes as u64);
            }
            Err(error) if interrupted(&error) => {}
            Err(error) if over(&error) => break,
            Err(error) => return Err(error).context("write"),
        }
    }
    Ok(())
}

/// Counts what a stream takes.
struct Counting<'a, W>(W, &'a Probe);

impl<W: Write> Write for Counting<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.0.write(bytes)?;
        self.1.add(count as u64);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
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
        match stream.write_all(&byte) {
            Ok(()) => {}
            Err(_) if probe.stopped() => break,
            Err(error) => return Err(error).context("write"),
        }
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
            batch.push(start_connecting(to, Some(CONGESTION))?);
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

/// Begins a connection, with the machine's congestion control if none is given.
fn start_connecting(to: Ipv4Addr, congestion: Option<&str>) -> Result<TcpStream> {
    let to = (to, PORT).into();
    let socket = socket(to, &ConnOptions::default(), congestion).context("socket")?;
    socket.set_nonblocking(true)?;
    socket.set_linger(Some(Duration::ZERO))?;
    match socket.connect(&to.into()) {
        Err(error) if error.raw_os_error() != Some(Errno::INPROGRESS.raw_os_error()) => {
            Err(error).context("connect")
        }
        _ => Ok(socket.into()),
    }
}

/// Waits for a connection begun by [`start_connecting`], and makes its socket a blocking one.
fn wait_connected(stream: &TcpStream) -> Result<()> {
    if !net::wait(stream, PollFlags::OUT, Duration::from_secs(3)) {
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
    /// The same, and counts the bytes: for a receiver that cannot, since it is another process.
    PourCounting,
    /// Accepts one connection and answers each byte.
    Echo,
    /// Accepts connections of one request each.
    Serve,
    /// Makes connections of one request each.
    Dial,
}

/// Runs the peer in its own thread. If its role is to listen, returns when it does.
pub fn spawn(
    kernel: &Kernel,
    role: Role,
    to: Ipv4Addr,
    core: Option<usize>,
    probe: &Arc<Probe>,
) -> Result<JoinHandle<()>> {
    let probe = Arc::clone(probe);
    let (listening, listens) = std::sync::mpsc::channel();
    let thread = kernel.thread("peer", move || {
        probe.not_the_stack();
        let run = || -> Result<()> {
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
                Role::PourCounting => pour(Counting(&stream, &probe), &probe),
                _ => echo(&stream, &probe),
            }
        };
        // An error after the stop only means that the other side has gone away.
        if let Err(error) = run()
            && !probe.stopped()
        {
            probe.fail(error.context("kernel peer"));
        }
    })?;
    // If the peer failed instead of listening, the error is in the probe already.
    let _ = listens.recv();
    Ok(thread)
}
