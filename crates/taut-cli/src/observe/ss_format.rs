//! A connection in the format of iproute2's `ss`: the tokens of its `-i` line, in its order, for programs
//! that parse it. Pure. Called by `ss.rs`.
//!
//! `ss` prints a token only when it carries information; so does this. Values that taut does not have are
//! left out. Numbers are printed like C's `%g`: six significant digits, no zeros at the end. Rates in bits
//! are rounded to three digits, with k, M, G or T before `bps`; with `-n` they are whole.

use std::fmt::Write as _;

use taut_control::snapshot::ConnSnapshot;

/// `ss` treats a threshold from this value on as never set, like Linux's `TCP_INFINITE_SSTHRESH`.
const SSTHRESH_SHOWN_BELOW: u32 = 0xffff;

/// The reordering that `ss` does not print: Linux's `tcp_reordering`.
const REORDERING: u32 = 3;

/// The parts of a connection to print on its second line.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Detail {
    /// `-i`
    pub info: bool,
    /// `-m`
    pub memory: bool,
    /// `-o`
    pub options: bool,
    /// `-e`
    pub extended: bool,
    /// `-n`
    pub numeric: bool,
}

impl Detail {
    /// Whether there is a second line.
    #[must_use]
    pub(crate) const fn is_any(&self) -> bool {
        self.info || self.memory || self.extended
    }
}

/// The second line, from its tab on.
#[must_use]
pub(crate) fn detail_line(conn: &ConnSnapshot, detail: &Detail) -> String {
    let mut line = Tokens::default();
    if detail.memory {
        line.add(format_args!(
            "skmem:(r{},rb{},t{},tb{},f0,w{},o0,bl0,d0)",
            conn.rcv_queue_bytes, conn.rcvbuf, conn.wmem_alloc, conn.sndbuf, conn.wmem_queued
        ));
    }
    if detail.info {
        if detail.options {
            line.add_if(conn.timestamps, format_args!("ts"));
            line.add_if(conn.sack, format_args!("sack"));
            line.add_if(conn.ecn, format_args!("ecn"));
            line.add_if(conn.ecn_seen, format_args!("ecnseen"));
            line.add_if(conn.syn_data, format_args!("fastopen"));
        }
        info(&mut line, conn, detail.numeric);
    }
    if detail.extended {
        line.add(format_args!("ca_state:{}", conn.ca_state));
        let words: Vec<_> =
            conn.congestion_state.split_whitespace().filter(|word| !word.contains(':')).collect();
        line.add_if(!words.is_empty(), format_args!("cc_state:{}", words.join(",")));
        line.add(format_args!("blocked:{}", conn.blocked));
        line.add(format_args!("rcv_wnd:{}", conn.rcv_wnd));
        if let Some(bytes) = conn.notsent_lowat {
            line.add(format_args!("notsent_lowat:{bytes}"));
        }
    }
    line.0
}

fn info(line: &mut Tokens, conn: &ConnSnapshot, numeric: bool) {
    line.add(format_args!("{}", conn.congestion));
    if let (Some(snd), Some(rcv)) = (conn.snd_wscale, conn.rcv_wscale) {
        line.add(format_args!("wscale:{snd},{rcv}"));
    }
    line.add_if(conn.rto_ns > 0, format_args!("rto:{}", ms(conn.rto_ns)));
    line.positive("backoff", conn.backoff.into());
    if let Some(rtt) = conn.rtt_ns {
        line.add(format_args!("rtt:{}/{}", ms(rtt), ms(conn.rttvar_ns)));
    }
    line.add_if(conn.ato_ns > 0, format_args!("ato:{}", ms(conn.ato_ns)));
    line.positive("mss", conn.snd_mss.into());
    line.positive("pmtu", conn.pmtu.into());
    line.positive("rcvmss", conn.rcv_mss.into());
    line.positive("advmss", conn.advmss.into());
    line.positive("cwnd", conn.snd_cwnd.into());
    line.add_if(conn.snd_ssthresh < SSTHRESH_SHOWN_BELOW, format_args!("ssthresh:{}", conn.snd_ssthresh));
    line.positive("bytes_sent", conn.bytes_sent);
    line.positive("bytes_retrans", conn.bytes_retrans);
    line.positive("bytes_acked", conn.bytes_acked);
    line.positive("bytes_received", conn.bytes_received);
    line.positive("segs_out", conn.segs_out.into());
    line.positive("segs_in", conn.segs_in.into());
    line.positive("data_segs_out", conn.data_segs_out);
    line.positive("data_segs_in", conn.data_segs_in);
    let values = congestion_values(&conn.congestion_state, numeric);
    let name = conn.congestion.split(':').next().unwrap_or_default();
    line.add_if(!values.is_empty(), format_args!("{name}:({values})"));

    let rate = |bytes_per_second: f64| rate(bytes_per_second * 8.0, numeric);
    if let Some(rtt) = conn.rtt_ns.filter(|&rtt| rtt > 0) {
        let window = f64::from(conn.snd_mss) * f64::from(conn.snd_cwnd);
        line.add_if(window > 0.0, format_args!("send {}", rate(window * 1e9 / rtt as f64)));
    }
    for (name, span) in [("lastsnd", conn.last_snd_ns), ("lastrcv", conn.last_rcv_ns)] {
        line.positive(name, span.map_or(0, whole_ms));
    }
    line.positive("lastack", whole_ms(conn.last_ack_ns));
    if let Some(pacing) = conn.pacing_rate.filter(|&pacing| pacing > 0) {
        let most = conn.max_pacing_rate.map_or(String::new(), |most| format!("/{}", rate(most as f64)));
        line.add(format_args!("pacing_rate {}{most}", rate(pacing as f64)));
    }
    line.add_if(conn.pacing_delegated, format_args!("pacing_delegated"));
    if let Some(limit) = conn.tsq.limit {
        let time = conn.tsq.time_ns.map_or(String::new(), |time| format!(",time:{}", ms(time)));
        line.add(format_args!("tsq:({},limit:{limit}{time})", conn.tsq.rule));
    }
    line.add_if(conn.delivery_rate > 0, format_args!("delivery_rate {}", rate(conn.delivery_rate as f64)));
    line.positive("delivered", conn.delivered);
    line.positive("delivered_ce", conn.delivered_ce.into());
    line.add_if(conn.delivery_rate_app_limited, format_args!("app_limited"));

    line.add_if(conn.busy_ns > 0, format_args!("busy:{}ms", whole_ms(conn.busy_ns)));
    for (name, part) in [("rwnd_limited", conn.rwnd_limited_ns), ("sndbuf_limited", conn.sndbuf_limited_ns)] {
        let per_cent = part as f64 * 100.0 / conn.busy_ns.max(1) as f64;
        line.add_if(part > 0, format_args!("{name}:{}ms({per_cent:.1}%)", whole_ms(part)));
    }
    line.positive("unacked", conn.unacked.into());
    line.add_if(
        conn.retrans > 0 || conn.total_retrans > 0,
        format_args!("retrans:{}/{}", conn.retrans, conn.total_retrans),
    );
    line.positive("lost", conn.lost.into());
    line.positive("sacked", conn.sacked.into());
    line.positive("dsack_dups", conn.dsack_dups.into());
    line.add_if(conn.reordering != REORDERING, format_args!("reordering:{}", conn.reordering));
    line.positive("reord_seen", conn.reord_seen.into());
    if let Some(rtt) = conn.rcv_rtt_ns {
        line.add(format_args!("rcv_rtt:{}", ms(rtt)));
    }
    line.positive("rcv_space", conn.rcv_space.into());
    line.positive("notsent", conn.notsent_bytes);
    if let Some(rtt) = conn.min_rtt_ns {
        line.add(format_args!("minrtt:{}", ms(rtt)));
    }
    line.positive("rcv_ooopack", conn.rcv_ooopack.into());
    line.positive("snd_wnd", conn.snd_wnd.into());
}

/// The values of a congestion control, as `ss` prints BBR's: `bw:93Mbps,mrtt:20.1`. Words without a value are
/// printed elsewhere.
fn congestion_values(state: &str, numeric: bool) -> String {
    let value = |value: &str| {
        let bits = value.strip_suffix("bps").and_then(|bits| bits.parse().ok());
        // Such as DCTCP's alpha, of which ss prints the numerator.
        let number = value.split('/').next().unwrap_or(value);
        match (bits, number.parse()) {
            (Some(bits), _) => rate(bits, numeric),
            (None, Ok(number)) => general(number),
            _ => value.to_owned(),
        }
    };
    let pairs = state.split_whitespace().filter_map(|word| word.split_once(':'));
    pairs.map(|(name, text)| format!("{name}:{}", value(text))).collect::<Vec<_>>().join(",")
}

/// A line of tokens, each after a blank, with a tab before the first one.
#[derive(Debug, Default)]
struct Tokens(String);

impl Tokens {
    fn add(&mut self, token: std::fmt::Arguments<'_>) {
        self.0 += if self.0.is_empty() { "\t " } else { " " };
        // Writing to a string cannot fail.
        _ = self.0.write_fmt(token);
    }

    fn add_if(&mut self, is_shown: bool, token: std::fmt::Arguments<'_>) {
        if is_shown {
            self.add(token);
        }
    }

    fn positive(&mut self, name: &str, value: u64) {
        self.add_if(value > 0, format_args!("{name}:{value}"));
    }
}

const NS_PER_MS: u64 = 1_000_000;

fn whole_ms(ns: u64) -> u64 {
    ns / NS_PER_MS
}

/// Milliseconds; the kernel counts microseconds, so there are at most three decimal places.
fn ms(ns: u64) -> String {
    general((ns / 1000) as f64 / 1000.0)
}

/// A number as C's `%g` prints it.
fn general(value: f64) -> String {
    significant(value, 6)
}

fn significant(value: f64, digits: usize) -> String {
    if value == 0.0 || !value.is_finite() {
        return "0".to_owned();
    }
    let scientific = format!("{value:.*e}", digits - 1);
    let Some((mantissa, Ok(exponent))) = scientific.split_once('e').map(|(m, e)| (m, e.parse::<i32>()))
    else {
        return scientific;
    };
    let trim = |number: &str| {
        if number.contains('.') {
            number.trim_end_matches('0').trim_end_matches('.').to_owned()
        } else {
            number.to_owned()
        }
    };
    if (-4..digits as i32).contains(&exponent) {
        let places = digits as i32 - 1 - exponent;
        return trim(&format!("{value:.*}", places as usize));
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{}e{sign}{:02}", trim(mantissa), exponent.unsigned_abs())
}

/// Bits per second.
fn rate(bits: f64, numeric: bool) -> String {
    if numeric {
        return format!("{bits:.0}bps");
    }
    let mut value = bits;
    let mut units = ["k", "M", "G", "T"].into_iter();
    let mut unit = "";
    // From 999.5 on, three digits would be 1000.
    while value >= 999.5 {
        let Some(next) = units.next() else { break };
        (value, unit) = (value / 1000.0, next);
    }
    format!("{}{unit}bps", significant(value, 3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_look_as_in_c() {
        for (value, text) in [
            (0.0, "0"),
            (204.0, "204"),
            (0.053, "0.053"),
            (5.626, "5.626"),
            (11.076, "11.076"),
            (100.0, "100"),
            (12_345.678, "12345.7"),
            (1_234_567.0, "1.23457e+06"),
            (1_000_000.0, "1e+06"),
            (0.000_01, "1e-05"),
        ] {
            assert_eq!(general(value), text);
        }
    }

    /// In the form of iproute2's `tcp_stats_print`: `bbr:(bw:%sbps,mrtt:%g,pacing_gain:%g,cwnd_gain:%g)`, and
    /// for `dctcp:` the alpha as a number.
    #[test]
    fn what_a_congestion_control_knows_looks_as_in_ss() {
        let bbr = "probe_bw_cruise bw:93000000bps mrtt:20.100 pacing_gain:1.00 cwnd_gain:2.25";
        assert_eq!(congestion_values(bbr, false), "bw:93Mbps,mrtt:20.1,pacing_gain:1,cwnd_gain:2.25");
        assert_eq!(congestion_values(bbr, true), "bw:93000000bps,mrtt:20.1,pacing_gain:1,cwnd_gain:2.25");
        assert_eq!(congestion_values("alpha:512/1024", false), "alpha:512");
        assert_eq!(congestion_values("", false), "");
        // The description of a user's own algorithm.
        assert_eq!(congestion_values("calm mood:fair", false), "mood:fair");
    }

    /// Values and texts as `ss` of iproute2 6.1 showed them for the kernel's connections.
    #[test]
    fn rates_look_as_in_ss() {
        for (bits, text, numeric) in [
            (800.0, "800bps", "800bps"),
            (1000.0, "1kbps", "1000bps"),
            (98_760.0, "98.8kbps", "98760bps"),
            (987_648.0, "988kbps", "987648bps"),
            (1_000_000.0, "1Mbps", "1000000bps"),
            (9_999_992.0, "10Mbps", "9999992bps"),
            (5_172_711_328.0, "5.17Gbps", "5172711328bps"),
            (60_713_788_032.0, "60.7Gbps", "60713788032bps"),
            (125_373_217_391.0, "125Gbps", "125373217391bps"),
        ] {
            assert_eq!(rate(bits, false), text);
            assert_eq!(rate(bits, true), numeric);
        }
        // Here ss prints 1e+03kbps, which programs parse as 1.
        assert_eq!(rate(999_992.0, false), "1Mbps");
    }
}
