//! A tunnel's state, as `wg show` prints it (wg(8)), and what was dropped and why. Filled by the device.

use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use taut_device::Cidr;

use crate::key::PublicKey;

/// A tunnel at a point in time.
#[derive(Clone, Debug)]
pub struct Status {
    /// This end's identity.
    pub public_key: PublicKey,
    /// UDP port of this end.
    pub port: u16,
    /// The other ends.
    pub peers: Vec<PeerStatus>,
    /// Counts of drops.
    pub drops: Drops,
}

/// A far end at a point in time.
#[derive(Clone, Debug)]
pub struct PeerStatus {
    /// Its identity.
    pub public_key: PublicKey,
    /// Where it is, if that is known.
    pub endpoint: Option<SocketAddr>,
    /// Networks behind it.
    pub allowed_ips: Vec<Cidr>,
    /// Time since the last handshake.
    pub since_handshake: Option<Duration>,
    /// Bytes of UDP's payload received from it.
    pub rx_bytes: u64,
    /// Bytes of UDP's payload sent to it.
    pub tx_bytes: u64,
    /// Silence after which it is sent an empty packet.
    pub persistent_keepalive: Option<Duration>,
    /// Largest inner packet on the path to it.
    pub mtu: u16,
}

/// How many datagrams or packets were dropped, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drops {
    /// Not WireGuard, truncated, or not authentic.
    pub invalid: u64,
    /// Here before, or too old.
    pub replayed: u64,
    /// For no peer of this end, or of none.
    pub stranger: u64,
    /// Inner source not in the peer's AllowedIPs.
    pub source: u64,
    /// Marked on the way, though the inner packet takes no marks (RFC 6040 §4.2).
    pub congestion: u64,
    /// Handshakes under load that were answered by a cookie.
    pub cookies: u64,
    /// Packets larger than the path; the stack got an ICMP error.
    pub too_big: u64,
    /// Datagrams that the system did not send.
    pub unsent: u64,
}

/// A counter that both halves of a device may use.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// [`Drops`], as they grow.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) invalid: Counter,
    pub(crate) replayed: Counter,
    pub(crate) stranger: Counter,
    pub(crate) source: Counter,
    pub(crate) congestion: Counter,
    pub(crate) cookies: Counter,
    pub(crate) too_big: Counter,
    pub(crate) unsent: Counter,
}

impl Counters {
    pub(crate) fn read(&self) -> Drops {
        Drops {
            invalid: self.invalid.get(),
            replayed: self.replayed.get(),
            stranger: self.stranger.get(),
            source: self.source.get(),
            congestion: self.congestion.get(),
            cookies: self.cookies.get(),
            too_big: self.too_big.get(),
            unsent: self.unsent.get(),
        }
    }
}

/// Bytes in the unit that leaves a number above 1, with two digits: `wg`'s `bytes()`.
fn bytes(count: u64) -> String {
    const KIB: f64 = 1024.0;
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    if count < 1024 {
        return format!("{count} B");
    }
    let mut value = count as f64 / KIB;
    let mut units = UNITS.iter();
    let mut unit = units.next().unwrap_or(&"KiB");
    while value >= KIB
        && let Some(next) = units.next()
    {
        (value, unit) = (value / KIB, next);
    }
    format!("{value:.2} {unit}")
}

/// Days, hours, minutes and seconds, without those that are zero: `wg`'s `ago()`.
fn time(span: Duration) -> String {
    const UNITS: [(u64, &str); 4] = [(86_400, "day"), (3_600, "hour"), (60, "minute"), (1, "second")];
    let mut left = span.as_secs();
    let mut parts = Vec::new();
    for (length, name) in UNITS {
        let count = left / length;
        left %= length;
        if count > 0 {
            parts.push(format!("{count} {name}{}", if count == 1 { "" } else { "s" }));
        }
    }
    parts.join(", ")
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "  public key: {}", self.public_key)?;
        writeln!(f, "  private key: (hidden)")?;
        writeln!(f, "  listening port: {}", self.port)?;
        for peer in &self.peers {
            write!(f, "\n{peer}")?;
        }
        Ok(())
    }
}

impl fmt::Display for PeerStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "peer: {}", self.public_key)?;
        if let Some(endpoint) = self.endpoint {
            writeln!(f, "  endpoint: {endpoint}")?;
        }
        let allowed: Vec<_> = self.allowed_ips.iter().map(|cidr| cidr.network().to_string()).collect();
        writeln!(
            f,
            "  allowed ips: {}",
            if allowed.is_empty() { "(none)".to_owned() } else { allowed.join(", ") }
        )?;
        match self.since_handshake {
            Some(since) if since.as_secs() == 0 => writeln!(f, "  latest handshake: Now")?,
            Some(since) => writeln!(f, "  latest handshake: {} ago", time(since))?,
            None => {}
        }
        if self.rx_bytes > 0 || self.tx_bytes > 0 {
            writeln!(f, "  transfer: {} received, {} sent", bytes(self.rx_bytes), bytes(self.tx_bytes))?;
        }
        if let Some(every) = self.persistent_keepalive {
            writeln!(f, "  persistent keepalive: every {}", time(every))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The format of wg(8): `wg show` of a tunnel with one peer.
    #[test]
    fn wg_14_the_text_is_that_of_wg_show() {
        let key: PublicKey = "hSDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbTmo=".parse().unwrap();
        let peer = PeerStatus {
            public_key: key,
            endpoint: Some("192.0.2.1:51820".parse().unwrap()),
            allowed_ips: vec!["10.192.122.3/32".parse().unwrap(), "10.192.124.1/24".parse().unwrap()],
            since_handshake: Some(Duration::from_secs(3_661)),
            rx_bytes: 1_536,
            tx_bytes: 5 << 20,
            persistent_keepalive: Some(Duration::from_secs(25)),
            mtu: 1420,
        };
        let status = Status { public_key: key, port: 51820, peers: vec![peer], drops: Drops::default() };
        let expected = "  public key: hSDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbTmo=
  private key: (hidden)
  listening port: 51820

peer: hSDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbTmo=
  endpoint: 192.0.2.1:51820
  allowed ips: 10.192.122.3/32, 10.192.124.0/24
  latest handshake: 1 hour, 1 minute, 1 second ago
  transfer: 1.50 KiB received, 5.00 MiB sent
  persistent keepalive: every 25 seconds
";
        assert_eq!(status.to_string(), expected);
    }
}
