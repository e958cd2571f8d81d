//! The inputs of a stack: every call that changes one, as a value. This is the one list; `taped.rs` makes the values,
//! `apply` makes the calls again.
//!
//! Calls that only read are none: [`Stack::poll_timeout`], snapshots, `peek`. A [blank](TxTicket::is_blank) ticket that is
//! given back changes nothing, and is none either.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use bytes::Bytes;
use taut_core::config::MemoryUse;
use taut_core::{
    BUFFER_BYTES, ConnId, ConnOptions, DatagramId, DatagramKind, DatagramOption, DatagramOptions, Fate,
    FlowFilter, FlowId, Frame, IncomingOptions, Instant, ListenOptions, ListenerId, NetworkChange, Received,
    Refusal, RxChecksum, RxPacket, SendMeta, SetOption, Stack, Steering, Transmit, TxTicket, WriteFlags,
};

use crate::codec::{Cursor, Trouble, put_addr, put_bytes, put_number, put_option};
use crate::datagram;
use crate::network;
use crate::options;
use crate::outcome::{Outcome as _, Read};

/// The most bytes that a recorded write offers, and that a recorded read or packet may have.
pub(crate) const BYTES_MAX: usize = 16 << 20;

/// The number of an [`Input`] in a file.
macro_rules! kinds {
    ($($name:ident = $number:literal,)*) => {
        /// What kind of input it is.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[expect(missing_docs, reason = "each is described at `Input`")]
        pub enum Kind { $($name = $number),* }

        impl Kind {
            pub(crate) fn of(number: u8) -> Option<Self> {
                match number {
                    $($number => Some(Self::$name),)*
                    _ => None,
                }
            }
        }
    };
}

kinds! {
    Packet = 0, Tx = 1, TxCongestion = 2, Timeout = 3, Transmit = 4, Event = 5,
    Connect = 6, Listen = 7, Accept = 8, CloseListener = 9,
    Write = 10, WriteBytes = 11, PollFree = 12, Read = 13, ReadChunk = 14, Consume = 15, Writable = 16,
    ShutdownWrite = 17, ShutdownRead = 18, Close = 19, Abort = 20, SetOption = 21,
    SetSysctl = 22, SetLinkPaces = 23, SetSteering = 24, OwnerElsewhere = 25, MemoryElsewhere = 26,
    SteeredLost = 27, DeviceLosses = 28, ChangeNetwork = 29,
    Incoming = 40, NextFlow = 41, AcceptFlow = 42, RefuseFlow = 43, DropFlow = 44, AcceptDatagramFlow = 45,
    ProbeFlow = 46,
    OpenDatagram = 50, CloseDatagram = 51, ConnectDatagram = 52, SendDatagram = 53, RecvDatagram = 54,
    RecvDatagramError = 55, TakeDatagramError = 56, DatagramWritable = 57, SetDatagramOption = 58,
    RefuseDatagrams = 59,
}

/// The buffer that a packet was lent in: the stack may keep it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lent {
    pub(crate) start: usize,
    pub(crate) len: usize,
    pub(crate) capacity: usize,
}

/// One call that changes a stack.
#[derive(Clone, Debug)]
pub(crate) enum Input<'a> {
    // The device and the clock.
    Packet {
        bytes: &'a [u8],
        lent: Option<Lent>,
        checksum: RxChecksum,
        gso_size: u16,
    },
    Tx {
        ticket: u64,
        fate: Fate,
    },
    TxCongestion(ConnId),
    Timeout,
    Transmit,
    Event,
    // The application.
    Connect {
        to: SocketAddr,
        options: ConnOptions,
    },
    Listen {
        at: SocketAddr,
        options: ListenOptions,
    },
    Accept(ListenerId),
    CloseListener(ListenerId),
    Incoming {
        filter: FlowFilter,
        options: IncomingOptions,
    },
    NextFlow(ListenerId),
    AcceptFlow {
        flow: FlowId,
        options: Option<ConnOptions>,
    },
    AcceptDatagramFlow {
        flow: FlowId,
        options: Option<DatagramOptions>,
    },
    RefuseFlow {
        flow: FlowId,
        how: Refusal,
    },
    DropFlow(FlowId),
    ProbeFlow(FlowId),
    /// `data` is the part of the `offered` bytes that was taken.
    Write {
        conn: ConnId,
        flags: WriteFlags,
        offered: usize,
        data: &'a [u8],
    },
    WriteBytes {
        conn: ConnId,
        flags: WriteFlags,
        offered: usize,
        data: &'a [u8],
    },
    PollFree(ConnId),
    Read {
        conn: ConnId,
        max: usize,
    },
    ReadChunk {
        conn: ConnId,
        max: usize,
    },
    Consume {
        conn: ConnId,
        count: usize,
    },
    Writable(ConnId),
    ShutdownWrite(ConnId),
    ShutdownRead(ConnId),
    Close(ConnId),
    Abort(ConnId),
    SetOption {
        conn: ConnId,
        option: SetOption,
    },
    // The administrator, and the other stacks on the link.
    SetSysctl {
        name: &'a str,
        value: &'a str,
    },
    SetLinkPaces(bool),
    SetSteering {
        seed: [u8; 32],
        index: u16,
        shards: u16,
    },
    OwnerElsewhere(&'a [u8]),
    MemoryElsewhere(MemoryUse),
    SteeredLost,
    DeviceLosses {
        drops: u64,
        errors: u64,
    },
    ChangeNetwork(NetworkChange),
    // Datagram sockets.
    OpenDatagram {
        kind: DatagramKind,
        at: SocketAddr,
        options: DatagramOptions,
    },
    CloseDatagram(DatagramId),
    ConnectDatagram {
        id: DatagramId,
        to: Option<SocketAddr>,
    },
    SendDatagram {
        id: DatagramId,
        to: Option<SocketAddr>,
        meta: SendMeta,
        message: &'a [u8],
    },
    RecvDatagram {
        id: DatagramId,
        max: usize,
        peek: bool,
    },
    RecvDatagramError(DatagramId),
    TakeDatagramError(DatagramId),
    DatagramWritable(DatagramId),
    SetDatagramOption {
        id: DatagramId,
        option: DatagramOption,
    },
    RefuseDatagrams {
        id: DatagramId,
        how: Refusal,
    },
}

impl<'a> Input<'a> {
    pub(crate) const fn kind(&self) -> Kind {
        match self {
            Self::Packet { .. } => Kind::Packet,
            Self::Tx { .. } => Kind::Tx,
            Self::TxCongestion(_) => Kind::TxCongestion,
            Self::Timeout => Kind::Timeout,
            Self::Transmit => Kind::Transmit,
            Self::Event => Kind::Event,
            Self::Connect { .. } => Kind::Connect,
            Self::Listen { .. } => Kind::Listen,
            Self::Accept(_) => Kind::Accept,
            Self::CloseListener(_) => Kind::CloseListener,
            Self::Incoming { .. } => Kind::Incoming,
            Self::NextFlow(_) => Kind::NextFlow,
            Self::AcceptFlow { .. } => Kind::AcceptFlow,
            Self::AcceptDatagramFlow { .. } => Kind::AcceptDatagramFlow,
            Self::RefuseFlow { .. } => Kind::RefuseFlow,
            Self::DropFlow(_) => Kind::DropFlow,
            Self::ProbeFlow(_) => Kind::ProbeFlow,
            Self::Write { .. } => Kind::Write,
            Self::WriteBytes { .. } => Kind::WriteBytes,
            Self::PollFree(_) => Kind::PollFree,
            Self::Read { .. } => Kind::Read,
            Self::ReadChunk { .. } => Kind::ReadChunk,
            Self::Consume { .. } => Kind::Consume,
            Self::Writable(_) => Kind::Writable,
            Self::ShutdownWrite(_) => Kind::ShutdownWrite,
            Self::ShutdownRead(_) => Kind::ShutdownRead,
            Self::Close(_) => Kind::Close,
            Self::Abort(_) => Kind::Abort,
            Self::SetOption { .. } => Kind::SetOption,
            Self::SetSysctl { .. } => Kind::SetSysctl,
            Self::SetLinkPaces(_) => Kind::SetLinkPaces,
            Self::SetSteering { .. } => Kind::SetSteering,
            Self::OwnerElsewhere(_) => Kind::OwnerElsewhere,
            Self::MemoryElsewhere(_) => Kind::MemoryElsewhere,
            Self::SteeredLost => Kind::SteeredLost,
            Self::DeviceLosses { .. } => Kind::DeviceLosses,
            Self::ChangeNetwork(_) => Kind::ChangeNetwork,
            Self::OpenDatagram { .. } => Kind::OpenDatagram,
            Self::CloseDatagram(_) => Kind::CloseDatagram,
            Self::ConnectDatagram { .. } => Kind::ConnectDatagram,
            Self::SendDatagram { .. } => Kind::SendDatagram,
            Self::RecvDatagram { .. } => Kind::RecvDatagram,
            Self::RecvDatagramError(_) => Kind::RecvDatagramError,
            Self::TakeDatagramError(_) => Kind::TakeDatagramError,
            Self::DatagramWritable(_) => Kind::DatagramWritable,
            Self::SetDatagramOption { .. } => Kind::SetDatagramOption,
            Self::RefuseDatagrams { .. } => Kind::RefuseDatagrams,
        }
    }

    /// Its bytes: what is small goes to `head`, and payload, which comes last, is returned.
    pub(crate) fn put(&self, head: &mut Vec<u8>) -> &'a [u8] {
        let put_conn = |head: &mut Vec<u8>, conn: ConnId| put_number(head, conn.to_bits());
        match *self {
            Self::Packet { bytes, lent, checksum, gso_size } => {
                let usual = lent.is_some_and(Lent::is_usual);
                let verified = checksum == RxChecksum::Verified;
                head.push(
                    u8::from(lent.is_some())
                        | u8::from(usual) << 1
                        | u8::from(verified) << 2
                        | u8::from(gso_size > 0) << 3,
                );
                if let Some(Lent { start, len, capacity }) = lent {
                    put_number(head, start as u64);
                    if !usual {
                        put_number(head, len as u64);
                        put_number(head, capacity as u64);
                    }
                }
                if gso_size > 0 {
                    put_number(head, gso_size.into());
                }
                put_number(head, bytes.len() as u64);
                return bytes;
            }
            Self::Tx { ticket, fate } => {
                head.extend(ticket.to_le_bytes());
                head.push(match fate {
                    Fate::Left => 0,
                    Fate::Refused => 1,
                    Fate::Dropped => 2,
                });
            }
            Self::Timeout | Self::Transmit | Self::Event | Self::SteeredLost => {}
            Self::Connect { to, ref options } => {
                put_addr(head, to);
                options::put_conn(head, options);
            }
            Self::Listen { at, ref options } => {
                put_addr(head, at);
                options::put_listen(head, options);
            }
            Self::Accept(id) | Self::CloseListener(id) | Self::NextFlow(id) => put_number(head, id.to_bits()),
            Self::Incoming { ref filter, ref options } => {
                options::put_filter(head, filter);
                options::put_incoming(head, options);
            }
            Self::AcceptFlow { flow, ref options } => {
                put_number(head, flow.to_bits());
                put_option(head, options.as_ref(), options::put_conn);
            }
            Self::AcceptDatagramFlow { flow, ref options } => {
                put_number(head, flow.to_bits());
                put_option(head, options.as_ref(), datagram::put_options);
            }
            Self::RefuseFlow { flow, how } => {
                put_number(head, flow.to_bits());
                options::put_refusal(head, how);
            }
            Self::DropFlow(flow) | Self::ProbeFlow(flow) => put_number(head, flow.to_bits()),
            Self::Write { conn, flags, offered, data } | Self::WriteBytes { conn, flags, offered, data } => {
                put_conn(head, conn);
                options::put_flags(head, flags);
                put_number(head, offered as u64);
                put_number(head, data.len() as u64);
                return data;
            }
            Self::Read { conn, max: count }
            | Self::ReadChunk { conn, max: count }
            | Self::Consume { conn, count } => {
                put_conn(head, conn);
                put_number(head, count as u64);
            }
            Self::TxCongestion(conn)
            | Self::PollFree(conn)
            | Self::Writable(conn)
            | Self::ShutdownWrite(conn)
            | Self::ShutdownRead(conn)
            | Self::Close(conn)
            | Self::Abort(conn) => put_conn(head, conn),
            Self::SetOption { conn, ref option } => {
                put_conn(head, conn);
                options::put_set(head, option);
            }
            Self::SetSysctl { name, value } => {
                put_bytes(head, name.as_bytes());
                put_bytes(head, value.as_bytes());
            }
            Self::SetLinkPaces(paces) => head.push(paces.into()),
            Self::SetSteering { seed, index, shards } => {
                head.extend(seed);
                put_number(head, index.into());
                put_number(head, shards.into());
            }
            Self::OwnerElsewhere(packet) => {
                put_number(head, packet.len() as u64);
                return packet;
            }
            Self::MemoryElsewhere(MemoryUse { bytes, connections }) => {
                put_number(head, bytes);
                put_number(head, connections.into());
            }
            Self::DeviceLosses { drops, errors } => {
                put_number(head, drops);
                put_number(head, errors);
            }
            Self::ChangeNetwork(change) => network::put_change(head, change),
            Self::OpenDatagram { kind, at, ref options } => {
                datagram::put_kind(head, kind);
                put_addr(head, at);
                datagram::put_options(head, options);
            }
            Self::CloseDatagram(id)
            | Self::RecvDatagramError(id)
            | Self::TakeDatagramError(id)
            | Self::DatagramWritable(id) => put_number(head, id.to_bits()),
            Self::ConnectDatagram { id, to } => {
                put_number(head, id.to_bits());
                put_option(head, to, put_addr);
            }
            Self::SendDatagram { id, to, ref meta, message } => {
                put_number(head, id.to_bits());
                put_option(head, to, put_addr);
                datagram::put_meta(head, meta);
                put_number(head, message.len() as u64);
                return message;
            }
            Self::RecvDatagram { id, max, peek } => {
                put_number(head, id.to_bits());
                put_number(head, max as u64);
                head.push(peek.into());
            }
            Self::SetDatagramOption { id, option } => {
                put_number(head, id.to_bits());
                datagram::put_option_to_set(head, option);
            }
            Self::RefuseDatagrams { id, how } => {
                put_number(head, id.to_bits());
                options::put_refusal(head, how);
            }
        }
        &[]
    }

    pub(crate) fn get(kind: Kind, cursor: &mut Cursor<'a>) -> Result<Self, Trouble> {
        let conn = |cursor: &mut Cursor<'_>| cursor.number().map(ConnId::from_bits);
        let listener = |cursor: &mut Cursor<'_>| cursor.number().map(ListenerId::from_bits);
        let flow = |cursor: &mut Cursor<'_>| cursor.number().map(FlowId::from_bits);
        let socket = |cursor: &mut Cursor<'_>| cursor.number().map(DatagramId::from_bits);
        Ok(match kind {
            Kind::Packet => {
                let flags = cursor.byte()?;
                let lent = if flags & 1 != 0 { Some(Lent::get(flags & 2 != 0, cursor)?) } else { None };
                let checksum = if flags & 4 != 0 { RxChecksum::Verified } else { RxChecksum::Unverified };
                let gso_size = if flags & 8 != 0 { cursor.small()? } else { 0 };
                let bytes = cursor.bytes(BYTES_MAX)?;
                if lent.is_some_and(|lent| lent.start + bytes.len() > lent.len) {
                    return Trouble::wrong("a packet that does not fit into its buffer");
                }
                Self::Packet { bytes, lent, checksum, gso_size }
            }
            Kind::Tx => {
                let ticket = u64::from_le_bytes(cursor.array()?);
                let fate = match cursor.byte()? {
                    0 => Fate::Left,
                    1 => Fate::Refused,
                    2 => Fate::Dropped,
                    other => return Trouble::wrong(format!("the unknown fate {other}")),
                };
                Self::Tx { ticket, fate }
            }
            Kind::TxCongestion => Self::TxCongestion(conn(cursor)?),
            Kind::Timeout => Self::Timeout,
            Kind::Transmit => Self::Transmit,
            Kind::Event => Self::Event,
            Kind::Connect => Self::Connect { to: cursor.addr()?, options: options::conn(cursor)? },
            Kind::Listen => Self::Listen { at: cursor.addr()?, options: options::listen(cursor)? },
            Kind::Accept => Self::Accept(listener(cursor)?),
            Kind::CloseListener => Self::CloseListener(listener(cursor)?),
            Kind::Incoming => {
                Self::Incoming { filter: options::filter(cursor)?, options: options::incoming(cursor)? }
            }
            Kind::NextFlow => Self::NextFlow(listener(cursor)?),
            Kind::AcceptFlow => {
                Self::AcceptFlow { flow: flow(cursor)?, options: cursor.option(options::conn)? }
            }
            Kind::AcceptDatagramFlow => {
                Self::AcceptDatagramFlow { flow: flow(cursor)?, options: cursor.option(datagram::options)? }
            }
            Kind::RefuseFlow => Self::RefuseFlow { flow: flow(cursor)?, how: options::refusal(cursor)? },
            Kind::DropFlow => Self::DropFlow(flow(cursor)?),
            Kind::ProbeFlow => Self::ProbeFlow(flow(cursor)?),
            Kind::Write | Kind::WriteBytes => {
                let (conn, flags, offered) = (conn(cursor)?, options::flags(cursor)?, cursor.small()?);
                let data = cursor.bytes(BYTES_MAX)?;
                if !(data.len()..=BYTES_MAX).contains(&offered) {
                    return Trouble::wrong(format!("a write that took {} bytes of {offered}", data.len()));
                }
                match kind {
                    Kind::Write => Self::Write { conn, flags, offered, data },
                    _ => Self::WriteBytes { conn, flags, offered, data },
                }
            }
            Kind::PollFree => Self::PollFree(conn(cursor)?),
            Kind::Read => Self::Read { conn: conn(cursor)?, max: at_most(cursor.small()?)? },
            Kind::ReadChunk => Self::ReadChunk { conn: conn(cursor)?, max: cursor.small()? },
            Kind::Consume => Self::Consume { conn: conn(cursor)?, count: cursor.small()? },
            Kind::Writable => Self::Writable(conn(cursor)?),
            Kind::ShutdownWrite => Self::ShutdownWrite(conn(cursor)?),
            Kind::ShutdownRead => Self::ShutdownRead(conn(cursor)?),
            Kind::Close => Self::Close(conn(cursor)?),
            Kind::Abort => Self::Abort(conn(cursor)?),
            Kind::SetOption => Self::SetOption { conn: conn(cursor)?, option: options::set(cursor)? },
            Kind::SetSysctl => Self::SetSysctl { name: cursor.text()?, value: cursor.text()? },
            Kind::SetLinkPaces => Self::SetLinkPaces(cursor.flag()?),
            Kind::SetSteering => {
                Self::SetSteering { seed: cursor.array()?, index: cursor.small()?, shards: cursor.small()? }
            }
            Kind::OwnerElsewhere => Self::OwnerElsewhere(cursor.bytes(BYTES_MAX)?),
            Kind::MemoryElsewhere => {
                let (bytes, connections) = (cursor.number()?, cursor.small()?);
                Self::MemoryElsewhere(MemoryUse { bytes, connections })
            }
            Kind::SteeredLost => Self::SteeredLost,
            Kind::DeviceLosses => Self::DeviceLosses { drops: cursor.number()?, errors: cursor.number()? },
            Kind::ChangeNetwork => Self::ChangeNetwork(network::change(cursor)?),
            Kind::OpenDatagram => Self::OpenDatagram {
                kind: datagram::kind(cursor)?,
                at: cursor.addr()?,
                options: datagram::options(cursor)?,
            },
            Kind::CloseDatagram => Self::CloseDatagram(socket(cursor)?),
            Kind::ConnectDatagram => {
                Self::ConnectDatagram { id: socket(cursor)?, to: cursor.option(Cursor::addr)? }
            }
            Kind::SendDatagram => Self::SendDatagram {
                id: socket(cursor)?,
                to: cursor.option(Cursor::addr)?,
                meta: datagram::meta(cursor)?,
                message: cursor.bytes(BYTES_MAX)?,
            },
            Kind::RecvDatagram => Self::RecvDatagram {
                id: socket(cursor)?,
                max: at_most(cursor.small()?)?,
                peek: cursor.flag()?,
            },
            Kind::RecvDatagramError => Self::RecvDatagramError(socket(cursor)?),
            Kind::TakeDatagramError => Self::TakeDatagramError(socket(cursor)?),
            Kind::DatagramWritable => Self::DatagramWritable(socket(cursor)?),
            Kind::SetDatagramOption => {
                Self::SetDatagramOption { id: socket(cursor)?, option: datagram::option_to_set(cursor)? }
            }
            Kind::RefuseDatagrams => {
                Self::RefuseDatagrams { id: socket(cursor)?, how: options::refusal(cursor)? }
            }
        })
    }
}

fn at_most(len: usize) -> Result<usize, Trouble> {
    if len > BYTES_MAX { Trouble::wrong(format!("a length of {len}, above {BYTES_MAX}")) } else { Ok(len) }
}

impl Lent {
    /// A whole buffer of the length that the stack keeps.
    const fn is_usual(self) -> bool {
        self.len == BUFFER_BYTES && self.capacity == BUFFER_BYTES
    }

    fn get(usual: bool, cursor: &mut Cursor<'_>) -> Result<Self, Trouble> {
        let start = at_most(cursor.small()?)?;
        if usual {
            return Ok(Self { start, len: BUFFER_BYTES, capacity: BUFFER_BYTES });
        }
        let (len, capacity) = (at_most(cursor.small()?)?, at_most(cursor.small()?)?);
        Ok(Self { start, len, capacity: capacity.max(len) })
    }
}

/// What the calls of a replay need besides the stack.
#[derive(Debug, Default)]
pub(crate) struct Room {
    /// Tickets of packets that were handed out and did not come back, by what they say.
    tickets: BTreeMap<u64, Vec<TxTicket>>,
    /// The device's receive buffer.
    buffer: Vec<u8>,
    /// What is read, and what was offered to a write.
    bytes: Vec<u8>,
}

/// Makes the call again. Its outcome must be `recorded`, or the error says in words what it is. `emitted` sees a packet that
/// the call hands out.
#[expect(clippy::unit_arg, reason = "calls that return nothing are compared like the others")]
pub(crate) fn apply(
    stack: &mut Stack,
    now: Instant,
    input: Input<'_>,
    recorded: u64,
    room: &mut Room,
    emitted: &mut dyn FnMut(&Transmit<'_>),
) -> Result<(), String> {
    let gone = || "there is no such connection".to_owned();
    // A call of a connection.
    macro_rules! conn {
        ($id:expr, $verb:ident $(, $argument:expr)*) => {
            stack.conn_mut($id).ok_or_else(gone)?.$verb(now $(, $argument)*).must_be(recorded)
        };
    }
    match input {
        Input::Packet { bytes, lent: None, checksum, gso_size } => stack
            .handle_packet(now, RxPacket { frame: Frame::Slice(bytes), checksum, gso_size })
            .must_be(recorded),
        Input::Packet { bytes, lent: Some(Lent { start, len, capacity }), checksum, gso_size } => {
            let buffer = &mut room.buffer;
            if buffer.capacity() != capacity {
                *buffer = Vec::with_capacity(capacity);
            }
            buffer.resize(len, 0);
            let range = start..start + bytes.len();
            buffer[range.clone()].copy_from_slice(bytes);
            stack
                .handle_packet(now, RxPacket { frame: Frame::Lend { buffer, range }, checksum, gso_size })
                .must_be(recorded)
        }
        Input::Tx { ticket, fate } => {
            let same = room.tickets.get_mut(&ticket);
            let given = same.and_then(Vec::pop).ok_or("no packet with this ticket is in the device")?;
            if room.tickets.get(&ticket).is_some_and(Vec::is_empty) {
                room.tickets.remove(&ticket);
            }
            stack.handle_tx(now, given, fate).must_be(recorded)
        }
        Input::TxCongestion(conn) => stack.handle_tx_congestion(now, conn).must_be(recorded),
        Input::Timeout => stack.handle_timeout(now).must_be(recorded),
        Input::Transmit => {
            let transmit = stack.poll_transmit(now);
            let checked = transmit.must_be(recorded);
            if let Some(transmit) = transmit {
                emitted(&transmit);
                let ticket = transmit.ticket;
                if !ticket.is_blank() {
                    room.tickets.entry(ticket.fingerprint()).or_default().push(ticket);
                }
            }
            checked
        }
        Input::Event => stack.poll_event().must_be(recorded),
        Input::Connect { to, options } => stack.connect(now, to, &options).must_be(recorded),
        Input::Listen { at, options } => stack.listen(at, options).must_be(recorded),
        Input::Accept(id) => stack.accept(id).must_be(recorded),
        Input::CloseListener(id) => stack.close_listener(now, id).must_be(recorded),
        Input::Incoming { filter, options } => stack.incoming(filter, options).must_be(recorded),
        Input::NextFlow(id) => stack.next_flow(id).must_be(recorded),
        Input::AcceptFlow { flow, options } => {
            stack.accept_flow(now, flow, options.as_ref()).must_be(recorded)
        }
        Input::AcceptDatagramFlow { flow, options } => {
            stack.accept_datagram_flow(now, flow, options.as_ref()).must_be(recorded)
        }
        Input::RefuseFlow { flow, how } => stack.refuse_flow(now, flow, how).must_be(recorded),
        Input::DropFlow(flow) => stack.drop_flow(now, flow).must_be(recorded),
        Input::ProbeFlow(flow) => stack.probe_flow(flow).must_be(recorded),
        Input::Write { conn, flags, offered, data } => {
            room.offer(offered, data);
            conn!(conn, write_with, &room.bytes, flags)
        }
        Input::WriteBytes { conn, flags, offered, data } => {
            room.offer(offered, data);
            conn!(conn, write_bytes_with, &mut Bytes::from(std::mem::take(&mut room.bytes)), flags)
        }
        Input::PollFree(conn) => conn!(conn, poll_free),
        Input::Read { conn, max } => {
            room.bytes.resize(max, 0);
            let read = stack.conn_mut(conn).ok_or_else(gone)?.read(now, &mut room.bytes);
            read.map(|count| room.bytes.get(..count).unwrap_or_default()).must_be(recorded)
        }
        Input::ReadChunk { conn, max } => conn!(conn, read_chunk, max),
        Input::Consume { conn, count } => conn!(conn, consume, count),
        Input::Writable(conn) => conn!(conn, writable),
        Input::ShutdownWrite(conn) => conn!(conn, shutdown_write),
        Input::ShutdownRead(conn) => conn!(conn, shutdown_read),
        Input::Close(conn) => conn!(conn, close),
        Input::Abort(conn) => conn!(conn, abort),
        Input::SetOption { conn, option } => conn!(conn, set_option, option),
        Input::SetSysctl { name, value } => stack.set_sysctl(name, value).must_be(recorded),
        Input::SetLinkPaces(paces) => stack.set_link_paces(paces).must_be(recorded),
        Input::SetSteering { seed, index, shards } => {
            stack.set_steering(Steering::new(&seed, index, shards)).must_be(recorded)
        }
        Input::OwnerElsewhere(packet) => stack.owner_elsewhere(packet).must_be(recorded),
        Input::MemoryElsewhere(elsewhere) => stack.set_memory_elsewhere(elsewhere).must_be(recorded),
        Input::SteeredLost => stack.note_steered_lost().must_be(recorded),
        Input::DeviceLosses { drops, errors } => stack.note_device_losses(drops, errors).must_be(recorded),
        Input::ChangeNetwork(change) => stack.change_network(now, change).must_be(recorded),
        Input::OpenDatagram { kind, at, options } => {
            stack.open_datagram(kind, at, &options).must_be(recorded)
        }
        Input::CloseDatagram(id) => stack.close_datagram(id).must_be(recorded),
        Input::ConnectDatagram { id, to } => stack.connect_datagram(id, to).must_be(recorded),
        Input::SendDatagram { id, to, meta, message } => {
            stack.send_datagram(now, id, to, message, &meta).must_be(recorded)
        }
        Input::RecvDatagram { id, max, peek } => {
            room.bytes.resize(max, 0);
            let received = stack.recv_datagram(id, &mut room.bytes, peek);
            let read = |read: Received| Read(read, room.bytes.get(..read.len).unwrap_or_default());
            received.map(read).must_be(recorded)
        }
        Input::RecvDatagramError(id) => stack.recv_datagram_error(id).must_be(recorded),
        Input::TakeDatagramError(id) => stack.take_datagram_error(id).must_be(recorded),
        Input::DatagramWritable(id) => stack.is_datagram_writable(id).must_be(recorded),
        Input::SetDatagramOption { id, option } => stack.set_datagram_option(id, option).must_be(recorded),
        Input::RefuseDatagrams { id, how } => stack.refuse_datagrams(now, id, how).must_be(recorded),
    }
}

impl Room {
    /// What a write was offered: the bytes that it took, and as many more as there were.
    fn offer(&mut self, offered: usize, data: &[u8]) {
        self.bytes.clear();
        self.bytes.extend_from_slice(data);
        self.bytes.resize(offered, 0);
    }
}
