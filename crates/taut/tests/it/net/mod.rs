//! A stack on a TUN interface in a private namespace, with the kernel's sockets on the other side. Vanishes
//! when dropped. Without root or `/dev/net/tun` the tests fail.
#![allow(dead_code, unreachable_pub, reason = "each test uses a part")]

pub mod stranger;

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread::{self, JoinHandle};

use taut::{Stack, StackBuilder};
use taut_testbed::{Digest, Kernel, Meter, Noise, PATIENCE, listen};

pub const STACK: [&str; 2] = ["10.7.0.2", "[fd07::2]"];
pub const KERNEL: [&str; 2] = ["10.7.0.1", "[fd07::1]"];

/// Bytes of a write.
pub const PART: usize = 100_000;

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
        let stream = self.kernel.enter(|| TcpStream::connect_timeout(&to, PATIENCE));
        let stream = stream.unwrap().unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
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
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        serve(stream)
    })
}

/// Sends everything back until the end of the stream, then ends.
pub fn echo(mut stream: TcpStream) {
    io::copy(&mut stream.try_clone().unwrap(), &mut stream).unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
}

/// Writes `total` bytes of noise; returns their digest.
pub fn send_noise(mut into: impl Write, total: usize, seed: u64) -> Digest {
    let (mut noise, mut meter) = (Noise::new(seed), Meter::default());
    for at in (0..total).step_by(PART) {
        let part = noise.bytes(PART.min(total - at));
        meter.update(&part);
        into.write_all(&part).unwrap();
    }
    meter.finish()
}

/// Reads to the end; returns the count and the digest.
pub fn digest_of(from: impl Read) -> (usize, Digest) {
    let meter = Meter::of(from).unwrap();
    (meter.bytes() as usize, meter.finish())
}
