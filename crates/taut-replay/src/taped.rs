//! A stack as a driver and its applications use it: each call that changes it goes through here, and is noted on the tape if
//! there is one. Called by `taut-driver` and `taut-control`.
//!
//! There is no other way to change the stack: `Taped` lends it for reading only, so a call that is not listed here does not
//! compile. Without a tape, each call costs one comparison more.

use std::net::SocketAddr;
use std::ops::Deref;
use std::task::Poll;

use bytes::{Buf as _, Bytes};
use taut_core::config::MemoryUse;
use taut_core::{
    Completion, ConnId, ConnMut, ConnOptions, ConnRef, ConnectError, DatagramError, DatagramId, DatagramKind,
    DatagramOption, DatagramOptions, Event, Fate, FlowError, FlowFilter, FlowId, FlowInfo, Frame, IcmpReport,
    IncomingOptions, Instant, ListenError, ListenOptions, ListenerId, NetworkChange, NetworkError,
    OptionError, ReadError, Received, Refusal, RxPacket, SendMeta, SetOption, Stack, Steering, SysctlError,
    Transmit, TxTicket, WriteError, WriteFlags,
};

use crate::input::{BYTES_MAX, Input, Lent};
use crate::outcome::{Outcome, Read};
use crate::tape::Tape;

/// A stack, and the tape that its inputs are noted on, if they are.
#[derive(Debug)]
pub struct Taped {
    stack: Stack,
    tape: Option<Box<Tape>>,
}

impl From<Stack> for Taped {
    /// Without a tape.
    fn from(stack: Stack) -> Self {
        Self { stack, tape: None }
    }
}

impl Deref for Taped {
    type Target = Stack;

    fn deref(&self) -> &Stack {
        &self.stack
    }
}

/// Makes a call, and notes it.
#[inline]
fn noted<'a, R: Outcome>(
    stack: &'a mut Stack,
    tape: Option<&mut Tape>,
    now: Option<Instant>,
    input: impl FnOnce() -> Input<'a>,
    call: impl FnOnce(&'a mut Stack) -> R,
) -> R {
    match tape {
        None => call(stack),
        Some(tape) => {
            tape.begin(now, &input());
            let result = call(stack);
            tape.end(result.number());
            result
        }
    }
}

/// A call of the stack. What it does is documented there.
macro_rules! verbs {
    ($($name:ident($($argument:ident: $type:ty),*) -> $result:ty, $now:expr, $input:expr;)*) => {
        $(
            #[doc = concat!("[`Stack::", stringify!($name), "`].")]
            #[allow(clippy::missing_errors_doc, reason = "documented there")]
            #[inline]
            pub fn $name(&mut self, $($argument: $type),*) -> $result {
                noted(&mut self.stack, self.tape.as_deref_mut(), $now, || $input, |stack| stack.$name($($argument),*))
            }
        )*
    };
}

impl Taped {
    /// A stack without connections whose inputs are noted on `tape`. Made by [`record`](crate::record).
    pub(crate) fn on(tape: Tape, mut stack: Stack) -> Self {
        stack.set_witness(tape.witness());
        Self { stack, tape: Some(Box::new(tape)) }
    }

    /// Ends the recording, if there is one; what comes later is not recorded. The file is complete when the result was
    /// dropped, which may wait for the disk.
    pub fn stop_recording(&mut self) -> impl Sized + use<> {
        self.tape.take()
    }

    verbs! {
        handle_tx_congestion(now: Instant, conn: ConnId) -> (), Some(now), Input::TxCongestion(conn);
        handle_timeout(now: Instant) -> (), Some(now), Input::Timeout;
        poll_event() -> Option<Event>, None, Input::Event;
        accept(id: ListenerId) -> Option<(ConnId, SocketAddr)>, None, Input::Accept(id);
        close_listener(now: Instant, id: ListenerId) -> (), Some(now), Input::CloseListener(id);
        next_flow(filter: ListenerId) -> Option<FlowInfo>, None, Input::NextFlow(filter);
        refuse_flow(now: Instant, flow: FlowId, how: Refusal) -> bool, Some(now), Input::RefuseFlow { flow, how };
        refuse_datagrams(now: Instant, id: DatagramId, how: Refusal) -> Result<bool, DatagramError>, Some(now), Input::RefuseDatagrams { id, how };
        drop_flow(now: Instant, flow: FlowId) -> bool, Some(now), Input::DropFlow(flow);
        probe_flow(flow: FlowId) -> bool, None, Input::ProbeFlow(flow);
        set_link_paces(paces: bool) -> (), None, Input::SetLinkPaces(paces);
        change_network(now: Instant, change: NetworkChange) -> Result<(), NetworkError>, Some(now), Input::ChangeNetwork(change);
        set_memory_elsewhere(elsewhere: MemoryUse) -> (), None, Input::MemoryElsewhere(elsewhere);
        note_steered_lost() -> (), None, Input::SteeredLost;
        close_datagram(id: DatagramId) -> (), None, Input::CloseDatagram(id);
        connect_datagram(id: DatagramId, to: Option<SocketAddr>) -> Result<(), DatagramError>, None, Input::ConnectDatagram { id, to };
        recv_datagram_error(id: DatagramId) -> Option<IcmpReport>, None, Input::RecvDatagramError(id);
        take_datagram_error(id: DatagramId) -> Option<DatagramError>, None, Input::TakeDatagramError(id);
        is_datagram_writable(id: DatagramId) -> bool, None, Input::DatagramWritable(id);
        set_datagram_option(id: DatagramId, option: DatagramOption) -> Result<(), DatagramError>, None, Input::SetDatagramOption { id, option };
    }

    /// [`Stack::poll_transmit`].
    #[inline]
    #[must_use]
    pub fn poll_transmit(&mut self, now: Instant) -> Option<Transmit<'_>> {
        noted(
            &mut self.stack,
            self.tape.as_deref_mut(),
            Some(now),
            || Input::Transmit,
            |stack| stack.poll_transmit(now),
        )
    }

    /// [`Stack::handle_packet`].
    #[inline]
    pub fn handle_packet(&mut self, now: Instant, packet: RxPacket<'_>) {
        match &mut self.tape {
            None => self.stack.handle_packet(now, packet),
            Some(tape) => receive(tape, &mut self.stack, now, packet),
        }
    }

    /// [`Stack::handle_tx`].
    #[inline]
    pub fn handle_tx(&mut self, now: Instant, ticket: TxTicket, fate: Fate) {
        match &mut self.tape {
            Some(tape) if !ticket.is_blank() => {
                tape.begin(Some(now), &Input::Tx { ticket: ticket.fingerprint(), fate });
                self.stack.handle_tx(now, ticket, fate);
                tape.end(0);
            }
            _ => self.stack.handle_tx(now, ticket, fate),
        }
    }

    /// [`Stack::note_device_losses`].
    #[inline]
    pub fn note_device_losses(&mut self, drops: u64, errors: u64) {
        // It follows every use of a stack, and there are almost never any.
        if drops | errors > 0 {
            let input = || Input::DeviceLosses { drops, errors };
            let call = |stack: &mut Stack| stack.note_device_losses(drops, errors);
            noted(&mut self.stack, self.tape.as_deref_mut(), None, input, call);
        }
    }

    /// [`Stack::note_completions`]. Not noted: nothing that a stack does depends on it, and there may be one a packet.
    #[inline]
    pub const fn note_completions(&mut self, late: u64, out_of_order: u64, unreported: u64) {
        self.stack.note_completions(late, out_of_order, unreported);
    }

    /// [`Stack::connect`].
    ///
    /// # Errors
    /// Its.
    pub fn connect(
        &mut self,
        now: Instant,
        to: SocketAddr,
        options: &ConnOptions,
    ) -> Result<ConnId, ConnectError> {
        let input = || Input::Connect { to, options: options.clone() };
        let call = |stack: &mut Stack| stack.connect(now, to, options);
        noted(&mut self.stack, self.tape.as_deref_mut(), Some(now), input, call)
    }

    /// [`Stack::listen`].
    ///
    /// # Errors
    /// Its.
    pub fn listen(&mut self, at: SocketAddr, options: ListenOptions) -> Result<ListenerId, ListenError> {
        if let Some(tape) = &mut self.tape {
            tape.begin(None, &Input::Listen { at, options: options.clone() });
        }
        let result = self.stack.listen(at, options);
        if let Some(tape) = &mut self.tape {
            tape.end(result.number());
        }
        result
    }

    /// [`Stack::incoming`].
    ///
    /// # Errors
    /// Its.
    pub fn incoming(
        &mut self,
        filter: FlowFilter,
        options: IncomingOptions,
    ) -> Result<ListenerId, ListenError> {
        if let Some(tape) = &mut self.tape {
            tape.begin(None, &Input::Incoming { filter: filter.clone(), options: options.clone() });
        }
        let result = self.stack.incoming(filter, options);
        if let Some(tape) = &mut self.tape {
            tape.end(result.number());
        }
        result
    }

    /// [`Stack::accept_flow`].
    ///
    /// # Errors
    /// Its.
    pub fn accept_flow(
        &mut self,
        now: Instant,
        flow: FlowId,
        options: Option<&ConnOptions>,
    ) -> Result<ConnId, FlowError> {
        let input = || Input::AcceptFlow { flow, options: options.cloned() };
        let call = |stack: &mut Stack| stack.accept_flow(now, flow, options);
        noted(&mut self.stack, self.tape.as_deref_mut(), Some(now), input, call)
    }

    /// [`Stack::accept_datagram_flow`].
    ///
    /// # Errors
    /// Its.
    pub fn accept_datagram_flow(
        &mut self,
        now: Instant,
        flow: FlowId,
        options: Option<&DatagramOptions>,
    ) -> Result<DatagramId, FlowError> {
        let input = || Input::AcceptDatagramFlow { flow, options: options.copied() };
        let call = |stack: &mut Stack| stack.accept_datagram_flow(now, flow, options);
        noted(&mut self.stack, self.tape.as_deref_mut(), Some(now), input, call)
    }

    /// [`Stack::open_datagram`].
    ///
    /// # Errors
    /// Its.
    pub fn open_datagram(
        &mut self,
        kind: DatagramKind,
        at: SocketAddr,
        options: &DatagramOptions,
    ) -> Result<DatagramId, ListenError> {
        let input = || Input::OpenDatagram { kind, at, options: *options };
        let call = |stack: &mut Stack| stack.open_datagram(kind, at, options);
        noted(&mut self.stack, self.tape.as_deref_mut(), None, input, call)
    }

    /// [`Stack::send_datagram`].
    ///
    /// # Errors
    /// Its.
    pub fn send_datagram(
        &mut self,
        now: Instant,
        id: DatagramId,
        to: Option<SocketAddr>,
        message: &[u8],
        meta: &SendMeta,
    ) -> Result<(), DatagramError> {
        if message.len() > BYTES_MAX {
            return Err(DatagramError::TooLong);
        }
        if let Some(tape) = &mut self.tape {
            tape.begin(Some(now), &Input::SendDatagram { id, to, meta: *meta, message });
        }
        let result = self.stack.send_datagram(now, id, to, message, meta);
        if let Some(tape) = &mut self.tape {
            tape.end(result.number());
        }
        result
    }

    /// [`Stack::recv_datagram`].
    ///
    /// # Errors
    /// Its.
    pub fn recv_datagram(
        &mut self,
        id: DatagramId,
        into: &mut [u8],
        peek: bool,
    ) -> Result<Received, DatagramError> {
        let Some(tape) = &mut self.tape else { return self.stack.recv_datagram(id, into, peek) };
        let max = into.len().min(BYTES_MAX);
        tape.begin(None, &Input::RecvDatagram { id, max, peek });
        let result = self.stack.recv_datagram(id, &mut into[..max], peek);
        tape.end(result.map(|read| Read(read, into.get(..read.len).unwrap_or_default())).number());
        result
    }

    /// [`Stack::set_sysctl`].
    ///
    /// # Errors
    /// Its.
    pub fn set_sysctl(&mut self, name: &str, value: &str) -> Result<(), SysctlError> {
        let call = |stack: &mut Stack| stack.set_sysctl(name, value);
        noted(&mut self.stack, self.tape.as_deref_mut(), None, || Input::SetSysctl { name, value }, call)
    }

    /// [`Stack::set_steering`], with the arguments of [`Steering::new`].
    pub fn set_steering(&mut self, seed: &[u8; 32], index: u16, shards: u16) {
        let input = || Input::SetSteering { seed: *seed, index, shards };
        let call = |stack: &mut Stack| stack.set_steering(Steering::new(seed, index, shards));
        noted(&mut self.stack, self.tape.as_deref_mut(), None, input, call);
    }

    /// [`Stack::owner_elsewhere`].
    #[inline]
    pub fn owner_elsewhere(&mut self, packet: &[u8]) -> Option<usize> {
        let owner = self.stack.owner_elsewhere(packet);
        if let (Some(tape), Some(_)) = (&mut self.tape, owner) {
            tape.begin(None, &Input::OwnerElsewhere(packet));
            tape.end(owner.number());
        }
        owner
    }

    /// [`Stack::conn_mut`].
    #[inline]
    pub fn conn_mut(&mut self, id: ConnId) -> Option<TapedConn<'_>> {
        let Self { stack, tape } = self;
        Some(TapedConn { conn: stack.conn_mut(id)?, tape: tape.as_deref_mut(), id })
    }
}

/// A packet is noted before the stack may take its buffer.
fn receive(tape: &mut Tape, stack: &mut Stack, now: Instant, packet: RxPacket<'_>) {
    let RxPacket { frame, checksum, gso_size } = packet;
    let joined;
    let frame = match frame {
        // A replay has it in one piece, so the stack gets it so.
        Frame::Gather { header, payload } => {
            joined = [&[header], payload.slices()].concat().concat();
            Frame::Slice(&joined)
        }
        other => other,
    };
    let (bytes, lent) = match &frame {
        Frame::Slice(bytes) => (*bytes, None),
        Frame::Lend { buffer, range } => {
            let lent = Lent { start: range.start, len: buffer.len(), capacity: buffer.capacity() };
            (buffer.get(range.clone()).unwrap_or_default(), Some(lent))
        }
        Frame::Gather { header, .. } => (*header, None),
    };
    tape.begin(Some(now), &Input::Packet { bytes, lent, checksum, gso_size });
    stack.handle_packet(now, RxPacket { frame, checksum, gso_size });
    tape.end(0);
}

/// A connection, with the calls that change it. What they do is documented at [`ConnMut`].
#[derive(Debug)]
pub struct TapedConn<'a> {
    conn: ConnMut<'a>,
    tape: Option<&'a mut Tape>,
    id: ConnId,
}

/// Makes a call of a connection, and notes it.
macro_rules! noted_conn {
    ($self:ident, $now:expr, $input:expr, $call:expr) => {
        match &mut $self.tape {
            None => $call,
            Some(tape) => {
                tape.begin(Some($now), &$input);
                let result = $call;
                tape.end(result.number());
                result
            }
        }
    };
}

macro_rules! conn_verbs {
    ($($name:ident($($argument:ident: $type:ty),*) -> $result:ty, $id:ident: $input:expr;)*) => {
        $(
            #[doc = concat!("[`ConnMut::", stringify!($name), "`].")]
            #[allow(clippy::missing_errors_doc, reason = "documented there")]
            #[inline]
            pub fn $name(&mut self, now: Instant, $($argument: $type),*) -> $result {
                let $id = self.id;
                noted_conn!(self, now, $input, self.conn.$name(now, $($argument),*))
            }
        )*
    };
}

impl TapedConn<'_> {
    conn_verbs! {
        poll_free() -> Poll<Option<Completion>>, id: Input::PollFree(id);
        read_chunk(max: usize) -> Result<Bytes, ReadError>, id: Input::ReadChunk { conn: id, max };
        consume(count: usize) -> (), id: Input::Consume { conn: id, count };
        writable() -> bool, id: Input::Writable(id);
        shutdown_write() -> Result<(), WriteError>, id: Input::ShutdownWrite(id);
        shutdown_read() -> (), id: Input::ShutdownRead(id);
    }

    /// [`ConnMut::set_option`].
    ///
    /// # Errors
    /// Its.
    pub fn set_option(&mut self, now: Instant, option: SetOption) -> Result<(), OptionError> {
        let conn = self.id;
        noted_conn!(
            self,
            now,
            Input::SetOption { conn, option: option.clone() },
            self.conn.set_option(now, option)
        )
    }

    /// [`ConnMut::write`].
    ///
    /// # Errors
    /// Its.
    #[inline]
    pub fn write(&mut self, now: Instant, data: &[u8]) -> Result<usize, WriteError> {
        self.write_with(now, data, WriteFlags::default())
    }

    /// [`ConnMut::write_with`].
    ///
    /// # Errors
    /// Its.
    #[inline]
    pub fn write_with(&mut self, now: Instant, data: &[u8], flags: WriteFlags) -> Result<usize, WriteError> {
        let Some(tape) = &mut self.tape else { return self.conn.write_with(now, data, flags) };
        // Noted when it has returned, because only what it took is kept. It may always take less.
        let data = &data[..data.len().min(BYTES_MAX)];
        let result = self.conn.write_with(now, data, flags);
        let taken = data.get(..result.unwrap_or(0)).unwrap_or_default();
        tape.begin(Some(now), &Input::Write { conn: self.id, flags, offered: data.len(), data: taken });
        tape.end(result.number());
        result
    }

    /// [`ConnMut::write_bytes`].
    ///
    /// # Errors
    /// Its.
    #[inline]
    pub fn write_bytes(&mut self, now: Instant, data: &mut Bytes) -> Result<Option<u32>, WriteError> {
        self.write_bytes_with(now, data, WriteFlags::default())
    }

    /// [`ConnMut::write_bytes_with`].
    ///
    /// # Errors
    /// Its.
    #[inline]
    pub fn write_bytes_with(
        &mut self,
        now: Instant,
        data: &mut Bytes,
        flags: WriteFlags,
    ) -> Result<Option<u32>, WriteError> {
        let Some(tape) = &mut self.tape else { return self.conn.write_bytes_with(now, data, flags) };
        let mut rest = data.slice(..data.len().min(BYTES_MAX));
        let offered = rest.len();
        let result = self.conn.write_bytes_with(now, &mut rest, flags);
        let taken = offered - rest.len();
        tape.begin(Some(now), &Input::WriteBytes { conn: self.id, flags, offered, data: &data[..taken] });
        tape.end(result.number());
        data.advance(taken);
        result
    }

    /// [`ConnMut::read`].
    ///
    /// # Errors
    /// Its.
    #[inline]
    pub fn read(&mut self, now: Instant, into: &mut [u8]) -> Result<usize, ReadError> {
        let Some(tape) = &mut self.tape else { return self.conn.read(now, into) };
        let max = into.len().min(BYTES_MAX);
        tape.begin(Some(now), &Input::Read { conn: self.id, max });
        let result = self.conn.read(now, &mut into[..max]);
        tape.end(result.map(|count| into.get(..count).unwrap_or_default()).number());
        result
    }

    /// [`ConnMut::close`].
    pub fn close(mut self, now: Instant) {
        if let Some(tape) = &mut self.tape {
            tape.begin(Some(now), &Input::Close(self.id));
        }
        self.conn.close(now);
        if let Some(tape) = self.tape {
            tape.end(0);
        }
    }

    /// [`ConnMut::abort`].
    pub fn abort(mut self, now: Instant) {
        if let Some(tape) = &mut self.tape {
            tape.begin(Some(now), &Input::Abort(self.id));
        }
        self.conn.abort(now);
        if let Some(tape) = self.tape {
            tape.end(0);
        }
    }

    // Calls that change nothing.

    /// [`ConnMut::peek`].
    ///
    /// # Errors
    /// Its.
    pub fn peek(&mut self, into: &mut [u8]) -> Result<usize, ReadError> {
        self.conn.peek(into)
    }

    /// [`ConnMut::chunk`].
    ///
    /// # Errors
    /// Its.
    pub fn chunk(&mut self) -> Result<&[u8], ReadError> {
        self.conn.chunk()
    }

    /// [`ConnMut::readable`].
    #[must_use]
    pub fn readable(&mut self) -> bool {
        self.conn.readable()
    }

    /// [`ConnMut::as_ref`].
    #[must_use]
    pub fn as_ref(&self) -> ConnRef<'_> {
        self.conn.as_ref()
    }
}
