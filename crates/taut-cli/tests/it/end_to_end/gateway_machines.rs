//! Several virtual machines at one socket of `taut gateway`: stacks of taut's, and two of Debian's kernel in
//! emulated machines. GW-267 to 269 of `docs/spec/gateway.md`.
//!
//! ```text
//!   guest "web": httpd ── virtio-net ── QEMU ──┐ Unix socket
//!                                              ├── taut gateway, user 65534 ── a server
//!   guest: wget ───────── virtio-net ── QEMU ──┘
//! ```

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;

use serde_json::json;
use taut::device::{Frames, FramesOptions};
use taut::{Stack, blocking};
use taut_testbed::{Guest, Scratch, guest};

use super::gateway_ctl::{EXPOSE, asked, json_of};
use super::gateway_guest::{PATIENCE, SERVER, gateway, line};
use super::gateway_operations::{Gateway, lab};
use super::support::{Lab, taut};

/// A machine with this station, which gets this address.
pub(super) fn machine(socket: &Path, mac: &str, address: &str) -> Stack {
    let options = FramesOptions { dhcp: true, mac: mac.parse().ok(), ..FramesOptions::default() };
    let frames = Frames::stream(UnixStream::connect(socket).unwrap(), &[], &options).unwrap();
    let stack = Stack::builder().device(frames).build().unwrap();
    let address: IpAddr = address.parse().unwrap();
    assert_eq!(stack.wait_for_address(Some(address), taut_testbed::PATIENCE), Some(address));
    stack
}

#[test]
fn gw_267_a_lease_by_station_and_two_machines_with_one_station() {
    let Some(lab) = lab("gateway-lease", &[]) else { return };
    let folder = Scratch::new("gateway-lease");
    let net = folder.join("net");
    let at = net.to_str().unwrap();
    let lease = "52:54:00:12:34:57=10.0.2.20,DB";
    let gateway = Gateway::by(&lab, "log", &mut taut(&["gateway", "--qemu", at, "--lease", lease]));
    gateway.says("waiting for virtual machines at");
    let first = machine(&net, "52:54:00:12:34:57", "10.0.2.20");
    let second = machine(&net, "52:54:00:12:34:58", "10.0.2.15");
    // Its name, by the gateway's name server (RFC 1035 §4.1).
    let ask = b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0\x02db\0\0\x01\0\x01";
    let mut stream =
        blocking::TcpStream::connect(&second, "10.0.2.2:53".parse::<SocketAddr>().unwrap()).unwrap();
    stream.write_all(&[&[0, ask.len() as u8][..], ask].concat()).unwrap();
    let mut answer = vec![0; 2 + ask.len() + 16];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(answer[answer.len() - 4..], [10, 0, 2, 20]);
    // QEMU gives each machine the same MAC.
    let options =
        FramesOptions { dhcp: true, mac: "52:54:00:12:34:57".parse().ok(), ..FramesOptions::default() };
    let frames = Frames::stream(UnixStream::connect(&net).unwrap(), &[], &options).unwrap();
    let third = Stack::builder().device(frames).build().unwrap();
    gateway.says("two virtual machines have the MAC 52:54:00:12:34:57");
    assert!(third.networks().is_empty());
    drop((first, second, third));
    for (lease, why) in [
        ("52:54:00:12:34:57", "write 52:54:00"),
        ("52:54=10.0.2.20", "six bytes in hexadecimal"),
        ("ff:ff:ff:ff:ff:ff=10.0.2.20", "not the MAC of one machine"),
        ("52:54:00:12:34:57=10.0.2", "is no address"),
        ("52:54:00:12:34:57=10.0.3.20", "choose another address of 10.0.2.0/24"),
        ("52:54:00:12:34:57=10.0.2.2", "choose another address of 10.0.2.0/24"),
        ("52:54:00:12:34:57=10.0.2.20,a.b", "letters, digits and hyphens"),
    ] {
        let output = lab.output(&mut taut(&["gateway", "--qemu", "/tmp/x", "--lease", lease]));
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(why), "{lease}: {said}");
    }
    let twice = ["--lease", "52:54:00:12:34:57=10.0.2.20", "--lease", "52:54:00:12:34:58=10.0.2.20"];
    for (args, why) in [
        ([&["gateway", "--qemu", "/tmp/x"][..], &twice].concat(), "is in another --lease"),
        ([&["gateway", "--netns", "1"][..], &twice[..2]].concat(), "--lease is for --qemu"),
    ] {
        let output = lab.output(&mut taut(&args));
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(why), "{args:?}: {said}");
    }
}

#[test]
fn gw_268_a_port_that_leads_to_the_second_machine() {
    let Some(lab) = lab("gateway-second", &["curl"]) else { return };
    let folder = Scratch::new("gateway-second");
    let (net, socket) = (folder.join("net"), folder.join("api"));
    let api = format!("unix:{}", socket.display());
    let options = ["gateway", "--qemu", net.to_str().unwrap(), "--api", &api];
    let gateway = Gateway::by(&lab, "log", &mut taut(&options));
    gateway.says("waiting for virtual machines at");
    let _first = machine(&net, "52:54:00:12:34:57", "10.0.2.15");
    let second = machine(&net, "52:54:00:12:34:58", "10.0.2.16");
    let ask = |body: &str| asked(&lab, &socket, EXPOSE, Some(body));
    assert_eq!(ask(r#"{"local":"127.0.0.1:7082","remote":"10.0.2.16:7082"}"#).0, 200);
    let listener = blocking::TcpListener::bind(&second, "10.0.2.16:7082").unwrap();
    let at = SocketAddr::from(([127, 0, 0, 1], 7_082));
    let mut client = lab.kernel.enter(|| TcpStream::connect(at)).unwrap().unwrap();
    let (mut inner, _) = listener.accept().unwrap();
    inner.write_all(b"from the second").unwrap();
    let mut heard = [0; 15];
    client.read_exact(&mut heard).unwrap();
    assert_eq!(&heard, b"from the second");
    let all = json!([{ "local": "127.0.0.1:7082", "remote": "10.0.2.16:7082", "protocol": "tcp" }]);
    assert_eq!(json_of(&lab, &socket, "/services/forwarder/all"), all);
    // Beyond the network, and the gateway itself.
    for other in ["10.0.3.16", "10.0.2.2", "127.0.0.1"] {
        let (status, why) = ask(&format!(r#"{{"local":"127.0.0.1:7083","remote":"{other}:80"}}"#));
        assert!(status == 500 && why.contains("is not the guest's address"), "{other}: {status} {why}");
    }
}

/// Serves a page until the other machine says that it has it.
const WEB: &str = r#"
lease -x hostname:web || exit 1
echo "v4: $(ip -4 addr show dev eth0 | grep -o 'inet [^ ]*')"
mkdir /www
echo "from the other machine" >/www/index.html
head -c $bytes /dev/urandom >/www/noise
echo "served: $(sha256sum </www/noise)"
httpd -p 80 -h /www
nc -l -p 81 </dev/null
"#;

const CLIENT: &str = r#"
lease -x hostname:client || exit 1
echo "v4: $(ip -4 addr show dev eth0 | grep -o 'inet [^ ]*')"
for second in $(seq 600); do wget -q -O - http://web/index.html >/tmp/page && break; sleep 1; done
echo "page: $(cat /tmp/page)"
echo "noise: $(wget -q -O - http://web/noise | sha256sum)"
ping -c 3 -W 10 web | grep received
echo "beyond: $(wget -q -O - http://$server:$port/)"
nc web 81 </dev/null
"#;

#[test]
#[ignore = "the part of another test that runs in a guest"]
fn inside_web() {
    guest::inside::shell(WEB);
}

#[test]
#[ignore = "the part of another test that runs in a guest"]
fn inside_client() {
    guest::inside::shell(CLIENT);
}

#[test]
fn gw_269_two_debian_kernels_at_one_socket() {
    let Some(lab) = Lab::without_turn("gateway-two", &["ip", "setpriv"]) else { return };
    let Some(guest) = Guest::new(&[]).and_then(Guest::busybox) else { return };
    lab.kernel.run(&format!("ip address add {SERVER}/32 dev lo")).unwrap();
    let listener = lab.kernel.enter(|| TcpListener::bind((SERVER, 0))).unwrap().unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            _ = stream.read(&mut [0; 1_000]);
            _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\nConnection: close\r\n\r\nbeyond");
        }
    });
    let folder = Scratch::new("gateway-two");
    std::fs::set_permissions(&*folder, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    // No name server is there: the name is the machine's.
    let mut gateway = gateway(&lab, &folder, 9);
    let guest = guest.plug(&folder.join("net")).set("server", SERVER).set("port", &port);
    let guest = guest.set("bytes", "4000000");
    let web = guest.clone().station(2);
    let web = std::thread::spawn(move || web.run("end_to_end::gateway_machines::inside_web", PATIENCE));
    let printed = guest.station(3).run("end_to_end::gateway_machines::inside_client", PATIENCE);
    let served = web.join().unwrap();
    println!("{served}\n{printed}");
    let mut addresses = [line(&served, "v4: "), line(&printed, "v4: ")];
    addresses.sort_unstable();
    assert_eq!(addresses, ["inet 10.0.2.15/24", "inet 10.0.2.16/24"]);
    assert_eq!(line(&printed, "page: "), "from the other machine");
    assert_eq!(line(&printed, "noise: "), line(&served, "served: "));
    assert!(line(&printed, "3 packets").contains("3 packets received"), "{printed}");
    assert_eq!(line(&printed, "beyond: "), "beyond");
    assert!(matches!(gateway.0.try_wait(), Ok(None)), "the gateway ended");
}

/// A request of a machine's to the gateway: status and text.
fn posted(stack: &Stack, path: &str, head: &str, body: &str) -> (u16, String) {
    let mut stream =
        blocking::TcpStream::connect(stack, "10.0.2.2:80".parse::<SocketAddr>().unwrap()).unwrap();
    stream.set_read_timeout(Some(taut_testbed::PATIENCE)).unwrap();
    let request = format!("POST {path} HTTP/1.1\r\n{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    // The answer may come before the whole body has left.
    _ = stream.write_all(request.as_bytes());
    let mut said = Vec::new();
    _ = stream.read_to_end(&mut said);
    let said = String::from_utf8_lossy(&said).into_owned();
    let status = said.split(' ').nth(1).and_then(|text| text.parse().ok()).unwrap_or_default();
    (status, said.split_once("\r\n\r\n").map(|(_, text)| text.to_owned()).unwrap_or_default())
}

const OWN_HOST: &str = "Host: gateway.containers.internal";
const UNEXPOSE: &str = "/services/forwarder/unexpose";

/// Two machines of a gateway with `--guest-api`, whose control socket is beside the first one's.
fn two(lab: &Lab, name: &str) -> (Scratch, Gateway, [Stack; 2]) {
    let folder = Scratch::new(name);
    let net = folder.join("net");
    let api = format!("unix:{}", folder.join("api").display());
    let options = ["gateway", "--qemu", net.to_str().unwrap(), "--api", &api, "--guest-api"];
    let gateway = Gateway::by(lab, "log", &mut taut(&options));
    gateway.says("waiting for virtual machines at");
    let first = machine(&net, "52:54:00:12:34:57", "10.0.2.15");
    let second = machine(&net, "52:54:00:12:34:58", "10.0.2.16");
    (folder, gateway, [first, second])
}

#[test]
fn gw_273_the_api_for_guests_is_for_their_programs() {
    let Some(lab) = lab("gateway-guest-api", &["curl"]) else { return };
    let (folder, _gateway, [first, second]) = two(&lab, "gateway-guest-api");
    let body = r#"{"local":"127.0.0.1:7085","remote":":7085"}"#;
    for head in [
        "Host: evil.example",
        "Host: gateway",
        "Host:",
        "Host: gateway.containers.internal\r\nOrigin: http://evil.example",
    ] {
        assert_eq!(posted(&first, EXPOSE, head, body).0, 403, "{head}");
    }
    for (number, host) in
        ["gateway.containers.internal", "HOST.containers.internal:80", "10.0.2.2", "10.0.2.2:80"]
            .iter()
            .enumerate()
    {
        let body = format!(r#"{{"local":"127.0.0.1:{}","remote":":7085"}}"#, 7_086 + number);
        assert_eq!(posted(&first, EXPOSE, &format!("Host: {host}"), &body), (200, String::new()), "{host}");
    }
    for path in
        ["/services/forwarder/all", "/services/dns/add", "/services/dns/all", "/leases", "/stats", "/"]
    {
        assert_eq!(posted(&first, path, OWN_HOST, "{}").0, 404, "{path}");
    }
    assert_eq!(posted(&first, EXPOSE, OWN_HOST, &" ".repeat(1 << 20)).0, 413);
    // Its name, by the gateway's name server (RFC 1035 §4.1).
    let ask = b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0\x07gateway\x0acontainers\x08internal\0\0\x01\0\x01";
    let mut stream =
        blocking::TcpStream::connect(&second, "10.0.2.2:53".parse::<SocketAddr>().unwrap()).unwrap();
    stream.write_all(&[&[0, ask.len() as u8][..], ask].concat()).unwrap();
    let mut answer = vec![0; 2 + ask.len() + 16];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(answer[answer.len() - 4..], [10, 0, 2, 2]);
    // Silent ones of one machine keep no other out.
    let place: SocketAddr = "10.0.2.2:80".parse().unwrap();
    let silent: Vec<_> = (0..40).map(|_| blocking::TcpStream::connect(&first, place).unwrap()).collect();
    assert_eq!(posted(&second, EXPOSE, OWN_HOST, body), (200, String::new()));
    drop(silent);
    // Without the option, it is this host's loopback, which is closed.
    let net = folder.join("other");
    let gateway = Gateway::by(&lab, "log2", &mut taut(&["gateway", "--qemu", net.to_str().unwrap()]));
    gateway.says("waiting for virtual machines at");
    let third = machine(&net, "52:54:00:12:34:59", "10.0.2.15");
    assert!(blocking::TcpStream::connect(&third, place).is_err());
}

#[test]
fn gw_274_a_guest_exposes_its_own_ports() {
    let Some(lab) = lab("gateway-guest-ports", &["curl"]) else { return };
    let (folder, _gateway, [first, second]) = two(&lab, "gateway-guest-ports");
    let body = |local: u16, remote: &str| format!(r#"{{"local":"127.0.0.1:{local}","remote":"{remote}"}}"#);
    // Each of the two has a port of the host for the same port of its own.
    let listeners = [(&first, "10.0.2.15:7090"), (&second, "10.0.2.16:7090")]
        .map(|(stack, at)| blocking::TcpListener::bind(stack, at).unwrap());
    assert_eq!(posted(&first, EXPOSE, OWN_HOST, &body(7_091, ":7090")).0, 200);
    assert_eq!(posted(&second, EXPOSE, OWN_HOST, &body(7_092, "10.0.2.16:7090")).0, 200);
    for (listener, port) in listeners.iter().zip([7_091, 7_092]) {
        let at = SocketAddr::from(([127, 0, 0, 1], port));
        let mut client = lab.kernel.enter(|| TcpStream::connect(at)).unwrap().unwrap();
        let (mut inner, _) = listener.accept().unwrap();
        inner.write_all(b"hello").unwrap();
        let mut heard = [0; 5];
        client.read_exact(&mut heard).unwrap();
        assert_eq!(&heard, b"hello", "{port}");
    }
    // Not the other's, nor the host's own.
    for other in ["10.0.2.15:7090", "127.0.0.1:22", "192.0.2.1:80"] {
        assert_eq!(posted(&second, EXPOSE, OWN_HOST, &body(7_093, other)).0, 500, "{other}");
    }
    let socket = folder.join("api");
    assert_eq!(asked(&lab, &socket, EXPOSE, Some(&body(7_094, ":7090"))).0, 200);
    assert_eq!(asked(&lab, &socket, EXPOSE, Some(&body(7_095, "10.0.2.16:7090"))).0, 200);
    for local in [7_091, 7_094, 7_095] {
        let (status, why) = posted(&second, UNEXPOSE, OWN_HOST, &body(local, ""));
        assert_eq!((status, why.trim()), (500, "proxy not found"), "{local}");
    }
    assert_eq!(posted(&second, UNEXPOSE, OWN_HOST, &body(7_092, "")).0, 200);
    assert_eq!(json_of(&lab, &socket, "/services/forwarder/all").as_array().unwrap().len(), 3);
    let exposed = (0..65).filter(|n| posted(&second, EXPOSE, OWN_HOST, &body(7_100 + n, ":80")).0 == 200);
    assert_eq!(exposed.count(), 64);
    assert_eq!(posted(&first, EXPOSE, OWN_HOST, &body(7_200, ":80")).0, 200);
}
