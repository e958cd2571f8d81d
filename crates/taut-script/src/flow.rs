//! The numbers of one connection: a script's count from each side's SYN, and the wire's begin anywhere.
//!
//! - The peer's sequence numbers on the wire are the script's: its SYN is `S 0:0(0)` or any other number, and
//!   everything after the SYN counts from it.
//! - Ours begin where the stack chose; the SYN or SYN-ACK that it sends tells where.
//! - TSval: a script writes any number for the first one. An echo of that number by the peer is translated
//!   back to the value that the stack sent with it.
//!
//! Called by the runner.

use taut_wire::Flags;

use crate::script::{Opt, TcpSpec};
use crate::segment::Segment;

#[derive(Clone, Debug, Default)]
pub(crate) struct Flow {
    /// Our port.
    pub(crate) local: u16,
    /// The peer's.
    pub(crate) remote: u16,
    /// Our initial sequence number on the wire, once known.
    ours: Option<u32>,
    /// The peer's.
    theirs: Option<u32>,
    /// The number of the last SYN that the script injected, and the length of its data.
    their_syn: (u32, usize),
    /// TSvals that we sent: as the script wrote them and as they were, latest last.
    stamps: Vec<(u32, u32)>,
}

impl Flow {
    pub(crate) fn new(local: u16, remote: u16) -> Self {
        Self { local, remote, ..Self::default() }
    }

    fn ours(&self) -> u32 {
        self.ours.unwrap_or(0)
    }

    fn theirs(&self) -> u32 {
        self.theirs.unwrap_or(0)
    }

    /// Whether the stack has sent a SYN in it.
    pub(crate) const fn is_known(&self) -> bool {
        self.ours.is_some()
    }

    /// The wire's number of a position of our stream.
    pub(crate) fn our_seq(&self, seq: u32) -> u32 {
        self.ours().wrapping_add(seq)
    }

    /// The stack sent this.
    pub(crate) fn note_sent(&mut self, segment: &Segment) {
        if segment.has(Flags::SYN) {
            self.ours = Some(segment.seq);
            if segment.has(Flags::ACK) {
                // The ACK of a SYN may cover a part of its data, too: TCP Fast Open.
                let (syn, len) = self.their_syn;
                let covered = segment.ack.wrapping_sub(1).wrapping_sub(syn);
                let is_of_data = u64::from(covered) <= len as u64;
                self.theirs = Some(if is_of_data { syn } else { segment.ack.wrapping_sub(1) });
            }
        }
    }

    /// Sequence number, acknowledgment and options of a segment that the script injects, as the wire has
    /// them.
    pub(crate) fn inbound(&mut self, spec: &TcpSpec) -> (u32, u32, Vec<Opt>) {
        let seq = if spec.flags.contains(Flags::SYN) {
            self.theirs.get_or_insert(spec.seq);
            self.their_syn = (spec.seq, spec.len as usize);
            spec.seq
        } else {
            self.theirs().wrapping_add(spec.seq)
        };
        let ack = spec.ack.map_or(0, |ack| self.our_seq(ack));
        let options = spec.options.iter().flatten().map(|option| match option {
            Opt::Sack(blocks) => Opt::Sack(
                blocks.iter().map(|&(left, right)| (self.our_seq(left), self.our_seq(right))).collect(),
            ),
            Opt::Timestamps { val, ecr } => Opt::Timestamps { val: *val, ecr: self.sent_stamp(*ecr) },
            other => other.clone(),
        });
        (seq, ack, options.collect())
    }

    /// The TSval that the script calls by this number.
    fn sent_stamp(&self, ecr: u32) -> u32 {
        if ecr == 0 {
            return 0;
        }
        if let Some(&(_, live)) = self.stamps.iter().rev().find(|(script, _)| *script == ecr) {
            return live;
        }
        self.stamps.first().map_or(ecr, |&(script, live)| live.wrapping_add(ecr.wrapping_sub(script)))
    }

    /// A segment that the stack sent, in the script's numbers. `expected` is the TSval that the script
    /// writes, if any.
    pub(crate) fn outbound(&self, segment: &Segment) -> TcpSpec {
        let seq = segment.seq.wrapping_sub(self.ours());
        let theirs = self.theirs();
        let options = segment.options.iter().map(|option| match option {
            Opt::Sack(blocks) => Opt::Sack(
                blocks
                    .iter()
                    .map(|&(left, right)| (left.wrapping_sub(theirs), right.wrapping_sub(theirs)))
                    .collect(),
            ),
            Opt::Timestamps { val, ecr } => Opt::Timestamps { val: self.script_stamp(*val), ecr: *ecr },
            other => other.clone(),
        });
        TcpSpec {
            ecn: Some(segment.ecn),
            ttl: segment.hop_limit,
            ports: None,
            flags: segment.flags,
            seq,
            len: segment.len as u32,
            ack: segment.has(Flags::ACK).then(|| segment.ack.wrapping_sub(theirs)),
            win: Some(segment.win),
            urg: segment.has(Flags::URG).then_some(segment.urg),
            options: Some(options.collect()),
        }
    }

    /// A TSval in the script's numbers: milliseconds since the first.
    fn script_stamp(&self, live: u32) -> u32 {
        self.stamps.first().map_or(live, |&(script, first)| script.wrapping_add(live.wrapping_sub(first)))
    }

    /// The script wrote `script` for the TSval `live`.
    pub(crate) fn note_stamp(&mut self, script: u32, live: u32) {
        self.stamps.push((script, live));
    }

    /// How far a TSval lies after the first, on the wire and in the script, in the wire's milliseconds.
    pub(crate) fn since_first_stamp(&self, script: u32, live: u32) -> Option<(u32, u32)> {
        let &(first_script, first_live) = self.stamps.first()?;
        Some((script.wrapping_sub(first_script), live.wrapping_sub(first_live)))
    }
}
