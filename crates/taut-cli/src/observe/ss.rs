//! `taut ss`: the sockets of a running stack, as iproute2's `ss` shows the kernel's.
//!
//! `ss_format.rs` makes the tokens, `ss_filter.rs` reads the filter.

use std::net::SocketAddr;

use anyhow::anyhow;
use clap::Args;
use taut_control::protocol::{Identity, Summary};
use taut_control::snapshot::{ConnSnapshot, DatagramSnapshot, FlowSnapshot, ListenerSnapshot};

use crate::args::control::{SocketArgs, asked};
use crate::args::network;
use crate::observe::rooms::{self, Relayed};
use crate::observe::ss_filter::Filter;
use crate::observe::ss_format::{self, Detail};
use crate::shared::output;

/// Shows the sockets of a running stack, in the format of iproute2's ss.
#[derive(Args, Debug)]
#[command(after_help = "Example, with a stack that runs, as `taut serve .`:\n  \
    taut ss -ti\n  taut ss -tinmo state established dport = :5201\n\n\
    Ports are always numbers; with -n, rates are also shown in whole bits per second.\n\
    A filter consists of: state STATE, exclude STATE, sport|dport OPERATOR :PORT, src|dst ADDRESS[:PORT], and.")]
#[command(disable_help_flag = true)]
pub(crate) struct SsArgs {
    /// Show TCP sockets: the default
    #[arg(short, long)]
    tcp: bool,
    /// Show UDP sockets
    #[arg(short, long)]
    udp: bool,
    /// Show ping sockets
    #[arg(short = 'w', long)]
    raw: bool,
    /// Show TCP's internal state of each connection, on a second line
    #[arg(short, long)]
    info: bool,
    /// Also show listening sockets
    #[arg(short, long)]
    all: bool,
    /// Show listening sockets only
    #[arg(short, long)]
    listening: bool,
    /// Show rates as whole numbers
    #[arg(short, long)]
    numeric: bool,
    /// Show the memory of each connection
    #[arg(short, long)]
    memory: bool,
    /// With -i, show the options that both sides agreed on
    #[arg(short, long)]
    options: bool,
    /// Show facts that ss does not have, such as the shut gate; of a gateway, where bytes wait
    #[arg(short, long)]
    extended: bool,
    /// Show the process
    #[arg(short, long)]
    processes: bool,
    /// Leave out the header line
    #[arg(short = 'H', long)]
    no_header: bool,
    /// Show the number of connections
    #[arg(short, long)]
    summary: bool,
    /// The connections to show
    #[arg(value_name = "FILTER", allow_hyphen_values = false)]
    filter: Vec<String>,
    /// Print all known facts as JSON
    #[arg(long)]
    json: bool,
    /// Print help
    #[arg(long, short, action = clap::ArgAction::Help)]
    help: Option<bool>,
    #[command(flatten)]
    socket: SocketArgs,
}

/// Runs `taut ss`.
///
/// # Errors
/// When no stack is running or answers, or the filter is invalid.
pub(crate) fn run(args: &SsArgs) -> anyhow::Result<()> {
    let default = match (args.all, args.listening) {
        (true, _) => "all",
        (false, true) => "listening",
        (false, false) => "default",
    };
    let filter = Filter::parse(&args.filter, default).map_err(|error| anyhow!(error))?;
    let mut client = args.socket.open()?;
    if args.summary {
        let (who, summary) = (asked(client.identity())?, asked(client.summary())?);
        return if args.json {
            output::print_json(&summary)
        } else {
            // A stack of an earlier version does not tell.
            let network = client.network().unwrap_or_default();
            let lease = network::lease_line(&network).unwrap_or_default();
            output::print(&(totals(&who, summary) + &lease))
        };
    }
    let (mut listeners, mut connections, mut flows) = (Vec::new(), Vec::new(), Vec::new());
    let tcp = args.tcp || !(args.udp || args.raw);
    if tcp {
        listeners = asked(client.listeners())?;
        listeners.retain(|listener| filter.passes("LISTEN", listener.local, None));
        connections = asked(client.connections())?;
        connections.retain(|conn| filter.passes(&conn.state, conn.local, Some(conn.peer)));
    }
    if filter.shows_flows() {
        // A stack of an earlier version has none.
        flows = client.flows().unwrap_or_default();
        flows.retain(|flow| filter.passes(&flow.state, flow.local, Some(flow.peer)));
        flows.retain(|flow| match flow.netid.as_str() {
            "udp" => args.udp,
            "icmp" => args.raw,
            _ => tcp,
        });
    }
    let mut datagrams = Vec::new();
    if args.udp || args.raw {
        datagrams = asked(client.datagrams())?;
        datagrams.retain(|socket| if socket.netid == "udp" { args.udp } else { args.raw });
        // A socket that receives from anybody is shown with -l.
        let state = |socket: &DatagramSnapshot| if args.listening { "LISTEN" } else { socket.state() };
        datagrams.retain(|socket| socket.peer.is_none() || !args.listening);
        datagrams.retain(|socket| filter.passes(state(socket), socket.local, socket.peer));
    }
    let relayed = Relayed::of(&mut client, tcp && (args.extended || args.json));
    if args.json {
        return output::print_json(&serde_json::json!({
            "listeners": listeners, "flows": flows, "connections": connections, "datagrams": datagrams,
            "rooms": relayed.all()
        }));
    }
    let process = if args.processes { users(&asked(client.identity())?) } else { String::new() };
    let detail = Detail {
        info: args.info,
        memory: args.memory,
        options: args.options,
        extended: args.extended,
        numeric: args.numeric,
    };
    let layout = Layout { header: !args.no_header, state: !filter.has_one_state(), process, detail, relayed };
    output::print(&layout.text(&listeners, &flows, &connections, &datagrams))
}

/// The sockets as `taut ss -ati` shows them.
pub(crate) fn detailed(
    listeners: &[ListenerSnapshot],
    flows: &[FlowSnapshot],
    connections: &[ConnSnapshot],
) -> String {
    let detail = Detail { info: true, ..Detail::default() };
    Layout { header: true, state: true, detail, ..Layout::default() }.text(listeners, flows, connections, &[])
}

fn users(who: &Identity) -> String {
    format!("users:((\"{}\",pid={}))", who.program, who.pid)
}

fn totals(who: &Identity, summary: Summary) -> String {
    let error = who.device_error.as_ref();
    let error = error.map_or_else(String::new, |why| format!("Device: last packet not sent: {why}\n"));
    format!(
        "{} (pid {}) on {}: {}\nTCP:   {} (timewait {})\n{error}",
        who.program,
        who.pid,
        if who.device.is_empty() { "a device" } else { &who.device },
        who.addresses.join(" "),
        summary.connections + summary.time_waits,
        summary.time_waits
    )
}

/// The sockets in printed form.
#[derive(Debug, Default)]
struct Layout {
    header: bool,
    state: bool,
    process: String,
    detail: Detail,
    relayed: Relayed,
}

impl Layout {
    fn text(
        &self,
        listeners: &[ListenerSnapshot],
        flows: &[FlowSnapshot],
        connections: &[ConnSnapshot],
        datagrams: &[DatagramSnapshot],
    ) -> String {
        let count = listeners.len() + flows.len() + connections.len() + datagrams.len();
        let mut rows = Vec::with_capacity(count + 1);
        if self.header {
            rows.push(Row::header());
        }
        rows.extend(listeners.iter().map(|listener| Row::listener(listener, self)));
        rows.extend(flows.iter().map(|flow| Row::flow(flow, self)));
        rows.extend(connections.iter().map(|conn| Row::connection(conn, self)));
        rows.extend(datagrams.iter().map(|socket| Row::datagram(socket, self)));
        let width = |cell: fn(&Row) -> &str| rows.iter().map(|row| cell(row).len()).max().unwrap_or(0);
        let widths = [
            width(|row| &row.state),
            width(|row| &row.queues[0]),
            width(|row| &row.queues[1]),
            width(|row| &row.local.0),
            width(|row| &row.local.1),
            width(|row| &row.peer.0),
            width(|row| &row.peer.1),
        ];
        rows.iter().map(|row| row.text(&widths, self.state)).collect()
    }
}

/// A line, in columns. Addresses are aligned at the colon before the port.
#[derive(Debug)]
struct Row {
    state: String,
    queues: [String; 2],
    local: (String, String),
    peer: (String, String),
    process: String,
    detail: String,
}

impl Row {
    fn header() -> Self {
        let split = |host: &str| (host.to_owned(), "Port".to_owned());
        Self {
            state: "State".to_owned(),
            queues: ["Recv-Q".to_owned(), "Send-Q".to_owned()],
            local: split("Local Address"),
            peer: split("Peer Address"),
            process: "Process".to_owned(),
            detail: String::new(),
        }
    }

    fn listener(listener: &ListenerSnapshot, layout: &Layout) -> Self {
        let anywhere = if listener.local.is_ipv4() { "0.0.0.0" } else { "[::]" };
        Self {
            state: "LISTEN".to_owned(),
            queues: [listener.ready.to_string(), listener.backlog.to_string()],
            local: parts(listener.local),
            peer: (anywhere.to_owned(), "*".to_owned()),
            process: layout.process.clone(),
            detail: String::new(),
        }
    }

    fn flow(flow: &FlowSnapshot, layout: &Layout) -> Self {
        let syns = if flow.syns > 0 { format!("syns:{} ", flow.syns) } else { String::new() };
        let mss = flow.mss.map_or_else(String::new, |mss| format!("mss:{mss} "));
        let seen = if flow.seen { "" } else { " unseen" };
        let expires = flow.expires_ns / 1_000_000_000;
        Self {
            state: flow.state.clone(),
            queues: ["0".to_owned(), "0".to_owned()],
            local: parts(flow.local),
            peer: parts(flow.peer),
            process: layout.process.clone(),
            detail: if layout.detail.is_any() {
                format!("\t {syns}{mss}expires:{expires}sec{seen}")
            } else {
                String::new()
            },
        }
    }

    fn datagram(socket: &DatagramSnapshot, layout: &Layout) -> Self {
        let anywhere = if socket.local.is_ipv4() { "0.0.0.0" } else { "[::]" };
        let memory = format!(
            "\t skmem:(r{},rb{},t{},tb{},f0,w{},o0,bl0,d{})",
            socket.recv_queue,
            socket.rcvbuf,
            socket.send_queue,
            socket.sndbuf,
            socket.send_queue,
            socket.drops
        );
        Self {
            state: socket.state().to_owned(),
            queues: [socket.recv_queue.to_string(), socket.send_queue.to_string()],
            local: parts(socket.local),
            peer: socket.peer.map_or_else(|| (anywhere.to_owned(), "*".to_owned()), parts),
            process: layout.process.clone(),
            detail: if layout.detail.memory { memory } else { String::new() },
        }
    }

    fn connection(conn: &ConnSnapshot, layout: &Layout) -> Self {
        let in_flight = conn.bytes_sent.saturating_sub(conn.bytes_retrans).saturating_sub(conn.bytes_acked);
        let send_queue = in_flight + conn.notsent_bytes;
        Self {
            state: conn.state.clone(),
            queues: [conn.rcv_queue_bytes.to_string(), send_queue.to_string()],
            local: parts(conn.local),
            peer: parts(conn.peer),
            process: layout.process.clone(),
            detail: if layout.detail.is_any() {
                let rooms = layout.relayed.get(conn.local, conn.peer);
                ss_format::detail_line(conn, &layout.detail) + &rooms.map(rooms::tokens).unwrap_or_default()
            } else {
                String::new()
            },
        }
    }

    fn text(&self, widths: &[usize; 7], with_state: bool) -> String {
        let &[state, receive, send, local, local_port, peer, peer_port] = widths;
        let mut line = if with_state { format!("{:<state$} ", self.state) } else { String::new() };
        line += &format!("{:<receive$} {:<send$} ", self.queues[0], self.queues[1]);
        line += &format!("{:>local$}:{:<local_port$} ", self.local.0, self.local.1);
        line += &format!("{:>peer$}:{:<peer_port$} {}", self.peer.0, self.peer.1, self.process);
        line.truncate(line.trim_end().len());
        line.push('\n');
        if !self.detail.is_empty() {
            line += &self.detail;
            line.push('\n');
        }
        line
    }
}

fn parts(end: SocketAddr) -> (String, String) {
    let host = if end.is_ipv6() { format!("[{}]", end.ip()) } else { end.ip().to_string() };
    (host, end.port().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As iproute2's `ss -uamH` prints a socket at a port and a connected one.
    #[test]
    fn datagram_sockets_are_rows_as_of_ss() {
        let socket = |peer: Option<&str>| DatagramSnapshot {
            netid: "udp".to_owned(),
            local: "10.9.0.2:53".parse().unwrap(),
            peer: peer.map(|peer| peer.parse().unwrap()),
            recv_queue: 868,
            send_queue: 0,
            rcvbuf: 212_992,
            sndbuf: 212_992,
            drops: 7,
        };
        let layout =
            Layout { detail: Detail { memory: true, ..Detail::default() }, state: true, ..Layout::default() };
        let text = layout.text(&[], &[], &[], &[socket(None), socket(Some("10.9.0.1:4000"))]);
        let memory = "\t skmem:(r868,rb212992,t0,tb212992,f0,w0,o0,bl0,d7)";
        let expected = format!(
            "UNCONN 868 0 10.9.0.2:53  0.0.0.0:*\n{memory}\nESTAB  868 0 10.9.0.2:53 10.9.0.1:4000\n{memory}\n"
        );
        assert_eq!(text, expected);
    }
}
