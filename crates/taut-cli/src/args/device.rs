//! `--device`: the kinds of devices.
//!
//! Called by `link.rs`.

use std::str::FromStr;

use crate::args::frame_source::FrameSource;
use crate::args::tunnel::Tunnel;

/// The device of a command's stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DeviceArg {
    /// A TUN interface: `--tun` names it.
    Tun,
    /// This Ethernet interface, by packet sockets.
    Packet(String),
    /// The same, by an `AF_XDP` socket.
    Xdp(String),
    /// Frames over a descriptor.
    Frames(FrameSource),
    /// A WireGuard tunnel.
    WireGuard(Tunnel),
}

impl DeviceArg {
    /// Whether the kernel is the other end of the link, with an address that taut gives it.
    pub(crate) const fn has_kernel_side(&self) -> bool {
        match self {
            Self::Tun => true,
            Self::Packet(_) | Self::Xdp(_) | Self::WireGuard(_) => false,
            Self::Frames(source) => source.is_interface(),
        }
    }
}

impl FromStr for DeviceArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            None if text == "tun" => Ok(Self::Tun),
            Some(("packet", name)) if !name.is_empty() => Ok(Self::Packet(name.to_owned())),
            Some(("wireguard", path)) if !path.is_empty() => Tunnel::read(path).map(Self::WireGuard),
            Some(("xdp", name)) if !name.is_empty() => Ok(Self::Xdp(name.to_owned())),
            Some((kind, place)) if !place.is_empty() => {
                FrameSource::parse(kind, place).map(Self::Frames).ok_or_else(|| DEVICES.to_owned())
            }
            _ => Err(DEVICES.to_owned()),
        }
    }
}

/// The values of `--device`.
const DEVICES: &str = "write tun, packet:INTERFACE for an Ethernet interface, such as packet:eth0, xdp:INTERFACE, tap:NAME, \
    stream:PATH, stream-listen:PATH, dgram:PATH or dgram-listen:PATH for a socket that carries frames, fd:NUMBER, or \
    wireguard:FILE for a tunnel";
