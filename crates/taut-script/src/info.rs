//! The names that code in `%{ }%` may use: Linux's `tcpi_…` fields in Linux's units, and taut's own view of
//! the connection. Asked by the runner.
//!
//! Besides `tcpi_…`: `blocked` (the gate that was shut, as `taut explain` names it), `congestion`,
//! `wmem_alloc` (bytes below TCP), `rcv_queue`, `ca_state`, `state`, `now` (seconds of the script), and the
//! functions `nstat('TcpExtTCPTimeouts')`, `sysctl('tcp_ecn')`.

use taut_core::{ConnInfo, Duration, Stack};

use crate::code::{Names, Val};

/// What code sees: the connection that the script last dealt with.
pub(crate) struct View<'a> {
    pub(crate) stack: &'a Stack,
    pub(crate) info: Option<ConnInfo>,
    pub(crate) is_listening: bool,
    /// Since the beginning of the script.
    pub(crate) elapsed: Duration,
}

/// Linux's number of a state that no connection has.
const LISTEN: i128 = 10;

/// The states of loss recovery in Linux's order.
const CA_STATES: [&str; 5] = ["open", "disorder", "cwr", "recovery", "loss"];

fn us(span: Duration) -> Val {
    Val::Int(span.as_micros().into())
}

fn ms(span: Duration) -> Val {
    Val::Int(span.as_millis().into())
}

/// A field of `struct tcp_info`, without its `tcpi_`.
fn field(info: &ConnInfo, name: &str) -> Option<Val> {
    let int = |value: u64| Val::Int(value.into());
    let bit = |on: bool, bit: i128| if on { bit } else { 0 };
    Some(match name {
        "state" => Val::Int(info.state.number().into()),
        "ca_state" => {
            let at = CA_STATES.iter().position(|state| *state == info.ca_state);
            Val::Int(at.map_or(-1, |at| at as i128))
        }
        "retransmits" | "backoff" => int(info.backoff.into()),
        // TCPI_OPT_TIMESTAMPS, SACK, WSCALE, ECN, ECN_SEEN, SYN_DATA, TFO_CHILD.
        "options" => Val::Int(
            bit(info.timestamps, 1)
                | bit(info.sack, 2)
                | bit(info.snd_wscale.is_some(), 4)
                | bit(info.ecn, 8)
                | bit(info.ecn_seen, 16)
                | bit(info.syn_data, 32)
                | bit(info.fast_open_child, 128),
        ),
        "fastopen_client_fail" => int(info.fast_open_fail.number().into()),
        "snd_wscale" => int(info.snd_wscale.unwrap_or(0).into()),
        "rcv_wscale" => int(info.rcv_wscale.unwrap_or(0).into()),
        "delivery_rate_app_limited" => Val::Int(i128::from(info.delivery_rate_app_limited)),
        "rto" => us(info.rto),
        "ato" => us(info.ato),
        "snd_mss" => int(info.snd_mss.into()),
        "rcv_mss" => int(info.rcv_mss.into()),
        "unacked" => int(info.unacked.into()),
        "sacked" => int(info.sacked.into()),
        "lost" => int(info.lost.into()),
        "retrans" => int(info.retrans.into()),
        "fackets" | "last_ack_sent" => int(0),
        "last_data_sent" => ms(info.last_data_sent),
        "last_data_recv" => ms(info.last_data_recv),
        "last_ack_recv" => ms(info.last_ack_recv),
        "pmtu" => int(info.pmtu.into()),
        "rtt" => us(info.rtt.unwrap_or(Duration::ZERO)),
        "rttvar" => us(info.rttvar),
        // Linux's "no threshold" is the largest int.
        "snd_ssthresh" => int(info.snd_ssthresh.min(i32::MAX as u32).into()),
        "snd_cwnd" => int(info.snd_cwnd.into()),
        "advmss" => int(info.advmss.into()),
        "rcv_rtt" => us(info.rcv_rtt.unwrap_or(Duration::ZERO)),
        "total_retrans" => int(info.total_retrans),
        "pacing_rate" => int(info.pacing_rate),
        "max_pacing_rate" => int(info.max_pacing_rate),
        "bytes_acked" => int(info.bytes_acked),
        "bytes_received" => int(info.bytes_received),
        "segs_out" => int(info.segs_out.into()),
        "segs_in" => int(info.segs_in.into()),
        "notsent_bytes" => int(info.notsent_bytes),
        "min_rtt" => us(info.min_rtt.unwrap_or(Duration::ZERO)),
        "data_segs_in" => int(info.data_segs_in),
        "data_segs_out" => int(info.data_segs_out),
        "delivery_rate" => int(info.delivery_rate),
        "busy_time" => us(info.busy_time),
        "rwnd_limited" => us(info.rwnd_limited),
        "sndbuf_limited" => us(info.sndbuf_limited),
        "delivered" => int(info.delivered),
        "delivered_ce" => int(info.delivered_ce.into()),
        "bytes_sent" => int(info.bytes_sent),
        "bytes_retrans" => int(info.bytes_retrans),
        "snd_wnd" => int(info.snd_wnd.into()),
        "rcv_wnd" => int(info.rcv_wnd.into()),
        _ => return None,
    })
}

impl Names for View<'_> {
    fn value(&mut self, name: &str) -> Result<Val, String> {
        if let Some(value) = crate::constants::constant(name) {
            return Ok(Val::Int(value.into()));
        }
        if name == "now" {
            return Ok(Val::Float(self.elapsed.as_nanos() as f64 / 1e9));
        }
        if name == "tcpi_state" && self.is_listening {
            return Ok(Val::Int(LISTEN));
        }
        let Some(info) = &self.info else {
            return Err(format!("{name}: there is no connection yet"));
        };
        let own = match name {
            "blocked" => Some(Val::Text(info.blocked.name().to_owned())),
            "congestion" => Some(Val::Text(info.congestion.name().to_owned())),
            "ca_state" => Some(Val::Text(info.ca_state.to_owned())),
            "state" => Some(Val::Text(info.state.name().to_owned())),
            "wmem_alloc" => Some(Val::Int(info.wmem_alloc.into())),
            "rcv_queue" => Some(Val::Int(info.rcv_queue_bytes.into())),
            _ => name.strip_prefix("tcpi_").and_then(|name| field(info, name)),
        };
        own.ok_or_else(|| format!("the stack reports no {name}"))
    }

    fn call(&mut self, name: &str, args: &[Val]) -> Result<Val, String> {
        match (name, args) {
            ("nstat", [Val::Text(counter)]) => {
                let found = self.stack.counters().iter().find(|(is, _)| is == counter);
                found
                    .map(|(_, count)| Val::Int(count.into()))
                    .ok_or_else(|| format!("there is no counter {counter}"))
            }
            ("sysctl", [Val::Text(setting)]) => {
                let text = self.stack.sysctl(setting).map_err(|error| error.to_string())?;
                Ok(text.parse().map_or(Val::Text(text), Val::Int))
            }
            _ => Err(format!(
                "there is no function {name}; there are nstat(name), sysctl(name), abs, min, max, int, float and round"
            )),
        }
    }
}
