//! A whole shard with its driver: whoever waits for a connection's data, for room, for a connection to accept
//! or for the end is woken, whenever the packet arrives that brings it.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex as StdMutex};
use std::task::{Poll, Waker};

use loom::thread::JoinHandle;
use taut_core::{
    ConnId, ConnOptions, Frame, LinkCaps, ListenOptions, ListenerId, ReadError, RxChecksum, RxPacket, Stack,
    StackConfig, Transmit, TxPacket, TxTicket, WriteError,
};

use super::{check, here, sleep, spawn};
use crate::clock::Clock;
use crate::device::{Device, News, Received, RxDevice, Sent, TxDevice};
use crate::park::drive;
use crate::shard::waiters::{Interest, WaitKey};
use crate::shard::{Access, ReadInto, Shard, Until};
use crate::sync::{Mutex, lock};

const NEAR: &str = "10.0.0.1";
const FAR: &str = "10.0.0.2";
const PORT: u16 = 7;
const CAPS: LinkCaps = LinkCaps::plain(1_500);

/// The near stack's device. What it sends is of interest only while a model is set up, by one thread: loom
/// need not know of it.
#[derive(Clone, Default)]
struct Wire {
    arrived: Arc<Mutex<VecDeque<Vec<u8>>>>,
    waker: Arc<StdMutex<Option<Waker>>>,
    left: Arc<StdMutex<Vec<Vec<u8>>>>,
}

impl Wire {
    /// A packet arrives, on a thread of the device's.
    fn arrive(&self, packet: Vec<u8>) {
        lock(&self.arrived).push_back(packet);
        let waker = self.waker.lock().unwrap().clone();
        waker.unwrap().wake();
    }
}

impl TxDevice for Wire {
    fn news(&mut self, _: &Waker) -> io::Result<News> {
        Ok(News::Waker)
    }

    fn send(&mut self, packet: &TxPacket<'_>, ticket: TxTicket) -> Sent {
        self.left.lock().unwrap().push(packet.to_vec());
        Sent::Left(ticket)
    }
}

impl RxDevice for Wire {
    fn news(&mut self, waker: &Waker) -> io::Result<News> {
        *self.waker.lock().unwrap() = Some(waker.clone());
        Ok(News::Waker)
    }

    fn recv(&mut self, buffer: &mut Vec<u8>) -> io::Result<Option<Received>> {
        Ok(lock(&self.arrived).pop_front().map(|packet| {
            buffer[..packet.len()].copy_from_slice(&packet);
            Received { range: 0..packet.len(), checksum: RxChecksum::Verified, gso_size: 0 }
        }))
    }
}

fn stack(address: &str) -> Stack {
    let config = StackConfig::default().with(|config| {
        config.addresses.push(address.parse().unwrap());
        // Little to fill where a writer is to wait.
        config.set_sysctl("net.ipv4.tcp_wmem", "4096 4096 4096").unwrap();
    });
    Stack::new(Arc::new(config), CAPS, [address.len() as u8; 32])
}

/// A shard, and its peer: a stack that does what a model tells it.
struct World {
    near: Arc<Shard>,
    wire: Wire,
    far: Stack,
    /// The connection at the near end, and at the far end.
    conns: [ConnId; 2],
    listener: ListenerId,
}

impl World {
    /// With a connection, begun by the near end.
    fn new(near: Arc<Shard>, wire: Wire) -> Self {
        let mut far = stack(FAR);
        let at = |address: &str| (address.parse::<std::net::IpAddr>().unwrap(), PORT).into();
        let theirs = far.listen(at(FAR), ListenOptions::default()).unwrap();
        let (conn, listener) = near.access(|access| {
            let conn = access.stack.connect(access.now, at(FAR), &ConnOptions::default()).unwrap();
            (conn, access.stack.listen(at(NEAR), ListenOptions::default()).unwrap())
        });
        let mut world = Self { near, wire, far, conns: [conn; 2], listener };
        world.exchange();
        world.conns[1] = world.far.accept(theirs).unwrap().0;
        world
    }

    fn alone() -> Self {
        let wire = Wire::default();
        Self::new(shard(&wire), wire)
    }

    /// Lets packets travel both ways until there are none.
    fn exchange(&mut self) {
        loop {
            self.exchange_one_way();
            let arrived = self.far_sends();
            if arrived.is_empty() {
                return;
            }
            lock(&self.wire.arrived).extend(arrived);
            self.near.turn(Until::Batch, &mut ReadInto::default(), &mut Vec::new());
        }
    }

    /// What the far end has to send.
    fn far_sends(&mut self) -> Vec<Vec<u8>> {
        let mut packets = Vec::new();
        while let Some(Transmit { packet, ticket }) = self.far.poll_transmit(Clock.now()) {
            packets.push(packet.to_vec());
            self.far.handle_tx(Clock.now(), ticket, taut_core::Fate::Left);
        }
        packets
    }

    /// What the near end has sent arrives at the far end.
    fn exchange_one_way(&mut self) {
        for packet in std::mem::take(&mut *self.wire.left.lock().unwrap()) {
            let packet =
                RxPacket { frame: Frame::Slice(&packet), checksum: RxChecksum::Verified, gso_size: 0 };
            self.far.handle_packet(Clock.now(), packet);
        }
    }

    /// The one packet that the far end has to send.
    fn far_sends_one(&mut self) -> Vec<u8> {
        let mut packets = self.far_sends();
        assert_eq!(packets.len(), 1);
        packets.pop().unwrap()
    }

    fn far_writes(&mut self) -> Vec<u8> {
        let written = self.far.conn_mut(self.conns[1]).unwrap().write(Clock.now(), b"x");
        assert_eq!(written, Ok(1));
        self.far_sends_one()
    }
}

fn shard(wire: &Wire) -> Arc<Shard> {
    let device = Device::new(CAPS, wire.clone(), wire.clone());
    Arc::new(Shard::new(stack(NEAR), device).unwrap())
}

fn driver(shard: &Arc<Shard>) -> JoinHandle<()> {
    let shard = Arc::clone(shard);
    spawn(move || {
        let (me, waker) = here();
        shard.announcer.attach(&waker, None).unwrap();
        drive(&shard, &me);
    })
}

/// Waits as a task does, that nobody wakes without reason.
fn until<T>(
    shard: &Shard,
    interest: Interest,
    mut attempt: impl FnMut(&mut Access<'_>) -> Poll<io::Result<T>>,
) -> io::Result<T> {
    let ((me, waker), key) = (here(), WaitKey::unique());
    loop {
        if let Poll::Ready(result) = shard.poll(interest, key, &waker, &mut attempt) {
            return result;
        }
        sleep(&me);
    }
}

fn read(conn: ConnId) -> impl FnMut(&mut Access<'_>) -> Poll<io::Result<usize>> {
    move |access| match access.stack.conn_mut(conn).unwrap().read(access.now, &mut [0; 9]) {
        Err(ReadError::WouldBlock) => Poll::Pending,
        other => Poll::Ready(other.map_err(io::Error::other)),
    }
}

fn write(conn: ConnId) -> impl FnMut(&mut Access<'_>) -> Poll<io::Result<usize>> {
    move |access| match access.stack.conn_mut(conn).unwrap().write(access.now, &[0; 9_000]) {
        Err(WriteError::WouldBlock) => Poll::Pending,
        other => Poll::Ready(other.map_err(io::Error::other)),
    }
}

/// A packet arrives on the device's thread while this thread waits for what it brings.
fn a_packet_wakes<T>(
    world: World,
    packet: Vec<u8>,
    interest: Interest,
    attempt: impl FnMut(&mut Access<'_>) -> Poll<io::Result<T>>,
) -> T {
    let driver = driver(&world.near);
    let device = spawn(move || world.wire.arrive(packet));
    let got = until(&world.near, interest, attempt).unwrap();
    device.join().unwrap();
    world.near.close();
    driver.join().unwrap();
    got
}

#[test]
fn a_reader_gets_what_arrives() {
    check(3, || {
        let mut world = World::alone();
        let (packet, conn) = (world.far_writes(), world.conns[0]);
        assert_eq!(a_packet_wakes(world, packet, Interest::Read(conn), read(conn)), 1);
    });
}

#[test]
fn a_writer_gets_the_room_that_an_ack_makes() {
    check(3, || {
        let mut world = World::alone();
        let conn = world.conns[0];
        while world.near.access(write(conn)).is_ready() {}
        world.exchange_one_way();
        let packet = world.far_sends_one();
        assert!(a_packet_wakes(world, packet, Interest::Write(conn), write(conn)) > 0);
    });
}

#[test]
fn an_acceptor_gets_the_connection_that_arrives() {
    check(3, || {
        let mut world = World::alone();
        let to = (NEAR.parse::<std::net::IpAddr>().unwrap(), PORT).into();
        world.far.connect(Clock.now(), to, &ConnOptions::default()).unwrap();
        let syn = world.far_sends_one();
        lock(&world.wire.arrived).push_back(syn);
        world.near.turn(Until::Batch, &mut ReadInto::default(), &mut Vec::new());
        world.exchange_one_way();
        let (ack, listener) = (world.far_sends_one(), world.listener);
        a_packet_wakes(world, ack, Interest::Accept(listener), |access| {
            access.stack.accept(listener).map_or(Poll::Pending, |(conn, _)| Poll::Ready(Ok(conn)))
        });
    });
}

/// One of two waiters gives up while the packet arrives: the other one is woken, and the first one's waker is
/// gone.
#[test]
fn a_waiter_that_gives_up_takes_no_call_of_another() {
    check(3, || {
        let mut world = World::alone();
        let (packet, conn) = (world.far_writes(), world.conns[0]);
        let (interest, key, (first, waker)) = (Interest::Read(conn), WaitKey::unique(), here());
        assert!(world.near.poll::<()>(interest, key, &waker, |_| Poll::Pending).is_pending());
        let (near, driver, wire) = (Arc::clone(&world.near), driver(&world.near), world.wire);
        let other = spawn(move || {
            wire.arrive(packet);
            near.cancel(interest, key);
        });
        assert_eq!(until(&world.near, interest, read(conn)).unwrap(), 1);
        other.join().unwrap();
        world.near.close();
        driver.join().unwrap();
        drop(waker);
        assert_eq!(Arc::strong_count(&first), 1);
    });
}

/// The shard ends while a thread begins to wait.
#[test]
fn a_waiter_hears_of_the_end() {
    check(3, || {
        let world = World::alone();
        let (near, driver) = (Arc::clone(&world.near), driver(&world.near));
        let owner = spawn(move || near.close());
        let conn = world.conns[0];
        let error = until(&world.near, Interest::Read(conn), read(conn)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotConnected);
        owner.join().unwrap();
        driver.join().unwrap();
    });
}

/// A packet arrives at another shard, which hands it over while the owner's driver goes to sleep and a reader
/// begins to wait.
#[test]
fn a_reader_gets_what_another_shard_hands_over() {
    check(3, || {
        let wires = [Wire::default(), Wire::default()];
        let shards = wires.each_ref().map(shard);
        Shard::set_peers(&shards, &[7; 32]);
        let ([near, other], [wire, elsewhere]) = (shards, wires);
        let mut world = World::new(near, wire);
        let (packet, conn) = (world.far_writes(), world.conns[0]);
        let driver = driver(&world.near);
        let there = spawn(move || {
            lock(&elsewhere.arrived).push_back(packet);
            other.turn(Until::Batch, &mut ReadInto::default(), &mut Vec::new());
        });
        assert_eq!(until(&world.near, Interest::Read(conn), read(conn)).unwrap(), 1);
        there.join().unwrap();
        world.near.close();
        driver.join().unwrap();
    });
}
