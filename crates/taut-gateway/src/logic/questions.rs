//! Questions of guests to the gateway's own name server: refused, answered here, or sent on by the runner
//! (`run/resolver.rs`). The addresses in an answer are kept for the rules (`names.rs`). [`Tries`] says which
//! servers get a question, and when.
//!
//! **A refusal is REFUSED**, not NXDOMAIN: the name may exist, and a resolver must not remember that it does
//! not. Nothing of a refused question leaves: not the question either, by which a guest could send anything
//! to the servers of a domain of its own. Part of `gateway.rs`.

use std::net::{IpAddr, SocketAddr};
use std::ops::Add;
use std::sync::Arc;
use std::time::Duration;

use crate::logic::dns::{self, Asked, GATEWAY_NAME, HOST_NAME, PATIENCE};
use crate::logic::event::Event;
use crate::logic::gateway::{Due, Gateway};
use crate::logic::guests::{Counted, Guest};

/// The name servers that get one question, in turn: the next one when the last has been silent for a second,
/// and at once when one cannot be reached, or cannot or will not answer. An earlier one may still answer. `T`
/// is the time of the runner.
#[derive(Debug)]
pub struct Tries<T> {
    left: std::vec::IntoIter<SocketAddr>,
    /// Servers that have the question, and may still answer.
    asked: usize,
    next_at: T,
    over_at: T,
    /// The last answer that says that a server cannot or will not answer.
    poor: Option<Vec<u8>>,
}

impl<T: Copy + Ord + Add<Duration, Output = T>> Tries<T> {
    /// A question for these servers.
    #[must_use]
    pub fn new(servers: Vec<SocketAddr>, now: T) -> Self {
        let left = servers.into_iter();
        Self { left, asked: 0, next_at: now, over_at: now + PATIENCE.in_all, poor: None }
    }

    /// A server that gets the question now.
    pub fn poll_server(&mut self, now: T) -> Option<SocketAddr> {
        if self.next_at > now {
            return None;
        }
        let server = self.left.next()?;
        self.asked += 1;
        self.next_at = now + PATIENCE.next;
        Some(server)
    }

    /// A server cannot be reached.
    pub fn failed(&mut self, now: T) {
        self.asked -= 1;
        self.next_at = now;
    }

    /// A server has answered. Returns a good answer: SERVFAIL, NOTIMP and REFUSED are none.
    pub fn answered(&mut self, now: T, answer: Vec<u8>) -> Option<Vec<u8>> {
        if dns::is_poor(&answer) {
            self.failed(now);
            self.poor = Some(answer);
            return None;
        }
        Some(answer)
    }

    /// Whether there will be no good answer.
    #[must_use]
    pub fn is_over(&self, now: T) -> bool {
        self.over_at <= now || self.asked == 0 && self.left.len() == 0
    }

    /// When a server is due, or the question is over.
    #[must_use]
    pub fn deadline(&self) -> T {
        if self.left.len() == 0 { self.over_at } else { self.next_at.min(self.over_at) }
    }

    /// The answer to a question that is over: the last poor one, or SERVFAIL.
    #[must_use]
    pub fn last_answer(self, question: &[u8]) -> Vec<u8> {
        self.poor.unwrap_or_else(|| dns::refusal(question, dns::Refused::Failure))
    }
}

/// A question that was sent to a name server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct QuestionId(u64);

/// The answer to a guest's question, or that it must be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Question {
    /// It must be sent to a name server.
    Forward(QuestionId),
    /// This is the answer.
    Answer(Vec<u8>),
    /// It is no question.
    Ignore,
}

/// A question that waits for an answer.
#[derive(Debug)]
pub(super) struct Pending {
    guest: Guest,
    asked: Asked,
    deadline: Duration,
}

impl Gateway {
    /// A guest's question to the gateway's name server.
    pub fn question(&mut self, now: Duration, from: IpAddr, message: &[u8]) -> Question {
        let guest = self.machines.guest(from);
        let Some(asked) = dns::question(message) else { return Question::Ignore };
        self.counters.questions += 1;
        if [GATEWAY_NAME, HOST_NAME].contains(&&*asked.name) {
            self.counters.answered_here += 1;
            return Question::Answer(dns::own(message, &self.settings.own));
        }
        if let Some(addresses) = self.zones.find(&asked.name) {
            self.counters.answered_here += 1;
            if addresses.is_empty() {
                return Question::Answer(dns::refusal(message, dns::Refused::NoName));
            }
            for address in &addresses {
                self.names.learn(now, guest, &asked.name, *address, dns::OWN_FOR);
            }
            return Question::Answer(dns::own(message, &addresses));
        }
        if let Some(addresses) = self.hosts.find(&asked.name, &self.settings.rules) {
            self.counters.answered_here += 1;
            return Question::Answer(dns::own(message, addresses));
        }
        if let Some(denied) = self.settings.rules.check_name(&asked.name) {
            let (name, rule, is_dry) = (asked.name.to_string(), denied.rule.text(), self.settings.dry_run);
            self.note(Event::NameDenied { guest: from, name, rule, is_dry });
            if !is_dry {
                self.counters.answered_here += 1;
                return Question::Answer(dns::refusal(message, dns::Refused::Policy));
            }
        }
        if !self.guests.has_room(&self.settings.limits, guest, Counted::Questions) {
            self.counters.over_limit += 1;
            self.note(Event::OverLimit { guest: from, what: Counted::Questions });
            return Question::Answer(dns::refusal(message, dns::Refused::Failure));
        }
        self.guests.add(guest, Counted::Questions);
        self.questions += 1;
        let id = QuestionId(self.questions);
        let deadline = now + self.settings.timeouts.question;
        self.deadlines.insert((deadline, Due::Question(id)));
        self.pending.insert(id, Pending { guest, asked, deadline });
        Question::Forward(id)
    }

    /// A name server has answered. Returns whether the answer belongs to the question and is in time; if so,
    /// the guest gets it. The question stays if the answer is SERVFAIL, NOTIMP or REFUSED: another server may
    /// have a better one. If none has, [`give_up`](Self::give_up) ends it.
    pub fn reply(&mut self, now: Duration, id: QuestionId, message: &[u8]) -> bool {
        let Some(pending) = self.pending.get(&id) else { return false };
        let Some(answer) = dns::answer(message, &pending.asked) else { return false };
        if dns::is_poor(message) {
            return true;
        }
        let guest = pending.guest;
        let name = Arc::clone(&pending.asked.name);
        for (address, ttl) in answer {
            self.names.learn(now, guest, &name, address, ttl);
        }
        self.forget_question(id);
        true
    }

    /// No name server has answered well, or the guest does not wait any more.
    pub fn give_up(&mut self, id: QuestionId) {
        self.counters.unanswered += u64::from(self.pending.contains_key(&id));
        self.forget_question(id);
    }

    fn forget_question(&mut self, id: QuestionId) {
        let Some(pending) = self.pending.remove(&id) else { return };
        self.deadlines.remove(&(pending.deadline, Due::Question(id)));
        self.guests.remove(pending.guest, Counted::Questions);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The code of RFC 1035 §4.1.1 in the header of an answer.
    fn answer(code: u8) -> Vec<u8> {
        vec![0, 0, 0x80, 0x80 | code, 0, 0, 0, 0, 0, 0, 0, 0]
    }

    fn at(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn slirp_29_the_next_server_gets_a_question_at_once_or_after_a_second() {
        let servers: Vec<SocketAddr> =
            (1..=4).map(|last| SocketAddr::from(([192, 0, 2, last], 53))).collect();
        let mut tries = Tries::new(servers.clone(), at(0));
        assert_eq!([tries.poll_server(at(0)), tries.poll_server(at(0))], [Some(servers[0]), None]);
        assert_eq!(tries.deadline(), at(1_000));
        assert_eq!([tries.poll_server(at(999)), tries.poll_server(at(1_000))], [None, Some(servers[1])]);
        // SERVFAIL, while the first one may still answer.
        assert_eq!(tries.answered(at(1_100), answer(2)), None);
        assert_eq!([tries.poll_server(at(1_100)), tries.poll_server(at(1_100))], [Some(servers[2]), None]);
        tries.failed(at(1_200));
        assert_eq!(tries.poll_server(at(1_200)), Some(servers[3]));
        assert_eq!(tries.deadline(), at(4_500));
        // REFUSED: the first one is waited for, and a name that does not exist is an answer.
        assert_eq!(tries.answered(at(1_300), answer(5)), None);
        assert!(!tries.is_over(at(4_499)) && tries.is_over(at(4_500)));
        assert_eq!(tries.answered(at(1_400), answer(3)), Some(answer(3)));
        assert_eq!(tries.last_answer(&[]), answer(5));
    }

    #[test]
    fn slirp_29_a_question_is_over_when_no_server_is_left() {
        let mut tries = Tries::new(vec![SocketAddr::from(([192, 0, 2, 1], 53))], at(0));
        assert!(!tries.is_over(at(0)) && tries.poll_server(at(0)).is_some() && !tries.is_over(at(0)));
        tries.failed(at(1));
        assert!(tries.is_over(at(1)) && Tries::new(Vec::new(), at(0)).is_over(at(0)));
        let question = dns::ask(7, "example.com", dns::A).unwrap();
        // SERVFAIL.
        assert_eq!(tries.last_answer(&question)[3] & 15, 2);
    }
}
