//! Names in calls such as `connect`, and where they are looked up.
//!
//! By default the system looks a name up, as for std's and tokio's sockets. For a stack behind a tunnel that
//! is a leak: the system's questions leave outside, with every name. [`StackBuilder::resolver`] sends them to
//! other name servers over the stack itself, or nowhere.
//!
//! ```no_run
//! use taut::dns::Resolver;
//!
//! # fn example(device: taut::device::Device) -> std::io::Result<()> {
//! let servers = vec!["10.64.0.1:53".parse().unwrap()];
//! let builder = taut::Stack::builder().device(device).address("10.64.0.2/32");
//! let stack = builder.resolver(Resolver::Servers(servers)).build()?;
//! let stream = taut::blocking::TcpStream::connect(&stack, "www.example.com:443")?;
//! # Ok(()) }
//! ```
//!
//! [`StackBuilder::resolver`]: crate::StackBuilder::resolver

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

/// Where a stack looks names up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Resolver {
    /// The system, as `std::net` does: by its own sockets, outside the stack.
    #[default]
    System,
    /// These name servers, over the stack; if the list is empty, those from DHCP and router advertisements
    /// ([`Stack::name_servers`](crate::Stack::name_servers)). The questions are for both families, as far as
    /// the stack has addresses of them, and go to the next server after two seconds without an answer, or
    /// with one that is an error; to all of them twice. A long answer is fetched over TCP. No hosts file is
    /// read, and no search domain is added.
    #[cfg(feature = "dns")]
    Servers(Vec<SocketAddr>),
    /// Nowhere: a name is an error.
    Nowhere,
}

/// The argument of a call: addresses, or a name with a port. Made from what std's `ToSocketAddrs` takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target(pub(crate) Kind);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Address(SocketAddr),
    Addresses(Vec<SocketAddr>),
    Name(String, u16),
    /// Neither an address nor a name with a port.
    Wrong(String),
}

/// Calls `attempt` with one address after the other, until it succeeds; else the last error.
pub(crate) fn first_of<T>(
    addresses: Vec<SocketAddr>,
    mut attempt: impl FnMut(SocketAddr) -> io::Result<T>,
) -> io::Result<T> {
    let mut last = io::Error::new(io::ErrorKind::InvalidInput, "no address");
    for address in addresses {
        match attempt(address) {
            Ok(done) => return Ok(done),
            Err(error) => last = error,
        }
    }
    Err(last)
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::Address(address) => address.fmt(f),
            Kind::Addresses(addresses) => {
                let all: Vec<String> = addresses.iter().map(SocketAddr::to_string).collect();
                f.write_str(&all.join(", "))
            }
            Kind::Name(host, port) => write!(f, "{host}:{port}"),
            Kind::Wrong(text) => f.write_str(text),
        }
    }
}

impl From<&str> for Target {
    fn from(text: &str) -> Self {
        if let Ok(address) = text.parse::<SocketAddr>() {
            return address.into();
        }
        let named = text.rsplit_once(':').and_then(|(host, port)| Some((host, port.parse().ok()?)));
        match named {
            Some((host, port)) if !host.is_empty() && !host.contains(':') => {
                Self(Kind::Name(host.into(), port))
            }
            _ => Self(Kind::Wrong(text.into())),
        }
    }
}

impl From<(&str, u16)> for Target {
    fn from((host, port): (&str, u16)) -> Self {
        match host.parse::<IpAddr>() {
            Ok(address) => SocketAddr::new(address, port).into(),
            Err(_) => Self(Kind::Name(host.into(), port)),
        }
    }
}

macro_rules! targets {
    ($($from:ty, $name:ident => $into:expr;)*) => {
        $(impl From<$from> for Target {
            fn from($name: $from) -> Self {
                $into
            }
        })*
    };
}

targets! {
    SocketAddr, address => Self(Kind::Address(address));
    &SocketAddr, address => Self(Kind::Address(*address));
    SocketAddrV4, address => SocketAddr::V4(address).into();
    SocketAddrV6, address => SocketAddr::V6(address).into();
    (IpAddr, u16), pair => SocketAddr::from(pair).into();
    (Ipv4Addr, u16), pair => SocketAddr::from(pair).into();
    (Ipv6Addr, u16), pair => SocketAddr::from(pair).into();
    &[SocketAddr], addresses => Self(Kind::Addresses(addresses.to_vec()));
    Vec<SocketAddr>, addresses => Self(Kind::Addresses(addresses));
    String, text => text.as_str().into();
    &String, text => text.as_str().into();
    (String, u16), pair => (pair.0.as_str(), pair.1).into();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dns_1_what_a_call_is_for() {
        let name = |host: &str, port| Target(Kind::Name(host.into(), port));
        let address = |text: &str| Target(Kind::Address(text.parse().unwrap()));
        assert_eq!(Target::from("192.0.2.1:80"), address("192.0.2.1:80"));
        assert_eq!(Target::from("[2001:db8::1]:80"), address("[2001:db8::1]:80"));
        assert_eq!(Target::from("example.com:80".to_owned()), name("example.com", 80));
        assert_eq!(Target::from(("2001:db8::1", 80)), address("[2001:db8::1]:80"));
        assert_eq!(Target::from(("example.com", 80)), name("example.com", 80));
        assert_eq!(Target::from((Ipv4Addr::LOCALHOST, 7)), address("127.0.0.1:7"));
        for wrong in
            ["example.com", "example.com:", "example.com:65536", ":80", "2001:db8::1", "2001:db8::1:80", ""]
        {
            assert_eq!(Target::from(wrong), Target(Kind::Wrong(wrong.into())), "{wrong}");
        }
    }
}
