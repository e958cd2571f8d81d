//! What lies below the stack in a script: a device that takes everything at once, and a queue discipline in
//! front of it if the script puts one there (`tc qdisc replace dev tun0 root …`), with the words and the code
//! of `taut-link`.
//!
//! A packet counts as sent when it leaves the discipline, as a capture on the interface sees it; its ticket
//! comes back then. Behind `netem`, which stands for the path, tickets come back at once. Called by the host.

use taut_core::{Fate, Instant, Offload, Stack, Transmit, TxTicket};
use taut_link::{Packet, Qdisc as _, QdiscSpec, QdiscSpecError, Tree, Verdict};
use taut_wire::raw;

/// Most packets that the discipline may refuse in one turn.
const REFUSALS_MAX: u32 = 64;
/// Seeds whatever the discipline draws, so that a script always gives the same result.
const SEED: u64 = 7;

/// A packet that has left the host.
#[derive(Clone, Debug)]
pub struct Sent {
    /// When.
    pub at: Instant,
    /// Its bytes from the IP header on. Checksums of TCP may be left to the device.
    pub bytes: Vec<u8>,
    /// The segment size of a super-packet, in bytes of payload; else 0.
    pub gso: u16,
}

#[derive(Debug)]
struct Waiting {
    bytes: Vec<u8>,
    gso: u16,
    ticket: Option<TxTicket>,
}

/// The device, and the queue in front of it.
#[derive(Debug, Default)]
pub(crate) struct Link {
    qdisc: Option<Tree<usize>>,
    waiting: Vec<Option<Waiting>>,
}

impl Link {
    /// Replaces the queue; packets that wait go into the new one.
    pub(crate) fn set_qdisc(
        &mut self,
        stack: &mut Stack,
        now: Instant,
        text: &str,
    ) -> Result<(), QdiscSpecError> {
        let spec: QdiscSpec = text.parse()?;
        let mut tree = spec.build(SEED);
        while let Some(packet) = self.qdisc.as_mut().and_then(taut_link::Qdisc::evict) {
            if let Verdict::Dropped(packet) = tree.enqueue(now, packet) {
                self.lose(stack, now, packet.item);
            }
        }
        stack.set_link_paces(spec.paces());
        self.qdisc = Some(tree);
        Ok(())
    }

    /// Takes away the queue. What waited in it leaves.
    pub(crate) fn clear(&mut self, stack: &mut Stack, now: Instant, out: &mut impl FnMut(Sent)) {
        stack.set_link_paces(false);
        let Some(mut tree) = self.qdisc.take() else { return };
        while let Some(packet) = tree.evict() {
            self.leave(stack, now, packet.item, out);
        }
    }

    /// Takes everything that the stack has to send, and hands out what leaves. Returns whether anything
    /// happened.
    pub(crate) fn turn(&mut self, stack: &mut Stack, now: Instant, out: &mut impl FnMut(Sent)) -> bool {
        let (mut any, mut refusals) = (false, 0);
        while refusals < REFUSALS_MAX {
            let Some(Transmit { packet, ticket }) = stack.poll_transmit(now) else { break };
            any = true;
            let gso = match packet.offload {
                Offload::Segment { mss, .. } => mss,
                Offload::None | Offload::Checksum { .. } => 0,
            };
            let (bytes, departure, segs) = (packet.to_vec(), packet.departure, packet.segments());
            let place = self.put(Waiting { bytes, gso, ticket: Some(ticket) });
            refusals += u32::from(!self.enqueue(stack, now, departure, segs, place, out));
        }
        any | self.release(stack, now, out)
    }

    fn put(&mut self, waiting: Waiting) -> usize {
        let place = self.waiting.iter().position(Option::is_none).unwrap_or(self.waiting.len());
        if place == self.waiting.len() {
            self.waiting.push(None);
        }
        self.waiting[place] = Some(waiting);
        place
    }

    /// Returns false if the queue refused the packet.
    fn enqueue(
        &mut self,
        stack: &mut Stack,
        now: Instant,
        departure: Instant,
        segs: usize,
        place: usize,
        out: &mut impl FnMut(Sent),
    ) -> bool {
        let (Some(tree), Some(Some(waiting))) = (&mut self.qdisc, self.waiting.get_mut(place)) else {
            self.leave(stack, now, place, out);
            return true;
        };
        let headers = raw::headers_len(&waiting.bytes).unwrap_or(0);
        let len = waiting.bytes.len() + (segs - 1) * headers;
        let packet = Packet {
            segs: u16::try_from(segs).unwrap_or(u16::MAX),
            departure,
            flow: raw::flow(&waiting.bytes),
            ecn: raw::ecn(&waiting.bytes).into(),
            ..Packet::new(len as u32, place)
        };
        let data_of = waiting.ticket.as_ref().and_then(TxTicket::data_of);
        if tree.orphans()
            && let Some(ticket) = waiting.ticket.take()
        {
            stack.handle_tx(now, ticket, Fate::Left);
        }
        match tree.enqueue(now, packet) {
            Verdict::Taken => {}
            Verdict::Congested => data_of.into_iter().for_each(|conn| stack.handle_tx_congestion(now, conn)),
            Verdict::Dropped(packet) => {
                if let Some(ticket) = self.waiting[packet.item].take().and_then(|waiting| waiting.ticket) {
                    stack.handle_tx(now, ticket, Fate::Dropped);
                }
                return false;
            }
        }
        true
    }

    /// Packets that are due leave.
    fn release(&mut self, stack: &mut Stack, now: Instant, out: &mut impl FnMut(Sent)) -> bool {
        let mut any = false;
        while let Some(packet) = self.qdisc.as_mut().and_then(|tree| tree.dequeue(now)) {
            any = true;
            if packet.ecn == taut_link::Ecn::Marked
                && let Some(Some(waiting)) = self.waiting.get_mut(packet.item)
            {
                raw::set_ce(&mut waiting.bytes);
            }
            self.leave(stack, now, packet.item, out);
        }
        while let Some(packet) = self.qdisc.as_mut().and_then(taut_link::Qdisc::poll_dropped) {
            any = true;
            self.lose(stack, now, packet.item);
        }
        any
    }

    fn leave(&mut self, stack: &mut Stack, now: Instant, place: usize, out: &mut impl FnMut(Sent)) {
        let Some(waiting) = self.waiting.get_mut(place).and_then(Option::take) else { return };
        out(Sent { at: now, bytes: waiting.bytes, gso: waiting.gso });
        if let Some(ticket) = waiting.ticket {
            stack.handle_tx(now, ticket, Fate::Left);
        }
    }

    fn lose(&mut self, stack: &mut Stack, now: Instant, place: usize) {
        let waiting = self.waiting.get_mut(place).and_then(Option::take);
        if let Some(ticket) = waiting.and_then(|waiting| waiting.ticket) {
            stack.handle_tx(now, ticket, Fate::Left);
        }
    }

    /// When the queue has something to hand out.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.qdisc.as_ref().and_then(taut_link::Qdisc::next)
    }
}
