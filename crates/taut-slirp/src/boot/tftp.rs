//! A server of TFTP that reads (RFC 1350), with the options of block size and file size (RFC 2348, RFC
//! 2349). It serves regular files in one folder, which it opens once: the kernel resolves names beneath it,
//! so `..` and links stay inside (openat2(2), `RESOLVE_BENEATH`).
//!
//! | constant | value | from |
//! |---|---|---|
//! | transfers at once | 20; a further one ends the oldest | libslirp: `TFTP_SESSIONS_MAX` |
//! | the longest block | 1,428 bytes | libslirp: `TFTP_BLOCKSIZE_MAX`; fits an MTU of 1,500 |
//! | retransmission of a block | after 1 s, 5 times | taut |
//!
//! A repeated ACK sends nothing (RFC 1123 §4.2.3.1).

use std::collections::VecDeque;
use std::fs::File;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::time::Duration;

use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};
use taut_core::{DatagramId, FlowInfo, SendMeta};

use crate::core::Core;

const PORT: u16 = 69;
const TRANSFERS: usize = 20;
const BLOCK: usize = 512;
const BLOCK_MAX: usize = 1_428;
const BLOCK_MIN: usize = 8;
const AGAIN_AFTER: Duration = Duration::from_secs(1);
const TIMES: u8 = 5;
/// §5.
const READ: u16 = 1;
const WRITE: u16 = 2;
const DATA: u16 = 3;
const ACK: u16 = 4;
const ERROR: u16 = 5;
/// RFC 2347.
const OPTIONS: u16 = 6;

/// The file of a transfer, and how far it is.
struct Transfer {
    id: DatagramId,
    file: Option<File>,
    block_len: usize,
    /// The block that was sent last; 0 for the answer to options.
    block: u64,
    /// The latest message, and the time of its retransmission.
    last: Vec<u8>,
    again_at: Duration,
    times: u8,
    is_last: bool,
}

/// The server.
pub(crate) struct Tftp {
    folder: Option<OwnedFd>,
    /// The oldest first.
    transfers: VecDeque<Transfer>,
}

/// A client's request.
#[derive(Debug, PartialEq, Eq)]
struct Request<'a> {
    name: &'a str,
    block_len: Option<usize>,
    wants_size: bool,
}

impl Tftp {
    /// A server of this folder. One that cannot be opened has no files.
    pub(crate) fn new(path: Option<PathBuf>) -> Self {
        let open = |path| {
            rustix::fs::open(path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).ok()
        };
        Self { folder: path.and_then(open), transfers: VecDeque::new() }
    }

    /// Whether a flow goes to it.
    pub(crate) fn is_at(&self, core: &Core, to: SocketAddr) -> bool {
        let own = [core.config.v4.map(|v4| v4.host.into()), core.config.v6.map(|v6| v6.host.into())];
        self.folder.is_some() && to.port() == PORT && own.contains(&Some(to.ip()))
    }

    /// A client.
    pub(crate) fn admit(&mut self, core: &mut Core, info: &FlowInfo) {
        if self.transfers.len() >= TRANSFERS
            && let Some(oldest) = self.transfers.pop_front()
        {
            core.stack.close_datagram(oldest.id);
        }
        let Ok(id) = core.stack.accept_datagram_flow(core.now, info.id, None) else { return };
        let again_at = core.time() + AGAIN_AFTER;
        self.transfers.push_back(Transfer {
            id,
            file: None,
            block_len: BLOCK,
            block: 0,
            last: Vec::new(),
            again_at,
            times: 0,
            is_last: false,
        });
        self.up(core, id);
    }

    /// From a client. Returns whether it is one of these.
    pub(crate) fn up(&mut self, core: &mut Core, id: DatagramId) -> bool {
        let Some(at) = self.transfers.iter().position(|one| one.id == id) else { return false };
        let mut is_over = false;
        while !is_over && let Ok(received) = core.stack.recv_datagram(id, &mut core.scratch, false) {
            let message = core.scratch[..received.len.min(1_024)].to_vec();
            is_over = self.on_message(core, at, &message);
        }
        if is_over {
            self.end(core, at);
        }
        true
    }

    /// Returns whether the transfer is over.
    fn on_message(&mut self, core: &mut Core, at: usize, message: &[u8]) -> bool {
        let Some((kind, rest)) = message.split_first_chunk::<2>() else { return false };
        let one = &mut self.transfers[at];
        match u16::from_be_bytes(*kind) {
            READ => match request(rest).ok_or((4, "not a request in octets")).and_then(|request| {
                let file = open(self.folder.as_ref(), request.name)?;
                Ok((request, file))
            }) {
                Ok((request, file)) => one.begin(core, &request, file),
                Err((code, text)) => one.refuse(core, code, text),
            },
            WRITE => one.refuse(core, 2, "read only"),
            ACK => {
                let number = rest.first_chunk().map(|number| u16::from_be_bytes(*number));
                one.file.is_none() || number == Some(one.block as u16) && one.next(core)
            }
            ERROR => true,
            _ => one.refuse(core, 4, "no such operation"),
        }
    }

    fn end(&mut self, core: &mut Core, at: usize) {
        if let Some(gone) = self.transfers.remove(at) {
            core.stack.close_datagram(gone.id);
        }
    }

    /// Sends again what was not acknowledged.
    pub(crate) fn handle_timeout(&mut self, core: &mut Core) {
        let time = core.time();
        let mut at = 0;
        while let Some(one) = self.transfers.get_mut(at) {
            if one.again_at > time {
                at += 1;
            } else if one.times >= TIMES || one.last.is_empty() {
                self.end(core, at);
            } else {
                one.times += 1;
                one.again_at = time + AGAIN_AFTER;
                _ = core.stack.send_datagram(core.now, one.id, None, &one.last, &SendMeta::default());
                at += 1;
            }
        }
    }

    pub(crate) fn deadline(&self) -> Option<Duration> {
        self.transfers.iter().map(|one| one.again_at).min()
    }

    pub(crate) fn end_all(&mut self, core: &mut Core) {
        while !self.transfers.is_empty() {
            self.end(core, 0);
        }
    }
}

impl Transfer {
    fn begin(&mut self, core: &mut Core, request: &Request<'_>, file: File) -> bool {
        let size = file.metadata().map_or(0, |file| file.len());
        (self.file, self.block, self.is_last) = (Some(file), 0, false);
        self.block_len = request.block_len.map_or(BLOCK, |len| len.clamp(BLOCK_MIN, BLOCK_MAX));
        if request.block_len.is_none() && !request.wants_size {
            return self.next(core);
        }
        let mut answer = OPTIONS.to_be_bytes().to_vec();
        if request.block_len.is_some() {
            answer.extend(format!("blksize\0{}\0", self.block_len).bytes());
        }
        if request.wants_size {
            answer.extend(format!("tsize\0{size}\0").bytes());
        }
        self.say(core, answer);
        false
    }

    /// Sends the next block. Returns whether the last one was acknowledged, or cannot be read.
    fn next(&mut self, core: &mut Core) -> bool {
        let Some(file) = self.file.as_ref().filter(|_| !self.is_last) else { return true };
        let mut block = vec![0; 4 + self.block_len];
        let mut len = 0;
        while len < self.block_len {
            match file.read_at(&mut block[4 + len..], self.block * self.block_len as u64 + len as u64) {
                Ok(0) => break,
                Ok(count) => len += count,
                Err(_) => return self.refuse(core, 0, "the file cannot be read"),
            }
        }
        self.block += 1;
        self.is_last = len < self.block_len;
        block[..2].copy_from_slice(&DATA.to_be_bytes());
        // A long file's numbers begin again.
        block[2..4].copy_from_slice(&(self.block as u16).to_be_bytes());
        block.truncate(4 + len);
        self.say(core, block);
        false
    }

    /// The transfer is over when the answer is out: with nothing to repeat, it ends at its next time.
    fn refuse(&mut self, core: &mut Core, code: u16, text: &str) -> bool {
        let mut answer = ERROR.to_be_bytes().to_vec();
        answer.extend(code.to_be_bytes());
        answer.extend(text.bytes().chain([0]));
        self.say(core, answer);
        self.last.clear();
        false
    }

    fn say(&mut self, core: &mut Core, message: Vec<u8>) {
        (self.again_at, self.times) = (core.time() + AGAIN_AFTER, 0);
        _ = core.stack.send_datagram(core.now, self.id, None, &message, &SendMeta::default());
        self.last = message;
    }
}

/// §5, and RFC 2347: texts with a zero behind each.
fn request(rest: &[u8]) -> Option<Request<'_>> {
    let whole = rest.strip_suffix(&[0])?;
    let mut texts = whole.split(|byte| *byte == 0).map(|text| std::str::from_utf8(text).ok());
    let (name, mode) = (texts.next()??, texts.next()??);
    if name.is_empty() || !mode.eq_ignore_ascii_case("octet") {
        return None;
    }
    let mut request = Request { name, block_len: None, wants_size: false };
    while let (Some(Some(option)), Some(Some(value))) = (texts.next(), texts.next()) {
        if option.eq_ignore_ascii_case("blksize") {
            request.block_len = value.parse().ok().filter(|len| *len >= BLOCK_MIN);
        } else if option.eq_ignore_ascii_case("tsize") {
            request.wants_size = true;
        }
    }
    Some(request)
}

/// A regular file beneath the folder; or an error's number (§5) and text.
fn open(folder: Option<&OwnedFd>, name: &str) -> Result<File, (u16, &'static str)> {
    let name = name.trim_start_matches('/');
    let folder = folder.ok_or((1, "no such file"))?;
    // One that is no file must not hold up the caller.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    let file = openat2(folder, name, flags, Mode::empty(), resolve).map_err(|error| match error {
        rustix::io::Errno::NOENT | rustix::io::Errno::NOTDIR => (1, "no such file"),
        _ => (2, "not allowed"),
    })?;
    let file = File::from(file);
    if file.metadata().is_ok_and(|file| file.is_file()) { Ok(file) } else { Err((2, "no file")) }
}
