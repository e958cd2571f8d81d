//! The state of an instance for a migration or a snapshot: `slirp_state_save` and `slirp_state_load`.
//!
//! **Rule.** The state has the guest's connections, and its station. One to a service of the caller's own
//! continues after a load, as libslirp's does: its far side comes with the caller; also when the guest has
//! ended its half. Any other is reset, because a socket of the host cannot move, and the guest need not wait
//! for it. Leases need nothing: a client that renews its address gets it.
//!
//! **libslirp's states** (up to version 4) are read, too: snapshots that were made with it can be loaded.
//! They have the connections to the caller's services alone. Its later versions are refused as by itself.
//!
//! ```text
//!   "taut-slirp\0\x01"  count  connections          this library's; big-endian
//!   (42  connection)…   0  ip_id  16 leases         libslirp's
//! ```

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use taut_core::Resumed;
use taut_wire::Mac;

/// The version that is saved, and the last that is loaded: libslirp 4.7's.
pub(crate) const VERSION: i32 = 4;
/// In front of this library's states. No state of libslirp's begins with this letter.
const NAME: &[u8; 12] = b"taut-slirp\0\x01";
/// In front of a connection of libslirp's.
const CONNECTION: u8 = 42;
/// `TCPS_ESTABLISHED`, `TCPS_CLOSE_WAIT`, `SS_FCANTRCVMORE` and `SS_FCANTSENDMORE` of libslirp.
const ESTABLISHED: u16 = 4;
const CLOSE_WAIT: u16 = 5;
const CANT_RECV: u32 = 8;
const CANT_SEND: u32 = 16;
/// Bytes of one connection's buffer, and connections, that are believed.
const BYTES_MAX: u32 = 16 << 20;
const COUNT_MAX: u32 = 1 << 20;
/// Bits of a connection's first byte.
const CONTINUES: u8 = 1;
const IPV6: u8 = 2;
const SCALED: u8 = 4;
const SACK: u8 = 8;
const TIMESTAMPS: u8 = 16;
const PEER_ENDED: u8 = 32;

const NO_STATION: Mac = Mac([0; 6]);

/// A connection of the guest's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Saved {
    pub(crate) conn: Resumed,
    /// The guest's: packets need not wait until it is found, which is for the latest ones only.
    pub(crate) station: Option<Mac>,
    /// It can continue: it is to a caller's service, which has not ended its half.
    pub(crate) continues: bool,
    /// Bytes for the guest that it has not acknowledged.
    pub(crate) down: Vec<u8>,
    /// Bytes of the guest's that the service has not got. This library leaves none.
    pub(crate) up: Vec<u8>,
}

/// The state.
pub(crate) fn write(all: &[Saved]) -> Vec<u8> {
    let mut out = NAME.to_vec();
    out.extend((all.len() as u32).to_be_bytes());
    for Saved { conn, station, continues, down, .. } in all {
        let bit = |is_set: bool, bit: u8| if is_set { bit } else { 0 };
        let is_v6 = conn.local.is_ipv6();
        let scaled = bit(conn.scales.is_some(), SCALED) | bit(conn.timestamps.is_some(), TIMESTAMPS);
        let ended = bit(conn.peer_ended, PEER_ENDED);
        out.push(bit(*continues, CONTINUES) | bit(is_v6, IPV6) | bit(conn.sack, SACK) | scaled | ended);
        for at in [conn.local, conn.peer] {
            match at.ip() {
                IpAddr::V4(ip) => out.extend(ip.octets()),
                IpAddr::V6(ip) => out.extend(ip.octets()),
            }
            out.extend(at.port().to_be_bytes());
        }
        out.extend(station.unwrap_or(NO_STATION).0);
        let (own, peers) = conn.timestamps.unwrap_or_default();
        for number in [conn.snd_una, conn.snd_nxt, conn.rcv_nxt, conn.snd_wnd, own, peers] {
            out.extend(number.to_be_bytes());
        }
        out.extend(conn.mss.to_be_bytes());
        let (own, peers) = conn.scales.unwrap_or_default();
        out.extend([own, peers]);
        out.extend((down.len() as u32).to_be_bytes());
        out.extend(down);
    }
    out
}

/// Reads a state of this version from a function that fills memory; `None` if it is none.
pub(crate) fn read(version: i32, fill: &mut dyn FnMut(&mut [u8]) -> bool) -> Option<Vec<Saved>> {
    if version > VERSION {
        return None;
    }
    let mut from = Reader { fill };
    match from.bytes::<1>()?[0] {
        first if first == NAME[0] => {
            if from.bytes::<11>()?[..] != NAME[1..] {
                return None;
            }
            let count = from.u32().filter(|count| *count <= COUNT_MAX)?;
            (0..count).map(|_| from.connection()).collect()
        }
        mut more => {
            let mut all = Vec::new();
            while more != 0 {
                let one =
                    if more == CONNECTION { from.connection_of_libslirp(version)? } else { return None };
                all.push(one);
                more = from.bytes::<1>()?[0];
            }
            // The number of the next packet, and the stations that have leases.
            let rest = match version {
                ..2 => 0,
                2 => 2,
                _ => 2 + 16 * 8,
            };
            from.vec(rest).map(|_| all)
        }
    }
}

struct Reader<'a> {
    fill: &'a mut dyn FnMut(&mut [u8]) -> bool,
}

impl Reader<'_> {
    fn bytes<const N: usize>(&mut self) -> Option<[u8; N]> {
        let mut bytes = [0; N];
        (self.fill)(&mut bytes).then_some(bytes)
    }

    fn vec(&mut self, len: u32) -> Option<Vec<u8>> {
        let mut bytes = vec![0; usize::try_from(len).ok().filter(|_| len <= BYTES_MAX)?];
        (bytes.is_empty() || (self.fill)(&mut bytes)).then_some(bytes)
    }

    fn u16(&mut self) -> Option<u16> {
        self.bytes().map(u16::from_be_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.bytes().map(u32::from_be_bytes)
    }

    fn address(&mut self, is_v6: bool) -> Option<SocketAddr> {
        let ip = if is_v6 { IpAddr::from(self.bytes::<16>()?) } else { IpAddr::from(self.bytes::<4>()?) };
        Some(SocketAddr::new(ip, self.u16()?))
    }

    fn connection(&mut self) -> Option<Saved> {
        let [bits] = self.bytes()?;
        let (local, peer) = (self.address(bits & IPV6 != 0)?, self.address(bits & IPV6 != 0)?);
        let station = Some(Mac(self.bytes()?)).filter(|station| *station != NO_STATION);
        let (snd_una, snd_nxt, rcv_nxt, snd_wnd) = (self.u32()?, self.u32()?, self.u32()?, self.u32()?);
        let timestamps = (self.u32()?, self.u32()?);
        let mss = self.u16()?;
        let [own, peers] = self.bytes()?;
        let conn = Resumed {
            local,
            peer,
            snd_una,
            snd_nxt,
            rcv_nxt,
            peer_ended: bits & PEER_ENDED != 0,
            snd_wnd,
            mss,
            scales: (bits & SCALED != 0).then_some((own, peers)),
            sack: bits & SACK != 0,
            timestamps: (bits & TIMESTAMPS != 0).then_some(timestamps),
        };
        let len = self.u32()?;
        let continues = bits & CONTINUES != 0;
        Some(Saved { conn, station, continues, down: self.vec(len)?, up: Vec::new() })
    }

    // ---- libslirp's: the fields of its sockets, buffers and control blocks, in its order ----

    fn connection_of_libslirp(&mut self, version: i32) -> Option<Saved> {
        self.u32()?;
        let (local, peer) = if version < 4 {
            let ips = [self.place()?, self.place()?];
            let [to, from] = [self.port()?, self.port()?];
            (SocketAddr::new(ips[0], to), SocketAddr::new(ips[1], from))
        } else {
            (self.address_of_libslirp()?, self.address_of_libslirp()?)
        };
        let [_tos, _emu, _kind, state @ ..] = self.bytes::<7>()?;
        let flags = u32::from_be_bytes(state);
        let (up, down) = (self.buffer()?, self.buffer()?);
        // Its state, timers and counts; behind the segment size, two kinds of flags.
        let (state, _) = (self.u16()?, self.bytes::<14>()?);
        let (mss, _) = (self.u16()?, self.bytes::<3>()?);
        let (snd_una, snd_nxt) = (self.u32()?, self.u32()?);
        // SND.UP, WL1, WL2, ISS.
        let (_, snd_wnd) = (self.bytes::<16>()?, self.u32()?);
        // RCV.WND; behind RCV.NXT all that congestion control and timers have measured.
        let (_, rcv_nxt, _) = (self.u32()?, self.u32()?, self.bytes::<24>()?);
        let _measured = self.bytes::<38>()?;
        // Neither windows are scaled nor timestamps sent.
        let conn = Resumed {
            local,
            peer,
            snd_una,
            snd_nxt,
            rcv_nxt,
            peer_ended: state == CLOSE_WAIT,
            snd_wnd,
            mss,
            scales: None,
            sack: false,
            timestamps: None,
        };
        // In CLOSE_WAIT, the service can get no more, and the guest can.
        let continues = match state {
            ESTABLISHED => flags & (CANT_RECV | CANT_SEND) == 0,
            CLOSE_WAIT => flags & CANT_RECV == 0,
            _ => false,
        };
        Some(Saved { conn, station: None, continues, down, up })
    }

    /// An address in the order of the network, which was written as a number of the machine's.
    fn place(&mut self) -> Option<IpAddr> {
        Some(Ipv4Addr::from(self.u32()?.to_ne_bytes()).into())
    }

    fn port(&mut self) -> Option<u16> {
        self.u16().map(u16::from_be)
    }

    fn address_of_libslirp(&mut self) -> Option<SocketAddr> {
        // Of IPv6, nothing would follow.
        const IPV4: u16 = 2;
        self.u16().filter(|family| *family == IPV4)?;
        Some(SocketAddr::new(self.place()?, self.port()?))
    }

    /// The content of a ring.
    fn buffer(&mut self) -> Option<Vec<u8>> {
        let (count, len, _, first) = (self.u32()?, self.u32()?, self.u32()?, self.u32()?);
        let mut ring = self.vec(len)?;
        let (count, first) = (count as usize, first as usize);
        if first >= ring.len() || count > ring.len() {
            return None;
        }
        ring.rotate_left(first);
        ring.truncate(count);
        Some(ring)
    }
}
