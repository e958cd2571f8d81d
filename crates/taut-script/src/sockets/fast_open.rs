//! TCP Fast Open as sockets have it: `sendto` and `sendmsg` with `MSG_FASTOPEN`, which connect and write in
//! one call; `TCP_FASTOPEN_CONNECT`, with which `connect` returns before anything is sent; and the options of
//! a listener. The rules are those of Linux 6.18 (tcp(7), ip-sysctl), in our own words. Called by the runner,
//! and by `options.rs`.
//!
//! | call | without a cookie | with one |
//! |---|---|---|
//! | `MSG_FASTOPEN`, does not block | `EINPROGRESS`; the SYN asks for a cookie | what the SYN has room for |
//! | `MSG_FASTOPEN`, blocks | the handshake, then the write | the SYN carries data; it returns after the handshake, with the rest written |
//! | `connect` with the option | as without it; the SYN asks for a cookie | 0 at once; the first write does as `MSG_FASTOPEN` |

use std::net::SocketAddr;

use taut_core::{FastOpenKeys, State};

use super::{Called, Kind, OptValue, Sockets, Stop, fails};
use crate::constants::constant;

/// The options, by their names.
pub(super) const OPTIONS: [&str; 4] =
    ["TCP_FASTOPEN", "TCP_FASTOPEN_CONNECT", "TCP_FASTOPEN_NO_COOKIE", "TCP_FASTOPEN_KEY"];

impl Sockets {
    /// `sendto` and `sendmsg` with an address, which counts only with `MSG_FASTOPEN`. Otherwise as
    /// [`write`](Self::write).
    ///
    /// # Errors
    /// As `send(2)`. When it blocks, `done` says how far it came.
    pub(crate) fn send_to(
        &mut self,
        fd: i32,
        to: Option<SocketAddr>,
        len: usize,
        flags: i64,
        done: &mut usize,
        again: bool,
    ) -> Called<usize> {
        let bit = constant("MSG_FASTOPEN").unwrap_or(0);
        if flags & bit == 0 {
            return self.write(fd, len, flags, done);
        }
        if !again {
            self.connect_to_write(fd, to)?;
        }
        let waits = flags & constant("MSG_DONTWAIT").unwrap_or(0) == 0 && !self.is_nonblocking(fd);
        if self.is_connecting(fd) && !self.awaits_first_write(fd) && *done == 0 {
            return if waits { Err(Stop::Blocks) } else { fails("EINPROGRESS") };
        }
        self.write(fd, len, flags & !bit, done)
    }

    /// Begins the connection that a write with `MSG_FASTOPEN` makes.
    fn connect_to_write(&mut self, fd: i32, to: Option<SocketAddr>) -> Called<()> {
        let kind = self.socket_ref(fd)?.kind;
        match kind {
            _ if !self.host.stack.config().fast_open.client => return fails("EOPNOTSUPP"),
            Kind::New => {}
            Kind::Listening(_) => return fails("EISCONN"),
            Kind::Conn(_) if self.awaits_first_write(fd) => return Ok(()),
            Kind::Conn(_) => {
                return fails(if self.is_connecting(fd) { "EALREADY" } else { "EISCONN" });
            }
        }
        let Some(to) = to else { return fails("EINVAL") };
        let by_option = std::mem::replace(&mut self.socket_mut(fd)?.begin.fast_open, true);
        let connected = self.connect(fd, to, false);
        self.socket_mut(fd)?.begin.fast_open = by_option;
        match connected {
            Ok(()) | Err(Stop::Blocks) => Ok(()),
            Err(Stop::Fails(error)) if error.0 == "EINPROGRESS" => Ok(()),
            Err(stop) => Err(stop),
        }
    }

    /// Whether a connection waits for its first write, which its SYN will carry.
    pub(super) fn awaits_first_write(&self, fd: i32) -> bool {
        self.conn(fd).and_then(|id| self.host.stack.conn(id)).is_some_and(|conn| conn.awaits_first_write())
    }

    /// Whether the handshake that this end began is not complete.
    pub(super) fn is_connecting(&self, fd: i32) -> bool {
        self.conn(fd)
            .and_then(|id| self.host.stack.conn(id))
            .is_some_and(|conn| conn.state() == State::SynSent)
    }

    /// Sets one of [`OPTIONS`].
    pub(super) fn set_fast_open(&mut self, fd: i32, name: &str, value: &OptValue) -> Called<()> {
        let client = self.host.stack.config().fast_open.client;
        let socket = self.socket_mut(fd)?;
        let on = |value| match value {
            0 => Ok(false),
            1 => Ok(true),
            _ => fails("EINVAL"),
        };
        match (name, value) {
            ("TCP_FASTOPEN_CONNECT", &OptValue::Int(value)) => {
                let on = on(value)?;
                if !client {
                    return fails("EOPNOTSUPP");
                }
                if socket.kind != Kind::New {
                    return fails("EINVAL");
                }
                socket.begin.fast_open = on;
            }
            _ if matches!(socket.kind, Kind::Conn(_)) => return fails("EINVAL"),
            _ if socket.kind != Kind::New => {
                return Err(Stop::Unsupported(format!("{name} is set before listen here")));
            }
            ("TCP_FASTOPEN", &OptValue::Int(value)) => {
                socket.fast_open.pending_max = u32::try_from(value).or_else(|_| fails("EINVAL"))?;
            }
            ("TCP_FASTOPEN_NO_COOKIE", &OptValue::Int(value)) => {
                let on = on(value)?;
                (socket.fast_open.no_cookie, socket.begin.fast_open_no_cookie) = (on, on);
            }
            ("TCP_FASTOPEN_KEY", OptValue::Text(text)) => {
                // As in `tcp_fastopen_key`: bytes have no notation in a script.
                socket.fast_open.keys = Some(text.parse::<FastOpenKeys>().or_else(|_| fails("EINVAL"))?);
            }
            _ => return fails("EINVAL"),
        }
        Ok(())
    }

    /// One of [`OPTIONS`].
    pub(super) fn fast_open_option(&self, fd: i32, name: &str) -> Called<OptValue> {
        let socket = self.socket_ref(fd)?;
        let value = match name {
            "TCP_FASTOPEN" => socket.fast_open.pending_max.into(),
            "TCP_FASTOPEN_CONNECT" => socket.begin.fast_open.into(),
            "TCP_FASTOPEN_NO_COOKIE" => socket.begin.fast_open_no_cookie.into(),
            _ => {
                let keys = socket.fast_open.keys.or(self.host.stack.config().fast_open.keys);
                return Ok(OptValue::Text(keys.map_or_else(String::new, |keys| keys.to_string())));
            }
        };
        Ok(OptValue::Int(value))
    }
}
