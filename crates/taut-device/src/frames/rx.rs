//! The half of a device of frames that receives. Called by the driver.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::task::Waker;

use taut_core::{NetworkChange, RxChecksum};
use taut_driver::{News, Received, RxDevice};
use taut_ethernet::Arrival;
use taut_wire::{IpHeader, VnetHeader, checksum, ethernet, protocol, tcp, udp};

use super::carrier::{Carrier, Heard};
use super::line::{Shared, now};
use super::stage::{Stage, Staged};
use crate::vnet;

/// Frames that may be of no use to the stack before it has a turn: a flood of them must not keep it from its
/// packets.
pub(super) const USELESS_MAX: usize = 64;

#[derive(Debug)]
pub(super) struct FramesRx {
    shared: Arc<Shared>,
    stage: Stage,
    /// Staged frames are announced.
    announces: bool,
}

impl FramesRx {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self { shared, stage: Stage::default(), announces: false }
    }

    /// The next frame, in the buffer; with a virtio-net header in front of it, if there is one.
    fn frame(&mut self, buffer: &mut [u8]) -> io::Result<Option<Range<usize>>> {
        let found = match &self.shared.carrier {
            Carrier::Stream(..) => self.stage.next(&self.shared.carrier, buffer),
            other => other.recv(buffer).map(|heard| match heard {
                Heard::Bytes(len) => Staged::Frame(0..len),
                Heard::Nothing => Staged::Nothing,
                Heard::End => Staged::End,
            }),
        };
        match found {
            Ok(Staged::Frame(frame)) => Ok(Some(frame)),
            Ok(Staged::Nothing) => Ok(None),
            Ok(Staged::End) => {
                let message = format!("{}: the peer has closed it", self.shared.name);
                Err(io::Error::new(io::ErrorKind::NetworkDown, message))
            }
            Err(error) => Err(io::Error::new(error.kind(), format!("{}: {error}", self.shared.name))),
        }
    }
}

impl FramesRx {
    /// Staged frames are not announced by the socket, and the driver may end its batch at any packet.
    fn announce(&mut self) {
        let has_more = self.stage.has_frame();
        if has_more != self.announces {
            self.announces = has_more;
            let mut line = self.shared.line();
            line.has_more = has_more;
            self.shared.settle(&mut line);
        }
    }
}

impl RxDevice for FramesRx {
    fn news(&mut self, _: &Waker) -> io::Result<News> {
        // A link that configures itself begins.
        self.shared.settle(&mut self.shared.line());
        Ok(News::Fd(self.shared.news()?))
    }

    fn poll_change(&mut self) -> Option<NetworkChange> {
        self.shared.line().ethernet.as_mut()?.poll_change()
    }

    fn change_network(&mut self, change: NetworkChange) -> bool {
        let mut line = self.shared.line();
        let Some(ethernet) = &mut line.ethernet else { return true };
        let is_now = ethernet.change_network(now(), change);
        self.shared.settle(&mut line);
        is_now
    }

    fn begin_batch(&mut self) {
        self.stage.begin_batch();
    }

    fn recv(&mut self, buffer: &mut Vec<u8>) -> io::Result<Option<Received>> {
        let vnet_len = self.shared.vnet_len();
        for _ in 0..USELESS_MAX {
            let Some(Range { start, end }) = self.frame(buffer)? else {
                self.announces = false;
                self.shared.handle_timeout();
                return Ok(None);
            };
            let shared = &*self.shared;
            let Some(frame) = buffer.get(start + vnet_len..end) else { continue };
            shared.record(std::iter::once(frame));
            let mut ip_at = start + vnet_len;
            let mut line = shared.line();
            if let Some(ethernet) = &mut line.ethernet {
                ip_at += ethernet::HEADER_LEN;
                match ethernet.handle_frame(now(), frame) {
                    Arrival::Packet => {}
                    Arrival::Taken => {
                        shared.settle(&mut line);
                        continue;
                    }
                    Arrival::Ignored => continue,
                }
            }
            drop(line);
            let (checksum, gso_size) = if shared.vnet_header {
                let Ok(header) = VnetHeader::parse(&buffer[start..]) else { continue };
                vnet::of_received(&header)
            } else {
                (of_plain(buffer.get(ip_at..end).unwrap_or_default()), 0)
            };
            self.announce();
            return Ok(Some(Received { range: ip_at..end.max(ip_at), checksum, gso_size }));
        }
        self.announce();
        Ok(None)
    }
}

/// Whether the checksum of a packet without a virtio-net header must be verified. libkrun offers its guests
/// `VIRTIO_NET_F_CSUM` and `HOST_TSO4`, and strips their virtio-net headers: what a guest leaves to its card,
/// of super-packets too, has the sum of the pseudo-header only, and never was on a wire. QEMU's guests
/// compute all.
pub(super) fn of_plain(packet: &[u8]) -> RxChecksum {
    let is_left_to_card = IpHeader::parse(packet).is_ok_and(|ip| {
        let at = match ip.protocol {
            protocol::TCP => tcp::CHECKSUM_OFFSET,
            protocol::UDP => udp::CHECKSUM_OFFSET,
            _ => return false,
        };
        let partial = checksum::pseudo_header(ip.src, ip.dst, ip.protocol, ip.payload_len as u32).fold();
        packet.get(ip.header_len + at..).and_then(|rest| rest.first_chunk()) == Some(&partial.to_be_bytes())
    });
    if is_left_to_card { RxChecksum::Verified } else { RxChecksum::Unverified }
}
