//! A stack on a TUN interface in a private namespace, with the kernel's sockets on the other side. Vanishes when
//! dropped. Without root or `/dev/net/tun` the tests fail.
#![allow(dead_code, unreachable_pub, reason = "each test uses a part")]

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use sha2::{Digest, Sha256};
use taut::{Stack, StackBuilder};
use taut_testbed::{Kernel, listen};

pub const STACK: [&str; 2] = ["10.7.0.2", "[fd07::2]"];
pub const KERNEL: [&str; 2] = ["10.7.0.1", "[fd07::1]"];

pub struct Net {
    pub stack: Stack,
    pub kernel: Kernel,
}

pub fn builder() -> StackBuilder {
    Stack::builder()
        .tun("taut0")
        .address("10.7.0.2/24")
        .address("fd07::2/64")
        .host_address("10.7.0.1/24")
        .host_address("fd07::1/64")
}

impl Net {
    pub fn new() -> Self {
        Self::with(StackBuilder::build)
    }

    pub fn with(build: impl FnOnce(StackBuilder) -> io::Result<Stack> + Send) -> Self {
        let kernel = Kernel::new().expect("a network namespace, which needs root");
        let stack = kernel.enter(|| build(builder())).unwrap().expect("a stack over /dev/net/tun");
        Self { stack, kernel }
    }

    /// A listener on the kernel's side, at a free port.
    pub fn listener(&self, family: usize) -> (TcpListener, SocketAddr) {
        let address = format!("{}:0", KERNEL[family]).parse().unwrap();
        let listener = self.kernel.enter(|| listen(address, None)).unwrap().unwrap();
        let address = listener.local_addr().unwrap();
        (listener, address)
    }

    /// A connection from the kernel.
    pub fn connect(&self, to: SocketAddr) -> TcpStream {
        let stream = self.kernel.enter(|| TcpStream::connect_timeout(&to, Duration::from_secs(10)));
        let stream = stream.unwrap().unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        stream
    }
}

/// Serves one connection on the kernel's side on a thread.
pub fn serve<R: Send + 'static>(
    listener: TcpListener,
    serve: impl FnOnce(TcpStream) -> R + Send + 'static,
) -> JoinHandle<R> {
    thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        serve(stream)
    })
}

/// Sends everything back until the end of the stream, then ends.
pub fn echo(mut stream: TcpStream) {
    io::copy(&mut stream.try_clone().unwrap(), &mut stream).unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
}

/// Bytes without a pattern that a misplaced segment would fit.
pub struct Noise(u64);

impl Noise {
    pub fn new(seed: u64) -> Self {
        Self(seed | 1)
    }

    pub fn fill(&mut self, into: &mut [u8]) {
        for chunk in into.chunks_mut(8) {
            // xorshift64
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            chunk.copy_from_slice(&self.0.to_le_bytes()[..chunk.len()]);
        }
    }
}

/// Writes `total` bytes of noise; returns their digest.
pub fn send_noise(mut into: impl Write, total: usize, seed: u64) -> [u8; 32] {
    let (mut noise, mut digest) = (Noise::new(seed), Sha256::new());
    let mut buffer = vec![0; 100_000];
    let mut left = total;
    while left > 0 {
        let part = &mut buffer[..left.min(100_000)];
        noise.fill(part);
        digest.update(&*part);
        into.write_all(part).unwrap();
        left -= part.len();
    }
    digest.finalize().into()
}

/// Reads to the end; returns the count and the digest.
pub fn digest_of(mut from: impl Read) -> (usize, [u8; 32]) {
    let (mut total, mut digest) = (0, Sha256::new());
    let mut buffer = vec![0; 256 * 1024];
    loop {
        match from.read(&mut buffer).unwrap() {
            0 => return (total, digest.finalize().into()),
            count => {
                digest.update(&buffer[..count]);
                total += count;
            }
        }
    }
}
