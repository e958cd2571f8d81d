//! The keys of a scenario's file, in the order of `taut lab new`. `keys.rs` says what the parts of an entry
//! mean.

use super::Given::{Or, Required};
use super::Kind::{
    Choice, Control, File, Limit, List, Metrics, Number, Published, Queue, Rate, Set, Settings, Share, Size,
    Table, Tables, Text, Time, Whole, YesNo,
};
use super::{Given, Key, Kind};

const fn key(
    name: &'static str,
    kind: Kind,
    given: Given,
    example: &'static str,
    about: &'static str,
) -> Key {
    Key { name, kind, given, example, about, needs: &[] }
}

const fn only(needs: &'static [&'static str], key: Key) -> Key {
    Key { needs, ..key }
}

const NONE: Given = Or("none");
const U32: u64 = u32::MAX as u64;

/// A scenario.
pub(super) const ROOT: &[Key] = &[
    key("title", Text, Required, r#""My scenario""#, "One line that says what it is"),
    key("about", Text, NONE, r#""What it shows, and how.""#, "Purpose and method, in a paragraph"),
    key("source", Text, NONE, r#""https://example.org/paper""#, "Where the published figures come from"),
    key("takes", Text, NONE, r#""2 s""#, "The running time, for `taut lab list`"),
    key("duration", Time, Required, r#""10s""#, "Virtual or real time of a run, above 0"),
    key(
        "warm-up",
        Time,
        Or("0"),
        r#""1s""#,
        "The part at the beginning that metrics leave out; shorter than the duration",
    ),
    key(
        "interval",
        Time,
        Or("a hundredth of the duration"),
        r#""100ms""#,
        "Time between two points of a series; a run has at most 100,000, and live it is at least 20 ms",
    ),
    key("seeds", Whole(1, U32), Or("1"), "3", "Runs of each variant, with seeds from 1"),
    key("live", YesNo, Or("false"), "true", "The scenario can also run live"),
    key(
        "congestion",
        Control,
        Or("each stack's own"),
        r#""cubic""#,
        "Congestion control of flows that do not choose one; `taut lab controllers` lists them. Parameters follow the name, as in \
         \"mine:gain=2.5\"",
    ),
    key(
        "measure",
        Metrics,
        Required,
        r#"["goodput", "rtt_mean", "retransmits"]"#,
        "Metrics of the table, in its order",
    ),
    key(
        "published",
        Published,
        NONE,
        "",
        "Published figures beside the measured ones: metric, variant, text",
    ),
    key("topology", Table(TOPOLOGY), NONE, "", "The network between the hosts"),
    key("link", Table(LINK), Required, "", "The line in the middle, or in a pair the cable"),
    key(
        "host",
        Choice(&["ideal", "linux-6.18"]),
        Or("linux-6.18"),
        r#""ideal""#,
        "Timing of simulated machines where `hosts` does not set it: `linux-6.18` is as measured live, with late wake-ups, merged \
         packets and random starts; `ideal` takes no time",
    ),
    key("hosts", Table(HOSTS), NONE, "", "The machines; in a dumbbell, all on one side are equal"),
    key("flows", Tables(FLOW), Required, "", "The traffic, one table for each kind"),
    key(
        "variants",
        Tables(VARIANT),
        Or("one, called run"),
        "",
        "The settings compared: columns of the table",
    ),
    key(
        "cases",
        Tables(CASE),
        Or("one"),
        "",
        "The conditions under which it is compared: the parts of the table",
    ),
];

const TOPOLOGY: &[Key] = &[
    key(
        "kind",
        Choice(&["pair", "direct", "dumbbell", "parking-lot"]),
        Or("pair"),
        r#""dumbbell""#,
        "`pair`: two hosts and a cable; `direct`: the same, but live as fast as the machine allows; `dumbbell`: pairs around a link \
         between two routers; `parking-lot`: routers in a row, pair 0 at its ends, pair n around link n",
    ),
    only(&["topology.kind=dumbbell"], key("pairs", Whole(1, 10_000), Or("1"), "2", "Pairs of hosts")),
    only(&["topology.kind=parking-lot"], key("hops", Whole(1, 9_999), Or("3"), "2", "Links in the row")),
    only(
        &["topology.kind=dumbbell"],
        key(
            "access",
            Rate,
            Or("ten times the link's"),
            r#""1gbit""#,
            "Rate of NICs and of routers' ports towards hosts",
        ),
    ),
    only(
        &["topology.kind=dumbbell"],
        key(
            "delays",
            List(&Time),
            NONE,
            r#"["1ms", "10ms"]"#,
            "One-way delays of the senders' own links, round robin",
        ),
    ),
    only(
        &["topology.kind=dumbbell"],
        key(
            "queue",
            Queue,
            Or("pfifo limit 1000"),
            r#""fq_codel""#,
            "Queue in front of the line in the middle, both ways",
        ),
    ),
    only(
        &["topology.kind=dumbbell"],
        key(
            "queue-bdp",
            Number(0.0, 1_000.0),
            NONE,
            "1.0",
            "Instead of `queue`: a FIFO for this many round-trip times, in full packets, at least one",
        ),
    ),
];

const LINK: &[Key] = &[
    key("rate", Rate, Required, r#""100mbit""#, "Its rate, Ethernet's 38 bytes per packet included"),
    only(
        &["topology.kind=dumbbell"],
        key("back-rate", Rate, Or("rate"), r#""10mbit""#, "The rate towards the sender"),
    ),
    key("delay", Time, Or("0"), r#""10ms""#, "One way"),
    only(
        &["topology.kind=dumbbell"],
        key(
            "steps",
            Tables(STEP),
            NONE,
            r#"[{ at = "5s", rate = "20mbit" }]"#,
            "Other rates, each from a time on, in the order of the times; both ways, unless there is a `back-rate`",
        ),
    ),
    only(
        &["topology.kind=dumbbell"],
        key(
            "trace",
            File,
            NONE,
            r#""cell.csv""#,
            "In the place of the rate, a file with what a line could carry towards the receiver: rates over time as CSV, mahimahi's \
             format, or a capture of arrivals; it begins again after its end",
        ),
    ),
    only(
        &["topology.kind=dumbbell"],
        key("back-trace", File, NONE, r#""cell.csv""#, "The same towards the sender"),
    ),
    only(
        &["topology.kind=dumbbell"],
        key(
            "policer",
            Table(POLICER),
            NONE,
            r#"{ rate = "20mbit", burst = "100kb" }"#,
            "Drops what exceeds a rate, towards the receiver, in front of the queue, and delays nothing",
        ),
    ),
    key("faults", Table(FAULTS), NONE, "", "Faults on the way to the receiver"),
    key("back-faults", Table(FAULTS), NONE, "", "Faults on the way back"),
];

const STEP: &[Key] = &[
    key("at", Time, Required, r#""5s""#, "When, from the beginning of the run"),
    key("rate", Rate, Required, r#""20mbit""#, "The rate from then on"),
];

const POLICER: &[Key] = &[
    key("rate", Rate, Required, r#""20mbit""#, "The rate that it lets through"),
    key("burst", Size, Required, r#""100kb""#, "Bytes that pass at once after a pause"),
];

const FAULTS: &[Key] = &[
    key("loss", Share, Or("0"), r#""0.5%""#, "Packets lost"),
    key(
        "bursts",
        Table(BURSTS),
        NONE,
        "{ p = 0.0001, r = 0.1 }",
        "Losses in bursts beside those, by the model of Gilbert and Elliott",
    ),
    key("duplicate", Share, Or("0"), "0.001", "Packets delivered twice"),
    key("corrupt", Share, Or("0"), "0.001", "Packets with one bit flipped"),
    only(
        &["link.faults.reorder-delay=5ms", "link.back-faults.reorder-delay=5ms"],
        key("reorder", Share, Or("0"), "0.01", "Packets that are delayed by `reorder-delay`"),
    ),
    key("reorder-delay", Time, Or("0"), r#""5ms""#, "Delay of reordered packets"),
    key("jitter", Time, Or("0"), r#""2ms""#, "Each packet is delayed by up to this"),
    key(
        "in-order",
        YesNo,
        Or("false"),
        "true",
        "No packet overtakes another: it arrives together with the one before it",
    ),
];

const BURSTS: &[Key] = &[
    key("p", Share, Required, "0.0001", "Packets outside a burst at which one begins"),
    key("r", Share, Required, "0.1", "Packets in a burst at which it ends: its mean length is 1 / r"),
    key("bad", Share, Or("1"), "0.9", "Packets lost in a burst"),
    key("good", Share, Or("0"), "0.0001", "Packets lost outside"),
];

const HOSTS: &[Key] = &[
    key("sender", Table(HOST), NONE, "", "Machines that open the flows"),
    key("receiver", Table(HOST), NONE, "", "Machines that accept them"),
];

const HOST: &[Key] = &[
    key("qdisc", Queue, Or("pfifo_fast"), r#""fq""#, "Root queue discipline, in tc's words"),
    key("delegate-pacing", YesNo, Or("true"), "false", "Pacing is left to a queue discipline that can pace"),
    key(
        "pacing-shift",
        Whole(0, 255),
        Or("10"),
        "8",
        "`sk_pacing_shift`: a super-packet has 1 / 2^n s of the pacing rate",
    ),
    key("mtu", Whole(576, 65_535), Or("1500"), "9000", "Largest IP packet, bytes"),
    key("batched", YesNo, Or("true"), "false", "Packets that arrive together are answered together"),
    key(
        "sysctls",
        Settings,
        Or("taut's"),
        r#"{ "tcp_sack" = 0 }"#,
        "Settings of the stack by name; `net.ipv4.` may be left out",
    ),
    key("nic", Table(NIC), NONE, "", "The NIC, in ethtool's names"),
    key("cpu", Table(CPU), Or("work takes no time"), "", "How long work takes"),
];

const NIC: &[Key] = &[
    key("tso", YesNo, Or("true"), "false", "It cuts super-packets into segments"),
    key("gro", YesNo, Or("true"), "false", "It joins segments that arrive"),
    key("tx", Whole(1, U32), Or("512"), "256", "Descriptors for sending"),
    key("rx", Whole(1, U32), Or("4096"), "256", "Descriptors for receiving"),
    key("tx-usecs", Whole(0, U32), Or("0"), "50", "The interrupt for sent packets waits for this, µs"),
    key("tx-frames", Whole(0, U32), Or("0"), "32", "or for this many packets"),
    key(
        "rx-usecs",
        Whole(0, U32),
        Or("by `host`; 20, or 0"),
        "50",
        "The interrupt for received packets waits for this, µs",
    ),
    key("rx-frames", Whole(0, U32), Or("0"), "32", "or for this many packets"),
    key(
        "tx-late",
        Whole(0, U32),
        Or("0"),
        "500",
        "Each completion comes back up to this much later, in any order, µs",
    ),
    key("bql", Limit, Or("on"), r#""off""#, "Byte queue limits: on, off, or bytes"),
];

const CPU: &[Key] = &[
    key("interrupt", Time, Or("0"), r#""2us""#, "Taking an interrupt"),
    key(
        "rx-packet",
        Time,
        Or("by `host`; a receiver's 10 µs, else 0"),
        r#""1us""#,
        "A packet's way up through the stack; a merged packet counts once",
    ),
    key("rx-segment", Time, Or("0"), r#""100ns""#, "Each segment of that packet"),
    key("tx-packet", Time, Or("0"), r#""1us""#, "A packet's way down through the stack"),
    key("completion", Time, Or("0"), r#""300ns""#, "Taking back a sent packet"),
    key("timer", Time, Or("0"), r#""1us""#, "Handling a timer"),
    key("context-switch", Time, Or("0"), r#""2us""#, "Switching from one thread to another"),
    key("syscall", Time, Or("0"), r#""500ns""#, "A call from an application"),
    key(
        "lost-wakeup",
        Time,
        Or("0"),
        r#""1us""#,
        "Between the sender's look at the bytes below it and its request to be notified",
    ),
    key("jitter", Number(0.0, 100.0), Or("0"), "0.2", "All work takes up to this share longer"),
    key(
        "completions-apart",
        YesNo,
        Or("by `host`; a sender's true, else false"),
        "true",
        "Another core takes the interrupts for sent packets",
    ),
    key(
        "wakeups",
        Choice(&["exact", "quiet", "busy"]),
        Or("by `host`; a sender's quiet, else exact"),
        r#""quiet""#,
        "How late the thread wakes up that does the work: not at all, or as measured on a quiet or a busy machine",
    ),
];

const FLOW: &[Key] = &[
    key(
        "app",
        Choice(&["bulk", "stream", "rr", "web"]),
        Required,
        r#""bulk""#,
        "`bulk` writes as much as it can; `stream` while the socket is writable; `rr`: requests and responses; `web`: pages, a \
         connection for each",
    ),
    key("count", Whole(1, 20_000), Or("1"), "2", "How many of them"),
    key("pair", Whole(0, 9_999), Or("round robin"), "0", "The pair that it uses, from 0"),
    only(
        &["topology.kind=dumbbell"],
        key(
            "beside",
            YesNo,
            Or("false"),
            "true",
            "A part of the conditions: metrics leave it out, and live the kernel sends it",
        ),
    ),
    key("start", Time, Or("0"), r#""1s""#, "When the first starts"),
    key("stagger", Time, Or("0"), r#""100ms""#, "How much later each following one starts"),
    key(
        "phase",
        Time,
        Or("by `host`; a round trip, 1 ms at least, or 0"),
        r#""10ms""#,
        "Each starts up to this much later, by the seed; simulated only",
    ),
    only(&["flows.0.app=bulk"], key("total", Size, Or("endless"), r#""10mb""#, "Bytes in all")),
    only(
        &["flows.0.app=bulk"],
        key(
            "write",
            Size,
            Or("65536; stream 16384"),
            r#""64kb""#,
            "Bytes per write; of `stream` at most 65536",
        ),
    ),
    only(&["flows.0.app=bulk"], key("every", Time, NONE, r#""10ms""#, "Time between writes")),
    only(
        &["flows.0.app=bulk", "flows.0.off=1s"],
        key("on", Time, Or("always"), r#""1s""#, "Mean time of writing; with `off`"),
    ),
    only(
        &["flows.0.app=bulk", "flows.0.on=1s"],
        key("off", Time, Or("never"), r#""1s""#, "Mean time of silence; with `on`"),
    ),
    only(&["flows.0.app=rr"], key("request", Size, Or("1"), "100", "Bytes of a request")),
    only(&["flows.0.app=rr"], key("response", Size, Or("1"), r#""10kb""#, "Bytes of a response")),
    only(
        &["flows.0.app=rr"],
        key("transactions", Whole(0, i64::MAX as u64), Or("endless"), "1000", "Requests in all"),
    ),
    only(
        &["flows.0.app=rr"],
        key(
            "think",
            Time,
            Or("0; web 1 s"),
            r#""10ms""#,
            "Time between requests, exactly, or between pages of `web`, on average",
        ),
    ),
    only(&["flows.0.app=web"], key("least", Size, Or("2000"), "1000", "Bytes of the smallest page")),
    only(&["flows.0.app=web"], key("most", Size, Or("2000000"), r#""1mb""#, "Bytes of the largest page")),
    key("options", Table(OPTIONS), NONE, "", "Socket options of the sender"),
];

const OPTIONS: &[Key] = &[
    key("nodelay", YesNo, Or("false"), "true", "`TCP_NODELAY`"),
    key("notsent-lowat", Size, NONE, r#""128kb""#, "`TCP_NOTSENT_LOWAT`, bytes"),
    key("sndbuf", Size, Or("the stack's"), r#""1mb""#, "`SO_SNDBUF`, bytes; doubled, as in Linux"),
    key("rcvbuf", Size, Or("the stack's"), r#""1mb""#, "`SO_RCVBUF`, bytes; doubled"),
    key("max-pacing-rate", Rate, NONE, r#""50mbit""#, "`SO_MAX_PACING_RATE`"),
    key("congestion", Control, Or("the scenario's"), r#""reno""#, "`TCP_CONGESTION`"),
    key("maxseg", Whole(0, 65_535), Or("by the MTU"), "536", "`TCP_MAXSEG`, bytes"),
];

const VARIANT: &[Key] = &[
    key("name", Text, Required, r#""cubic""#, "Heading of its column"),
    key("set", Set, NONE, r#"{ congestion = "cubic" }"#, "Changes by path"),
    key(
        "linux",
        YesNo,
        Or("false"),
        "true",
        "Today's kernel behaves like this, so that live it has a column beside it",
    ),
    key("live", YesNo, Or("true"), "false", "It can run live"),
    key(
        "packet",
        YesNo,
        Or("false"),
        "true",
        "It can run live over an Ethernet interface, with the sender's qdisc in the kernel",
    ),
];

const CASE: &[Key] = &[
    key("name", Text, Required, r#""100 Mbit/s""#, "Heading of its part of the table"),
    key(
        "set",
        Set,
        NONE,
        r#"{ "link.rate" = "100mbit" }"#,
        "Changes by path; a variant's changes take precedence",
    ),
    key("published", Published, NONE, "", "Figures published for it; they take precedence"),
];
