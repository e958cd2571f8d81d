//! SYN cookies: a SYN is answered without remembering it, and the ACK that completes the handshake tells what
//! was forgotten. RFC 4987 §3.6; layout, lifetime and segment sizes as in Linux 6.12 (`tcp_syncookies`).
//! Called by `input.rs` when a listener has too many half-open connections.
//!
//! # Problem
//!
//! A SYN costs its sender one packet, from any source address, and a listener an entry for a minute. Whoever
//! sends SYNs faster than entries expire keeps everybody else out.
//!
//! # Rule
//!
//! The initial sequence number of our SYN-ACK is a keyed hash of the addresses and ports, of the peer's
//! sequence number and of the minute, and contains one of four segment sizes. An ACK of it proves that the
//! peer is at its address, and brings all of that back. The peer's window shift and SACK fit into the low
//! bits of our timestamp, which the ACK echoes; without timestamps they are not used. ECN is not used (Linux
//! keeps it in another bit).
//!
//! ```text
//!   number = hash(tuple) + peer's number + (minute << 24) + (hash(tuple, minute) + size) mod 2^24
//!   timestamp, low six bits:  0 | SACK | shift (4), 15 for none
//! ```

use taut_wire::tcp::Flags as TcpFlags;
use taut_wire::{TcpHeader, TcpOptions, Timestamps};

use super::secrets::Secrets;
use crate::words::{Duration, Instant, Tuple};

/// The unit in which a cookie tells its age.
const PERIOD: Duration = Duration::from_secs(60);
/// A cookie is valid in the period in which it was made and in the next. Linux: `MAX_SYNCOOKIE_AGE`.
const PERIODS_MAX: u32 = 2;
/// The bits of a cookie below the period.
const VALUE_BITS: u32 = 24;
const VALUE_MASK: u32 = (1 << VALUE_BITS) - 1;
/// For how long after the last cookie an ACK may be the answer to one: no longer than a cookie is valid.
pub(crate) const VALID: Duration = Duration::from_secs(120);

/// The segment sizes that a cookie can tell, ascending; the largest that the peer's is not below. Linux: 536
/// is what a host must take, then paths with a tunnel, PPPoE, Ethernet; for IPv6 also jumbo frames.
const SIZES_V4: [u16; 4] = [536, 1_300, 1_440, 1_460];
const SIZES_V6: [u16; 4] = [1_220, 1_420, 1_440, 8_940];

/// The part of a timestamp that tells options.
const OPTIONS_MASK: u32 = 63;
const SHIFT_MASK: u32 = 15;
const NO_SHIFT: u32 = 15;
const SACK: u32 = 16;

const fn sizes(ipv4: bool) -> &'static [u16; 4] {
    if ipv4 { &SIZES_V4 } else { &SIZES_V6 }
}

fn period(now: Instant) -> u32 {
    (now.as_millis() / PERIOD.as_millis()) as u32
}

/// The number of our SYN-ACK to a SYN.
pub(crate) fn number(secrets: &Secrets, now: Instant, tuple: &Tuple, syn: &TcpHeader) -> u32 {
    let size = syn.options.mss.unwrap_or(0);
    let index = sizes(tuple.local.ip().is_ipv4()).iter().rposition(|&known| known <= size).unwrap_or(0);
    let period = period(now);
    secrets
        .cookie(tuple, None)
        .wrapping_add(syn.seq)
        .wrapping_add(period << VALUE_BITS)
        .wrapping_add(secrets.cookie(tuple, Some(period)).wrapping_add(index as u32) & VALUE_MASK)
}

/// The segment size that a cookie tells, unless it is forged or too old. `peer` is the number of the peer's
/// SYN.
fn size(secrets: &Secrets, now: Instant, tuple: &Tuple, peer: u32, number: u32) -> Option<u16> {
    let rest = number.wrapping_sub(secrets.cookie(tuple, None)).wrapping_sub(peer);
    let age = period(now).wrapping_sub(rest >> VALUE_BITS) & (u32::MAX >> VALUE_BITS);
    if age >= PERIODS_MAX {
        return None;
    }
    let made = period(now).wrapping_sub(age);
    let index = rest.wrapping_sub(secrets.cookie(tuple, Some(made))) & VALUE_MASK;
    sizes(tuple.local.ip().is_ipv4()).get(index as usize).copied()
}

/// The SYN as a cookie can remember it: without ECN, and without timestamps also without window scaling and
/// SACK.
pub(crate) fn remembered(syn: &TcpHeader, timestamps: bool) -> TcpHeader {
    let mut options = syn.options;
    options.accecn = None;
    if !timestamps || options.timestamps.is_none() {
        options = TcpOptions { mss: options.mss, ..TcpOptions::default() };
    }
    TcpHeader { flags: TcpFlags::SYN, options, ..*syn }
}

/// Our timestamp, less at most 64 ms, so that its low bits tell what `syn` offered.
pub(crate) fn timestamp(clock: u32, syn: &TcpHeader) -> u32 {
    let shift = syn.options.window_scale.map_or(NO_SHIFT, |shift| u32::from(shift).min(NO_SHIFT - 1));
    let sack = if syn.options.sack_permitted { SACK } else { 0 };
    let value = (clock & !OPTIONS_MASK) | sack | shift;
    // Not later than the clock: the next timestamp must not be earlier.
    if value.wrapping_sub(clock) as i32 > 0 { value.wrapping_sub(OPTIONS_MASK + 1) } else { value }
}

/// The SYN that an ACK completes, if it acknowledges a cookie of ours.
pub(crate) fn syn_of(secrets: &Secrets, now: Instant, tuple: &Tuple, ack: &TcpHeader) -> Option<TcpHeader> {
    let seq = ack.seq.wrapping_sub(1);
    let mss = size(secrets, now, tuple, seq, ack.ack.wrapping_sub(1))?;
    let mut options = TcpOptions { mss: Some(mss), ..TcpOptions::default() };
    if let Some(Timestamps { value, echo }) = ack.options.timestamps {
        let shift = echo & SHIFT_MASK;
        options.timestamps = Some(Timestamps { value, echo: 0 });
        options.sack_permitted = echo & SACK != 0;
        options.window_scale = (shift != NO_SHIFT).then_some(shift as u8);
    }
    Some(TcpHeader { seq, ack: 0, flags: TcpFlags::SYN, options, ..*ack })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::words::Endpoint;

    fn tuple(peer: u16) -> Tuple {
        Tuple {
            local: Endpoint::new("10.0.0.1".parse().unwrap(), 80),
            peer: Endpoint::new("10.0.0.2".parse().unwrap(), peer),
        }
    }

    fn syn(mss: Option<u16>) -> TcpHeader {
        let options = TcpOptions { mss, ..TcpOptions::default() };
        TcpHeader { seq: 4_000_000_000, flags: TcpFlags::SYN, options, ..TcpHeader::default() }
    }

    #[test]
    fn cookie_01_tells_the_largest_size_that_the_peer_takes() {
        let (secrets, _) = Secrets::new([7; 32]);
        let now = Instant::from_nanos(1_000_000_000_000);
        for (mss, known) in [
            (None, 536),
            (Some(100), 536),
            (Some(536), 536),
            (Some(1_299), 536),
            (Some(1_300), 1_300),
            (Some(1_459), 1_440),
            (Some(1_460), 1_460),
            (Some(65_000), 1_460),
        ] {
            let number = number(&secrets, now, &tuple(5), &syn(mss));
            assert_eq!(size(&secrets, now, &tuple(5), 4_000_000_000, number), Some(known), "{mss:?}");
        }
    }

    #[test]
    fn cookie_02_is_valid_for_one_to_two_minutes() {
        let (secrets, _) = Secrets::new([7; 32]);
        // In the last second of a period, and in its first.
        for (made_s, until_s) in [(1_199, 1_259), (1_140, 1_259)] {
            let at = |s: u64| Instant::ZERO + Duration::from_secs(s);
            let number = number(&secrets, at(made_s), &tuple(5), &syn(Some(1_460)));
            let told = |s| size(&secrets, at(s), &tuple(5), 4_000_000_000, number);
            assert_eq!(told(made_s), Some(1_460));
            assert_eq!(told(until_s), Some(1_460));
            assert_eq!(told(until_s + 1), None, "made at {made_s} s");
            assert_eq!(told(made_s + 86_400), None);
        }
    }

    /// Four of 2^24 numbers of each of the two periods are valid: of a million guesses, half a one.
    #[test]
    fn cookie_03_cannot_be_guessed_and_is_for_one_connection() {
        let (secrets, _) = Secrets::new([7; 32]);
        let now = Instant::from_nanos(1_000_000_000_000);
        let number = number(&secrets, now, &tuple(5), &syn(Some(1_460)));
        assert_eq!(size(&secrets, now, &tuple(5), 4_000_000_000, number), Some(1_460), "its own");
        assert_eq!(size(&secrets, now, &tuple(6), 4_000_000_000, number), None, "another port");
        assert_eq!(size(&secrets, now, &tuple(5), 4_000_001_000, number), None, "another number of the peer");
        let (others, _) = Secrets::new([8; 32]);
        assert_eq!(size(&others, now, &tuple(5), 4_000_000_000, number), None, "another secret");
        let guesses = (0..1_000_000_u32).map(|n| n.wrapping_mul(2_654_435_761));
        let hits = guesses.filter(|&guess| size(&secrets, now, &tuple(5), 0, guess).is_some()).count();
        assert!(hits <= 4, "{hits}");
    }

    #[test]
    fn cookie_04_a_timestamp_tells_shift_and_sack_and_is_never_ahead_of_the_clock() {
        for clock in [0, 1, 63, 64, 1_000, u32::MAX - 3, u32::MAX] {
            for shift in (0..=14).map(Some).chain([None]) {
                for sack_permitted in [false, true] {
                    let mut syn = syn(None);
                    syn.options.window_scale = shift;
                    syn.options.sack_permitted = sack_permitted;
                    let value = timestamp(clock, &syn);
                    let behind = clock.wrapping_sub(value);
                    assert!(behind <= 64, "{behind} ms behind at {clock}");
                    assert_eq!(value & SACK != 0, sack_permitted);
                    let told = Some((value & SHIFT_MASK) as u8).filter(|&shift| u32::from(shift) != NO_SHIFT);
                    assert_eq!(told, shift);
                    // And it is read so.
                    let (secrets, _) = Secrets::new([7; 32]);
                    let number = number(&secrets, Instant::ZERO, &tuple(5), &syn);
                    let mut ack = TcpHeader {
                        seq: syn.seq.wrapping_add(1),
                        ack: number.wrapping_add(1),
                        ..TcpHeader::default()
                    };
                    ack.options.timestamps = Some(Timestamps { value: 1, echo: value });
                    let again = syn_of(&secrets, Instant::ZERO, &tuple(5), &ack).unwrap().options;
                    assert_eq!((again.window_scale, again.sack_permitted), (shift, sack_permitted));
                }
            }
        }
    }
}
