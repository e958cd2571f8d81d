//! A blocking reader that hands out received memory in place. Made by [`TcpStream::buffered`].

use std::io::{self, BufRead, Read, Write};

use bytes::{Buf, Bytes};

use crate::blocking::TcpStream;

/// A [`blocking::TcpStream`](crate::blocking::TcpStream) that can be read in place: its buffer is the memory
/// in which packets arrived, so [`BufRead`] copies nothing. It holds one chunk at a time.
///
/// Made by [`blocking::TcpStream::buffered`](crate::blocking::TcpStream::buffered). What [`BufRead`] has
/// buffered can be read only here, no longer from another handle of the stream.
#[derive(Debug)]
pub struct Reader {
    stream: TcpStream,
    chunk: Bytes,
}

impl Reader {
    pub(crate) const fn new(stream: TcpStream) -> Self {
        Self { stream, chunk: Bytes::new() }
    }

    /// The stream.
    #[must_use]
    pub const fn get_ref(&self) -> &TcpStream {
        &self.stream
    }

    /// The stream, and what was buffered and not read.
    #[must_use]
    pub fn into_parts(self) -> (TcpStream, Bytes) {
        (self.stream, self.chunk)
    }

    /// The next bytes, in memory that may be kept; empty at the end of the stream. See
    /// [`read_chunk`](crate::blocking::TcpStream::read_chunk).
    ///
    /// # Errors
    /// Those of reading.
    pub fn read_chunk(&mut self, max: usize) -> io::Result<Bytes> {
        if self.chunk.is_empty() {
            return self.stream.read_chunk(max);
        }
        Ok(self.chunk.split_to(max.min(self.chunk.len())))
    }
}

impl Read for Reader {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.chunk.is_empty() {
            return self.stream.read(into);
        }
        let count = self.chunk.len().min(into.len());
        self.chunk.copy_to_slice(&mut into[..count]);
        Ok(count)
    }
}

impl BufRead for Reader {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.chunk.is_empty() {
            self.chunk = self.stream.read_chunk(usize::MAX)?;
        }
        Ok(&self.chunk)
    }

    fn consume(&mut self, count: usize) {
        self.chunk.advance(count.min(self.chunk.len()));
    }
}

impl Write for Reader {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        self.stream.write(data)
    }

    fn write_vectored(&mut self, data: &[io::IoSlice<'_>]) -> io::Result<usize> {
        self.stream.write_vectored(data)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}
