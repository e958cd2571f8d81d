//! The events of a run, one JSON object per line: `events.jsonl`, described in docs/reference/lab.md. Called
//! by the collector.

use std::fmt::Write as _;

use taut_core::Instant;
use taut_sim::{BEGIN, PacketView, Place, ProbeEvent};

/// Version of the line format, written in the first line.
pub const VERSION: u32 = 1;

/// Largest number of lines.
const LINES_MAX: u64 = 50_000;

/// Lines, up to a limit.
#[derive(Debug)]
pub struct EventLog {
    text: String,
    lines: u64,
    left_out: u64,
}

impl EventLog {
    /// Makes a log with its first line.
    pub(crate) fn new() -> Self {
        let text =
            format!("{{\"schema\":{VERSION},\"time\":\"ns since the run began\",\"max\":{LINES_MAX}}}\n");
        Self { text, lines: 0, left_out: 0 }
    }

    /// Returns the text, and the number of lines that did not fit.
    pub(crate) fn finish(self) -> (String, u64) {
        (self.text, self.left_out)
    }

    /// Whether there is room for another line.
    pub(crate) const fn has_room(&self) -> bool {
        self.lines < LINES_MAX
    }

    /// Appends an event if there is room.
    pub(crate) fn log(
        &mut self,
        now: Instant,
        what: &ProbeEvent<'_>,
        names: &[String],
        place_name: impl Fn(Place) -> String,
    ) {
        if !self.has_room() {
            self.left_out += 1;
            return;
        }
        self.lines += 1;
        let t = now.since(BEGIN).as_nanos();
        let host = |id: &taut_sim::HostId| names.get(id.index()).map_or("?", String::as_str);
        let out = &mut self.text;
        // Names are the lab's own and need no escaping; writing to a string does not fail.
        let _ = match what {
            ProbeEvent::Handed { host: id, packet, backlog_bytes } => {
                let packet = json(packet);
                writeln!(
                    out,
                    r#"{{"t":{t},"ev":"handed","host":"{}",{packet},"backlog":{backlog_bytes}}}"#,
                    host(id)
                )
            }
            ProbeEvent::Sent { place, packet, at } => {
                let (place, packet, at) = (place_name(*place), json(packet), at.since(BEGIN).as_nanos());
                writeln!(out, r#"{{"t":{t},"ev":"sent","place":"{place}",{packet},"at":{at}}}"#)
            }
            ProbeEvent::Delivered { host: id, packet } => {
                writeln!(out, r#"{{"t":{t},"ev":"delivered","host":"{}",{}}}"#, host(id), json(packet))
            }
            ProbeEvent::Dropped { place, packet } => {
                let (place, packet) = (place_name(*place), json(packet));
                writeln!(out, r#"{{"t":{t},"ev":"dropped","place":"{place}",{packet}}}"#)
            }
            ProbeEvent::Ack { host: id, conn, info } => {
                let (host, conn) = (host(id), conn.slot());
                let (cwnd, in_flight, blocked) = (info.snd_cwnd, info.unacked, info.blocked.name());
                let (state, srtt) = (info.ca_state, info.rtt.map_or(0, taut_core::Duration::as_nanos));
                writeln!(
                    out,
                    r#"{{"t":{t},"ev":"ack","host":"{host}","conn":{conn},"cwnd":{cwnd},"in_flight":{in_flight},"srtt":{srtt},"ca":"{state}","blocked":"{blocked}"}}"#
                )
            }
            ProbeEvent::Wrote { host: id, app, conn, bytes } => {
                app_line(out, t, "wrote", host(id), app.index(), conn.slot(), *bytes)
            }
            ProbeEvent::Read { host: id, app, conn, bytes } => {
                app_line(out, t, "read", host(id), app.index(), conn.slot(), *bytes)
            }
            ProbeEvent::Woken { host: id, app } => {
                writeln!(out, r#"{{"t":{t},"ev":"woken","host":"{}","app":{}}}"#, host(id), app.index())
            }
            ProbeEvent::Interrupt { host: id, transmit, frames } => {
                let side = if *transmit { "tx" } else { "rx" };
                writeln!(
                    out,
                    r#"{{"t":{t},"ev":"interrupt","host":"{}","side":"{side}","frames":{frames}}}"#,
                    host(id)
                )
            }
            ProbeEvent::Timer { host: id } => {
                writeln!(out, r#"{{"t":{t},"ev":"timer","host":"{}"}}"#, host(id))
            }
            ProbeEvent::Blocked { host: id, conn, gate } => {
                let (host, conn, gate) = (host(id), conn.slot(), gate.name());
                writeln!(out, r#"{{"t":{t},"ev":"blocked","host":"{host}","conn":{conn},"gate":"{gate}"}}"#)
            }
            _ => Ok(()),
        };
    }
}

fn app_line(
    out: &mut String,
    t: u64,
    ev: &str,
    host: &str,
    app: usize,
    conn: usize,
    bytes: u64,
) -> std::fmt::Result {
    writeln!(out, r#"{{"t":{t},"ev":"{ev}","host":"{host}","app":{app},"conn":{conn},"bytes":{bytes}}}"#)
}

/// The members that describe a packet.
fn json(packet: &PacketView<'_>) -> String {
    let (from, to) = (packet.from().index(), packet.to().index());
    let (len, segs, payload) = (packet.len(), packet.segs(), packet.payload_len());
    let tcp = packet.tcp().map_or_else(String::new, |tcp| {
        let (sport, dport, seq, ack) = (tcp.src_port, tcp.dst_port, tcp.seq, tcp.ack);
        format!(r#","sport":{sport},"dport":{dport},"seq":{seq},"ack":{ack},"flags":{}"#, tcp.flags.bits())
    });
    format!(r#""from":{from},"to":{to},"len":{len},"segs":{segs},"payload":{payload}{tcp}"#)
}
