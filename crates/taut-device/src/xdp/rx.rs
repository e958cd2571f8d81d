//! The half of an XDP device that receives. Called by the driver.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::task::Waker;

use rustix::io::Errno;
use taut_core::{NetworkChange, RxChecksum};
use taut_driver::{News, Received, RxDevice};
use taut_ethernet::Arrival;
use taut_wire::{IpHeader, VnetHeader, checksum, ethernet, protocol, tcp, udp};

use super::Program;
use crate::packet::line::{Shared, now};
use crate::sys::xdp_socket::{self, Area, CONTINUES, Descriptor, Ring};

/// Frames that may be of no use to the stack before it has a turn: a flood of them must not keep it from its
/// packets.
const USELESS_MAX: usize = 64;

#[derive(Debug)]
pub(super) struct XdpRx {
    shared: Arc<Shared>,
    owned: (Arc<OwnedFd>, Arc<Program>),
    ring: Ring<Descriptor>,
    fill: Ring<u64>,
    area: Area,
    /// The other end may be in this machine, and leave the checksum to hardware that is not there.
    is_virtual: bool,
    /// Why the stack must end.
    failure: Option<io::Error>,
}

impl XdpRx {
    pub(super) fn new(
        shared: Arc<Shared>,
        owned: (Arc<OwnedFd>, Arc<Program>),
        ring: Ring<Descriptor>,
        mut fill: Ring<u64>,
        area: Area,
        is_virtual: bool,
    ) -> Self {
        for chunk in 0..area.chunks() {
            fill.push(area.place(chunk));
        }
        fill.publish();
        Self { shared, owned, ring, fill, area, is_virtual, failure: None }
    }

    /// How many of the next descriptors are one packet, if all of it is there.
    fn pieces(&self) -> Option<u32> {
        let mut count = 0;
        loop {
            let piece = self.ring.peek(count)?;
            count += 1;
            if piece.options & CONTINUES == 0 {
                return Some(count);
            }
        }
    }

    /// Copies the next frame into the buffer. One that is too long for it, or that lies elsewhere, has no
    /// bytes.
    fn frame(&mut self, buffer: &mut [u8]) -> Option<usize> {
        let count = self.pieces()?;
        let mut len = Some(0);
        for index in 0..count {
            let Some(piece) = self.ring.peek(index) else { break };
            len = len.and_then(|start| {
                let end = usize::try_from(piece.len).ok()?.checked_add(start)?;
                self.area.read(piece.addr, buffer.get_mut(start..end)?).then_some(end)
            });
            if let Some(chunk) = self.area.chunk_of(piece.addr) {
                self.fill.push(self.area.place(chunk));
            }
        }
        self.ring.release(count);
        self.fill.publish();
        Some(len.unwrap_or(0))
    }

    /// Takes what neighbours and servers say to everybody, of which the kernel gets its copy. Returns whether
    /// there was any.
    fn hear(&self, buffer: &mut [u8]) -> io::Result<bool> {
        match rustix::io::read(&self.shared.receive, &mut buffer[..]) {
            Ok(len) => {
                self.shared.note_up();
                let mut line = self.shared.line();
                line.ethernet.handle_frame(now(), buffer.get(VnetHeader::LEN..len).unwrap_or_default());
                self.shared.settle(&mut line);
                Ok(true)
            }
            Err(Errno::NETDOWN) => self.shared.handle_down().map(|()| true),
            Err(_) => Ok(false),
        }
    }

    /// The interface's program follows the stack.
    fn follow(&mut self, change: &NetworkChange) {
        if let Err(error) = self.owned.1.follow(change) {
            let (name, kind) = (self.shared.name(), error.kind());
            let what =
                format!("the program of the interface {name} cannot follow the stack's addresses: {error}");
            self.failure = Some(io::Error::new(kind, what));
        }
    }

    /// Nothing has come: asks whether the interface is there, and what the timer is for.
    fn idle(&self) -> io::Result<()> {
        if self.fill.needs_wakeup() {
            xdp_socket::wake_rx(&self.owned.0);
        }
        self.shared.handle_timeout()?;
        let waker = {
            let line = self.shared.line();
            line.waker.clone().filter(|_| line.look_at <= now())
        };
        if let Some(waker) = waker {
            waker.wake();
        }
        Ok(())
    }
}

impl RxDevice for XdpRx {
    fn news(&mut self, _: &Waker) -> io::Result<News> {
        // A link that configures itself begins.
        self.shared.settle(&mut self.shared.line());
        Ok(News::Fd(self.shared.news()?))
    }

    fn poll_change(&mut self) -> Option<NetworkChange> {
        let change = self.shared.poll_change()?;
        self.follow(&change);
        Some(change)
    }

    fn change_network(&mut self, change: NetworkChange) -> bool {
        let is_now = self.shared.change_network(change);
        if is_now {
            self.follow(&change);
        }
        is_now
    }

    fn recv(&mut self, buffer: &mut Vec<u8>) -> io::Result<Option<Received>> {
        if let Some(why) = self.failure.take() {
            return Err(why);
        }
        for _ in 0..USELESS_MAX {
            let Some(len) = self.frame(buffer) else {
                if self.hear(buffer)? {
                    continue;
                }
                self.idle()?;
                return Ok(None);
            };
            self.shared.note_up();
            let Some(frame) = buffer.get(..len) else { continue };
            let mut line = self.shared.line();
            match line.ethernet.handle_frame(now(), frame) {
                Arrival::Packet => {}
                Arrival::Taken => {
                    self.shared.settle(&mut line);
                    continue;
                }
                Arrival::Ignored => continue,
            }
            drop(line);
            let Some(packet) = frame.get(ethernet::HEADER_LEN..) else { continue };
            let is_known = self.is_virtual && is_left_to_hardware(packet);
            let checksum = if is_known { RxChecksum::Verified } else { RxChecksum::Unverified };
            return Ok(Some(Received { range: ethernet::HEADER_LEN..len, checksum, gso_size: 0 }));
        }
        Ok(None)
    }
}

/// Whether the checksum of a packet is that of its pseudo-header alone: the kernel at the other end of a
/// virtual cable has left the rest to its card. It would say so in the packet's descriptor, which does not
/// reach an `AF_XDP` socket.
fn is_left_to_hardware(packet: &[u8]) -> bool {
    let Ok(ip) = IpHeader::parse(packet) else { return false };
    let offset = match ip.protocol {
        protocol::TCP => tcp::CHECKSUM_OFFSET,
        protocol::UDP => udp::CHECKSUM_OFFSET,
        _ => return false,
    };
    let Some(found) = packet.get(ip.header_len + offset..).and_then(|rest| rest.first_chunk()) else {
        return false;
    };
    let len = u32::try_from(ip.payload_len).unwrap_or(u32::MAX);
    u16::from_be_bytes(*found) == checksum::pseudo_header(ip.src, ip.dst, ip.protocol, len).fold()
}

#[cfg(test)]
mod tests;
