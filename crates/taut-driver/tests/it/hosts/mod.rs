//! Two stacks over a [`Line`], each driven by a thread, for tests.
#![allow(dead_code, unreachable_pub, reason = "each test uses its part")]

pub(crate) use crate::line;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::thread;
use std::time::Duration;

use line::{Line, Rng};
use taut_core::{ConnId, ConnOptions, LinkCaps, ListenOptions, ListenerId, Stack, StackConfig};
use taut_driver::{Access, Clock, Device, DriverThread, Interest, Shard};

/// Longer than anything here takes on a machine that is not stuck.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
pub(crate) const NEAR: &str = "10.0.0.1";
pub(crate) const FAR: &str = "10.0.0.2:7";

/// Sets a flag when it is dropped, also when its test fails, so that threads beside the test end.
pub(crate) struct Raise<'a>(pub(crate) &'a AtomicBool);

impl Drop for Raise<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A stack that a thread drives.
pub(crate) struct Host {
    pub(crate) shard: Arc<Shard>,
    _thread: DriverThread,
}

impl Host {
    pub(crate) fn new(address: &str, device: Device, configure: impl FnOnce(&mut StackConfig)) -> Self {
        Self::driven(address, device, configure, DriverThread::spawn)
    }

    fn driven(
        address: &str,
        device: Device,
        configure: impl FnOnce(&mut StackConfig),
        drive: fn(Arc<Shard>, &str) -> io::Result<DriverThread>,
    ) -> Self {
        let config = StackConfig::default().with(|config| {
            config.addresses.push(address.parse().unwrap());
            configure(config);
        });
        let stack = Stack::new(Arc::new(config), device.caps, [address.len() as u8; 32]);
        let shard = Arc::new(Shard::new(stack, device).unwrap());
        let thread = drive(Arc::clone(&shard), "host").unwrap();
        Self { shard, _thread: thread }
    }

    pub(crate) fn wait<T>(
        &self,
        interest: Interest,
        attempt: impl FnMut(&mut Access<'_>) -> Poll<io::Result<T>>,
    ) -> io::Result<T> {
        let deadline = Clock.now() + PATIENCE.into();
        self.shard.wait(interest, Some(deadline), attempt).expect("it took too long")
    }

    pub(crate) fn read(&self, id: ConnId, into: &mut [u8]) -> io::Result<usize> {
        self.wait(Interest::Read(id), |access| {
            let now = access.now;
            match access.stack.conn_mut(id).unwrap().read(now, into) {
                Err(taut_core::ReadError::WouldBlock) => Poll::Pending,
                other => Poll::Ready(other.map_err(io::Error::other)),
            }
        })
    }

    pub(crate) fn write_all(&self, id: ConnId, mut data: &[u8]) -> io::Result<()> {
        while !data.is_empty() {
            let wrote = self.wait(Interest::Write(id), |access| {
                let now = access.now;
                match access.stack.conn_mut(id).unwrap().write(now, data) {
                    Err(taut_core::WriteError::WouldBlock) => Poll::Pending,
                    other => Poll::Ready(other.map_err(io::Error::other)),
                }
            })?;
            data = &data[wrote..];
        }
        Ok(())
    }

    /// Bytes that the connection counts as below TCP.
    pub(crate) fn below(&self, id: ConnId) -> u64 {
        self.shard.access(|access| below(access, id))
    }
}

pub(crate) fn below(access: &mut Access<'_>, id: ConnId) -> u64 {
    access.stack.conn(id).unwrap().info(access.now).wmem_alloc.into()
}

/// No timer of TCP sends anything again: no tail loss probe, and a retransmission only after two minutes,
/// which is longer than a read waits here.
pub(crate) fn without_timers(config: &mut StackConfig) {
    config.set_sysctl("tcp_early_retrans", "0").unwrap();
    config.set_sysctl("tcp_rto_min_us", "120000000").unwrap();
}

/// Two hosts over a line, with a connection between them.
pub(crate) struct Pair {
    pub(crate) near: Host,
    pub(crate) far: Host,
    pub(crate) line: Line,
    /// The connection at the near end, and at the far end.
    pub(crate) conns: [ConnId; 2],
    listener: ListenerId,
}

fn far_address() -> SocketAddr {
    FAR.parse().unwrap()
}

/// A connection from the near host to the far one: its name at both ends.
fn connect(near: &Host, far: &Host, listener: ListenerId, options: &ConnOptions) -> [ConnId; 2] {
    let begin = |access: &mut Access<'_>| access.stack.connect(access.now, far_address(), options);
    let client = near.shard.access(begin).unwrap();
    let server = far.wait(Interest::Accept(listener), |access| match access.stack.accept(listener) {
        Some((id, _)) => Poll::Ready(Ok(id)),
        None => Poll::Pending,
    });
    near.wait(Interest::Write(client), |access| {
        let state = access.stack.conn(client).unwrap().state();
        if state.is_synchronized() { Poll::Ready(Ok(())) } else { Poll::Pending }
    })
    .unwrap();
    [client, server.unwrap()]
}

impl Pair {
    pub(crate) fn new(caps: LinkCaps, configure: impl FnOnce(&mut StackConfig)) -> Self {
        Self::over(Line::new(caps), configure)
    }

    /// The near end's device is slow: its packets are sent without the stack's lock.
    pub(crate) fn slow(caps: LinkCaps, configure: impl FnOnce(&mut StackConfig)) -> Self {
        Self::over(Line::slow(caps), configure)
    }

    fn over((line, [near, far]): (Line, [Device; 2]), configure: impl FnOnce(&mut StackConfig)) -> Self {
        Self::of(line, Host::new(NEAR, near, configure), far)
    }

    /// The same with a near end that no other thread drives in its driver's place, as a task's.
    pub(crate) fn slow_and_alone(caps: LinkCaps) -> Self {
        let (line, [near, far]) = Line::slow(caps);
        Self::of(line, Host::driven(NEAR, near, |_| {}, taut_driver::portable::spawn), far)
    }

    fn of(line: Line, near: Host, far: Device) -> Self {
        let far = Host::new("10.0.0.2", far, |_| {});
        let listen = |access: &mut Access<'_>| access.stack.listen(far_address(), ListenOptions::default());
        let listener = far.shard.access(listen).unwrap();
        let conns = connect(&near, &far, listener, &ConnOptions::default());
        Self { near, far, line, conns, listener }
    }

    /// Another connection.
    pub(crate) fn connect(&self) -> [ConnId; 2] {
        connect(&self.near, &self.far, self.listener, &ConnOptions::default())
    }

    /// Another connection, with TCP_NODELAY at the near end.
    pub(crate) fn connect_nodelay(&self) -> [ConnId; 2] {
        let options = ConnOptions { nodelay: true, ..ConnOptions::default() };
        connect(&self.near, &self.far, self.listener, &options)
    }

    /// Sends bytes from the near end, which must arrive unchanged.
    pub(crate) fn send(&self, len: usize, seed: u64) {
        carry((&self.near, self.conns[0]), (&self.far, self.conns[1]), len, seed);
    }

    /// The same from the far end to the near one.
    pub(crate) fn send_back(&self, len: usize, seed: u64) {
        carry((&self.far, self.conns[1]), (&self.near, self.conns[0]), len, seed);
    }

    /// Everything was acknowledged, and every ticket is back.
    pub(crate) fn settle(&self) {
        eventually("all tickets are back", || {
            self.line.complete_all();
            self.near.below(self.conns[0]) == 0 && self.line.tickets(0).is_empty()
        });
    }
}

/// One host writes random bytes, and the other reads them.
fn carry((from, writes): (&Host, ConnId), (to, reads): (&Host, ConnId), len: usize, seed: u64) {
    let mut rng = Rng(seed | 1);
    let data: Vec<u8> = (0..len).map(|_| rng.next() as u8).collect();
    thread::scope(|scope| {
        scope.spawn(|| from.write_all(writes, &data).unwrap());
        let (mut got, mut chunk) = (Vec::new(), vec![0; 65_536]);
        while got.len() < len {
            let count = to.read(reads, &mut chunk).unwrap();
            got.extend_from_slice(&chunk[..count]);
        }
        assert!(got == data, "bytes intact and in order");
    });
}

pub(crate) fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Clock.now();
    while !is_so() {
        assert!(Clock.now().since(start) < PATIENCE.into(), "still not: {what}");
        thread::sleep(Duration::from_millis(1));
    }
}
