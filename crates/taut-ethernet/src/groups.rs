//! The groups of multicast that this host is a member of, and when it says so. RFC 3376 §5 (IGMPv3), RFC 3810
//! §6 (MLDv2). Pure; called by `members.rs`.
//!
//! **Why.** A switch that watches for members sends a group's frames only where one is. Without a report, it
//! may keep away what is sent to a group that an application has joined, and the questions for the host's own
//! IPv6 addresses.
//!
//! ```text
//!   join, leave ─▶ a report at once, another within a second (one of the two may be lost)
//!   query ─▶ a random time within what the querier allows ─▶ a report of all groups, or of the one that was asked for
//! ```
//!
//! | constant | value | from |
//! |---|---|---|
//! | reports of a change | 2 | RFC 3376 §8.1, RFC 3810 §9.1: robustness variable |
//! | between them | up to 1 s | RFC 3376 §8.11, RFC 3810 §9.11 |
//! | between two answers about a group | 0.1 s | ours |
//! | an older querier is believed to be there for | 260 s | RFC 3376 §8.12, RFC 3810 §9.12: 2 × 125 + 10 |
//!
//! **What a stranger can do.** Queries cost nothing but the reports that answer them, ten a second for each
//! group at most, twelve groups to a report. At most 128 groups are remembered.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::IpAddr;

use taut_wire::membership::{ALL_HOSTS, ALL_NODES, GroupQuery, GroupRecord, RECORDS_MAX};

use crate::random::Random;
use taut_core::{Duration, Instant};

const REPORTS: u8 = 2;
const WITHIN: Duration = Duration::from_secs(1);
const OLD_FOR: Duration = Duration::from_secs(260);
/// The least time between two answers about a group: a querier that floods the link has no more of them.
const ANSWER_EVERY: Duration = Duration::from_millis(100);
/// One for each of this host's addresses, and as many of its sockets.
const GROUPS_MAX: usize = 128;

/// A group.
#[derive(Clone, Copy, Debug)]
struct Member {
    group: IpAddr,
    /// It has been joined by the host's owner so often; the host itself has.
    holders: u32,
    is_own: bool,
    /// Reports of the last change that are still to be sent, and when the next one is.
    reports: u8,
    report_at: Instant,
    /// When a query is to be answered.
    answer_at: Instant,
    /// And when it may be at the earliest.
    not_before: Instant,
}

impl Member {
    const fn is_joined(&self) -> bool {
        self.holders > 0 || self.is_own
    }

    fn due(&self) -> Instant {
        self.report_at.min(self.answer_at)
    }
}

#[derive(Debug)]
pub(crate) struct Groups {
    list: Vec<Member>,
    /// Until when a querier of IPv4, and of IPv6, is believed to be an older one.
    old_until: [Instant; 2],
    /// To be sent.
    records: VecDeque<GroupRecord>,
    /// The latest time that was told.
    now: Instant,
    random: Random,
}

/// What to send.
pub(crate) enum Report {
    /// All of them, of the same family.
    New(Vec<GroupRecord>),
    /// One, to a querier that knows no more.
    Old(GroupRecord),
}

/// Whether membership is reported at all: not of groups that everybody is in, or that stay within the host
/// (RFC 3376 §6, RFC 3810 §6).
fn is_reported(group: IpAddr) -> bool {
    match group {
        IpAddr::V4(v4) => v4.is_multicast() && v4 != ALL_HOSTS,
        IpAddr::V6(v6) => v6.is_multicast() && v6 != ALL_NODES && v6.octets()[1] & 0x0f > 1,
    }
}

impl Groups {
    pub(crate) const fn new(keys: (u64, u64)) -> Self {
        let old_until = [Instant::ZERO; 2];
        let (now, random) = (Instant::ZERO, Random::new(keys));
        Self { list: Vec::new(), old_until, records: VecDeque::new(), now, random }
    }

    /// The host's owner joins a group once more. Returns whether there is a place for it.
    pub(crate) fn join(&mut self, now: Instant, group: IpAddr) -> bool {
        self.change(now, group, |member| member.holders += 1)
    }

    /// It leaves it once.
    pub(crate) fn leave(&mut self, now: Instant, group: IpAddr) {
        if self.find(group).is_some() {
            self.change(now, group, |member| member.holders = member.holders.saturating_sub(1));
        }
    }

    /// The host itself is a member of these groups, and of no others.
    pub(crate) fn set_own(&mut self, now: Instant, own: &[IpAddr]) {
        let gone: Vec<_> =
            self.list.iter().filter(|member| member.is_own && !own.contains(&member.group)).collect();
        let gone: Vec<_> = gone.into_iter().map(|member| member.group).collect();
        for group in gone {
            self.change(now, group, |member| member.is_own = false);
        }
        for group in own {
            self.change(now, *group, |member| member.is_own = true);
        }
    }

    fn find(&self, group: IpAddr) -> Option<usize> {
        self.list.iter().position(|member| member.group == group)
    }

    fn change(&mut self, now: Instant, group: IpAddr, change: impl FnOnce(&mut Member)) -> bool {
        if !is_reported(group) {
            return true;
        }
        let at = match self.find(group) {
            Some(at) => at,
            None if self.list.len() >= GROUPS_MAX => return false,
            None => {
                let never = Instant::NEVER;
                let (holders, is_own, reports) = (0, false, 0);
                let (report_at, answer_at, not_before) = (never, never, Instant::ZERO);
                self.list.push(Member { group, holders, is_own, reports, report_at, answer_at, not_before });
                self.list.len() - 1
            }
        };
        let member = &mut self.list[at];
        let was = member.is_joined();
        change(member);
        if member.is_joined() != was {
            (member.reports, member.report_at) = (REPORTS, now);
        }
        true
    }

    /// When something is due.
    pub(crate) fn next(&self) -> Instant {
        self.list.iter().map(Member::due).min().unwrap_or(Instant::NEVER)
    }

    /// Takes what is due to what is sent.
    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        self.now = now;
        let Self { list, records, random, .. } = self;
        for member in list.iter_mut() {
            if member.report_at <= now {
                let say = if member.is_joined() { GroupRecord::Joins } else { GroupRecord::Leaves };
                records.push_back(say(member.group));
                member.reports -= 1;
                let next = if member.reports > 0 { now + random.span(WITHIN) } else { Instant::NEVER };
                member.report_at = next;
            }
            if member.answer_at <= now {
                if member.is_joined() {
                    records.push_back(GroupRecord::Is(member.group));
                }
                member.answer_at = Instant::NEVER;
                member.not_before = now + ANSWER_EVERY;
            }
        }
        list.retain(|member| member.is_joined() || member.reports > 0);
    }

    /// A querier asks. An answer that waits and is sooner answers this, too (RFC 3376 §5.2, RFC 3810 §6.2).
    pub(crate) fn on_query(&mut self, now: Instant, is_v4: bool, query: &GroupQuery) {
        if query.is_old {
            self.old_until[usize::from(is_v4)] = now + OLD_FOR;
        }
        let within = Duration::from_millis(query.within_ms.into());
        let at = now + self.random.span(within);
        let asked = |member: &&mut Member| match query.group {
            None => member.group.is_ipv4() == is_v4,
            Some(group) => member.group == group,
        };
        for member in self.list.iter_mut().filter(asked) {
            member.answer_at = member.answer_at.min(at.max(member.not_before));
        }
    }

    /// What to send next.
    pub(crate) fn poll_report(&mut self) -> Option<Report> {
        let first = self.records.pop_front()?;
        let is_v4 = first.group().is_ipv4();
        if self.old_until[usize::from(is_v4)] > self.now {
            return Some(Report::Old(first));
        }
        let mut records = alloc::vec![first];
        while records.len() < RECORDS_MAX
            && self.records.front().is_some_and(|next| next.group().is_ipv4() == is_v4)
        {
            records.extend(self.records.pop_front());
        }
        Some(Report::New(records))
    }
}
