//! Options of sockets by Linux's names: setsockopt, getsockopt, ioctl, fcntl.

use taut_core::{ConnInfo, Duration, Keepalive, OptionError, SetOption};

use super::{Called, File, Kind, Sockets, Stop, fails, fast_open};
use crate::constants::constant;

/// The value of an option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum OptValue {
    /// A number.
    Int(i64),
    /// A text: the name of a congestion control.
    Text(String),
    /// `SO_LINGER`: whether it is on, and for how many seconds.
    Linger(i64, i64),
}

/// Options that are kept and have no effect, because a script has one host and no other traffic.
const KEPT: [&str; 5] = ["SO_REUSEADDR", "SO_REUSEPORT", "SO_PRIORITY", "SO_MARK", "SO_OOBINLINE"];

fn u32_of(value: i64) -> Called<u32> {
    u32::try_from(value).or_else(|_| fails("EINVAL"))
}

impl Sockets {
    /// `setsockopt(2)`, with the option by its name: `SO_SNDBUF`.
    ///
    /// # Errors
    /// As `setsockopt(2)`; [`Stop::Unsupported`] for an option that the stack has not.
    pub(crate) fn set_option(&mut self, fd: i32, name: &str, value: &OptValue) -> Called<()> {
        self.socket_ref(fd)?;
        match (name, value) {
            ("SO_LINGER", &OptValue::Linger(on, seconds)) => {
                self.socket_mut(fd)?.linger = if on != 0 { Some(u32_of(seconds)?) } else { None };
                Ok(())
            }
            ("TCP_CONGESTION", OptValue::Text(text)) => match self.host.stack.algorithm(text) {
                Ok(algorithm) => {
                    self.socket_mut(fd)?.begin.congestion = Some(algorithm.clone());
                    self.apply(fd, SetOption::Congestion(algorithm))
                }
                Err(_) => fails("ENOENT"),
            },
            (_, value) if fast_open::OPTIONS.contains(&name) => self.set_fast_open(fd, name, value),
            (_, &OptValue::Int(value)) => self.set_number(fd, name, value),
            _ => fails("EINVAL"),
        }
    }

    fn set_number(&mut self, fd: i32, name: &str, value: i64) -> Called<()> {
        let on = value != 0;
        if let Some(name) = KEPT.into_iter().find(|kept| *kept == name) {
            self.socket_mut(fd)?.kept.insert(name, value);
            return Ok(());
        }
        let socket = self.socket_mut(fd)?;
        match name {
            "SO_ZEROCOPY" => {
                if !(0..=1).contains(&value) {
                    return fails("EINVAL");
                }
                socket.zero_copy = on;
                Ok(())
            }
            "TCP_INQ" => {
                if !(0..=1).contains(&value) {
                    return fails("EINVAL");
                }
                socket.inq = on;
                Ok(())
            }
            "SO_SNDBUF" | "SO_SNDBUFFORCE" => {
                // Linux takes the number as unsigned.
                let bytes = value as u32;
                socket.begin.sndbuf = Some(bytes);
                self.apply(fd, SetOption::Sndbuf(bytes))
            }
            "SO_RCVBUF" | "SO_RCVBUFFORCE" => {
                let bytes = value as u32;
                socket.begin.rcvbuf = Some(bytes);
                self.apply(fd, SetOption::Rcvbuf(bytes))
            }
            "SO_MAX_PACING_RATE" => {
                // Linux: all bits set is no limit.
                let rate = if value == -1 || value == i64::from(u32::MAX) { u64::MAX } else { value as u64 };
                socket.begin.max_pacing_rate = Some(rate);
                self.apply(fd, SetOption::MaxPacingRate(rate))
            }
            "TCP_NODELAY" => {
                socket.begin.nodelay = on;
                self.apply(fd, SetOption::Nodelay(on))
            }
            "TCP_CORK" => self.apply(fd, SetOption::Cork(on)),
            "TCP_QUICKACK" => self.apply(fd, SetOption::Quickack(on)),
            "TCP_NOTSENT_LOWAT" => {
                let bytes = value as u32;
                socket.begin.notsent_lowat = bytes;
                self.apply(fd, SetOption::NotsentLowat(bytes))
            }
            "TCP_TX_DELAY" => {
                let delay = u64::try_from(value).map(Duration::from_micros).or_else(|_| fails("EINVAL"))?;
                self.apply(fd, SetOption::TxDelay(delay))
            }
            "TCP_USER_TIMEOUT" => {
                let ms = u64::from(u32_of(value)?);
                let timeout = (ms > 0).then(|| Duration::from_millis(ms));
                socket.begin.user_timeout = timeout;
                self.apply(fd, SetOption::UserTimeout(timeout))
            }
            "TCP_MAXSEG" => {
                if socket.kind != Kind::New {
                    return Err(Stop::Unsupported(
                        "TCP_MAXSEG is set before listen and connect here".to_owned(),
                    ));
                }
                let mss = u16::try_from(value).ok().filter(|mss| (88..=32_767).contains(mss));
                socket.begin.maxseg =
                    if value == 0 { None } else { Some(mss.map_or_else(|| fails("EINVAL"), Ok)?) };
                Ok(())
            }
            "SO_KEEPALIVE" | "TCP_KEEPIDLE" | "TCP_KEEPINTVL" | "TCP_KEEPCNT" => {
                self.set_keepalive(fd, name, value)
            }
            _ => Err(Stop::Unsupported(format!("the stack's sockets have no option {name}"))),
        }
    }

    fn set_keepalive(&mut self, fd: i32, name: &str, value: i64) -> Called<()> {
        let seconds = || match value {
            1..=32_767 => Ok(Some(Duration::from_secs(value as u64))),
            _ => fails("EINVAL"),
        };
        let keep = &mut self.socket_mut(fd)?.keep;
        match name {
            "SO_KEEPALIVE" => keep.on = value != 0,
            "TCP_KEEPIDLE" => keep.idle = seconds()?,
            "TCP_KEEPINTVL" => keep.interval = seconds()?,
            _ => {
                let count = u8::try_from(value).ok().filter(|count| (1..=127).contains(count));
                keep.count = Some(count.map_or_else(|| fails("EINVAL"), Ok)?);
            }
        }
        let Some(option) = self.keepalive_of(fd)? else { return Ok(()) };
        self.apply(fd, option)
    }

    /// The keepalive of a socket with the stack's values for what is not set; `None` if nothing ever was.
    pub(super) fn keepalive_of(&self, fd: i32) -> Called<Option<SetOption>> {
        let keep = self.socket_ref(fd)?.keep;
        let untouched = !keep.on && keep.idle.is_none() && keep.interval.is_none() && keep.count.is_none();
        Ok(if untouched { None } else { Some(SetOption::Keepalive(self.keepalive_options(fd)?)) })
    }

    pub(super) fn keepalive_options(&self, fd: i32) -> Called<Option<Keepalive>> {
        let keep = self.socket_ref(fd)?.keep;
        let tcp = &self.host.stack.config().tcp;
        Ok(keep.on.then(|| Keepalive {
            idle: keep.idle.unwrap_or(tcp.keepalive_time),
            interval: keep.interval.unwrap_or(tcp.keepalive_intvl),
            count: keep.count.unwrap_or(tcp.keepalive_probes),
        }))
    }

    /// Sets an option of the connection, or keeps it for the connection to come.
    fn apply(&mut self, fd: i32, option: SetOption) -> Called<()> {
        let now = self.now();
        let result = match self.conn(fd).and_then(|id| self.host.stack.conn_mut(id)) {
            Some(mut conn) => conn.set_option(now, option),
            None => {
                let then = &mut self.socket_mut(fd)?.then;
                then.retain(|other| std::mem::discriminant(other) != std::mem::discriminant(&option));
                then.push(option);
                Ok(())
            }
        };
        self.host.turn();
        result.or_else(|error| match error {
            OptionError::OutOfRange(_) => fails("EINVAL"),
            other => Err(Stop::Unsupported(other.to_string())),
        })
    }

    /// The connection's report.
    #[must_use]
    pub(crate) fn info(&self, fd: i32) -> Option<ConnInfo> {
        Some(self.host.stack.conn(self.conn(fd)?)?.info(self.now()))
    }

    /// `getsockopt(2)`.
    ///
    /// # Errors
    /// As `getsockopt(2)`; [`Stop::Unsupported`] for an option that the stack has not.
    pub(crate) fn option(&mut self, fd: i32, name: &str) -> Called<OptValue> {
        let socket = self.socket_ref(fd)?;
        if let Some(name) = KEPT.into_iter().find(|kept| *kept == name) {
            return Ok(OptValue::Int(socket.kept.get(name).copied().unwrap_or(0)));
        }
        if fast_open::OPTIONS.contains(&name) {
            return self.fast_open_option(fd, name);
        }
        let info = self.info(fd);
        let config = self.host.stack.config();
        let bit = |on: bool| i64::from(on);
        let last = |find: fn(&SetOption) -> Option<i64>| socket.then.iter().rev().find_map(find).unwrap_or(0);
        let seconds = |own: Option<Duration>, all: Duration| (own.unwrap_or(all).as_millis() / 1_000) as i64;
        let value = match name {
            "SO_TYPE" => constant("SOCK_STREAM").unwrap_or(1),
            "SO_PROTOCOL" => constant("IPPROTO_TCP").unwrap_or(6),
            "SO_ACCEPTCONN" => bit(matches!(socket.kind, Kind::Listening(_))),
            "SO_ERROR" => {
                return Ok(OptValue::Int(self.take_error(fd).map_or(0, |error| error.number().into())));
            }
            "SO_SNDBUF" => info.map_or(config.send.wmem.initial, |info| info.sndbuf).into(),
            "SO_RCVBUF" => info.map_or(config.receive.rmem.initial, |info| info.rcvbuf).into(),
            "SO_ZEROCOPY" => bit(socket.zero_copy),
            "TCP_INQ" => bit(socket.inq),
            "SO_KEEPALIVE" => bit(socket.keep.on),
            "TCP_KEEPIDLE" => seconds(socket.keep.idle, config.tcp.keepalive_time),
            "TCP_KEEPINTVL" => seconds(socket.keep.interval, config.tcp.keepalive_intvl),
            "TCP_KEEPCNT" => socket.keep.count.unwrap_or(config.tcp.keepalive_probes).into(),
            "SO_LINGER" => {
                let linger = socket.linger;
                return Ok(OptValue::Linger(bit(linger.is_some()), linger.unwrap_or(0).into()));
            }
            "SO_MAX_PACING_RATE" => {
                let rate = info
                    .map_or(socket.begin.max_pacing_rate.unwrap_or(u64::MAX), |info| info.max_pacing_rate);
                rate as i64
            }
            "TCP_NODELAY" => bit(socket.begin.nodelay),
            "TCP_CORK" => {
                last(|option| if let SetOption::Cork(on) = option { Some(i64::from(*on)) } else { None })
            }
            "TCP_MAXSEG" => info.map_or(536, |info| info.snd_mss.into()),
            "TCP_NOTSENT_LOWAT" => socket.begin.notsent_lowat.into(),
            "TCP_USER_TIMEOUT" => socket.begin.user_timeout.map_or(0, |timeout| timeout.as_millis() as i64),
            "TCP_CONGESTION" => {
                let default = config.congestion.control.name().to_owned();
                return Ok(OptValue::Text(info.map_or(default, |info| info.congestion.name().to_owned())));
            }
            _ => return Err(Stop::Unsupported(format!("the stack's sockets have no option {name}"))),
        };
        Ok(OptValue::Int(value))
    }

    /// `ioctl(2)`: the number that it returns in its argument.
    ///
    /// # Errors
    /// As `ioctl(2)`.
    pub(crate) fn ioctl(&mut self, fd: i32, request: &str, value: i64) -> Called<i64> {
        match request {
            "SIOCINQ" | "FIONREAD" => self.unread(fd),
            "SIOCOUTQ" | "SIOCOUTQNSD" => {
                let Kind::Conn(_) = self.socket_ref(fd)?.kind else { return fails("EINVAL") };
                Ok(self.info(fd).map_or(0, |info| {
                    let in_flight = info.bytes_sent - info.bytes_retrans - info.bytes_acked;
                    (info.notsent_bytes + if request == "SIOCOUTQ" { in_flight } else { 0 }) as i64
                }))
            }
            "FIONBIO" => {
                self.set_nonblocking(fd, value != 0)?;
                Ok(value)
            }
            _ => fails("ENOTTY"),
        }
    }

    /// Whether calls return `EAGAIN` rather than block.
    #[must_use]
    pub(crate) fn is_nonblocking(&self, fd: i32) -> bool {
        match self.files.get(&fd) {
            Some(File::Socket(socket)) => socket.nonblocking,
            Some(File::PipeOut { nonblocking, .. } | File::PipeIn { nonblocking, .. }) => *nonblocking,
            _ => false,
        }
    }

    /// `F_SETFL` with or without `O_NONBLOCK`.
    ///
    /// # Errors
    /// `EBADF`.
    pub(crate) fn set_nonblocking(&mut self, fd: i32, on: bool) -> Called<()> {
        match self.files.get_mut(&fd) {
            Some(File::Socket(socket)) => socket.nonblocking = on,
            Some(File::PipeOut { nonblocking, .. } | File::PipeIn { nonblocking, .. }) => *nonblocking = on,
            Some(File::Epoll(_)) => {}
            None => return fails("EBADF"),
        }
        Ok(())
    }
}
