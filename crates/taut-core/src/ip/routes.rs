//! The routes of a host: which router, if any, a packet goes to. RFC 1122 §3.3.1, RFC 1812 §5.2.4.3 (the
//! longest match), RFC 4191 (more-specific routes). Asked when a connection or a datagram begins
//! (`stack/network.rs`), and below by the link layer for each packet (`taut-ethernet`).
//!
//! **Rule.** Of the routes whose prefix a destination has, the one with the longest prefix; of equally long
//! ones, the one that was added first. They are kept in this order, so the first that matches is it: a host
//! has a handful. The table is bounded, because advertisements of routers fill it.

use alloc::vec::Vec;
use core::net::IpAddr;

use super::addresses::is_host;
use crate::words::{NetworkError, Route};

/// The most routes of a host.
const ROUTES_MAX: usize = 256;

/// Routes, longer prefixes first.
#[derive(Clone, Debug, Default)]
pub struct Routes {
    list: Vec<Route>,
}

impl Routes {
    /// Adds a route, or replaces the one with the same prefix and router.
    ///
    /// # Errors
    /// [`NetworkError::InvalidRoute`], [`NetworkError::InvalidAddress`] or [`NetworkError::TooMany`].
    pub fn add(&mut self, route: Route) -> Result<(), NetworkError> {
        let is_v4 = route.to.address.is_ipv4();
        if !route.to.is_valid() {
            return Err(NetworkError::InvalidAddress);
        }
        let fits = |ip: &IpAddr| ip.is_ipv4() == is_v4 && is_host(*ip);
        if !route.via.iter().chain(&route.source).all(fits) {
            return Err(NetworkError::InvalidRoute);
        }
        if let Some(at) = self.position(&route) {
            self.list[at] = route;
            return Ok(());
        }
        if self.list.len() >= ROUTES_MAX {
            return Err(NetworkError::TooMany);
        }
        let at = self.list.partition_point(|other| other.to.prefix >= route.to.prefix);
        self.list.insert(at, route);
        Ok(())
    }

    /// Removes the route with the same prefix and router.
    ///
    /// # Errors
    /// [`NetworkError::NotFound`].
    pub fn remove(&mut self, route: &Route) -> Result<(), NetworkError> {
        let at = self.position(route).ok_or(NetworkError::NotFound)?;
        self.list.remove(at);
        Ok(())
    }

    fn position(&self, route: &Route) -> Option<usize> {
        self.list.iter().position(|other| other.to.is_same_prefix(route.to) && other.via == route.via)
    }

    /// The route to a destination.
    #[must_use]
    pub fn find(&self, to: IpAddr) -> Option<&Route> {
        self.list.iter().find(|route| route.to.contains(to))
    }

    /// Whether there is any route for a family.
    #[must_use]
    pub fn has_family_of(&self, ip: IpAddr) -> bool {
        self.list.iter().any(|route| route.to.address.is_ipv4() == ip.is_ipv4())
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Route> {
        self.list.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::words::Network;

    fn route(to: &str, prefix: u8, via: Option<&str>) -> Route {
        let to = Network { address: to.parse().unwrap(), prefix };
        Route { to, via: via.map(|via| via.parse().unwrap()), source: None }
    }

    fn via(routes: &Routes, to: &str) -> Option<Option<IpAddr>> {
        routes.find(to.parse().unwrap()).map(|route| route.via)
    }

    /// RFC 1812 §5.2.4.3: "if there is more than one route remaining, the longest match", whatever the order
    /// of adding.
    #[test]
    fn route_02_the_longest_prefix_decides() {
        let all = [
            route("0.0.0.0", 0, Some("10.9.0.1")),
            route("10.9.0.0", 24, None),
            route("10.9.0.128", 25, Some("10.9.0.3")),
            route("10.9.0.129", 32, Some("10.9.0.4")),
            route("10.8.0.0", 16, Some("10.9.0.5")),
        ];
        for turn in 0..all.len() {
            let mut routes = Routes::default();
            for at in 0..all.len() {
                routes.add(all[(at + turn) % all.len()]).unwrap();
            }
            let ip = |text: &str| Some(Some(text.parse().unwrap()));
            assert_eq!(via(&routes, "10.9.0.7"), Some(None), "on the link");
            assert_eq!(via(&routes, "10.9.0.130"), ip("10.9.0.3"));
            assert_eq!(via(&routes, "10.9.0.129"), ip("10.9.0.4"));
            assert_eq!(via(&routes, "10.8.255.1"), ip("10.9.0.5"));
            assert_eq!(via(&routes, "192.0.2.1"), ip("10.9.0.1"));
            assert_eq!(via(&routes, "fd09::1"), None, "another family");
        }
    }

    #[test]
    fn route_03_equal_prefixes_the_first_one_until_it_is_removed() {
        let (first, second) = (route("::", 0, Some("fe80::1")), route("::", 0, Some("fe80::2")));
        let mut routes = Routes::default();
        routes.add(first).unwrap();
        routes.add(second).unwrap();
        assert_eq!(via(&routes, "2001:db8::1"), Some(first.via));
        routes.remove(&first).unwrap();
        assert_eq!(via(&routes, "2001:db8::1"), Some(second.via));
        assert_eq!(routes.remove(&first), Err(NetworkError::NotFound));
        routes.remove(&second).unwrap();
        assert!(!routes.has_family_of("::".parse().unwrap()));
    }

    #[test]
    fn route_04_nonsense_is_refused_and_the_table_is_bounded() {
        let mut routes = Routes::default();
        for (wrong, error) in [
            (route("10.0.0.0", 33, None), NetworkError::InvalidAddress),
            (route("10.0.0.0", 8, Some("fe80::1")), NetworkError::InvalidRoute),
            (route("10.0.0.0", 8, Some("0.0.0.0")), NetworkError::InvalidRoute),
            (route("10.0.0.0", 8, Some("224.0.0.1")), NetworkError::InvalidRoute),
            (route("::", 0, Some("ff02::1")), NetworkError::InvalidRoute),
        ] {
            assert_eq!(routes.add(wrong), Err(error), "{wrong:?}");
        }
        let mut results = Vec::new();
        for n in 0..1_000_u32 {
            let to = Network { address: IpAddr::from((n << 8).to_be_bytes()), prefix: 24 };
            results.push(routes.add(Route { to, via: None, source: None }));
        }
        assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 256);
        assert_eq!(results[256], Err(NetworkError::TooMany));
        // The same prefix, written by another of its addresses, takes no further place.
        assert_eq!(routes.add(route("0.0.3.77", 24, None)), Ok(()));
        assert_eq!(routes.iter().count(), 256);
    }
}
