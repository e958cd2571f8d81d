//! Changes of the network as bytes. Called by `input.rs`. Each structure is taken apart field by field, so that a new field is
//! not forgotten here.

use taut_core::{Duration, Lease, Network, NetworkChange, Route};

use crate::codec::{Cursor, Trouble, put_ip, put_number, put_option};

fn put_network(out: &mut Vec<u8>, network: Network) {
    let Network { address, prefix } = network;
    put_ip(out, address);
    out.push(prefix);
}

fn network(cursor: &mut Cursor<'_>) -> Result<Network, Trouble> {
    Ok(Network { address: cursor.ip()?, prefix: cursor.byte()? })
}

fn put_route(out: &mut Vec<u8>, route: Route) {
    let Route { to, via, source } = route;
    put_network(out, to);
    put_option(out, via, put_ip);
    put_option(out, source, put_ip);
}

fn route(cursor: &mut Cursor<'_>) -> Result<Route, Trouble> {
    Ok(Route { to: network(cursor)?, via: cursor.option(Cursor::ip)?, source: cursor.option(Cursor::ip)? })
}

fn put_span(out: &mut Vec<u8>, span: Duration) {
    put_number(out, span.as_nanos());
}

fn span(cursor: &mut Cursor<'_>) -> Result<Duration, Trouble> {
    Ok(Duration::from_nanos(cursor.number()?))
}

fn put_lease(out: &mut Vec<u8>, lease: Lease) {
    let Lease { network, server, renews_in, ends_in } = lease;
    put_network(out, network);
    put_ip(out, server);
    put_option(out, renews_in, put_span);
    put_option(out, ends_in, put_span);
}

fn lease(cursor: &mut Cursor<'_>) -> Result<Lease, Trouble> {
    let (network, server) = (network(cursor)?, cursor.ip()?);
    Ok(Lease { network, server, renews_in: cursor.option(span)?, ends_in: cursor.option(span)? })
}

pub(crate) fn put_change(out: &mut Vec<u8>, change: NetworkChange) {
    match change {
        NetworkChange::AddAddress(own) => {
            out.push(0);
            put_network(out, own);
        }
        NetworkChange::RemoveAddress(address) => {
            out.push(1);
            put_ip(out, address);
        }
        NetworkChange::Deprecate { address, deprecated } => {
            out.push(2);
            put_ip(out, address);
            out.push(deprecated.into());
        }
        NetworkChange::AddRoute(route) => {
            out.push(3);
            put_route(out, route);
        }
        NetworkChange::RemoveRoute(route) => {
            out.push(4);
            put_route(out, route);
        }
        NetworkChange::SetMtu(mtu) => {
            out.push(5);
            put_number(out, mtu.into());
        }
        NetworkChange::AddNameServer(server) => {
            out.push(6);
            put_ip(out, server);
        }
        NetworkChange::RemoveNameServer(server) => {
            out.push(7);
            put_ip(out, server);
        }
        NetworkChange::SetLease(lease) => {
            out.push(8);
            put_option(out, lease, put_lease);
        }
        NetworkChange::JoinGroup(group) => {
            out.push(9);
            put_ip(out, group);
        }
        NetworkChange::LeaveGroup(group) => {
            out.push(10);
            put_ip(out, group);
        }
        // The core has no others; what it gets is one that no recording has.
        _ => out.push(u8::MAX),
    }
}

pub(crate) fn change(cursor: &mut Cursor<'_>) -> Result<NetworkChange, Trouble> {
    Ok(match cursor.byte()? {
        0 => NetworkChange::AddAddress(network(cursor)?),
        1 => NetworkChange::RemoveAddress(cursor.ip()?),
        2 => NetworkChange::Deprecate { address: cursor.ip()?, deprecated: cursor.flag()? },
        3 => NetworkChange::AddRoute(route(cursor)?),
        4 => NetworkChange::RemoveRoute(route(cursor)?),
        5 => NetworkChange::SetMtu(cursor.small()?),
        6 => NetworkChange::AddNameServer(cursor.ip()?),
        7 => NetworkChange::RemoveNameServer(cursor.ip()?),
        8 => NetworkChange::SetLease(cursor.option(lease)?),
        9 => NetworkChange::JoinGroup(cursor.ip()?),
        10 => NetworkChange::LeaveGroup(cursor.ip()?),
        other => return Trouble::wrong(format!("the unknown change of the network {other}")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use taut_core::congestion::Registry;

    #[test]
    fn each_change_comes_back() {
        let (v4, v6) = ("10.9.0.2".parse().unwrap(), "fd09::2".parse().unwrap());
        let default = Route { to: Network { address: v6, prefix: 0 }, via: Some(v6), source: None };
        let (hour, day) = (Duration::from_secs(3_600), Duration::from_secs(86_400));
        let network = Network { address: v4, prefix: 24 };
        let lease = Lease { network, server: v4, renews_in: Some(hour), ends_in: Some(day) };
        for change in [
            NetworkChange::AddAddress(Network { address: v4, prefix: 24 }),
            NetworkChange::RemoveAddress(v6),
            NetworkChange::Deprecate { address: v4, deprecated: true },
            NetworkChange::Deprecate { address: v6, deprecated: false },
            NetworkChange::AddRoute(default),
            NetworkChange::AddRoute(Route { via: None, source: Some(v6), ..default }),
            NetworkChange::RemoveRoute(default),
            NetworkChange::SetMtu(65_535),
            NetworkChange::AddNameServer(v6),
            NetworkChange::RemoveNameServer(v4),
            NetworkChange::SetLease(None),
            NetworkChange::JoinGroup(v6),
            NetworkChange::LeaveGroup(v4),
            NetworkChange::SetLease(Some(lease)),
            NetworkChange::SetLease(Some(Lease { renews_in: None, ends_in: None, ..lease })),
        ] {
            let (mut bytes, registry) = (Vec::new(), Registry::default());
            put_change(&mut bytes, change);
            let mut cursor = Cursor::new(&bytes, &registry);
            assert_eq!(super::change(&mut cursor), Ok(change));
            assert_eq!(cursor.at(), bytes.len());
        }
        assert!(super::change(&mut Cursor::new(&[11], &Registry::default())).is_err());
    }
}
