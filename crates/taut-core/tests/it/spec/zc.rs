//! Bytes that are neither copied on their way out nor on their way in: ZC-1 … ZC-19.

use std::task::Poll;

use crate::spec::rig::{Ack, Device, MSS, Rig, Setup};
use crate::support::pattern;
use bytes::Bytes;
use taut_core::{
    BUFFER_BYTES, Completion, ConnOptions, Duration, GATHER_MAX, ReadError, WriteError, WriteFlags,
};

/// Shorter writes are copied.
const LEND_MIN: u64 = 4_096;

/// A connection with a window that sends everything at once.
#[track_caller]
fn wide() -> Rig {
    let mut rig = Setup::default().open();
    rig.grow_cwnd(400, Duration::from_millis(40));
    rig
}

/// Lends the next `len` bytes of the stream, all of which must be taken; returns them and the write's number.
#[track_caller]
fn lend(rig: &mut Rig, len: u64) -> (Bytes, u32) {
    let all = rig.bytes(len);
    let mut data = all.clone();
    let number = rig.lend(&mut data).unwrap().unwrap();
    assert!(data.is_empty(), "{} bytes were not taken", data.len());
    (all, number)
}

/// Whether the pieces of all packets sent from `from` on lie in `memory`.
fn all_in(rig: &Rig, from: usize, memory: &Bytes) -> bool {
    let (start, end) = (memory.as_ptr().addr(), memory.as_ptr().addr() + memory.len());
    let mut pieces = rig.sent[from..].iter().flat_map(|sent| &sent.pieces);
    pieces.all(|&(at, len)| start <= at && at + len <= end)
}

#[track_caller]
fn poll_free(rig: &mut Rig) -> Poll<Option<Completion>> {
    let now = rig.now;
    rig.conn().poll_free(now)
}

/// Everything that is complete, as (lo, hi, copied, delivered).
#[track_caller]
fn free(rig: &mut Rig) -> Vec<(u32, u32, bool, bool)> {
    let mut all = Vec::new();
    while let Poll::Ready(Some(Completion { lo, hi, copied, delivered, .. })) = poll_free(rig) {
        all.push((lo, hi, copied, delivered));
    }
    all
}

/// Lent bytes leave from the application's own memory.
#[test]
fn zc_01_no_byte_is_copied_on_the_way_out() {
    let mut rig = wide();
    rig.device = Device::Completes;
    let from = rig.sent.len();
    let (memory, _) = lend(&mut rig, 100_000);
    let sent: u64 = rig.sent[from..].iter().map(crate::spec::rig::Sent::len).sum();
    assert_eq!(sent, 100_000);
    assert!(all_in(&rig, from, &memory));
    // As a check of the check: copied bytes lie elsewhere.
    rig.write(100_000);
    assert!(!all_in(&rig, from, &memory));
}

/// Writes with and without a copy share one stream, in the order of the calls. The rig compares every byte
/// that leaves.
#[test]
fn zc_02_writes_of_both_kinds_keep_their_order() {
    let mut rig = wide();
    rig.device = Device::Completes;
    for round in 0..40 {
        rig.write(1 + round * 97);
        lend(&mut rig, LEND_MIN + round * 331);
        lend(&mut rig, 1 + round * 7);
    }
    rig.finish(Duration::from_millis(40));
    assert_eq!(rig.info().bytes_acked, rig.written);
}

/// What was lost leaves again from the same memory.
#[test]
fn zc_03_a_retransmission_has_the_same_memory() {
    let mut rig = wide();
    let acked = rig.written;
    let (memory, _) = lend(&mut rig, 100_000);
    rig.complete_all();
    rig.advance(Duration::from_millis(40));
    let from = rig.sent.len();
    // The first ten segments are missing.
    rig.ack_with(&Ack::of(acked).sack(&[acked + 10 * MSS..acked + 60 * MSS]));
    rig.advance(Duration::from_millis(20));
    let again: Vec<_> = rig.sent[from..].iter().filter(|sent| sent.len() > 0).collect();
    assert!(again.iter().any(|sent| sent.bytes.start == acked), "the head is sent again");
    assert!(all_in(&rig, from, &memory));
    rig.finish(Duration::from_millis(40));
    rig.complete_all();
    assert_eq!(free(&mut rig), [(0, 0, false, true)]);
}

/// Each write is reported once, in order; those that are complete together, as one range.
#[test]
fn zc_04_completions_are_ranges_in_order() {
    let mut rig = wide();
    rig.device = Device::Completes;
    let start = rig.written;
    let numbers: Vec<u32> = (0..4).map(|_| lend(&mut rig, 10_000).1).collect();
    assert_eq!(numbers, [0, 1, 2, 3]);
    rig.advance(Duration::from_millis(40));
    rig.ack(start + 20_000);
    assert_eq!(free(&mut rig), [(0, 1, false, true)]);
    assert_eq!(free(&mut rig), []);
    rig.ack(start + 30_000);
    rig.ack(start + 40_000);
    assert_eq!(free(&mut rig), [(2, 3, false, true)]);
    assert_eq!(poll_free(&mut rig), Poll::Ready(None), "every write was reported");
}

/// A write is not complete while one of its bytes is not acknowledged.
#[test]
fn zc_05_not_before_the_ack() {
    let mut rig = wide();
    rig.device = Device::Completes;
    let start = rig.written;
    let (memory, _) = lend(&mut rig, 10_000);
    assert_eq!(poll_free(&mut rig), Poll::Pending);
    rig.advance(Duration::from_millis(40));
    rig.ack(start + 9_999);
    assert_eq!(poll_free(&mut rig), Poll::Pending);
    assert!(!memory.is_unique(), "the last byte may have to be sent again");
    assert_eq!(rig.writable_events(), 0);
    rig.ack(start + 10_000);
    assert_eq!(rig.writable_events(), 1, "the application waited for it");
    assert_eq!(free(&mut rig), [(0, 0, false, true)]);
    assert!(memory.is_unique());
    // A copied write holds nothing, and is complete no earlier.
    lend(&mut rig, 100);
    rig.advance(Duration::from_millis(40));
    rig.ack(start + 10_099);
    assert_eq!(poll_free(&mut rig), Poll::Pending);
    rig.ack(start + 10_100);
    assert_eq!(free(&mut rig), [(1, 1, true, true)]);
}

/// A device that keeps a packet reads its bytes later, whatever the peer has acknowledged.
#[test]
fn zc_06_not_while_a_device_holds_it() {
    let mut rig = wide();
    rig.device = Device::KeepsPackets;
    let (memory, _) = lend(&mut rig, 10_000);
    let held = rig.held();
    rig.advance(Duration::from_millis(40));
    rig.ack_all();
    assert_eq!(rig.info().bytes_acked, rig.written);
    assert_eq!(poll_free(&mut rig), Poll::Pending);
    assert!(!memory.is_unique());
    assert_eq!(rig.writable_events(), 0);
    held.iter().for_each(|&name| rig.complete(name));
    assert_eq!(rig.writable_events(), 1, "the application waited for it");
    assert!(memory.is_unique());
    assert_eq!(free(&mut rig), [(0, 0, false, true)]);
}

/// A packet on an emulated wire has no ticket any more. The application that waits for it is told all the
/// same, on an open connection by a timer, and on one that has ended, too.
#[test]
fn zc_06_nor_while_a_packet_without_ticket_does() {
    for ends in [false, true] {
        let mut rig = wide();
        rig.device = Device::KeepsPackets;
        let (memory, _) = lend(&mut rig, 10_000);
        rig.device = Device::Completes;
        let wire = rig.take_packets();
        rig.complete_all();
        rig.advance(Duration::from_millis(40));
        if ends {
            let acked = rig.info().bytes_acked;
            rig.ack_with(&Ack::of(acked).reset());
        } else {
            rig.ack_all();
        }
        rig.writable_events();
        assert_eq!(poll_free(&mut rig), Poll::Pending);
        rig.advance(Duration::from_millis(500));
        assert_eq!((poll_free(&mut rig), rig.writable_events()), (Poll::Pending, 0));
        drop(wire);
        rig.advance(Duration::from_millis(64));
        assert_eq!(rig.writable_events(), 1);
        assert!(memory.is_unique());
        assert_eq!(free(&mut rig), [(0, 0, false, !ends)]);
    }
}

/// When a connection ends, all its writes are complete, and the report says which the peer has.
#[test]
fn zc_07_the_end_completes_everything() {
    for peer_resets in [true, false] {
        let mut rig = wide();
        rig.device = Device::Completes;
        let start = rig.written;
        let (first, _) = lend(&mut rig, 10_000);
        let (second, _) = lend(&mut rig, 10_000);
        let (third, _) = lend(&mut rig, 2_000_000);
        assert!(rig.info().notsent_bytes > 0);
        rig.advance(Duration::from_millis(40));
        rig.ack(start + 10_000);
        assert_eq!(free(&mut rig), [(0, 0, false, true)]);
        assert_eq!(poll_free(&mut rig), Poll::Pending);
        if peer_resets {
            rig.ack_with(&Ack::of(start + 10_000).reset());
            assert!(rig.conn().as_ref().error().is_some());
            assert_eq!(free(&mut rig), [(1, 2, false, false)]);
            assert_eq!(poll_free(&mut rig), Poll::Ready(None));
        } else {
            let now = rig.now;
            rig.conn().abort(now);
            rig.poll();
        }
        assert!(first.is_unique() && second.is_unique() && third.is_unique());
    }
}

/// What there is no room for stays with the caller, who may write it later, under another number.
#[test]
fn zc_08_partial_acceptance() {
    let options = ConnOptions { sndbuf: Some(50_000), ..ConnOptions::default() };
    let mut rig = Setup { options, ..Setup::default() }.open();
    rig.device = Device::Completes;
    let all = rig.bytes(300_000);
    let mut rest = all.clone();
    assert_eq!(rig.lend(&mut rest), Ok(Some(0)));
    let taken = all.len() - rest.len();
    assert!((50_000..300_000).contains(&taken), "{taken} taken");
    assert_eq!(rest.as_ptr(), all[taken..].as_ptr(), "the rest is the same memory");
    assert_eq!(rig.written, taken as u64);
    let mut number = 0;
    for _ in 0..100 {
        rig.advance(Duration::from_millis(40));
        rig.ack_all();
        if rig.writable_events() > 0 && !rest.is_empty() {
            number += 1;
            assert_eq!(rig.lend(&mut rest), Ok(Some(number)), "numbers are of writes that took something");
        }
    }
    assert!(rest.is_empty());
    let reports = free(&mut rig);
    assert_eq!(reports, [(0, number, false, true)]);
    drop(rest);
    assert!(all.is_unique());
}

/// A write of nothing, and one that is refused, have no number.
#[test]
fn zc_09_writes_that_take_nothing_are_not_counted() {
    let options = ConnOptions { sndbuf: Some(50_000), ..ConnOptions::default() };
    let mut rig = Setup { options, ..Setup::default() }.open();
    assert_eq!(rig.lend(&mut Bytes::new()), Ok(None));
    assert_eq!(poll_free(&mut rig), Poll::Ready(None));
    assert_eq!(lend(&mut rig, 5_000).1, 0);
    rig.fill();
    let all = rig.bytes(5_000);
    let mut rest = all.clone();
    assert_eq!(rig.lend(&mut rest), Err(WriteError::WouldBlock));
    assert_eq!(rest.len(), 5_000);
    drop(rest);
    assert!(all.is_unique(), "a refused write holds nothing");
    rig.device = Device::Completes;
    rig.complete_all();
    rig.finish(Duration::from_millis(40));
    assert_eq!(lend(&mut rig, 5_000).1, 1);
    // Nor is there anything to take after the end of the stream.
    rig.shutdown();
    let mut late = rig.bytes(5_000);
    assert_eq!(rig.lend(&mut late), Err(WriteError::Shutdown));
}

/// The send buffer counts the bytes that were lent, not the memory that contains them: as many are taken as
/// by a write with a copy.
#[test]
fn zc_10_the_send_buffer_counts_bytes() {
    let taken_of = |lent: bool| {
        let options = ConnOptions { sndbuf: Some(100_000), ..ConnOptions::default() };
        let mut rig = Setup { options, ..Setup::default() }.open();
        rig.device = Device::Sleeps;
        let memory: Bytes = vec![0; 10 << 20].into();
        loop {
            let mut part = memory.slice(..5_000);
            let now = rig.now;
            let result = match lent {
                true => rig.conn().write_bytes(now, &mut part).map(|_| 5_000 - part.len()),
                false => rig.conn().write(now, &part),
            };
            match result {
                Ok(count) => rig.written += count as u64,
                Err(error) => {
                    assert_eq!(error, WriteError::WouldBlock);
                    break (rig.written, rig.info().notsent_bytes);
                }
            }
        }
    };
    assert_eq!(taken_of(true), taken_of(false));
}

/// Short writes are copied, and their completion says so. They are complete when they are acknowledged, too.
#[test]
fn zc_11_short_writes_are_copied_and_say_so() {
    let mut rig = wide();
    rig.device = Device::Completes;
    let (short, _) = lend(&mut rig, LEND_MIN - 1);
    assert!(short.is_unique());
    assert_eq!(poll_free(&mut rig), Poll::Pending);
    let (long, _) = lend(&mut rig, LEND_MIN);
    assert!(!long.is_unique());
    lend(&mut rig, 1);
    rig.finish(Duration::from_millis(40));
    assert_eq!(free(&mut rig), [(0, 0, true, true), (1, 1, false, true), (2, 2, true, true)]);
}

/// A packet ends with its eighth piece, at the end of a segment; no byte is lost by that.
#[test]
fn zc_12_a_packet_ends_with_its_eighth_piece() {
    let mut rig = wide();
    rig.device = Device::Sleeps;
    let from = rig.sent.len();
    let start = rig.written;
    for _ in 0..20 {
        rig.write(10);
        lend(&mut rig, LEND_MIN);
    }
    rig.device = Device::Completes;
    rig.poll();
    rig.finish(Duration::from_millis(40));
    let packets: Vec<_> = rig.sent[from..].iter().filter(|sent| sent.len() > 0).collect();
    assert!(packets.iter().all(|sent| sent.pieces.len() <= GATHER_MAX));
    // Eight pieces are at least four times 4,096 bytes less what the packet before has taken of the first: 7
    // segments. The first packet has 4 · 4,106 bytes: 11 segments.
    assert_eq!(packets[0].bytes, start..start + 11 * MSS);
    let (last, others) = packets.split_last().unwrap();
    assert!(others.iter().all(|sent| sent.len() % MSS == 0 && sent.len() >= 7 * MSS), "{others:?}");
    assert_eq!(last.bytes.end, start + 20 * (10 + LEND_MIN));
    // A long write makes packets as long as those of a copy.
    let packets = |lent: bool| {
        let mut rig = wide();
        rig.device = Device::Completes;
        rig.news();
        if lent {
            lend(&mut rig, 90 * MSS);
        } else {
            rig.write(90 * MSS);
        }
        rig.news()
    };
    assert_eq!(packets(true), packets(false));
}

/// A super-packet of `len` bytes of the stream from `position` on arrives; returns the address of its
/// payload.
#[track_caller]
fn receive(rig: &mut Rig, buffer: &mut Vec<u8>, position: u64, len: u64) -> usize {
    let payload: Vec<u8> = (position..position + len).map(pattern).collect();
    let before = buffer.as_ptr().addr();
    rig.receive(buffer, &payload);
    // IPv4 and TCP headers with timestamps.
    before + 20 + 32
}

#[track_caller]
fn read_chunk(rig: &mut Rig, max: usize) -> Bytes {
    let now = rig.now;
    let chunk = rig.conn().read_chunk(now, max).unwrap();
    rig.poll();
    chunk
}

fn is_pattern(bytes: &[u8], from: u64) -> bool {
    bytes.iter().zip(from..).all(|(&byte, at)| byte == pattern(at))
}

/// The application gets the memory into which the device received.
#[test]
fn zc_13_a_received_chunk_is_not_copied() {
    let mut rig = Setup::default().open();
    let mut buffer = vec![0; BUFFER_BYTES];
    let at = receive(&mut rig, &mut buffer, 0, 40 * MSS);
    let chunk = read_chunk(&mut rig, usize::MAX);
    assert_eq!((chunk.as_ptr().addr(), chunk.len() as u64), (at, 40 * MSS));
    assert!(is_pattern(&chunk, 0));
    let now = rig.now;
    assert_eq!(rig.conn().read_chunk(now, usize::MAX), Err(ReadError::WouldBlock));
    let upto = rig.written;
    rig.ack_with(&Ack::of(upto).fin());
    assert!(read_chunk(&mut rig, usize::MAX).is_empty(), "the end of the stream");
}

/// A chunk can be read in parts, which lie in the same memory, and with other calls in between.
#[test]
fn zc_14_a_chunk_can_be_read_in_parts() {
    let mut rig = Setup::default().open();
    let mut buffer = vec![0; BUFFER_BYTES];
    let at = receive(&mut rig, &mut buffer, 0, 40 * MSS);
    let first = read_chunk(&mut rig, 20_000);
    let mut copied = [0; 1_000];
    let now = rig.now;
    assert_eq!(rig.conn().read(now, &mut copied), Ok(1_000));
    assert!(read_chunk(&mut rig, 0).is_empty());
    let last = read_chunk(&mut rig, usize::MAX);
    assert_eq!((first.as_ptr().addr(), first.len()), (at, 20_000));
    assert_eq!((last.as_ptr().addr(), last.len() as u64), (at + 21_000, 40 * MSS - 21_000));
    assert!(is_pattern(&first, 0) && is_pattern(&copied, 20_000) && is_pattern(&last, 21_000));
}

/// Bytes that were read without a copy are read: the window opens as it does for others.
#[test]
fn zc_15_the_window_opens_as_after_a_read() {
    let windows_of = |chunks: bool| {
        let mut rig = Setup::default().open();
        let mut held = Vec::new();
        let mut windows = Vec::new();
        for round in 0..8 {
            let mut buffer = vec![0; BUFFER_BYTES];
            receive(&mut rig, &mut buffer, round * 40 * MSS, 40 * MSS);
            let mut into = vec![0; 40 * MSS as usize];
            // The ACK of the data has left; what leaves next is due to the read.
            rig.advance(Duration::from_millis(300));
            let (now, before) = (rig.now, rig.sent.len());
            match chunks {
                true => held.push(read_chunk(&mut rig, usize::MAX)),
                false => assert_eq!(rig.conn().read(now, &mut into), Ok(into.len())),
            }
            rig.poll();
            windows.push((rig.sent.len() - before, rig.info().rcv_wnd));
        }
        windows
    };
    let windows = windows_of(true);
    assert_eq!(windows, windows_of(false));
    // The first 57,920 bytes leave little of a window that was at most 65,535 bytes: reading them announces
    // it again.
    assert_eq!(windows[0].0, 1, "{windows:?}");
    assert!(windows.iter().all(|&(_, window)| u64::from(window) >= 40 * MSS), "{windows:?}");
}

/// Peeking leaves what a later read of a chunk returns.
#[test]
fn zc_16_peeking_changes_nothing() {
    let mut rig = Setup::default().open();
    let mut buffer = vec![0; BUFFER_BYTES];
    let at = receive(&mut rig, &mut buffer, 0, 40 * MSS);
    let mut peeked = vec![0; 30_000];
    assert_eq!(rig.conn().peek(&mut peeked), Ok(30_000));
    assert!(is_pattern(&peeked, 0));
    let chunk = read_chunk(&mut rig, 40_000);
    assert_eq!((chunk.as_ptr().addr(), chunk.len()), (at, 40_000));
    assert_eq!(rig.conn().peek(&mut peeked), Ok(40 * MSS as usize - 40_000));
    assert!(is_pattern(&peeked[..40 * MSS as usize - 40_000], 40_000));
}

/// An application that keeps bytes keeps at most eight times as much memory: fewer bytes are copied.
#[test]
fn zc_17_few_bytes_do_not_hold_much_memory() {
    const EIGHTH: usize = BUFFER_BYTES / 8;
    for (len, copied) in [(100, true), (EIGHTH - 1, true), (EIGHTH, false)] {
        let mut rig = Setup::default().open();
        let mut buffer = vec![0; BUFFER_BYTES];
        let at = receive(&mut rig, &mut buffer, 0, 40 * MSS);
        let chunk = read_chunk(&mut rig, len);
        assert_eq!(chunk.len(), len);
        assert!(is_pattern(&chunk, 0));
        assert_eq!(chunk.as_ptr().addr() != at, copied, "{len} bytes");
    }
    // A small packet's payload lies in memory of its own size.
    let mut rig = Setup::default().open();
    receive(&mut rig, &mut vec![0; BUFFER_BYTES], 0, 1_000);
    assert_eq!(read_chunk(&mut rig, usize::MAX).len(), 1_000);
}

/// What the application has dropped is the device's next buffer; what it holds is not.
#[test]
fn zc_18_dropped_chunks_return_to_the_pool() {
    let mut rig = Setup::default().open();
    let mut buffers = [const { Vec::new() }; 3].map(|_: Vec<u8>| vec![0; BUFFER_BYTES]);
    let first = buffers[0].as_ptr();
    let second = buffers[1].as_ptr();
    let mut held = None;
    for (round, buffer) in buffers.iter_mut().enumerate() {
        receive(&mut rig, buffer, round as u64 * 30 * MSS, 30 * MSS);
        let chunk = read_chunk(&mut rig, usize::MAX);
        assert!(is_pattern(&chunk, round as u64 * 30 * MSS));
        if round == 1 {
            // Held while the third arrives.
            held = Some(chunk);
        }
    }
    assert!(buffers[0].is_empty(), "there was no spare one");
    assert_eq!(buffers[1].as_ptr(), first);
    assert!(buffers[2].is_empty() && buffers[2].as_ptr() != second, "the second is held");
    assert!(is_pattern(&held.unwrap(), 30 * MSS));
}

/// A flag of a write means the same with and without a copy: the end of a record.
#[test]
fn zc_19_flags_mean_the_same() {
    let mut rig = wide();
    rig.device = Device::Sleeps;
    let from = rig.sent.len();
    let start = rig.written;
    let flags = WriteFlags { eor: true, ..WriteFlags::default() };
    let mut data = rig.bytes(5_000);
    let now = rig.now;
    assert_eq!(rig.conn().write_bytes_with(now, &mut data, flags), Ok(Some(0)));
    rig.written += 5_000;
    lend(&mut rig, 5_000);
    rig.device = Device::Completes;
    rig.poll();
    rig.finish(Duration::from_millis(40));
    assert!(rig.sent[from..].iter().any(|sent| sent.bytes.end == start + 5_000));
}
