//! The half of a packet device that receives. Called by the driver.

use std::io;
use std::sync::Arc;
use std::task::Waker;

use rustix::io::Errno;
use taut_core::NetworkChange;
use taut_driver::{News, Received, RxDevice};
use taut_ethernet::Arrival;
use taut_wire::{VnetHeader, ethernet};

use super::line::{Shared, now};
use crate::vnet;

/// Frames that may be of no use to the stack before it has a turn: a flood of them must not keep it from its
/// packets.
const USELESS_MAX: usize = 64;
/// Where the IP packet begins.
const IP_AT: usize = VnetHeader::LEN + ethernet::HEADER_LEN;

#[derive(Debug)]
pub(super) struct PacketRx(Arc<Shared>);

impl PacketRx {
    pub(super) const fn new(shared: Arc<Shared>) -> Self {
        Self(shared)
    }
}

impl RxDevice for PacketRx {
    fn news(&mut self, _: &Waker) -> io::Result<News> {
        // A link that configures itself begins.
        self.0.settle(&mut self.0.line());
        Ok(News::Fd(self.0.news()?))
    }

    fn poll_change(&mut self) -> Option<NetworkChange> {
        self.0.poll_change()
    }

    fn change_network(&mut self, change: NetworkChange) -> bool {
        // It is heard until the device is closed; the stack drops what no socket has joined.
        if let NetworkChange::JoinGroup(group) = change {
            self.0.join_group(group);
        }
        self.0.change_network(change)
    }

    fn recv(&mut self, buffer: &mut Vec<u8>) -> io::Result<Option<Received>> {
        let shared = &*self.0;
        for _ in 0..USELESS_MAX {
            let len = match rustix::io::read(&shared.receive, &mut buffer[..]) {
                Ok(len) => len,
                Err(Errno::AGAIN | Errno::INTR | Errno::NOMEM | Errno::NOBUFS) => {
                    shared.clear_errors();
                    shared.handle_timeout()?;
                    return Ok(None);
                }
                Err(Errno::NETDOWN) => {
                    shared.handle_down()?;
                    continue;
                }
                Err(error) => {
                    let message = format!("the interface {}: {error}", shared.name());
                    return Err(io::Error::new(io::Error::from(error).kind(), message));
                }
            };
            shared.note_up();
            let Some(frame) = buffer.get(VnetHeader::LEN..len) else { continue };
            let mut line = shared.line();
            match line.ethernet.handle_frame(now(), frame) {
                Arrival::Packet => {}
                Arrival::Taken => {
                    shared.settle(&mut line);
                    drop(line);
                    shared.tell();
                    shared.pass_on(frame);
                    continue;
                }
                Arrival::Ignored => continue,
            }
            drop(line);
            let Ok(header) = VnetHeader::parse(buffer) else { continue };
            let (checksum, gso_size) = vnet::of_received(&header);
            return Ok(Some(Received { range: IP_AT..len, checksum, gso_size }));
        }
        Ok(None)
    }
}
