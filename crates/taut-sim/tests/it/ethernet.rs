//! Hosts on an Ethernet behind a switch: they get their addresses by DHCP, find each other by ARP and
//! neighbour discovery, and speak TCP.

use std::net::{IpAddr, SocketAddr};

use taut_core::{ConnId, ConnOptions, Duration, ListenOptions, Stack};
use taut_ethernet::{EthernetConfig, Network};
use taut_sim::ethernet::{Port, Segment};

const BYTES: usize = 300_000;

/// A connection from one host to another over the segment; how many bytes arrived.
fn transfer(segment: &mut Segment, from: Port, to: Port, at: SocketAddr) -> usize {
    let listener = segment.at(to).stack.listen(at, ListenOptions::default()).unwrap();
    let now = segment.now();
    let conn = segment.at(from).stack.connect(now, at, &ConnOptions::default()).unwrap();
    let (mut left, mut read, mut accepted) = (BYTES, 0, None::<ConnId>);
    segment.run_for(Duration::from_secs(20), |now, port, stack: &mut Stack| {
        let mut buf = [7; 10_000];
        if port == from
            && left > 0
            && let Some(mut conn) = stack.conn_mut(conn)
        {
            let part = left.min(buf.len());
            left -= conn.write(now, &buf[..part]).unwrap_or(0);
        }
        if port == to {
            accepted = accepted.or_else(|| stack.accept(listener).map(|(id, _)| id));
            if let Some(mut conn) = accepted.and_then(|id| stack.conn_mut(id)) {
                while let Ok(count @ 1..) = conn.read(now, &mut buf) {
                    read += count;
                }
            }
        }
    });
    read
}

/// Three hosts without addresses and a server, in some order of the ports.
fn leased(seed: u8) -> (Segment, Vec<Port>) {
    let mut segment = Segment::new(seed, Duration::from_micros(50));
    let config = || EthernetConfig { dhcp: true, groups: true, ..EthernetConfig::default() };
    let mut hosts = vec![segment.host(config())];
    segment.server();
    hosts.extend([segment.host(config()), segment.host(config())]);
    segment.run_for(Duration::from_secs(12), |_, _, _| ());
    (segment, hosts)
}

fn address(segment: &mut Segment, port: Port) -> IpAddr {
    segment.at(port).stack.networks().next().expect("a lease").address
}

#[test]
fn hosts_get_addresses_find_each_other_and_speak_tcp() {
    let (mut segment, hosts) = leased(1);
    let mut all: Vec<_> = hosts.iter().map(|port| address(&mut segment, *port)).collect();
    for (port, own) in hosts.iter().zip(&all) {
        let lease = segment.at(*port).stack.lease(segment_now(1)).is_some();
        assert!(lease && own.to_string().starts_with("10.9.0.1"), "{own}");
    }
    let to = SocketAddr::new(all[2], 80);
    all.sort();
    all.dedup();
    assert_eq!(all.len(), 3, "each has its own");
    let before = segment.counts();
    assert_eq!(transfer(&mut segment, hosts[0], hosts[2], to), BYTES);
    let counts = segment.counts();
    assert!(counts.forwarded - before.forwarded > 300, "{counts:?}");
    assert!(counts.flooded - before.flooded < 10, "an ARP request, and nothing of the transfer: {counts:?}");
    // The lease of an hour is renewed at its half.
    segment.run_for(Duration::from_secs(2_000), |_, _, _| ());
    assert!(hosts.iter().all(|port| segment.at(*port).stack.counters().dhcp_leases == 2));
}

/// Any time of the beginning, for a report of what is left.
fn segment_now(seconds: u64) -> taut_core::Instant {
    taut_sim::BEGIN + Duration::from_secs(seconds)
}

#[test]
fn neighbour_discovery_behind_the_switch() {
    let mut segment = Segment::new(2, Duration::from_micros(50));
    let config = |host: &str| {
        let networks = vec![Network { address: host.parse().unwrap(), prefix: 64 }];
        EthernetConfig { networks, groups: true, ..EthernetConfig::default() }
    };
    let (a, b) = (segment.host(config("fd09::1")), segment.host(config("fd09::2")));
    segment.host(config("fd09::3"));
    assert_eq!(transfer(&mut segment, a, b, "[fd09::2]:80".parse().unwrap()), BYTES);
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let run = |seed| {
        let (mut segment, hosts) = leased(seed);
        let to = SocketAddr::new(address(&mut segment, hosts[1]), 80);
        transfer(&mut segment, hosts[0], hosts[1], to);
        (segment.counts(), segment.now())
    };
    assert_eq!(run(3), run(3));
}
