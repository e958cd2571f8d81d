//! The name service: questions of the guest, sent to the host's name servers. The logic reads questions and
//! answers, and says which servers get them, and when (`taut-gateway`, `logic/dns.rs`, `logic/questions.rs`).
//!
//! Each question has a socket of its own at each server, whose port the kernel chooses at random (RFC 5452
//! §9.2).

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use slab::Slab;
use taut_core::{DatagramError, DatagramId, FlowInfo, SendMeta};
use taut_gateway::{FlowId, NextStep, Question, QuestionId, Side, Tries};

use crate::core::{Core, Key, Waited};
use crate::exchange::Exchange;

/// A question is a name and a few options; a longer one is no question.
const LONGEST_QUESTION: usize = 4_096;
/// Questions of one socket before others have their turn.
const TURN: usize = 64;

/// The flow to which the answer goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asker {
    Datagram(DatagramId, FlowId),
    Connection(FlowId),
}

/// A question that a server was sent.
struct Asked {
    id: QuestionId,
    asker: Asker,
    message: Vec<u8>,
    tries: Tries<Duration>,
    exchanges: Vec<Exchange>,
}

/// See the top of the file.
#[derive(Default)]
pub(crate) struct Names {
    guests: BTreeMap<DatagramId, (FlowId, SocketAddr)>,
    of_flow: BTreeMap<FlowId, DatagramId>,
    asked: Slab<Asked>,
}

impl Names {
    /// A flow of questions.
    pub(crate) fn admit(&mut self, core: &mut Core, info: &FlowInfo, flow: FlowId) {
        if core.gateway.reached(core.time(), flow) != NextStep::Accept {
            return core.closed(flow);
        }
        let Ok(id) = core.stack.accept_datagram_flow(core.now, info.id, None) else {
            return core.closed(flow);
        };
        self.guests.insert(id, (flow, info.peer));
        self.of_flow.insert(flow, id);
        self.up(core, id);
    }

    /// From the guest. Returns whether it is a socket of these.
    pub(crate) fn up(&mut self, core: &mut Core, id: DatagramId) -> bool {
        let Some(&(flow, guest)) = self.guests.get(&id) else { return false };
        for _ in 0..TURN {
            let len = match core.stack.recv_datagram(id, &mut core.scratch, false) {
                Ok(received) => received.len,
                Err(DatagramError::WouldBlock) => break,
                Err(DatagramError::TimedOut | DatagramError::Closed) => {
                    self.expire(core, flow);
                    break;
                }
                Err(_) => continue,
            };
            core.gateway.datagrams_passed(core.time(), flow, Side::Guest, 1, len);
            if len > LONGEST_QUESTION {
                continue;
            }
            let message = core.scratch[..len].to_vec();
            self.question(core, Asker::Datagram(id, flow), guest.ip(), message);
        }
        true
    }

    /// Questions on connections, which `tcp/` has read.
    pub(crate) fn take_questions(&mut self, core: &mut Core) {
        while let Some((flow, guest, message)) = core.questions.pop_front() {
            self.question(core, Asker::Connection(flow), guest, message);
        }
    }

    fn question(&mut self, core: &mut Core, asker: Asker, guest: IpAddr, message: Vec<u8>) {
        match core.gateway.question(core.time(), guest, &message) {
            Question::Answer(answer) => asker.tell(core, &answer),
            Question::Ignore => asker.tell(core, &[]),
            Question::Forward(id) => self.begin(core, asker, id, message),
        }
    }

    fn begin(&mut self, core: &mut Core, asker: Asker, id: QuestionId, message: Vec<u8>) {
        let tries = Tries::new(core.name_servers(), core.time());
        let at = self.asked.insert(Asked { id, asker, message, tries, exchanges: Vec::new() });
        self.look(core, at);
    }

    /// Sends the question to the servers that are due, and gives up one that has taken too long.
    fn look(&mut self, core: &mut Core, at: usize) {
        let time = core.time();
        let Some(one) = self.asked.get_mut(at) else { return };
        let over_tcp = matches!(one.asker, Asker::Connection(_));
        one.exchanges.iter_mut().for_each(|exchange| exchange.repeat(&one.message, time));
        while let Some(server) = one.tries.poll_server(time) {
            match Exchange::begin(server, &one.message, over_tcp, time) {
                Ok(exchange) => {
                    one.exchanges.push(exchange);
                    core.is_changed = true;
                }
                Err(_) => one.tries.failed(time),
            }
        }
        if one.tries.is_over(time) {
            let one = self.asked.remove(at);
            core.gateway.give_up(one.id);
            one.asker.tell(core, &one.tries.last_answer(&one.message));
        }
    }

    /// The caller's loop has seen something at a question's sockets.
    pub(crate) fn on_ready(&mut self, core: &mut Core, at: usize) {
        let Some(one) = self.asked.get_mut(at) else { return };
        let mut good = None;
        let time = Duration::from_nanos(core.now.as_nanos());
        one.exchanges.retain_mut(|exchange| {
            for _ in 0..TURN {
                let answer = match exchange.poll(&mut core.scratch) {
                    Ok(Some(answer)) => answer,
                    Ok(None) => return true,
                    Err(_) => {
                        one.tries.failed(time);
                        return false;
                    }
                };
                if core.gateway.reply(time, one.id, &answer) {
                    good = good.take().or(one.tries.answered(time, answer));
                    return false;
                }
                if exchange.is_stream() {
                    one.tries.failed(time);
                    return false;
                }
            }
            true
        });
        match good {
            Some(answer) => self.asked.remove(at).asker.tell(core, &answer),
            None => self.look(core, at),
        }
    }

    /// Repeats questions that are due.
    pub(crate) fn handle_timeout(&mut self, core: &mut Core) {
        let time = core.time();
        let is_due = |(at, one): (usize, &Asked)| (one.deadline() <= time).then_some(at);
        let due: Vec<usize> = self.asked.iter().filter_map(is_due).collect();
        due.into_iter().for_each(|at| self.look(core, at));
    }

    pub(crate) fn deadline(&self) -> Option<Duration> {
        self.asked.iter().map(|(_, one)| one.deadline()).min()
    }

    /// The time of a flow is over, if it is one of these. Returns whether it is.
    pub(crate) fn expire(&mut self, core: &mut Core, flow: FlowId) -> bool {
        let Some(id) = self.of_flow.remove(&flow) else { return false };
        self.guests.remove(&id);
        let is_its = |asked: &Asked| asked.asker == Asker::Datagram(id, flow);
        let gone: Vec<usize> = self.asked.iter().filter(|(_, one)| is_its(one)).map(|(at, _)| at).collect();
        for at in gone {
            core.gateway.give_up(self.asked.remove(at).id);
        }
        core.stack.close_datagram(id);
        core.closed(flow);
        true
    }

    pub(crate) fn end_all(&mut self, core: &mut Core) {
        let all: Vec<FlowId> = self.of_flow.keys().copied().collect();
        all.into_iter().for_each(|flow| _ = self.expire(core, flow));
    }

    pub(crate) fn wait(&self, all: &mut Vec<Waited>) {
        for (at, one) in &self.asked {
            all.extend(one.exchanges.iter().map(|exchange| Waited {
                fd: exchange.fd(),
                interest: exchange.interest(),
                key: Key::Asked(at),
            }));
        }
    }
}

impl Asked {
    fn deadline(&self) -> Duration {
        let again = self.exchanges.iter().map(Exchange::again_at).min();
        again.unwrap_or(Duration::MAX).min(self.tries.deadline())
    }
}

impl Asker {
    /// Gives it the answer; none is an empty one.
    fn tell(self, core: &mut Core, answer: &[u8]) {
        match self {
            Self::Datagram(..) if answer.is_empty() => {}
            Self::Datagram(guest, flow) => {
                // Without room it is lost, as any datagram, and the guest repeats its question.
                if core.stack.send_datagram(core.now, guest, None, answer, &SendMeta::default()).is_ok() {
                    core.gateway.datagrams_passed(core.time(), flow, Side::Upstream, 1, answer.len());
                }
            }
            Self::Connection(flow) => core.answers.push_back((flow, answer.to_vec())),
        }
    }
}
