//! Recorded lines: what a cellular or satellite link could carry, from a file. `scenario/load.rs` asks for
//! the file, and `taut_link::Trace` is the line.
//!
//! | file | means |
//! |---|---|
//! | CSV, `0.0,12mbit`: seconds and a rate, of `tc`'s units or bits per second | the rate from a time on; the last line is the end, where it begins again. Rates include Ethernet's 38 bytes per packet, as everywhere |
//! | mahimahi's: a millisecond on each line | a moment at which 1500 bytes of IP can leave; the last is also the end |
//! | pcapng, pcap | an arrival: a moment at which as many bytes of IP can leave; a saturated line shows its capacity so. The last is the end |

use taut_core::Duration;
use taut_link::{Moment, NicSpec, Rate, Trace};

use crate::recorded::pcap;
use crate::recorded::pcapng;

/// Bytes that one of mahimahi's moments carries.
const MAHIMAHI_BYTES: u32 = 1_500;

/// Largest file, in bytes.
pub const BYTES_MAX: usize = 64 << 20;

/// Reads a file of one of the formats; which, its content says.
///
/// # Errors
/// What is wrong, with the line where there are lines.
pub fn parse(bytes: &[u8]) -> Result<Trace, String> {
    if bytes.len() > BYTES_MAX {
        return Err(format!("the file has more than {} MiB", BYTES_MAX >> 20));
    }
    if pcapng::is_one(bytes) {
        return arrivals(&pcapng::arrivals(bytes)?);
    }
    if pcap::is_one(bytes) {
        return arrivals(&pcap::arrivals(bytes)?);
    }
    let text = std::str::from_utf8(bytes).map_err(|_| "is neither text nor a capture".to_owned())?;
    // Spreadsheets begin a text with this.
    let text = text.trim_start_matches('\u{feff}');
    let lines: Vec<(usize, &str)> = text
        .lines()
        .enumerate()
        .map(|(index, line)| (index + 1, line.trim()))
        .filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
        .collect();
    if lines.iter().any(|(_, line)| line.contains(',')) { rates(&lines) } else { mahimahi(&lines) }
}

/// A number for a file's content, in hexadecimal: FNV-1a.
#[must_use]
pub fn digest(bytes: &[u8]) -> String {
    let mix = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    format!("{:016x}", bytes.iter().fold(0xcbf2_9ce4_8422_2325, mix))
}

fn rates(lines: &[(usize, &str)]) -> Result<Trace, String> {
    let mut moments: Vec<Moment> = Vec::new();
    for (index, (number, line)) in lines.iter().enumerate() {
        let fields: Vec<&str> = line.split(',').map(str::trim).collect();
        let [time, rate] = fields.as_slice() else {
            return Err(format!("line {number}: must be a time and a rate, such as 0.5,12mbit"));
        };
        let seconds = time.parse::<f64>().ok().filter(|s| (0.0..=1e9).contains(s));
        let Some(seconds) = seconds else {
            // A heading.
            if index == 0 {
                continue;
            }
            return Err(format!("line {number}: {time} is no time in seconds"));
        };
        // At 0, nothing can leave, which a rate of a queue cannot be.
        let is_zero = rate.parse::<f64>().is_ok_and(|rate| rate == 0.0);
        let bytes_per_second = if is_zero {
            0
        } else {
            let rate: Rate = rate.parse().map_err(|error| format!("line {number}: {error}"))?;
            rate.bytes_per_second()
        };
        let at = Duration::from_nanos((seconds * 1e9).round() as u64);
        if moments.last().map_or(!at.is_zero(), |last| at <= last.at) {
            return Err(format!("line {number}: times must begin at 0 and grow"));
        }
        moments.push(Moment { at, bytes: 0, bytes_per_second });
    }
    let Some(end) = moments.pop().filter(|_| !moments.is_empty()) else {
        return Err("needs at least two lines: the last is the end".to_owned());
    };
    finish(&moments, end.at, NicSpec::ETHERNET_BYTES)
}

fn mahimahi(lines: &[(usize, &str)]) -> Result<Trace, String> {
    let mut moments: Vec<Moment> = Vec::new();
    for (number, line) in lines {
        let ms = line.parse::<u64>().ok().filter(|ms| *ms <= 1_000_000_000);
        let ms = ms.ok_or_else(|| {
            format!("line {number}: {line} is no millisecond; in CSV, a comma separates time and rate")
        })?;
        let at = Duration::from_millis(ms);
        if moments.last().is_some_and(|last| at < last.at) {
            return Err(format!("line {number}: times must not fall"));
        }
        moments.push(Moment { at, bytes: MAHIMAHI_BYTES, bytes_per_second: 0 });
    }
    let end = moments.last().ok_or("is empty")?.at;
    finish(&moments, end, 0)
}

fn arrivals(packets: &[(u64, u32)]) -> Result<Trace, String> {
    let begin = packets.iter().map(|(ns, _)| *ns).min().ok_or("has no packets")?;
    let mut moments: Vec<Moment> = packets
        .iter()
        .map(|&(ns, bytes)| Moment { at: Duration::from_nanos(ns - begin), bytes, bytes_per_second: 0 })
        .collect();
    moments.sort_by_key(|moment| moment.at);
    let end = moments.last().ok_or("has no packets")?.at;
    finish(&moments, end, 0)
}

fn finish(moments: &[Moment], end: Duration, overhead_bytes: u32) -> Result<Trace, String> {
    Trace::new(moments, end, overhead_bytes).ok_or_else(|| "carries nothing, or takes no time".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A packet of 1500 bytes of IP each millisecond of a second, from 5 s on, cut off after 60 bytes.
    fn tcpdump(magic: u32, second: u32, big: bool) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut put = |words: &[u32]| {
            words.iter().for_each(|word| {
                bytes.extend(if big { word.to_be_bytes() } else { word.to_le_bytes() });
            });
        };
        // Version 2.4 is two halves.
        put(&[magic, if big { 2 << 16 | 4 } else { 4 << 16 | 2 }, 0, 0, 60, 1]);
        for ms in 0..=1_000 {
            put(&[5 + ms / 1_000, ms % 1_000 * (second / 1_000), 60, 1_514]);
            put(&[0; 15]);
        }
        bytes
    }

    /// A capture without packets.
    fn captured(name: &str) -> Vec<u8> {
        let mut capture = Vec::new();
        pcapng::begin(&mut capture);
        pcapng::interface(&mut capture, pcapng::LINKTYPE_RAW, name);
        capture
    }

    #[test]
    fn lab_08_each_format_says_the_same_of_the_same_line() {
        // 1500 bytes each millisecond are 12 Mbit/s.
        let mahimahi: String = (1..=1_000).map(|ms| format!("{ms}\n")).collect();
        let mahimahi = parse(mahimahi.as_bytes()).unwrap();
        assert_eq!((mahimahi.bytes_per_second(), mahimahi.period()), (1_500_000, Duration::from_secs(1)));
        let csv = parse(b"t_s,rate\n# a comment\n0,12mbit\n0.5, 12000000\n1.0,0\n").unwrap();
        assert_eq!((csv.bytes_per_second(), csv.period()), (1_500_000, Duration::from_secs(1)));
        assert_eq!(parse("\u{feff}0,12mbit\r\n1,0\r\n".as_bytes()).unwrap().bytes_per_second(), 1_500_000);
        // An arrival each millisecond from 5 s on, cut off after 60 bytes; the first is the beginning.
        let mut capture = captured("receiver");
        for ms in 0..=1_000_u64 {
            let packet = std::iter::once(&[0x45; 60][..]);
            pcapng::packet(&mut capture, 0, 5_000_000_000 + ms * 1_000_000, packet, 1_440, None);
        }
        let capture = parse(&capture).unwrap();
        assert_eq!((capture.bytes_per_second(), capture.period()), (1_501_500, Duration::from_secs(1)));
        // The same by `tcpdump -w` on an Ethernet interface, in both orders of bytes and both units of time.
        for (magic, second, big) in [
            (0xa1b2_c3d4_u32, 1_000_000_u32, false),
            (0xa1b2_c3d4, 1_000_000, true),
            (0xa1b2_3c4d, 1_000_000_000, false),
        ] {
            let capture = parse(&tcpdump(magic, second, big)).unwrap();
            assert_eq!((capture.bytes_per_second(), capture.period()), (1_501_500, Duration::from_secs(1)));
        }
        // Silence counts.
        let csv = parse(b"0,24mbit\n0.25,0\n0.75,0\n1,24mbit\n").unwrap();
        assert_eq!(csv.bytes_per_second(), 750_000);
    }

    #[test]
    fn lab_08_mistakes_have_lines() {
        for (text, why) in [
            ("", "is empty"),
            ("5\n7\n6\n", "line 3: times must not fall"),
            ("5\nseven\n", "line 2: seven is no millisecond; in CSV, a comma separates time and rate"),
            ("0\n", "carries nothing, or takes no time"),
            ("0,1mbit\n", "needs at least two lines: the last is the end"),
            ("1,1mbit\n2,1mbit\n", "line 1: times must begin at 0 and grow"),
            ("0,1mbit\n2,1mbit\n2,3mbit", "line 3: times must begin at 0 and grow"),
            ("0,1mbit\n2,1mbit,3\n", "line 2: must be a time and a rate, such as 0.5,12mbit"),
            ("0,1mbit\nx,1mbit\n", "line 2: x is no time in seconds"),
            ("0,0\n1,0\n", "carries nothing, or takes no time"),
        ] {
            assert_eq!(parse(text.as_bytes()).unwrap_err(), why, "{text:?}");
        }
        assert!(parse(b"0,1mbit\n1,fast\n").unwrap_err().starts_with("line 2: \"fast\" is not a rate"));
        assert_eq!(parse(&[0xff, 0xfe]).unwrap_err(), "is neither text nor a capture");
    }

    #[test]
    fn lab_08_a_damaged_capture_is_an_error_or_shorter_and_never_a_panic() {
        let mut capture = captured("a");
        for ms in 1..20 {
            let packet = std::iter::once(&[0x45; 60][..]);
            pcapng::packet(&mut capture, 0, ms * 1_000_000, packet, 0, Some("comment"));
        }
        let mut old = tcpdump(0xa1b2_c3d4, 1_000_000, false);
        old.truncate(24 + 20 * 76);
        for capture in [capture, old.clone()] {
            for len in 0..capture.len() {
                let _ = parse(&capture[..len]);
            }
            for at in 0..capture.len() {
                for value in [0, 1, 0x7f, 0xff] {
                    let mut damaged = capture.clone();
                    damaged[at] = value;
                    let _ = parse(&damaged);
                }
            }
        }
        // A capture that was killed ends in the middle of a packet.
        old.truncate(old.len() - 1);
        assert_eq!(parse(&old).unwrap_err(), "the packet at byte 1468 is damaged or cut off");
        old[20] = 105;
        assert!(parse(&old).unwrap_err().starts_with("captures of link type 105 are not known"));
    }
}
