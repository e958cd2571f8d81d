//! How a message becomes packets: one, a super-packet for a device that cuts it, datagrams that are cut here,
//! or fragments. RFC 768, RFC 791 §3.2, RFC 8200 §4.5; Linux: `UDP_SEGMENT` (4.18), `IP_MTU_DISCOVER`. Pure;
//! called by a send.

use taut_wire::{fragment, udp};

use super::{DatagramError, MtuDiscovery};
use crate::words::LinkCaps;

/// The most datagrams of one call. Linux: `UDP_MAX_SEGMENTS`.
pub(crate) const SEGMENTS_MAX: usize = 128;

/// What a message is to become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cut {
    /// One packet.
    Whole {
        /// Routers may not fragment it.
        dont_fragment: bool,
    },
    /// One super-packet, which the device cuts into datagrams of so many bytes.
    Super(u16),
    /// Datagrams of so many bytes, which are cut here.
    Datagrams(u16),
    /// Fragments with so many bytes of the IP packet's payload.
    Fragments(usize),
}

/// What is to be sent, and over what.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Question<'a> {
    pub(crate) is_v4: bool,
    /// Bytes of the message.
    pub(crate) len: usize,
    /// Bytes that the transport puts in front of it.
    pub(crate) transport_len: usize,
    pub(crate) segment: Option<u16>,
    pub(crate) discovery: MtuDiscovery,
    /// What is known about the path.
    pub(crate) path_mtu: u16,
    pub(crate) link: &'a LinkCaps,
}

/// Decides.
pub(crate) fn plan(question: &Question<'_>) -> Result<Cut, DatagramError> {
    let Question { is_v4, len, transport_len, segment, discovery, link, .. } = *question;
    let ip_len = if is_v4 { 20 } else { 40 };
    // IPv4's length counts its own header, IPv6's does not.
    let most = usize::from(u16::MAX) - if is_v4 { ip_len } else { 0 };
    if transport_len + len > most {
        return Err(DatagramError::TooLong);
    }
    let mtu = if discovery == MtuDiscovery::Probe { link.mtu } else { question.path_mtu.min(link.mtu) };
    let mtu = usize::from(mtu);
    if let Some(size) = segment.filter(|&size| usize::from(size) < len) {
        if size == 0 || transport_len != udp::HEADER_LEN || len.div_ceil(size.into()) > SEGMENTS_MAX {
            return Err(DatagramError::Invalid);
        }
        if ip_len + transport_len + usize::from(size) > mtu {
            return Err(DatagramError::TooLong);
        }
        let cuts = link.udp_segments && ip_len + transport_len + len <= link.gso_max_bytes as usize;
        return Ok(if cuts { Cut::Super(size) } else { Cut::Datagrams(size) });
    }
    if ip_len + transport_len + len <= mtu {
        return Ok(Cut::Whole { dont_fragment: discovery != MtuDiscovery::Dont });
    }
    match discovery {
        MtuDiscovery::Do | MtuDiscovery::Probe => Err(DatagramError::TooLong),
        _ if !cfg!(feature = "fragments") => Err(DatagramError::TooLong),
        // RFC 791: eight bytes at least in each fragment.
        MtuDiscovery::Dont | MtuDiscovery::Want => {
            Ok(Cut::Fragments((mtu.saturating_sub(fragment::header_len(is_v4)) & !7).max(8)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(len: usize, change: impl FnOnce(&mut Question<'_>)) -> Result<Cut, DatagramError> {
        let link = LinkCaps::plain(1_500);
        let mut question = Question {
            is_v4: true,
            len,
            transport_len: 8,
            segment: None,
            discovery: MtuDiscovery::Want,
            path_mtu: 1_500,
            link: &link,
        };
        change(&mut question);
        plan(&question)
    }

    #[test]
    fn udp_10_the_largest_datagram() {
        // 65,535 less the headers: 20 + 8 for IPv4; 8 for IPv6, whose length does not count its header.
        assert!(ask(65_507, |_| ()).is_ok());
        assert_eq!(ask(65_508, |_| ()), Err(DatagramError::TooLong));
        assert!(ask(65_527, |question| question.is_v4 = false).is_ok());
        assert_eq!(ask(65_528, |question| question.is_v4 = false), Err(DatagramError::TooLong));
    }

    #[test]
    fn udp_11_what_is_larger_than_the_path() {
        let df = |dont_fragment| Ok(Cut::Whole { dont_fragment });
        // 1500 - 28 = 1472.
        assert_eq!(ask(1_472, |_| ()), df(true));
        // 1480 is a multiple of 8.
        assert_eq!(ask(1_473, |_| ()), Ok(Cut::Fragments(1_480)));
        let with = |len, discovery| ask(len, |question| question.discovery = discovery);
        assert_eq!(with(1_472, MtuDiscovery::Dont), df(false));
        assert_eq!(with(1_473, MtuDiscovery::Dont), Ok(Cut::Fragments(1_480)));
        assert_eq!(with(1_472, MtuDiscovery::Do), df(true));
        assert_eq!(with(1_473, MtuDiscovery::Do), Err(DatagramError::TooLong));
        // IPv6: 1500 - 48 = 1452, less 4.
        assert_eq!(ask(1_453, |question| question.is_v4 = false), Ok(Cut::Fragments(1_448)));
        // A path that is narrower than the link, and a probe of it.
        let narrow = |len, discovery| {
            ask(len, |question| (question.discovery, question.path_mtu) = (discovery, 1_280))
        };
        assert_eq!(narrow(1_300, MtuDiscovery::Do), Err(DatagramError::TooLong));
        assert_eq!(narrow(1_300, MtuDiscovery::Want), Ok(Cut::Fragments(1_256)));
        assert_eq!(narrow(1_300, MtuDiscovery::Probe), df(true));
        assert_eq!(narrow(1_473, MtuDiscovery::Probe), Err(DatagramError::TooLong));
    }

    #[test]
    fn udp_12_several_datagrams_by_one_call() {
        let cut = |len, size| ask(len, |question| question.segment = Some(size));
        assert_eq!(cut(5_000, 1_000), Ok(Cut::Datagrams(1_000)));
        assert_eq!(cut(1_000, 1_000), Ok(Cut::Whole { dont_fragment: true }), "one is no super-packet");
        assert_eq!(cut(5_000, 0), Err(DatagramError::Invalid));
        assert_eq!(cut(5_000, 1_473), Err(DatagramError::TooLong));
        assert_eq!((cut(1_280, 10), cut(1_281, 10)), (Ok(Cut::Datagrams(10)), Err(DatagramError::Invalid)));
        let link = LinkCaps { udp_segments: true, ..LinkCaps::offloading(1_500) };
        let question = Question {
            is_v4: false,
            len: 5_000,
            transport_len: 8,
            segment: Some(1_000),
            discovery: MtuDiscovery::Want,
            path_mtu: 1_500,
            link: &link,
        };
        assert_eq!(plan(&question), Ok(Cut::Super(1_000)));
        assert_eq!(plan(&Question { transport_len: 0, ..question }), Err(DatagramError::Invalid), "a ping");
    }
}
