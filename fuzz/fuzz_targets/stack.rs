//! A whole stack, with random calls, nearly right packets, and raw ones. Nothing panics or loops, work is
//! bounded, and when everything is closed and time has passed, nothing is left.
#![no_main]

use libfuzzer_sys::fuzz_target;
use taut_core::{ConnOptions, Duration, FlowFilter, IncomingOptions, Keepalive, Refusal, SetOption, WriteFlags};
use taut_fuzz::{Input, Peer, give};
use taut_wire::{AccEcn, Flags, TcpOptions, Timestamps};

/// A segment is at most 1,020 steps (WORK-9); so many at once before that counts.
const STEPS: (u64, u64) = (1_020, 50_000);

fn options(input: &mut Input<'_>, peer: &Peer) -> Option<TcpOptions> {
    let mut options = TcpOptions::default();
    let which = input.byte()?;
    if which & 1 != 0 {
        options.timestamps = Some(Timestamps { value: input.long()?, echo: input.long()? });
    }
    if which & 2 != 0 {
        for _ in 0..which >> 6 {
            let left = input.word()?;
            options.sack.push(peer.iss(left.into()), peer.iss(u32::from(left) + u32::from(input.word()?)));
        }
    }
    if which & 4 != 0 {
        options.accecn = Some(AccEcn { ee0b: Some(input.word()?.into()), eceb: None, ee1b: None });
    }
    if which & 8 != 0 {
        (options.mss, options.window_scale) = (Some(input.word()?), Some(input.byte()?));
    }
    Some(options)
}

/// Something about connections to any address: a filter, a SYN or another segment to it, a decision.
fn flow(input: &mut Input<'_>, peer: &mut Peer) -> Option<()> {
    let (what, now) = (input.byte()?, peer.now);
    match what % 8 {
        0 => {
            let limits = u32::from(input.byte()?);
            let options = IncomingOptions {
                max_pending: limits >> 4,
                max_pending_per_peer: limits & 15,
                timeout: Duration::from_millis(input.word()?.into()),
                cookies_when_full: what & 8 != 0,
                ..IncomingOptions::default()
            };
            peer.filters.extend(peer.stack.incoming(FlowFilter::any(), options));
        }
        1..=3 => {
            let flags = if what & 8 == 0 { Flags::SYN } else { Flags::from_bits(input.word()? & 0x1ff) };
            let (seq, ack, port) = (input.word()?, input.word()?, input.byte()?);
            let options = options(input, peer)?;
            let mut bytes = peer.packet(seq.into(), ack.into(), flags, 1_000, options, &[]);
            // Another address and port than the listener's: the last byte, and the low one.
            taut_fuzz::redirect(&mut bytes, [203, 0, 113, what >> 6], port.into());
            peer.give(&bytes);
        }
        4 => {
            for filter in peer.filters.clone() {
                while peer.stack.next_flow(filter).is_some() {}
                if let Some((id, _)) = peer.stack.accept(filter) {
                    peer.stack.conn_mut(id)?.close(now);
                }
            }
        }
        5 => {
            let id = peer.stack.flows().nth(usize::from(input.byte()?))?.id;
            if let Ok(conn) = peer.stack.accept_flow(now, id, None) {
                if what & 8 != 0 {
                    peer.stack.conn_mut(conn)?.close(now);
                } else {
                    peer.stack.conn_mut(conn)?.abort(now);
                }
            }
        }
        6 => {
            let id = peer.stack.flows().nth(usize::from(input.byte()?))?.id;
            match what >> 3 & 3 {
                0 => drop(peer.stack.drop_flow(now, id)),
                1 => drop(peer.stack.refuse_flow(now, id, Refusal::Reset)),
                2 => drop(peer.stack.refuse_flow(now, id, Refusal::HostUnreachable)),
                _ => drop(peer.stack.refuse_flow(now, id, Refusal::PortUnreachable)),
            }
        }
        _ => {
            if let Some(filter) = peer.filters.pop() {
                peer.stack.close_listener(now, filter);
            }
        }
    }
    Some(())
}

fn act(input: &mut Input<'_>, peer: &mut Peer) -> Option<()> {
    let what = input.byte()?;
    let (now, conn) = (peer.now, peer.conn);
    match what % 16 {
        0..=5 => {
            let (seq, ack) = (input.word()?, input.word()?);
            let flags = if what & 16 == 0 { Flags::ACK } else { Flags::from_bits(input.word()? & 0x1ff) };
            let (window, len) = (input.word()?, input.byte()?);
            let options = options(input, peer)?;
            let bytes = peer.packet(seq.into(), ack.into(), flags, window, options, &vec![7; usize::from(len) * 8]);
            peer.give(&bytes);
        }
        6 => {
            let len = usize::from(input.byte()?);
            let bytes = input.bytes(len);
            give(&mut peer.stack, now, &bytes);
        }
        7 | 8 => {
            let (len, flags) = (usize::from(input.word()?), input.byte()?);
            let flags = WriteFlags { more: flags & 1 != 0, eor: flags & 2 != 0 };
            let _ = peer.stack.conn_mut(conn)?.write_with(now, &vec![1; len], flags);
        }
        9 => {
            let mut buffer = vec![0; usize::from(input.word()?)];
            let _ = peer.stack.conn_mut(conn)?.read(now, &mut buffer);
        }
        10 => {
            let value = input.long()?;
            let option = match input.byte()? % 8 {
                0 => SetOption::Nodelay(value & 1 != 0),
                1 => SetOption::Cork(value & 1 != 0),
                2 => SetOption::Quickack(value & 1 != 0),
                3 => SetOption::NotsentLowat(value),
                4 => SetOption::Sndbuf(value),
                5 => SetOption::Rcvbuf(value),
                6 => SetOption::MaxPacingRate(value.into()),
                _ => SetOption::Keepalive(Some(Keepalive {
                    idle: Duration::from_millis(value.into()),
                    interval: Duration::from_millis((value >> 8).into()),
                    count: value as u8,
                })),
            };
            let _ = peer.stack.conn_mut(conn)?.set_option(now, option);
        }
        11 => match input.byte()? % 8 {
            0 => drop(peer.stack.conn_mut(conn)?.shutdown_write(now)),
            1 => peer.stack.conn_mut(conn)?.shutdown_read(now),
            2 => peer.stack.conn_mut(conn)?.close(now),
            3 => peer.stack.conn_mut(conn)?.abort(now),
            5 => flow(input, peer)?,
            4 => {
                let to = ([192, 0, 2, 2], input.word()?).into();
                if let Ok(id) = peer.stack.connect(now, to, &ConnOptions::default()) {
                    peer.stack.conn_mut(id)?.close(now);
                }
            }
            _ => {
                if let Some((id, _)) = peer.stack.accept(peer.listener) {
                    peer.stack.conn_mut(id)?.close(now);
                }
            }
        },
        12 => {
            let index = usize::from(input.byte()?);
            let value = input.word()?.to_string();
            let name = peer.stack.sysctls().map(|(name, _)| name).nth(index)?;
            let _ = peer.stack.set_sysctl(name, &value);
        }
        _ => peer.wait(Duration::from_millis(u64::from(input.word()?))),
    }
    Some(())
}

fuzz_target!(|data: &[u8]| {
    let mut input = Input(data);
    let mut peer = Peer::new(0xffff_f000);
    let _ = taut_core::steps_taken();
    let mut calls = 0;
    while !input.0.is_empty() {
        let _ = act(&mut input, &mut peer);
        calls += 1 + peer.poll().len() as u64;
        let now = peer.now;
        if let Some(conn) = peer.stack.conn(peer.conn) {
            let _ = (conn.info(now), conn.report(now));
        }
    }
    let steps = taut_core::steps_taken().unwrap_or(0);
    assert!(steps <= STEPS.1 + STEPS.0 * calls, "{steps} steps in {calls} calls");
    // The end of everything. `tcp_retries2` may have become 255: hours.
    let (now, conn) = (peer.now, peer.conn);
    if let Some(conn) = peer.stack.conn_mut(conn) {
        conn.abort(now);
    }
    peer.stack.close_listener(now, peer.listener);
    for filter in std::mem::take(&mut peer.filters) {
        peer.stack.close_listener(now, filter);
    }
    assert_eq!(peer.stack.pending_flows(), 0);
    peer.poll();
    let ids: Vec<_> = peer.stack.conn_ids().collect();
    for id in ids {
        if let Some(conn) = peer.stack.conn_mut(id) {
            conn.abort(now);
        }
    }
    peer.poll();
    peer.wait(Duration::from_secs(200_000));
    peer.poll();
    assert_eq!((peer.stack.connections(), peer.stack.time_waits()), (0, 0));
});
