//! A gateway: what comes out of a namespace, a container or a virtual machine goes on through the host's own
//! sockets, or another way. Nothing in it needs root.
//!
//! ```text
//!   guest's kernel ── TUN, socket ──▶ taut's stack ── IncomingFlows ──▶ serve.rs ──▶ WayOut ──▶ the network
//!                                                                        │   ▲
//!                                                       what happened    ▼   │  what to do
//!                                                                      Gateway (gateway.rs)
//!                                                        rules.rs  limits.rs  flow.rs  names.rs  dns.rs
//! ```
//!
//! | file | has |
//! |---|---|
//! | `gateway.rs` | [`Gateway`]: the logic, a state machine without clock, sockets or threads |
//! | `flow.rs` | [`Stage`]: the life of one flow, as a table |
//! | `flows.rs` | flows by name, and which of them must end |
//! | `limits.rs`, `guests.rs` | how much a guest may have, and has; how long a flow may be idle |
//! | `rules.rs`, `names.rs` | where a guest may go; which names it was told for an address |
//! | `dns.rs` | messages of DNS, read and written |
//! | `counters.rs` | what is counted |
//! | `serve.rs` | [`Server`]: the runner, a task for each flow |
//! | `tcp.rs`, `relay.rs` | a connection from its beginning to its end; bytes both ways |
//! | `icmp_errors.rs` | what ICMP errors from beyond mean for a guest, and how the host's kernel hands them out |
//! | `apart.rs` | a part of a task that is polled only when something woke it |
//! | `datagrams.rs` | a flow of UDP, and pings |
//! | `forward.rs` | ports of the host that lead to a guest |
//! | `proxy.rs`, `request.rs` | clients by SOCKS5, HTTP CONNECT, or sent here by the kernel; what they ask |
//! | `listening.rs`, `sock_diag.rs` | at which ports a guest listens |
//! | `resolver.rs` | questions of guests, asked of the host's name servers |
//! | `inside.rs`, `namespace.rs` | a guest in a namespace: what runs inside, and who starts it |
//! | `machines.rs` | [`Machines`]: virtual machines at a Unix socket |
//! | `sandbox.rs` | what a running gateway may not do |
//! | `way_out.rs` | [`WayOut`]: where flows go |
//! | `host_sockets.rs`, `proxies.rs`, `link.rs` | by the host's own sockets, a SOCKS5 or HTTP proxy, another stack |
//!
//! The behaviour is in `docs/gateway.md`, statement by statement (GW, VM).
#![forbid(unsafe_code)]

mod apart;
mod blocks;
mod counters;
mod datagrams;
mod dns;
mod flow;
mod flows;
mod forward;
mod gateway;
mod guests;
mod host_sockets;
mod icmp_errors;
pub mod inside;
mod limits;
mod link;
mod listening;
mod machines;
mod names;
mod namespace;
mod proxies;
mod proxy;
mod relay;
mod request;
mod resolver;
mod rules;
pub mod sandbox;
mod serve;
mod sock_diag;
mod tcp;
mod way_out;

pub use counters::Counters;
pub use flow::{End, Failure, Happened, Side, Stage, Then};
pub use forward::{Forward, ForwardError};
pub use gateway::{
    Admission, Event, FlowId, GATEWAY_NAME, Gateway, HOST_NAME, Question, QuestionId, Settings,
};
pub use guests::{Counted, Guest};
pub use host_sockets::{HostPings, HostSockets, NOTSENT_LOWAT, pings_are_allowed};
pub use limits::{Amounts, LEAST_GRANT, Limits, Timeouts};
pub use link::{Link, LinkPings};
pub use listening::Listening;
pub use machines::{MachineEvent, MachineLog, MachineNetwork, Machines, Plug};
pub use namespace::{GuestProcess, Namespace, Opening};
pub use proxies::{HttpConnect, Socks5};
pub use proxy::{Client, Clients, Flow, Joins, Transparent};
pub use request::Login;
pub use resolver::Resolver;
pub use rules::{Action, Rule, RuleError, Rules, Verdict, is_special};
pub use serve::{Log, Server};
pub use way_out::{Datagrams, Pings, Upstream, WayOut, failure};
