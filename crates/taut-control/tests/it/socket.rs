//! The server on a real socket with a real stack: its answers, and its limits for clients.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use taut_control::network::{AddressSnapshot, Change, RouteSnapshot};
use taut_control::server::CLIENTS_MAX;
use taut_control::{About, Client, ClientError, Fault, Server, Source};
use taut_core::{
    ConnOptions, Fate, Frame, Instant, LinkCaps, ListenOptions, NetworkChange, RxChecksum, RxPacket, Stack,
    StackConfig, Transmit,
};
use taut_replay::Taped;
use taut_testbed::{Scratch, live};

/// A stack behind a lock, with a clock that the test sets.
#[derive(Clone)]
struct Host {
    stack: Arc<Mutex<Taped>>,
    now_ms: Arc<AtomicU64>,
    has_ended: Arc<AtomicBool>,
}

impl Host {
    fn new() -> Self {
        let config = StackConfig::default().with(|c| c.addresses = vec!["10.0.0.2".parse().unwrap()]);
        let stack = Stack::new(Arc::new(config), LinkCaps::plain(1500), [7; 32]);
        Self {
            stack: Arc::new(Mutex::new(stack.into())),
            now_ms: Arc::new(AtomicU64::new(1000)),
            has_ended: Arc::default(),
        }
    }
}

impl Source for Host {
    fn now(&self) -> Instant {
        Instant::from_nanos(self.now_ms.load(Ordering::SeqCst) * 1_000_000)
    }

    fn with_stack(&self, use_stack: &mut dyn FnMut(&mut Taped, Instant)) -> bool {
        if self.has_ended.load(Ordering::SeqCst) {
            return false;
        }
        use_stack(&mut self.stack.lock().unwrap(), self.now());
        true
    }

    fn change_network(&self, change: NetworkChange) -> Result<(), String> {
        let mut stack = self.stack.lock().unwrap();
        stack.change_network(self.now(), change).map_err(|error| error.to_string())
    }
}

/// A server in a directory of its own.
struct Lab {
    host: Host,
    server: Option<Server>,
    /// Dropped, and so deleted, after the server.
    dir: Scratch,
}

impl Lab {
    fn new(test: &str) -> Self {
        let dir = Scratch::new(&format!("control-{test}"));
        let host = Host::new();
        let about = About { device: "taut7".to_owned(), addresses: vec!["10.0.0.2/24".to_owned()] };
        let server = Server::at(&dir.join("s"), about, host.clone()).unwrap();
        Self { host, server: Some(server), dir }
    }

    fn path(&self) -> PathBuf {
        self.dir.join("s")
    }

    fn client(&self) -> Client {
        Client::connect(&self.path()).unwrap()
    }

    fn raw(&self) -> Raw {
        Raw::connect(&self.path())
    }
}

/// A client that sends arbitrary bytes.
struct Raw(BufReader<UnixStream>);

impl Raw {
    fn connect(path: &Path) -> Self {
        let stream = UnixStream::connect(path).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        Self(BufReader::new(stream))
    }

    fn say(&mut self, bytes: &[u8]) {
        self.0.get_mut().write_all(bytes).unwrap();
    }

    fn line(&mut self) -> serde_json::Value {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{line:?}: {error}"))
    }

    /// Waits until the server closes the connection.
    fn is_closed(&mut self) -> bool {
        match self.0.read(&mut [0; 1]) {
            Ok(count) => count == 0,
            Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
        }
    }
}

#[test]
fn it_says_who_it_is_and_counts() {
    let lab = Lab::new("identity");
    lab.host.now_ms.store(3500, Ordering::SeqCst);
    let mut client = lab.client();
    let who = client.identity().unwrap();
    assert_eq!((who.pid, who.device.as_str()), (std::process::id(), "taut7"));
    assert_eq!(who.addresses, ["10.0.0.2/24"]);
    assert_eq!((who.started_ns, who.uptime_ns), (1_000_000_000, 2_500_000_000));
    assert_eq!(client.summary().unwrap().connections, 0);
    let counters = client.counters().unwrap();
    assert!(counters.iter().any(|counter| counter.name == "TcpInSegs" && counter.value == 0));
    let to = "10.0.0.9:80".parse().unwrap();
    lab.host.stack.lock().unwrap().connect(lab.host.now(), to, &Default::default()).unwrap();
    assert_eq!(client.summary().unwrap().connections, 1);
    let opens = client.counters().unwrap().into_iter().find(|counter| counter.name == "TcpActiveOpens");
    assert_eq!(opens.unwrap().value, 1);
}

/// What the stack knows of its network, and its changes; the host's stack has no link below it.
#[test]
fn net_01_addresses_routes_and_the_mtu() {
    let lab = Lab::new("network");
    let mut client = lab.client();
    let ip = |text: &str| text.parse::<std::net::IpAddr>().unwrap();
    let first = AddressSnapshot { address: ip("10.0.0.2"), prefix: 24, deprecated: false };
    let found = client.network().unwrap();
    assert_eq!((found.mtu, found.addresses), (1_500, vec![first]), "the prefix that the program told");
    assert_eq!((found.routes, found.lease), (vec![], None));

    let second = AddressSnapshot { address: ip("10.0.0.8"), prefix: 16, deprecated: false };
    let found = client.change_network(Change::AddAddress { address: second.address, prefix: 16 }).unwrap();
    assert_eq!(found.addresses, [first, second]);
    assert_eq!(client.identity().unwrap().addresses, ["10.0.0.2/24", "10.0.0.8/16"]);
    let route = RouteSnapshot { to: ip("0.0.0.0"), prefix: 0, via: Some(ip("10.0.0.1")), source: None };
    assert_eq!(client.change_network(Change::AddRoute(route)).unwrap().routes, [route]);
    assert_eq!(client.change_network(Change::SetMtu { mtu: 1_400 }).unwrap().mtu, 1_400);

    for (wrong, said) in [
        (Change::AddAddress { address: ip("224.0.0.1"), prefix: 24 }, "not the address of a host"),
        (Change::AddAddress { address: ip("10.0.0.9"), prefix: 33 }, "a prefix that is too long"),
        (Change::RemoveAddress { address: ip("10.0.0.9") }, "no such address"),
        (Change::AddRoute(RouteSnapshot { via: Some(ip("fd09::1")), ..route }), "does not fit"),
        (Change::RemoveRoute(RouteSnapshot { via: None, ..route }), "no such address, route"),
        (Change::SetMtu { mtu: 67 }, "an MTU below 68"),
    ] {
        let before = client.network().unwrap();
        match client.change_network(wrong) {
            Err(ClientError::Refused { fault: Fault::Setting, message }) => {
                assert!(message.contains(said), "{wrong:?}: {message}");
            }
            other => panic!("{wrong:?}: {other:?}"),
        }
        assert_eq!(client.network().unwrap(), before);
    }
    client.change_network(Change::RemoveRoute(route)).unwrap();
    let found = client.change_network(Change::RemoveAddress { address: second.address }).unwrap();
    assert_eq!((found.addresses, found.routes), (vec![first], vec![]));
}

#[test]
fn a_long_list_comes_in_parts_and_whole() {
    const COUNT: u16 = 200;
    let lab = Lab::new("list");
    let to = |port| std::net::SocketAddr::from(([10, 0, 0, 9], port));
    let ids: Vec<_> = {
        let mut stack = lab.host.stack.lock().unwrap();
        let now = lab.host.now();
        (1..=COUNT).map(|port| stack.connect(now, to(port), &Default::default()).unwrap()).collect()
    };
    let mut client = lab.client();
    let mut parts = 0;
    let count = |reply| match reply {
        taut_control::Reply::Connections(part) => {
            parts += 1;
            assert!(part.len() <= 64);
            Ok(())
        }
        other => panic!("{other:?}"),
    };
    client.request(&taut_control::Request::Connections, count).unwrap();
    assert_eq!(parts, 4);
    let mut ports: Vec<_> = client.connections().unwrap().iter().map(|conn| conn.peer.port()).collect();
    ports.sort_unstable();
    assert_eq!(ports, (1..=COUNT).collect::<Vec<_>>());
    let conn = client.connections().unwrap().remove(0);
    assert_eq!((conn.state.as_str(), conn.local.ip().to_string()), ("SYN-SENT", "10.0.0.2".to_owned()));
    assert_eq!((conn.congestion.as_str(), conn.rtt_ns, conn.pacing_rate), ("cubic", None, None));
    assert_eq!(client.reports().unwrap().len(), usize::from(COUNT));

    // Connections that end while the list is being sent are left out, and the list goes on.
    let mut raw = lab.raw();
    raw.say(b"{\"v\":1,\"request\":\"connections\"}\n");
    assert_eq!(raw.line()["more"], true);
    {
        let mut stack = lab.host.stack.lock().unwrap();
        let now = lab.host.now();
        ids.into_iter().for_each(|id| stack.conn_mut(id).unwrap().abort(now));
    }
    let last = (0..4).map(|_| raw.line()).find(|line| line["more"] != true);
    assert_eq!(last.unwrap()["reply"], "connections");
}

#[test]
fn settings_are_read_and_changed_within_their_ranges() {
    let lab = Lab::new("settings");
    let mut client = lab.client();
    let all = client.sysctls().unwrap();
    assert!(all.iter().any(|setting| setting.name == "net.ipv4.tcp_sack" && setting.value == "1"));
    assert_eq!(client.set_sysctl("tcp_autocorking", "0").unwrap().name, "net.ipv4.tcp_autocorking");
    assert!(!lab.host.stack.lock().unwrap().config().send.autocorking);
    assert_eq!(client.sysctl("net.ipv4.tcp_autocorking").unwrap().value, "0");
    for (name, value) in [("net.ipv4.tcp_autocorking", "2"), ("net.ipv4.moon_phase", "1")] {
        match client.set_sysctl(name, value) {
            Err(ClientError::Refused { fault: Fault::Setting, message }) => assert!(message.contains(name)),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(client.sysctl("net.ipv4.tcp_autocorking").unwrap().value, "0");
}

#[test]
fn listeners_and_reports_are_the_stacks() {
    let lab = Lab::new("reports");
    let at = "10.0.0.2:80".parse().unwrap();
    lab.host.stack.lock().unwrap().listen(at, Default::default()).unwrap();
    let mut client = lab.client();
    let listeners = client.listeners().unwrap();
    assert_eq!((listeners.len(), listeners[0].local, listeners[0].ready), (1, at, 0));
    let report = client.report().unwrap();
    let names: Vec<_> = report.queues.iter().map(|queue| queue.name.as_str()).collect();
    assert_eq!(names, ["unsent", "device", "in flight"]);
    assert!(report.shares.iter().any(|share| share.reason == "pacing" && share.time_ns == 0));
}

#[test]
fn garbage_gets_an_error_and_the_next_request_an_answer() {
    let lab = Lab::new("garbage");
    let mut raw = lab.raw();
    raw.say(b"GET / HTTP/1.1\r\n");
    assert_eq!(raw.line()["data"]["fault"], "request");
    raw.say(b"\xff\xfe\0\n{\"v\":9,\"request\":\"identity\"}\n");
    assert_eq!(raw.line()["data"]["fault"], "request");
    assert_eq!(raw.line()["data"]["fault"], "version");
    // Two at once, the second in two pieces.
    raw.say(b"{\"v\":1,\"request\":\"summary\"}\n{\"v\":1,\"requ");
    assert_eq!(raw.line()["data"]["connections"], 0);
    raw.say(b"est\":\"identity\"}\n");
    assert_eq!(raw.line()["data"]["device"], "taut7");
}

#[test]
fn an_endless_request_is_cut_off() {
    let lab = Lab::new("endless");
    let mut raw = lab.raw();
    raw.say(&[b'x'; 6000]);
    let refusal = raw.line();
    assert_eq!(refusal["reply"], "error");
    assert!(refusal["data"]["message"].as_str().unwrap().contains("4096"));
    assert!(raw.is_closed());
    assert!(lab.client().identity().is_ok());
}

#[test]
fn clients_beyond_the_limit_are_told_so_and_places_are_given_back() {
    let lab = Lab::new("many");
    let mut held: Vec<Client> = (0..CLIENTS_MAX).map(|_| lab.client()).collect();
    // Each has been accepted, not only queued.
    held.iter_mut().for_each(|client| assert!(client.summary().is_ok()));
    match lab.client().summary() {
        Err(ClientError::Refused { fault: Fault::Busy, message }) => {
            assert!(message.contains(&CLIENTS_MAX.to_string()));
        }
        other => panic!("{other:?}"),
    }
    drop(held);
    assert!(lab.client().summary().is_ok());
}

#[test]
fn who_is_slow_or_silent_loses_his_place_in_time() {
    let lab = Lab::new("slow");
    let mut slow = lab.raw();
    slow.say(b"{\"v\":1,");
    let mut silent = lab.raw();
    // The server has seen both by the time it answers a third.
    assert!(lab.client().summary().is_ok());
    lab.host.now_ms.fetch_add(5_001, Ordering::SeqCst);
    assert!(lab.client().summary().is_ok());
    assert!(slow.is_closed());
    silent.say(b"{\"v\":1,\"request\":\"summary\"}\n");
    assert_eq!(silent.line()["reply"], "summary");
    // The server has served another client since, so it has noted when it finished with this one.
    assert!(lab.client().summary().is_ok());
    lab.host.now_ms.fetch_add(60_001, Ordering::SeqCst);
    assert!(lab.client().summary().is_ok());
    assert!(silent.is_closed());
}

#[test]
fn who_does_not_read_holds_up_nobody() {
    let lab = Lab::new("deaf");
    let mut deaf = lab.raw();
    deaf.0.get_ref().set_nonblocking(true).unwrap();
    // As many requests as fit; their replies do not.
    let requests = "{\"v\":1,\"request\":\"counters\"}\n".repeat(100);
    while deaf.0.get_mut().write(requests.as_bytes()).is_ok() {}
    for _ in 0..50 {
        assert!(lab.client().counters().is_ok());
    }
    // It is disconnected because it does not take a line. When that line is made is not known, so time passes
    // in many steps.
    let is_let_go = (0..1000).any(|_| {
        lab.host.now_ms.fetch_add(5_001, Ordering::SeqCst);
        assert!(lab.client().counters().is_ok());
        let written = deaf.0.get_mut().write(b"\n");
        written.is_err_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
    });
    assert!(is_let_go);
}

#[test]
fn the_socket_goes_with_the_server() {
    let mut lab = Lab::new("drop");
    let mut client = lab.client();
    assert!(client.summary().is_ok());
    let mode = std::fs::metadata(lab.path()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    drop(lab.server.take());
    assert!(!lab.path().exists());
    assert!(matches!(client.summary(), Err(ClientError::Io(_))));
}

#[test]
fn a_panic_under_the_lock_takes_the_socket_along() {
    /// A source that panics when its stack is used.
    struct Broken;
    impl Source for Broken {
        fn now(&self) -> Instant {
            Instant::ZERO
        }
        fn with_stack(&self, _: &mut dyn FnMut(&mut Taped, Instant)) -> bool {
            panic!("the test panics on purpose")
        }
    }
    let lab = Lab::new("panic");
    let path = lab.dir.join("broken");
    let server = Server::at(&path, About::default(), Broken).unwrap();
    assert!(Client::connect(&path).unwrap().summary().is_err());
    drop(server);
    assert!(!path.exists());
}

#[test]
fn a_stack_that_has_ended_says_so() {
    let lab = Lab::new("ended");
    let mut client = lab.client();
    lab.host.has_ended.store(true, Ordering::SeqCst);
    for result in [client.summary().map(drop), lab.client().connections().map(drop)] {
        assert!(matches!(result, Err(ClientError::Refused { fault: Fault::Stopped, .. })), "{result:?}");
    }
}

#[test]
fn another_user_is_refused_even_when_he_reaches_the_socket() {
    const NOBODY: u32 = 65534;
    if !rustix::process::geteuid().is_root() {
        live::skip("only root can become another user");
        return;
    }
    let lab = Lab::new("stranger");
    // The file modes are opened here, to test the check behind them.
    for path in [&*lab.dir, &lab.path()] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o777)).unwrap();
    }
    let path = lab.path();
    let stranger = std::thread::spawn(move || {
        let nobody = rustix::thread::Uid::from_raw(NOBODY);
        rustix::thread::set_thread_res_uid(nobody, nobody, nobody).unwrap();
        let mut raw = Raw::connect(&path);
        let refusal = raw.line();
        (refusal, raw.is_closed())
    });
    let (refusal, is_closed) = stranger.join().unwrap();
    assert_eq!(refusal["data"]["fault"], "permission");
    assert!(is_closed);
    assert!(lab.client().identity().is_ok());
}

fn arriving(packet: &[u8]) -> RxPacket<'_> {
    RxPacket { frame: Frame::Slice(packet), checksum: RxChecksum::Verified, gso_size: 0 }
}

/// A packet's payload: it is IPv4 without options.
fn payload_len(packet: &[u8]) -> u64 {
    let tcp_header = usize::from(packet[32] >> 4) * 4;
    (packet.len() - 20 - tcp_header) as u64
}

/// Every byte is in one place: written and not sent, handed to the device, or on the way.
#[test]
fn dash_11_a_sample_says_how_many_bytes_are_where() {
    let lab = Lab::new("places");
    let now = lab.host.now();
    let far = StackConfig::default().with(|c| c.addresses = vec!["10.0.0.1".parse().unwrap()]);
    let mut far = Stack::new(Arc::new(far), LinkCaps::plain(1500), [8; 32]);
    far.listen("10.0.0.1:7".parse().unwrap(), ListenOptions::default()).unwrap();
    let conn = {
        let mut near = lab.host.stack.lock().unwrap();
        let conn = near.connect(now, "10.0.0.1:7".parse().unwrap(), &ConnOptions::default()).unwrap();
        for _ in 0..2 {
            while let Some(Transmit { packet, ticket }) = near.poll_transmit(now) {
                let packet = packet.to_vec();
                near.handle_tx(now, ticket, Fate::Left);
                far.handle_packet(now, arriving(&packet));
            }
            while let Some(Transmit { packet, ticket }) = far.poll_transmit(now) {
                let packet = packet.to_vec();
                far.handle_tx(now, ticket, Fate::Left);
                near.handle_packet(now, arriving(&packet));
            }
        }
        conn
    };
    // Three packets leave and never arrive; the device keeps the others; the window has no room for the rest.
    let (mut left, mut kept, mut tickets) = (0, 0, Vec::new());
    let written = {
        let mut near = lab.host.stack.lock().unwrap();
        let written = near.conn_mut(conn).unwrap().write(now, &[1; 20_000]).unwrap() as u64;
        while let Some(Transmit { packet, ticket }) = near.poll_transmit(now) {
            let len = payload_len(&packet.to_vec());
            if left < 3 * len {
                left += len;
                near.handle_tx(now, ticket, Fate::Left);
            } else {
                kept += len;
                tickets.push(ticket);
            }
        }
        written
    };
    let of = |lab: &Lab| {
        let samples = lab.client().samples().unwrap();
        assert_eq!(samples.len(), 1);
        (samples[0].unsent, samples[0].device, samples[0].in_flight)
    };
    assert!(left > 0 && kept > 0 && left != kept && written > left + kept, "{left} {kept} {written}");
    assert_eq!(of(&lab), (written - left - kept, kept, left));
    // And when the device is done with them.
    let mut near = lab.host.stack.lock().unwrap();
    tickets.into_iter().for_each(|ticket| near.handle_tx(now, ticket, Fate::Left));
    drop(near);
    assert_eq!(of(&lab), (written - left - kept, 0, left + kept));
}

#[test]
fn a_program_without_queues_says_so() {
    let lab = Lab::new("queues");
    let mut client = lab.client();
    assert_eq!(client.qdiscs().unwrap(), []);
    match client.set_qdisc(Some("fq")) {
        Err(ClientError::Refused { fault: Fault::Setting, message }) => assert!(message.contains("no queue")),
        other => panic!("{other:?}"),
    }
}
