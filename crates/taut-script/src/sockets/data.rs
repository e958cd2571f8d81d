//! Data: read, write, peek, splice, and the completions of zero-copy writes. The bytes are zeros: packets
//! show where data lies in the stream, not what it is.

use bytes::Bytes;
use taut_core::{Completion, ReadError, State, WriteError, WriteFlags};

use super::{Called, File, Kind, Sockets, Stop, fails};
use crate::constants::constant;
use crate::errno::Errno;

/// Bytes that a pipe holds. Linux: 16 pages.
const PIPE_BYTES: u64 = 65_536;

/// The result of reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Read {
    /// Bytes read.
    pub len: usize,
    /// `TCP_CM_INQ`: bytes that are left, if the socket asked for that; one for the end of the stream.
    pub inq: Option<i64>,
}

/// A completion of zero-copy writes, as `MSG_ERRQUEUE` reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ZeroCopy {
    /// The first write, counted from 0. Linux: `ee_info`.
    pub first: u32,
    /// The last. Linux: `ee_data`.
    pub last: u32,
    /// Bytes were copied after all. Linux: `SO_EE_CODE_ZEROCOPY_COPIED`.
    pub copied: bool,
}

/// Whether `flags` has the flag of this name.
fn has(flags: i64, name: &str) -> bool {
    constant(name).is_some_and(|bit| flags & bit != 0)
}

fn supported(flags: i64, known: &[&str]) -> Called<()> {
    let rest = known.iter().filter_map(|name| constant(name)).fold(flags, |flags, bit| flags & !bit);
    if rest == 0 {
        Ok(())
    } else {
        let names = crate::constants::flag_names(rest, "MSG_");
        Err(Stop::Unsupported(format!("the stack's sockets have no {names}")))
    }
}

impl Sockets {
    /// `read`, `recv` and their relatives: at most `max` bytes.
    ///
    /// # Errors
    /// As `recv(2)`.
    pub(crate) fn read(&mut self, fd: i32, max: usize, flags: i64) -> Called<Read> {
        supported(flags, &["MSG_PEEK", "MSG_TRUNC", "MSG_DONTWAIT", "MSG_WAITALL", "MSG_NOSIGNAL"])?;
        if let Some(File::PipeOut { pipe, nonblocking }) = self.files.get(&fd) {
            let (pipe, nonblocking) = (*pipe, *nonblocking);
            let held = self.pipes.get_mut(pipe).filter(|held| **held > 0);
            let Some(held) = held else {
                return if nonblocking { fails("EAGAIN") } else { Err(Stop::Blocks) };
            };
            let len = (*held).min(max as u64);
            *held -= len;
            return Ok(Read { len: len as usize, inq: None });
        }
        let now = self.now();
        let socket = self.socket_ref(fd)?;
        let (inq, Kind::Conn(id)) = (socket.inq, socket.kind) else { return fails("ENOTCONN") };
        let Some(mut conn) = self.host.stack.conn_mut(id) else { return fails("ENOTCONN") };
        let waiting = conn.as_ref().info(now).rcv_queue_bytes;
        if has(flags, "MSG_WAITALL") && waiting < max as u64 && !has(flags, "MSG_DONTWAIT") {
            let may_come = conn.as_ref().state().may_receive();
            if may_come && conn.as_ref().error().is_none() {
                return self.would_block(fd);
            }
        }
        let mut buffer = vec![0; max.min(waiting.max(1) as usize)];
        let result = if has(flags, "MSG_PEEK") {
            conn.peek(&mut buffer)
        } else if max == 0 {
            Ok(0)
        } else {
            conn.read(now, &mut buffer)
        };
        match result {
            Ok(len) => {
                let info = conn.as_ref().info(now);
                let at_end = info.rcv_queue_bytes == 0 && !info.state.may_receive();
                let left = if at_end { 1 } else { info.rcv_queue_bytes as i64 };
                Ok(Read { len, inq: inq.then_some(left) })
            }
            Err(ReadError::WouldBlock | ReadError::NotConnected) if has(flags, "MSG_DONTWAIT") => {
                fails("EAGAIN")
            }
            Err(ReadError::WouldBlock | ReadError::NotConnected) => self.would_block(fd),
            Err(_) => match self.take_error(fd) {
                Some(error) => Err(Stop::Fails(error)),
                None => Ok(Read { len: 0, inq: None }),
            },
        }
    }

    /// `write`, `send` and their relatives: bytes written of `len`, of which `done` were written before it
    /// blocked.
    ///
    /// # Errors
    /// As `send(2)`. When it blocks, `done` says how far it came.
    pub(crate) fn write(&mut self, fd: i32, len: usize, flags: i64, done: &mut usize) -> Called<usize> {
        supported(flags, &["MSG_MORE", "MSG_EOR", "MSG_DONTWAIT", "MSG_NOSIGNAL", "MSG_ZEROCOPY"])?;
        if let Some(File::PipeIn { pipe, nonblocking }) = self.files.get(&fd) {
            let (pipe, nonblocking) = (*pipe, *nonblocking);
            let Some(held) = self.pipes.get_mut(pipe) else { return fails("EBADF") };
            let room = (PIPE_BYTES - *held).min(len as u64);
            if room == 0 && len > 0 {
                return if nonblocking { fails("EAGAIN") } else { Err(Stop::Blocks) };
            }
            *held += room;
            return Ok(room as usize);
        }
        let socket = self.socket_ref(fd)?;
        let Kind::Conn(id) = socket.kind else { return fails("EPIPE") };
        let lends = has(flags, "MSG_ZEROCOPY") && socket.zero_copy;
        let waits = !has(flags, "MSG_DONTWAIT") && !socket.nonblocking;
        let options = WriteFlags { more: has(flags, "MSG_MORE"), eor: has(flags, "MSG_EOR") };
        if *done == len && len > 0 {
            // All is in a SYN. If the handshake fails, the next call reports it.
            return if self.is_connecting(fd) { Err(Stop::Blocks) } else { Ok(len) };
        }
        let mut lent = Bytes::from(vec![0; if lends { len - *done } else { 0 }]);
        let zeros = vec![0; if lends { 0 } else { len - *done }];
        loop {
            let now = self.now();
            let Some(mut conn) = self.host.stack.conn_mut(id) else { return fails("EPIPE") };
            let left = len - *done;
            let result = if lends {
                let before = lent.len();
                conn.write_bytes_with(now, &mut lent, options).map(|_| before - lent.len())
            } else {
                conn.write_with(now, zeros.get(..left).unwrap_or_default(), options)
            };
            self.host.turn();
            match result {
                Ok(count) => *done += count,
                Err(WriteError::WouldBlock | WriteError::NotConnected) if waits => return Err(Stop::Blocks),
                Err(WriteError::WouldBlock | WriteError::NotConnected) if *done > 0 => return Ok(*done),
                Err(WriteError::WouldBlock | WriteError::NotConnected) => return fails("EAGAIN"),
                Err(_) if *done > 0 => return Ok(*done),
                Err(WriteError::Shutdown) => return fails("EPIPE"),
                Err(_) => return Err(Stop::Fails(self.take_error(fd).unwrap_or(Errno("EPIPE")))),
            }
            if *done == len {
                // Linux: a write into a SYN that may wait returns after the handshake.
                return if waits && self.is_connecting(fd) { Err(Stop::Blocks) } else { Ok(len) };
            }
        }
    }

    /// `pipe(2)`.
    pub(crate) fn pipe(&mut self, out: i32, into: i32) {
        self.pipes.push(0);
        let pipe = self.pipes.len() - 1;
        self.files.insert(out, File::PipeOut { pipe, nonblocking: false });
        self.files.insert(into, File::PipeIn { pipe, nonblocking: false });
    }

    /// `splice(2)` between a socket and a pipe.
    ///
    /// # Errors
    /// As `splice(2)`.
    pub(crate) fn splice(&mut self, from: i32, to: i32, len: usize, flags: i64) -> Called<usize> {
        let wait = if has(flags, "SPLICE_F_NONBLOCK") { constant("MSG_DONTWAIT").unwrap_or(0) } else { 0 };
        match (self.files.get(&from), self.files.get(&to)) {
            (None, _) | (_, None) => fails("EBADF"),
            (Some(File::Socket(_)), Some(File::PipeIn { pipe, .. })) => {
                let pipe = *pipe;
                let held = self.pipes.get(pipe).copied().unwrap_or(0);
                let read = self.read(from, len.min((PIPE_BYTES - held) as usize), wait)?;
                if let Some(held) = self.pipes.get_mut(pipe) {
                    *held += read.len as u64;
                }
                Ok(read.len)
            }
            (Some(File::PipeOut { pipe, .. }), Some(File::Socket(_))) => {
                let pipe = *pipe;
                let held = self.pipes.get(pipe).copied().unwrap_or(0).min(len as u64);
                if held == 0 {
                    return if wait != 0 { fails("EAGAIN") } else { Err(Stop::Blocks) };
                }
                let more = if has(flags, "SPLICE_F_MORE") { constant("MSG_MORE").unwrap_or(0) } else { 0 };
                let dont_wait = constant("MSG_DONTWAIT").unwrap_or(0);
                let written = self.write(to, held as usize, more | dont_wait, &mut 0)?;
                if let Some(held) = self.pipes.get_mut(pipe) {
                    *held -= written as u64;
                }
                Ok(written)
            }
            _ => fails("EINVAL"),
        }
    }

    /// `recv` with `MSG_ERRQUEUE`: the oldest range of completed zero-copy writes.
    ///
    /// # Errors
    /// `EAGAIN` if there is none; the error queue never blocks.
    pub(crate) fn completion(&mut self, fd: i32) -> Called<ZeroCopy> {
        self.collect_completions();
        let found = self.socket_mut(fd)?.completions.pop_front();
        let Some(found) = found else { return fails("EAGAIN") };
        Ok(ZeroCopy { first: found.lo, last: found.hi, copied: found.copied })
    }

    /// Takes the stack's completions, joins those that follow each other, as Linux does, and wakes who waits
    /// for them.
    pub(super) fn collect_completions(&mut self) {
        let now = self.now();
        let fds: Vec<i32> = self.files.keys().copied().collect();
        for fd in fds {
            let Ok(&Kind::Conn(id)) = self.socket_ref(fd).map(|socket| &socket.kind) else { continue };
            if !self.socket_ref(fd).is_ok_and(|socket| socket.zero_copy) {
                continue;
            }
            let mut any = false;
            while let Some(mut conn) = self.host.stack.conn_mut(id) {
                let std::task::Poll::Ready(Some(done)) = conn.poll_free(now) else { break };
                any = true;
                if let Ok(socket) = self.socket_mut(fd) {
                    match socket.completions.back_mut() {
                        Some(last) if follows(last, &done) => last.hi = done.hi,
                        _ => socket.completions.push_back(done),
                    }
                }
            }
            if any {
                self.wake(fd);
            }
        }
    }

    /// Bytes that can be read: `SIOCINQ`.
    pub(super) fn unread(&self, fd: i32) -> Called<i64> {
        let Kind::Conn(id) = self.socket_ref(fd)?.kind else { return fails("EINVAL") };
        let Some(conn) = self.host.stack.conn(id) else { return Ok(0) };
        let info = conn.info(self.now());
        let at_end = info.rcv_queue_bytes == 0
            && matches!(info.state, State::CloseWait | State::LastAck | State::Closing | State::TimeWait);
        Ok(if at_end { 0 } else { info.rcv_queue_bytes as i64 })
    }
}

fn follows(last: &Completion, next: &Completion) -> bool {
    next.lo == last.hi.wrapping_add(1) && next.copied == last.copied
}
