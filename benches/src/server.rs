//! The kernel as a server of many small exchanges: one thread with one epoll set for any number of
//! connections, so that the peer costs the same whether the other side has a thread or a task for each.

use std::collections::HashMap;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;

use anyhow::{Context as _, Result};
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;

use crate::peer;
use crate::probe::Probe;

/// Events taken by one call.
const EVENTS: usize = 64;
/// How long it waits before it checks whether to stop.
const TICK: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
/// What the listener's events are marked with; other marks are descriptors.
const LISTENER: u64 = u64::MAX;

/// How each connection is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// Sends everything back until the client closes.
    Echo,
    /// Answers one request of a byte, and closes.
    Once,
}

/// Serves until told to stop. Several threads may call it with clones of one listener.
pub fn run(listener: &TcpListener, service: Service, probe: &Probe) -> Result<()> {
    listener.set_nonblocking(true)?;
    let set = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    // Exclusive: of several threads that wait, a connection wakes one.
    let flags = epoll::EventFlags::IN | epoll::EventFlags::EXCLUSIVE;
    epoll::add(&set, listener, epoll::EventData::new_u64(LISTENER), flags)?;
    let mut open = HashMap::new();
    let mut events = Vec::with_capacity(EVENTS);
    while !probe.stopped() {
        events.clear();
        match epoll::wait(&set, rustix::buffer::spare_capacity(&mut events), Some(&TICK)) {
            Err(Errno::INTR) => continue,
            waited => waited.context("epoll_wait")?,
        };
        for event in &events {
            match event.data.u64() {
                LISTENER => accept(listener, &set, &mut open)?,
                mark => {
                    let goes_on = open.get_mut(&mark).is_some_and(|stream| answer(stream, service));
                    if !goes_on {
                        // Closing takes it out of the set.
                        open.remove(&mark);
                    }
                }
            }
        }
    }
    Ok(())
}

fn accept(
    listener: &TcpListener,
    set: &impl std::os::fd::AsFd,
    open: &mut HashMap<u64, TcpStream>,
) -> Result<()> {
    loop {
        let stream = match listener.accept() {
            Ok((stream, _)) => stream,
            Err(error) if error.kind() == ErrorKind::ConnectionAborted => continue,
            Err(error) if peer::interrupted(&error) => return Ok(()),
            Err(error) => return Err(error).context("accept"),
        };
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        let mark = stream.as_raw_fd() as u64;
        epoll::add(set, &stream, epoll::EventData::new_u64(mark), epoll::EventFlags::IN)?;
        open.insert(mark, stream);
    }
}

/// Answers what has arrived; returns whether the connection goes on.
fn answer(stream: &mut TcpStream, service: Service) -> bool {
    let mut buffer = [0; 4096];
    match stream.read(&mut buffer) {
        Ok(0) => false,
        // A request is a byte, so there is always room for the answer.
        Ok(count) => stream.write_all(&buffer[..count]).is_ok() && service == Service::Echo,
        Err(error) => peer::interrupted(&error),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    /// A client that fails rather than hangs.
    fn connect(at: std::net::SocketAddr) -> TcpStream {
        let stream = TcpStream::connect(at).unwrap();
        stream.set_read_timeout(Some(std::time::Duration::from_secs(10))).unwrap();
        stream
    }

    fn with_server(service: Service, client: impl FnOnce(std::net::SocketAddr)) {
        let probe = Arc::new(Probe::new());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let thread = {
            let probe = Arc::clone(&probe);
            std::thread::spawn(move || run(&listener, service, &probe))
        };
        client(at);
        probe.stop();
        thread.join().unwrap().unwrap();
    }

    #[test]
    fn echoes_on_several_connections_at_a_time() {
        with_server(Service::Echo, |at| {
            let mut streams: Vec<_> = (0..3).map(|_| connect(at)).collect();
            for turn in 0..2_u8 {
                for (number, stream) in (0..).zip(&mut streams) {
                    stream.write_all(&[turn, number]).unwrap();
                }
                for (number, stream) in (0..).zip(&mut streams) {
                    let mut got = [9; 2];
                    stream.read_exact(&mut got).unwrap();
                    assert_eq!(got, [turn, number]);
                }
            }
        });
    }

    #[test]
    fn answers_once_and_closes() {
        with_server(Service::Once, |at| {
            for _ in 0..2 {
                let mut stream = connect(at);
                stream.write_all(&[7]).unwrap();
                let mut got = Vec::new();
                stream.read_to_end(&mut got).unwrap();
                assert_eq!(got, [7]);
            }
        });
    }
}
