//! A line between two stacks. A test scripts the fate that the near end returns for each packet. It has no
//! descriptors.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use taut_core::{KeptPacket, LinkCaps, Offload, RxChecksum, TxPacket, TxTicket};
use taut_driver::{Device, News, Received, RxDevice, Sent, TxDevice};

/// The response of an end to a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Say {
    Left,
    Keep,
    Full,
    Drop,
    Never,
}

impl Say {
    pub(crate) const ALL: [Self; 5] = [Self::Left, Self::Keep, Self::Full, Self::Drop, Self::Never];
}

/// The calls that an end received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    Send,
    Flush,
}

type Script = Box<dyn FnMut(&TxPacket<'_>) -> Say + Send>;

/// One end.
struct End {
    /// Called without the lock of the end, as it may block while the end receives.
    script: Arc<Mutex<Script>>,
    said: [u64; 5],
    log: Vec<Event>,
    kept: Vec<(KeptPacket, TxTicket)>,
    done: VecDeque<TxTicket>,
    /// Packets to be received here.
    came: VecDeque<(Vec<u8>, RxChecksum, u16)>,
    /// How many of them a thread of this name took, and how many others did.
    took: (&'static str, [u64; 2]),
    /// How often it was asked for a packet and had none.
    in_vain: u64,
    /// How often it was asked in this batch, and in any.
    asked: [u64; 2],
    gone: Option<&'static str>,
    tx_waker: Option<Waker>,
    rx_waker: Option<Waker>,
}

impl End {
    fn new() -> Self {
        Self {
            script: Arc::new(Mutex::new(Box::new(|_| Say::Left))),
            said: [0; 5],
            log: Vec::new(),
            kept: Vec::new(),
            done: VecDeque::new(),
            came: VecDeque::new(),
            took: ("host", [0; 2]),
            in_vain: 0,
            asked: [0; 2],
            gone: None,
            tx_waker: None,
            rx_waker: None,
        }
    }
}

/// Both ends: 0 is the near one.
#[derive(Clone)]
pub(crate) struct Line(Arc<[Mutex<End>; 2]>);

impl Line {
    pub(crate) fn new(caps: LinkCaps) -> (Self, [Device; 2]) {
        Self::of(caps, false)
    }

    /// The near end is a slow device.
    pub(crate) fn slow(caps: LinkCaps) -> (Self, [Device; 2]) {
        Self::of(caps, true)
    }

    fn of(caps: LinkCaps, is_slow: bool) -> (Self, [Device; 2]) {
        let line = Self(Arc::new([Mutex::new(End::new()), Mutex::new(End::new())]));
        let half = |end| Half { line: line.clone(), end, is_slow: is_slow && end == 0 };
        let devices = [Device::new(caps, half(0), half(0)), Device::new(caps, half(1), half(1))];
        (line, devices)
    }

    fn end(&self, end: usize) -> MutexGuard<'_, End> {
        self.0[end].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the responses of an end from now on.
    pub(crate) fn script(&self, end: usize, script: impl FnMut(&TxPacket<'_>) -> Say + Send + 'static) {
        self.end(end).script = Arc::new(Mutex::new(Box::new(script)));
    }

    /// The number of times that an end gave this response.
    pub(crate) fn said(&self, end: usize, say: Say) -> u64 {
        self.end(end).said[say as usize]
    }

    pub(crate) fn log(&self, end: usize) -> Vec<Event> {
        self.end(end).log.clone()
    }

    /// Truesizes of the tickets that an end has, including those on their way back.
    pub(crate) fn tickets(&self, end: usize) -> Vec<u32> {
        let end = self.end(end);
        end.kept.iter().map(|(_, ticket)| ticket).chain(&end.done).map(TxTicket::truesize).collect()
    }

    /// Packets that an end's driver thread took, and that others took there, since the last call.
    pub(crate) fn taken(&self, end: usize) -> [u64; 2] {
        std::mem::take(&mut self.end(end).took.1)
    }

    /// How often an end was asked for a packet that it did not have, since the last call.
    /// The most calls for a packet in a batch.
    pub(crate) fn asked_in_a_batch(&self, end: usize) -> u64 {
        self.end(end).asked[1]
    }

    pub(crate) fn asked_in_vain(&self, end: usize) -> u64 {
        std::mem::take(&mut self.end(end).in_vain)
    }

    /// The near end has room again.
    pub(crate) fn give_room(&self) {
        let waker = self.end(0).tx_waker.clone();
        waker.into_iter().for_each(Waker::wake);
    }

    /// Puts a packet that the near end kept on the line, and sends its ticket back.
    fn complete(&self, pick: impl FnOnce(usize) -> usize, is_lost: bool) {
        let mut near = self.end(0);
        if near.kept.is_empty() {
            return;
        }
        let index = pick(near.kept.len());
        let (packet, ticket) = near.kept.remove(index);
        near.done.push_back(ticket);
        let waker = near.tx_waker.clone();
        drop(near);
        if !is_lost {
            self.carry(1, &packet.packet());
        }
        waker.into_iter().for_each(Waker::wake);
    }

    /// Puts the packets that an end kept on the line, in order, and sends their tickets back.
    pub(crate) fn release(&self, end: usize) {
        let mut at = self.end(end);
        let kept = std::mem::take(&mut at.kept);
        let waker = at.tx_waker.clone();
        drop(at);
        for (packet, ticket) in kept {
            self.carry(1 - end, &packet.packet());
            self.end(end).done.push_back(ticket);
        }
        waker.into_iter().for_each(Waker::wake);
    }

    pub(crate) fn complete_first(&self) {
        self.complete(|_| 0, false);
    }

    pub(crate) fn complete_nth(&self, index: usize) {
        self.complete(|_| index, false);
    }

    pub(crate) fn complete_any(&self, rng: &mut Rng) {
        self.complete(|count| rng.below(count as u64) as usize, false);
    }

    pub(crate) fn complete_all(&self) {
        while !self.end(0).kept.is_empty() {
            self.complete_first();
        }
    }

    /// The near end loses the packets that it kept.
    pub(crate) fn lose_all(&self) {
        while !self.end(0).kept.is_empty() {
            self.complete(|_| 0, true);
        }
    }

    /// The near end is gone.
    pub(crate) fn cut(&self, why: &'static str) {
        let mut near = self.end(0);
        near.gone = Some(why);
        let waker = near.rx_waker.clone();
        drop(near);
        waker.into_iter().for_each(Waker::wake);
    }

    fn carry(&self, to: usize, packet: &TxPacket<'_>) {
        let (checksum, gso_size) = match packet.offload {
            Offload::None => (RxChecksum::Unverified, 0),
            Offload::Checksum { .. } => (RxChecksum::Verified, 0),
            Offload::Segment { mss, .. } => (RxChecksum::Verified, mss),
        };
        let mut end = self.end(to);
        end.came.push_back((packet.to_vec(), checksum, gso_size));
        let waker = end.rx_waker.clone();
        drop(end);
        waker.into_iter().for_each(Waker::wake);
    }
}

/// One half of an end.
struct Half {
    line: Line,
    end: usize,
    is_slow: bool,
}

impl TxDevice for Half {
    fn news(&mut self, waker: &Waker) -> io::Result<News> {
        self.line.end(self.end).tx_waker = Some(waker.clone());
        Ok(News::Waker)
    }

    fn is_slow(&self) -> bool {
        self.is_slow
    }

    fn send(&mut self, packet: &TxPacket<'_>, ticket: TxTicket) -> Sent {
        let script = Arc::clone(&self.line.end(self.end).script);
        let say = (script.lock().unwrap_or_else(PoisonError::into_inner))(packet);
        let mut end = self.line.end(self.end);
        end.said[say as usize] += 1;
        if say != Say::Full {
            end.log.push(Event::Send);
        }
        if say == Say::Keep {
            end.kept.push((packet.keep(), ticket));
            return Sent::Kept;
        }
        let count = end.said[say as usize];
        drop(end);
        match say {
            Say::Full => Sent::Full(ticket),
            Say::Drop => Sent::Dropped(ticket),
            Say::Never => Sent::Never(ticket, io::Error::other(format!("never {count}"))),
            Say::Left | Say::Keep => {
                self.line.carry(1 - self.end, packet);
                Sent::Left(ticket)
            }
        }
    }

    fn flush(&mut self) {
        self.line.end(self.end).log.push(Event::Flush);
    }

    fn poll_done(&mut self) -> Option<TxTicket> {
        self.line.end(self.end).done.pop_front()
    }
}

impl RxDevice for Half {
    fn news(&mut self, waker: &Waker) -> io::Result<News> {
        self.line.end(self.end).rx_waker = Some(waker.clone());
        Ok(News::Waker)
    }

    fn begin_batch(&mut self) {
        self.line.end(self.end).asked[0] = 0;
    }

    fn recv(&mut self, buffer: &mut Vec<u8>) -> io::Result<Option<Received>> {
        let mut end = self.line.end(self.end);
        end.asked[0] += 1;
        end.asked[1] = end.asked[1].max(end.asked[0]);
        if let Some(why) = end.gone {
            return Err(io::Error::other(why));
        }
        let Some((bytes, checksum, gso_size)) = end.came.pop_front() else {
            end.in_vain += 1;
            return Ok(None);
        };
        let (name, counts) = &mut end.took;
        counts[usize::from(std::thread::current().name() != Some(name))] += 1;
        buffer[..bytes.len()].copy_from_slice(&bytes);
        Ok(Some(Received { range: 0..bytes.len(), checksum, gso_size }))
    }
}

/// xorshift64.
pub(crate) struct Rng(pub(crate) u64);

impl Rng {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}
