//! Reading and writing without a copy: what both kinds of socket share. The rules are in
//! `taut_core::ConnMut::write_bytes` and its neighbours.

use std::task::Poll;

use bytes::Bytes;
use taut_core::{Completion, ReadError, WriteError, WriteFlags};
use taut_driver::Access;

use crate::common::socket::Socket;
use crate::error;
use crate::wait::Attempt;

impl Socket {
    pub(crate) fn read_chunk(&self, access: &mut Access<'_>, max: usize) -> Attempt<Bytes> {
        let (mut conn, now) = self.conn(access)?;
        match conn.read_chunk(now, max) {
            Err(ReadError::WouldBlock) => Poll::Pending,
            other => Poll::Ready(other.map_err(error::read)),
        }
    }

    /// Adds chunks of at most `max` bytes together to `into`; returns the number of bytes.
    pub(crate) fn read_chunks(
        &self,
        access: &mut Access<'_>,
        into: &mut Vec<Bytes>,
        max: usize,
    ) -> Attempt<usize> {
        self.take_chunks(access, into, max).map_ok(|(total, _)| total)
    }

    /// The same. If nothing is left, the task waits for more, and this says so.
    #[cfg(feature = "tokio")]
    pub(crate) fn read_chunks_and_wait(
        &self,
        access: &mut Access<'_>,
        into: &mut Vec<Bytes>,
        max: usize,
    ) -> Attempt<(usize, bool)> {
        let taken = self.take_chunks(access, into, max);
        if let Poll::Ready(Ok((_, true))) = taken {
            access.wait_after();
        }
        taken
    }

    /// How many bytes, and whether nothing is left: neither bytes nor the end.
    fn take_chunks(
        &self,
        access: &mut Access<'_>,
        into: &mut Vec<Bytes>,
        max: usize,
    ) -> Attempt<(usize, bool)> {
        let (mut conn, now) = self.conn(access)?;
        let (mut total, mut is_all) = (0, false);
        while total < max {
            match conn.read_chunk(now, max - total) {
                Ok(chunk) if chunk.is_empty() => break,
                Ok(chunk) => {
                    total += chunk.len();
                    into.push(chunk);
                }
                Err(error) if total > 0 => {
                    is_all = matches!(error, ReadError::WouldBlock);
                    break;
                }
                Err(ReadError::WouldBlock) => return Poll::Pending,
                Err(error) => return Poll::Ready(Err(error::read(error))),
            }
        }
        Poll::Ready(Ok((total, is_all)))
    }

    /// Hands what can be read, at most `room` bytes, to `put` piece by piece, in place.
    #[cfg(feature = "hyper")]
    pub(crate) fn read_pieces(
        &self,
        access: &mut Access<'_>,
        room: usize,
        mut put: impl FnMut(&[u8]),
    ) -> Attempt<()> {
        let (mut conn, now) = self.conn(access)?;
        let mut left = room;
        while left > 0 {
            let count = match conn.chunk() {
                Ok(chunk) => {
                    let count = chunk.len().min(left);
                    put(&chunk[..count]);
                    count
                }
                Err(ReadError::WouldBlock) if left == room => return Poll::Pending,
                Err(error) if left == room => return Poll::Ready(Err(error::read(error))),
                Err(_) => break,
            };
            if count == 0 {
                break;
            }
            conn.consume(now, count);
            left -= count;
        }
        Poll::Ready(Ok(()))
    }

    pub(crate) fn write_bytes(&self, access: &mut Access<'_>, data: &mut Bytes) -> Attempt<Option<u32>> {
        self.write_bytes_with(access, data, WriteFlags::default())
    }

    fn write_bytes_with(
        &self,
        access: &mut Access<'_>,
        data: &mut Bytes,
        flags: WriteFlags,
    ) -> Attempt<Option<u32>> {
        let (mut conn, now) = self.conn(access)?;
        match conn.write_bytes_with(now, data, flags) {
            Err(WriteError::WouldBlock) => Poll::Pending,
            other => Poll::Ready(other.map_err(error::write)),
        }
    }

    /// [`write_bytes`](Self::write_bytes), and whether there is room for more: as
    /// [`writable`](Self::writable) says.
    #[cfg(feature = "tokio")]
    pub(crate) fn write_bytes_and_look(
        &self,
        access: &mut Access<'_>,
        data: &mut Bytes,
        flags: WriteFlags,
    ) -> Attempt<bool> {
        let written = self.write_bytes_with(access, data, flags);
        if !matches!(written, Poll::Ready(Ok(_))) {
            return written.map_ok(|_| false);
        }
        let (mut conn, now) = self.conn(access)?;
        Poll::Ready(Ok(conn.writable(now)))
    }

    pub(crate) fn next_completion(&self, access: &mut Access<'_>) -> Attempt<Option<Completion>> {
        let (mut conn, now) = self.conn(access)?;
        conn.poll_free(now).map(Ok)
    }
}
