//! The scoreboard against a naive receiver: each segment arrives or not, as the input says, in any order;
//! ACKs have honest SACK blocks, and come or not. In the end nothing is lost any more, and everything must
//! arrive.
#![no_main]

use std::collections::VecDeque;

use libfuzzer_sys::fuzz_target;
use taut_core::Duration;
use taut_fuzz::{Input, Peer, pattern};
use taut_wire::{Flags, TcpOptions};

const BYTES: usize = 60_000;

/// What the naive receiver has.
struct Receiver {
    has: Vec<bool>,
    latest: usize,
}

impl Receiver {
    fn take(&mut self, seq: u32, payload: &[u8]) {
        for (n, &byte) in payload.iter().enumerate() {
            let at = seq as usize + n;
            assert_eq!(byte, pattern(at as u32), "byte {at}");
            self.has[at] = true;
        }
        self.latest = seq as usize;
    }

    fn reached(&self) -> usize {
        self.has.iter().position(|&has| !has).unwrap_or(self.has.len())
    }

    /// The range around the segment that came last, and the last range of all.
    fn blocks(&self) -> Vec<(usize, usize)> {
        let reached = self.reached();
        let around = |at: usize| {
            let start = (0..=at).rev().take_while(|&n| self.has[n]).last()?;
            let end = (at..self.has.len()).take_while(|&n| self.has[n]).last()? + 1;
            (start > reached).then_some((start, end))
        };
        let last = self.has.iter().rposition(|&has| has).unwrap_or(0);
        let mut blocks: Vec<_> = [self.latest, last].into_iter().filter_map(around).collect();
        blocks.dedup();
        blocks
    }
}

fn acknowledge(peer: &mut Peer, receiver: &Receiver) {
    let sack = receiver.blocks().into_iter();
    let sack = sack.map(|(start, end)| (peer.iss(start as u32), peer.iss(end as u32))).collect();
    let options = TcpOptions { sack, ..TcpOptions::default() };
    let bytes = peer.packet(0, receiver.reached() as u32, Flags::ACK, 65_535, options, &[]);
    peer.give(&bytes);
}

fuzz_target!(|data: &[u8]| {
    let mut input = Input(data);
    let mut peer = Peer::new(7);
    let mut receiver = Receiver { has: vec![false; BYTES], latest: 0 };
    let mut on_the_way = VecDeque::new();
    let mut written = 0;
    let mut is_over = false;
    for round in 0..4_000 {
        let now = peer.now;
        let conn = peer.conn;
        let all: Vec<u8> = (written as u32..BYTES as u32).map(pattern).collect();
        let Some(mut handle) = peer.stack.conn_mut(conn) else { panic!("the connection is held") };
        written += handle.write(now, &all).unwrap_or(0);
        on_the_way.extend(peer.poll().into_iter().filter(|sent| !sent.payload.is_empty()));
        match input.byte().filter(|_| round < 1_000) {
            Some(what) if what & 3 == 0 => drop(on_the_way.pop_front()),
            Some(what) if what & 3 == 1 => {
                if let Some(sent) = on_the_way.pop_back() {
                    receiver.take(sent.seq, &sent.payload);
                    acknowledge(&mut peer, &receiver);
                }
            }
            Some(what) if what & 3 == 2 => peer.wait(Duration::from_millis(u64::from(what))),
            Some(_) => {
                if let Some(sent) = on_the_way.pop_front() {
                    receiver.take(sent.seq, &sent.payload);
                    if input.byte().is_some_and(|what| what & 1 == 0) {
                        acknowledge(&mut peer, &receiver);
                    }
                }
            }
            None if receiver.reached() == BYTES => {
                is_over = true;
                break;
            }
            None => match on_the_way.pop_front() {
                Some(sent) => {
                    receiver.take(sent.seq, &sent.payload);
                    acknowledge(&mut peer, &receiver);
                }
                // `wait` would throw away what a timer sends: go to the deadline only.
                None => {
                    if let Some((at, _)) = peer.stack.poll_timeout() {
                        peer.now = peer.now.max(at);
                        peer.stack.handle_timeout(peer.now);
                    }
                }
            },
        }
    }
    assert!(is_over || written < BYTES || receiver.reached() == BYTES, "{} of {BYTES} arrived", receiver.reached());
});
