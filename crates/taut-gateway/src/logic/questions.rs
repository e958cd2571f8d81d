//! Questions of guests to the gateway's own name server: refused, answered here, or sent on by the runner
//! (`run/resolver.rs`). The addresses in an answer are kept for the rules (`names.rs`).
//!
//! **A refusal is REFUSED**, not NXDOMAIN: the name may exist, and a resolver must not remember that it does
//! not. Nothing of a refused question leaves: not the question either, by which a guest could send anything
//! to the servers of a domain of its own. Part of `gateway.rs`.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::logic::dns::{self, Asked, GATEWAY_NAME, HOST_NAME};
use crate::logic::event::Event;
use crate::logic::gateway::{Due, Gateway};
use crate::logic::guests::{Counted, Guest};

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
        let guest = Guest::of(from);
        let Some(asked) = dns::question(message) else { return Question::Ignore };
        self.counters.questions += 1;
        if [GATEWAY_NAME, HOST_NAME].contains(&&*asked.name) {
            self.counters.answered_here += 1;
            return Question::Answer(dns::own(message, &self.settings.own));
        }
        if let Some(denied) = self.settings.rules.check_name(&asked.name) {
            let (name, rule, is_dry) =
                (asked.name.to_string(), denied.rule.to_string(), self.settings.dry_run);
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
