//! The host's files about names: `resolv.conf(5)`, `hosts(5)`.
//!
//! When a question comes, at most once a second, `stat` shows whether a file has changed or another one has
//! its place; then it is read. A file that is missing or cannot be read leaves what was read before. Called
//! by `resolver.rs`, and by `inside.rs` for the guest's own `resolv.conf`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Read as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV6};
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::sandbox::Caller;
use crate::sandbox::outside::Known;

const LOOK_EVERY: Duration = Duration::from_secs(1);
/// As the C library: further ones are not used.
const MAX_SERVERS: usize = 3;

/// A file, and what it says.
#[derive(Debug)]
pub(crate) struct Watched<T> {
    place: Place,
    read: fn(&str) -> T,
    state: Mutex<State<T>>,
}

#[derive(Debug)]
struct State<T> {
    looked_at: Option<Instant>,
    /// Device, inode, time of change and length of the file that was read.
    seen: Option<(u64, u64, i64, i64, u64)>,
    value: Arc<T>,
}

#[derive(Debug)]
enum Place {
    Path(PathBuf),
    Outside(Arc<Caller>, Known),
}

impl Place {
    /// The file's text, if it has changed and can be read.
    fn changed(&self, seen: &mut Option<(u64, u64, i64, i64, u64)>) -> Option<Vec<u8>> {
        let path = match self {
            Self::Path(path) => path,
            Self::Outside(caller, file) => {
                let mut bytes = Vec::new();
                caller.look(*file)?.read_to_end(&mut bytes).ok()?;
                return Some(bytes);
            }
        };
        let file = std::fs::metadata(path).ok();
        let now = file.map(|file| (file.dev(), file.ino(), file.ctime(), file.ctime_nsec(), file.len()));
        if now == *seen {
            return None;
        }
        let bytes = std::fs::read(path).ok()?;
        *seen = now;
        Some(bytes)
    }
}

impl<T: Default> Watched<T> {
    pub(crate) fn new(path: PathBuf, read: fn(&str) -> T) -> Self {
        Self::of(Place::Path(path), read)
    }

    /// A file of the host's, which the process outside of a sandbox opens.
    pub(crate) fn outside(caller: Arc<Caller>, file: Known, read: fn(&str) -> T) -> Self {
        Self::of(Place::Outside(caller, file), read)
    }

    fn of(place: Place, read: fn(&str) -> T) -> Self {
        let state = State { looked_at: None, seen: None, value: Arc::default() };
        Self { place, read, state: Mutex::new(state) }
    }

    pub(crate) fn get(&self) -> Arc<T> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.looked_at.is_none_or(|at| at.elapsed() >= LOOK_EVERY) {
            state.looked_at = Some(Instant::now());
            if let Some(bytes) = self.place.changed(&mut state.seen) {
                state.value = Arc::new((self.read)(&String::from_utf8_lossy(&bytes)));
            }
        }
        Arc::clone(&state.value)
    }
}

/// A `resolv.conf`.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct ResolvConf {
    servers: Vec<String>,
    search: Vec<String>,
    options: Vec<String>,
}

impl ResolvConf {
    pub(crate) fn read(text: &str) -> Self {
        let mut conf = Self::default();
        for line in text.lines() {
            let mut words = line.split_whitespace();
            let keyword = words.next();
            let mut words = words.map(str::to_owned);
            match keyword {
                Some("nameserver") => conf.servers.extend(words.next()),
                // The last line of these two counts.
                Some("search" | "domain") => conf.search = words.collect(),
                Some("options") => conf.options.extend(words),
                _ => {}
            }
        }
        conf
    }

    /// The name servers; this host if there is none. An interface is looked up now: it may be another one
    /// than when the file was read.
    pub(crate) fn servers(&self) -> Vec<SocketAddr> {
        let servers = self.servers.iter().filter_map(|text| name_server(text)).take(MAX_SERVERS);
        let mut servers: Vec<_> = servers.collect();
        if servers.is_empty() {
            servers.push((Ipv4Addr::LOCALHOST, 53).into());
        }
        servers
    }

    /// The file of a guest on this host: the gateway as its name server, and the host's options and domains,
    /// or the domains that are given.
    pub(crate) fn for_guest(&self, server: IpAddr, search: &[String]) -> String {
        let mut text = format!("nameserver {server}\n");
        let search = if search.is_empty() { &self.search } else { search };
        for (keyword, words) in [("search", search), ("options", &self.options)] {
            if !words.is_empty() {
                _ = writeln!(text, "{keyword} {}", words.join(" "));
            }
        }
        text
    }
}

/// The name servers of a host, by its `resolv.conf`: changes of the file are noticed.
#[derive(Debug)]
pub struct NameServers(Watched<ResolvConf>);

impl NameServers {
    /// Those that this file names.
    #[must_use]
    pub fn of(path: PathBuf) -> Self {
        Self(Watched::new(path, ResolvConf::read))
    }

    /// The servers at this moment: this host if there is none. The file is looked at once a second at most.
    #[must_use]
    pub fn get(&self) -> Vec<SocketAddr> {
        self.0.get().servers()
    }
}

/// The address of a name server: `ADDRESS`, `ADDRESS:PORT`, and for a link-local one `fe80::1%eth0` or
/// `[fe80::1%eth0]:53` (RFC 4007 §11). `None` if the text is none, or there is no such interface.
#[must_use]
pub fn name_server(text: &str) -> Option<SocketAddr> {
    if let Ok(with_port) = text.parse() {
        return Some(with_port);
    }
    let (host, port) = match text.strip_prefix('[').and_then(|rest| rest.rsplit_once("]:")) {
        Some((host, port)) => (host, port.parse().ok()?),
        None => (text, 53),
    };
    let Some((host, zone)) = host.split_once('%') else {
        return Some(SocketAddr::new(host.parse().ok()?, port));
    };
    let index = zone.parse().ok().or_else(|| nix::net::if_::if_nametoindex(zone).ok())?;
    Some(SocketAddrV6::new(host.parse().ok()?, port, 0, index).into())
}

/// The host's own names, in small letters.
#[derive(Debug, Default)]
pub(crate) struct Hosts(BTreeMap<String, Vec<IpAddr>>);

impl Hosts {
    pub(crate) fn read(text: &str) -> Self {
        let mut hosts = Self::default();
        for line in text.lines() {
            let line = line.split_once('#').map_or(line, |(line, _)| line);
            let mut words = line.split_whitespace();
            // An address with a zone is of no use to others.
            let Some(address) = words.next().and_then(|word| word.parse().ok()) else { continue };
            for name in words {
                hosts.0.entry(name.to_ascii_lowercase()).or_default().push(address);
            }
        }
        hosts
    }

    /// The addresses of a name, of both families; `None` if the file does not have it.
    pub(crate) fn of(&self, name: &str) -> Option<&[IpAddr]> {
        let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
        self.0.get(&name).map(Vec::as_slice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gw_25_name_servers_of_resolv_conf() {
        let of =
            |text: &str| ResolvConf::read(text).servers().iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(
            of("# no\nsearch a b\nnameserver 192.0.2.1\nnameserver\t2001:db8::1 # x\n"),
            ["192.0.2.1:53", "[2001:db8::1]:53"]
        );
        assert_eq!(of("nameserver\nnameserver x\n;nameserver 192.0.2.1\n"), ["127.0.0.1:53"]);
        assert_eq!(of(&"nameserver 192.0.2.1\n".repeat(5)).len(), 3);
    }

    #[test]
    fn gw_122_a_name_server_may_be_link_local() {
        // The loopback is interface 1 of each namespace.
        for (text, expected) in [
            ("fe80::1%lo", "[fe80::1%1]:53"),
            ("fe80::1%7", "[fe80::1%7]:53"),
            ("[fe80::1%lo]:5353", "[fe80::1%1]:5353"),
            ("[2001:db8::1]:5353", "[2001:db8::1]:5353"),
            ("192.0.2.1:5353", "192.0.2.1:5353"),
        ] {
            assert_eq!(name_server(text).unwrap().to_string(), expected, "{text}");
        }
        for wrong in ["fe80::1%nothere", "192.0.2.1%lo", "[fe80::1%lo]", "[fe80::1%lo]:x", "%lo", "here", ""]
        {
            assert_eq!(name_server(wrong), None, "{wrong}");
        }
        let conf = "nameserver fe80::1%nothere\nnameserver fe80::1%lo\n";
        assert_eq!(ResolvConf::read(conf).servers(), [name_server("fe80::1%lo").unwrap()]);
    }

    #[test]
    fn gw_124_domains_and_options_of_the_host_are_the_guests() {
        let of = |host: &str, search: &[&str]| {
            let search: Vec<String> = search.iter().map(ToString::to_string).collect();
            ResolvConf::read(host).for_guest([10, 0, 2, 2].into(), &search)
        };
        let host = "domain old.example\nnameserver 192.0.2.1\nsearch corp.example lab.example\n\
                    options ndots:2\noptions edns0 timeout:1\n";
        let options = "options ndots:2 edns0 timeout:1\n";
        assert_eq!(of(host, &[]), format!("nameserver 10.0.2.2\nsearch corp.example lab.example\n{options}"));
        assert_eq!(
            of(host, &["a.test", "b.test"]),
            format!("nameserver 10.0.2.2\nsearch a.test b.test\n{options}")
        );
        assert_eq!(of("search a.test\ndomain b.test\n", &[]), "nameserver 10.0.2.2\nsearch b.test\n");
        assert_eq!(of("", &[]), "nameserver 10.0.2.2\n");
    }

    #[test]
    fn px_23_names_of_the_hosts_file() {
        let hosts = Hosts::read(
            "# 192.0.2.9 commented\n192.0.2.1\tdb.corp DB  # 192.0.2.8 x\n2001:db8::1 db.corp\nfe80::1%lo far\n\
             name 192.0.2.7\n",
        );
        let of = |name| hosts.of(name).map(|all| all.iter().map(ToString::to_string).collect::<Vec<_>>());
        assert_eq!(of("Db.Corp.").unwrap(), ["192.0.2.1", "2001:db8::1"]);
        assert_eq!(of("db").unwrap(), ["192.0.2.1"]);
        for none in ["commented", "x", "far", "192.0.2.7", "corp", ""] {
            assert_eq!(of(none), None, "{none}");
        }
    }
}
