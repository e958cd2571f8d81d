//! A running gateway is listed and changed: by `taut gateway ctl`, and by the API of gvproxy with curl.
//! GW-236 to 239 of `docs/spec/gateway.md`.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use taut::blocking;
use taut_testbed::{PATIENCE, eventually};

use super::gateway_operations::{Gateway, SERVER, lab, within};
use super::gateway_ways::machine;
use super::support::{Lab, taut};

/// A web server of the guest's, at port 80.
const SERVICE: &str = "import socket\n\
    s=socket.create_server(('0.0.0.0',80)); open('listens','w')\n\
    while 1:\n\
    \x20c=s.accept()[0]; c.recv(1000)\n\
    \x20c.sendall(b'HTTP/1.1 200 OK\\r\\nContent-Length: 5\\r\\nConnection: close\\r\\n\\r\\ninner'); c.close()\n";

/// A gateway with a guest that serves, and the number of the guest's process.
fn start(lab: &Lab, options: &[&str]) -> (Gateway, u32) {
    let listens = lab.dir.join("listens");
    _ = std::fs::remove_file(&listens);
    let args = [&["gateway", "--run"], options, &["--", "python3", "-c", SERVICE]].concat();
    let mut gateway = Gateway::by(lab, "log", taut(&args).env("TAUT_CONTROL_DIR", lab.dir.join("control")));
    eventually("the guest listens", || {
        assert!(gateway.running.runs(), "{}", gateway.said());
        listens.exists()
    });
    let guest = gateway.guest("python3");
    (gateway, guest)
}

fn curl(lab: &Lab, args: &[&str]) -> (Option<i32>, String) {
    let output =
        lab.output(Command::new("curl").args(["-sS", "--max-time", "60"]).args(args).stdin(Stdio::null()));
    (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
}

/// `taut gateway ctl`: what it prints, or its error.
fn ctl(lab: &Lab, words: &[&str]) -> Result<String, String> {
    let mut command = taut(&[&["gateway", "ctl"], words].concat());
    let output = lab.output(command.env("TAUT_CONTROL_DIR", lab.dir.join("control")).stdin(Stdio::null()));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

/// The words of the lines of a list.
fn words(list: &str) -> Vec<String> {
    list.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
}

/// A server outside, which says seven bytes to each five.
fn server(lab: &Lab) -> SocketAddr {
    let listener = lab.kernel.enter(|| TcpListener::bind((SERVER, 0))).unwrap().unwrap();
    let place = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            std::thread::spawn(move || {
                while stream.read_exact(&mut [0; 5]).is_ok() {
                    _ = stream.write_all(b"welcome");
                }
            });
        }
    });
    place
}

fn talk(stream: &mut TcpStream) {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(b"hello").unwrap();
    let mut said = [0; 7];
    stream.read_exact(&mut said).unwrap();
    assert_eq!(&said, b"welcome");
}

#[test]
fn gw_236_a_running_gateway_is_listed_and_changed() {
    let Some(lab) = lab("gateway-ctl", &["curl", "python3"]) else { return };
    let place = server(&lab);
    assert!(ctl(&lab, &["flows"]).unwrap_err().contains("no running gateway"));
    let (gateway, guest) = start(&lab, &["--rule", "deny 203.0.113.0/24"]);
    let pid = gateway.running.id().to_string();
    let refused = |words: &[&str], why: &str| {
        let error = ctl(&lab, words).unwrap_err();
        assert!(error.contains(why), "{words:?}: {error}");
    };
    // Ports that come and go, at once.
    let url = "http://127.0.0.1:7080/";
    assert_eq!(ctl(&lab, &["forwards"]).unwrap(), "");
    assert_eq!(curl(&lab, &[url]).0, Some(7), "refused");
    assert_eq!(
        words(&ctl(&lab, &["forward", "add", "tcp", "7080:80"]).unwrap()),
        ["tcp 127.0.0.1:7080 -> 80"]
    );
    assert_eq!(curl(&lab, &[url]), (Some(0), "inner".to_owned()));
    let both = words(&ctl(&lab, &["forward", "add", "udp", "[::1]:7053:53"]).unwrap());
    assert_eq!(both, ["tcp 127.0.0.1:7080 -> 80", "udp [::1]:7053 -> 53"]);
    assert!(lab.kernel.enter(|| UdpSocket::bind("[::1]:7053")).unwrap().is_err());
    refused(&["forward", "add", "tcp", "7080:81"], "cannot forward 127.0.0.1:7080: it is forwarded already");
    assert_eq!(
        words(&ctl(&lab, &[&pid, "forward", "remove", "tcp", "7080"]).unwrap()),
        ["udp [::1]:7053 -> 53"]
    );
    assert_eq!(curl(&lab, &[url]).0, Some(7), "refused again");
    assert_eq!(ctl(&lab, &["forward", "remove", "udp", "[::1]:7053"]).unwrap(), "");
    lab.kernel.enter(|| UdpSocket::bind("[::1]:7053")).unwrap().unwrap();
    refused(&["forward", "remove", "tcp", "7080"], "127.0.0.1:7080 is not forwarded");
    refused(&["forward", "add", "tcp", "80:80"], "CAP_NET_BIND_SERVICE");
    // All ports of a range, or none.
    let taken = lab.kernel.enter(|| TcpListener::bind("127.0.0.1:7091")).unwrap().unwrap();
    refused(&["forward", "add", "tcp", "7090-7091:80-81"], "cannot forward 127.0.0.1:7091: Address");
    assert_eq!(ctl(&lab, &["forwards"]).unwrap(), "");
    drop(taken);
    // A flow, and what it has carried.
    let connect = || within(guest, || TcpStream::connect(place));
    let mut runs = connect().unwrap();
    talk(&mut runs);
    let from = runs.local_addr().unwrap();
    let flows = || -> Vec<Value> { serde_json::from_str(&ctl(&lab, &["flows", "--json"]).unwrap()).unwrap() };
    // Bytes are counted after they have passed.
    eventually("a flow with its bytes", || flows().iter().any(|flow| flow["down"] == json!(7)));
    let all = flows();
    let mut flow = all[0].clone();
    assert!(flow["age_ns"].as_u64().unwrap() > 0 && all.len() == 1, "{all:?}");
    flow["age_ns"] = json!(0);
    let expected = json!({
        "kind": "tcp", "guest": from.to_string(), "peer": place.to_string(), "rule": "allow any",
        "up": 5, "down": 7, "age_ns": 0,
    });
    assert_eq!(flow, expected);
    let line = ctl(&lab, &["flows"]).unwrap();
    assert!(line.contains(&format!("{from}  ->  {place}")) && line.contains("down 7 B"), "{line}");
    let guests = ctl(&lab, &["guests"]).unwrap();
    assert!(guests.contains("10.0.2.15") && guests.contains("connections 1"), "{guests}");
    assert_eq!(ctl(&lab, &["leases", "--json"]).unwrap(), "[]\n");
    // A changed rule holds for new flows.
    let deny = format!("deny {SERVER}");
    let rules = words(&ctl(&lab, &["rule", "add", &deny]).unwrap());
    assert_eq!(rules[..2], [format!("1 {deny}"), "2 deny 203.0.113.0/24".to_owned()]);
    assert_eq!(rules.last().unwrap(), "13 allow any (default)");
    assert_eq!(connect().unwrap_err().kind(), std::io::ErrorKind::HostUnreachable);
    talk(&mut runs);
    let rules = words(&ctl(&lab, &["rule", "add", "allow", SERVER, "--at", "2"]).unwrap());
    assert_eq!(rules[1], format!("2 allow {SERVER}"));
    assert!(connect().is_err(), "the first rule decides");
    assert_eq!(words(&ctl(&lab, &["rule", "remove", "1"]).unwrap())[0], format!("1 allow {SERVER}"));
    talk(&mut connect().unwrap());
    assert_eq!(words(&ctl(&lab, &["rules"]).unwrap()).len(), 13);
    refused(&["rule", "add", "forbid any"], "it begins with allow, deny or drop");
    refused(&["rule", "remove", "13"], "rule 13 is one of the defaults");
    refused(&["rule", "add", "deny any", "--at", "9"], "there is no place 9");
    // One of two.
    let (other, _) = start(&lab, &[]);
    refused(&["flows"], "several gateways are running");
    refused(&["1", "flows"], "no running gateway with the interface or process 1");
    let of = |gateway: &Gateway| {
        let pid = gateway.running.id().to_string();
        words(&ctl(&lab, &[&pid, "rules"]).unwrap()).len()
    };
    assert_eq!((of(&gateway), of(&other)), (13, 11));
}

/// A request to the API by curl: the status, and the body.
pub(super) fn asked(lab: &Lab, socket: &Path, path: &str, body: Option<&str>) -> (u16, String) {
    let url = format!("http://unix{path}");
    let mut args = vec!["-w", "\n%{http_code}", "--unix-socket", socket.to_str().unwrap(), &url];
    args.extend(body.map(|body| ["-d", body]).iter().flatten());
    let (code, said) = curl(lab, &args);
    assert_eq!(code, Some(0), "{path} {body:?}");
    let (body, status) = said.rsplit_once('\n').unwrap();
    (status.parse().unwrap(), body.to_owned())
}

pub(super) fn json_of(lab: &Lab, socket: &Path, path: &str) -> Value {
    let (status, body) = asked(lab, socket, path, None);
    assert_eq!(status, 200, "{path}: {body}");
    serde_json::from_str(&body).unwrap()
}

pub(super) const EXPOSE: &str = "/services/forwarder/expose";
const UNEXPOSE: &str = "/services/forwarder/unexpose";
const PORTS: &str = "/services/forwarder/all";
const ADD_ZONE: &str = "/services/dns/add";

/// The code of the answer of the guest's name server, and the address in it.
fn resolve(guest: u32, name: &str) -> (u8, Option<[u8; 4]>) {
    let labels = name.split('.').map(|label| [&[label.len() as u8], label.as_bytes()].concat());
    let labels: Vec<u8> = labels.flatten().collect();
    // RFC 1035 §4.1: recursion desired, one question; type A, class IN.
    let question = [&[0, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0][..], &labels, &[0, 0, 1, 0, 1]].concat();
    within(guest, || {
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.send_to(&question, "192.168.127.1:53").unwrap();
        let mut answer = [0; 512];
        let (len, _) = socket.recv_from(&mut answer).unwrap();
        let address = answer[..len].last_chunk().copied().filter(|_| answer[7] > 0);
        (answer[3] & 0x0f, address)
    })
}

#[test]
fn gw_237_the_api_of_gvproxy_forwards_ports_and_answers_names() {
    let Some(lab) = lab("gateway-api", &["curl", "python3"]) else { return };
    let (socket, place) = (lab.dir.join("api.sock"), server(&lab));
    let api = format!("unix:{}", socket.display());
    let address = ["--guest", "192.168.127.2/24", "--gateway", "192.168.127.1"];
    let options = [&address[..], &["--api", &api, "-t", "7079:80", "--dns", "127.0.0.1:9"]].concat();
    let (gateway, guest) = start(&lab, &options);
    assert_eq!(std::fs::metadata(&socket).unwrap().permissions().mode() & 0o777, 0o600);
    let ask = |path: &str, body: Option<&str>| asked(&lab, &socket, path, body);
    let own = json!({ "local": "127.0.0.1:7079", "remote": "192.168.127.2:80", "protocol": "tcp" });
    assert_eq!(json_of(&lab, &socket, PORTS), json!([own]));
    // gvproxy's README.md, at another port.
    let expose = r#"{"local":":7443","remote":"192.168.127.2:80"}"#;
    assert_eq!(ask(EXPOSE, Some(expose)), (200, String::new()));
    for at in ["127.0.0.1:7443", &format!("{SERVER}:7443"), "127.0.0.1:7079"] {
        assert_eq!(curl(&lab, &[&format!("http://{at}/")]), (Some(0), "inner".to_owned()), "{at}");
    }
    let udp = r#"{"local":"127.0.0.1:7443","remote":":53","protocol":"udp"}"#;
    assert_eq!(ask(EXPOSE, Some(udp)), (200, String::new()));
    let exposed = json!([
        own,
        { "local": "127.0.0.1:7443", "remote": ":53", "protocol": "udp" },
        { "local": ":7443", "remote": "192.168.127.2:80", "protocol": "tcp" },
    ]);
    assert_eq!(json_of(&lab, &socket, PORTS), exposed);
    // By the other door, too.
    let listed = words(&ctl(&lab, &["forwards"]).unwrap());
    assert_eq!(listed, ["tcp 0.0.0.0:7443 -> 80", "tcp 127.0.0.1:7079 -> 80", "udp 127.0.0.1:7443 -> 53"]);
    for (path, body, status, why) in [
        (EXPOSE, Some(expose), 500, "proxy already running for tcp on :7443"),
        (EXPOSE, Some(r#"{"local":":7444","remote":"192.168.127.9:80"}"#), 500, "192.168.127.2"),
        (EXPOSE, Some(r#"{"local":":7444","remote":"192.168.127.2"}"#), 400, "missing port in address"),
        (EXPOSE, Some(r#"{"local":":7444","remote":":x"}"#), 400, "invalid port"),
        (EXPOSE, Some(r#"{"local":"nowhere","remote":":80"}"#), 500, "nowhere"),
        (EXPOSE, Some(r#"{"local":":7444","remote":":80","protocol":"sctp"}"#), 500, "unknown protocol sctp"),
        (EXPOSE, Some(r#"{"local":":80","remote":":80"}"#), 500, "cannot forward 0.0.0.0:80"),
        (EXPOSE, Some("{"), 400, "EOF"),
        (EXPOSE, Some("7"), 400, "invalid type"),
        (EXPOSE, None, 400, "post only"),
        (UNEXPOSE, Some(r#"{"local":":7444"}"#), 500, "proxy not found"),
        (UNEXPOSE, None, 400, "post only"),
        (ADD_ZONE, None, 400, "post only"),
        (ADD_ZONE, Some(r#"{"Name":""}"#), 400, "is not a name"),
        (
            ADD_ZONE,
            Some(r#"{"Name":"a.","Records":[{"Name":"x","IP":"1.2.3"}]}"#),
            400,
            "invalid IP address: 1.2.3",
        ),
        (ADD_ZONE, Some(r#"{"Name":"a.","Records":[{"Regexp":".*","IP":"1.2.3.4"}]}"#), 400, "Regexp"),
        ("/cam", None, 404, "404 page not found"),
        ("/", None, 404, "404 page not found"),
    ] {
        let (found, said) = ask(path, body);
        assert!(found == status && said.contains(why), "{path} {body:?}: {found} {said}");
    }
    assert_eq!(ask(UNEXPOSE, Some(r#"{"local":":7443","protocol":"tcp"}"#)), (200, String::new()));
    assert_eq!(curl(&lab, &["http://127.0.0.1:7443/"]).0, Some(7), "refused");
    // Names, of which no question leaves.
    let dns = |name: &str| resolve(guest, name);
    assert_eq!(json_of(&lab, &socket, "/services/dns/all"), json!([]));
    let zone = format!(r#"{{"Name":"internal.test.","Records":[{{"Name":"db","IP":"{SERVER}"}}]}}"#);
    assert_eq!(ask(ADD_ZONE, Some(&zone)), (200, String::new()));
    assert_eq!(dns("db.internal.test"), (0, Some([198, 51, 100, 1])));
    // NXDOMAIN; another name is sent on, and not answered.
    assert_eq!(dns("other.internal.test"), (3, None));
    assert_eq!(dns("internal.test"), (2, None));
    let more = r#"{"Name":"internal.test.","Records":[],"DefaultIP":"192.0.2.7"}"#;
    assert_eq!(ask(ADD_ZONE, Some(more)), (200, String::new()));
    assert_eq!(dns("other.internal.test"), (0, Some([192, 0, 2, 7])));
    let record = json!({ "Name": "db", "IP": SERVER });
    let zones = json!([{ "Name": "internal.test.", "Records": [record], "DefaultIP": "192.0.2.7" }]);
    assert_eq!(json_of(&lab, &socket, "/services/dns/all"), zones);
    let mut stream = within(guest, || TcpStream::connect(place)).unwrap();
    talk(&mut stream);
    let listed = ctl(&lab, &["flows"]).unwrap();
    assert!(listed.contains("db.internal.test"), "{listed}");
    eventually("bytes are counted", || {
        let stats = json_of(&lab, &socket, "/stats");
        let count = |name: &str| stats[name].as_u64().unwrap();
        count("BytesReceived") >= 5 && count("BytesSent") >= 7 && count("connections") == 1
    });
    assert_eq!(json_of(&lab, &socket, "/leases"), json!({}));
    drop(gateway);
    // The next one replaces what is left; a file of another kind stays.
    let (next, _) = start(&lab, &["--api", &api]);
    assert_eq!(json_of(&lab, &socket, PORTS), json!([]));
    drop(next);
    let file = lab.dir.join("file");
    std::fs::write(&file, "").unwrap();
    for (place, why) in
        [(format!("unix:{}", file.display()), "no socket"), ("tcp:80".to_owned(), "unix:PATH")]
    {
        let output = lab.output(&mut taut(&["gateway", "--api", &place, "--run", "--", "true"]));
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(why), "{place}: {said}");
    }
}

#[test]
fn gw_238_a_port_is_exposed_before_its_machine_is_there() {
    let Some(lab) = lab("gateway-api-machine", &["curl"]) else { return };
    let folder = taut_testbed::Scratch::new("api-machine");
    let (net, socket) = (folder.join("net"), folder.join("api"));
    let api = format!("unix:{}", socket.display());
    let options = ["gateway", "--qemu", net.to_str().unwrap(), "--api", &api];
    let gateway = Gateway::by(&lab, "log", &mut taut(&options));
    gateway.says("waiting for virtual machines at");
    assert_eq!(json_of(&lab, &socket, "/leases"), json!({}));
    let ask = |path: &str, body: &str| asked(&lab, &socket, path, Some(body));
    // One that is in use is refused now.
    let taken = lab.kernel.enter(|| TcpListener::bind("127.0.0.1:7091")).unwrap().unwrap();
    let (status, why) = ask(EXPOSE, r#"{"local":"127.0.0.1:7091","remote":"10.0.2.15:7081"}"#);
    assert!(status == 500 && why.contains("cannot forward 127.0.0.1:7091"), "{status} {why}");
    drop(taken);
    assert_eq!(ask(EXPOSE, r#"{"local":"127.0.0.1:7081","remote":"10.0.2.15:7081"}"#).0, 200);
    let at = SocketAddr::from(([127, 0, 0, 1], 7_081));
    let connect = || lab.kernel.enter(|| TcpStream::connect(at)).unwrap();
    for round in 0..2 {
        assert!(connect().is_err(), "no machine is there");
        let stack = machine("--qemu", &net, &folder.join(format!("own{round}")));
        let listener = blocking::TcpListener::bind(&stack, "10.0.2.15:7081").unwrap();
        eventually("the port is open", || connect().is_ok());
        _ = listener.accept().unwrap();
        let mut client = connect().unwrap();
        let (mut inner, _) = listener.accept().unwrap();
        inner.write_all(b"from the machine").unwrap();
        let mut heard = [0; 16];
        client.read_exact(&mut heard).unwrap();
        assert_eq!(&heard, b"from the machine");
        assert_eq!(
            json_of(&lab, &socket, "/services/dhcp/leases"),
            json!({ "10.0.2.15": "02:00:00:00:01:00" })
        );
        drop((listener, inner, stack));
        eventually("the port is closed", || connect().is_err());
    }
}

#[test]
fn gw_239_the_api_is_bounded() {
    let Some(lab) = lab("gateway-api-bounds", &["curl", "python3"]) else { return };
    let (socket, place) = (lab.dir.join("api.sock"), server(&lab));
    let (gateway, guest) = start(&lab, &["--api", &format!("unix:{}", socket.display())]);
    // A body of a megabyte, announced, and in pieces without an end.
    let large = |head: &str| {
        let mut client = UnixStream::connect(&socket).unwrap();
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        write!(client, "POST {EXPOSE} HTTP/1.1\r\nHost: unix\r\n{head}\r\n\r\n").unwrap();
        let piece = format!("1000\r\n{}\r\n", "x".repeat(0x1000));
        // It may be closed before all is written.
        _ = (0..256).try_for_each(|_| client.write_all(piece.as_bytes()));
        let mut said = String::new();
        _ = client.read_to_string(&mut said);
        said
    };
    for head in ["Content-Length: 1000000", "Transfer-Encoding: chunked"] {
        let said = large(head);
        assert!(said.starts_with("HTTP/1.1 413 "), "{head}: {said}");
    }
    // A thousand clients that say nothing.
    raise_descriptors();
    let silent: Vec<UnixStream> = (0..1_000).map(|_| UnixStream::connect(&socket).unwrap()).collect();
    assert_eq!(json_of(&lab, &socket, PORTS), json!([]));
    let open = PathBuf::from(format!("/proc/{}/fd", gateway.running.worker()));
    let open = std::fs::read_dir(open).unwrap().count();
    assert!(open < 150, "{open} descriptors");
    assert_eq!(asked(&lab, &socket, EXPOSE, Some(r#"{"local":"127.0.0.1:7080","remote":":80"}"#)).0, 200);
    assert_eq!(curl(&lab, &["http://127.0.0.1:7080/"]), (Some(0), "inner".to_owned()));
    talk(&mut within(guest, || TcpStream::connect(place)).unwrap());
    drop(silent);
    assert_eq!(json_of(&lab, &socket, PORTS).as_array().unwrap().len(), 1);
}

fn raise_descriptors() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).unwrap();
}
