//! A file of what passes over a link, for Wireshark and tshark (pcapng): of both directions, as it passes.
//! Called by `tun.rs` and `frames.rs`.
//!
//! **Rule.** A frame is written when it has been received or sent, with one call and the time of that call:
//! so the file is whole whenever the process ends. An error ends the capture and not the link.

use std::fmt;
use std::fs::File;
use std::io::{self, Write as _};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::time::{ClockId, clock_gettime};
use taut_wire::pcapng;

/// Called when a capture ends by an error, by the thread that drives the device.
type Ended = Box<dyn FnOnce(&io::Error) + Send>;

/// A file of the frames of links, in both directions; of a link without Ethernet, its IP packets. A
/// super-packet is one packet. For [`FramesOptions::capture`](crate::FramesOptions::capture) and
/// [`TunOptions::capture`](crate::TunOptions::capture) of one link or several.
#[derive(Clone)]
pub struct CaptureFile(Arc<Mutex<Option<Writer>>>);

struct Writer {
    file: File,
    /// Bytes of whole packets in it.
    whole: u64,
    /// The interfaces in it, by their types.
    link_types: Vec<u16>,
    block: Vec<u8>,
    ended: Ended,
}

impl CaptureFile {
    /// Begins it in an empty file, or in a pipe, for whose reader the links then wait. `ended` gets the error
    /// if it cannot be continued.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn begin(mut file: File, ended: impl FnOnce(&io::Error) + Send + 'static) -> io::Result<Self> {
        let mut block = Vec::new();
        pcapng::begin(&mut block);
        file.write_all(&block)?;
        let whole = block.len() as u64;
        let writer = Writer { file, whole, link_types: Vec::new(), block, ended: Box::new(ended) };
        Ok(Self(Arc::new(Mutex::new(Some(writer)))))
    }

    /// A frame, in pieces, of a link of this type.
    pub(crate) fn record<'a>(&self, link_type: u16, frame: impl Iterator<Item = &'a [u8]> + Clone) {
        let mut own = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(writer) = &mut *own else { return };
        let Err(error) = writer.write(link_type, frame) else { return };
        // So that its readers find no half of a packet. A pipe cannot be cut.
        _ = writer.file.set_len(writer.whole);
        if let Some(writer) = own.take() {
            (writer.ended)(&error);
        }
    }
}

impl Writer {
    fn write<'a>(&mut self, link_type: u16, frame: impl Iterator<Item = &'a [u8]> + Clone) -> io::Result<()> {
        let Self { file, whole, link_types, block, .. } = self;
        block.clear();
        let known = link_types.iter().position(|own| *own == link_type);
        let interface = known.unwrap_or_else(|| {
            pcapng::interface(block, link_type, "guest");
            link_types.push(link_type);
            link_types.len() - 1
        });
        let now = clock_gettime(ClockId::Realtime);
        let ns = now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64;
        pcapng::packet(block, interface as u32, ns, frame, 0, None);
        file.write_all(block)?;
        *whole += block.len() as u64;
        Ok(())
    }
}

impl fmt::Debug for CaptureFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CaptureFile").finish_non_exhaustive()
    }
}

/// The same file.
impl PartialEq for CaptureFile {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for CaptureFile {}
