//! Reassembly against a naive model: segments of one stream in any order, overlapping, in the window and out
//! of it. What the application reads is the stream; what is acknowledged is what the model has without a
//! hole.
#![no_main]

use libfuzzer_sys::fuzz_target;
use taut_core::Duration;
use taut_fuzz::{Input, Peer, pattern, stream};
use taut_wire::{Flags, TcpOptions};

fuzz_target!(|data: &[u8]| {
    let mut input = Input(data);
    let Some(irs) = input.long() else { return };
    let mut peer = Peer::new(irs);
    // Sent at least once, byte by byte: an upper bound of what may be acknowledged.
    let mut sent = vec![false; 300_000];
    let (mut read, mut reached) = (0_u32, 0_u32);
    while let Some(what) = input.byte() {
        match what % 8 {
            0..=4 => {
                let (Some(ahead), Some(len)) = (input.word(), input.below(3_000)) else { break };
                let seq = (reached + u32::from(ahead)).saturating_sub(if what & 8 == 0 { 0 } else { 2_000 });
                let len = usize::from(len);
                if seq as usize + len >= sent.len() {
                    break;
                }
                sent[seq as usize..][..len].fill(true);
                let bytes = peer.packet(seq, 0, Flags::ACK, 65_535, TcpOptions::default(), &stream(seq, len));
                peer.give(&bytes);
            }
            5 => {
                let Some(most) = input.word() else { break };
                let mut buffer = vec![0; usize::from(most) + 1];
                let now = peer.now;
                let conn = peer.conn;
                let Some(mut handle) = peer.stack.conn_mut(conn) else { break };
                if let Ok(count) = handle.read(now, &mut buffer) {
                    for &byte in &buffer[..count] {
                        assert_eq!(byte, pattern(read), "byte {read}");
                        read += 1;
                    }
                }
            }
            6 => peer.wait(Duration::from_millis(input.byte().unwrap_or(0).into())),
            _ => {}
        }
        for segment in peer.poll() {
            assert!(!segment.flags.contains(Flags::RST), "nothing here is wrong");
            reached = reached.max(segment.ack);
        }
        let whole = sent.iter().position(|&sent| !sent).unwrap_or(sent.len()) as u32;
        assert!(read <= reached.max(whole) && reached <= whole, "{read} read, {reached} acknowledged of {whole}");
        let _ = taut_core::steps_taken();
    }
});
