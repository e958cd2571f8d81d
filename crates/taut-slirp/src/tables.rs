//! Tables for people, in the form of libslirp's: QEMU shows them (`info usernet`), and programs read them.

use std::fmt::Write as _;
use std::net::SocketAddr;

use crate::engine::Engine;
use crate::forward::At;

impl Engine {
    /// Forwarded ports, connections, flows of UDP and pings.
    pub(crate) fn connection_info(&self) -> String {
        let mut table =
            String::from("  Protocol[State]    FD  Source Address  Port   Dest. Address  Port RecvQ SendQ\n");
        for (at, fd, guest) in self.forwards.rows() {
            match at {
                At::Tcp(at) => line(&mut table, "TCP[HOST_FORWARD]", fd, *at, guest, 0),
                At::Udp(at) => line(&mut table, "UDP[HOST_FORWARD]", fd, *at, guest, 0),
                At::Unix(path) => {
                    let (ip, port) = (guest.ip().to_string(), guest.port());
                    let path = path.display().to_string();
                    _ = writeln!(
                        table,
                        "  {:<17} {fd:3} {path:>15}     0 {ip:>15} {port:5}     0     0",
                        "UNIX[HOST_FORWARD]"
                    );
                }
            }
        }
        for row in self.tcp.rows(&self.core) {
            line(&mut table, &format!("TCP[{}]", row.state), row.fd, row.from, row.to, row.queued);
        }
        for (fd, from, to) in self.udp.rows() {
            line(&mut table, "UDP", fd, from, to, 0);
        }
        for (fd, from, to) in self.pings.rows() {
            line(&mut table, "ICMP", fd, from, to, 0);
        }
        table
    }

    /// The neighbours on the link.
    pub(crate) fn neighbor_info(&self) -> String {
        let mut table = format!("  {:5}  {:<17}  {}\n", "Table", "MacAddr", "IP Address");
        for (ip, station) in self.link.stations() {
            let name = if ip.is_ipv4() { "ARP" } else { "NDP" };
            _ = writeln!(table, "  {name:5}  {:<17}  {ip}", station.to_string());
        }
        table
    }
}

fn line(table: &mut String, name: &str, fd: i32, from: SocketAddr, to: SocketAddr, queued: usize) {
    // libslirp shows every address as a star.
    let ip = |at: SocketAddr| if at.ip().is_unspecified() { "*".to_owned() } else { at.ip().to_string() };
    let (source, target) = (ip(from), ip(to));
    let (from, to) = (from.port(), to.port());
    _ = writeln!(table, "  {name:<17} {fd:3} {source:>15} {from:5} {target:>15} {to:5} {:5} {queued:5}", 0);
}
