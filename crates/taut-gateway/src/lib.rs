//! A gateway: what comes out of a namespace, a container or a virtual machine goes on through the host's own
//! sockets, or another way. Nothing in it needs root.
//!
//! ```text
//!   guest's kernel ── TUN, socket ──▶ taut's stack ── IncomingFlows ──▶ run/ ──▶ out/ ──▶ the network
//!                                                     doors/ ──▶         │  ▲
//!                                                        what happened   ▼  │  what to do
//!                                                                       logic/
//! ```
//!
//! | room | has |
//! |---|---|
//! | `logic/` | [`Gateway`], a state machine without clock, sockets or threads: the stages of a flow ([`Stage`]), flows by name, limits, rules, names, messages of DNS, counters |
//! | `run/` | [`Server`]: a task for each flow, TCP, datagrams, and the name service ([`Resolver`]) |
//! | `out/` | [`WayOut`]: the host's own sockets, a SOCKS5 or HTTP proxy, another stack; ICMP errors from beyond |
//! | `doors/` | a guest in a namespace, [`Machines`] at a Unix socket, forwarded ports, clients of a proxy |
//! | `sandbox/` | what a running gateway may not do, and the process outside |
//!
//! A program makes a gateway with these calls (`examples/run.rs`):
//!
//! | call | does |
//! |---|---|
//! | `Namespace::fork(plan, command)`, `Opening::wait()` | a second process, before there are threads: it makes or enters namespaces, opens a TUN there, gives it addresses, routes and a `resolv.conf`, and hands it out |
//! | `Namespace::open(program, plan)` | the same at any time, by a program that calls `inside::inside` |
//! | `Namespace::loopback()` | the guest's own loopback, for a [`ForwardTarget`] |
//! | `Namespace::stack(builder)` | taut's stack on that TUN; any other stack of `taut` will do |
//! | `Server::new(settings, resolver, log)` | limits, times, rules |
//! | `Server::serve(stack, way)` | serves every flow of the stack by a way out |
//! | `Server::forward_port(stack, guest, forward)` | opens a port of the host that leads to the guest |
//! | `Machines::listen(plug, path)`, `Machines::serve(…)` | a Unix socket for virtual machines, and their stack |
//! | `Live::new(server, guest, client)` | lists and changes it while it runs: forwarded ports, rules, names |
//! | `Live::callers()` | guests that connect to port 80 of the gateway itself |
//! | `Server::proxy(clients, way, login)` | serves clients of a proxy |
//! | `sandbox::Outside::split(tasks)`, `sandbox::confine(needs)` | a child that gives up what a running gateway does not need |
//! | `Namespace::start()` | the child becomes the guest's command |
//!
//! Another runner needs [`Gateway`], [`FirstBytes`], [`Tries`], [`sockets`], [`NameServers`] and
//! [`PATIENCE`], [`Rooms`], [`near`] and [`incoming_options`]: `taut-slirp` is one, without tokio, in the
//! poll loop of a caller.
//!
//! The behaviour is in `docs/spec/gateway.md`, statement by statement (GW, VM).
#![forbid(unsafe_code)]

mod doors;
mod logic;
mod out;
mod run;
pub mod sandbox;

pub use doors::client_address::{ClientAddress, routable};
pub use doors::forward::{Forward, ForwardError};
pub use doors::inside;
pub use doors::listening::Listening;
pub use doors::live::callers::{Caller, Callers};
pub use doors::live::{ForwardsError, Live};
pub use doors::loopback::{ForwardTarget, Loopback};
pub use doors::machines::{MachineEvent, MachineLog, MachineNetwork, Machines, VmSocket, listen_at};
pub use doors::namespace::{GuestProcess, Namespace, Opening};
pub use doors::proxy::{Client, Clients, Flow, JoinUpstream, Transparent};
pub use doors::request::Login;
pub use logic::admission::{Admission, Passage};
pub use logic::counters::Counters;
pub use logic::dns::{HOST_NAME, PATIENCE};
pub use logic::event::{Decision, Ended, Event};
pub use logic::first_bytes::{FirstBytes, Further};
pub use logic::flow::{End, EventKind, Failure, NextStep, Side, Stage};
pub use logic::gateway::{FlowId, Gateway, Settings};
pub use logic::guests::{Counted, Guest};
pub use logic::limits::{Amounts, LEAST_GRANT, Limits, Timeouts};
pub use logic::live::zones::{Zone, ZoneError};
pub use logic::questions::{Question, QuestionId, Tries};
pub use logic::rules::{Action, Rule, RuleError, Rules, UdpFilter, Verdict, is_special};
pub use out::host_networks::{host_networks, interface_address};
pub use out::host_sockets::{HostPings, HostSockets, pings_are_allowed};
pub use out::link::{Link, LinkPings};
pub use out::proxies::{HttpConnect, Socks5};
pub use out::sockets;
pub use out::sockets::NOTSENT_LOWAT;
pub use out::way_out::{Arrived, Datagrams, Path, Pings, Upstream, WayOut, failure};
pub use run::admit::incoming_options;
pub use run::host_files::{NameServers, name_server};
pub use run::host_names::HostNames;
pub use run::resolver::Resolver;
pub use run::rooms::{Rooms, near};
pub use run::server::{Log, Server};
