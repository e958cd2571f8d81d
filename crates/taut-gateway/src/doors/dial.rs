//! How a client of a proxy gets its connection: its name is looked up for both families at once, and the
//! addresses are raced (RFC 8305): in the order of RFC 6724 with the families in turn, each a quarter of a
//! second after the one before or as soon as that one has failed. The first that is connected stays, the
//! others end. Called by `proxy.rs`.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

use taut::FlowKind;
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, sleep_until};

use crate::doors::proxy::Client;
use crate::doors::request::Destination;
use crate::logic::admission::Admission;
use crate::logic::dns;
use crate::logic::flow::{Failure, NextStep};
use crate::logic::order::{Rank, rank};
use crate::out::way_out::{Upstream as _, WayOut, failure};
use crate::run::resolver;
use crate::run::server::{Handle, Server};

/// RFC 8305 §8, "Resolution Delay": how long addresses of IPv4 wait for those of IPv6.
const FOR_IPV6: Duration = Duration::from_millis(50);
/// RFC 8305 §8, "Connection Attempt Delay".
const APART: Duration = Duration::from_millis(250);
/// Addresses of a name that are tried, of each family.
const ADDRESSES: usize = 8;

/// Why a client has no upstream.
pub(crate) enum Unreached {
    /// It is gone.
    Left,
    Failed(Failure),
}

/// The type and the port of a lookup, and its addresses.
type Found = (u16, u16, Result<Vec<IpAddr>, Failure>);
/// The number of an attempt, its flow and its connection.
type Dialled<S> = (usize, Arc<Handle>, io::Result<S>);

struct Race<W: WayOut> {
    server: Server,
    from: SocketAddr,
    way: Arc<W>,
    lookups: JoinSet<Found>,
    /// Addresses that were not tried yet, the best first.
    queue: Vec<(Rank, SocketAddr)>,
    attempts: JoinSet<Dialled<W::Stream>>,
    begun: Vec<Weak<Handle>>,
    last_was_v4: Option<bool>,
    next_at: Instant,
    /// The reason if nothing is reached: that of the address that was tried first.
    failure: Option<(usize, Failure)>,
}

impl Server {
    /// A connection to a client's destination, or why there is none.
    pub(crate) async fn reach<C: Client, W: WayOut>(
        &self,
        (client, by_fin): (&C, bool),
        from: SocketAddr,
        to: Destination,
        way: &Arc<W>,
    ) -> Result<(W::Stream, Arc<Handle>), Unreached> {
        let mut race = Race::new(self, from, way, to);
        let mut left = pin!(client.left(by_fin));
        loop {
            if race.lookups.is_empty() && race.queue.is_empty() && race.attempts.is_empty() {
                return Err(Unreached::Failed(race.failure.map_or(Failure::HostUnreachable, |(_, why)| why)));
            }
            tokio::select! {
                () = &mut left => {
                    race.left();
                    return Err(Unreached::Left);
                }
                Some(found) = race.lookups.join_next() => race.found(found),
                Some(ended) = race.attempts.join_next() => {
                    if let Some(reached) = race.ended(ended) {
                        return Ok(reached);
                    }
                }
                () = sleep_until(race.next_at), if !race.queue.is_empty() => race.begin(),
            }
        }
    }

    /// A flow of a client, if a rule allows it and there is room, and where it goes.
    fn admit_client(&self, from: SocketAddr, to: SocketAddr) -> Option<(Handle, SocketAddr)> {
        if self.is_own_listener(to) {
            return None;
        }
        match self.admission(FlowKind::Tcp, from, to) {
            Admission::Dial(id, to) => Some((self.handle(id), to)),
            Admission::Questions(id) => {
                drop(self.handle(id));
                None
            }
            Admission::Refuse(_) | Admission::Silent => None,
        }
    }
}

/// Whether a connection to this address comes back to a listener at `own`.
fn leads_to(own: SocketAddr, to: SocketAddr) -> bool {
    let (own_ip, ip) = (own.ip().to_canonical(), to.ip().to_canonical());
    if own.port() != to.port() {
        return false;
    }
    // The kernel takes the unspecified address for its own.
    own_ip == ip || (own_ip.is_unspecified() && is_of_host(ip)) || ip.is_unspecified()
}

/// Whether this host has the address: a socket binds to no other.
fn is_of_host(ip: IpAddr) -> bool {
    std::net::UdpSocket::bind((ip, 0)).is_ok()
}

impl Server {
    /// A client that is led there would have the proxy serve itself, with new connections each time.
    fn is_own_listener(&self, to: SocketAddr) -> bool {
        self.listeners().iter().any(|own| leads_to(*own, to))
    }
}

impl<W: WayOut> Race<W> {
    fn new(server: &Server, from: SocketAddr, way: &Arc<W>, to: Destination) -> Self {
        let mut race = Self {
            server: server.clone(),
            from,
            way: Arc::clone(way),
            lookups: JoinSet::new(),
            queue: Vec::new(),
            attempts: JoinSet::new(),
            begun: Vec::new(),
            last_was_v4: None,
            next_at: Instant::now(),
            failure: None,
        };
        match to {
            // Alone, it needs no rank.
            Destination::Address(to) => race.queue.push((rank(to.ip(), None), to)),
            Destination::Name(name, port) => {
                let name: Arc<str> = name.into();
                // RFC 8305 §3: first AAAA, at once A.
                for kind in [dns::AAAA, dns::A] {
                    let (server, name) = (server.clone(), Arc::clone(&name));
                    race.lookups.spawn(async move {
                        (kind, port, resolver::addresses(server, from.ip(), name, kind).await)
                    });
                }
            }
        }
        race
    }

    fn add(&mut self, to: SocketAddr) {
        self.queue.push((rank(to.ip(), self.way.source(to)), to));
    }

    /// A name server has answered, or none has.
    fn found(&mut self, found: Result<Found, JoinError>) {
        let Ok((kind, port, found)) = found else { return };
        match found {
            Ok(all) => all.iter().take(ADDRESSES).for_each(|ip| self.add(SocketAddr::new(*ip, port))),
            Err(why) => self.failed(usize::MAX, why),
        }
        self.queue.sort_by_key(|(rank, _)| *rank);
        if self.begun.is_empty() {
            let waits = kind == dns::A && !self.lookups.is_empty();
            self.next_at = Instant::now() + if waits { FOR_IPV6 } else { Duration::ZERO };
        }
    }

    /// Tries the next address: the best one of the other family, if there is one (RFC 8305 §4).
    fn begin(&mut self) {
        let is_other = |(_, to): &(Rank, SocketAddr)| Some(to.is_ipv4()) != self.last_was_v4;
        let at = self.queue.iter().position(is_other).unwrap_or(0);
        let (_, to) = self.queue.remove(at);
        self.last_was_v4 = Some(to.is_ipv4());
        let number = self.begun.len();
        let Some((flow, to)) = self.server.admit_client(self.from, to) else {
            self.begun.push(Weak::new());
            return self.failed(number, Failure::Prohibited);
        };
        self.next_at = Instant::now() + APART;
        let (flow, way) = (Arc::new(flow), Arc::clone(&self.way));
        self.begun.push(Arc::downgrade(&flow));
        self.attempts.spawn(async move {
            let dialled = tokio::select! {
                dialled = way.connect(to) => dialled,
                () = flow.stopped() => Err(io::ErrorKind::TimedOut.into()),
            };
            (number, flow, dialled)
        });
    }

    /// An attempt has ended; if it has connected, the race is over.
    fn ended(&mut self, ended: Result<Dialled<W::Stream>, JoinError>) -> Option<(W::Stream, Arc<Handle>)> {
        self.next_at = Instant::now();
        let (number, flow, dialled) = ended.ok()?;
        match dialled {
            Ok(upstream) if flow.reached() == NextStep::Accept => return Some((upstream, flow)),
            Ok(upstream) => upstream.abort(),
            Err(error) => {
                let why = failure(&error);
                flow.failed(why);
                self.failed(number, why);
            }
        }
        None
    }

    fn failed(&mut self, number: usize, why: Failure) {
        if self.failure.is_none_or(|(before, _)| number < before) {
            self.failure = Some((number, why));
        }
    }

    /// The client has left: one line of the log for all its attempts.
    fn left(&self) {
        if let Some(flow) = self.begun.iter().rev().find_map(Weak::upgrade) {
            flow.left(self.from);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conf_31_a_listener_is_known_by_each_of_its_addresses() {
        let at = |text: &str| text.parse::<SocketAddr>().unwrap();
        for (own, to, comes_back) in [
            ("192.0.2.1:1080", "192.0.2.1:1080", true),
            ("192.0.2.1:1080", "[::ffff:192.0.2.1]:1080", true),
            ("192.0.2.1:1080", "192.0.2.1:1081", false),
            ("192.0.2.1:1080", "192.0.2.2:1080", false),
            ("0.0.0.0:1080", "127.0.0.1:1080", true),
            ("[::]:1080", "127.9.9.9:1080", true),
            ("0.0.0.0:1080", "192.0.2.1:1080", false),
            ("127.0.0.1:1080", "0.0.0.0:1080", true),
        ] {
            assert_eq!(leads_to(at(own), at(to)), comes_back, "{own} {to}");
        }
    }
}
