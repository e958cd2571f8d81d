//! Packets as they arrive at an interface, each with the kernel's time of arrival: for tests of what leaves
//! when. `packet(7)`, `socket(7)`. Called by tests.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::time::{ClockId, clock_gettime};
use taut_driver::sys::monotonic_ns;

use super::packet_socket::{self, Gets};
use crate::interface::Interface;

/// Room for packets that wait to be read.
const BUFFER_BYTES: u32 = 64 << 20;
/// In front of each packet of such a socket.
const VNET_BYTES: usize = taut_wire::VnetHeader::LEN;

/// A socket that gets what arrives at an Ethernet interface.
#[derive(Debug)]
pub struct Capture {
    socket: OwnedFd,
    /// The kernel's times are of the wall clock, which is this much ahead of the monotonic clock.
    ahead_ns: i64,
}

/// One packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Captured {
    /// When it arrived, by the monotonic clock.
    pub at_ns: u64,
    /// Bytes of the frame, also of those that the buffer had no room for.
    pub len: usize,
}

impl Capture {
    /// Begins to collect what arrives at this interface.
    ///
    /// # Errors
    /// Without `CAP_NET_RAW`, or if there is no such interface in the namespace of this thread.
    pub fn open(interface: &str) -> io::Result<Self> {
        let index = Interface::open(interface)?.index();
        let socket = packet_socket::open(index, Gets::All)?;
        packet_socket::set_buffers(&socket, 0, BUFFER_BYTES);
        packet_socket::enable_arrivals(&socket)?;
        Ok(Self { socket, ahead_ns: ahead_ns() })
    }

    /// Waits for a packet, for so long at most, and writes the beginning of its frame into `frame`. `None` if
    /// none came.
    ///
    /// # Errors
    /// When the interface is gone.
    pub fn next(&self, frame: &mut [u8], wait: Duration) -> io::Result<Option<Captured>> {
        loop {
            let mut header = [0; VNET_BYTES];
            let pieces = &mut [io::IoSliceMut::new(&mut header), io::IoSliceMut::new(frame)];
            match packet_socket::receive_with_time(&self.socket, pieces) {
                Ok((len, real_ns)) => {
                    let at_ns = u64::try_from(real_ns - self.ahead_ns).unwrap_or(0);
                    return Ok(Some(Captured { at_ns, len: len.saturating_sub(VNET_BYTES) }));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
            let limit = Timespec::try_from(wait).ok();
            let mut waits = [PollFd::new(&self.socket, PollFlags::IN)];
            if poll(&mut waits, limit.as_ref())? == 0 {
                return Ok(None);
            }
        }
    }

    /// How many packets there was no room for, since the last call.
    ///
    /// # Errors
    /// Never in practice.
    pub fn take_lost(&self) -> io::Result<u32> {
        packet_socket::take_lost(&self.socket)
    }
}

/// How far the wall clock is ahead: of several readings, the one between the closest two of the monotonic
/// clock.
fn ahead_ns() -> i64 {
    let read = |_| {
        let before = monotonic_ns();
        let real = clock_gettime(ClockId::Realtime);
        let after = monotonic_ns();
        let real_ns = real.tv_sec * 1_000_000_000 + real.tv_nsec;
        (after - before, real_ns - (before + (after - before) / 2) as i64)
    };
    (0..16).map(read).min().map_or(0, |(_, ahead)| ahead)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Namespace;

    #[test]
    fn a_packet_arrives_with_its_time_and_length() {
        let (near, far) = (Namespace::new().unwrap(), Namespace::new().unwrap());
        let (here, there) = near.connect("veth0", &far, "veth0").unwrap();
        [&here, &there].iter().for_each(|interface| interface.set_up().unwrap());
        here.wait_until_running(Duration::from_secs(5)).unwrap();
        let capture = far.enter(|| Capture::open("veth0")).unwrap().unwrap();
        let open = || packet_socket::open(here.index(), Gets::Nothing);
        let sender = near.enter(open).unwrap().unwrap();
        let mut frame = [0xff; 60];
        frame[12..14].copy_from_slice(&[0x08, 0x00]);
        frame[59] = 7;
        let begin_ns = monotonic_ns();
        let pieces = [io::IoSlice::new(&[0; VNET_BYTES]), io::IoSlice::new(&frame)];
        packet_socket::send(&sender, &pieces, packet_socket::Along::default()).unwrap();
        let (mut got, mut found) = ([0; 60], None);
        // The kernel itself sends some when an interface comes up.
        while found.is_none() {
            let captured = capture.next(&mut got, Duration::from_secs(5)).unwrap().expect("a packet");
            found = (got[59] == 7).then_some(captured);
        }
        let found = found.unwrap();
        assert_eq!((found.len, got), (60, frame));
        // The clocks are compared to a microsecond or two.
        assert!((begin_ns - 50_000..monotonic_ns() + 50_000).contains(&found.at_ns), "{begin_ns} {found:?}");
        assert_eq!(capture.take_lost().unwrap(), 0);
        assert_eq!(capture.next(&mut got, Duration::ZERO).unwrap(), None);
    }
}
