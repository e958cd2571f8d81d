//! Queue disciplines as `tc` (iproute2 6.1) prints them, as text and as JSON. Called by `qdisc.rs`.
//!
//! A stack reports the specification of a discipline as text; this file parses it, including defaults that
//! the text leaves out.

use std::fmt::Write as _;
use std::time::Duration;

use anyhow::Context as _;
use serde::ser::{Serialize, Serializer};
use serde_json::{Value, json as value};
use taut::qdisc::{Chance, FqCodelSpec, FqSpec, Loss, NetemSpec, QdiscHandle, QdiscSpec, Share, TbfSpec};
use taut_control::qdisc::QdiscSnapshot;

/// Users of a discipline: `tc` shows 2 for every root, this process and the interface.
const REFCNT: u64 = 2;

/// The bands of the priorities, as `tc` shows them for `pfifo_fast`.
const PRIOMAP: [u8; 16] = [1, 2, 2, 2, 1, 2, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1];

/// The lines of a discipline; `None` if packets go straight to the device.
///
/// # Errors
/// When the specification is of a later version.
pub(crate) fn text(
    qdisc: Option<&QdiscSnapshot>,
    device: Option<&str>,
    statistics: bool,
) -> anyhow::Result<String> {
    let dev = device.map(|device| format!(" dev {device}")).unwrap_or_default();
    let Some(qdisc) = qdisc else {
        let lines = if statistics { counts(&QdiscSnapshot::default()) } else { String::new() };
        return Ok(format!("qdisc noqueue 0:{dev} root refcnt {REFCNT} \n{lines}"));
    };
    let place = match qdisc.parent {
        None => format!("root refcnt {REFCNT}"),
        Some(parent) => format!("parent {}", QdiscHandle(parent)),
    };
    let options = options_text(&spec(qdisc)?);
    let mut lines = format!("qdisc {} {}{dev} {place}{options}\n", qdisc.kind, QdiscHandle(qdisc.handle));
    if statistics {
        lines += &counts(qdisc);
        lines += &details(qdisc);
    }
    Ok(lines)
}

fn spec(qdisc: &QdiscSnapshot) -> anyhow::Result<QdiscSpec> {
    qdisc.spec.parse().with_context(|| format!("cannot parse the stack's queue discipline {:?}", qdisc.spec))
}

fn counts(qdisc: &QdiscSnapshot) -> String {
    let QdiscSnapshot { bytes, packets, drops, overlimits, requeues, backlog, qlen, .. } = qdisc;
    format!(
        " Sent {bytes} bytes {packets} pkt (dropped {drops}, overlimits {overlimits} requeues {requeues}) \n \
         backlog {} {qlen}p requeues {requeues}\n",
        size(*backlog)
    )
}

fn detail(qdisc: &QdiscSnapshot, name: &str) -> u64 {
    qdisc.details.iter().find(|counter| counter.name == name).map_or(0, |counter| counter.value)
}

fn details(qdisc: &QdiscSnapshot) -> String {
    let count = |name: &str| detail(qdisc, name);
    let mut lines = String::new();
    // `tc` leaves out some that are zero.
    let more = |lines: &mut String, names: &[&str]| {
        for name in names.iter().filter(|name| count(name) > 0) {
            _ = write!(lines, " {name} {}", count(name));
        }
    };
    match qdisc.kind.as_str() {
        "fq" => {
            let (flows, inactive, throttled) = (count("flows"), count("inactive"), count("throttled"));
            _ = writeln!(lines, "  flows {flows} (inactive {inactive} throttled {throttled})");
            let bands = [0, 1, 2].map(|band| count(&format!("band{band}_pkts")));
            _ = writeln!(lines, "  band0_pkts {} band1_pkts {} band2_pkts {}", bands[0], bands[1], bands[2]);
            let (gc, fastpath, throttled) = (count("gc"), count("fastpath"), count("throttled_total"));
            _ = write!(lines, "  gc {gc} highprio 0 fastpath {fastpath} throttled {throttled}");
            more(&mut lines, &["ce_mark", "flows_plimit", "pkts_too_long"]);
            more(&mut lines, &["band0_drops", "band1_drops", "band2_drops", "horizon_drops", "horizon_caps"]);
            lines.push('\n');
        }
        "fq_codel" => {
            let shown = ["maxpacket", "drop_overlimit", "new_flow_count", "ecn_mark"];
            let first: Vec<_> = shown.iter().map(|name| format!("{name} {}", count(name))).collect();
            _ = write!(lines, "  {}", first.join(" "));
            more(&mut lines, &["ce_mark", "memory_used", "drop_overmemory"]);
            let (new, old) = (count("new_flows_len"), count("old_flows_len"));
            _ = writeln!(lines, "\n  new_flows_len {new} old_flows_len {old}");
        }
        _ => {}
    }
    lines
}

/// The options, each after a space.
fn options_text(spec: &QdiscSpec) -> String {
    match spec {
        QdiscSpec::Pfifo { limit } => format!(" limit {limit}p"),
        QdiscSpec::Bfifo { limit } => format!(" limit {}", size(u64::from(*limit))),
        QdiscSpec::PfifoFast => {
            let map: Vec<_> = PRIOMAP.iter().map(ToString::to_string).collect();
            format!(" bands 3 priomap {}", map.join(" "))
        }
        QdiscSpec::Fq(spec) => fq_text(spec),
        QdiscSpec::FqCodel(spec) => fq_codel_text(spec),
        QdiscSpec::Tbf(spec, _) => tbf_text(spec),
        QdiscSpec::Netem(spec, _) => netem_text(spec),
        other => format!(" {other}"),
    }
}

fn fq_text(spec: &FqSpec) -> String {
    let FqSpec { limit, flow_limit, buckets, orphan_mask, .. } = spec;
    let mut text =
        format!(" limit {limit}p flow_limit {flow_limit}p buckets {buckets} orphan_mask {orphan_mask}");
    text += if spec.pacing { "" } else { " nopacing" };
    let quanta = [spec.quantum_bytes, spec.initial_quantum_bytes].map(|bytes| size(u64::from(bytes)));
    _ = write!(text, " quantum {} initial_quantum {}", quanta[0], quanta[1]);
    let rates = [("maxrate", spec.maxrate), ("low_rate_threshold", spec.low_rate_threshold)];
    for (name, set) in rates.into_iter().filter_map(|(name, set)| Some((name, set?))) {
        _ = write!(text, " {name} {}", rate(set.bits_per_second()));
    }
    _ = write!(text, " refill_delay {}", time(spec.refill_delay.into()));
    _ = write!(text, " timer_slack {}", time(spec.timer_slack.into()));
    if let Some(threshold) = spec.ce_threshold {
        _ = write!(text, " ce_threshold {}", time(threshold.into()));
    }
    let beyond = if spec.horizon_cap { "horizon_cap" } else { "horizon_drop" };
    _ = write!(text, " horizon {} {beyond}", time(spec.horizon.into()));
    text
}

fn fq_codel_text(spec: &FqCodelSpec) -> String {
    let FqCodelSpec { limit, flows, quantum_bytes, .. } = spec;
    let mut text = format!(" limit {limit}p flows {flows} quantum {quantum_bytes}");
    _ = write!(text, " target {}", time(spec.target.into()));
    if let Some(threshold) = spec.ce_threshold {
        _ = write!(text, " ce_threshold {}", time(threshold.into()));
    }
    _ = write!(text, " interval {}", time(spec.interval.into()));
    _ = write!(text, " memory_limit {}", size(u64::from(spec.memory_limit_bytes)));
    text += if spec.ecn { " ecn" } else { "" };
    _ = write!(text, " drop_batch {}", spec.drop_batch);
    text
}

/// The time that a full queue takes, beyond the burst.
fn latency(spec: &TbfSpec) -> Option<Duration> {
    spec.limit?;
    let bytes = spec.limit_bytes().saturating_sub(u64::from(spec.burst_bytes));
    Some(spec.rate.time_for(bytes).into())
}

fn tbf_text(spec: &TbfSpec) -> String {
    let mut text =
        format!(" rate {} burst {}", rate(spec.rate.bits_per_second()), size(u64::from(spec.burst_bytes)));
    if let Some(latency) = latency(spec) {
        _ = write!(text, " lat {} ", time(latency));
    }
    text
}

fn netem_text(spec: &NetemSpec) -> String {
    let mut text = format!(" limit {}", spec.limit);
    if !spec.delay.is_zero() || !spec.jitter.is_zero() {
        _ = write!(text, " delay {}", time(spec.delay.into()));
        if !spec.jitter.is_zero() {
            _ = write!(text, "  {}", time(spec.jitter.into()));
            text += &correlation(spec.delay_correlation);
        }
    }
    match &spec.loss {
        Loss::None => {}
        Loss::Random(share) => text += &share_text("loss", *share),
        Loss::Gemodel { p, r, bad, good } => {
            let [p, r, bad, good] = [p, r, bad, good].map(|chance| percent(*chance));
            _ = write!(text, " loss gemodel p {p} r {r} 1-h {bad} 1-k {good}");
        }
        Loss::State { p13, p31, p32, p23, p14 } => {
            let [p13, p31, p32, p23, p14] = [p13, p31, p32, p23, p14].map(|chance| percent(*chance));
            _ = write!(text, " loss state p13 {p13} p31 {p31} p32 {p32} p23 {p23} p14 {p14}");
        }
        // taut's own options, in taut's syntax.
        _ => text += &own_loss(spec),
    }
    text += &share_text("duplicate", spec.duplicate);
    text += &share_text("reorder", spec.reorder);
    text += &share_text("corrupt", spec.corrupt);
    if let Some(path) = &spec.rate {
        _ = write!(text, " rate {}", rate(path.rate.bits_per_second()));
        let of = [
            ("packetoverhead", i64::from(path.packet_overhead)),
            ("cellsize", i64::from(path.cell_bytes)),
            ("celloverhead", i64::from(path.cell_overhead)),
        ];
        for (name, bytes) in of.into_iter().filter(|(_, bytes)| *bytes != 0) {
            _ = write!(text, " {name} {bytes}");
        }
    }
    text += if spec.ecn { " ecn " } else { "" };
    if spec.gap != 0 {
        _ = write!(text, " gap {}", spec.gap);
    }
    if let Some(slot) = &spec.slot {
        _ = write!(text, " slot {} {}", time(slot.min_delay.into()), time(slot.max_delay.into()));
        for (name, count) in [("packets", slot.packets), ("bytes", slot.bytes)] {
            if count != 0 {
                _ = write!(text, " {name} {count}");
            }
        }
    }
    if let Some(seed) = spec.seed {
        _ = write!(text, " seed {seed}");
    }
    text
}

/// The loss options of a specification, in taut's syntax.
fn own_loss(spec: &NetemSpec) -> String {
    let mut alone = NetemSpec::default();
    alone.loss = spec.loss.clone();
    let text = QdiscSpec::Netem(Box::new(alone), None).to_string();
    text.strip_prefix("netem").unwrap_or_default().to_owned()
}

fn share_text(name: &str, share: Share) -> String {
    if share.chance.is_never() {
        return String::new();
    }
    format!(" {name} {}{}", percent(share.chance), correlation(share.correlation))
}

fn correlation(chance: Chance) -> String {
    if chance.is_never() { String::new() } else { format!(" {}", percent(chance)) }
}

fn percent(chance: Chance) -> String {
    format!("{}%", significant(chance.share() * 100.0, 6))
}

/// As many significant digits as C's `%g`, without zeros at the end.
fn significant(value: f64, digits: usize) -> String {
    let magnitude = if value == 0.0 { 0 } else { libm::log10(value.abs()).floor() as i32 };
    let decimals = usize::try_from(digits as i32 - 1 - magnitude).unwrap_or(0);
    let text = format!("{value:.decimals$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

/// `1.5Mb`, `64Kb`, `3028b`; sizes within 16 bytes of a multiple of 1024 count as that multiple.
fn size(bytes: u64) -> String {
    const KB: f64 = 1024.0;
    const MB: f64 = KB * KB;
    let value = bytes as f64;
    let is_near = |unit: f64, slack: f64| {
        value >= unit && (unit * (value / unit).round_ties_even() - value).abs() < slack
    };
    if is_near(MB, 1024.0) {
        format!("{}Mb", (value / MB).round_ties_even())
    } else if is_near(KB, 16.0) {
        format!("{}Kb", (value / KB).round_ties_even())
    } else {
        format!("{bytes}b")
    }
}

/// `1500Kbit`: the largest unit in which the value is a whole number.
fn rate(bits: u64) -> String {
    let mut left = bits;
    let mut units = ["", "K", "M", "G", "T"].into_iter();
    let mut unit = units.next().unwrap_or_default();
    while left >= 1000 && (left.is_multiple_of(1000) || left >= 1_000_000) {
        let Some(next) = units.next() else { break };
        (left, unit) = (left / 1000, next);
    }
    format!("{left}{unit}bit")
}

/// `2.62ms`: three digits.
fn time(time: Duration) -> String {
    let ns = time.as_nanos() as f64;
    if ns >= 1e9 {
        format!("{}s", significant(ns / 1e9, 3))
    } else if ns >= 1e6 {
        format!("{}ms", significant(ns / 1e6, 3))
    } else if ns >= 1e3 {
        format!("{}us", significant(ns / 1e3, 3))
    } else {
        format!("{ns}ns")
    }
}

/// A JSON object that keeps the order of its members.
#[derive(Debug, Default)]
pub(crate) struct Object(Vec<(String, Json)>);

/// A value in such an object.
#[derive(Debug, serde::Serialize)]
#[serde(untagged)]
enum Json {
    Value(Value),
    Object(Object),
}

impl Serialize for Object {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, value)| (name, value)))
    }
}

impl Object {
    fn put(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.0.push((name.to_owned(), Json::Value(value.into())));
        self
    }

    fn put_some(self, name: &str, value: Option<impl Into<Value>>) -> Self {
        match value {
            Some(value) => self.put(name, value),
            None => self,
        }
    }

    fn put_object(mut self, name: &str, object: Self) -> Self {
        self.0.push((name.to_owned(), Json::Object(object)));
        self
    }
}

/// The same in the format of `tc -j`.
///
/// # Errors
/// Those of [`text`].
pub(crate) fn json(
    qdisc: Option<&QdiscSnapshot>,
    device: Option<&str>,
    statistics: bool,
) -> anyhow::Result<Object> {
    let default = QdiscSnapshot { kind: "noqueue".to_owned(), ..QdiscSnapshot::default() };
    let (options, qdisc) = match qdisc {
        Some(qdisc) => (options_json(&spec(qdisc)?), qdisc),
        None => (Object::default(), &default),
    };
    let mut object = Object::default()
        .put("kind", qdisc.kind.as_str())
        .put("handle", QdiscHandle(qdisc.handle).to_string())
        .put_some("dev", device);
    object = match qdisc.parent {
        None => object.put("root", true).put("refcnt", REFCNT),
        Some(parent) => object.put("parent", QdiscHandle(parent).to_string()),
    };
    object = object.put_object("options", options);
    if statistics {
        object = object
            .put("bytes", qdisc.bytes)
            .put("packets", qdisc.packets)
            .put("drops", qdisc.drops)
            .put("overlimits", qdisc.overlimits)
            .put("requeues", qdisc.requeues)
            .put("backlog", qdisc.backlog)
            .put("qlen", qdisc.qlen);
        for counter in &qdisc.details {
            object = object.put(&counter.name, counter.value);
        }
    }
    Ok(object)
}

fn us(time: impl Into<Duration>) -> u64 {
    u64::try_from(time.into().as_micros()).unwrap_or(u64::MAX)
}

fn options_json(spec: &QdiscSpec) -> Object {
    let object = Object::default();
    match spec {
        QdiscSpec::Pfifo { limit } | QdiscSpec::Bfifo { limit } => object.put("limit", *limit),
        QdiscSpec::PfifoFast => {
            object.put("bands", 3).put("priomap", value!(PRIOMAP)).put("multiqueue", false)
        }
        QdiscSpec::Fq(spec) => {
            let rate = |rate: Option<taut::qdisc::Rate>| rate.map(taut::qdisc::Rate::bytes_per_second);
            object
                .put("limit", spec.limit)
                .put("flow_limit", spec.flow_limit)
                .put("buckets", spec.buckets)
                .put("orphan_mask", spec.orphan_mask)
                .put_some("nopacing", (!spec.pacing).then_some(true))
                .put("quantum", spec.quantum_bytes)
                .put("initial_quantum", spec.initial_quantum_bytes)
                .put_some("maxrate", rate(spec.maxrate))
                .put_some("low_rate_threshold", rate(spec.low_rate_threshold))
                .put("refill_delay", us(spec.refill_delay))
                .put("timer_slack", spec.timer_slack.as_nanos())
                .put_some("ce_threshold", spec.ce_threshold.map(us))
                .put("horizon", us(spec.horizon))
                .put(if spec.horizon_cap { "horizon_cap" } else { "horizon_drop" }, Value::Null)
        }
        QdiscSpec::FqCodel(spec) => object
            .put("limit", spec.limit)
            .put("flows", spec.flows)
            .put("quantum", spec.quantum_bytes)
            .put("target", us(spec.target))
            .put_some("ce_threshold", spec.ce_threshold.map(us))
            .put("interval", us(spec.interval))
            .put("memory_limit", spec.memory_limit_bytes)
            .put_some("ecn", spec.ecn.then_some(true))
            .put("drop_batch", spec.drop_batch),
        QdiscSpec::Tbf(spec, _) => object
            .put("rate", spec.rate.bytes_per_second())
            .put("burst", spec.burst_bytes)
            .put_some("lat", latency(spec).map(us)),
        QdiscSpec::Netem(spec, _) => netem_json(spec),
        other => object.put("spec", other.to_string()),
    }
}

fn netem_json(spec: &NetemSpec) -> Object {
    let share = |object: Object, name: &str, member: &str, share: Share| {
        if share.chance.is_never() {
            return object;
        }
        let of = Object::default().put(member, share.chance.share());
        object.put_object(name, of.put("correlation", share.correlation.share()))
    };
    let seconds = |time: taut::config::Duration| Duration::from(time).as_secs_f64();
    let mut object = Object::default().put("limit", spec.limit);
    if !spec.delay.is_zero() || !spec.jitter.is_zero() {
        let delay = Object::default()
            .put("delay", seconds(spec.delay))
            .put("jitter", seconds(spec.jitter))
            .put("correlation", spec.delay_correlation.share());
        object = object.put_object("delay", delay);
    }
    object = match &spec.loss {
        Loss::None => object,
        Loss::Random(of) => share(object, "loss-random", "loss", *of),
        Loss::Gemodel { p, r, bad, good } => {
            let model = Object::default().put("p", p.share()).put("r", r.share());
            object.put_object("loss-gemodel", model.put("1-h", bad.share()).put("1-k", good.share()))
        }
        Loss::State { p13, p31, p32, p23, p14 } => {
            let chances = [("p13", p13), ("p31", p31), ("p32", p32), ("p23", p23), ("p14", p14)];
            let model =
                chances.into_iter().fold(Object::default(), |model, (name, p)| model.put(name, p.share()));
            object.put_object("loss-state", model)
        }
        _ => object.put("loss", own_loss(spec).trim_start_matches(" loss ")),
    };
    object = share(object, "duplicate", "duplicate", spec.duplicate);
    object = share(object, "reorder", "reorder", spec.reorder);
    object = share(object, "corrupt", "corrupt", spec.corrupt);
    if let Some(path) = &spec.rate {
        let rate = Object::default()
            .put("rate", path.rate.bytes_per_second())
            .put("packetoverhead", path.packet_overhead)
            .put("cellsize", path.cell_bytes)
            .put("celloverhead", path.cell_overhead);
        object = object.put_object("rate", rate);
    }
    object = object.put("ecn", spec.ecn).put("gap", spec.gap);
    if let Some(slot) = &spec.slot {
        let slot = Object::default()
            .put("min-delay", seconds(slot.min_delay))
            .put("max-delay", seconds(slot.max_delay))
            .put("packets", slot.packets)
            .put("bytes", slot.bytes);
        object = object.put_object("slot", slot);
    }
    object.put_some("seed", spec.seed)
}

#[cfg(test)]
mod tests;
