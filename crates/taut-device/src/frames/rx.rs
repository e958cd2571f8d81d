//! The half of a device of frames that receives. Called by the driver.

use std::io;
use std::sync::Arc;
use std::task::Waker;

use taut_core::neighbour::Arrival;
use taut_core::{NetworkChange, RxChecksum};
use taut_driver::{News, Received, RxDevice};
use taut_wire::{VnetHeader, ethernet};

use super::carrier::{Carrier, FRAME_MAX, Heard, LENGTH};
use super::line::{Shared, now};
use crate::vnet;

/// Frames that may be of no use to the stack before it has a turn: a flood of them must not keep it from its packets.
const USELESS_MAX: usize = 64;
/// Bytes taken from a stream at a time: as many frames of the usual size as the driver handles in a batch.
const STAGE: usize = 128 << 10;

#[derive(Debug)]
pub(super) struct FramesRx {
    shared: Arc<Shared>,
    stage: Stage,
}

/// What has come by a stream and is not a frame yet.
#[derive(Debug, Default)]
struct Stage {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
}

impl FramesRx {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self { shared, stage: Stage::default() }
    }

    /// The next frame, in the buffer; with a virtio-net header in front of it, if there is one.
    fn frame(&mut self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        let heard = match &self.shared.carrier {
            Carrier::Stream(..) => self.stage.next(&self.shared.carrier, buffer),
            other => other.recv(buffer),
        };
        match heard {
            Ok(Heard::Bytes(len)) => Ok(Some(len)),
            Ok(Heard::Nothing) => Ok(None),
            Ok(Heard::End) => {
                let message = format!("{}: the peer has closed it", self.shared.name);
                Err(io::Error::new(io::ErrorKind::NetworkDown, message))
            }
            Err(error) => Err(io::Error::new(error.kind(), format!("{}: {error}", self.shared.name))),
        }
    }
}

impl Stage {
    /// Copies the next frame into the buffer: once, so that a call to the kernel brings many of them.
    fn next(&mut self, carrier: &Carrier, buffer: &mut [u8]) -> io::Result<Heard> {
        loop {
            let waiting = &self.bytes[self.start..self.end];
            if let Some((length, rest)) = waiting.split_first_chunk::<LENGTH>() {
                let len = u32::from_be_bytes(*length) as usize;
                if len > FRAME_MAX.min(buffer.len()) {
                    let message = format!(
                        "it announced a frame of {len} bytes: it does not put a length of four bytes in front of each"
                    );
                    return Err(io::Error::new(io::ErrorKind::InvalidData, message));
                }
                if let Some(frame) = rest.get(..len) {
                    buffer[..len].copy_from_slice(frame);
                    self.start += LENGTH + len;
                    return Ok(Heard::Bytes(len));
                }
            }
            if self.bytes.is_empty() {
                self.bytes = vec![0; STAGE + LENGTH + FRAME_MAX];
            }
            self.bytes.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
            match carrier.recv(&mut self.bytes[self.end..])? {
                Heard::Bytes(len) => self.end += len,
                other => return Ok(other),
            }
        }
    }

    fn is_empty(&self) -> bool {
        self.start == self.end
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

    fn recv(&mut self, buffer: &mut Vec<u8>) -> io::Result<Option<Received>> {
        let vnet_len = self.shared.vnet_len();
        for _ in 0..USELESS_MAX {
            let Some(len) = self.frame(buffer)? else {
                self.shared.handle_timeout();
                return Ok(None);
            };
            let shared = &*self.shared;
            let Some(frame) = buffer.get(vnet_len..len) else { continue };
            let mut ip_at = vnet_len;
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
                let Ok(header) = VnetHeader::parse(buffer) else { continue };
                vnet::of_received(&header)
            } else {
                (RxChecksum::Unverified, 0)
            };
            return Ok(Some(Received { range: ip_at..len.max(ip_at), checksum, gso_size }));
        }
        // What is staged is not announced by the socket.
        let mut line = self.shared.line();
        line.has_more = !self.stage.is_empty();
        self.shared.settle(&mut line);
        Ok(None)
    }
}
