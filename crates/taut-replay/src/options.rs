//! Socket options as bytes. Called by `input.rs`. Each structure is taken apart field by field, so that a new field is not
//! forgotten here.

use std::net::SocketAddr;

use taut_core::congestion::Registry;
use taut_core::{
    Algorithm, ConnOptions, DatagramFlowOptions, Duration, FastOpenListen, FlowFilter, FlowKind,
    IncomingOptions, IpPrefix, Keepalive, ListenOptions, Refusal, SetOption, WriteFlags,
};

use crate::codec::{Cursor, Trouble, put_addr, put_bytes, put_number, put_option};
use crate::datagram;

fn put_duration(out: &mut Vec<u8>, span: Duration) {
    put_number(out, span.as_nanos());
}

fn duration(cursor: &mut Cursor<'_>) -> Result<Duration, Trouble> {
    cursor.number().map(Duration::from_nanos)
}

fn put_algorithm(out: &mut Vec<u8>, algorithm: &Algorithm) {
    put_bytes(out, algorithm.to_string().as_bytes());
}

fn algorithm(cursor: &mut Cursor<'_>) -> Result<Algorithm, Trouble> {
    let registry: &Registry = cursor.registry;
    registry.algorithm(cursor.text()?).or_else(|error| Trouble::wrong(error.to_string()))
}

fn put_keepalive(out: &mut Vec<u8>, keepalive: Keepalive) {
    let Keepalive { idle, interval, count } = keepalive;
    put_duration(out, idle);
    put_duration(out, interval);
    out.push(count);
}

fn keepalive(cursor: &mut Cursor<'_>) -> Result<Keepalive, Trouble> {
    Ok(Keepalive { idle: duration(cursor)?, interval: duration(cursor)?, count: cursor.byte()? })
}

pub(crate) fn put_flags(out: &mut Vec<u8>, flags: WriteFlags) {
    let WriteFlags { more, eor } = flags;
    out.push(u8::from(more) | u8::from(eor) << 1);
}

pub(crate) fn flags(cursor: &mut Cursor<'_>) -> Result<WriteFlags, Trouble> {
    let bits = cursor.byte()?;
    Ok(WriteFlags { more: bits & 1 != 0, eor: bits & 2 != 0 })
}

pub(crate) fn put_conn(out: &mut Vec<u8>, options: &ConnOptions) {
    let ConnOptions {
        bind,
        nodelay,
        notsent_lowat,
        sndbuf,
        rcvbuf,
        max_pacing_rate,
        congestion,
        keepalive,
        user_timeout,
        maxseg,
        tos,
        fast_open,
        fast_open_no_cookie,
    } = options;
    put_option(out, *bind, put_addr);
    out.extend([u8::from(*nodelay), u8::from(*fast_open), u8::from(*fast_open_no_cookie), *tos]);
    put_number(out, (*notsent_lowat).into());
    put_option(out, *sndbuf, |out, bytes| put_number(out, bytes.into()));
    put_option(out, *rcvbuf, |out, bytes| put_number(out, bytes.into()));
    put_option(out, *max_pacing_rate, put_number);
    put_option(out, congestion.as_ref(), put_algorithm);
    put_option(out, *keepalive, put_keepalive);
    put_option(out, *user_timeout, put_duration);
    put_option(out, *maxseg, |out, bytes| put_number(out, bytes.into()));
}

pub(crate) fn conn(cursor: &mut Cursor<'_>) -> Result<ConnOptions, Trouble> {
    let bind = cursor.option(Cursor::addr)?;
    let (nodelay, fast_open, fast_open_no_cookie) = (cursor.flag()?, cursor.flag()?, cursor.flag()?);
    let tos = cursor.byte()?;
    Ok(ConnOptions {
        bind,
        nodelay,
        fast_open,
        fast_open_no_cookie,
        tos,
        notsent_lowat: cursor.small()?,
        sndbuf: cursor.option(Cursor::small)?,
        rcvbuf: cursor.option(Cursor::small)?,
        max_pacing_rate: cursor.option(Cursor::number)?,
        congestion: cursor.option(algorithm)?,
        keepalive: cursor.option(keepalive)?,
        user_timeout: cursor.option(duration)?,
        maxseg: cursor.option(Cursor::small)?,
    })
}

pub(crate) fn put_listen(out: &mut Vec<u8>, options: &ListenOptions) {
    let ListenOptions { backlog, max_connections, max_per_peer, max_half_open_per_peer, conn, fast_open } =
        options;
    for &limit in [backlog, max_connections, max_per_peer, max_half_open_per_peer] {
        put_number(out, limit.into());
    }
    put_conn(out, conn);
    let FastOpenListen { pending_max, no_cookie, keys } = fast_open;
    put_number(out, (*pending_max).into());
    out.push(u8::from(*no_cookie));
    put_option(out, *keys, |out, keys| put_bytes(out, keys.to_string().as_bytes()));
}

pub(crate) fn listen(cursor: &mut Cursor<'_>) -> Result<ListenOptions, Trouble> {
    let limits = [cursor.small()?, cursor.small()?, cursor.small()?, cursor.small()?];
    let [backlog, max_connections, max_per_peer, max_half_open_per_peer] = limits;
    let conn = conn(cursor)?;
    let (pending_max, no_cookie) = (cursor.small()?, cursor.flag()?);
    let keys = cursor.option(|cursor| cursor.text()?.parse().or_else(Trouble::wrong))?;
    let fast_open = FastOpenListen { pending_max, no_cookie, keys };
    Ok(ListenOptions { backlog, max_connections, max_per_peer, max_half_open_per_peer, conn, fast_open })
}

pub(crate) fn put_filter(out: &mut Vec<u8>, filter: &FlowFilter) {
    put_number(out, filter.prefixes.len() as u64);
    for prefix in &filter.prefixes {
        put_addr(out, SocketAddr::new(prefix.address(), prefix.prefix_len().into()));
    }
    put_number(out, filter.ports.len() as u64);
    for ports in &filter.ports {
        put_number(out, (*ports.start()).into());
        put_number(out, (*ports.end()).into());
    }
    put_number(out, filter.kinds.len() as u64);
    out.extend(filter.kinds.iter().map(|kind| match kind {
        FlowKind::Tcp => 0,
        FlowKind::Udp => 1,
        FlowKind::Echo => 2,
    }));
}

pub(crate) fn filter(cursor: &mut Cursor<'_>) -> Result<FlowFilter, Trouble> {
    let mut filter = FlowFilter::any();
    for _ in 0..cursor.number()? {
        let prefix = cursor.addr()?;
        let parsed = u8::try_from(prefix.port()).ok().and_then(|len| IpPrefix::new(prefix.ip(), len));
        filter = match parsed {
            Some(prefix) => filter.prefix(prefix),
            None => return Trouble::wrong(format!("a prefix of {} bits", prefix.port())),
        };
    }
    for _ in 0..cursor.number()? {
        filter = filter.ports(cursor.small()?..=cursor.small()?);
    }
    for _ in 0..cursor.number()? {
        filter = filter.kinds([match cursor.byte()? {
            0 => FlowKind::Tcp,
            1 => FlowKind::Udp,
            2 => FlowKind::Echo,
            other => return Trouble::wrong(format!("a flow of the unknown kind {other}")),
        }]);
    }
    Ok(filter)
}

fn put_datagram_flows(out: &mut Vec<u8>, options: &DatagramFlowOptions) {
    let DatagramFlowOptions {
        max_pending,
        max_pending_per_peer,
        max_flows,
        max_flows_per_peer,
        pending_bytes,
        queued_bytes,
        queued_bytes_per_peer,
        idle_timeout,
        socket,
    } = *options;
    for limit in [
        max_pending,
        max_pending_per_peer,
        max_flows,
        max_flows_per_peer,
        pending_bytes,
        queued_bytes,
        queued_bytes_per_peer,
    ] {
        put_number(out, limit.into());
    }
    put_duration(out, idle_timeout);
    datagram::put_options(out, &socket);
}

fn datagram_flows(cursor: &mut Cursor<'_>) -> Result<DatagramFlowOptions, Trouble> {
    Ok(DatagramFlowOptions {
        max_pending: cursor.small()?,
        max_pending_per_peer: cursor.small()?,
        max_flows: cursor.small()?,
        max_flows_per_peer: cursor.small()?,
        pending_bytes: cursor.small()?,
        queued_bytes: cursor.small()?,
        queued_bytes_per_peer: cursor.small()?,
        idle_timeout: duration(cursor)?,
        socket: datagram::options(cursor)?,
    })
}

pub(crate) fn put_incoming(out: &mut Vec<u8>, options: &IncomingOptions) {
    let IncomingOptions {
        max_pending,
        max_pending_per_peer,
        max_connections,
        max_per_peer,
        timeout,
        cookies_when_full,
        conn,
        datagrams,
    } = options;
    for &limit in [max_pending, max_pending_per_peer, max_connections, max_per_peer] {
        put_number(out, limit.into());
    }
    put_duration(out, *timeout);
    out.push(u8::from(*cookies_when_full));
    put_conn(out, conn);
    put_datagram_flows(out, datagrams);
}

pub(crate) fn incoming(cursor: &mut Cursor<'_>) -> Result<IncomingOptions, Trouble> {
    Ok(IncomingOptions {
        max_pending: cursor.small()?,
        max_pending_per_peer: cursor.small()?,
        max_connections: cursor.small()?,
        max_per_peer: cursor.small()?,
        timeout: duration(cursor)?,
        cookies_when_full: cursor.flag()?,
        conn: conn(cursor)?,
        datagrams: datagram_flows(cursor)?,
    })
}

const REFUSALS: [Refusal; 6] = [
    Refusal::Reset,
    Refusal::PortUnreachable,
    Refusal::HostUnreachable,
    Refusal::NetworkUnreachable,
    Refusal::Prohibited,
    Refusal::TimeExceeded,
];
/// The MTU follows.
const TOO_BIG: u8 = REFUSALS.len() as u8;

pub(crate) fn put_refusal(out: &mut Vec<u8>, how: Refusal) {
    if let Refusal::TooBig { mtu } = how {
        out.push(TOO_BIG);
        return put_number(out, mtu.into());
    }
    out.push(REFUSALS.iter().position(|&known| known == how).map_or(UNKNOWN, |at| at as u8));
}

pub(crate) fn refusal(cursor: &mut Cursor<'_>) -> Result<Refusal, Trouble> {
    let number = cursor.byte()?;
    if number == TOO_BIG {
        return Ok(Refusal::TooBig { mtu: cursor.small()? });
    }
    REFUSALS
        .get(usize::from(number))
        .copied()
        .map_or_else(|| Trouble::wrong(format!("the unknown refusal {number}")), Ok)
}

/// An option that this version does not know.
const UNKNOWN: u8 = 255;

pub(crate) fn put_set(out: &mut Vec<u8>, option: &SetOption) {
    let mut number = |kind, number: u64| {
        out.push(kind);
        put_number(out, number);
    };
    match option {
        SetOption::Nodelay(on) => number(0, (*on).into()),
        SetOption::Cork(on) => number(1, (*on).into()),
        SetOption::Quickack(on) => number(2, (*on).into()),
        SetOption::NotsentLowat(bytes) => number(3, (*bytes).into()),
        SetOption::Sndbuf(bytes) => number(4, (*bytes).into()),
        SetOption::Rcvbuf(bytes) => number(5, (*bytes).into()),
        SetOption::MaxPacingRate(rate) => number(6, *rate),
        SetOption::TxDelay(delay) => number(7, delay.as_nanos()),
        SetOption::Tos(tos) => number(8, (*tos).into()),
        SetOption::Congestion(algorithm) => {
            out.push(9);
            put_algorithm(out, algorithm);
        }
        SetOption::Keepalive(keepalive) => {
            out.push(10);
            put_option(out, *keepalive, put_keepalive);
        }
        SetOption::UserTimeout(timeout) => {
            out.push(11);
            put_option(out, *timeout, put_duration);
        }
        _ => out.push(UNKNOWN),
    }
}

pub(crate) fn set(cursor: &mut Cursor<'_>) -> Result<SetOption, Trouble> {
    Ok(match cursor.byte()? {
        0 => SetOption::Nodelay(cursor.flag()?),
        1 => SetOption::Cork(cursor.flag()?),
        2 => SetOption::Quickack(cursor.flag()?),
        3 => SetOption::NotsentLowat(cursor.small()?),
        4 => SetOption::Sndbuf(cursor.small()?),
        5 => SetOption::Rcvbuf(cursor.small()?),
        6 => SetOption::MaxPacingRate(cursor.number()?),
        7 => SetOption::TxDelay(duration(cursor)?),
        8 => SetOption::Tos(cursor.small()?),
        9 => SetOption::Congestion(algorithm(cursor)?),
        10 => SetOption::Keepalive(cursor.option(keepalive)?),
        11 => SetOption::UserTimeout(cursor.option(duration)?),
        other => return Trouble::wrong(format!("the unknown socket option {other}")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn again<T>(
        put: impl Fn(&mut Vec<u8>, &T),
        get: impl Fn(&mut Cursor<'_>) -> Result<T, Trouble>,
        value: &T,
    ) -> T {
        let mut out = Vec::new();
        put(&mut out, value);
        let registry = Registry::default();
        let mut cursor = Cursor::new(&out, &registry);
        let again = get(&mut cursor).unwrap();
        assert_eq!(cursor.at(), out.len());
        // Cut anywhere, it is too short, and never something else.
        for end in 0..out.len() {
            assert_eq!(get(&mut Cursor::new(&out[..end], &registry)).err(), Some(Trouble::Short), "{end}");
        }
        again
    }

    fn whole() -> ConnOptions {
        ConnOptions {
            bind: Some("[fd00::2]:99".parse().unwrap()),
            nodelay: true,
            notsent_lowat: 1,
            sndbuf: Some(2),
            rcvbuf: Some(3),
            max_pacing_rate: Some(u64::MAX - 1),
            congestion: Some(Algorithm::bbr()),
            keepalive: Some(Keepalive {
                idle: Duration::from_secs(1),
                interval: Duration::from_millis(1_500),
                count: 7,
            }),
            user_timeout: Some(Duration::from_nanos(4)),
            maxseg: Some(1_000),
            tos: 0xb8,
            fast_open: true,
            fast_open_no_cookie: true,
        }
    }

    #[test]
    fn options_come_back_whole() {
        for options in [ConnOptions::default(), whole()] {
            let again = again(put_conn, conn, &options);
            assert_eq!(format!("{again:?}"), format!("{options:?}"));
        }
        let keys = Some("00000001-00000002-00000003-00000004".parse().unwrap());
        let fast_open = FastOpenListen { pending_max: 5, no_cookie: true, keys };
        let options = ListenOptions { backlog: 1, conn: whole(), fast_open, ..ListenOptions::default() };
        let other = again(put_listen, listen, &options);
        assert_eq!(format!("{other:?}"), format!("{options:?}"));
        assert_eq!(other.fast_open, options.fast_open);
    }

    #[test]
    fn filters_and_refusals_come_back() {
        for (prefixes, ports) in
            [(vec![], vec![]), (vec![("10.0.0.0", 8), ("fd00::", 7)], vec![(80, 80), (0, u16::MAX)])]
        {
            let mut filter = FlowFilter::any();
            for (address, len) in prefixes {
                filter = filter.prefix(IpPrefix::new(address.parse().unwrap(), len).unwrap());
            }
            for (first, last) in ports {
                filter = filter.ports(first..=last).kinds([FlowKind::Echo, FlowKind::Tcp, FlowKind::Udp]);
            }
            assert_eq!(again(put_filter, super::filter, &filter), filter);
        }
        let options = IncomingOptions {
            max_pending: 1,
            max_pending_per_peer: 2,
            max_connections: 3,
            max_per_peer: 4,
            timeout: Duration::from_millis(5),
            cookies_when_full: true,
            conn: whole(),
            datagrams: DatagramFlowOptions {
                max_pending: 6,
                max_pending_per_peer: 7,
                max_flows: 8,
                max_flows_per_peer: 9,
                pending_bytes: 10,
                queued_bytes: 11,
                queued_bytes_per_peer: 12,
                idle_timeout: Duration::from_millis(13),
                socket: taut_core::DatagramOptions { tos: 14, ..taut_core::DatagramOptions::default() },
            },
        };
        let other = again(put_incoming, incoming, &options);
        assert_eq!(format!("{other:?}"), format!("{options:?}"));
        for how in REFUSALS.into_iter().chain([Refusal::TooBig { mtu: 1_400 }]) {
            assert_eq!(again(|out, how| put_refusal(out, *how), refusal, &how), how);
        }
    }

    #[test]
    fn each_option_that_is_set_comes_back() {
        let all = [
            SetOption::Nodelay(true),
            SetOption::Cork(false),
            SetOption::Quickack(true),
            SetOption::NotsentLowat(1),
            SetOption::Sndbuf(2),
            SetOption::Rcvbuf(u32::MAX),
            SetOption::MaxPacingRate(u64::MAX),
            SetOption::TxDelay(Duration::from_millis(3)),
            SetOption::Congestion(Algorithm::reno()),
            SetOption::Keepalive(whole().keepalive),
            SetOption::Keepalive(None),
            SetOption::UserTimeout(Some(Duration::from_secs(9))),
            SetOption::UserTimeout(None),
            SetOption::Tos(255),
        ];
        for option in all {
            assert_eq!(again(put_set, set, &option), option);
        }
    }
}
