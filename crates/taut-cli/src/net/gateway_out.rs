//! `taut gateway --out`: the way that flows leave this host. Called by `gateway.rs`.

use std::net::ToSocketAddrs as _;
use std::str::FromStr;

use taut_gateway::{HttpConnect, Socks5};

/// Where flows go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Out {
    Socks5(Socks5),
    Http(HttpConnect),
    Tun(String),
}

impl FromStr for Out {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text} is not socks5://HOST:PORT, http://HOST:PORT or tun:NAME");
        if let Some(name) = text.strip_prefix("tun:") {
            return if name.is_empty() { Err(wrong()) } else { Ok(Self::Tun(name.to_owned())) };
        }
        let resolve = |place: &str| {
            let place = place.strip_suffix('/').unwrap_or(place);
            let mut found = place.to_socket_addrs().map_err(|error| format!("{place}: {error}"))?;
            found.next().ok_or_else(wrong)
        };
        if let Some(place) = text.strip_prefix("socks5://") {
            if place.contains('@') {
                return Err("a login on the command line can be read by every user of this machine; \
                            write NAME:PASSWORD into a file, and name it with --out-login"
                    .to_owned());
            }
            return Ok(Self::Socks5(Socks5 { proxy: resolve(place)?, login: None }));
        }
        let place = text.strip_prefix("http://").ok_or_else(wrong)?;
        Ok(Self::Http(HttpConnect { proxy: resolve(place)? }))
    }
}
