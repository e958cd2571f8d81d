//! A run as a trace for <https://ui.perfetto.dev>, in the JSON that it reads beside its own format
//! (Chrome's trace events). Called by `files.rs`, for runs that keep their ACKs.
//!
//! Each flow is a process: counters of its window, its bytes and its round-trip time after every ACK, a
//! slice for as long as one gate of the send path held it, and a mark for each retransmitted or dropped
//! packet. Times are microseconds of the run.

use serde_json::{Value, json};

use crate::data::{AckRow, PointKind, RunData};

/// The thread of a flow that has its slices.
const GATES_ID: u32 = 1;
/// The thread of a flow that has its marks.
const MARKS_ID: u32 = 2;

/// The file's text, with an event on each line.
pub(crate) fn text(data: &RunData) -> String {
    let mut events = Vec::new();
    for flow in &data.flows {
        let rows: Vec<&AckRow> = data.acks.iter().filter(|row| row.flow == flow.id).collect();
        if rows.is_empty() {
            continue;
        }
        // 0 is the system's own.
        let pid = flow.id + 1;
        events.push(name("process_name", pid, 0, &format!("{} ({} to {})", flow.name, flow.from, flow.to)));
        events.push(name("thread_name", pid, GATES_ID, "held by"));
        events.push(name("thread_name", pid, MARKS_ID, "packets"));
        for row in &rows {
            let counter = |name: &str, args: Value| json!({ "ph": "C", "pid": pid, "ts": us(row.t_s), "name": name, "args": args });
            events.push(counter("cwnd, bytes", json!({ "value": row.cwnd_bytes })));
            events.push(counter("in flight, bytes", json!({ "value": row.in_flight_bytes })));
            events.push(counter("unsent, bytes", json!({ "value": row.unsent_bytes })));
            if let Some(rtt_s) = row.srtt_s {
                events.push(counter("smoothed round-trip time, ms", json!({ "value": rtt_s * 1e3 })));
            }
        }
        // From the ACK after which a gate was the closed one to the first after which it was not.
        let mut seen = 0;
        for held in rows.chunk_by(|one, next| one.blocked == next.blocked) {
            seen += held.len();
            let end_s = rows.get(seen).map_or(data.meta.duration_s, |row| row.t_s);
            let (from, to) = (us(held[0].t_s), us(end_s));
            events.push(json!({
                "ph": "X", "pid": pid, "tid": GATES_ID, "ts": from, "dur": to - from, "name": held[0].blocked,
            }));
        }
        for point in data.packets.iter().filter(|point| point.flow == flow.id) {
            let kind = match point.kind {
                PointKind::Retransmit => "retransmitted",
                PointKind::Drop => "dropped",
                PointKind::Data | PointKind::Ack | PointKind::Sack | PointKind::Window => continue,
            };
            events.push(json!({
                "ph": "i", "s": "t", "pid": pid, "tid": MARKS_ID, "ts": us(point.t_s), "name": kind,
                "args": { "seq": point.seq, "bytes": point.len },
            }));
        }
    }
    let lines: Vec<String> = events.iter().map(Value::to_string).collect();
    format!("{{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n{}\n]}}\n", lines.join(",\n"))
}

fn us(seconds: f64) -> f64 {
    seconds * 1e6
}

fn name(what: &str, pid: u32, tid: u32, text: &str) -> Value {
    json!({ "ph": "M", "pid": pid, "tid": tid, "name": what, "args": { "name": text } })
}
