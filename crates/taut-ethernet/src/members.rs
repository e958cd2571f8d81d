//! The groups of this host on an Ethernet: those of its addresses and of its owner, queries that arrive, and
//! reports that leave. RFC 3376, RFC 3810; RFC 4861 §7.2.1 (the group of each IPv6 address). Part of
//! [`Ethernet`]; `groups.rs` decides when.

use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use taut_wire::{EthernetHeader, GroupQuery, IpHeader, ether_type, ethernet, membership, ndp};

use crate::ethernet::{Ethernet, FRAME_MAX, station_of};
use crate::groups::Report;
use crate::routers::LINK_LOCAL;
use taut_core::Instant;

const _: () = assert!(ethernet::HEADER_LEN + membership::LEN_MAX <= FRAME_MAX);

impl<P> Ethernet<P> {
    /// The host's owner is a member of this group from now on, or no more, once for each call.
    pub(crate) fn change_group(&mut self, now: Instant, group: IpAddr, joins: bool) {
        let Some(groups) = &mut self.groups else { return };
        if joins {
            // Without a place for it, switches that deliver to members only may keep it away.
            groups.join(now, group);
        } else {
            groups.leave(now, group);
        }
        groups.handle_timeout(now);
    }

    /// Says what is due, of the groups of the addresses that the host has or checks, too: questions about
    /// them go there.
    pub(crate) fn report_groups(&mut self, now: Instant) {
        let Some(groups) = &mut self.groups else { return };
        let group = |address: IpAddr| match address {
            IpAddr::V4(_) => None,
            IpAddr::V6(v6) => Some(IpAddr::V6(ndp::solicited_node(v6))),
        };
        let own: Vec<_> = self.own.all().filter_map(|own| group(own.address)).collect();
        groups.set_own(now, &own);
        groups.handle_timeout(now);
    }

    /// Takes a packet that is a query of the link. Others are left to the stack.
    pub(crate) fn take_query(&mut self, now: Instant, packet: &[u8]) -> bool {
        let Some(groups) = &mut self.groups else { return false };
        if !GroupQuery::may_be(packet) {
            return false;
        }
        let Ok(query) = GroupQuery::parse(packet) else {
            // Reports of others are for nobody else here; a packet with options for each hop may be anything.
            return IpHeader::parse(packet).is_ok_and(|ip| ip.protocol == membership::IGMP);
        };
        groups.on_query(now, packet[0] >> 4 == 4, &query);
        true
    }

    /// Writes the next report, and returns the length of its frame.
    pub(crate) fn poll_report(&mut self, buf: &mut [u8; FRAME_MAX]) -> Option<usize> {
        let report = self.groups.as_mut()?.poll_report()?;
        let group = match &report {
            Report::New(records) => records.first()?.group(),
            Report::Old(record) => record.group(),
        };
        let src = self.reporter(group.is_ipv4());
        let (link, packet) = buf.split_at_mut(ethernet::HEADER_LEN);
        let len = match report {
            Report::New(records) => membership::emit_report(packet, src, &records),
            Report::Old(record) => membership::emit_old_report(packet, src, record),
        };
        let dst = IpHeader::parse(packet.get(..len)?).ok()?.dst;
        let ether_type = if src.is_ipv4() { ether_type::IPV4 } else { ether_type::IPV6 };
        link.copy_from_slice(
            &EthernetHeader { dst: station_of(dst), src: self.config.mac, ether_type }.emit(),
        );
        Some(ethernet::HEADER_LEN + len)
    }

    /// The source of reports: RFC 3376 §4.2.13, RFC 3810 §5.2.13. Nobody, as long as there is none.
    fn reporter(&self, is_v4: bool) -> IpAddr {
        let mut own = self.own.used().map(|own| own.address);
        if is_v4 {
            own.find(IpAddr::is_ipv4).unwrap_or(Ipv4Addr::UNSPECIFIED.into())
        } else {
            own.find(|ip| LINK_LOCAL.contains(*ip)).unwrap_or(Ipv6Addr::UNSPECIFIED.into())
        }
    }
}
