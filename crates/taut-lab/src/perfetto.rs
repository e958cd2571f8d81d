//! A run as a trace for <https://ui.perfetto.dev>, in the JSON that it reads beside its own format
//! (Chrome's trace events). Called by `files.rs`, for runs that keep their ACKs.
//!
//! Each flow is a process: counters of its window, its bytes and its round-trip time after every ACK, a
//! slice for as long as one gate of the send path held it, and a mark for each retransmitted or dropped
//! packet. Times are microseconds of the run, to the nanosecond.
//!
//! What the reader makes of them (its importer of JSON, `src/trace_processor/importers/json`): a counter's
//! name is the event's and that of the argument, so the argument is called by its unit. A number of a thread
//! belongs to one process. A complete event (`X`) that begins a nanosecond before the last one ends is left
//! out, and start and length are rounded each for itself; so a slice has a begin and an end, and one's end is
//! the same number as the next one's begin. `displayTimeUnit` was once taken for the unit of all times, so it
//! is not there.

use serde_json::{Value, json};

use crate::data::{AckRow, PointKind, RunData};

/// What a flow's threads are numbered from: its number times this.
const THREADS: u32 = 10;

/// The file's text, with an event on each line.
pub(crate) fn text(data: &RunData) -> String {
    let mut events = Vec::new();
    for flow in &data.flows {
        let rows: Vec<&AckRow> = data.acks.iter().filter(|row| row.flow == flow.id).collect();
        if rows.is_empty() {
            continue;
        }
        // 0 is the system's own. The first has the slices, the second the marks.
        let pid = flow.id + 1;
        let (gates, marks) = (pid * THREADS + 1, pid * THREADS + 2);
        let title = format!("{} ({} to {})", flow.name, flow.from, flow.to);
        events.push(json!({ "ph": "M", "pid": pid, "name": "process_name", "args": { "name": title } }));
        for (tid, name) in [(gates, "held by"), (marks, "packets")] {
            let args = json!({ "name": name });
            events.push(json!({ "ph": "M", "pid": pid, "tid": tid, "name": "thread_name", "args": args }));
        }
        for row in &rows {
            let counter = |name: &str, args: Value| json!({ "ph": "C", "pid": pid, "ts": us(row.t_s), "name": name, "args": args });
            events.push(counter("cwnd", json!({ "bytes": row.cwnd_bytes })));
            events.push(counter("in flight", json!({ "bytes": row.in_flight_bytes })));
            events.push(counter("unsent", json!({ "bytes": row.unsent_bytes })));
            if let Some(rtt_s) = row.srtt_s {
                events.push(counter("smoothed round-trip time", json!({ "ms": rtt_s * 1e3 })));
            }
        }
        // From the ACK after which a gate was the closed one to the first after which it was not.
        let mut seen = 0;
        for held in rows.chunk_by(|one, next| one.blocked == next.blocked) {
            seen += held.len();
            let end_s = rows.get(seen).map_or(data.meta.duration_s, |row| row.t_s);
            for (phase, at_s) in [("B", held[0].t_s), ("E", end_s)] {
                events.push(json!({
                    "ph": phase, "pid": pid, "tid": gates, "ts": us(at_s), "name": held[0].blocked,
                }));
            }
        }
        for point in data.packets.iter().filter(|point| point.flow == flow.id) {
            let kind = match point.kind {
                PointKind::Retransmit => "retransmitted",
                PointKind::Drop => "dropped",
                PointKind::Data | PointKind::Ack | PointKind::Sack | PointKind::Window => continue,
            };
            events.push(json!({
                "ph": "i", "s": "t", "pid": pid, "tid": marks, "ts": us(point.t_s), "name": kind,
                "args": { "seq": point.seq, "bytes": point.len },
            }));
        }
    }
    let lines: Vec<String> = events.iter().map(Value::to_string).collect();
    format!("{{\"traceEvents\":[\n{}\n]}}\n", lines.join(",\n"))
}

/// Microseconds with three places.
fn us(seconds: f64) -> f64 {
    (seconds * 1e9).round() / 1e3
}
