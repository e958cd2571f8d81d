//! The calls of datagram sockets: options as bytes, and their results. Called by `input.rs`, `taped.rs` and `outcome.rs`. Each
//! structure is taken apart field by field, so that a new field is not forgotten here.

use taut_core::{DatagramKind, DatagramOption, DatagramOptions, Instant, MtuDiscovery, SendMeta};

use crate::codec::{Cursor, Trouble, put_ip, put_number, put_option};

pub(crate) fn put_kind(out: &mut Vec<u8>, kind: DatagramKind) {
    out.push(match kind {
        DatagramKind::Udp => 0,
        DatagramKind::Ping => 1,
        DatagramKind::Echo => 2,
    });
}

pub(crate) fn kind(cursor: &mut Cursor<'_>) -> Result<DatagramKind, Trouble> {
    match cursor.byte()? {
        0 => Ok(DatagramKind::Udp),
        1 => Ok(DatagramKind::Ping),
        2 => Ok(DatagramKind::Echo),
        other => Trouble::wrong(format!("a datagram socket of the unknown kind {other}")),
    }
}

const fn discovery_number(discovery: MtuDiscovery) -> u8 {
    match discovery {
        MtuDiscovery::Dont => 0,
        MtuDiscovery::Want => 1,
        MtuDiscovery::Do => 2,
        MtuDiscovery::Probe => 3,
    }
}

fn discovery(number: u8) -> Result<MtuDiscovery, Trouble> {
    match number {
        0 => Ok(MtuDiscovery::Dont),
        1 => Ok(MtuDiscovery::Want),
        2 => Ok(MtuDiscovery::Do),
        3 => Ok(MtuDiscovery::Probe),
        other => Trouble::wrong(format!("the unknown way {other} of MTU discovery")),
    }
}

pub(crate) fn put_options(out: &mut Vec<u8>, options: &DatagramOptions) {
    let DatagramOptions {
        sndbuf,
        rcvbuf,
        ttl,
        tos,
        mtu_discovery,
        max_pacing_rate,
        gro,
        recv_errors,
        only_v6,
        multicast_ttl,
    } = *options;
    put_option(out, sndbuf, |out, bytes| put_number(out, bytes.into()));
    put_option(out, rcvbuf, |out, bytes| put_number(out, bytes.into()));
    put_option(out, ttl, Vec::push);
    out.extend([tos, discovery_number(mtu_discovery)]);
    put_option(out, max_pacing_rate, put_number);
    out.extend([gro, recv_errors, only_v6].map(u8::from));
    put_option(out, multicast_ttl, Vec::push);
}

pub(crate) fn options(cursor: &mut Cursor<'_>) -> Result<DatagramOptions, Trouble> {
    Ok(DatagramOptions {
        sndbuf: cursor.option(Cursor::small)?,
        rcvbuf: cursor.option(Cursor::small)?,
        ttl: cursor.option(Cursor::byte)?,
        tos: cursor.byte()?,
        mtu_discovery: discovery(cursor.byte()?)?,
        max_pacing_rate: cursor.option(Cursor::number)?,
        gro: cursor.flag()?,
        recv_errors: cursor.flag()?,
        only_v6: cursor.flag()?,
        multicast_ttl: cursor.option(Cursor::byte)?,
    })
}

pub(crate) fn put_option_to_set(out: &mut Vec<u8>, option: DatagramOption) {
    let (number, value) = match option {
        DatagramOption::JoinGroup(group) | DatagramOption::LeaveGroup(group) => {
            out.push(if matches!(option, DatagramOption::JoinGroup(_)) { 9 } else { 10 });
            return put_ip(out, group);
        }
        DatagramOption::MulticastTtl(ttl) => (11, ttl.into()),
        DatagramOption::Sndbuf(bytes) => (0, bytes.into()),
        DatagramOption::Rcvbuf(bytes) => (1, bytes.into()),
        DatagramOption::Ttl(ttl) => (2, ttl.into()),
        DatagramOption::Tos(tos) => (3, tos.into()),
        DatagramOption::MtuDiscovery(discovery) => (4, discovery_number(discovery).into()),
        DatagramOption::MaxPacingRate(None) => (5, 0),
        DatagramOption::MaxPacingRate(Some(rate)) => (6, rate),
        DatagramOption::Gro(on) => (7, on.into()),
        DatagramOption::RecvErrors(on) => (8, on.into()),
        // The core's list is not closed to others, but this program is built with it.
        _ => (u8::MAX, 0),
    };
    out.push(number);
    put_number(out, value);
}

pub(crate) fn option_to_set(cursor: &mut Cursor<'_>) -> Result<DatagramOption, Trouble> {
    Ok(match cursor.byte()? {
        0 => DatagramOption::Sndbuf(cursor.small()?),
        1 => DatagramOption::Rcvbuf(cursor.small()?),
        2 => DatagramOption::Ttl(cursor.small()?),
        3 => DatagramOption::Tos(cursor.small()?),
        4 => DatagramOption::MtuDiscovery(discovery(cursor.small()?)?),
        5 => cursor.number().map(|_| DatagramOption::MaxPacingRate(None))?,
        6 => DatagramOption::MaxPacingRate(Some(cursor.number()?)),
        7 => DatagramOption::Gro(cursor.number()? != 0),
        8 => DatagramOption::RecvErrors(cursor.number()? != 0),
        9 => DatagramOption::JoinGroup(cursor.ip()?),
        10 => DatagramOption::LeaveGroup(cursor.ip()?),
        11 => DatagramOption::MulticastTtl(cursor.small()?),
        other => return Trouble::wrong(format!("the unknown option {other} of a datagram socket")),
    })
}

pub(crate) fn put_meta(out: &mut Vec<u8>, meta: &SendMeta) {
    let SendMeta { ttl, tos, src, segment, departure } = *meta;
    put_option(out, ttl, Vec::push);
    put_option(out, tos, Vec::push);
    put_option(out, src, put_ip);
    put_option(out, segment, |out, bytes| put_number(out, bytes.into()));
    put_option(out, departure, |out, at| put_number(out, at.as_nanos()));
}

pub(crate) fn meta(cursor: &mut Cursor<'_>) -> Result<SendMeta, Trouble> {
    Ok(SendMeta {
        ttl: cursor.option(Cursor::byte)?,
        tos: cursor.option(Cursor::byte)?,
        src: cursor.option(Cursor::ip)?,
        segment: cursor.option(Cursor::small)?,
        departure: cursor.option(Cursor::number)?.map(Instant::from_nanos),
    })
}

#[cfg(test)]
mod tests {
    use taut_core::congestion::Registry;

    use super::*;

    #[test]
    fn options_and_meta_data_come_back() {
        let registry = Registry::default();
        let options = DatagramOptions {
            sndbuf: Some(7),
            ttl: Some(3),
            tos: 0xb9,
            mtu_discovery: MtuDiscovery::Probe,
            max_pacing_rate: Some(u64::MAX),
            recv_errors: true,
            multicast_ttl: Some(5),
            ..DatagramOptions::default()
        };
        let meta_data = SendMeta {
            tos: Some(1),
            src: Some([10, 0, 0, 1].into()),
            segment: Some(1_200),
            departure: Some(Instant::from_nanos(9)),
            ..SendMeta::default()
        };
        let sets = [
            DatagramOption::Sndbuf(1),
            DatagramOption::Rcvbuf(2),
            DatagramOption::Ttl(3),
            DatagramOption::Tos(4),
            DatagramOption::MtuDiscovery(MtuDiscovery::Dont),
            DatagramOption::MaxPacingRate(None),
            DatagramOption::MaxPacingRate(Some(0)),
            DatagramOption::Gro(true),
            DatagramOption::RecvErrors(false),
            DatagramOption::JoinGroup([224, 0, 0, 251].into()),
            DatagramOption::LeaveGroup(std::net::Ipv6Addr::LOCALHOST.into()),
            DatagramOption::MulticastTtl(9),
        ];
        let mut out = Vec::new();
        put_options(&mut out, &options);
        put_meta(&mut out, &meta_data);
        sets.iter().for_each(|&option| put_option_to_set(&mut out, option));
        let mut cursor = Cursor::new(&out, &registry);
        assert_eq!(super::options(&mut cursor), Ok(options));
        assert_eq!(meta(&mut cursor), Ok(meta_data));
        for option in sets {
            assert_eq!(option_to_set(&mut cursor), Ok(option));
        }
        assert_eq!(cursor.at(), out.len());
    }
}
