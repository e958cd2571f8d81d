//! An echo server at port 7, for a processor without an operating system: what such a program must link, and
//! no more. It is linked to measure its size (`benches/size.sh`), not to run: its link is memory that nothing
//! fills.

#![no_std]
#![no_main]

extern crate alloc;

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::alloc::{GlobalAlloc, Layout};
use core::net::{IpAddr, Ipv4Addr};
use core::sync::atomic::{AtomicUsize, Ordering};

use taut_core::{
    ConnId, Event, Fate, Frame, Instant, LinkCaps, ListenerId, ReadError, RxChecksum, RxPacket, Stack, StackConfig, Transmit,
};

/// The rest of the program's memory. Nothing is given back. A real program has a real allocator, which takes
/// 1 to 3 kB.
struct Heap;

const HEAP_BYTES: usize = 128 << 10;
static mut HEAP: [u8; HEAP_BYTES] = [0; HEAP_BYTES];
static NEXT: AtomicUsize = AtomicUsize::new(0);

// SAFETY: each range of the heap is handed out once.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let taken = NEXT.fetch_add(layout.size() + layout.align(), Ordering::Relaxed);
        if taken + layout.size() + layout.align() > HEAP_BYTES {
            return core::ptr::null_mut();
        }
        let start = (&raw mut HEAP).cast::<u8>();
        // SAFETY: within the heap, by the test above.
        unsafe { start.add(taken + start.add(taken).align_offset(layout.align())) }
    }

    unsafe fn dealloc(&self, _: *mut u8, _: Layout) {}
}

#[global_allocator]
static ALLOCATOR: Heap = Heap;

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}

/// The link and the clock: a device's registers.
static mut REGISTERS: [u32; 4] = [0; 4];

fn register(number: usize) -> u32 {
    // SAFETY: one word of the array, which one thread uses.
    unsafe { (&raw const REGISTERS[number & 3]).read_volatile() }
}

fn put(number: usize, value: u32) {
    // SAFETY: as above.
    unsafe { (&raw mut REGISTERS[number & 3]).write_volatile(value) }
}

fn now() -> Instant {
    Instant::from_nanos(u64::from(register(0)) * 1_000)
}

/// Copies the packet that has arrived.
fn receive(into: &mut Vec<u8>) -> bool {
    into.clear();
    into.extend((0..register(1) as usize).map(|at| register(at) as u8));
    !into.is_empty()
}

fn send(piece: &[u8]) {
    piece.iter().for_each(|&byte| put(2, byte.into()));
}

/// Takes a connection's bytes and sends them back.
fn echo(stack: &mut Stack, id: ConnId) {
    let mut bytes = [0; 256];
    while let Some(mut conn) = stack.conn_mut(id) {
        match conn.read(now(), &mut bytes) {
            Ok(0) => return conn.close(now()),
            Ok(count) => _ = conn.write(now(), &bytes[..count]),
            Err(ReadError::WouldBlock) => return,
            Err(_) => return conn.close(now()),
        }
    }
}

fn turn(stack: &mut Stack, listener: ListenerId, packet: &mut Vec<u8>) {
    while receive(packet) {
        let frame = Frame::Slice(packet);
        stack.handle_packet(now(), RxPacket { frame, checksum: RxChecksum::Unverified, gso_size: 0 });
    }
    if stack.poll_timeout().is_some_and(|(at, _)| at <= now()) {
        stack.handle_timeout(now());
    }
    while let Some(event) = stack.poll_event() {
        match event {
            Event::Readable(id) | Event::Writable(id) | Event::Failed(id, _) => echo(stack, id),
            _ => {}
        }
    }
    while let Some((id, _)) = stack.accept(listener) {
        echo(stack, id);
    }
    while let Some(Transmit { packet, ticket }) = stack.poll_transmit(now()) {
        send(packet.header);
        packet.payload.slices().iter().for_each(|piece| send(piece));
        stack.handle_tx(now(), ticket, Fate::Left);
    }
}

/// Where the linker lets the program begin.
#[unsafe(no_mangle)]
pub extern "C" fn _start() -> ! {
    let address = IpAddr::V4(Ipv4Addr::from_bits(register(3)));
    let config = StackConfig::default().with(|config| config.addresses.push(address));
    let seed = core::array::from_fn(|at| register(at) as u8);
    let mut stack = Stack::new(Arc::new(config), LinkCaps::plain(1_500), seed);
    let mut packet = Vec::new();
    if let Ok(listener) = stack.listen((address, 7).into(), Default::default()) {
        loop {
            turn(&mut stack, listener, &mut packet);
        }
    }
    loop {}
}
