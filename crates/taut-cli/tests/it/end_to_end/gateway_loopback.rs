//! `taut gateway` and services at the guest's own loopback: GW-161 to 165 of `docs/spec/gateway.md`.

use std::fs::{read_dir, read_link, read_to_string};
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::Command;
use std::time::Duration;

use socket2::SockRef;
use taut_testbed::{Kernel, PATIENCE, eventually};

use super::gateway_operations::{Gateway, SERVER, answering, asked, is_open, lab, passes, within};
use super::support::Lab;

/// The gateway, as the guest sees it.
const GATEWAY: &str = "10.0.2.2";
const MIB: usize = 1 << 20;

fn listener(guest: u32, at: &str) -> TcpListener {
    within(guest, || TcpListener::bind(at)).unwrap()
}

fn connect(lab: &Lab, at: &str) -> std::io::Result<TcpStream> {
    let stream = lab.kernel.enter(|| TcpStream::connect(at)).unwrap()?;
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    Ok(stream)
}

/// The host's kernel answers the SYN, so a refusal is a reset.
fn is_refused(lab: &Lab, at: &str) -> bool {
    let end = connect(lab, at).and_then(|mut stream| stream.read(&mut [0]));
    matches!(end, Err(error) if error.kind() == ErrorKind::ConnectionReset)
}

/// The next connection, which is waited for with patience.
fn accept(service: &TcpListener) -> (TcpStream, SocketAddr) {
    let mut accepted = None;
    service.set_nonblocking(true).unwrap();
    eventually("a connection", || {
        accepted = service.accept().ok();
        accepted.is_some()
    });
    service.set_nonblocking(false).unwrap();
    let (stream, from) = accepted.unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    (stream, from)
}

/// A service at the guest's loopback, and its client at the host's.
fn pair(lab: &Lab, at: &str, service: &TcpListener) -> [TcpStream; 2] {
    let client = connect(lab, at).unwrap();
    let (served, from) = accept(service);
    assert_eq!(from.ip(), service.local_addr().unwrap().ip(), "the client is at the same loopback");
    [client, served]
}

/// 1 MiB to the end of the half, and then 1 MiB back.
fn ends_its_half(mut from: TcpStream, mut to: TcpStream) {
    let bytes: Vec<u8> = (0..MIB).map(|at| (at % 251) as u8).collect();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut said = Vec::new();
            to.read_to_end(&mut said).unwrap();
            to.write_all(&said).unwrap();
            to.shutdown(Shutdown::Write).unwrap();
        });
        from.write_all(&bytes).unwrap();
        from.shutdown(Shutdown::Write).unwrap();
        let mut back = Vec::new();
        from.read_to_end(&mut back).unwrap();
        assert!(back == bytes);
    });
}

/// A connection whose buffers are full, because the one end writes and the other does not read; then one of
/// the two is reset, and the other sees it without reading.
fn is_reset([mut writer, reader]: [TcpStream; 2], by_reader: bool) {
    writer.set_nonblocking(true).unwrap();
    eventually("its buffers are full", || writer.write(&[0; 65_536]).is_err());
    let (gone, left) = if by_reader { (reader, writer) } else { (writer, reader) };
    SockRef::from(&gone).set_linger(Some(Duration::ZERO)).unwrap();
    drop(gone);
    let is_reset = |error: std::io::Error| error.kind() == ErrorKind::ConnectionReset;
    eventually("a reset", || left.take_error().unwrap().is_some_and(is_reset));
}

#[test]
fn gw_161_a_service_at_the_guests_loopback_is_reached() {
    let Some(lab) = lab("gateway-loopback", &["sleep"]) else { return };
    let options = ["-t", "8080", "-t", "8081:81", "-t", "[::1]:8082:8080", "-t", "8083"];
    let gateway = Gateway::run(&lab, "log", &options, "exec sleep 100");
    let guest = gateway.guest("sleep");
    for (at, own) in [
        ("127.0.0.1:8080", "127.0.0.1:8080"),
        ("[::1]:8082", "127.0.0.1:8080"),
        ("127.0.0.1:8081", "[::1]:81"),
    ] {
        assert!(is_refused(&lab, at), "{at}");
        let service = listener(guest, own);
        passes(&lab, at, &service);
        let [client, served] = pair(&lab, at, &service);
        ends_its_half(client, served);
        let [client, served] = pair(&lab, at, &service);
        ends_its_half(served, client);
        for by_reader in [true, false] {
            is_reset(pair(&lab, at, &service), by_reader);
            let [client, served] = pair(&lab, at, &service);
            is_reset([served, client], by_reader);
        }
        drop(service);
        assert!(is_refused(&lab, at), "{at}");
    }
    // The outer address comes first.
    let both = ["10.0.2.15:8080", "127.0.0.1:8080"].map(|own| listener(guest, own));
    let _client = connect(&lab, "127.0.0.1:8080").unwrap();
    assert_eq!(accept(&both[0]).1.ip(), GATEWAY.parse::<IpAddr>().unwrap());
    // A port that is not forwarded is not reached.
    let _other = listener(guest, "127.0.0.1:8084");
    assert_eq!(connect(&lab, "127.0.0.1:8084").unwrap_err().kind(), ErrorKind::ConnectionRefused);
    assert!(is_refused(&lab, "127.0.0.1:8083"));
}

#[test]
fn gw_161_in_a_namespace_that_was_there_before() {
    let Some(lab) = lab("gateway-loopback-netns", &["sleep"]) else { return };
    let guest = Kernel::new().unwrap();
    let mut sleeper = guest.namespace.spawn(Command::new("sleep").arg("1000")).unwrap();
    for name in [sleeper.id().to_string(), format!("/proc/{}/ns/net", sleeper.id())] {
        let options = ["gateway", "--netns", &name, "-t", "8080", "--client-address", "proxy-protocol"];
        let running = lab.taut(&options, "the gateway is at 10.0.2.2");
        let service = listener(sleeper.id(), "127.0.0.1:8080");
        let [client, mut served] = pair(&lab, "127.0.0.1:8080", &service);
        // The PROXY protocol has the client's address and port at the host.
        let mut header = [0; 28];
        served.read_exact(&mut header).unwrap();
        let own = client.local_addr().unwrap();
        assert_eq!((&header[16..20], &header[24..26]), (&[127, 0, 0, 1][..], &own.port().to_be_bytes()[..]));
        running.interrupt();
        running.output();
        // The process inside is gone, too.
        eventually("one process is left", || makers(sleeper.id()).is_empty());
    }
    _ = sleeper.kill();
    _ = sleeper.wait();
}

#[test]
fn gw_162_datagrams_reach_the_guests_loopback() {
    let Some(lab) = lab("gateway-loopback-udp", &["sleep"]) else { return };
    let options = ["-u", "5353", "-u", "5354"];
    let gateway = Gateway::run(&lab, "log", &options, "exec sleep 100");
    let guest = gateway.guest("sleep");
    let client = || {
        let client = lab.kernel.enter(|| UdpSocket::bind("127.0.0.1:0")).unwrap().unwrap();
        client.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
        client
    };
    for (at, services) in [
        ("127.0.0.1:5353", ["127.0.0.1:5353", "0.0.0.0:5353", "127.0.0.1:5353"]),
        ("127.0.0.1:5354", ["[::1]:5354", "10.0.2.15:5354", "[::1]:5354"]),
    ] {
        let clients = [client(), client()];
        // Refused: nothing listens.
        assert_eq!(asked(&clients[0], at), None);
        // One service after the other, for the same clients.
        for own in services {
            let socket = within(guest, || UdpSocket::bind(own)).unwrap();
            let port = socket.local_addr().unwrap().port().to_string();
            let service = answering(socket);
            for client in &clients {
                eventually(own, || asked(client, at).as_ref() == Some(&port));
            }
            // Its other questions are behind it.
            clients[0].send(b"end").unwrap();
            service.join().unwrap();
        }
    }
}

#[test]
fn gw_163_services_at_the_guests_loopback_are_found() {
    let Some(lab) = lab("gateway-loopback-auto", &["sleep"]) else { return };
    let gateway = Gateway::run(&lab, "log", &["-t", "auto", "-u", "auto"], "exec sleep 100");
    let guest = gateway.guest("sleep");
    // Others' are bound before, so that they were there when these are seen.
    let _others =
        ["127.0.0.2:7001", "127.0.0.1:0"].map(|own| within(guest, || UdpSocket::bind(own)).unwrap());
    let _other = listener(guest, "127.0.0.2:7001");
    for own in ["127.0.0.1:7002", "[::1]:7003"] {
        let port = own.parse::<SocketAddr>().unwrap().port();
        let (at, service) = (format!("127.0.0.1:{port}"), listener(guest, own));
        eventually("the port is open", || connect(&lab, &at).is_ok());
        accept(&service);
        passes(&lab, &at, &service);
        drop(service);
        eventually("the port is closed", || connect(&lab, &at).is_err());
        let _service = answering(within(guest, || UdpSocket::bind(own)).unwrap());
        let client = lab.kernel.enter(|| UdpSocket::bind("127.0.0.1:0")).unwrap().unwrap();
        client.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
        eventually(own, || asked(&client, &at) == Some(port.to_string()));
    }
    assert!(connect(&lab, "127.0.0.1:7001").is_err() && !is_open(&lab, 7_001));
}

#[test]
fn gw_164_clients_from_elsewhere_do_not_reach_the_guests_loopback() {
    let Some(lab) = lab("gateway-loopback-others", &["sleep"]) else { return };
    let options = ["-t", "0.0.0.0:8080", "-u", "0.0.0.0:5353"];
    let gateway = Gateway::run(&lab, "log", &options, "exec sleep 100");
    let guest = gateway.guest("sleep");
    let service = listener(guest, "127.0.0.1:8080");
    passes(&lab, "127.0.0.1:8080", &service);
    // Linux connects to an address of its own from that address.
    assert!(is_refused(&lab, &format!("{SERVER}:8080")));
    let datagrams = within(guest, || UdpSocket::bind("127.0.0.1:5353")).unwrap();
    datagrams.set_read_timeout(Some(PATIENCE)).unwrap();
    let client = |at: &str, to: &str| {
        let client = lab.kernel.enter(|| UdpSocket::bind(at)).unwrap().unwrap();
        client.connect(to).unwrap();
        client.send(at.as_bytes()).unwrap();
        client
    };
    // In order: the other one's would have come before.
    let _clients =
        [(format!("{SERVER}:0"), format!("{SERVER}:5353")), ("127.0.0.1:0".into(), "127.0.0.1:5353".into())]
            .map(|(at, to)| client(&at, &to));
    let mut message = [0; 100];
    let (len, from) = datagrams.recv_from(&mut message).unwrap();
    assert_eq!((&message[..len], from.ip()), (&b"127.0.0.1:0"[..], IpAddr::from([127, 0, 0, 1])));
}

/// A line of a process's status.
fn status(process: u32, field: &str) -> Option<String> {
    let text = read_to_string(format!("/proc/{process}/status")).ok()?;
    Some(text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))?.trim().to_owned())
}

/// The processes of this program in the guest's network: those that have given up their rights, or others.
fn inside(guest: u32, no_new_privileges: &str) -> Vec<u32> {
    let network = |process| read_link(format!("/proc/{process}/ns/net")).ok();
    let processes =
        read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let is_one = |process: &u32| {
        status(*process, "Name").as_deref() == Some("taut")
            && network(*process) == network(guest)
            && status(*process, "NoNewPrivs").as_deref() == Some(no_new_privileges)
    };
    processes.filter(is_one).collect()
}

fn makers(guest: u32) -> Vec<u32> {
    inside(guest, "1")
}

#[test]
fn gw_165_the_process_that_makes_sockets_can_do_nothing_else() {
    let Some(lab) = lab("gateway-loopback-rights", &["sleep", "nsenter", "cat"]) else { return };
    let start = |options: &[&str]| {
        let gateway = Gateway::run(&lab, "log", options, "exec sleep 100");
        let guest = gateway.guest("sleep");
        (gateway, guest)
    };
    // Without ports there is none.
    let (gateway, guest) = start(&[]);
    assert!(makers(guest).is_empty());
    drop(gateway);
    for options in
        [&["-t", "8080", "-t", "8081"][..], &["-u", "auto", "-t", "8080", "-t", "8081", "--no-sandbox"]]
    {
        let (gateway, guest) = start(options);
        eventually("it has given up its rights", || {
            let all = makers(guest);
            all.len() == 1 && status(all[0], "Seccomp").as_deref() == Some("2")
        });
        let maker = makers(guest)[0];
        for field in ["CapEff", "CapPrm", "CapInh", "CapAmb"] {
            assert_eq!(status(maker, field).unwrap(), "0000000000000000", "{field}");
        }
        assert_eq!(status(maker, "Seccomp").unwrap(), "2");
        let open = read_dir(format!("/proc/{maker}/fd")).unwrap();
        let open: Vec<_> =
            open.map(|fd| read_link(fd.unwrap().path()).unwrap().display().to_string()).collect();
        let sockets = open.iter().filter(|file| file.starts_with("socket:")).count();
        assert!(sockets == 1 && !open.iter().any(|file| file.contains("/dev/net/tun")), "{open:?}");
        // The guest's root may look into a process of its own, and not into those of the gateway.
        let looks = |process: u32| {
            let of = ["--user", "--net", "--preserve-credentials", "--target", &guest.to_string()]
                .map(str::to_owned);
            let file = format!("/proc/{process}/environ");
            lab.output(Command::new("nsenter").args(of).args(["cat", &file])).status.success()
        };
        assert!(looks(guest) && !inside(guest, "0").into_iter().chain([maker]).any(looks));
        // It is killed by the guest: its loopback is refused then, and all else works.
        let service = listener(guest, "127.0.0.1:8080");
        passes(&lab, "127.0.0.1:8080", &service);
        if options.len() == 4 {
            assert!(lab.output(Command::new("kill").args(["-KILL", &maker.to_string()])).status.success());
            eventually("it is gone", || makers(guest).is_empty());
            assert!(is_refused(&lab, "127.0.0.1:8080"));
            passes(&lab, "127.0.0.1:8081", &listener(guest, "0.0.0.0:8081"));
        }
        // It ends with the gateway, however that ends.
        gateway.running.signal("KILL");
        eventually("it is gone", || status(maker, "Name").is_none());
    }
}
