//! TCP Fast Open in one connection: data in our SYN, or a connection that data in a SYN opened. RFC 7413
//! §4.2, with the behaviour of Linux 6.18; the pages under [`fast_open`](crate::fast_open) have the picture.
//!
//! Data in our SYN stays unsent in the write queue. When the SYN-ACK comes, the part that it acknowledges is
//! removed, and the rest leaves like any other data. So a peer that ignores the data, and a SYN that is
//! retransmitted without it, need no code of their own.
//!
//! A connection that a SYN opened is in SYN-RECEIVED, and may be read, written and closed there.

use alloc::boxed::Box;
use core::ops::Range;

use bytes::Bytes;
use taut_wire::FastOpen as FastOpenOption;

use super::state::State;
use super::{Conn, StackCx};
use crate::egress::WriteFlags;
use crate::egress::Written;
use crate::fast_open::{Attempt, FastOpenFail, Lesson};
use crate::ingress::Payload;
use crate::words::{ConnError, WriteError, seq};

/// The option space that is left free in a SYN with data, whatever its options take. Linux:
/// `MAX_TCP_OPTION_SPACE`.
const OPTION_SPACE: u16 = 40;
/// Consecutive timeouts after which a path is suspected to be a black hole.
const BLACK_HOLE_TIMEOUTS: u8 = 3;

/// The state of a connection that uses Fast Open.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FastOpen {
    role: Role,
    /// What our first SYN or SYN-ACK carries.
    option: Option<FastOpenOption>,
    /// Bytes of data that our SYN has room for.
    room: u16,
    /// Bytes of data that our SYN carries.
    len: u16,
    /// Data in the SYN was acknowledged, by either end.
    acked: bool,
    fail: FastOpenFail,
    /// This connection is the reason to suspect a black hole.
    black_hole: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Role {
    /// A handshake without data.
    #[default]
    Ordinary,
    /// A client whose SYN waits for the first write.
    Waits,
    /// A client whose SYN had the option, and maybe data.
    Client,
    /// Opened by a SYN.
    Child,
}

impl Conn {
    fn fast_open(&self) -> Option<&FastOpen> {
        self.extras.as_ref()?.fast_open.as_deref()
    }

    fn fast_open_mut(&mut self) -> Option<&mut FastOpen> {
        self.extras.as_mut()?.fast_open.as_deref_mut()
    }

    fn has_role(&self, role: Role) -> bool {
        self.fast_open().is_some_and(|fast_open| fast_open.role == role)
    }

    fn begin_fast_open(&mut self, fast_open: FastOpen) {
        self.extras_mut().fast_open = Some(Box::new(fast_open));
    }

    // ---- client ----

    /// How to begin, before the SYN leaves.
    pub(crate) fn attempt_fast_open(&mut self, attempt: Attempt) {
        match attempt {
            Attempt::Plain => {}
            Attempt::Ask(option) => self.begin_fast_open(FastOpen {
                role: Role::Client,
                option: Some(option),
                fail: FastOpenFail::CookieUnavailable,
                ..FastOpen::default()
            }),
            Attempt::Data { option, mss } => {
                // RFC 9293 §3.7.1: what any host takes.
                let mss = mss.unwrap_or(self.agreed.default_mss()).min(self.agreed.announced_mss());
                let room = mss.saturating_sub(OPTION_SPACE).max(1);
                self.begin_fast_open(FastOpen { role: Role::Waits, option, room, ..FastOpen::default() });
                self.flags.syn_due = false;
                self.news.writable = true;
            }
        }
    }

    /// The SYN waits for the first write.
    pub(crate) fn awaits_first_write(&self) -> bool {
        self.state == State::SynSent && self.has_role(Role::Waits)
    }

    /// The application may use the connection although the handshake is not complete.
    pub(super) fn is_open_early(&self) -> bool {
        match self.state {
            State::SynSent => self.awaits_first_write() || self.sends_early(),
            State::SynReceived => self.is_fast_child() || self.sends_early(),
            _ => false,
        }
    }

    /// A client that wrote before its SYN left.
    pub(super) fn sends_early(&self) -> bool {
        self.fast_open().is_some_and(|fast_open| fast_open.role == Role::Client && fast_open.room > 0)
    }

    /// The first write: as much of `data` as the SYN has room for leaves with it.
    pub(super) fn write_in_syn(&mut self, cx: &mut StackCx<'_>, data: &[u8]) -> Result<usize, WriteError> {
        let taken = self.release_syn(data.len());
        if taken == 0 {
            return Ok(0);
        }
        let data = data.get(..taken).unwrap_or_default();
        let send = self.send_cx(cx);
        let written = self.tx.write(&send, data, WriteFlags::default(), cx.pool, &mut cx.shared.totals);
        Ok(self.note_syn_data(written))
    }

    /// The same for bytes that the application lends.
    pub(super) fn lend_in_syn(
        &mut self,
        cx: &mut StackCx<'_>,
        data: &mut Bytes,
    ) -> Result<Option<u32>, WriteError> {
        let taken = self.release_syn(data.len());
        let mut head = data.split_to(taken);
        let send = self.send_cx(cx);
        let (written, number) =
            self.tx.write_bytes(&send, &mut head, WriteFlags::default(), cx.pool, &mut cx.shared.totals);
        let _ = self.note_syn_data(written);
        Ok(number)
    }

    /// The SYN leaves, with some of `len` bytes: returns how many.
    fn release_syn(&mut self, len: usize) -> usize {
        self.flags.syn_due = true;
        let Some(fast_open) = self.fast_open_mut() else { return 0 };
        fast_open.role = Role::Client;
        len.min(fast_open.room.into())
    }

    fn note_syn_data(&mut self, written: Written) -> usize {
        if let Some(fast_open) = self.fast_open_mut() {
            fast_open.len = written.bytes as u16;
        }
        written.bytes
    }

    /// The SYN leaves without data, because the application ends its stream.
    pub(super) fn stop_waiting(&mut self) {
        if self.awaits_first_write() {
            self.release_syn(0);
        }
    }

    /// The option and the data of the SYN or SYN-ACK that leaves now: only the first one has any.
    pub(super) fn syn_data(&self) -> Range<u64> {
        let first = self.handshake.first();
        let len = self.fast_open().filter(|_| self.is_first_syn()).map_or(0, |fast_open| fast_open.len);
        first..first + u64::from(len)
    }

    /// The option of the SYN or SYN-ACK that left last.
    pub(crate) fn syn_option(&self) -> Option<FastOpenOption> {
        self.fast_open().filter(|_| self.is_first_syn())?.option
    }

    fn is_first_syn(&self) -> bool {
        self.syns.sent <= 1 && self.syns.retries == 0
    }

    /// Whether the peer acknowledged our SYN, and with it any part of its data.
    pub(super) fn acks_syn(&self, ack: u32) -> bool {
        let beyond = ack.wrapping_sub(seq::wire(self.handshake.first()));
        beyond <= self.fast_open().map_or(0, |fast_open| u32::from(fast_open.len))
    }

    /// Our SYN was acknowledged; the terms are agreed on.
    pub(super) fn on_syn_data_answered(&mut self, cx: &mut StackCx<'_>, ack: u32) {
        let acked = ack.wrapping_sub(seq::wire(self.handshake.first()));
        let retried = self.syns.retries > 0;
        let Some(fast_open) = self.fast_open_mut().filter(|fast_open| fast_open.len > 0) else { return };
        let len = u32::from(fast_open.len);
        if acked == len {
            fast_open.acked = true;
            cx.counters.tcp_fast_open_active += 1;
        } else {
            fast_open.fail =
                if retried { FastOpenFail::SynRetransmitted } else { FastOpenFail::DataNotAcked };
            cx.counters.tcp_fast_open_active_fail += 1;
            cx.counters.retrans_segs += 1;
        }
        if acked > 0 {
            cx.counters.tcp_orig_data_sent += 1;
        }
        self.tx.on_syn_data(cx.now, self.agreed.sack(), (acked, len - acked), cx.pool, &mut cx.shared.totals);
    }

    /// The peer's SYN-ACK carries data (RFC 7413 §4.2.1): taken only by a client that used the option.
    pub(super) fn takes_data_of_syn_ack(&self) -> bool {
        self.has_role(Role::Client)
    }

    /// What the handshake taught about the server; `answer` is the option of its SYN-ACK.
    pub(crate) fn fast_open_lesson(
        &self,
        answer: Option<FastOpenOption>,
        mss: Option<u16>,
    ) -> Option<Lesson> {
        let fast_open = self.fast_open().filter(|fast_open| fast_open.role == Role::Client)?;
        let asked = fast_open.option.filter(|_| fast_open.len == 0 && self.is_first_syn());
        Some(Lesson { mss, answer, asked: asked.map(|option| option.experimental) })
    }

    // ---- server ----

    /// The SYN opened this connection: its data may be read, and `accept` hands it out.
    pub(crate) fn open_early(
        &mut self,
        cx: &mut StackCx<'_>,
        option: Option<FastOpenOption>,
        payload: Payload<'_>,
        gso_size: u16,
    ) {
        self.begin_fast_open(FastOpen { role: Role::Child, option, ..FastOpen::default() });
        self.flags.held = true;
        self.take_syn_data(cx, payload, false, gso_size);
    }

    /// The peer's SYN has data, or a FIN behind it.
    pub(super) fn take_syn_data(
        &mut self,
        cx: &mut StackCx<'_>,
        payload: Payload<'_>,
        fin: bool,
        gso_size: u16,
    ) {
        if payload.is_empty() && !fin {
            return;
        }
        self.on_data(cx, payload, self.rx.nxt(), fin, gso_size, None);
        let taken = self.rx.received().1 > 0;
        if let Some(fast_open) = self.fast_open_mut() {
            fast_open.acked |= taken;
        }
    }

    /// A SYN opened this connection, and the handshake is not complete.
    pub(crate) fn is_fast_child(&self) -> bool {
        self.has_role(Role::Child)
    }

    /// The application holds this connection since its SYN, and the handshake is not complete.
    pub(super) fn is_accepted(&self) -> bool {
        self.flags.half_open && !self.is_fast_child()
    }

    // ---- black holes ----

    /// The last of so many consecutive timeouts, or the one that ends the connection: the path may drop what
    /// follows a SYN with data. Linux: `tcp_fastopen_active_detect_blackhole`.
    pub(super) fn suspect_syn_data(&mut self, timeouts: u8, is_last: bool) {
        let suspects = timeouts == BLACK_HOLE_TIMEOUTS || (timeouts < BLACK_HOLE_TIMEOUTS && is_last);
        if suspects && let Some(fast_open) = self.fast_open_mut() {
            fast_open.black_hole |= fast_open.role == Role::Client;
        }
    }

    /// A RST that is not exactly in sequence, before any data: a device on the path may have missed the data
    /// in the SYN.
    pub(super) fn suspect_reset(&mut self) {
        if self.state == State::Established
            && self.rx.received().1 == 0
            && let Some(fast_open) = self.fast_open_mut()
        {
            fast_open.black_hole |= fast_open.role == Role::Client;
        }
    }

    /// A client's connection ends, and its peer's FIN has arrived without what precedes it: the path may drop
    /// what follows a SYN with data. Linux: `tcp_fastopen_active_disable_ofo_check`, when a socket is
    /// destroyed.
    pub(super) fn suspect_early_fin(&mut self) {
        if self.rx.has_early_fin()
            && let Some(fast_open) = self.fast_open_mut()
        {
            fast_open.black_hole |= fast_open.role == Role::Client;
        }
    }

    /// Whether there is a new reason to suspect a black hole.
    pub(crate) fn take_black_hole(&mut self) -> bool {
        self.fast_open_mut().is_some_and(|fast_open| core::mem::take(&mut fast_open.black_hole))
    }

    /// Whether a client that used the option has received data.
    pub(crate) fn fast_open_worked(&self) -> bool {
        self.has_role(Role::Client) && self.rx.received().1 > 0
    }

    // ---- observation ----

    /// `TCPI_OPT_SYN_DATA`, `TCPI_OPT_TFO_CHILD` and `tcpi_fastopen_client_fail`.
    pub(super) fn fast_open_info(&self) -> (bool, bool, FastOpenFail) {
        self.fast_open().map_or((false, false, FastOpenFail::None), |fast_open| {
            (fast_open.acked, fast_open.role == Role::Child, fast_open.fail)
        })
    }

    /// The handshake of a connection that a SYN opened ended with the peer's RST.
    pub(crate) fn was_reset(&self) -> bool {
        self.error == Some(ConnError::Reset)
    }
}
