//! A connection's snapshot as Linux's `struct tcp_info` has it in memory: `linux/tcp.h` of Linux 6.12, in its
//! order and units. Called by the options of both forms.
//!
//! These are 0: `tcpi_fackets` and `tcpi_last_ack_sent`, as in Linux; `tcpi_rcv_ssthresh`, `tcpi_rehash`,
//! `tcpi_total_rto_recoveries` and `tcpi_total_rto_time`, which the stack does not count.

use taut_core::{ConnInfo, Duration};

/// `sizeof(struct tcp_info)`.
const LEN: usize = 248;
/// The values of `tcpi_ca_state` in their order.
const CA_STATES: [&str; 5] = ["open", "disorder", "cwr", "recovery", "loss"];
/// `TCP_INFINITE_SSTHRESH`.
const NO_THRESHOLD: u32 = 0x7fff_ffff;

/// Microseconds.
fn us(span: Duration) -> u32 {
    u32::try_from(span.as_micros()).unwrap_or(u32::MAX)
}

/// Milliseconds.
fn ms(span: Duration) -> u32 {
    u32::try_from(span.as_millis()).unwrap_or(u32::MAX)
}

/// `TCPI_OPT_…`: timestamps, SACK, window scaling, ECN, ECN seen, data in the SYN, opened by Fast Open.
fn options(info: &ConnInfo) -> u8 {
    let bits = [
        (info.timestamps, 1),
        (info.sack, 2),
        (info.snd_wscale.is_some(), 4),
        (info.ecn, 8),
        (info.ecn_seen, 16),
        (info.syn_data, 32),
        (info.fast_open_child, 128),
    ];
    bits.iter().filter(|(is_set, _)| *is_set).map(|(_, bit)| bit).sum()
}

/// Bit fields of one byte with their widths: the first one is the lowest of a machine whose first byte is the
/// lowest, and else the highest.
fn bit_fields(fields: [(u8, u32); 2]) -> u8 {
    let [(first, width), (second, other)] = fields;
    if cfg!(target_endian = "little") {
        first | second << width
    } else {
        first << (8 - width) | second << (8 - width - other)
    }
}

/// The fields of one byte, up to `tcpi_fastopen_client_fail`.
fn small_fields(info: &ConnInfo) -> [u8; 8] {
    let ca_state = CA_STATES.iter().position(|state| *state == info.ca_state).unwrap_or(0);
    let scales = [(info.snd_wscale.unwrap_or(0), 4), (info.rcv_wscale.unwrap_or(0), 4)];
    let rest = [(info.delivery_rate_app_limited.into(), 1), (info.fast_open_fail.number(), 2)];
    [
        info.state.number(),
        ca_state as u8,
        info.retransmits,
        info.probes,
        info.backoff,
        options(info),
        bit_fields(scales),
        bit_fields(rest),
    ]
}

/// The struct as it grows.
struct Fields(Vec<u8>);

impl Fields {
    fn words<const N: usize>(&mut self, words: [u32; N]) {
        words.iter().for_each(|word| self.0.extend(word.to_ne_bytes()));
    }

    fn longs<const N: usize>(&mut self, longs: [u64; N]) {
        longs.iter().for_each(|long| self.0.extend(long.to_ne_bytes()));
    }
}

/// The whole struct. A counter that is longer here wraps, as Linux's does.
pub(crate) fn bytes(info: &ConnInfo) -> Vec<u8> {
    let mut out = Fields(Vec::with_capacity(LEN));
    out.0.extend(small_fields(info));
    // tcpi_rto to tcpi_fackets.
    out.words([us(info.rto), us(info.ato), info.snd_mss, info.rcv_mss]);
    out.words([info.unacked, info.sacked, info.lost, info.retrans, 0]);
    // tcpi_last_data_sent to tcpi_last_ack_recv.
    out.words([ms(info.last_data_sent), 0, ms(info.last_data_recv), ms(info.last_ack_recv)]);
    // tcpi_pmtu to tcpi_total_retrans.
    out.words([info.pmtu, 0, us(info.rtt.unwrap_or(Duration::ZERO)), us(info.rttvar)]);
    out.words([info.snd_ssthresh.min(NO_THRESHOLD), info.snd_cwnd, info.advmss, info.reordering]);
    out.words([us(info.rcv_rtt.unwrap_or(Duration::ZERO)), info.rcv_space, info.total_retrans as u32]);
    out.longs([info.pacing_rate, info.max_pacing_rate, info.bytes_acked, info.bytes_received]);
    // tcpi_segs_out to tcpi_data_segs_out. Linux: without a sample, tcpi_min_rtt is the largest number.
    let notsent = u32::try_from(info.notsent_bytes).unwrap_or(u32::MAX);
    out.words([info.segs_out, info.segs_in, notsent, info.min_rtt.map_or(u32::MAX, us)]);
    out.words([info.data_segs_in as u32, info.data_segs_out as u32]);
    out.longs([info.delivery_rate]);
    out.longs([info.busy_time, info.rwnd_limited, info.sndbuf_limited].map(Duration::as_micros));
    out.words([info.delivered as u32, info.delivered_ce]);
    out.longs([info.bytes_sent, info.bytes_retrans]);
    // tcpi_dsack_dups to tcpi_rehash; the rest is 0.
    out.words([info.dsack_dups, info.reord_seen, info.rcv_ooopack, info.snd_wnd, info.rcv_wnd, 0]);
    out.0.extend(info.total_rto.to_ne_bytes());
    out.0.resize(LEN, 0);
    out.0
}
