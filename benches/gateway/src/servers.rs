//! The servers at the far end.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

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
/// Nobody listens.
pub const CLOSED: u16 = 7009;

pub const AFTER_END: usize = 1 << 20;
/// Threads that answer at [`ONCE`].
const THREADS: usize = 16;

pub fn at(port: u16) -> SocketAddr {
    SocketAddr::from((SERVER, port))
}

pub struct Servers {
    held: Arc<Mutex<Vec<TcpStream>>>,
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
        Ok(Self { held })
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

fn each(listener: TcpListener, serve: impl Fn(TcpStream) + Clone + Send + 'static) {
    std::thread::spawn(move || {
        while let Ok((stream, _)) = listener.accept() {
            let serve = serve.clone();
            std::thread::spawn(move || serve(stream));
        }
    });
}
