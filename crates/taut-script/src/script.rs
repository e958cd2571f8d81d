//! A script as values: what the parser makes of a file and the runner carries out.
//!
//! Numbers of packets are the script's own: sequence numbers begin at 0 with the SYN of each side.

use std::fmt;

use taut_core::Duration;
use taut_wire::{Ecn, Flags};

use crate::failure::Failure;
use crate::parse;

/// A parsed script.
#[derive(Clone, Debug)]
pub struct Script {
    /// The file, as it was named.
    pub file: String,
    /// The options at the top, `--name=value`, with their lines.
    pub options: Vec<(u32, String, String)>,
    /// Everything else, in order.
    pub events: Vec<Event>,
}

impl Script {
    /// Parses the text of a script; `file` is for messages, and for finding files that the script names.
    ///
    /// # Errors
    /// The first line that is not understood, and why.
    pub fn parse(file: &str, text: &str) -> Result<Self, Failure> {
        let fails = |(line, what)| Failure { file: file.to_owned(), line, what, output: String::new() };
        parse::script(file, text).map_err(fails)
    }
}

/// One event of a script.
#[derive(Clone, Debug)]
pub struct Event {
    /// Its line.
    pub line: u32,
    /// When it is to happen.
    pub when: When,
    /// What happens.
    pub what: What,
}

/// When an event happens. Relative times count from the event before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// No time was written: right after the event before.
    Unsaid,
    /// `1.5`: since the beginning.
    At(Duration),
    /// `+1.5`.
    After(Duration),
    /// `1~2`.
    Between(Duration, Duration),
    /// `+1~+2`.
    AfterBetween(Duration, Duration),
    /// `*`: at any time.
    Any,
}

/// What happens.
#[derive(Clone, Debug)]
pub enum What {
    /// `<`: a packet arrives at the stack.
    Inbound(Packet),
    /// `>`: the stack sends a packet.
    Outbound(TcpSpec),
    /// A system call.
    Call(Call),
    /// Commands in backticks.
    Shell(String),
    /// Code in `%{ }%`.
    Code(String),
}

/// A packet from the network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Packet {
    /// A TCP segment.
    Tcp(TcpSpec),
    /// An ICMP error that quotes a segment of ours.
    Icmp(IcmpSpec),
}

/// An ICMP error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IcmpSpec {
    /// The ports of the quoted segment, if they were written: ours, then the peer's.
    pub ports: Option<(u16, u16)>,
    /// Which error.
    pub code: taut_wire::Unreachable,
    /// Sequence number of the quoted segment.
    pub seq: u32,
    /// Its payload in bytes.
    pub len: u32,
}

/// A TCP segment in a script's notation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TcpSpec {
    /// `[ect0]`, `[ce]`, `[noecn]` …; unsaid if `None`.
    pub ecn: Option<Ecn>,
    /// `[ttl 5]`.
    pub ttl: Option<u8>,
    /// Source and destination port, if they were written.
    pub ports: Option<(u16, u16)>,
    /// Flags.
    pub flags: Flags,
    /// Sequence number.
    pub seq: u32,
    /// Bytes of payload.
    pub len: u32,
    /// `ack`.
    pub ack: Option<u32>,
    /// `win`, as it is in the header; unsaid if `None`.
    pub win: Option<u16>,
    /// `urg`.
    pub urg: Option<u16>,
    /// Options; `None` is `<...>`: any.
    pub options: Option<Vec<Opt>>,
}

/// One TCP option, in the order of the header. SACK edges are the script's numbers here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Opt {
    /// `nop`
    Nop,
    /// `eol`
    End,
    /// `mss 1460`
    Mss(u16),
    /// `wscale 8`
    WindowScale(u8),
    /// `sackOK`
    SackPermitted,
    /// `sack 1:1001 2001:3001`
    Sack(Vec<(u32, u32)>),
    /// `TS val 100 ecr 0`
    Timestamps {
        /// TSval.
        val: u32,
        /// TSecr.
        ecr: u32,
    },
    /// `FO 0123abcd`: Fast Open (RFC 7413).
    FastOpen(Vec<u8>),
    /// `FOEXP 0123abcd`: its experimental form, kind 254.
    FastOpenExperimental(Vec<u8>),
    /// `ECN e1b 1 ceb 0 e0b 1`: accurate ECN (RFC 9768 §3.2.3): kind, and counters in their order.
    AccurateEcn(u8, Vec<u32>),
    /// `md5 0123…`
    Md5(Vec<u8>),
    /// Any other, by number: `kind 42 0a0b`.
    Other(u8, Vec<u8>),
}

/// Kind of the accurate-ECN option whose first counter is EE0B (RFC 9768 §3.2.3).
pub const ACCECN0: u8 = 172;
/// The same with EE1B first.
pub const ACCECN1: u8 = 174;

/// A system call.
#[derive(Clone, Debug)]
pub struct Call {
    /// Its name.
    pub name: String,
    /// Its arguments.
    pub args: Vec<Value>,
    /// When it returns, if it may block.
    pub end: Option<When>,
    /// What it returns.
    pub result: Value,
    /// The error, such as `EAGAIN`.
    pub errno: Option<String>,
}

/// An argument.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// `...`
    Any,
    /// A number.
    Int(i64),
    /// A text in quotes.
    Text(String),
    /// A constant, such as `SOL_SOCKET`.
    Name(String),
    /// `a|b`.
    Or(Vec<Value>),
    /// `[a, b]`.
    List(Vec<Value>),
    /// `{name=value}`, or `{..., 1000}` with empty names.
    Struct(Vec<(String, Value)>),
    /// `htons(80)`.
    Apply(String, Vec<Value>),
}

impl Value {
    /// The field of a struct.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&Value> {
        match self {
            Self::Struct(fields) => fields.iter().find(|(is, _)| is == name).map(|(_, value)| value),
            _ => None,
        }
    }
}

fn list(f: &mut fmt::Formatter<'_>, values: &[Value]) -> fmt::Result {
    for (index, value) in values.iter().enumerate() {
        write!(f, "{}{value}", if index > 0 { ", " } else { "" })?;
    }
    Ok(())
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("..."),
            Self::Int(value) => write!(f, "{value}"),
            Self::Text(text) => write!(f, "\"{text}\""),
            Self::Name(name) => f.write_str(name),
            Self::Or(values) => {
                for (index, value) in values.iter().enumerate() {
                    write!(f, "{}{value}", if index > 0 { "|" } else { "" })?;
                }
                Ok(())
            }
            Self::List(values) => {
                f.write_str("[")?;
                list(f, values)?;
                f.write_str("]")
            }
            Self::Struct(fields) => {
                f.write_str("{")?;
                for (index, (name, value)) in fields.iter().enumerate() {
                    let separator = if index > 0 { ", " } else { "" };
                    let equals = if name.is_empty() { "" } else { "=" };
                    write!(f, "{separator}{name}{equals}{value}")?;
                }
                f.write_str("}")
            }
            Self::Apply(name, args) => {
                write!(f, "{name}(")?;
                list(f, args)?;
                f.write_str(")")
            }
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl fmt::Display for Opt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nop => f.write_str("nop"),
            Self::End => f.write_str("eol"),
            Self::Mss(mss) => write!(f, "mss {mss}"),
            Self::WindowScale(shift) => write!(f, "wscale {shift}"),
            Self::SackPermitted => f.write_str("sackOK"),
            Self::Sack(blocks) => {
                f.write_str("sack")?;
                blocks.iter().try_for_each(|(left, right)| write!(f, " {left}:{right}"))
            }
            Self::Timestamps { val, ecr } => write!(f, "TS val {val} ecr {ecr}"),
            Self::FastOpen(cookie) if cookie.is_empty() => f.write_str("FO"),
            Self::FastOpen(cookie) => write!(f, "FO {}", hex(cookie)),
            Self::FastOpenExperimental(cookie) if cookie.is_empty() => f.write_str("FOEXP"),
            Self::FastOpenExperimental(cookie) => write!(f, "FOEXP {}", hex(cookie)),
            Self::AccurateEcn(kind, counters) => {
                let names = if *kind == ACCECN0 { ["e0b", "ceb", "e1b"] } else { ["e1b", "ceb", "e0b"] };
                f.write_str("ECN")?;
                names.iter().zip(counters).try_for_each(|(name, count)| write!(f, " {name} {count}"))
            }
            Self::Md5(digest) => write!(f, "md5 {}", hex(digest)),
            Self::Other(kind, value) => write!(f, "kind {kind} {}", hex(value)),
        }
    }
}

/// The letters of the flags in the order in which they are printed.
pub(crate) const LETTERS: [(Flags, char); 9] = [
    (Flags::SYN, 'S'),
    (Flags::FIN, 'F'),
    (Flags::RST, 'R'),
    (Flags::ECE, 'E'),
    (Flags::AE, 'A'),
    (Flags::PSH, 'P'),
    (Flags::CWR, 'W'),
    (Flags::URG, 'U'),
    (Flags::ACK, '.'),
];

/// Flags as letters; `-` for none.
pub(crate) fn letters(flags: Flags) -> String {
    let text: String =
        LETTERS.iter().filter(|(flag, _)| flags.contains(*flag)).map(|&(_, letter)| letter).collect();
    if text.is_empty() { "-".to_owned() } else { text }
}

/// The name of a mark.
pub(crate) const fn ecn_name(ecn: Ecn) -> &'static str {
    match ecn {
        Ecn::NotEct => "noecn",
        Ecn::Ect0 => "ect0",
        Ecn::Ect1 => "ect1",
        Ecn::Ce => "ce",
    }
}

impl fmt::Display for TcpSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(ecn) = self.ecn {
            write!(f, "[{}] ", ecn_name(ecn))?;
        }
        if let Some((from, to)) = self.ports {
            write!(f, "{from} > {to} ")?;
        }
        let end = self.seq.wrapping_add(self.len);
        write!(f, "{} {}:{end}({})", letters(self.flags), self.seq, self.len)?;
        if let Some(ack) = self.ack {
            write!(f, " ack {ack}")?;
        }
        if let Some(win) = self.win {
            write!(f, " win {win}")?;
        }
        if let Some(urg) = self.urg {
            write!(f, " urg {urg}")?;
        }
        match &self.options {
            None => f.write_str(" <...>"),
            Some(options) if options.is_empty() => Ok(()),
            Some(options) => {
                f.write_str(" <")?;
                for (index, option) in options.iter().enumerate() {
                    write!(f, "{}{option}", if index > 0 { "," } else { "" })?;
                }
                f.write_str(">")
            }
        }
    }
}
