//! Bytes of one connection, both ways, and its end as it came.
//!
//! ```text
//!   up    guest ── readable? ── upstream writable? ── read_chunks ──▶ writev        the stack's memory, without a copy
//!   down  upstream ── readable? ── guest writable? ── read ──▶ write_bytes          one copy, by the host's kernel
//! ```
//!
//! The guest's end is a stream of a stack. Where a proxy goes out by a link, the upstream's is
//! ([`relay_by_stack`]): then the two sides change their names here.
//!
//! **Nothing is held that need not be.** Each way waits until one side has bytes and the other has room, and
//! takes bytes only then: at most [`AT_ONCE`], and no more than the gateway grants. So a connection whose
//! reader is slow holds one such piece at most, an idle one holds nothing, and the rest waits with its
//! sender. A connection is idle for most of its life, so what moving a piece needs of its task's memory is
//! allocated for each piece.
//!
//! **Short pieces**, such as requests, ask little of the stack's lock and of the gateway's. What a connection
//! may hold in any case is taken without asking ([`Share`]); a write says whether there is room for the next
//! piece; and a read that took everything waits for more by itself.
//!
//! **Long pieces** for the guest are as many whole segments as a block has room for. The end of a piece is
//! sent at once, as nobody knows whether more comes; of 131,072 bytes in segments of 65,468 it would be a
//! packet of 136. Before a slow line, more usually follows once there is room, and a congestion window counts
//! segments: there, the end of a piece waits for the next piece, and leaves at once if there is none.
//!
//! `taut::relay` has another duty: it joins a flow to anything that is `AsyncRead` and `AsyncWrite`, and so
//! copies by two buffers of 8 KiB, which an idle connection holds. Here one holds nothing, and the logic
//! counts bytes.
//!
//! **A rule's rate** (`allow any rate 20mbit`) makes both ways take turns with the other flows of the rule
//! (`logic/rules/rate.rs`). A way takes no more than its turn has, so the rest waits with its sender.
//!
//! **The end.** Each way ends by itself: a FIN is passed on, and the other way goes on. A reset of one side
//! ends both, also while the other side makes it wait: a socket of the host announces it, and the guest's end
//! is looked at each second.
#![allow(
    clippy::manual_async_fn,
    reason = "an async fn keeps its arguments twice, which each idle connection would pay"
)]

use std::future::{Future, poll_fn};
use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf as _, Bytes};
use taut::observe::State;
use taut::taut_control::rooms::{FlowRooms, Way};
use taut::{TcpStream, WriteFlags};

use crate::logic::flow::{End, NextStep, Side};
use crate::logic::limits::LEAST_GRANT;
use crate::out::blocks::BLOCK;
use crate::out::way_out::{LOOK_EVERY, Upstream};
use crate::run::apart::Apart;
use crate::run::rooms::{Bound, Rooms, Unbound};
use crate::run::server::{Handle, Turn};

/// Bytes that are taken at once.
const AT_ONCE: usize = BLOCK;
/// Pieces of one write.
const PIECES: usize = 64;

/// Passes bytes until the connection is over, and returns how to end it: [`NextStep::Close`], or a reset of
/// one side or both.
pub(crate) fn relay<'a>(
    guest: &'a TcpStream,
    upstream: &'a impl Upstream,
    flow: &'a Handle,
) -> impl Future<Output = NextStep> {
    pass::<false, Rooms, Unbound>(Ends { guest, upstream, flow: Seen { flow }, waiting: Default::default() })
}

/// The same with a stack's stream as the upstream.
pub(crate) async fn relay_by_stack(guest: &impl Upstream, upstream: &TcpStream, flow: &Handle) -> NextStep {
    let flow = Seen { flow };
    let ends = Ends { guest: upstream, upstream: guest, flow, waiting: Default::default() };
    Seen::<true>::then(pass::<true, Unbound, Rooms>(ends).await)
}

/// A connection: the stack's stream, the other side's, and the flow that they are.
struct Ends<'a, U, const IS_TURNED: bool> {
    guest: &'a TcpStream,
    upstream: &'a U,
    flow: Seen<'a, IS_TURNED>,
    /// Bytes from the stack's stream, and to it, that the other side had no room for.
    waiting: [AtomicU32; 2],
}

/// A flow, of which the stack's stream is the guest's side, or if it is turned, the upstream's.
#[derive(Clone, Copy)]
struct Seen<'a, const IS_TURNED: bool> {
    flow: &'a Handle,
}

impl<'a, const IS_TURNED: bool> Seen<'a, IS_TURNED> {
    const fn side(side: Side) -> Side {
        if IS_TURNED { side.other() } else { side }
    }

    const fn then(then: NextStep) -> NextStep {
        match then {
            NextStep::Finish(side) => NextStep::Finish(Self::side(side)),
            NextStep::Reset(side) => NextStep::Reset(Self::side(side)),
            then => then,
        }
    }

    fn ended(&self, side: Side, how: End) -> NextStep {
        Self::then(self.flow.ended(Self::side(side), how))
    }

    fn hold(&self, wanted: usize) -> usize {
        self.flow.hold(wanted)
    }

    /// Nothing was there to take.
    fn give_back(&self, held: usize) {
        if held > 0 {
            self.flow.give_back(held);
        }
    }

    fn passed(&self, from: Side, bytes: usize, held: usize) {
        self.flow.passed(Self::side(from), bytes, held);
    }

    /// Waits until bytes that wait at this side may move.
    fn turn(&self, from: Side, near: &impl Upstream) -> impl Future<Output = Turn<'a>> {
        let unread = near.queues().map_or(AT_ONCE, |queues| queues.unread as usize);
        self.flow.turn(Self::side(from), unread.clamp(1, AT_ONCE))
    }
}

impl<U: Upstream, const IS_TURNED: bool> Ends<'_, U, IS_TURNED> {
    /// Its time is over, and no segment has come to the stack's stream either.
    fn poll_stopped(&self, cx: &mut Context<'_>) -> Poll<()> {
        let silence = || self.guest.info().map_or(Duration::MAX, |info| info.last_ack_recv.into());
        self.flow.flow.poll_due(cx, silence, || self.rooms())
    }

    fn rooms(&self) -> Option<FlowRooms> {
        let info = self.guest.info().ok()?;
        let (stack, other) = (Upstream::queues(self.guest)?, self.upstream.queues()?);
        let [from, to] = [&self.waiting[0], &self.waiting[1]].map(|bytes| bytes.load(Relaxed).into());
        let (from, to) = (Way::new(&stack, from, &other), Way::new(&other, to, &stack));
        let (up, down) = if IS_TURNED { (to, from) } else { (from, to) };
        Some(FlowRooms { local: info.local, peer: info.peer, up, down })
    }
}

fn pass<const IS_TURNED: bool, Up: Bound, Down: Bound>(
    ends: Ends<'_, impl Upstream, IS_TURNED>,
) -> impl Future<Output = NextStep> {
    async move {
        let (up, down) = (pin!(up(&ends, Up::default())), pin!(down(&ends, Down::default())));
        let mut ways = Ways { up: Apart::new(up), down, up_goes: true, down_goes: true };
        loop {
            let ended = poll_fn(|cx| match ways.poll(cx) {
                Poll::Pending => ends.poll_stopped(cx).map(|()| None),
                ended => ended.map(Some),
            });
            let Some((side, end)) = ended.await else { return NextStep::ResetBoth };
            let then = match end {
                Ok(()) => ends.flow.ended(side, End::Fin),
                Err(Broken(side)) => ends.flow.ended(side, End::Reset),
            };
            let finished = match then {
                NextStep::Finish(Side::Upstream) => {
                    ends.upstream.finish().map_err(|_| Broken(Side::Upstream))
                }
                NextStep::Finish(Side::Guest) => {
                    ends.guest.shutdown_with(std::net::Shutdown::Write).map_err(|_| Broken(Side::Guest))
                }
                // Its time is over at this moment.
                NextStep::Wait => return NextStep::ResetBoth,
                then => return last_fin(then, side, &ends),
            };
            if let Err(Broken(side)) = finished {
                return ends.flow.ended(side, End::Reset);
            }
        }
    }
}

/// Both ways of a connection, each until its end.
struct Ways<'a, U, D> {
    up: Apart<'a, U>,
    down: Pin<&'a mut D>,
    up_goes: bool,
    down_goes: bool,
}

impl<U, D> Ways<'_, U, D>
where
    U: Future<Output = Result<(), Broken>>,
    D: Future<Output = Result<(), Broken>>,
{
    /// Which way has ended, and how.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<(Side, Result<(), Broken>)> {
        if self.up_goes
            && let Poll::Ready(end) = Pin::new(&mut self.up).poll(cx)
        {
            self.up_goes = false;
            return Poll::Ready((Side::Guest, end));
        }
        if self.down_goes
            && let Poll::Ready(end) = self.down.as_mut().poll(cx)
        {
            self.down_goes = false;
            return Poll::Ready((Side::Upstream, end));
        }
        Poll::Pending
    }
}

/// The second FIN is passed on, too; dropping the streams does the rest.
fn last_fin<const IS_TURNED: bool>(
    then: NextStep,
    ended: Side,
    ends: &Ends<'_, impl Upstream, IS_TURNED>,
) -> NextStep {
    if then == NextStep::Close {
        // A side that is gone by now does not miss it.
        _ = match ended {
            Side::Guest => ends.upstream.finish(),
            Side::Upstream => ends.guest.shutdown_with(std::net::Shutdown::Write),
        };
    }
    then
}

/// This side was reset.
struct Broken(Side);

/// Short pieces in a row after which the next one is expected to be short.
const FEW: u8 = 8;

/// How much one way of a connection takes at once: what it may have in any case, while its pieces are shorter
/// than that; else what the gateway grants.
#[derive(Default)]
struct Share {
    /// So many short pieces more, and the next one is expected to be short.
    long_for: u8,
    /// The guest has room, as the last write has said: nobody else writes.
    has_room: bool,
    /// A rule bounds the rate of the flow.
    is_paced: bool,
    /// The guest's end keeps the short end of a piece.
    is_corked: bool,
}

impl Share {
    fn of<const IS_TURNED: bool>(flow: &Seen<'_, IS_TURNED>) -> Self {
        Self { is_paced: flow.flow.is_paced(), ..Self::default() }
    }

    const fn is_long(&self) -> bool {
        self.long_for > 0
    }

    /// The most that may be taken, and how much of it is held. `long` says how much a long piece may have.
    fn ask<const IS_TURNED: bool>(
        &self,
        flow: &Seen<'_, IS_TURNED>,
        rooms: &impl Bound,
        long: impl FnOnce() -> usize,
    ) -> (usize, usize) {
        if !self.is_long() {
            return (rooms.piece(LEAST_GRANT), 0);
        }
        let held = flow.hold(rooms.piece(long()));
        (held, held)
    }

    /// The other side has them.
    fn passed<const IS_TURNED: bool>(
        &mut self,
        flow: &Seen<'_, IS_TURNED>,
        from: Side,
        bytes: usize,
        held: usize,
    ) {
        self.long_for = if bytes >= LEAST_GRANT { FEW } else { self.long_for.saturating_sub(1) };
        flow.passed(from, bytes, held);
    }
}

fn up<const IS_TURNED: bool>(
    ends: &Ends<'_, impl Upstream, IS_TURNED>,
    mut rooms: impl Bound,
) -> impl Future<Output = Result<(), Broken>> {
    async move {
        let mut share = Share::of(&ends.flow);
        loop {
            if rooms.is_narrow() {
                ends.upstream.look_for_room();
            }
            // The upstream has had room since the last piece, unless its reader is slow.
            if !has_room(ends.upstream).await.map_err(|_| Broken(Side::Upstream))? {
                // It waits for the guest first: the wait for the upstream has a timer, which an idle
                // connection need not have.
                Box::pin(ends.guest.readable()).await.map_err(|_| Broken(Side::Guest))?;
                Box::pin(upstream_writable(ends)).await?;
                rooms.waited(ends.upstream, ends.guest);
            }
            if share.is_paced {
                if Box::pin(carry_up(ends, &mut share, &mut rooms)).await? {
                    return Ok(());
                }
                continue;
            }
            // The list is made at each poll: an idle connection's task is as large as this wait.
            let taken = poll_fn(|cx| {
                let (mut chunks, (max, held)) = (Vec::new(), share.ask(&ends.flow, &rooms, || AT_ONCE));
                let taken = if share.is_long() {
                    ends.guest.poll_read_chunks(cx, &mut chunks, max).map_ok(|count| (count, false))
                } else {
                    ends.guest.poll_read_chunks_and_wait(cx, &mut chunks, max)
                };
                if taken.is_pending() {
                    // Nothing is held while there is nothing.
                    ends.flow.give_back(held);
                }
                taken.map_ok(|(count, waits)| (chunks, count, held, waits))
            });
            let (chunks, count, held, waits) = taken.await.map_err(|_| Broken(Side::Guest))?;
            let at_once = Box::pin(write_at_once(chunks, ends, &mut rooms)).await?;
            share.passed(&ends.flow, Side::Guest, count, held);
            if count == 0 {
                return Ok(());
            }
            // If the upstream had no room, the task may have been woken for the guest already: it must look
            // again.
            if waits && at_once {
                until_woken().await;
            }
        }
    }
}

/// Takes what the guest has, up to its turn, and says whether that was its end.
async fn carry_up<const IS_TURNED: bool>(
    ends: &Ends<'_, impl Upstream, IS_TURNED>,
    share: &mut Share,
    rooms: &mut impl Bound,
) -> Result<bool, Broken> {
    let guest = ends.guest;
    guest.readable().await.map_err(|_| Broken(Side::Guest))?;
    let mut turn = unless_gone(ends, ends.flow.turn(Side::Guest, guest)).await?;
    let (max, held) = share.ask(&ends.flow, rooms, || turn.left());
    let (mut chunks, max) = (Vec::new(), max.min(turn.left()));
    // A turn is for now: it does not wait.
    let taken = poll_fn(|cx| Poll::Ready(guest.poll_read_chunks(cx, &mut chunks, max)));
    let Poll::Ready(taken) = taken.await else {
        ends.flow.give_back(held);
        return Ok(false);
    };
    let count = taken.map_err(|_| Broken(Side::Guest))?;
    turn.moved(count);
    drop(turn);
    write_at_once(chunks, ends, rooms).await?;
    share.passed(&ends.flow, Side::Guest, count, held);
    Ok(count == 0)
}

/// Until this is polled once more: something has woken the task, or its other part.
async fn until_woken() {
    let mut is_first = true;
    poll_fn(|_| if std::mem::take(&mut is_first) { Poll::Pending } else { Poll::Ready(()) }).await;
}

/// Whether there is room now. The wait for it is made at each poll, too: it is over before it begins.
fn has_room(upstream: &impl Upstream) -> impl Future<Output = io::Result<bool>> {
    poll_fn(|cx| match pin!(upstream.writable()).poll(cx) {
        Poll::Ready(ready) => Poll::Ready(ready.map(|()| true)),
        Poll::Pending => Poll::Ready(Ok(false)),
    })
}

/// Writes all chunks, and says whether there was room for them at once.
async fn write_at_once<const IS_TURNED: bool>(
    chunks: Vec<Bytes>,
    ends: &Ends<'_, impl Upstream, IS_TURNED>,
    rooms: &mut impl Bound,
) -> Result<bool, Broken> {
    let mut write = pin!(write_all(chunks, ends));
    let mut at_once = true;
    poll_fn(|cx| {
        let done = write.as_mut().poll(cx);
        at_once &= done.is_ready();
        done
    })
    .await?;
    if !at_once {
        ends.waiting[0].store(0, Relaxed);
        rooms.waited(ends.upstream, ends.guest);
    }
    Ok(at_once)
}

/// Writes all chunks.
async fn write_all<const IS_TURNED: bool>(
    mut chunks: Vec<Bytes>,
    ends: &Ends<'_, impl Upstream, IS_TURNED>,
) -> Result<(), Broken> {
    let mut first = 0;
    while first < chunks.len() {
        match write_some(&chunks[first..], ends.upstream) {
            Ok(mut written) => {
                while first < chunks.len() && written >= chunks[first].len() {
                    written -= chunks[first].len();
                    first += 1;
                }
                if written > 0 {
                    chunks[first].advance(written);
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let left = chunks[first..].iter().map(Bytes::len).sum::<usize>();
                ends.waiting[0].store(left as u32, Relaxed);
                upstream_writable(ends).await?;
            }
            Err(_) => return Err(Broken(Side::Upstream)),
        }
    }
    Ok(())
}

fn write_some(chunks: &[Bytes], upstream: &impl Upstream) -> io::Result<usize> {
    let mut pieces = [IoSlice::new(&[]); PIECES];
    let count = chunks.len().min(PIECES);
    for (piece, chunk) in pieces.iter_mut().zip(chunks) {
        *piece = IoSlice::new(chunk);
    }
    upstream.try_write_vectored(&pieces[..count])
}

/// Waits for room in the upstream, as long as the guest is there.
async fn upstream_writable<const IS_TURNED: bool>(
    ends: &Ends<'_, impl Upstream, IS_TURNED>,
) -> Result<(), Broken> {
    unless_gone(ends, ends.upstream.writable()).await?.map_err(|_| Broken(Side::Upstream))
}

/// Waits for this while the guest is there.
async fn unless_gone<T, const IS_TURNED: bool>(
    ends: &Ends<'_, impl Upstream, IS_TURNED>,
    work: impl Future<Output = T>,
) -> Result<T, Broken> {
    let mut work = pin!(work);
    loop {
        tokio::select! {
            biased;
            done = &mut work => return Ok(done),
            () = tokio::time::sleep(LOOK_EVERY) => {
                if !ends.guest.info().is_ok_and(|info| info.state != State::Closed) {
                    return Err(Broken(Side::Guest));
                }
            }
        }
    }
}

fn down<const IS_TURNED: bool>(
    ends: &Ends<'_, impl Upstream, IS_TURNED>,
    mut rooms: impl Bound,
) -> impl Future<Output = Result<(), Broken>> {
    async move {
        let mut share = Share::of(&ends.flow);
        loop {
            if share.is_corked {
                Box::pin(uncork_unless_readable(ends, &mut share)).await?;
            }
            ends.upstream.readable().await.map_err(|_| Broken(Side::Upstream))?;
            if Box::pin(carry_down(ends, &mut share, &mut rooms)).await? {
                return Ok(());
            }
        }
    }
}

/// Lets the short end of the last piece leave, if no other follows at once.
async fn uncork_unless_readable<const IS_TURNED: bool>(
    ends: &Ends<'_, impl Upstream, IS_TURNED>,
    share: &mut Share,
) -> Result<(), Broken> {
    let is_readable = poll_fn(|cx| Poll::Ready(pin!(ends.upstream.readable()).poll(cx).is_ready())).await;
    if !is_readable {
        share.is_corked = false;
        ends.guest.set_cork(false).map_err(|_| Broken(Side::Guest))?;
    }
    Ok(())
}

/// The most whole segments that may be taken at once, in bytes. At first a segment is half of the guest's
/// window at most.
fn whole_segments(guest: &TcpStream) -> usize {
    let mss = guest.info().map_or(0, |info| info.snd_mss as usize);
    if mss == 0 || mss > AT_ONCE { AT_ONCE } else { AT_ONCE - AT_ONCE % mss }
}

/// Takes what the upstream has, up to the share, and says whether that was all, to its end. Its last bytes
/// wait for the FIN, which the caller passes on: a packet less for each connection.
async fn carry_down<const IS_TURNED: bool>(
    ends: &Ends<'_, impl Upstream, IS_TURNED>,
    share: &mut Share,
    rooms: &mut impl Bound,
) -> Result<bool, Broken> {
    let (guest, upstream) = (ends.guest, ends.upstream);
    if !share.has_room && !has_room(guest).await.map_err(|_| Broken(Side::Guest))? {
        if rooms.is_narrow() && !share.is_corked {
            share.is_corked = true;
            guest.set_cork(true).map_err(|_| Broken(Side::Guest))?;
        }
        unless_broken(upstream, guest.writable()).await?;
        rooms.waited(guest, upstream);
    }
    let turn = match share.is_paced {
        true => {
            let turn = async { Ok(ends.flow.turn(Side::Upstream, upstream).await) };
            Some(unless_broken(upstream, turn).await?)
        }
        false => None,
    };
    let due = turn.as_ref().map_or(AT_ONCE, Turn::left);
    let (max, held) = share.ask(&ends.flow, rooms, || whole_segments(guest).min(due));
    let max = max.min(due);
    let mut bytes = match upstream.try_take(max) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            ends.flow.give_back(held);
            return Ok(false);
        }
        taken => taken.map_err(|_| Broken(Side::Upstream))?,
    };
    let count = bytes.len();
    turn.into_iter().for_each(|mut turn| turn.moved(count));
    let mut is_last = Ok(count == 0);
    if count > 0 {
        rooms.taken(count, upstream);
        if count < max {
            is_last = poll_fn(|cx| Poll::Ready(upstream.is_at_end(cx))).await;
        }
        let flags = WriteFlags { more: matches!(is_last, Ok(true)), ..WriteFlags::default() };
        let write_all = poll_fn(|cx| {
            while !bytes.is_empty() {
                let written = guest.poll_write_bytes_and_look(cx, &mut bytes, flags);
                if written.is_pending() {
                    ends.waiting[1].store(bytes.len() as u32, Relaxed);
                }
                share.has_room = ready!(written)?;
            }
            Poll::Ready(Ok(()))
        });
        unless_broken(upstream, write_all).await?;
        ends.waiting[1].store(0, Relaxed);
    }
    share.passed(&ends.flow, Side::Upstream, count, held);
    // A reset comes behind the bytes before it.
    is_last.map_err(|_| Broken(Side::Upstream))
}

/// What the guest does, as long as the upstream is there.
async fn unless_broken<T>(
    upstream: &impl Upstream,
    work: impl Future<Output = io::Result<T>>,
) -> Result<T, Broken> {
    tokio::select! {
        biased;
        done = work => done.map_err(|_| Broken(Side::Guest)),
        () = upstream.broken() => Err(Broken(Side::Upstream)),
    }
}
