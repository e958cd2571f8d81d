//! Options of sockets by Linux's levels, names and units, and what of them the stack has. `socket(7)`,
//! `tcp(7)`, `ip(7)`, `ipv6(7)`, `udp(7)`; called by both forms.

use std::ffi::c_int;

use libc::{
    EINVAL, ENOENT, ENOPROTOOPT, IP_MTU_DISCOVER, IP_MULTICAST_TTL, IP_TOS, IP_TTL, IPPROTO_IP, IPPROTO_IPV6,
    IPPROTO_TCP, IPV6_MTU_DISCOVER, IPV6_MULTICAST_HOPS, IPV6_TCLASS, IPV6_UNICAST_HOPS, SO_KEEPALIVE,
    SO_MAX_PACING_RATE, SO_RCVBUF, SO_SNDBUF, SOL_SOCKET, TCP_CONGESTION, TCP_CORK, TCP_INFO, TCP_INQ,
    TCP_KEEPCNT, TCP_KEEPIDLE, TCP_KEEPINTVL, TCP_MAXSEG, TCP_NODELAY, TCP_NOTSENT_LOWAT, TCP_QUICKACK,
    TCP_USER_TIMEOUT,
};
use taut_core::{ConnInfo, DatagramInfo, DatagramOption, Duration, Keepalive, MtuDiscovery, SetOption};

use crate::border::{Answer, Errno};
use crate::tcp_info;

/// Bytes of a name in `TCP_CONGESTION`, its end included: Linux's `TCP_CA_NAME_MAX`.
const NAME_LEN: usize = 16;

/// Linux's parameters of SO_KEEPALIVE: two hours, 75 seconds, 9 probes.
const KEEPALIVE: Keepalive =
    Keepalive { idle: Duration::from_secs(7_200), interval: Duration::from_secs(75), count: 9 };

fn number<T: TryFrom<i64>>(value: i64) -> Answer<T> {
    T::try_from(value).map_err(|_| Errno(EINVAL))
}

/// A time in seconds, 1 to 32,767.
fn seconds(value: i64) -> Answer<Duration> {
    number::<u16>(value)
        .ok()
        .filter(|s| (1..=32_767).contains(s))
        .map_or(Err(Errno(EINVAL)), |s| Ok(Duration::from_secs(s.into())))
}

/// An option of a connection. An option of keepalive changes the values in `kept`.
pub(crate) fn of_conn(level: c_int, name: c_int, value: i64, kept: Option<Keepalive>) -> Answer<SetOption> {
    // Without SO_KEEPALIVE there is nothing to change.
    let on = kept.ok_or(Errno(EINVAL));
    let keepalive = |changed| Ok(SetOption::Keepalive(Some(changed)));
    match (level, name) {
        (SOL_SOCKET, SO_SNDBUF) => number(value).map(SetOption::Sndbuf),
        (SOL_SOCKET, SO_RCVBUF) => number(value).map(SetOption::Rcvbuf),
        (SOL_SOCKET, SO_MAX_PACING_RATE) if value == -1 => Ok(SetOption::MaxPacingRate(u64::MAX)),
        (SOL_SOCKET, SO_MAX_PACING_RATE) => number(value).map(SetOption::MaxPacingRate),
        (SOL_SOCKET, SO_KEEPALIVE) => {
            Ok(SetOption::Keepalive((value != 0).then(|| kept.unwrap_or(KEEPALIVE))))
        }
        (IPPROTO_TCP, TCP_KEEPIDLE) => keepalive(Keepalive { idle: seconds(value)?, ..on? }),
        (IPPROTO_TCP, TCP_KEEPINTVL) => keepalive(Keepalive { interval: seconds(value)?, ..on? }),
        (IPPROTO_TCP, TCP_KEEPCNT) => keepalive(Keepalive { count: number(value)?, ..on? }),
        (IPPROTO_TCP, TCP_NODELAY) => Ok(SetOption::Nodelay(value != 0)),
        (IPPROTO_TCP, TCP_CORK) => Ok(SetOption::Cork(value != 0)),
        (IPPROTO_TCP, TCP_QUICKACK) => Ok(SetOption::Quickack(value != 0)),
        (IPPROTO_TCP, TCP_NOTSENT_LOWAT) => number(value).map(SetOption::NotsentLowat),
        (IPPROTO_TCP, TCP_USER_TIMEOUT) => {
            let ms = number::<u32>(value)?;
            Ok(SetOption::UserTimeout((ms > 0).then(|| Duration::from_millis(ms.into()))))
        }
        (IPPROTO_IP, IP_TOS) | (IPPROTO_IPV6, IPV6_TCLASS) => number(value).map(SetOption::Tos),
        _ => Err(Errno(ENOPROTOOPT)),
    }
}

/// The present value of an option of a connection.
pub(crate) fn read_conn(level: c_int, name: c_int, info: &ConnInfo) -> Answer<i64> {
    Ok(match (level, name) {
        (SOL_SOCKET, SO_SNDBUF) => info.sndbuf.into(),
        (SOL_SOCKET, SO_RCVBUF) => info.rcvbuf.into(),
        (SOL_SOCKET, SO_MAX_PACING_RATE) => i64::try_from(info.max_pacing_rate).unwrap_or(-1),
        (IPPROTO_TCP, TCP_MAXSEG) => info.snd_mss.into(),
        (IPPROTO_TCP, TCP_NOTSENT_LOWAT) => info.notsent_lowat.into(),
        (IPPROTO_TCP, TCP_INQ) => i64::try_from(info.inq).unwrap_or(i64::MAX),
        (IPPROTO_IP, IP_TOS) | (IPPROTO_IPV6, IPV6_TCLASS) => info.tos.into(),
        _ => return Err(Errno(ENOPROTOOPT)),
    })
}

/// The congestion control that `TCP_CONGESTION` names: up to a zero byte, if there is one.
pub(crate) fn congestion_of_conn(level: c_int, name: c_int, value: &[u8]) -> Answer<&str> {
    if (level, name) != (IPPROTO_TCP, TCP_CONGESTION) {
        return Err(Errno(ENOPROTOOPT));
    }
    if value.is_empty() {
        return Err(Errno(EINVAL));
    }
    let text = value.split(|byte| *byte == 0).next().unwrap_or_default();
    std::str::from_utf8(text).map_err(|_| Errno(ENOENT))
}

/// The present value of an option of a connection that is no number.
pub(crate) fn read_conn_bytes(level: c_int, name: c_int, info: &ConnInfo) -> Answer<Vec<u8>> {
    match (level, name) {
        (IPPROTO_TCP, TCP_CONGESTION) => {
            let mut text = info.congestion.name().as_bytes().to_vec();
            text.truncate(NAME_LEN - 1);
            text.resize(NAME_LEN, 0);
            Ok(text)
        }
        (IPPROTO_TCP, TCP_INFO) => Ok(tcp_info::bytes(info)),
        _ => Err(Errno(ENOPROTOOPT)),
    }
}

/// An option of a UDP socket.
pub(crate) fn of_udp(level: c_int, name: c_int, value: i64) -> Answer<DatagramOption> {
    match (level, name) {
        (SOL_SOCKET, SO_SNDBUF) => number(value).map(DatagramOption::Sndbuf),
        (SOL_SOCKET, SO_RCVBUF) => number(value).map(DatagramOption::Rcvbuf),
        (SOL_SOCKET, SO_MAX_PACING_RATE) if value == -1 => Ok(DatagramOption::MaxPacingRate(None)),
        (SOL_SOCKET, SO_MAX_PACING_RATE) => {
            number(value).map(|rate| DatagramOption::MaxPacingRate(Some(rate)))
        }
        (IPPROTO_IP, IP_TTL) | (IPPROTO_IPV6, IPV6_UNICAST_HOPS) => number(value).map(DatagramOption::Ttl),
        (IPPROTO_IP, IP_MULTICAST_TTL) | (IPPROTO_IPV6, IPV6_MULTICAST_HOPS) => {
            number(value).map(DatagramOption::MulticastTtl)
        }
        (IPPROTO_IP, IP_TOS) | (IPPROTO_IPV6, IPV6_TCLASS) => number(value).map(DatagramOption::Tos),
        (IPPROTO_IP, IP_MTU_DISCOVER) | (IPPROTO_IPV6, IPV6_MTU_DISCOVER) => {
            discovery(value).map(DatagramOption::MtuDiscovery)
        }
        _ => Err(Errno(ENOPROTOOPT)),
    }
}

/// Linux's `IP_PMTUDISC_DONT`, `_WANT`, `_DO` and `_PROBE`.
fn discovery(value: i64) -> Answer<MtuDiscovery> {
    use MtuDiscovery::{Do, Dont, Probe, Want};
    usize::try_from(value).ok().and_then(|n| [Dont, Want, Do, Probe].get(n).copied()).ok_or(Errno(EINVAL))
}

/// The present value of an option of a UDP socket.
pub(crate) fn read_udp(level: c_int, name: c_int, info: &DatagramInfo) -> Answer<i64> {
    match (level, name) {
        (SOL_SOCKET, SO_SNDBUF) => Ok(info.sndbuf.into()),
        (SOL_SOCKET, SO_RCVBUF) => Ok(info.rcvbuf.into()),
        _ => Err(Errno(ENOPROTOOPT)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers of <asm-generic/socket.h>, <linux/tcp.h>, <linux/in.h>, <linux/in6.h>.
    #[test]
    fn ffi_04_options_have_linuxs_numbers() {
        let on = Keepalive { count: 3, ..KEEPALIVE };
        let idle = Keepalive { idle: Duration::from_secs(60), ..KEEPALIVE };
        for (level, name, value, kept, option) in [
            (1, 7, 65_536, None, Ok(SetOption::Sndbuf(65_536))),
            (1, 8, 65_536, None, Ok(SetOption::Rcvbuf(65_536))),
            (1, 9, 1, None, Ok(SetOption::Keepalive(Some(KEEPALIVE)))),
            (1, 9, 0, Some(on), Ok(SetOption::Keepalive(None))),
            (1, 47, -1, None, Ok(SetOption::MaxPacingRate(u64::MAX))),
            (6, 1, 1, None, Ok(SetOption::Nodelay(true))),
            (6, 3, 1, None, Ok(SetOption::Cork(true))),
            (6, 4, 60, Some(KEEPALIVE), Ok(SetOption::Keepalive(Some(idle)))),
            (6, 4, 60, None, Err(Errno(EINVAL))),
            (6, 6, 3, Some(KEEPALIVE), Ok(SetOption::Keepalive(Some(on)))),
            (6, 12, 1, None, Ok(SetOption::Quickack(true))),
            (6, 18, 1_500, None, Ok(SetOption::UserTimeout(Some(Duration::from_millis(1_500))))),
            (6, 25, 16_384, None, Ok(SetOption::NotsentLowat(16_384))),
            (0, 1, 0x28, None, Ok(SetOption::Tos(0x28))),
            (41, 67, 0x28, None, Ok(SetOption::Tos(0x28))),
            (0, 1, 256, None, Err(Errno(EINVAL))),
            (6, 99, 1, None, Err(Errno(ENOPROTOOPT))),
        ] {
            assert_eq!(of_conn(level, name, value, kept), option, "{level} {name} {value}");
        }
        assert_eq!(of_udp(0, 2, 3), Ok(DatagramOption::Ttl(3)));
        assert_eq!(of_udp(41, 16, 3), Ok(DatagramOption::Ttl(3)));
        assert_eq!(of_udp(0, 10, 3), Ok(DatagramOption::MtuDiscovery(MtuDiscovery::Probe)));
        assert_eq!(of_udp(0, 10, 4), Err(Errno(EINVAL)));
    }
}
