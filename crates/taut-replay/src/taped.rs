//! A stack as a driver and its applications use it: each call that changes it goes through here, and is noted
//! on the tape if there is one. Called by `taut-driver` and `taut-control`.
//!
//! There is no other way to change the stack: `Taped` lends it for reading only, so a call that is not listed
//! here does not compile. Without a tape, each call costs one comparison more.

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

use crate::input::{Arrived, AtMost, BYTES_MAX, Input, Lent, Offered, Payload, inputs};
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

/// Makes a call, and notes it if there is a tape.
macro_rules! noted {
    ($tape:expr, $now:expr, $input:expr, $call:expr) => {
        match &mut $tape {
            None => $call,
            Some(tape) => {
                tape.begin($now, &$input);
                let result = $call;
                tape.end(result.number());
                result
            }
        }
    };
}

/// The calls that are in the list of inputs. What they do is documented at the stack and at its connections.
macro_rules! calls {
    (
        timed { $($tn:literal $t:ident = $tcall:ident($($ta:ident: $tt:ty),*) -> $tr:ty;)* }
        untimed { $($un:literal $u:ident = $ucall:ident($($ua:ident: $ut:ty),*) -> $ur:ty;)* }
        conn { $($cn:literal $c:ident = $ccall:ident($($ca:ident: $ct:ty),*) -> $cr:ty;)* }
        own { $($own:tt)* }
    ) => {
        #[allow(clippy::missing_errors_doc, reason = "documented at the stack")]
        #[allow(clippy::clone_on_copy, reason = "one of the arguments is no copy")]
        impl Taped {
            $(
                #[doc = concat!("[`Stack::", stringify!($tcall), "`].")]
                #[inline]
                pub fn $tcall(&mut self, now: Instant, $($ta: $tt),*) -> $tr {
                    let Self { stack, tape } = self;
                    noted!(*tape, Some(now), Input::$t { $($ta: $ta.clone()),* }, stack.$tcall(now, $($ta),*))
                }
            )*
            $(
                #[doc = concat!("[`Stack::", stringify!($ucall), "`].")]
                #[inline]
                pub fn $ucall(&mut self, $($ua: $ut),*) -> $ur {
                    let Self { stack, tape } = self;
                    noted!(*tape, None, Input::$u { $($ua: $ua.clone()),* }, stack.$ucall($($ua),*))
                }
            )*
        }

        #[allow(clippy::missing_errors_doc, reason = "documented at the connection")]
        #[allow(clippy::clone_on_copy, reason = "one of the arguments is no copy")]
        impl TapedConn<'_> {
            $(
                #[doc = concat!("[`ConnMut::", stringify!($ccall), "`].")]
                #[inline]
                pub fn $ccall(&mut self, now: Instant, $($ca: $ct),*) -> $cr {
                    noted!(
                        self.tape,
                        Some(now),
                        Input::$c { conn: self.id, $($ca: $ca.clone()),* },
                        self.conn.$ccall(now, $($ca),*)
                    )
                }
            )*
        }
    };
}

inputs!(calls);

impl Taped {
    /// A stack without connections whose inputs are noted on `tape`. Made by [`record`](crate::record).
    pub(crate) fn on(tape: Tape, mut stack: Stack) -> Self {
        stack.set_witness(tape.witness());
        Self { stack, tape: Some(Box::new(tape)) }
    }

    /// Ends the recording, if there is one; what comes later is not recorded. The file is complete when the
    /// result was dropped, which may wait for the disk.
    pub fn stop_recording(&mut self) -> impl Sized + use<> {
        self.tape.take()
    }

    /// [`Stack::poll_transmit`].
    #[inline]
    #[must_use]
    pub fn poll_transmit(&mut self, now: Instant) -> Option<Transmit<'_>> {
        let Self { stack, tape } = self;
        noted!(*tape, Some(now), Input::Transmit {}, stack.poll_transmit(now))
    }

    /// [`Stack::handle_packet`].
    #[inline]
    pub fn handle_packet(&mut self, now: Instant, packet: RxPacket<'_>) {
        match &mut self.tape {
            None => self.stack.handle_packet(now, packet),
            Some(tape) => receive(tape, &mut self.stack, now, packet),
        }
    }

    /// [`Stack::handle_placed`]. While the stack is recorded, no packet is taken so.
    #[inline]
    pub fn handle_placed(
        &mut self,
        now: Instant,
        id: ConnId,
        headers: &[u8],
        payload: &[u8],
        gso_size: u16,
    ) -> Option<usize> {
        match self.tape {
            None => self.stack.handle_placed(now, id, headers, payload, gso_size),
            Some(_) => None,
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
            let input = Input::DeviceLosses { drops, errors };
            noted!(self.tape, None, input, self.stack.note_device_losses(drops, errors));
        }
    }

    /// [`Stack::note_completions`]. Not noted: nothing that a stack does depends on it, and there may be one
    /// a packet.
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
        noted!(self.tape, Some(now), input(), self.stack.connect(now, to, options))
    }

    /// [`Stack::listen`].
    ///
    /// # Errors
    /// Its.
    pub fn listen(&mut self, at: SocketAddr, options: ListenOptions) -> Result<ListenerId, ListenError> {
        noted!(
            self.tape,
            None,
            Input::Listen { at, options: options.clone() },
            self.stack.listen(at, options)
        )
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
        let input = |filter: &FlowFilter, options: &IncomingOptions| Input::Incoming {
            filter: filter.clone(),
            options: options.clone(),
        };
        noted!(self.tape, None, input(&filter, &options), self.stack.incoming(filter, options))
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
        noted!(self.tape, Some(now), input(), self.stack.accept_flow(now, flow, options))
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
        noted!(self.tape, Some(now), input(), self.stack.accept_datagram_flow(now, flow, options))
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
        let input = Input::OpenDatagram { kind, at, options: *options };
        noted!(self.tape, None, input, self.stack.open_datagram(kind, at, options))
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
        let input = Input::SendDatagram { id, to, meta: *meta, message: Payload(message) };
        noted!(self.tape, Some(now), input, self.stack.send_datagram(now, id, to, message, meta))
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
        tape.begin(None, &Input::RecvDatagram { id, max: AtMost(max), peek });
        let result = self.stack.recv_datagram(id, &mut into[..max], peek);
        tape.end(result.map(|read| Read(read, into.get(..read.len).unwrap_or_default())).number());
        result
    }

    /// [`Stack::set_sysctl`].
    ///
    /// # Errors
    /// Its.
    pub fn set_sysctl(&mut self, name: &str, value: &str) -> Result<(), SysctlError> {
        noted!(self.tape, None, Input::SetSysctl { name, value }, self.stack.set_sysctl(name, value))
    }

    /// [`Stack::set_steering`], with the arguments of [`Steering::new`].
    pub fn set_steering(&mut self, seed: &[u8; 32], index: u16, shards: u16) {
        let input = Input::SetSteering { seed: *seed, index, shards };
        noted!(self.tape, None, input, self.stack.set_steering(Steering::new(seed, index, shards)));
    }

    /// [`Stack::owner_elsewhere`].
    #[inline]
    pub fn owner_elsewhere(&mut self, packet: &[u8]) -> Option<usize> {
        let owner = self.stack.owner_elsewhere(packet);
        if let (Some(tape), Some(_)) = (&mut self.tape, owner) {
            tape.begin(None, &Input::OwnerElsewhere { packet: Payload(packet) });
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
    let packet = Arrived { bytes, lent, checksum, gso_size };
    tape.begin(Some(now), &Input::Packet { packet });
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

impl TapedConn<'_> {
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
        let data = Offered { bytes: data.len(), taken };
        tape.begin(Some(now), &Input::Write { conn: self.id, flags, data });
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
        let noted = Offered { bytes: offered, taken: &data[..taken] };
        tape.begin(Some(now), &Input::WriteBytes { conn: self.id, flags, data: noted });
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
        tape.begin(Some(now), &Input::Read { conn: self.id, max: AtMost(max) });
        let result = self.conn.read(now, &mut into[..max]);
        tape.end(result.map(|count| into.get(..count).unwrap_or_default()).number());
        result
    }

    /// [`ConnMut::close`].
    pub fn close(mut self, now: Instant) {
        noted!(self.tape, Some(now), Input::Close { conn: self.id }, self.conn.close(now));
    }

    /// [`ConnMut::abort`].
    pub fn abort(mut self, now: Instant) {
        noted!(self.tape, Some(now), Input::Abort { conn: self.id }, self.conn.abort(now));
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
