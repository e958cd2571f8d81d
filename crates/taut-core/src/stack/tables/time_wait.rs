//! Connections in TIME-WAIT: their memory, and their answers to late segments.
//! Origin: RFC 9293 §3.10.7.4, RFC 6191, RFC 1337; Linux: `tcp_timewait_sock`, `tcp_tw_reuse`.
//! Called by the stack when a connection closes, when a segment finds one of these, and by `connect`.

use super::lists::Lists;
use crate::conn::Conn;
use crate::ingress::validate::paws_rejects;
use crate::words::{Duration, Endpoint, Instant, seq};

/// Added to SND.NXT for the least initial sequence number of a connection that replaces this one: beyond
/// anything that the old one could have had in an unscaled window. Linux uses the same distance.
const ISS_DISTANCE: u32 = 65_535 + 2;

/// How long after the peer's last timestamp `connect` may reuse the ports: the timestamp clock must have
/// ticked, and a second covers every clock RFC 7323 §5.4 allows. Linux: `tcp_tw_reuse`.
const REUSE_AFTER: Duration = Duration::from_secs(1);

/// A closed connection that still answers.
#[derive(Clone, Debug)]
pub(crate) struct TimeWait {
    pub(crate) local: Endpoint,
    pub(crate) peer: Endpoint,
    /// Window field of the ACKs sent, already scaled down.
    pub(crate) window_field: u16,
    /// Whether both sides use timestamps.
    pub(crate) timestamps: bool,
    pub(crate) snd_nxt: u64,
    /// The position after the peer's FIN.
    pub(crate) rcv_nxt: u64,
    /// TS.Recent, and when it was received.
    pub(crate) ts_recent: u32,
    pub(crate) ts_recent_at: Instant,
    /// The offset added to the clock in our timestamps.
    pub(crate) ts_offset: u32,
    /// When a stray segment was last answered, in milliseconds of the clock, wrapped; 0 for never.
    pub(crate) answered_ms: u32,
    /// When the wait is over. The table sets it.
    pub(crate) expires: Instant,
}

impl TimeWait {
    /// The state that is kept of a connection. Its last segment came at `now` or before.
    pub(crate) fn of(now: Instant, conn: &Conn) -> Self {
        let timestamps = conn.timestamps();
        Self {
            local: conn.tuple.local,
            peer: conn.tuple.peer,
            window_field: conn.rx.last_window_field(),
            timestamps: timestamps.on,
            snd_nxt: conn.tx.nxt(),
            rcv_nxt: conn.rx.nxt(),
            ts_recent: timestamps.recent,
            ts_recent_at: now,
            ts_offset: timestamps.offset,
            answered_ms: 0,
            expires: now,
        }
    }
}

/// A segment for a connection in TIME-WAIT.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TimeWaitSegment {
    pub(crate) seq: u32,
    /// Payload bytes, SYN and FIN not counted.
    pub(crate) len: usize,
    pub(crate) syn: bool,
    pub(crate) ack: bool,
    pub(crate) fin: bool,
    pub(crate) rst: bool,
    /// TSval.
    pub(crate) tsval: Option<u32>,
}

/// The reaction to a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TimeWaitAction {
    /// Nothing.
    Ignore,
    /// Acknowledge, and wait the full time again: [`TimeWaitTable::restart`].
    Ack,
    /// Acknowledge, unless [rate-limited](TimeWaitTable::may_answer), and wait the full time again.
    AckStray,
    /// Acknowledge, unless rate-limited, without waiting longer.
    ChallengeAck,
    /// It opens a new connection, whose initial sequence number must be `min_iss` or beyond.
    Reuse {
        /// On the wire.
        min_iss: u32,
    },
}

impl TimeWait {
    /// The least initial sequence number for a connection that takes these ports over.
    pub(crate) const fn min_iss(&self) -> u32 {
        seq::wire(self.snd_nxt).wrapping_add(ISS_DISTANCE)
    }

    /// Decides about a segment.
    pub(crate) fn on_segment(&self, now: Instant, segment: &TimeWaitSegment) -> TimeWaitAction {
        // RFC 1337 §3 (F1): a RST does not end TIME-WAIT; an old duplicate would let old data into a
        // successor.
        if segment.rst {
            return TimeWaitAction::Ignore;
        }
        let start = seq::expand(self.rcv_nxt, segment.seq);
        let newer = segment.tsval.is_some_and(|tsval| (tsval.wrapping_sub(self.ts_recent) as i32) > 0);
        // RFC 7323 §5.3 R1.
        let paws_reject = self.timestamps
            && segment.tsval.is_some_and(|tsval| paws_rejects(self.ts_recent, self.ts_recent_at, now, tsval));

        if segment.syn && !segment.ack {
            // RFC 6191 §2: a newer timestamp, or a sequence number beyond the old connection's, makes it new.
            let new = !paws_reject && ((self.timestamps && newer) || start > self.rcv_nxt);
            // RFC 5961 §4.2: any other SYN is answered with our state.
            return if new {
                TimeWaitAction::Reuse { min_iss: self.min_iss() }
            } else {
                TimeWaitAction::ChallengeAck
            };
        }
        // RFC 5961 §7: an empty segment may come from an end that disagrees about the state, and that would
        // answer our answer.
        let answer =
            if segment.len > 0 || segment.fin { TimeWaitAction::Ack } else { TimeWaitAction::AckStray };
        if paws_reject {
            return answer;
        }
        // The ACK of our FIN, or a repetition of it, needs no answer.
        if !segment.syn && !segment.fin && segment.len == 0 && start == self.rcv_nxt {
            return TimeWaitAction::Ignore;
        }
        // RFC 9293 §3.10.7.4: a retransmitted FIN, and any segment outside the window, is acknowledged; the
        // peer has not received our last ACK, so the wait begins again.
        answer
    }

    /// Whether `connect` may use these ports again: only with timestamps, which tell old segments from new.
    pub(crate) fn may_reuse_for_connect(&self, now: Instant) -> bool {
        self.timestamps && now.since(self.ts_recent_at) > REUSE_AFTER
    }
}

/// All connections in TIME-WAIT. They all wait equally long, so a list in the order of arrival is also one in
/// the order of expiry.
#[derive(Debug)]
pub(crate) struct TimeWaitTable {
    entries: Lists<TimeWait, 1>,
    max: u32,
    wait: Duration,
}

/// The only list.
const ALL: usize = 0;

impl TimeWaitTable {
    /// A table for at most `max` connections (`tcp_max_tw_buckets`) that wait for `wait`.
    pub(crate) const fn new(max: u32, wait: Duration) -> Self {
        Self { entries: Lists::new(), max, wait }
    }

    /// Changes the bounds. A shorter wait applies to connections added later; these still leave after those
    /// that were added before.
    pub(crate) const fn limit(&mut self, max: u32, wait: Duration) {
        self.max = max;
        self.wait = wait;
    }

    pub(crate) const fn len(&self) -> u32 {
        self.entries.len()
    }

    /// Adds a connection, whose wait begins now. Returns `None` without adding it when the table is full.
    pub(crate) fn insert(&mut self, now: Instant, mut entry: TimeWait) -> Option<u32> {
        if self.len() >= self.max {
            return None;
        }
        entry.expires = now + self.wait;
        self.entries.push(ALL, entry)
    }

    pub(crate) fn get(&self, slot: u32) -> Option<&TimeWait> {
        self.entries.get(slot)
    }

    /// Removes a connection.
    pub(crate) fn remove(&mut self, slot: u32) -> Option<TimeWait> {
        self.entries.remove(ALL, slot)
    }

    /// Begins the full wait again. RFC 9293 §3.10.7.4, eighth, TIME-WAIT.
    pub(crate) fn restart(&mut self, slot: u32, now: Instant) {
        let expires = now + self.wait;
        let Some(entry) = self.entries.get_mut(slot) else { return };
        entry.expires = expires;
        self.entries.move_to_end(ALL, ALL, slot);
    }

    /// Whether a stray segment may be answered now: at most once per `least`, as with challenge ACKs.
    pub(crate) fn may_answer(&mut self, slot: u32, now: Instant, least: Duration) -> bool {
        let Some(entry) = self.entries.get_mut(slot) else { return false };
        let now_ms = (now.as_millis() as u32).max(1);
        if entry.answered_ms != 0 && u64::from(now_ms.wrapping_sub(entry.answered_ms)) < least.as_millis() {
            return false;
        }
        entry.answered_ms = now_ms;
        true
    }

    /// The next connection whose wait is over. It stays until [`remove`](Self::remove).
    pub(crate) fn expired(&self, now: Instant) -> Option<u32> {
        self.next_deadline().filter(|&at| at <= now).map(|_| self.entries.first(ALL))
    }

    /// Removes the next connection whose wait is over.
    #[cfg(test)]
    pub(crate) fn expire(&mut self, now: Instant) -> Option<TimeWait> {
        let slot = self.expired(now)?;
        self.remove(slot)
    }

    /// When the first wait is over.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.get(self.entries.first(ALL)).map(|entry| entry.expires)
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use crate::words::seq::FIRST;
    use core::net::SocketAddr;

    const SECOND: Duration = Duration::from_secs(1);
    const T0: Instant = Instant::from_nanos(1_000_000_000);

    fn entry() -> TimeWait {
        let addr = |text: &str| Endpoint::from(text.parse::<SocketAddr>().unwrap());
        TimeWait {
            local: addr("192.0.2.1:80"),
            peer: addr("192.0.2.2:4000"),
            window_field: 512,
            timestamps: true,
            snd_nxt: FIRST + 5_000,
            rcv_nxt: FIRST + 9_000,
            ts_recent: 700,
            ts_recent_at: T0,
            ts_offset: 0,
            answered_ms: 0,
            expires: Instant::ZERO,
        }
    }

    const ACK: TimeWaitSegment = TimeWaitSegment {
        seq: 9_000,
        len: 0,
        syn: false,
        ack: true,
        fin: false,
        rst: false,
        tsval: Some(700),
    };
    const SYN: TimeWaitSegment = TimeWaitSegment { syn: true, ack: false, ..ACK };

    #[test]
    fn is_small() {
        assert!(Lists::<TimeWait, 1>::entry_bytes() <= 96);
    }

    #[test]
    fn rfc_1337_a_reset_is_ignored() {
        let rst = TimeWaitSegment { rst: true, ..ACK };
        assert_eq!(entry().on_segment(T0, &rst), TimeWaitAction::Ignore);
        assert_eq!(entry().on_segment(T0, &TimeWaitSegment { syn: true, ..rst }), TimeWaitAction::Ignore);
    }

    #[test]
    fn rfc_9293_a_retransmitted_fin_is_acknowledged() {
        let fin = TimeWaitSegment { fin: true, seq: 8_999, ..ACK };
        assert_eq!(entry().on_segment(T0, &fin), TimeWaitAction::Ack);
        let old_data = TimeWaitSegment { len: 100, seq: 5_000, tsval: Some(600), ..ACK };
        assert_eq!(entry().on_segment(T0, &old_data), TimeWaitAction::Ack);
        assert_eq!(entry().on_segment(T0, &ACK), TimeWaitAction::Ignore);
    }

    #[test]
    fn rfc_6191_a_new_syn_is_told_from_an_old_one() {
        let reuse = TimeWaitAction::Reuse { min_iss: 5_000 + 65_537 };
        let with = |seq, tsval, timestamps| {
            let entry = TimeWait { timestamps, ..entry() };
            entry.on_segment(T0 + SECOND, &TimeWaitSegment { seq, tsval, ..SYN })
        };
        // A newer timestamp is enough.
        assert_eq!(with(1, Some(701), true), reuse);
        // With the same, or none, the sequence number decides.
        assert_eq!(with(9_001, Some(700), true), reuse);
        assert_eq!(with(9_000, Some(700), true), TimeWaitAction::ChallengeAck);
        assert_eq!(with(9_001, None, false), reuse);
        assert_eq!(with(8_000, None, false), TimeWaitAction::ChallengeAck);
        // An older one makes it an old duplicate, whatever the sequence number.
        assert_eq!(with(9_001, Some(699), true), TimeWaitAction::ChallengeAck);
        // A SYN-ACK opens nothing.
        let syn_ack = TimeWaitSegment { syn: true, seq: 9_001, ..ACK };
        assert_eq!(entry().on_segment(T0, &syn_ack), TimeWaitAction::AckStray);
    }

    #[test]
    fn sequence_numbers_may_wrap() {
        let entry = TimeWait { rcv_nxt: FIRST + 0xffff_fff0, snd_nxt: FIRST + 0xffff_ffff, ..entry() };
        let action = entry.on_segment(T0, &TimeWaitSegment { seq: 5, ..SYN });
        assert_eq!(action, TimeWaitAction::Reuse { min_iss: 65_536 });
    }

    #[test]
    fn connect_may_reuse_after_a_second_with_timestamps() {
        assert!(!entry().may_reuse_for_connect(T0 + SECOND));
        assert!(entry().may_reuse_for_connect(T0 + SECOND + Duration::from_nanos(1)));
        assert!(!TimeWait { timestamps: false, ..entry() }.may_reuse_for_connect(T0 + SECOND * 30));
    }

    #[test]
    fn the_table_expires_in_order_and_restarts() {
        let mut table = TimeWaitTable::new(3, SECOND * 60);
        let at = |s| T0 + SECOND * s;
        let slots: std::vec::Vec<u32> = (0..3).map(|s| table.insert(at(s), entry()).unwrap()).collect();
        assert_eq!(table.insert(at(3), entry()), None);
        assert_eq!(table.next_deadline(), Some(at(60)));
        table.restart(slots[0], at(10));
        assert_eq!(table.next_deadline(), Some(at(61)));
        assert_eq!(table.expired(at(60)), None);
        assert_eq!(table.expired(at(61)), Some(slots[1]));
        assert!(table.expire(at(61)).is_some());
        assert!(table.expire(at(61)).is_none());
        assert!(table.remove(slots[2]).is_some());
        assert!(table.remove(slots[2]).is_none() && table.get(slots[2]).is_none());
        assert_eq!((table.len(), table.next_deadline()), (1, Some(at(70))));
        // Slots are reused.
        let again = [table.insert(at(71), entry()), table.insert(at(72), entry())];
        assert!(again.iter().all(|slot| slot.is_some_and(|slot| slot < 3)));
        assert_eq!(table.expired(at(200)), Some(slots[0]));
        for _ in 0..3 {
            assert!(table.expire(at(200)).is_some());
        }
        assert_eq!((table.len(), table.next_deadline()), (0, None));
    }
}
