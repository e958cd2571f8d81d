//! A stack with sockets of UDP and ping, and a filter for flows of both: random calls, fragments, datagrams,
//! ICMP messages and raw packets. Nothing panics; what it holds is bounded; and when everything is closed and
//! time has passed, nothing is left.
#![no_main]

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use taut_core::{
    DatagramFlowOptions, DatagramId, DatagramKind, DatagramOptions, Duration, Fate, FlowFilter, FlowKind,
    IncomingOptions, Instant, LinkCaps, ListenerId, Refusal, SendMeta, Stack, StackConfig,
};
use taut_fuzz::{Input, give};
use taut_wire::{Ecn, Fragment, IpHeader, UdpHeader, fragment, icmp, protocol, udp};

const OURS: [IpAddr; 2] = [
    IpAddr::V4(std::net::Ipv4Addr::new(10, 9, 0, 2)),
    IpAddr::V6(std::net::Ipv6Addr::new(0xfd09, 0, 0, 0, 0, 0, 0, 2)),
];

fn peer(number: u8, is_v6: bool) -> IpAddr {
    if is_v6 { [0xfd, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, number].into() } else { [10, 9, 1, number].into() }
}

/// A packet of a peer, whole or a part of it.
fn packet(src: IpAddr, dst: IpAddr, upper: u8, data: &[u8], part: Option<(u32, usize, bool)>) -> Vec<u8> {
    let ip = IpHeader {
        src,
        dst,
        protocol: upper,
        hop_limit: 64,
        ecn: Ecn::NotEct,
        header_len: 0,
        payload_len: data.len(),
    };
    let mut bytes = vec![0; 48];
    let len = match part {
        Some((ident, offset, more)) => fragment::emit(&ip, &mut bytes, ident, offset, more),
        None => ip.emit(&mut bytes, 0),
    };
    bytes.truncate(len);
    bytes.extend_from_slice(data);
    bytes
}

struct World {
    stack: Stack,
    now: Instant,
    sockets: Vec<DatagramId>,
    filter: Option<ListenerId>,
}

fn act(input: &mut Input<'_>, world: &mut World) -> Option<()> {
    let World { stack, now, sockets, filter } = world;
    let (what, who) = (input.byte()?, input.byte()?);
    let is_v6 = who & 1 != 0;
    let (own, other) = (OURS[usize::from(is_v6)], peer(who >> 5, is_v6));
    let socket = sockets.get(usize::from(who >> 1) % sockets.len().max(1)).copied();
    // Somebody else's address, which a filter may have.
    let own = match own {
        IpAddr::V4(_) if filter.is_some() && who & 16 != 0 => [203, 0, 113, 7].into(),
        own => own,
    };
    match what % 14 {
        0 | 1 => {
            let len = usize::from(input.byte()?);
            let mut data = vec![0; 8];
            data.extend(input.bytes(len));
            let header = UdpHeader {
                src_port: input.byte()?.into(),
                dst_port: 2_000 + u16::from(who >> 4),
                len: data.len() as u16,
            };
            header.emit(&mut data);
            let sum = udp::full_checksum(other, own, &data, &[]);
            udp::set_checksum(&mut data, sum);
            give(stack, *now, &packet(other, own, protocol::UDP, &data, None));
        }
        2..=4 => {
            let (ident, offset, len) = (input.byte()?, input.word()?, usize::from(input.byte()?));
            let data = input.bytes(len);
            let part = (u32::from(ident), usize::from(offset & 0x1fff) * 8, what & 128 != 0);
            give(stack, *now, &packet(other, own, protocol::UDP, &data, Some(part)));
        }
        5 => {
            let len = usize::from(input.byte()?);
            let mut message = input.bytes(len);
            if message.len() >= 8 && what & 128 != 0 {
                icmp::finish_echo_request(&mut message, other, own, 7);
            }
            let upper = if is_v6 { protocol::ICMPV6 } else { protocol::ICMP };
            give(stack, *now, &packet(other, own, upper, &message, None));
        }
        6 => {
            let len = usize::from(input.word()? & 0x3ff);
            let bytes = input.bytes(len);
            let _ = Fragment::parse(&bytes);
            give(stack, *now, &bytes);
        }
        7 if sockets.len() < 16 => {
            let kind = if what & 16 == 0 { DatagramKind::Udp } else { DatagramKind::Ping };
            let at = SocketAddr::new(own, if what & 32 == 0 { 0 } else { 2_000 + u16::from(who >> 4) });
            let options = DatagramOptions { recv_errors: what & 64 != 0, ..DatagramOptions::default() };
            sockets.extend(stack.open_datagram(kind, at, &options));
        }
        8 => {
            let (len, segment, tos) = (input.word()?, input.word()?, input.byte()?);
            let meta = SendMeta {
                tos: Some(tos),
                segment: (what & 64 != 0).then_some(segment),
                departure: (what & 128 != 0).then(|| *now + Duration::from_micros(segment.into())),
                ..SendMeta::default()
            };
            let to = SocketAddr::new(other, 9);
            let mut message = vec![0; usize::from(len)];
            message.get_mut(..8)?.copy_from_slice(&icmp::echo_request(!is_v6, 1));
            let _ = stack.send_datagram(*now, socket?, Some(to), &message, &meta);
        }
        9 => {
            let _ = stack.recv_datagram(socket?, &mut [0; 300], what & 16 != 0);
            let _ = stack.recv_datagram_error(socket?);
            if what & 32 != 0 {
                let to = (what & 64 != 0).then(|| SocketAddr::new(other, 9));
                let _ = stack.connect_datagram(socket?, to);
            }
        }
        10 => {
            let fate = [Fate::Left, Fate::Refused, Fate::Dropped][usize::from(who % 3)];
            for _ in 0..who {
                let Some(transmit) = stack.poll_transmit(*now) else { break };
                assert!(transmit.packet.len() <= 1_500);
                let ticket = transmit.ticket;
                stack.handle_tx(*now, ticket, fate);
            }
        }
        11 => match *filter {
            None => {
                let limits = u32::from(input.byte()?);
                let datagrams = DatagramFlowOptions {
                    max_pending: limits >> 4,
                    max_flows: limits & 15,
                    queued_bytes: limits << 6,
                    idle_timeout: Duration::from_millis(limits.into()),
                    ..DatagramFlowOptions::default()
                };
                let options = IncomingOptions { datagrams, ..IncomingOptions::default() };
                let kinds = [FlowKind::Tcp, FlowKind::Udp, FlowKind::Echo];
                *filter = stack.incoming(FlowFilter::any().kinds(kinds), options).ok();
            }
            Some(id) if what & 64 != 0 => {
                stack.close_listener(*now, id);
                *filter = None;
            }
            Some(_) => drop(stack.refuse_datagrams(*now, socket?, Refusal::PortUnreachable)),
        },
        12 => {
            let id = stack.next_flow((*filter)?).or_else(|| stack.flows().next())?.id;
            match what >> 6 {
                0 => drop(stack.drop_flow(*now, id)),
                1 => drop(stack.refuse_flow(*now, id, Refusal::HostUnreachable)),
                _ => sockets.extend(stack.accept_datagram_flow(*now, id, None)),
            }
        }
        _ => {
            *now = *now + Duration::from_millis(u64::from(who) * 20);
            stack.handle_timeout(*now);
            while stack.poll_event().is_some() {}
            if what & 128 != 0 && !sockets.is_empty() {
                stack.close_datagram(sockets.swap_remove(usize::from(who) % sockets.len()));
            }
        }
    }
    Some(())
}

fuzz_target!(|data: &[u8]| {
    let config = StackConfig::default().with(|config| config.addresses.extend(OURS));
    let mut world = World {
        stack: Stack::new(Arc::new(config), LinkCaps::plain(1_500), [7; 32]),
        now: Instant::from_nanos(1_000_000_000),
        sockets: Vec::new(),
        filter: None,
    };
    let mut input = Input(data);
    while act(&mut input, &mut world).is_some() {}
    let World { stack, now, sockets, filter } = &mut world;
    for socket in stack.datagrams() {
        // One datagram more than the limits.
        assert!(socket.recv_queue <= socket.rcvbuf + 70_000 && socket.send_queue <= socket.sndbuf + 150_000);
    }
    sockets.drain(..).for_each(|id| stack.close_datagram(id));
    filter.iter().for_each(|&id| stack.close_listener(*now, id));
    assert_eq!(stack.pending_flows(), 0);
    *now = *now + Duration::from_secs(100);
    stack.handle_timeout(*now);
    while let Some(transmit) = stack.poll_transmit(*now) {
        let ticket = transmit.ticket;
        stack.handle_tx(*now, ticket, Fate::Left);
    }
    while stack.poll_event().is_some() {}
    assert!(stack.poll_timeout().is_none() && !stack.awaits_tickets() && stack.datagrams().count() == 0);
});
