//! A network interface of the kernel: its state, MTU, queue length, addresses, routes.

use std::io;
use std::net::IpAddr;
use std::thread;
use std::time::Duration;

use crate::cidr::Cidr;
use crate::netlink::{KernelQdisc, Link, LinkChange, Netlink};

/// An interface in the network namespace where it was opened; any thread may use it afterwards.
#[derive(Debug)]
pub struct Interface {
    netlink: Netlink,
    name: String,
    index: u32,
}

impl Interface {
    /// The interface with that name in the namespace of this thread.
    ///
    /// # Errors
    /// When there is no interface with that name.
    pub fn open(name: &str) -> io::Result<Self> {
        let netlink = Netlink::open()?;
        let index = netlink.index_of(name).map_err(|error| with_context(name, "look up", &error))?;
        Ok(Self { netlink, name: name.to_owned(), index })
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its index.
    #[must_use]
    pub const fn index(&self) -> u32 {
        self.index
    }

    /// Brings it up.
    ///
    /// # Errors
    /// Without `CAP_NET_ADMIN`.
    pub fn set_up(&self) -> io::Result<()> {
        self.change("bring up", LinkChange::Up)
    }

    /// Waits until packets can pass: it is up, its carrier is on, and its queue discipline takes packets. The
    /// kernel does the last steps of [`set_up`](Self::set_up) on a work queue where the carrier comes on
    /// later than the interface, as that of a virtual Ethernet pair, and drops packets until then. Returns
    /// whether that happened within `limit`; without a peer, the carrier of some interfaces never comes.
    ///
    /// # Errors
    /// When the interface is gone.
    pub fn wait_until_running(&self, limit: Duration) -> io::Result<bool> {
        look_until(limit, || Ok(self.link()?.is_running))
    }

    /// What it is.
    pub(crate) fn link(&self) -> io::Result<Link> {
        self.netlink.link(self.index).map_err(|error| with_context(&self.name, "look at", &error))
    }

    /// Whether every packet that leaves passes a queue discipline `fq`, which holds it until its departure
    /// time: it is the root, or each queue of the interface has one.
    ///
    /// # Errors
    /// When the interface is gone.
    pub fn paces(&self) -> io::Result<bool> {
        let qdiscs = self.netlink.qdiscs(self.index);
        Ok(paces(&qdiscs.map_err(|error| with_context(&self.name, "look at the queues of", &error))?))
    }

    /// Bytes that wait in the interface's root queue discipline.
    ///
    /// # Errors
    /// When the interface is gone.
    pub fn backlog_bytes(&self) -> io::Result<u64> {
        let qdiscs = self.netlink.qdiscs(self.index);
        let qdiscs = qdiscs.map_err(|error| with_context(&self.name, "look at the queues of", &error))?;
        Ok(qdiscs.iter().find(|qdisc| qdisc.is_root).map_or(0, |root| root.backlog_bytes))
    }

    /// Whether no queue discipline in the way out cuts super-packets, as `tbf` does. One that is not known
    /// may.
    pub(crate) fn keeps_super_packets(&self) -> io::Result<bool> {
        let qdiscs = self.netlink.qdiscs(self.index);
        let qdiscs = qdiscs.map_err(|error| with_context(&self.name, "look at the queues of", &error))?;
        Ok(keep_super_packets(&qdiscs))
    }

    /// Takes it down.
    ///
    /// # Errors
    /// Without `CAP_NET_ADMIN`.
    pub fn set_down(&self) -> io::Result<()> {
        self.change("take down", LinkChange::Down)
    }

    /// Sets the MTU, in bytes.
    ///
    /// # Errors
    /// Without `CAP_NET_ADMIN`, or when the interface cannot have that MTU.
    pub fn set_mtu(&self, bytes: u32) -> io::Result<()> {
        self.change(&format!("set an MTU of {bytes} bytes on"), LinkChange::Mtu(bytes))
    }

    /// Sets the number of packets that may wait for transmission; for TUN, that wait to be read by the
    /// process.
    ///
    /// # Errors
    /// Without `CAP_NET_ADMIN`.
    pub fn set_txqueuelen(&self, packets: u32) -> io::Result<()> {
        self.change("set the queue length of", LinkChange::TxQueueLen(packets))
    }

    /// Gives the kernel an address on this interface, usable without duplicate address detection; the prefix
    /// becomes reachable through it. Nothing changes if the address is already there. The route of a new IPv6
    /// address comes from a work queue of the kernel, which answers earlier packets with "no route"; of an
    /// interface that is up, this waits for it, for at most a second.
    ///
    /// # Errors
    /// Without `CAP_NET_ADMIN`, or when the kernel does not support the address family.
    pub fn add_address(&self, address: Cidr) -> io::Result<()> {
        const LIMIT: Duration = Duration::from_secs(1);
        let add = || {
            self.netlink.add_address(self.index, address)?;
            if address.address().is_ipv6() && self.netlink.link(self.index)?.is_up {
                look_until(LIMIT, || self.netlink.is_local(self.index, address.address()))?;
            }
            Ok(())
        };
        add().map_err(|error| with_context(&self.name, &format!("give {address} to"), &error))
    }

    /// Routes packets for `to` through this interface, by the gateway `via` if it is given. The interface
    /// must be up.
    ///
    /// # Errors
    /// Without `CAP_NET_ADMIN`, or when the gateway is not reachable.
    pub fn add_route(&self, to: Cidr, via: Option<IpAddr>) -> io::Result<()> {
        self.netlink
            .add_route(self.index, to, via)
            .map_err(|error| with_context(&self.name, &format!("route {to} through"), &error))
    }

    /// Deletes the interface, and if it is one of a pair, also the other one.
    ///
    /// # Errors
    /// Without `CAP_NET_ADMIN`, or for an interface that cannot be deleted.
    pub fn delete(self) -> io::Result<()> {
        self.netlink.delete_link(self.index).map_err(|error| with_context(&self.name, "delete", &error))
    }

    fn change(&self, what: &str, change: LinkChange) -> io::Result<()> {
        self.netlink.change_link(self.index, change).map_err(|error| with_context(&self.name, what, &error))
    }
}

/// Whether something is so within `limit`.
fn look_until(limit: Duration, mut is_so: impl FnMut() -> io::Result<bool>) -> io::Result<bool> {
    const LOOK_EVERY: Duration = Duration::from_micros(500);
    let mut waits = limit.as_micros() / LOOK_EVERY.as_micros();
    loop {
        if is_so()? {
            return Ok(true);
        }
        if waits == 0 {
            return Ok(false);
        }
        waits -= 1;
        thread::sleep(LOOK_EVERY);
    }
}

fn with_context(name: &str, what: &str, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("cannot {what} interface {name}: {error}"))
}

/// Whether packets that pass these queue disciplines are held until their departure time. `mq` only divides
/// an interface into its queues, each with a discipline of its own.
fn paces(qdiscs: &[KernelQdisc]) -> bool {
    let Some(root) = qdiscs.iter().find(|qdisc| qdisc.is_root) else { return false };
    let mut below = qdiscs.iter().filter(|qdisc| !qdisc.is_root).peekable();
    match root.kind.as_str() {
        "fq" => true,
        "mq" => below.peek().is_some() && below.all(|qdisc| qdisc.kind == "fq"),
        _ => false,
    }
}

/// Whether these queue disciplines pass super-packets on as they are.
fn keep_super_packets(qdiscs: &[KernelQdisc]) -> bool {
    const KEEP: [&str; 9] =
        ["noqueue", "mq", "fq", "fq_codel", "pfifo_fast", "pfifo", "bfifo", "pfifo_head_drop", "codel"];
    qdiscs.iter().all(|qdisc| KEEP.contains(&qdisc.kind.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Queue disciplines of these kinds, the root first.
    fn qdiscs(kinds: &[&str]) -> Vec<KernelQdisc> {
        let qdisc = |(at, kind): (usize, &&str)| KernelQdisc {
            is_root: at == 0,
            kind: (*kind).to_owned(),
            backlog_bytes: 0,
        };
        kinds.iter().enumerate().map(qdisc).collect()
    }

    #[test]
    fn super_packets_are_cut_where_a_discipline_does_or_may_do_so() {
        for (kinds, expected) in [
            (&["fq"][..], true),
            (&["mq", "fq_codel", "fq_codel"], true),
            (&["noqueue"], true),
            (&[], true),
            (&["tbf"], false),
            (&["mq", "fq", "tbf"], false),
            (&["netem"], false),
            (&["an_unknown_one"], false),
        ] {
            assert_eq!(keep_super_packets(&qdiscs(kinds)), expected, "{kinds:?}");
        }
    }

    #[test]
    fn only_fq_everywhere_paces() {
        for (kinds, expected) in [
            (&["fq"][..], true),
            (&["mq", "fq", "fq"], true),
            (&["mq", "fq", "fq_codel"], false),
            (&["mq"], false),
            (&["tbf", "fq"], false),
            (&["fq_codel"], false),
            (&["noqueue"], false),
            (&[], false),
        ] {
            assert_eq!(paces(&qdiscs(kinds)), expected, "{kinds:?}");
        }
    }
}
