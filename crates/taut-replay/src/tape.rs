//! Where the inputs of a stack are noted: a bounded buffer, and a thread that writes it to a file. Called by
//! `taped.rs`, under the lock of the stack.
//!
//! **Problem.** A disk may pause for seconds, and a stack must not wait for it, nor hold the run's whole
//! input in memory.
//!
//! **Rule.** Noting an input copies its bytes into a block. Full blocks wait for the writer, 64 MiB at most.
//! If they would be more, the recording ends: what comes later could not be replayed without what is missing.
//! The stack goes on, the file says that the disk was too slow, and [`RecordReport`] counts what was not
//! recorded.
//!
//! **Numbers.** A block is 256 KiB, some packets of the largest kind, and every 200 ms the writer takes what
//! there is, so that is what a killed process loses.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use taut_core::{Instant, LinkCaps, Stack, StackConfig, Witness};

use crate::answers::{Answers, Notes};
use crate::codec::{put_number, put_signed};
use crate::frame::{self, FrameKind};
use crate::header::Header;
use crate::input::Input;
use crate::taped::Taped;

const BLOCK_BYTES: usize = 256 << 10;
const FULL_BLOCKS_MAX: usize = 256;
/// Empty blocks that are kept.
const SPARE_BLOCKS_MAX: usize = 4;
const FLUSH_EVERY: Duration = Duration::from_millis(200);

/// Bits of the first byte of an input: its kind, and whether the time follows.
pub(crate) const KIND_BITS: u8 = 0x3f;
pub(crate) const TIME_BIT: u8 = 0x80;

/// Bits of the first byte of an outcome: how many bytes the number has, whether answers follow, and whether
/// there is no outcome, because the call did not return.
pub(crate) const NUMBER_BITS: u8 = 0x0f;
pub(crate) const HELD_BIT: u8 = 0x10;
pub(crate) const LOST_BIT: u8 = 0x20;

/// Why a recording ended, as its last frame says.
pub(crate) const ENDED: u8 = 0;
pub(crate) const TOO_SLOW: u8 = 1;

/// How a recording is going.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RecordReport {
    /// Its file.
    pub path: PathBuf,
    /// Inputs that were recorded.
    pub inputs: u64,
    /// Inputs that came after the recording had ended.
    pub missed: u64,
    /// Why it ended before the stack did; `None` if it did not.
    pub ended: Option<String>,
}

/// The part of a recording that outlives its stack.
#[derive(Clone, Debug)]
pub struct RecordHandle(Arc<Shared>);

impl RecordHandle {
    /// How the recording is going, or went.
    #[must_use]
    pub fn report(&self) -> RecordReport {
        let shared = &self.0;
        RecordReport {
            path: shared.path.clone(),
            inputs: shared.inputs.load(Relaxed),
            missed: shared.missed.load(Relaxed),
            ended: shared.lock().trouble.as_ref().map(Trouble::text),
        }
    }
}

/// What ended a recording early.
#[derive(Debug)]
enum Trouble {
    TooSlow,
    Write(io::Error),
}

impl Trouble {
    fn text(&self) -> String {
        match self {
            Self::TooSlow => "the disk was too slow".to_owned(),
            Self::Write(error) => format!("it could not be written: {error}"),
        }
    }
}

#[derive(Debug)]
struct Shared {
    path: PathBuf,
    inputs: AtomicU64,
    missed: AtomicU64,
    blocks: Mutex<Blocks>,
    /// There is something for the writer, or the stack has ended.
    news: Condvar,
}

#[derive(Debug, Default)]
struct Blocks {
    filling: Vec<u8>,
    full: VecDeque<Vec<u8>>,
    spare: Vec<Vec<u8>>,
    trouble: Option<Trouble>,
    is_over: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Blocks> {
        self.blocks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Blocks {
    /// Copies bytes into blocks. Returns whether one is full.
    fn add(&mut self, mut bytes: &[u8]) -> bool {
        let mut any_full = false;
        while !bytes.is_empty() && self.trouble.is_none() {
            let room = BLOCK_BYTES - self.filling.len();
            let (now, later) = bytes.split_at(bytes.len().min(room));
            self.filling.extend_from_slice(now);
            bytes = later;
            if self.filling.len() == BLOCK_BYTES {
                if self.full.len() == FULL_BLOCKS_MAX {
                    self.trouble = Some(Trouble::TooSlow);
                }
                let block = self.next();
                self.full.push_back(block);
                any_full = true;
            }
        }
        any_full
    }

    /// The block that is being filled; another takes its place.
    fn next(&mut self) -> Vec<u8> {
        let empty = self.spare.pop().unwrap_or_else(|| Vec::with_capacity(BLOCK_BYTES));
        std::mem::replace(&mut self.filling, empty)
    }

    fn keep(&mut self, mut block: Vec<u8>) {
        if self.spare.len() < SPARE_BLOCKS_MAX {
            block.clear();
            self.spare.push(block);
        }
    }
}

/// The inputs of one stack, on their way to a file.
#[derive(Debug)]
pub(crate) struct Tape {
    shared: Arc<Shared>,
    answers: Arc<Answers>,
    /// The small parts of the input that is being noted.
    head: Vec<u8>,
    /// The time of the last input that had one.
    last: Instant,
    /// An input was begun, and its call has not returned.
    is_open: bool,
    has_ended: bool,
    writer: Option<JoinHandle<()>>,
}

/// A new file for a recording.
#[derive(Debug)]
pub struct RecordFile {
    file: File,
    path: PathBuf,
}

impl RecordFile {
    /// Makes it at this path, or empties the one that is there.
    ///
    /// # Errors
    /// The file cannot be made.
    pub fn create(path: &Path) -> io::Result<Self> {
        let named = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
        Ok(Self { file: create(path).map_err(named)?, path: path.to_owned() })
    }
}

/// [`record_in`] a new file at this path.
///
/// # Errors
/// The file cannot be made, and those of [`record_in`].
pub fn record(
    path: &Path,
    config: Arc<StackConfig>,
    caps: LinkCaps,
    seed: [u8; 32],
    shard: (u16, u16),
) -> io::Result<(Taped, RecordHandle)> {
    record_in(RecordFile::create(path)?, config, caps, seed, shard)
}

/// Makes a stack whose inputs are recorded in a file, from the first one on. `shard` is the number of this
/// stack, and how many there are. The file can be read by its owner only: it contains payload and the stack's
/// secrets.
///
/// # Errors
/// The file cannot be written; the configuration has a value that a recording cannot express
/// ([`io::ErrorKind::InvalidInput`]); no thread can be started.
pub fn record_in(
    file: RecordFile,
    config: Arc<StackConfig>,
    caps: LinkCaps,
    seed: [u8; 32],
    shard: (u16, u16),
) -> io::Result<(Taped, RecordHandle)> {
    let header = Header::new(&config, caps, seed, shard);
    let header = header.map_err(|why| io::Error::new(io::ErrorKind::InvalidInput, why))?;
    let RecordFile { file, path } = file;
    let named = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
    let tape = Tape::new(&path, file, &header).map_err(named)?;
    let handle = RecordHandle(Arc::clone(&tape.shared));
    Ok((Taped::on(tape, Stack::new(config, caps, seed)), handle))
}

/// A new file that only its owner can read; one that is there is replaced.
fn create(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let file = options.open(path)?;
    #[cfg(unix)]
    // One that was there keeps its mode. Of a device or a pipe, it is nobody's to change.
    if file.metadata()?.is_file() {
        file.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
    }
    Ok(file)
}

impl Tape {
    fn new(path: &Path, mut file: impl Write + Send + 'static, header: &Header) -> io::Result<Self> {
        file.write_all(&frame::preface())?;
        put_frame(&mut file, FrameKind::Header, &header.put())?;
        let shared = Arc::new(Shared {
            path: path.to_owned(),
            inputs: AtomicU64::new(0),
            missed: AtomicU64::new(0),
            blocks: Mutex::default(),
            news: Condvar::new(),
        });
        let writer = Arc::clone(&shared);
        let writer = std::thread::Builder::new()
            .name("taut-record".to_owned())
            .spawn(move || write_blocks(&writer, &mut file))?;
        Ok(Self {
            shared,
            answers: Arc::default(),
            head: Vec::new(),
            last: Instant::ZERO,
            is_open: false,
            has_ended: false,
            writer: Some(writer),
        })
    }

    /// What notes who else holds memory.
    pub(crate) fn witness(&self) -> Box<dyn Witness> {
        Box::new(Notes(Arc::downgrade(&self.answers)))
    }

    /// Notes an input; its call follows, or has just returned. Then comes [`end`](Self::end).
    pub(crate) fn begin(&mut self, now: Option<Instant>, input: &Input<'_>) {
        if self.has_ended {
            self.shared.missed.fetch_add(1, Relaxed);
            return;
        }
        self.head.clear();
        if self.is_open {
            // The last call panicked, and somebody goes on.
            self.head.push(LOST_BIT);
        }
        let kind = input.kind() as u8;
        match now.filter(|&now| now != self.last) {
            Some(now) => {
                self.head.push(kind | TIME_BIT);
                // Of two clocks that are read one after the other, the later call may have the earlier time.
                put_signed(&mut self.head, now.as_nanos().wrapping_sub(self.last.as_nanos()) as i64);
                self.last = now;
            }
            None => self.head.push(kind),
        }
        let payload = input.put(&mut self.head);
        self.is_open = true;
        self.shared.inputs.fetch_add(1, Relaxed);
        self.add(payload);
    }

    /// Notes what the call returned.
    pub(crate) fn end(&mut self, outcome: u64) {
        self.is_open = false;
        self.head.clear();
        let bytes = outcome.to_le_bytes();
        let len = 8 - outcome.leading_zeros() as usize / 8;
        self.head.push(len as u8);
        self.head.extend(&bytes[..len]);
        let head = &mut self.head;
        self.answers.end(|held| {
            head[0] |= HELD_BIT;
            put_number(head, held.len() as u64);
            held.iter().for_each(|&number| put_number(head, number.into()));
        });
        if !self.has_ended {
            self.add(&[]);
        }
    }

    /// Passes the head on, and what comes behind it.
    fn add(&mut self, payload: &[u8]) {
        let mut blocks = self.shared.lock();
        let any_full = blocks.add(&self.head) | blocks.add(payload);
        self.has_ended = blocks.trouble.is_some();
        drop(blocks);
        if any_full {
            self.shared.news.notify_one();
        }
    }
}

impl Drop for Tape {
    fn drop(&mut self) {
        if self.is_open && !self.has_ended {
            // The call panicked. The input is there to be replayed.
            self.head.clear();
            self.head.push(LOST_BIT);
            self.add(&[]);
        }
        self.shared.lock().is_over = true;
        self.shared.news.notify_one();
        // It cannot panic, and what it could not write is in the report.
        _ = self.writer.take().map(JoinHandle::join);
    }
}

fn put_frame(file: &mut impl Write, kind: FrameKind, content: &[u8]) -> io::Result<()> {
    file.write_all(&frame::head(kind, content))?;
    file.write_all(content)
}

/// The writer's thread: writes blocks until the stack or the recording ends, then the last frame.
fn write_blocks(shared: &Shared, file: &mut impl Write) {
    loop {
        let mut blocks = shared.lock();
        if blocks.full.is_empty() && !blocks.is_over && blocks.trouble.is_none() {
            let (after, _) =
                shared.news.wait_timeout(blocks, FLUSH_EVERY).unwrap_or_else(PoisonError::into_inner);
            blocks = after;
        }
        let block = match blocks.full.pop_front() {
            Some(block) => block,
            None if !blocks.filling.is_empty() => blocks.next(),
            None if blocks.is_over || blocks.trouble.is_some() => {
                let why = if blocks.trouble.is_some() { TOO_SLOW } else { ENDED };
                drop(blocks);
                let mut end = vec![why];
                put_number(&mut end, shared.inputs.load(Relaxed));
                let written = put_frame(file, FrameKind::End, &end).and_then(|()| file.flush());
                note_failure(shared, written);
                return;
            }
            None => continue,
        };
        drop(blocks);
        if note_failure(shared, put_frame(file, FrameKind::Inputs, &block)) {
            return;
        }
        shared.lock().keep(block);
    }
}

/// Whether writing failed. Then the recording ends, and its memory is released.
fn note_failure(shared: &Shared, written: io::Result<()>) -> bool {
    let Err(error) = written else { return false };
    let mut blocks = shared.lock();
    *blocks = Blocks { trouble: Some(Trouble::Write(error)), is_over: blocks.is_over, ..Blocks::default() };
    true
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::input::Payload;

    fn header() -> Header {
        Header::new(&StackConfig::default(), LinkCaps::plain(1_500), [1; 32], (0, 1)).unwrap()
    }

    fn note(tape: &mut Tape, bytes: &[u8]) {
        tape.begin(Some(Instant::from_nanos(5)), &Input::OwnerElsewhere { packet: Payload(bytes) });
        tape.end(0);
    }

    /// A disk that takes the preface and the header, and then nothing until it is told.
    struct Stuck(usize, mpsc::Receiver<()>, Arc<Mutex<Vec<u8>>>);

    impl Write for Stuck {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if self.0 == 3 {
                _ = self.1.recv();
            }
            self.0 += 1;
            self.2.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn replay_05_a_slow_disk_ends_the_recording_and_not_the_stack() {
        let (go, wait) = mpsc::channel();
        let written = Arc::default();
        let mut tape = Tape::new(Path::new("slow"), Stuck(0, wait, Arc::clone(&written)), &header()).unwrap();
        let handle = RecordHandle(Arc::clone(&tape.shared));
        let megabyte = vec![9; 1 << 20];
        // 64 MiB wait, and what the writer has taken: one block.
        let taken = (0..100).take_while(|_| {
            note(&mut tape, &megabyte);
            handle.report().ended.is_none()
        });
        let taken = taken.count();
        assert!((63..=65).contains(&taken), "{taken}");
        assert_eq!(handle.report().ended.as_deref(), Some("the disk was too slow"));
        let before = handle.report();
        note(&mut tape, b"more");
        let after = handle.report();
        assert_eq!((after.inputs, after.missed), (before.inputs, before.missed + 1));
        drop(go);
        drop(tape);
        // The mark is the last frame.
        let written = written.lock().unwrap();
        let mut end = vec![TOO_SLOW];
        put_number(&mut end, after.inputs);
        assert!(written.ends_with(&end));
    }

    /// A disk that is full.
    struct Full(usize);

    impl Write for Full {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 += 1;
            if self.0 > 3 { Err(io::ErrorKind::StorageFull.into()) } else { Ok(bytes.len()) }
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_full_disk_ends_the_recording_with_its_reason() {
        let mut tape = Tape::new(Path::new("full"), Full(0), &header()).unwrap();
        let handle = RecordHandle(Arc::clone(&tape.shared));
        note(&mut tape, &[0; 1 << 20]);
        drop(tape);
        assert!(handle.report().ended.unwrap().starts_with("it could not be written: "));
    }

    #[cfg(unix)]
    #[test]
    fn replay_07_only_the_owner_can_read_a_recording() {
        use std::fs::Permissions;
        use std::os::unix::fs::PermissionsExt as _;
        let path = std::env::temp_dir().join(format!("taut-replay-mode-{}", std::process::id()));
        std::fs::write(&path, b"older").unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        let made = record(&path, Arc::default(), LinkCaps::plain(1_500), [1; 32], (0, 1));
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        drop(made);
        std::fs::remove_file(&path).unwrap();
        assert_eq!(mode & 0o777, 0o600);
        assert!(std::fs::metadata("/dev/null").unwrap().permissions().mode() & 0o777 == 0o666);
        drop(record(Path::new("/dev/null"), Arc::default(), LinkCaps::plain(1_500), [1; 32], (0, 1)));
        assert!(std::fs::metadata("/dev/null").unwrap().permissions().mode() & 0o777 == 0o666);
    }
}
