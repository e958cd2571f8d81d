//! The inputs of a stack: every call that changes one. [`inputs!`] is the one list. From a line of it come
//! the input's kind, its bytes in a recording, the call that a replay makes, and the call by which drivers
//! and sockets reach the stack (`taped.rs`).
//!
//! Calls that only read are none: [`Stack::poll_timeout`], snapshots, `peek`. A [blank](TxTicket::is_blank)
//! ticket that is given back changes nothing, and is none either.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use bytes::Bytes;
use taut_core::config::MemoryUse;
use taut_core::{
    BUFFER_BYTES, ConnId, ConnOptions, DatagramId, DatagramKind, DatagramOption, DatagramOptions, Fate,
    FlowFilter, FlowId, Frame, IncomingOptions, Instant, ListenOptions, ListenerId, NetworkChange, Received,
    Refusal, RxChecksum, RxPacket, SendMeta, SetOption, Stack, Steering, Transmit, TxTicket, WriteFlags,
};

use crate::codec::{Coded, Cursor, Trouble, put_number};
use crate::outcome::{Outcome as _, Read};

/// The most bytes that a recorded write offers, and that a recorded read or packet may have.
pub(crate) const BYTES_MAX: usize = 16 << 20;

/// The list of all inputs, handed to `$use`. A number stands for an input in recordings, and is never given
/// to another.
///
/// - `timed` and `untimed` are calls of the stack, with the time as their first argument and without.
/// - `conn` are calls of a connection, which get the time.
/// - `own` are calls with something of their own, such as memory that is lent: their fields stand here, the
///   calls in [`apply`] and in `taped.rs`.
macro_rules! inputs {
    ($use:ident) => {
        $use! {
            timed {
                2 TxCongestion = handle_tx_congestion(conn: ConnId) -> ();
                3 Timeout = handle_timeout() -> ();
                9 CloseListener = close_listener(id: ListenerId) -> ();
                29 ChangeNetwork = change_network(change: NetworkChange) -> Result<(), NetworkError>;
                43 RefuseFlow = refuse_flow(flow: FlowId, how: Refusal) -> bool;
                44 DropFlow = drop_flow(flow: FlowId) -> bool;
                59 RefuseDatagrams = refuse_datagrams(id: DatagramId, how: Refusal) -> Result<bool, DatagramError>;
                60 BeginFlowFrom = begin_flow_from(id: DatagramId, local: SocketAddr) -> Result<DatagramId, FlowError>;
            }
            untimed {
                5 Event = poll_event() -> Option<Event>;
                8 Accept = accept(id: ListenerId) -> Option<(ConnId, SocketAddr)>;
                23 SetLinkPaces = set_link_paces(paces: bool) -> ();
                30 SetLinkCompletes = set_link_completes_on_departure(completes: bool) -> ();
                26 MemoryElsewhere = set_memory_elsewhere(elsewhere: MemoryUse) -> ();
                27 SteeredLost = note_steered_lost() -> ();
                41 NextFlow = next_flow(filter: ListenerId) -> Option<FlowInfo>;
                46 ProbeFlow = probe_flow(flow: FlowId) -> bool;
                51 CloseDatagram = close_datagram(id: DatagramId) -> ();
                52 ConnectDatagram = connect_datagram(id: DatagramId, to: Option<SocketAddr>) -> Result<(), DatagramError>;
                55 RecvDatagramError = recv_datagram_error(id: DatagramId) -> Option<IcmpReport>;
                56 TakeDatagramError = take_datagram_error(id: DatagramId) -> Option<DatagramError>;
                57 DatagramWritable = is_datagram_writable(id: DatagramId) -> bool;
                58 SetDatagramOption = set_datagram_option(id: DatagramId, option: DatagramOption) -> Result<(), DatagramError>;
            }
            conn {
                12 PollFree = poll_free() -> Poll<Option<Completion>>;
                14 ReadChunk = read_chunk(max: usize) -> Result<Bytes, ReadError>;
                15 Consume = consume(count: usize) -> ();
                16 Writable = writable() -> bool;
                17 ShutdownWrite = shutdown_write() -> Result<(), WriteError>;
                18 ShutdownRead = shutdown_read() -> ();
                21 SetOption = set_option(option: SetOption) -> Result<(), OptionError>;
            }
            own {
                0 Packet { packet: Arrived<'a> };
                1 Tx { ticket: u64, fate: Fate };
                4 Transmit {};
                6 Connect { to: SocketAddr, options: ConnOptions };
                7 Listen { at: SocketAddr, options: ListenOptions };
                10 Write { conn: ConnId, flags: WriteFlags, data: Offered<'a> };
                11 WriteBytes { conn: ConnId, flags: WriteFlags, data: Offered<'a> };
                13 Read { conn: ConnId, max: AtMost };
                19 Close { conn: ConnId };
                20 Abort { conn: ConnId };
                22 SetSysctl { name: &'a str, value: &'a str };
                24 SetSteering { seed: [u8; 32], index: u16, shards: u16 };
                25 OwnerElsewhere { packet: Payload<'a> };
                28 DeviceLosses { drops: u64, errors: u64 };
                40 Incoming { filter: FlowFilter, options: IncomingOptions };
                42 AcceptFlow { flow: FlowId, options: Option<ConnOptions> };
                45 AcceptDatagramFlow { flow: FlowId, options: Option<DatagramOptions> };
                50 OpenDatagram { kind: DatagramKind, at: SocketAddr, options: DatagramOptions };
                53 SendDatagram { id: DatagramId, to: Option<SocketAddr>, meta: SendMeta, message: Payload<'a> };
                54 RecvDatagram { id: DatagramId, max: AtMost, peek: bool };
            }
        }
    };
}

pub(crate) use inputs;

/// Kinds, inputs, their bytes, and the calls of those whose call is in the list.
macro_rules! define {
    (
        timed { $($tn:literal $t:ident = $tcall:ident($($ta:ident: $tt:ty),*) -> $tr:ty;)* }
        untimed { $($un:literal $u:ident = $ucall:ident($($ua:ident: $ut:ty),*) -> $ur:ty;)* }
        conn { $($cn:literal $c:ident = $ccall:ident($($ca:ident: $ct:ty),*) -> $cr:ty;)* }
        own { $($on:literal $o:ident { $($oa:ident: $ot:ty),* };)* }
    ) => {
        /// What kind of input it is.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[expect(missing_docs, reason = "each is a call of the stack")]
        pub enum Kind { $($t = $tn,)* $($u = $un,)* $($c = $cn,)* $($o = $on,)* }

        impl Kind {
            pub(crate) fn of(number: u8) -> Option<Self> {
                match number {
                    $($tn => Some(Self::$t),)*
                    $($un => Some(Self::$u),)*
                    $($cn => Some(Self::$c),)*
                    $($on => Some(Self::$o),)*
                    _ => None,
                }
            }
        }

        /// One call that changes a stack.
        #[derive(Clone, Debug)]
        pub(crate) enum Input<'a> {
            $($t { $($ta: $tt),* },)*
            $($u { $($ua: $ut),* },)*
            $($c { conn: ConnId, $($ca: $ct),* },)*
            $($o { $($oa: $ot),* },)*
        }

        impl<'a> Input<'a> {
            pub(crate) const fn kind(&self) -> Kind {
                match self {
                    $(Self::$t { .. } => Kind::$t,)*
                    $(Self::$u { .. } => Kind::$u,)*
                    $(Self::$c { .. } => Kind::$c,)*
                    $(Self::$o { .. } => Kind::$o,)*
                }
            }

            /// Its bytes: what is small goes to `head`, and payload, which comes last, is returned.
            #[allow(unused_mut, unused_assignments, reason = "few have payload, and it is the last field's")]
            pub(crate) fn put(&self, head: &mut Vec<u8>) -> &'a [u8] {
                let mut payload: &'a [u8] = &[];
                match self {
                    $(Self::$t { $($ta),* } => { $($ta.put(head);)* })*
                    $(Self::$u { $($ua),* } => { $($ua.put(head);)* })*
                    $(Self::$c { conn, $($ca),* } => { conn.put(head); $($ca.put(head);)* })*
                    $(Self::$o { $($oa),* } => { $($oa.put(head); payload = $oa.payload();)* })*
                }
                payload
            }

            pub(crate) fn get(kind: Kind, cursor: &mut Cursor<'a>) -> Result<Self, Trouble> {
                Ok(match kind {
                    $(Kind::$t => Self::$t { $($ta: Coded::get(cursor)?),* },)*
                    $(Kind::$u => Self::$u { $($ua: Coded::get(cursor)?),* },)*
                    $(Kind::$c => Self::$c { conn: Coded::get(cursor)?, $($ca: Coded::get(cursor)?),* },)*
                    $(Kind::$o => Self::$o { $($oa: Coded::get(cursor)?),* },)*
                })
            }
        }

        /// Makes a call that is in the list; of the others, [`apply`] knows the call.
        fn call(stack: &mut Stack, now: Instant, input: Input<'_>, recorded: u64) -> Result<(), String> {
            match input {
                $(Input::$t { $($ta),* } => stack.$tcall(now, $($ta),*).must_be(recorded),)*
                $(Input::$u { $($ua),* } => stack.$ucall($($ua),*).must_be(recorded),)*
                $(Input::$c { conn, $($ca),* } => connection(stack, conn)?.$ccall(now, $($ca),*).must_be(recorded),)*
                other => Err(format!("{:?} has no call", other.kind())),
            }
        }
    };
}

inputs!(define);

fn connection(stack: &mut Stack, id: ConnId) -> Result<taut_core::ConnMut<'_>, String> {
    stack.conn_mut(id).ok_or_else(|| "there is no such connection".to_owned())
}

/// Bytes behind all others of an input.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Payload<'a>(pub(crate) &'a [u8]);

impl<'a> Coded<'a> for Payload<'a> {
    fn put(&self, out: &mut Vec<u8>) {
        put_number(out, self.0.len() as u64);
    }

    fn get(cursor: &mut Cursor<'a>) -> Result<Self, Trouble> {
        cursor.bytes(BYTES_MAX).map(Self)
    }

    fn payload(&self) -> &'a [u8] {
        self.0
    }
}

/// A length of at most [`BYTES_MAX`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct AtMost(pub(crate) usize);

impl<'a> Coded<'a> for AtMost {
    fn put(&self, out: &mut Vec<u8>) {
        self.0.put(out);
    }

    fn get(cursor: &mut Cursor<'a>) -> Result<Self, Trouble> {
        match cursor.small()? {
            len @ ..=BYTES_MAX => Ok(Self(len)),
            len => Trouble::wrong(format!("a length of {len}, above {BYTES_MAX}")),
        }
    }
}

/// What a write was offered: how many bytes, and those of them that it took.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Offered<'a> {
    pub(crate) bytes: usize,
    pub(crate) taken: &'a [u8],
}

impl<'a> Coded<'a> for Offered<'a> {
    fn put(&self, out: &mut Vec<u8>) {
        self.bytes.put(out);
        Payload(self.taken).put(out);
    }

    fn get(cursor: &mut Cursor<'a>) -> Result<Self, Trouble> {
        let (AtMost(bytes), Payload(taken)) = (Coded::get(cursor)?, Coded::get(cursor)?);
        if taken.len() > bytes {
            return Trouble::wrong(format!("a write that took {} bytes of {bytes}", taken.len()));
        }
        Ok(Self { bytes, taken })
    }

    fn payload(&self) -> &'a [u8] {
        self.taken
    }
}

/// The buffer that a packet was lent in: the stack may keep it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lent {
    pub(crate) start: usize,
    pub(crate) len: usize,
    pub(crate) capacity: usize,
}

/// A packet that arrived.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrived<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) lent: Option<Lent>,
    pub(crate) checksum: RxChecksum,
    pub(crate) gso_size: u16,
}

/// Bits of a packet's first byte.
const IS_LENT: u8 = 1;
const IS_USUAL: u8 = 2;
const IS_VERIFIED: u8 = 4;
const HAS_SEGMENTS: u8 = 8;

impl<'a> Coded<'a> for Arrived<'a> {
    fn put(&self, out: &mut Vec<u8>) {
        let Self { bytes, lent, checksum, gso_size } = *self;
        let bit = |is: bool, bit: u8| if is { bit } else { 0 };
        let usual = lent.is_some_and(Lent::is_usual);
        out.push(
            bit(lent.is_some(), IS_LENT)
                | bit(usual, IS_USUAL)
                | bit(checksum == RxChecksum::Verified, IS_VERIFIED)
                | bit(gso_size > 0, HAS_SEGMENTS),
        );
        if let Some(Lent { start, len, capacity }) = lent {
            start.put(out);
            if !usual {
                len.put(out);
                capacity.put(out);
            }
        }
        if gso_size > 0 {
            gso_size.put(out);
        }
        Payload(bytes).put(out);
    }

    fn get(cursor: &mut Cursor<'a>) -> Result<Self, Trouble> {
        let flags = cursor.byte()?;
        let lent = if flags & IS_LENT != 0 { Some(Lent::get(flags & IS_USUAL != 0, cursor)?) } else { None };
        let checksum = if flags & IS_VERIFIED != 0 { RxChecksum::Verified } else { RxChecksum::Unverified };
        let gso_size = if flags & HAS_SEGMENTS != 0 { cursor.small()? } else { 0 };
        let Payload(bytes) = Coded::get(cursor)?;
        if lent.is_some_and(|lent| lent.start + bytes.len() > lent.len) {
            return Trouble::wrong("a packet that does not fit into its buffer");
        }
        Ok(Self { bytes, lent, checksum, gso_size })
    }

    fn payload(&self) -> &'a [u8] {
        self.bytes
    }
}

impl Lent {
    /// A whole buffer of the length that the stack keeps.
    const fn is_usual(self) -> bool {
        self.len == BUFFER_BYTES && self.capacity == BUFFER_BYTES
    }

    fn get(usual: bool, cursor: &mut Cursor<'_>) -> Result<Self, Trouble> {
        let AtMost(start) = Coded::get(cursor)?;
        if usual {
            return Ok(Self { start, len: BUFFER_BYTES, capacity: BUFFER_BYTES });
        }
        let (AtMost(len), AtMost(capacity)) = (Coded::get(cursor)?, Coded::get(cursor)?);
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

/// Makes the call again. Its outcome must be `recorded`, or the error says in words what it is. `emitted`
/// sees a packet that the call hands out.
#[expect(clippy::unit_arg, reason = "calls that return nothing are compared like the others")]
pub(crate) fn apply(
    stack: &mut Stack,
    now: Instant,
    input: Input<'_>,
    recorded: u64,
    room: &mut Room,
    emitted: &mut dyn FnMut(&Transmit<'_>),
) -> Result<(), String> {
    match input {
        Input::Packet { packet } => stack.handle_packet(now, room.packet(&packet)).must_be(recorded),
        Input::Tx { ticket, fate } => stack.handle_tx(now, room.ticket(ticket)?, fate).must_be(recorded),
        Input::Transmit {} => {
            let transmit = stack.poll_transmit(now);
            let checked = transmit.must_be(recorded);
            if let Some(transmit) = transmit {
                emitted(&transmit);
                room.keep(transmit.ticket);
            }
            checked
        }
        Input::Connect { to, options } => stack.connect(now, to, &options).must_be(recorded),
        Input::Listen { at, options } => stack.listen(at, options).must_be(recorded),
        Input::Incoming { filter, options } => stack.incoming(filter, options).must_be(recorded),
        Input::AcceptFlow { flow, options } => {
            stack.accept_flow(now, flow, options.as_ref()).must_be(recorded)
        }
        Input::AcceptDatagramFlow { flow, options } => {
            stack.accept_datagram_flow(now, flow, options.as_ref()).must_be(recorded)
        }
        Input::Write { conn, flags, data } => {
            room.offer(data);
            connection(stack, conn)?.write_with(now, &room.bytes, flags).must_be(recorded)
        }
        Input::WriteBytes { conn, flags, data } => {
            room.offer(data);
            let mut bytes = Bytes::from(std::mem::take(&mut room.bytes));
            connection(stack, conn)?.write_bytes_with(now, &mut bytes, flags).must_be(recorded)
        }
        Input::Read { conn, max: AtMost(max) } => {
            room.bytes.resize(max, 0);
            let read = connection(stack, conn)?.read(now, &mut room.bytes);
            read.map(|count| room.bytes.get(..count).unwrap_or_default()).must_be(recorded)
        }
        Input::Close { conn } => connection(stack, conn)?.close(now).must_be(recorded),
        Input::Abort { conn } => connection(stack, conn)?.abort(now).must_be(recorded),
        Input::SetSysctl { name, value } => stack.set_sysctl(name, value).must_be(recorded),
        Input::SetSteering { seed, index, shards } => {
            stack.set_steering(Steering::new(&seed, index, shards)).must_be(recorded)
        }
        Input::OwnerElsewhere { packet: Payload(packet) } => stack.owner_elsewhere(packet).must_be(recorded),
        Input::DeviceLosses { drops, errors } => stack.note_device_losses(drops, errors).must_be(recorded),
        Input::OpenDatagram { kind, at, options } => {
            stack.open_datagram(kind, at, &options).must_be(recorded)
        }
        Input::SendDatagram { id, to, meta, message: Payload(message) } => {
            stack.send_datagram(now, id, to, message, &meta).must_be(recorded)
        }
        Input::RecvDatagram { id, max: AtMost(max), peek } => {
            room.bytes.resize(max, 0);
            let received = stack.recv_datagram(id, &mut room.bytes, peek);
            let read = |read: Received| Read(read, room.bytes.get(..read.len).unwrap_or_default());
            received.map(read).must_be(recorded)
        }
        listed => call(stack, now, listed, recorded),
    }
}

impl Room {
    /// The packet as the device handed it in.
    fn packet<'r>(&'r mut self, packet: &Arrived<'r>) -> RxPacket<'r> {
        let Arrived { bytes, lent, checksum, gso_size } = *packet;
        let Some(Lent { start, len, capacity }) = lent else {
            return RxPacket { frame: Frame::Slice(bytes), checksum, gso_size };
        };
        let buffer = &mut self.buffer;
        if buffer.capacity() != capacity {
            *buffer = Vec::with_capacity(capacity);
        }
        buffer.resize(len, 0);
        let range = start..start + bytes.len();
        buffer[range.clone()].copy_from_slice(bytes);
        RxPacket { frame: Frame::Lend { buffer, range }, checksum, gso_size }
    }

    /// Keeps the ticket of a packet until it comes back.
    fn keep(&mut self, ticket: TxTicket) {
        if !ticket.is_blank() {
            self.tickets.entry(ticket.fingerprint()).or_default().push(ticket);
        }
    }

    fn ticket(&mut self, fingerprint: u64) -> Result<TxTicket, String> {
        let same = self.tickets.get_mut(&fingerprint);
        let given = same.and_then(Vec::pop).ok_or("no packet with this ticket is in the device")?;
        if self.tickets.get(&fingerprint).is_some_and(Vec::is_empty) {
            self.tickets.remove(&fingerprint);
        }
        Ok(given)
    }

    /// What a write was offered: the bytes that it took, and as many more as there were.
    fn offer(&mut self, offered: Offered<'_>) {
        self.bytes.clear();
        self.bytes.extend_from_slice(offered.taken);
        self.bytes.resize(offered.bytes, 0);
    }
}
