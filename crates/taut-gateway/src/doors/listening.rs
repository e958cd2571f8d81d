//! At which ports a guest listens. For TCP, by the tables of its namespace (`/proc/PID/net/tcp`,
//! proc_net_tcp(5)); for UDP, by the kernel's list of its sockets (`sock_diag.rs`). Either is opened once and
//! read again and again, so that a confined gateway can read it, also when that process has ended.
//!
//! A port at which the guest listens on its loopback alone counts where ports lead there (`loopback.rs`).

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::fs::File;
use std::io::{self, Read as _, Seek as _};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::time::Duration;

use taut::{FlowKind, Stack};

use crate::doors::client_address::ClientAddress;
use crate::doors::forward::Forward;
use crate::doors::loopback::ForwardTarget;
use crate::doors::sock_diag::{self, MOST, is_reached};
use crate::logic::event::Event;
use crate::run::server::Server;

/// How often is looked.
const EVERY: Duration = Duration::from_millis(500);
/// A table is read up to here. A line has 150 bytes, and the kernel writes sockets that listen first, so a
/// guest with very many connections costs no more.
const LONGEST: u64 = 1 << 20;

/// The ports at which a namespace's programs listen.
#[derive(Debug)]
pub struct Listening(Source);

#[derive(Debug)]
enum Source {
    /// The tables of TCP sockets.
    Tcp(Vec<File>),
    /// Where the kernel is asked for UDP sockets.
    Udp(OwnedFd),
}

impl Listening {
    /// TCP's, by the tables of a process's network namespace.
    ///
    /// # Errors
    /// There is no such process.
    pub(crate) fn tcp(process: u32) -> io::Result<Self> {
        let open = |table: &str| File::open(format!("/proc/{process}/net/{table}"));
        let v4 = open("tcp")?;
        // A kernel without IPv6 has no second one.
        Ok(Self(Source::Tcp(std::iter::once(v4).chain(open("tcp6").ok()).collect())))
    }

    /// UDP's, by a socket of [`sock_diag::open`] in the namespace.
    pub(crate) const fn udp(socket: OwnedFd) -> Self {
        Self(Source::Udp(socket))
    }

    const fn kind(&self) -> FlowKind {
        match self.0 {
            Source::Tcp(_) => FlowKind::Tcp,
            Source::Udp(_) => FlowKind::Udp,
        }
    }

    /// The ports of listeners that can be reached from outside or, `by_loopback`, at the guest's own
    /// 127.0.0.1 or ::1.
    ///
    /// # Errors
    /// The kernel does not tell.
    pub async fn ports(&mut self, by_loopback: bool) -> io::Result<BTreeSet<u16>> {
        match &mut self.0 {
            Source::Tcp(tables) => of_tables(tables, by_loopback),
            Source::Udp(socket) => sock_diag::ports(socket, by_loopback).await,
        }
    }
}

fn of_tables(tables: &mut [File], by_loopback: bool) -> io::Result<BTreeSet<u16>> {
    let mut text = String::new();
    for table in tables {
        table.rewind()?;
        table.take(LONGEST).read_to_string(&mut text)?;
    }
    Ok(ports(&text, by_loopback))
}

fn ports(text: &str, by_loopback: bool) -> BTreeSet<u16> {
    const LISTEN: &str = "0A";
    let port = |line: &str| {
        let mut words = line.split_whitespace().skip(1);
        let (own, state) = (words.next()?, words.nth(1)?);
        let (address, port) = own.split_once(':')?;
        let is_open = state == LISTEN && address_of(address).is_some_and(|own| is_reached(own, by_loopback));
        u16::from_str_radix(port, 16).ok().filter(|_| is_open)
    };
    text.lines().filter_map(port).take(MOST).collect()
}

/// An address as the tables have it: words of 32 bits in the order of this processor, in hexadecimal digits.
fn address_of(text: &str) -> Option<IpAddr> {
    let words = (0..text.len()).step_by(8).map(|at| {
        let word = text.get(at..at + 8).and_then(|word| u32::from_str_radix(word, 16).ok());
        word.map(u32::to_ne_bytes)
    });
    let octets = words.collect::<Option<Vec<_>>>()?.concat();
    let v4 = <[u8; 4]>::try_from(&octets[..]).map(IpAddr::from);
    v4.or_else(|_| <[u8; 16]>::try_from(&octets[..]).map(IpAddr::from)).ok()
}

impl Server {
    /// Opens each port at which the guest listens at these addresses of the host, under the same number, for
    /// as long as the guest listens and the result is polled. A port that cannot be opened is logged once.
    pub async fn forward_listening(
        &self,
        stack: &Stack,
        guest: &ForwardTarget,
        hosts: &[IpAddr],
        (mut listening, client): (Listening, ClientAddress),
    ) -> io::Result<Infallible> {
        let kind = listening.kind();
        let mut open: BTreeMap<SocketAddr, Option<tokio::task::AbortHandle>> = BTreeMap::new();
        // What is left in it ends with this future.
        let mut tasks = tokio::task::JoinSet::new();
        loop {
            let wanted = listening.ports(guest.loopback.is_some()).await?;
            open.retain(|at, task| {
                let stays =
                    wanted.contains(&at.port()) && task.as_ref().is_none_or(|task| !task.is_finished());
                if !stays && let Some(task) = task {
                    task.abort();
                }
                stays
            });
            while tasks.try_join_next().is_some() {}
            for at in wanted.iter().flat_map(|port| hosts.iter().map(|host| SocketAddr::new(*host, *port))) {
                if matches!(open.get(&at), Some(Some(_))) {
                    continue;
                }
                match self.forward_port(
                    stack,
                    guest.clone(),
                    Forward { kind, at, guest: None, port: at.port(), is_any: false, client },
                ) {
                    Ok(forward) => drop(open.insert(at, Some(tasks.spawn(forward)))),
                    Err(error) => {
                        // It is tried again, without a word: whoever has the port may end.
                        if open.insert(at, None).is_none() {
                            let why = error.to_string();
                            self.with(|gateway, _| gateway.note(Event::CannotForward { at, why }));
                        }
                    }
                }
            }
            tokio::time::sleep(EVERY).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn gw_61_ports_of_the_kernels_tables() {
        // Lines of a kernel 6.12 on x86-64.
        let text = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
           0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1 1 0 100 0 0 10 0\n\
           1: 00000000:1F91 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1 1 0 100 0 0 10 0\n\
           2: 0F02000A:1F92 016433C6:0050 01 00000000:00000000 00:00000000 00000000     0        0 1 1 0 100 0 0 10 0\n\
           3: 0F02000A:0016 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1 1 0 100 0 0 10 0\n\
           0: 00000000000000000000000001000000:1F93 00000000000000000000000000000000:0000 0A 0 0 0 0 0 0\n\
           1: 00000000000000000000000000000000:1F94 00000000000000000000000000000000:0000 0A 0 0 0 0 0 0\n\
           2: 0000000000000000FFFF00000100007F:1F95 00000000000000000000000000000000:0000 0A 0 0 0 0 0 0\n\
           damaged\n 1: x:y z 0A\n 1: 0000000g:1F96 0:0 0B\n";
        let expected = if cfg!(target_endian = "little") { vec![22, 8081, 8084] } else { return };
        assert_eq!(ports(text, false).into_iter().collect::<Vec<_>>(), expected);
        let many: String = (1..3_000).map(|port| format!("0: 00000000:{port:04X} 0:0 0A\n")).collect();
        assert_eq!(ports(&many, false).len(), MOST);
        // This process's own namespace: what is opened later is seen by the descriptor that was opened
        // before.
        let mut own = Listening::tcp(std::process::id()).unwrap();
        let listener = TcpListener::bind("0.0.0.0:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        assert!(own.ports(false).await.unwrap().contains(&port));
        // Bound before the first one's port is free.
        let other = TcpListener::bind("0.0.0.0:0").unwrap();
        drop(listener);
        let ports = own.ports(false).await.unwrap();
        assert!(!ports.contains(&port) && ports.contains(&other.local_addr().unwrap().port()));
    }
}
