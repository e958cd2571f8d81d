//! The messages on the socket: one line of JSON for each request, and one or more for its reply.
//!
//! ```text
//! → {"v":1,"request":"sysctl","name":"net.ipv4.tcp_sack"}
//! ← {"v":1,"reply":"sysctl","data":{"name":"net.ipv4.tcp_sack","value":"1"}}
//! → {"v":1,"request":"connections"}
//! ← {"v":1,"reply":"connections","data":[…],"more":true}
//! ← {"v":1,"reply":"connections","data":[…]}
//! ```
//!
//! A list may come in several lines; every one but the last says `"more":true`. A value that is not known is
//! left out. A reader must skip fields that it does not know: they may be added without a new version. Names
//! of durations end in `_ns`, and the values are integers of nanoseconds; rates are bytes per second.
//!
//! Used by `session.rs` and `client.rs`.

use serde::{Deserialize, Serialize};

use crate::gateway::{GatewayItem, GatewayVerb};
use crate::network::{Change, NetworkSnapshot};
use crate::qdisc::QdiscSnapshot;
use crate::rooms::FlowRooms;
use crate::sample::ConnSample;
use crate::snapshot::{
    ConnReportSnapshot, ConnSnapshot, DatagramSnapshot, FlowSnapshot, ListenerSnapshot, ReportSnapshot,
};

/// Version of the protocol. It changes when a reader of the old one would misunderstand the new.
pub const VERSION: u32 = 1;

/// The longest line of a request, in bytes. The longest useful one has a tenth of that.
pub const REQUEST_MAX_BYTES: usize = 4096;

/// A question or a command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Request {
    /// The identity of the stack: [`Reply::Identity`].
    Identity,
    /// The number of connections: [`Reply::Summary`].
    Summary,
    /// Every connection: [`Reply::Connections`].
    Connections,
    /// Every listener: [`Reply::Listeners`].
    Listeners,
    /// Flows that wait for a decision of the application: [`Reply::Flows`].
    Flows,
    /// Every datagram socket: [`Reply::Datagrams`].
    Datagrams,
    /// Every counter: [`Reply::Counters`].
    Counters,
    /// Every setting: [`Reply::Sysctls`].
    Sysctls,
    /// One setting: [`Reply::Sysctl`].
    Sysctl {
        /// Such as `net.ipv4.tcp_sack`.
        name: String,
    },
    /// Changes a setting; the reply has the new value: [`Reply::Sysctl`].
    SetSysctl {
        /// Such as `net.ipv4.tcp_sack`.
        name: String,
        /// In the form that `sysctl` takes.
        value: String,
    },
    /// Where time and bytes went, over all connections since the stack began: [`Reply::Report`].
    Report,
    /// The same for each connection: [`Reply::Reports`].
    Reports,
    /// Of each connection, the numbers that move: [`Reply::Samples`].
    Samples,
    /// Of each connection that a gateway or a proxy relays, where its bytes wait: [`Reply::Rooms`].
    Rooms,
    /// Lists and changes of a running gateway: [`Reply::Gateway`].
    Gateway {
        /// Which.
        #[serde(flatten)]
        verb: GatewayVerb,
    },
    /// The state of the device, such as a tunnel's peers: [`Reply::Device`].
    Device,
    /// The queue disciplines in front of the device: [`Reply::Qdiscs`].
    QdiscShow,
    /// Replaces them; the reply has the new ones: [`Reply::Qdiscs`].
    QdiscReplace {
        /// In the words of `tc`, such as `netem delay 50ms | fq`.
        spec: String,
    },
    /// Restores the original ones; the reply has them: [`Reply::Qdiscs`].
    QdiscDelete,
    /// Addresses, routes, the MTU, and what the link told: [`Reply::Network`].
    Network,
    /// Changes one of them; the reply has the new state: [`Reply::Network`].
    ChangeNetwork {
        /// The change.
        #[serde(flatten)]
        change: Change,
    },
}

impl Request {
    /// The line to send, without its end.
    #[must_use]
    pub fn to_line(&self) -> String {
        #[derive(Serialize)]
        struct Line<'a> {
            v: u32,
            #[serde(flatten)]
            request: &'a Request,
        }
        // Strings and numbers are always representable.
        serde_json::to_string(&Line { v: VERSION, request: self }).unwrap_or_default()
    }

    /// Reads a line.
    ///
    /// # Errors
    /// The reply to send, which says what is wrong with the line.
    pub fn from_line(line: &[u8]) -> Result<Self, Reply> {
        let refuse = |fault, message: String| Err(Reply::Error { fault, message });
        let value: serde_json::Value = match serde_json::from_slice(line) {
            Ok(value) => value,
            Err(error) => return refuse(Fault::Request, format!("not a line of JSON: {error}")),
        };
        match value.get("v").map(serde_json::Value::as_u64) {
            Some(Some(v)) if v == u64::from(VERSION) => {}
            Some(Some(v)) => {
                return refuse(Fault::Version, format!("version {v} is not supported; use {VERSION}"));
            }
            _ => return refuse(Fault::Request, format!("the version is missing; add \"v\":{VERSION}")),
        }
        serde_json::from_value(value).or_else(|error| refuse(Fault::Request, error.to_string()))
    }
}

/// The cause of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Fault {
    /// The request is malformed or unknown: a fault of the client program.
    Request,
    /// The request has an unsupported version of the protocol.
    Version,
    /// The socket belongs to another user.
    Permission,
    /// The maximum number of clients is connected.
    Busy,
    /// The setting, the value, the queue discipline, the address or the route does not exist: a mistake of
    /// the user.
    Setting,
    /// The stack has ended.
    Stopped,
}

/// An answer, or a part of one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "reply", content = "data", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Reply {
    /// To [`Request::Identity`].
    Identity(Box<Identity>),
    /// To [`Request::Summary`].
    Summary(Summary),
    /// To [`Request::Connections`], in parts.
    Connections(Vec<ConnSnapshot>),
    /// To [`Request::Listeners`].
    Listeners(Vec<ListenerSnapshot>),
    /// To [`Request::Flows`]: of each shard, at most [`FLOWS_MAX`](crate::snapshot::FLOWS_MAX).
    Flows(Vec<FlowSnapshot>),
    /// To [`Request::Datagrams`].
    Datagrams(Vec<DatagramSnapshot>),
    /// To [`Request::Counters`], in the stack's order.
    Counters(Vec<Counter>),
    /// To [`Request::Sysctls`], in the stack's order.
    Sysctls(Vec<Setting>),
    /// To [`Request::Sysctl`] and [`Request::SetSysctl`].
    Sysctl(Setting),
    /// To [`Request::Report`].
    Report(Box<ReportSnapshot>),
    /// To [`Request::Reports`], in parts.
    Reports(Vec<ConnReportSnapshot>),
    /// To [`Request::Samples`], in parts.
    Samples(Vec<ConnSample>),
    /// To [`Request::Rooms`], in parts; empty unless the program relays connections.
    Rooms(Vec<FlowRooms>),
    /// To [`Request::Gateway`], in parts; after a change, the new list.
    Gateway(Vec<GatewayItem>),
    /// To [`Request::Device`]; empty unless the device has a state of its own.
    Device(DeviceReport),
    /// To [`Request::QdiscShow`], [`Request::QdiscReplace`] and [`Request::QdiscDelete`], the root first;
    /// empty if packets go straight to the device.
    Qdiscs(Vec<QdiscSnapshot>),
    /// To [`Request::Network`] and [`Request::ChangeNetwork`].
    Network(Box<NetworkSnapshot>),
    /// To any request.
    Error {
        /// Whose fault it is.
        fault: Fault,
        /// The reason in words.
        message: String,
    },
}

/// A line of a reply.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReplyLine {
    /// [`VERSION`].
    pub v: u32,
    /// Another line of the same reply follows.
    #[serde(default, skip_serializing_if = "is_false")]
    pub more: bool,
    /// The reply.
    #[serde(flatten)]
    pub reply: Reply,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes the field by reference")]
fn is_false(value: &bool) -> bool {
    !*value
}

impl ReplyLine {
    /// The last or only line of a reply.
    #[must_use]
    pub const fn last(reply: Reply) -> Self {
        Self { v: VERSION, more: false, reply }
    }

    /// The text, with its end of line.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        // Maps have string keys and numbers are integers: always representable.
        let mut bytes = serde_json::to_vec(self).unwrap_or_default();
        bytes.push(b'\n');
        bytes
    }
}

/// A counter and its value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counter {
    /// As `nstat` prints it.
    pub name: String,
    /// Since the stack began.
    pub value: u64,
}

/// A setting and its value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setting {
    /// As `sysctl` prints it.
    pub name: String,
    /// As `sysctl` prints it.
    pub value: String,
}

/// The identity of a stack.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Identity {
    /// ID of the process that runs the stack.
    pub pid: u32,
    /// Name of its program.
    pub program: String,
    /// The device that the stack sends over, such as the name of a TUN interface.
    pub device: String,
    /// Its addresses, with the length of the prefix where it is known.
    pub addresses: Vec<String>,
    /// Monotonic time at which it began: with the pid, unique while the machine runs.
    pub started_ns: u64,
    /// How long it has run.
    pub uptime_ns: u64,
    /// Version of taut.
    pub version: String,
    /// The reason why the device last did not take a packet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device_error: Option<String>,
}

/// The state of a device that has one of its own, such as a tunnel.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DeviceReport {
    /// Its name, such as a tunnel's.
    pub name: String,
    /// For a reader, in lines.
    pub text: String,
    /// For a program.
    pub json: serde_json::Value,
}

/// Numbers of connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Summary {
    /// Connections in any state except TIME-WAIT.
    pub connections: u64,
    /// Connections in TIME-WAIT.
    pub time_waits: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::GatewayPorts;
    use crate::network::RouteSnapshot;

    #[test]
    fn a_request_is_the_line_that_the_documentation_shows() {
        let request = Request::Sysctl { name: "net.ipv4.tcp_sack".to_owned() };
        assert_eq!(request.to_line(), r#"{"v":1,"request":"sysctl","name":"net.ipv4.tcp_sack"}"#);
        assert_eq!(Request::Connections.to_line(), r#"{"v":1,"request":"connections"}"#);
        let replace = Request::QdiscReplace { spec: "fq".to_owned() };
        assert_eq!(replace.to_line(), r#"{"v":1,"request":"qdisc_replace","spec":"fq"}"#);
        let change = Change::AddAddress { address: "10.9.0.8".parse().unwrap(), prefix: 24 };
        let change = Request::ChangeNetwork { change };
        assert_eq!(
            change.to_line(),
            r#"{"v":1,"request":"change_network","change":"add_address","address":"10.9.0.8","prefix":24}"#
        );
        let ports = GatewayPorts { kind: "tcp".to_owned(), ports: "8080:80".to_owned() };
        let forward = Request::Gateway { verb: GatewayVerb::AddForward(ports) };
        assert_eq!(
            forward.to_line(),
            r#"{"v":1,"request":"gateway","verb":"add_forward","kind":"tcp","ports":"8080:80"}"#
        );
        let via = "10.9.0.1".parse().ok();
        let route = RouteSnapshot { to: "10.8.0.0".parse().unwrap(), prefix: 16, via, source: None };
        let route = Request::ChangeNetwork { change: Change::RemoveRoute(route) };
        for request in [
            request,
            replace,
            change,
            route,
            forward,
            Request::Gateway { verb: GatewayVerb::AddRule { rule: "deny any".to_owned(), at: 1 } },
            Request::Gateway { verb: GatewayVerb::Flows },
            Request::Network,
            Request::Identity,
            Request::Report,
            Request::QdiscShow,
        ] {
            assert_eq!(Request::from_line(request.to_line().as_bytes()), Ok(request));
        }
    }

    #[test]
    fn a_reply_is_the_line_that_the_documentation_shows() {
        let setting = Setting { name: "net.ipv4.tcp_sack".to_owned(), value: "1".to_owned() };
        let line = ReplyLine::last(Reply::Sysctl(setting));
        let text = String::from_utf8(line.to_bytes()).unwrap();
        assert_eq!(
            text,
            "{\"v\":1,\"reply\":\"sysctl\",\"data\":{\"name\":\"net.ipv4.tcp_sack\",\"value\":\"1\"}}\n"
        );
        assert_eq!(serde_json::from_str::<ReplyLine>(&text).unwrap(), line);
        let part = ReplyLine { more: true, ..ReplyLine::last(Reply::Connections(Vec::new())) };
        assert!(String::from_utf8(part.to_bytes()).unwrap().contains("\"more\":true"));
    }

    #[test]
    fn what_is_wrong_with_a_request_is_said() {
        let refused = |line: &str| match Request::from_line(line.as_bytes()) {
            Err(Reply::Error { fault, message }) => (fault, message),
            other => panic!("{line} gave {other:?}"),
        };
        for line in ["", "x", "\0\u{fffd}", "{", "[]", "1", r#"{"request":"identity"}"#, r#"{"v":"1"}"#] {
            assert_eq!(refused(line).0, Fault::Request, "{line}");
        }
        assert!(refused(r#"{"request":"identity"}"#).1.contains("\"v\":1"));
        assert_eq!(refused(r#"{"v":2,"request":"identity"}"#).0, Fault::Version);
        let (fault, message) = refused(r#"{"v":1,"request":"reboot"}"#);
        assert_eq!(fault, Fault::Request);
        assert!(message.contains("reboot") && message.contains("connections"), "{message}");
        assert!(refused(r#"{"v":1,"request":"sysctl"}"#).1.contains("name"));
        let deep = format!("{}{}", "[".repeat(2000), "]".repeat(2000));
        assert_eq!(refused(&deep).0, Fault::Request);
    }

    #[test]
    fn fields_of_a_later_time_are_skipped() {
        let line = r#"{"v":1,"reply":"summary","data":{"connections":3,"half_open":1},"more":false,"x":1}"#;
        let parsed: ReplyLine = serde_json::from_str(line).unwrap();
        assert_eq!(parsed.reply, Reply::Summary(Summary { connections: 3, time_waits: 0 }));
    }
}
