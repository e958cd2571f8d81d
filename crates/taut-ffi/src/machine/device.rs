//! The device of a bare machine: a function of C that takes packets, with a ticket each. The rules of the
//! callback are in the documentation of [`TautTransmit`]; called by `state.rs`.
#![expect(unsafe_code, reason = "calls a function of C")]

use std::ffi::{c_int, c_void};

use libc::iovec;
use taut_core::{GATHER_MAX, Offload, TxPacket};

/// The packet has left the host, or was copied to where it does not wait. Its ticket is over.
pub const TAUT_LEFT: c_int = 0;
/// The packet waits in the device; taut_stack_complete() gives its ticket back.
pub const TAUT_KEPT: c_int = 1;

/// A packet to send, from its IP header on. It and its memory last until the callback returns.
#[repr(C)]
pub struct TautPacket {
    /// Bytes of this struct, as the library has it.
    pub size: usize,
    /// The packet's bytes in order: headers, then pieces of the payload, as writev(2) takes them.
    pub iov: *const iovec,
    /// How many pieces; at most 9.
    pub iovcnt: c_int,
    /// 0, or the payload bytes of each segment into which the device must cut the packet. Only with
    /// TAUT_DEVICE_SEGMENTS.
    pub gso_size: u16,
    /// Length of the IP header, where the checksum of the transport header begins.
    pub csum_start: u16,
    /// Bytes from there to the checksum, which the device must complete; 0: the packet is complete. Only
    /// with TAUT_DEVICE_CHECKSUMS.
    pub csum_offset: u16,
    /// Bytes in all.
    pub len: usize,
    /// When it may leave, in nanoseconds. Later than now only with TAUT_DEVICE_PACES.
    pub departure_ns: i64,
}

/// Takes a packet for the link.
///
/// Called only by taut_stack_poll(), on its thread. `user` is that of the configuration. It must return:
/// neither longjmp() nor a C++ exception may leave it. It must not call a function on the same stack, which
/// would return -EBUSY; other stacks may be called, such as taut_stack_input() of the one at the other end.
///
/// Returns TAUT_LEFT; TAUT_KEPT, then the program copies what it needs, and calls taut_stack_complete()
/// when the packet has left the host: until then its bytes count as below TCP, and the connection sends no
/// more than keeps the device busy; -EAGAIN if there is no room, then taut_stack_poll() ends, and the
/// packet is offered again by a later one, which the program calls when there is room; another negative
/// number if the packet was dropped, then its connection slows down and sends the bytes again.
pub type TautTransmit =
    Option<unsafe extern "C" fn(user: *mut c_void, packet: *const TautPacket, ticket: u64) -> c_int>;

/// The callback and its user's pointer.
pub(super) struct Device {
    transmit: unsafe extern "C" fn(*mut c_void, *const TautPacket, u64) -> c_int,
    user: *mut c_void,
}

impl Device {
    pub(super) fn new(transmit: TautTransmit, user: *mut c_void) -> Option<Self> {
        Some(Self { transmit: transmit?, user })
    }

    /// Returns the answer of the program.
    pub(super) fn send(&self, packet: &TxPacket<'_>, ticket: u64) -> c_int {
        let mut iov = [iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; 1 + GATHER_MAX];
        let mut iovcnt = 0;
        for piece in packet.pieces() {
            iov[iovcnt] = iovec { iov_base: piece.as_ptr().cast_mut().cast(), iov_len: piece.len() };
            iovcnt += 1;
        }
        let (gso_size, csum_start, csum_offset) = match packet.offload {
            Offload::None => (0, 0, 0),
            Offload::Checksum { start, offset } => (0, start, offset),
            Offload::Segment { mss, start, offset, .. } => (mss, start, offset),
        };
        let packet = TautPacket {
            size: size_of::<TautPacket>(),
            iov: iov.as_ptr(),
            iovcnt: iovcnt as c_int,
            gso_size,
            csum_start,
            csum_offset,
            len: packet.len(),
            departure_ns: i64::try_from(packet.departure.as_nanos()).unwrap_or(i64::MAX),
        };
        // SAFETY: the program has promised this in `taut_stack_new`.
        unsafe { (self.transmit)(self.user, &raw const packet, ticket) }
    }
}
