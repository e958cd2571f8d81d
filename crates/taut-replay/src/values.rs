//! What the inputs are made of: options, changes of the network, filters. A new field or choice is one word
//! here.

use std::net::IpAddr;

use taut_core::config::MemoryUse;
use taut_core::{
    Algorithm, ConnOptions, DatagramFlowOptions, DatagramKind, DatagramOption, DatagramOptions, FastOpenKeys,
    FastOpenListen, Fate, FlowFilter, FlowKind, IncomingOptions, IpPrefix, Keepalive, Lease, ListenOptions,
    MtuDiscovery, Network, NetworkChange, Refusal, Route, SendMeta, SetOption, WriteFlags,
};

use crate::codec::{Coded, Cursor, Trouble, choices, fields, put_bytes};

fields! {
    // Of connections and listeners.
    Keepalive { idle, interval, count }
    WriteFlags { more, eor }
    ConnOptions {
        bind, nodelay, fast_open, fast_open_no_cookie, tos, notsent_lowat, sndbuf, rcvbuf, max_pacing_rate,
        congestion, keepalive, user_timeout, maxseg,
    }
    FastOpenListen { pending_max, no_cookie, keys }
    ListenOptions { backlog, max_connections, max_per_peer, max_half_open_per_peer, conn, fast_open }
    DatagramFlowOptions {
        max_pending, max_pending_per_peer, max_flows, max_flows_per_peer, pending_bytes, queued_bytes,
        queued_bytes_per_peer, idle_timeout, socket,
    }
    IncomingOptions {
        max_pending, max_pending_per_peer, max_connections, max_per_peer, timeout, cookies_when_full, conn,
        datagrams,
    }
    // Of datagram sockets.
    DatagramOptions {
        sndbuf, rcvbuf, ttl, tos, mtu_discovery, max_pacing_rate, gro, recv_errors, only_v6, multicast_ttl,
    }
    SendMeta { ttl, tos, src, segment, departure }
    // Of the network.
    Network { address, prefix }
    Route { to, via, source }
    Lease { network, server, renews_in, ends_in }
    MemoryUse { bytes, connections }
}

choices! {
    SetOption, "socket option" {
        0 = Nodelay(on);
        1 = Cork(on);
        2 = Quickack(on);
        3 = NotsentLowat(bytes);
        4 = Sndbuf(bytes);
        5 = Rcvbuf(bytes);
        6 = MaxPacingRate(rate);
        7 = TxDelay(delay);
        8 = Tos(tos);
        9 = Congestion(algorithm);
        10 = Keepalive(keepalive);
        11 = UserTimeout(timeout);
    }
    DatagramOption, "option of a datagram socket" {
        0 = Sndbuf(bytes);
        1 = Rcvbuf(bytes);
        2 = Ttl(ttl);
        3 = Tos(tos);
        4 = MtuDiscovery(how);
        5 = MaxPacingRate(rate);
        7 = Gro(on);
        8 = RecvErrors(on);
        9 = JoinGroup(group);
        10 = LeaveGroup(group);
        11 = MulticastTtl(ttl);
    }
    DatagramKind, "kind of datagram socket" { 0 = Udp; 1 = Ping; 2 = Echo; }
    MtuDiscovery, "way of MTU discovery" { 0 = Dont; 1 = Want; 2 = Do; 3 = Probe; }
    FlowKind, "kind of flow" { 0 = Tcp; 1 = Udp; 2 = Echo; }
    Fate, "fate" { 0 = Left; 1 = Refused; 2 = Dropped; }
    Refusal, "refusal" {
        0 = Reset;
        1 = PortUnreachable;
        2 = HostUnreachable;
        3 = NetworkUnreachable;
        4 = Prohibited;
        5 = TimeExceeded;
        6 = TooBig { mtu };
    }
    NetworkChange, "change of the network" {
        0 = AddAddress(own);
        1 = RemoveAddress(address);
        2 = Deprecate { address, deprecated };
        3 = AddRoute(route);
        4 = RemoveRoute(route);
        5 = SetMtu(mtu);
        6 = AddNameServer(server);
        7 = RemoveNameServer(server);
        8 = SetLease(lease);
        9 = JoinGroup(group);
        10 = LeaveGroup(group);
    }
}

impl<'a> Coded<'a> for Algorithm {
    fn put(&self, out: &mut Vec<u8>) {
        put_bytes(out, self.to_string().as_bytes());
    }

    fn get(cursor: &mut Cursor<'a>) -> Result<Self, Trouble> {
        let name = cursor.text()?;
        cursor.registry.algorithm(name).or_else(|error| Trouble::wrong(error.to_string()))
    }
}

impl<'a> Coded<'a> for FastOpenKeys {
    fn put(&self, out: &mut Vec<u8>) {
        put_bytes(out, self.to_string().as_bytes());
    }

    fn get(cursor: &mut Cursor<'a>) -> Result<Self, Trouble> {
        cursor.text()?.parse().or_else(Trouble::wrong)
    }
}

impl<'a> Coded<'a> for FlowFilter {
    fn put(&self, out: &mut Vec<u8>) {
        self.prefixes.len().put(out);
        for prefix in &self.prefixes {
            prefix.address().put(out);
            prefix.prefix_len().put(out);
        }
        self.ports.len().put(out);
        for ports in &self.ports {
            ports.start().put(out);
            ports.end().put(out);
        }
        self.kinds.len().put(out);
        self.kinds.iter().for_each(|kind| kind.put(out));
    }

    fn get(cursor: &mut Cursor<'a>) -> Result<Self, Trouble> {
        let mut filter = Self::any();
        for _ in 0..cursor.number()? {
            let (address, len) = (IpAddr::get(cursor)?, cursor.byte()?);
            filter = match IpPrefix::new(address, len) {
                Some(prefix) => filter.prefix(prefix),
                None => return Trouble::wrong(format!("a prefix of {len} bits")),
            };
        }
        for _ in 0..cursor.number()? {
            filter = filter.ports(cursor.small()?..=cursor.small()?);
        }
        for _ in 0..cursor.number()? {
            filter = filter.kinds([FlowKind::get(cursor)?]);
        }
        Ok(filter)
    }
}

#[cfg(test)]
mod tests {
    use taut_core::congestion::Registry;
    use taut_core::{Duration, Instant};

    use super::*;

    /// What is read of a value's bytes.
    fn again<T: for<'a> Coded<'a>>(value: &T) -> T {
        let mut out = Vec::new();
        value.put(&mut out);
        let registry = Registry::default();
        let mut cursor = Cursor::new(&out, &registry);
        let again = T::get(&mut cursor).unwrap();
        assert_eq!(cursor.at(), out.len());
        // Cut anywhere, it is too short, and never something else.
        for end in 0..out.len() {
            let cut = T::get(&mut Cursor::new(&out[..end], &registry));
            assert_eq!(cut.err(), Some(Trouble::Short), "{end}");
        }
        again
    }

    fn whole() -> ConnOptions {
        ConnOptions {
            bind: Some("[fd00::2]:99".parse().unwrap()),
            nodelay: true,
            notsent_lowat: 1,
            sndbuf: Some(2),
            rcvbuf: Some(3),
            max_pacing_rate: Some(u64::MAX - 1),
            congestion: Some(Algorithm::bbr()),
            keepalive: Some(Keepalive {
                idle: Duration::from_secs(1),
                interval: Duration::from_millis(1_500),
                count: 7,
            }),
            user_timeout: Some(Duration::from_nanos(4)),
            maxseg: Some(1_000),
            tos: 0xb8,
            fast_open: true,
            fast_open_no_cookie: true,
        }
    }

    #[test]
    fn options_come_back_whole() {
        for options in [ConnOptions::default(), whole()] {
            let again = again(&options);
            assert_eq!(format!("{again:?}"), format!("{options:?}"));
        }
        let keys = Some("00000001-00000002-00000003-00000004".parse().unwrap());
        let fast_open = FastOpenListen { pending_max: 5, no_cookie: true, keys };
        let options = ListenOptions { backlog: 1, conn: whole(), fast_open, ..ListenOptions::default() };
        let other = again(&options);
        assert_eq!(format!("{other:?}"), format!("{options:?}"));
        assert_eq!(other.fast_open, options.fast_open);
    }

    #[test]
    fn filters_and_refusals_come_back() {
        for (prefixes, ports) in
            [(vec![], vec![]), (vec![("10.0.0.0", 8), ("fd00::", 7)], vec![(80, 80), (0, u16::MAX)])]
        {
            let mut filter = FlowFilter::any();
            for (address, len) in prefixes {
                filter = filter.prefix(IpPrefix::new(address.parse().unwrap(), len).unwrap());
            }
            for (first, last) in ports {
                filter = filter.ports(first..=last).kinds([FlowKind::Echo, FlowKind::Tcp, FlowKind::Udp]);
            }
            assert_eq!(again(&filter), filter);
        }
        let options = IncomingOptions {
            max_pending: 1,
            max_pending_per_peer: 2,
            max_connections: 3,
            max_per_peer: 4,
            timeout: Duration::from_millis(5),
            cookies_when_full: true,
            conn: whole(),
            datagrams: DatagramFlowOptions {
                max_pending: 6,
                max_pending_per_peer: 7,
                max_flows: 8,
                max_flows_per_peer: 9,
                pending_bytes: 10,
                queued_bytes: 11,
                queued_bytes_per_peer: 12,
                idle_timeout: Duration::from_millis(13),
                socket: taut_core::DatagramOptions { tos: 14, ..taut_core::DatagramOptions::default() },
            },
        };
        let other = again(&options);
        assert_eq!(format!("{other:?}"), format!("{options:?}"));
        for how in [
            Refusal::Reset,
            Refusal::PortUnreachable,
            Refusal::HostUnreachable,
            Refusal::NetworkUnreachable,
            Refusal::Prohibited,
            Refusal::TimeExceeded,
            Refusal::TooBig { mtu: 1_400 },
        ] {
            assert_eq!(again(&how), how);
        }
    }

    #[test]
    fn each_option_that_is_set_comes_back() {
        let all = [
            SetOption::Nodelay(true),
            SetOption::Cork(false),
            SetOption::Quickack(true),
            SetOption::NotsentLowat(1),
            SetOption::Sndbuf(2),
            SetOption::Rcvbuf(u32::MAX),
            SetOption::MaxPacingRate(u64::MAX),
            SetOption::TxDelay(Duration::from_millis(3)),
            SetOption::Congestion(Algorithm::reno()),
            SetOption::Keepalive(whole().keepalive),
            SetOption::Keepalive(None),
            SetOption::UserTimeout(Some(Duration::from_secs(9))),
            SetOption::UserTimeout(None),
            SetOption::Tos(255),
        ];
        for option in all {
            assert_eq!(again(&option), option);
        }
    }

    #[test]
    fn options_and_meta_data_come_back() {
        let options = DatagramOptions {
            sndbuf: Some(7),
            ttl: Some(3),
            tos: 0xb9,
            mtu_discovery: MtuDiscovery::Probe,
            max_pacing_rate: Some(u64::MAX),
            recv_errors: true,
            multicast_ttl: Some(5),
            ..DatagramOptions::default()
        };
        let meta_data = SendMeta {
            tos: Some(1),
            src: Some([10, 0, 0, 1].into()),
            segment: Some(1_200),
            departure: Some(Instant::from_nanos(9)),
            ..SendMeta::default()
        };
        let sets = [
            DatagramOption::Sndbuf(1),
            DatagramOption::Rcvbuf(2),
            DatagramOption::Ttl(3),
            DatagramOption::Tos(4),
            DatagramOption::MtuDiscovery(MtuDiscovery::Dont),
            DatagramOption::MaxPacingRate(None),
            DatagramOption::MaxPacingRate(Some(0)),
            DatagramOption::Gro(true),
            DatagramOption::RecvErrors(false),
            DatagramOption::JoinGroup([224, 0, 0, 251].into()),
            DatagramOption::LeaveGroup(std::net::Ipv6Addr::LOCALHOST.into()),
            DatagramOption::MulticastTtl(9),
        ];
        assert_eq!(again(&options), options);
        assert_eq!(again(&meta_data), meta_data);
        for option in sets {
            assert_eq!(again(&option), option);
        }
    }

    #[test]
    fn each_change_comes_back() {
        let (v4, v6) = ("10.9.0.2".parse().unwrap(), "fd09::2".parse().unwrap());
        let default = Route { to: Network { address: v6, prefix: 0 }, via: Some(v6), source: None };
        let (hour, day) = (Duration::from_secs(3_600), Duration::from_secs(86_400));
        let network = Network { address: v4, prefix: 24 };
        let lease = Lease { network, server: v4, renews_in: Some(hour), ends_in: Some(day) };
        for change in [
            NetworkChange::AddAddress(Network { address: v4, prefix: 24 }),
            NetworkChange::RemoveAddress(v6),
            NetworkChange::Deprecate { address: v4, deprecated: true },
            NetworkChange::Deprecate { address: v6, deprecated: false },
            NetworkChange::AddRoute(default),
            NetworkChange::AddRoute(Route { via: None, source: Some(v6), ..default }),
            NetworkChange::RemoveRoute(default),
            NetworkChange::SetMtu(65_535),
            NetworkChange::AddNameServer(v6),
            NetworkChange::RemoveNameServer(v4),
            NetworkChange::SetLease(None),
            NetworkChange::JoinGroup(v6),
            NetworkChange::LeaveGroup(v4),
            NetworkChange::SetLease(Some(lease)),
            NetworkChange::SetLease(Some(Lease { renews_in: None, ends_in: None, ..lease })),
        ] {
            assert_eq!(again(&change), change);
        }
        let registry = Registry::default();
        assert!(NetworkChange::get(&mut Cursor::new(&[11], &registry)).is_err());
    }
}
