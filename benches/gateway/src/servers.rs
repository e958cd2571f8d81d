//! The servers at the far end.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Result;
use taut_testbed::Kernel;

use crate::world::SERVER;

/// Answers each byte.
pub const ECHO: u16 = 7001;
/// Answers one byte, and waits for the end.
pub const ONCE: u16 = 7002;
/// Accepts and keeps.
pub const HOLD: u16 = 7003;
/// Reads to the end, and then writes [`AFTER_END`] bytes.
pub const AFTER: u16 = 7004;
/// Reads blocks of [`BLOCK`] bytes that begin with the time of their writing ([`now`]).
pub const STAMPED: u16 = 7005;
/// Reads a request, head and body, whose length is its first four bytes, and answers one byte.
pub const REQUEST: u16 = 7006;
/// Answers datagrams.
pub const DATAGRAMS: u16 = 7007;
/// Reads as fast as it can.
pub const SINK: u16 = 7010;
/// Writes as fast as it can.
pub const SOURCE: u16 = 7011;
/// Nobody listens.
pub const CLOSED: u16 = 7009;

pub const AFTER_END: usize = 1 << 20;
pub const BLOCK: usize = 4 << 10;
/// Threads that answer at [`ONCE`].
const THREADS: usize = 16;

pub fn at(port: u16) -> SocketAddr {
    SocketAddr::from((SERVER, port))
}

/// Microseconds since the first call: client and servers are threads of one process.
pub fn now() -> u64 {
    static BEGAN: OnceLock<Instant> = OnceLock::new();
    BEGAN.get_or_init(Instant::now).elapsed().as_micros() as u64
}

/// A block that was read whole: when, and how long after its writing began.
#[derive(Clone, Copy)]
pub struct Arrived {
    pub at: u64,
    pub after: u64,
}

/// How programs connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    Directly,
    /// By a proxy of their host.
    Socks,
    /// By the same port of their host.
    Forwarded,
}

static REACH: Mutex<Reach> = Mutex::new(Reach::Directly);
const PROXY: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 1_080);

pub fn reach(how: Reach) {
    *REACH.lock().unwrap_or_else(PoisonError::into_inner) = how;
}

/// Connects as the guest's programs do: by themselves, by SOCKS4, or by a forwarded port.
pub fn dial(port: u16, limit: Duration) -> std::io::Result<TcpStream> {
    let how = *REACH.lock().unwrap_or_else(PoisonError::into_inner);
    match how {
        Reach::Directly => return TcpStream::connect_timeout(&at(port), limit),
        Reach::Forwarded => {
            return TcpStream::connect_timeout(&(Ipv4Addr::LOCALHOST, port).into(), limit);
        }
        Reach::Socks => {}
    }
    let mut stream = TcpStream::connect_timeout(&PROXY, limit)?;
    stream.set_read_timeout(Some(limit))?;
    let mut request = vec![4, 1];
    request.extend_from_slice(&port.to_be_bytes());
    request.extend_from_slice(&SERVER);
    request.push(0);
    stream.write_all(&request)?;
    let mut answer = [0; 8];
    stream.read_exact(&mut answer)?;
    stream.set_read_timeout(None)?;
    if answer[1] == 90 { Ok(stream) } else { Err(std::io::ErrorKind::ConnectionRefused.into()) }
}

pub struct Servers {
    held: Arc<Mutex<Vec<TcpStream>>>,
    arrived: Arc<Mutex<Vec<Arrived>>>,
    sunk: Arc<AtomicU64>,
}

impl Servers {
    pub fn start(far: &Kernel) -> Result<Self> {
        let listen = |port| far.enter(|| TcpListener::bind((Ipv4Addr::from(SERVER), port)));
        let (echo, once, hold, after) = (listen(ECHO)??, listen(ONCE)??, listen(HOLD)??, listen(AFTER)??);
        each(echo, |mut stream| {
            _ = stream.set_nodelay(true);
            let mut byte = [0; 64];
            while let Ok(count) = stream.read(&mut byte)
                && count > 0
                && stream.write_all(&byte[..count]).is_ok()
            {}
        });
        let once = Arc::new(once);
        for _ in 0..THREADS {
            let once = Arc::clone(&once);
            std::thread::spawn(move || {
                while let Ok((mut stream, _)) = once.accept() {
                    let mut byte = [0; 64];
                    _ = stream.set_read_timeout(Some(Duration::from_secs(2)));
                    if stream.read(&mut byte).is_ok_and(|count| count > 0) {
                        _ = stream.write_all(&[1]);
                        _ = stream.read(&mut byte);
                    }
                }
            });
        }
        let held = Arc::<Mutex<Vec<TcpStream>>>::default();
        let keep = Arc::clone(&held);
        std::thread::spawn(move || {
            while let Ok((stream, _)) = hold.accept() {
                if let Ok(mut keep) = keep.lock() {
                    keep.push(stream);
                }
            }
        });
        each(after, |mut stream| {
            let mut bytes = Vec::new();
            if stream.read_to_end(&mut bytes).is_ok() {
                _ = stream.write_all(&vec![7; AFTER_END]);
            }
        });
        let arrived = Arc::<Mutex<Vec<Arrived>>>::default();
        let note = Arc::clone(&arrived);
        each(listen(STAMPED)??, move |stream| read_blocks(stream, &note));
        each(listen(REQUEST)??, |mut stream| {
            let mut request = vec![0; 1 << 17];
            let mut length = [0; 4];
            while stream.read_exact(&mut length).is_ok() {
                let rest = (u32::from_ne_bytes(length) as usize - length.len()).min(request.len());
                if stream.read_exact(&mut request[..rest]).is_err() || stream.write_all(&[1]).is_err() {
                    break;
                }
            }
        });
        let sunk = Arc::<AtomicU64>::default();
        let count = Arc::clone(&sunk);
        each(listen(SINK)??, move |mut stream| {
            let mut bytes = vec![0; 1 << 18];
            while let Ok(read @ 1..) = stream.read(&mut bytes) {
                count.fetch_add(read as u64, Ordering::Relaxed);
            }
        });
        each(listen(SOURCE)??, |mut stream| {
            let bytes = vec![7; 1 << 18];
            while stream.write_all(&bytes).is_ok() {}
        });
        let datagrams = far.enter(|| UdpSocket::bind((Ipv4Addr::from(SERVER), DATAGRAMS)))??;
        std::thread::spawn(move || {
            let mut message = [0; 2_048];
            while let Ok((length, from)) = datagrams.recv_from(&mut message) {
                _ = datagrams.send_to(&message[..length], from);
            }
        });
        Ok(Self { held, arrived, sunk })
    }

    /// Reads blocks of this connection, too.
    pub fn read_blocks(&self, stream: TcpStream) {
        let note = Arc::clone(&self.arrived);
        std::thread::spawn(move || read_blocks(stream, &note));
    }

    /// Bytes that have arrived at [`SINK`].
    pub fn sunk(&self) -> u64 {
        self.sunk.load(Ordering::Relaxed)
    }

    /// The blocks that have arrived since the last call.
    pub fn arrived(&self) -> Vec<Arrived> {
        self.arrived.lock().map(|mut arrived| std::mem::take(&mut *arrived)).unwrap_or_default()
    }

    pub fn held(&self) -> usize {
        self.held.lock().map_or(0, |held| held.len())
    }

    pub fn release(&self) {
        if let Ok(mut held) = self.held.lock() {
            held.clear();
        }
    }
}

fn read_blocks(mut stream: TcpStream, note: &Mutex<Vec<Arrived>>) {
    let mut block = [0; BLOCK];
    while stream.read_exact(&mut block).is_ok() {
        let (at, stamp) = (now(), block.first_chunk().map_or(0, |stamp| u64::from_ne_bytes(*stamp)));
        if let Ok(mut note) = note.lock() {
            note.push(Arrived { at, after: at.saturating_sub(stamp) });
        }
    }
}

fn each(listener: TcpListener, serve: impl Fn(TcpStream) + Clone + Send + 'static) {
    std::thread::spawn(move || {
        while let Ok((stream, _)) = listener.accept() {
            let serve = serve.clone();
            std::thread::spawn(move || serve(stream));
        }
    });
}
