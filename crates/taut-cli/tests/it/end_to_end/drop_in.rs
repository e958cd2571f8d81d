//! `taut` in the place of pasta, passt and slirp4netns, by the command lines of podman and libvirt: GW-194,
//! 195, 223, 224, 252 and 276 of `docs/spec/gateway.md`.

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Mutex};

use taut_testbed::{Kernel, Subnet, eventually};

use super::gateway_machines::machine;
use super::gateway_operations::{SERVER, lab};
use super::support::{Lab, taut};

/// A network namespace that a file stands for, as podman makes it.
struct Namespace(PathBuf);

impl Namespace {
    fn new(lab: &Lab, name: &str) -> Self {
        let path = lab.dir.join(name);
        std::fs::write(&path, "").unwrap();
        let made = Command::new("unshare").arg(format!("--net={}", path.display())).arg("true").status();
        assert!(made.unwrap().success());
        Self(path)
    }

    fn run(&self, script: &str) -> String {
        run(&self.0, script)
    }

    fn remove(&self) {
        if self.0.exists() {
            _ = Command::new("umount").arg("-l").arg(&self.0).status();
            _ = std::fs::remove_file(&self.0);
        }
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        self.remove();
    }
}

/// Runs a script in the network namespace that this file stands for.
fn run(namespace: &Path, script: &str) -> String {
    let mut command = Command::new("nsenter");
    command.arg(format!("--net={}", namespace.display())).args(["sh", "-c", script]);
    let output = command.stdin(Stdio::null()).output().unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// A server that greets; what it listens at.
pub(super) fn hello(lab: &Lab, at: &str) -> SocketAddr {
    let listener = lab.kernel.enter(|| TcpListener::bind((at, 0))).unwrap().unwrap();
    let place = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            _ = stream.write_all(b"hello");
        }
    });
    place
}

fn is_there(process: u32) -> bool {
    Path::new(&format!("/proc/{process}")).exists()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

const READ: &str = "import socket,sys\n\
    s=socket.create_connection((sys.argv[1],int(sys.argv[2])),20); print(s.recv(5).decode())\n";

fn read(to: SocketAddr) -> String {
    format!("python3 -c \"{READ}\" {} {}", to.ip(), to.port())
}

#[test]
fn gw_194_pasta_by_name_serves_a_namespace_and_ends_with_it() {
    let Some(lab) = lab("drop-in-pasta", &["unshare", "nsenter", "umount", "python3", "dig"]) else { return };
    // A route to anywhere, so that this host has an address of its own.
    lab.kernel.run("ip link add wan0 type veth peer name wan1").unwrap();
    lab.kernel.run("ip address add 192.0.2.9/24 dev wan0").unwrap();
    for name in ["wan0", "wan1"] {
        lab.kernel.run(&format!("ip link set {name} up")).unwrap();
    }
    lab.kernel.run("ip route add default via 192.0.2.1").unwrap();
    let (place, own) = (hello(&lab, SERVER), hello(&lab, "192.0.2.9"));
    let local = hello(&lab, "127.0.0.1");
    let dns = lab.kernel.enter(|| UdpSocket::bind((SERVER, 0))).unwrap().unwrap();
    let server = dns.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        let mut message = [0; 4_096];
        while let Ok((len, from)) = dns.recv_from(&mut message) {
            // REFUSED: the host has been queried.
            (message[2], message[3]) = (0x80, 5);
            _ = dns.send_to(&message[..len], from);
        }
    });
    let link = lab.dir.join("pasta");
    symlink(env!("CARGO_BIN_EXE_taut"), &link).unwrap();
    for by_name in [true, false] {
        let namespace = Namespace::new(&lab, "netns-1");
        let (pid, log) = (lab.dir.join("pid"), lab.dir.join("log"));
        let mut pasta = if by_name { Command::new(&link) } else { taut(&["pasta"]) };
        pasta.args(["--config-net", "-t", "127.0.0.1/7070-7070:80-80", "-t", "7071:80"]);
        pasta.args(["--dns-forward", "169.254.1.1", "-t", "none", "-u", "none", "-T", "none", "-U", "none"]);
        pasta.args(["--no-map-gw", "--quiet", "--netns"]).arg(&namespace.0);
        pasta.args(["--map-guest-addr", "169.254.1.2", "--dns-host", &server, "-P"]).arg(&pid);
        if !by_name {
            pasta.arg("-l").arg(&log);
        }
        // Ready when it returns, and its output is closed then, or this would wait.
        let output = lab.output(pasta.env("XDG_CONFIG_HOME", "/nonexistent").stdin(Stdio::null()));
        assert_eq!(output.status.code(), Some(0), "{}", said(&output));
        let gateway: u32 = std::fs::read_to_string(&pid).unwrap().trim().parse().unwrap();
        assert!(is_there(gateway));
        assert_eq!(namespace.run(&read(place)), "hello\n");
        // This host, by the address that stands for it; its loopback is closed.
        let mapped = SocketAddr::from(([169, 254, 1, 2], own.port()));
        assert_eq!(namespace.run(&read(mapped)), "hello\n");
        let closed = SocketAddr::from(([10, 0, 2, 2], local.port()));
        assert!(namespace.run(&read(closed)).contains("No route to host"));
        let status =
            namespace.run("dig +tries=1 +time=20 @169.254.1.1 www.example | grep -o 'status: [A-Z]*'");
        assert_eq!(status, "status: REFUSED\n");
        assert!(namespace.run("ip -o link show lo").contains("LOOPBACK,UP"));
        // Ports, at an address and at all.
        let inner = format!(
            "import socket;s=socket.create_server(('0.0.0.0',80));open('{}','w')\n\
             while 1: s.accept()[0].send(b'inner')",
            lab.dir.join("ready").display()
        );
        let mut service = Command::new("nsenter");
        service.arg(format!("--net={}", namespace.0.display())).args(["python3", "-c", &inner]);
        let service = lab.spawn(&mut service);
        eventually("the service listens", || lab.dir.join("ready").exists());
        for at in ["127.0.0.1:7070", "127.0.0.1:7071", "192.0.2.9:7071"] {
            let mut client = lab.kernel.enter(|| TcpStream::connect(at)).unwrap().unwrap();
            let mut first = [0; 5];
            client.read_exact(&mut first).unwrap();
            assert_eq!(&first, b"inner", "{at}");
        }
        let refused = |at| lab.kernel.enter(|| TcpStream::connect(at)).unwrap().is_err();
        assert!(refused("192.0.2.9:7070"));
        // Its end: the processes, and the ports.
        drop(service);
        namespace.remove();
        eventually("the gateway has ended", || !is_there(gateway));
        assert!(refused("127.0.0.1:7070") && refused("192.0.2.9:7071"));
        std::fs::remove_file(lab.dir.join("ready")).unwrap();
    }
    // Errors are on standard error, before the caller's process ends.
    for (words, why) in [
        (&["--netns", "/no/such/file"][..], "/no/such/file"),
        (&["--vhost-user"], "pasta's option --vhost-user has no equivalent in taut"),
        (&["-t", "192.0.2.77/80", "4000000000"], "4000000000"),
    ] {
        let output = lab.output(taut(&["pasta"]).args(words).stdin(Stdio::null()));
        assert_eq!(output.status.code(), Some(1), "{words:?}");
        assert!(said(&output).contains(why), "{words:?}: {}", said(&output));
    }
    // A command of its own.
    let run = ["pasta", "-4", "--", "python3", "-c", READ, SERVER, &place.port().to_string()];
    let output = lab.output(taut(&run).stdin(Stdio::null()));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "hello\n", "{}", said(&output));
}

#[test]
fn gw_276_passt_by_name_serves_one_machine_and_ends_with_it() {
    let Some(lab) = lab("drop-in-passt", &[]) else { return };
    let place = hello(&lab, SERVER);
    let link = lab.dir.join("passt");
    symlink(env!("CARGO_BIN_EXE_taut"), &link).unwrap();
    for by_name in [true, false] {
        let [socket, pid, log] = ["socket", "pid", "log"].map(|name| lab.dir.join(name));
        let mut passt = if by_name { Command::new(&link) } else { taut(&["passt"]) };
        // As libvirt starts it.
        passt
            .arg("--one-off")
            .arg("--socket")
            .arg(&socket)
            .arg("--pid")
            .arg(&pid)
            .arg("--log-file")
            .arg(&log);
        passt.args(["--address", "172.17.2.5", "--netmask", "255.255.255.0"]);
        passt.args(["--tcp-ports", "127.0.0.1/7072:80"]);
        let output = lab.output(passt.env("XDG_CONFIG_HOME", "/nonexistent").stdin(Stdio::null()));
        assert_eq!(output.status.code(), Some(0), "{}", said(&output));
        let gateway: u32 = std::fs::read_to_string(&pid).unwrap().trim().parse().unwrap();
        let machine = machine(&socket, "52:54:00:12:34:57", "172.17.2.5");
        let mut text = String::new();
        let mut stream = taut::blocking::TcpStream::connect(&machine, place).unwrap();
        stream.read_to_string(&mut text).unwrap();
        assert_eq!(text, "hello");
        // A port of the host.
        let listener = taut::blocking::TcpListener::bind(&machine, "172.17.2.5:80").unwrap();
        let serving = std::thread::spawn(move || listener.accept().unwrap().0.write_all(b"inner").unwrap());
        let mut client = lab.kernel.enter(|| TcpStream::connect("127.0.0.1:7072")).unwrap().unwrap();
        let mut first = [0; 5];
        client.read_exact(&mut first).unwrap();
        assert_eq!(&first, b"inner");
        serving.join().unwrap();
        drop((stream, machine));
        eventually("the gateway has ended", || !is_there(gateway));
        assert!(lab.kernel.enter(|| TcpStream::connect("127.0.0.1:7072")).unwrap().is_err());
    }
    for (words, why) in [(&["-f"][..], "--socket PATH"), (&["--vhost-user"], "passt's option --vhost-user")] {
        let output = lab.output(taut(&["passt"]).args(words).stdin(Stdio::null()));
        assert_eq!(output.status.code(), Some(1), "{words:?}");
        assert!(said(&output).contains(why), "{words:?}: {}", said(&output));
    }
}

/// One request to the API socket.
fn api(path: &Path, request: &str) -> String {
    let mut socket = UnixStream::connect(path).unwrap();
    socket.write_all(request.as_bytes()).unwrap();
    socket.shutdown(std::net::Shutdown::Write).unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn gw_195_slirp4netns_by_name_with_its_descriptors_and_its_api() {
    let Some(lab) = lab("drop-in-slirp", &["unshare", "nsenter", "umount", "python3", "mkfifo"]) else {
        return;
    };
    let place = hello(&lab, SERVER);
    let namespace = Namespace::new(&lab, "netns-2");
    let (socket, ready, end) = (lab.dir.join("api"), lab.dir.join("ready"), lab.dir.join("end"));
    for fifo in [&ready, &end] {
        assert!(Command::new("mkfifo").arg(fifo).status().unwrap().success());
    }
    let script = "exec 3<end 4>ready; exec \"$0\" slirp4netns --disable-host-loopback --mtu=65520 \
                  --enable-sandbox --enable-seccomp --enable-ipv6 -c -e 3 -r 4 --netns-type=path -a \"$1\" \"$2\" tap0";
    let mut shell = Command::new("sh");
    shell.args(["-c", script, env!("CARGO_BIN_EXE_taut")]).arg(&socket).arg(&namespace.0);
    shell.env("XDG_CONFIG_HOME", "/nonexistent").stdin(Stdio::null()).stderr(Stdio::piped());
    let mut running = lab.spawn(&mut shell);
    // Opened for both ends: neither waits for the other.
    let alive = std::fs::OpenOptions::new().write(true).open(&end).unwrap();
    let mut line = [0; 2];
    std::fs::File::open(&ready).unwrap().read_exact(&mut line).unwrap();
    assert_eq!(&line, b"1\n");
    assert_eq!(namespace.run(&read(place)), "hello\n");
    assert!(namespace.run("ip -o -4 address show tap0").contains("10.0.2.100/24"));
    assert!(namespace.run("ip -o link show tap0").contains("mtu 65520"));
    assert_eq!(std::fs::metadata(&socket).unwrap().permissions().mode() & 0o777, 0o600);
    // Forwards that come and go.
    let add = r#"{"execute":"add_hostfwd","arguments":{"proto":"tcp","host_addr":"","host_port":7080,"guest_addr":"10.0.2.100","guest_port":80}}"#;
    assert_eq!(api(&socket, add), r#"{"return":{"id":1}}"#);
    assert!(api(&socket, add).contains("cannot forward 0.0.0.0:7080"));
    let list = r#"{"execute": "list_hostfwd"}"#;
    let entry = r#"{"guest_addr":"10.0.2.100","guest_port":80,"host_addr":"0.0.0.0","host_port":7080,"id":1,"proto":"tcp"}"#;
    assert_eq!(api(&socket, list), format!(r#"{{"return":{{"entries":[{entry}]}}}}"#));
    let ready = lab.dir.join("listens");
    let inner = format!(
        "import socket;s=socket.create_server(('0.0.0.0',80));open('{}','w')\nwhile 1: s.accept()[0].send(b'inner')",
        ready.display()
    );
    let mut service = Command::new("nsenter");
    service.arg(format!("--net={}", namespace.0.display())).args(["python3", "-c", &inner]);
    let service = lab.spawn(&mut service);
    eventually("the service listens", || ready.exists());
    let connect = || lab.kernel.enter(|| TcpStream::connect("127.0.0.1:7080")).unwrap();
    let mut first = [0; 5];
    connect().unwrap().read_exact(&mut first).unwrap();
    assert_eq!(&first, b"inner");
    assert_eq!(api(&socket, r#"{"execute":"remove_hostfwd","arguments":{"id":1}}"#), r#"{"return":{}}"#);
    eventually("the port is closed", || connect().is_err());
    for (wrong, why) in [
        (r#"{"execute":"remove_hostfwd","arguments":{"id":1}}"#, "no such id"),
        (r#"{"execute":"add_hostfwd","arguments":{"proto":"sctp"}}"#, "add_hostfwd"),
        (
            r#"{"execute":"add_hostfwd","arguments":{"proto":"udp","host_port":1,"guest_addr":"10.9.9.9","guest_port":1}}"#,
            "is not 10.0.2.100",
        ),
        (r#"{"execute":"shutdown"}"#, "no command shutdown"),
        ("no JSON", "bad request"),
        ("{", "bad request"),
    ] {
        let answer = api(&socket, wrong);
        assert!(answer.starts_with(r#"{"error":{"desc":"#) && answer.contains(why), "{wrong}: {answer}");
    }
    // Its end: the other side of the descriptor.
    drop(service);
    drop(alive);
    assert_eq!(running.wait(), Some(0));
}

/// A user's container: its network namespace belongs to a user namespace, which the user's gateway enters.
#[test]
fn gw_252_a_user_namespace_is_entered_and_the_loopback_is_at_an_address() {
    // Whatever the machine lets its users do with the TUN device.
    const AS_USER: &str = "mount -t tmpfs none /dev/net && mknod -m 666 /dev/net/tun c 10 200 && \
        exec setpriv --reuid=65534 --regid=65534 --clear-groups -- \"$@\"";
    let Some(lab) = lab("drop-in-user", &["unshare", "nsenter", "setpriv", "python3"]) else { return };
    let (place, local) = (hello(&lab, SERVER), hello(&lab, "127.0.0.1"));
    let as_user = |words: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", AS_USER, "sh"]).args(words);
        command.env("XDG_CONFIG_HOME", "/nonexistent").stdin(Stdio::null());
        command
    };
    let container = ["unshare", "--user", "--map-root-user", "--net", "sleep", "1000"];
    let mut container = lab.spawn(&mut as_user(&container));
    let pid = container.id();
    let comm = || std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap();
    eventually("the container is there", || comm() == "sleep\n");
    let [user, net] = ["user", "net"].map(|kind| format!("/proc/{pid}/ns/{kind}"));
    let pasta = [env!("CARGO_BIN_EXE_taut"), "pasta", "-f", "--map-host-loopback", "192.0.2.77"];
    // Without it, the kernel refuses.
    for (more, why) in [(&[][..], "cannot enter"), (&["--userns", &net], "cannot enter")] {
        let output = lab.output(&mut as_user(&[&pasta[..], more, &["--netns", &net]].concat()));
        assert!(output.status.code() == Some(1) && said(&output).contains(why), "{}", said(&output));
    }
    let words = [&pasta[..], &["--userns", &user, "--netns", &net]].concat();
    let mut running = lab.spawn(&mut as_user(&words));
    let inside = |script: &str| run(Path::new(&net), script);
    eventually("the gateway serves", || inside(&read(place)) == "hello\n");
    let mapped = SocketAddr::from(([192, 0, 2, 77], local.port()));
    assert_eq!(inside(&read(mapped)), "hello\n");
    container.signal("KILL");
    container.wait();
    assert_eq!(running.wait(), Some(0));
}

/// A server at port 7000 of this address, by TCP and UDP, that notes its clients' addresses and returns what
/// they send: a query of DNS as REFUSED.
fn noting(kernel: &Kernel, at: &str, seen: &Arc<Mutex<BTreeSet<String>>>) {
    let (listener, socket) = kernel
        .enter(|| (TcpListener::bind((at, 7_000)).unwrap(), UdpSocket::bind((at, 7_000)).unwrap()))
        .unwrap();
    let note =
        |seen: &Mutex<BTreeSet<String>>, from: SocketAddr| seen.lock().unwrap().insert(from.ip().to_string());
    let by_stream = Arc::clone(seen);
    std::thread::spawn(move || {
        while let Ok((mut stream, from)) = listener.accept() {
            note(&by_stream, from);
            let mut message = [0; 2_000];
            let len = stream.read(&mut message).unwrap_or(0);
            if len > 14 {
                (message[4], message[5]) = (0x80, 5);
            }
            _ = stream.write_all(&message[..len]);
        }
    });
    let by_datagram = Arc::clone(seen);
    std::thread::spawn(move || {
        let mut message = [0; 2_000];
        while let Ok((len, from)) = socket.recv_from(&mut message) {
            note(&by_datagram, from);
            if len > 12 {
                (message[2], message[3]) = (0x80, 5);
            }
            _ = socket.send_to(&message[..len], from);
        }
    });
}

/// Sends and receives a byte by TCP and by UDP.
const SEND: &str = "import socket,sys\n\
    for at in sys.argv[1:]:\n \
     s=socket.create_connection((at,7000),20); u=socket.socket(s.family,socket.SOCK_DGRAM); u.settimeout(20)\n \
     u.connect((at,7000)); u.send(b'x'); s.send(b'x'); print((s.recv(9)+u.recv(9)).decode(),end='')";

#[test]
fn gw_223_flows_leave_from_an_address_or_by_an_interface() {
    let programs = ["unshare", "nsenter", "umount", "python3", "ping", "dig"];
    let Some(lab) = lab("drop-in-outbound", &programs) else { return };
    let far = Kernel::new().unwrap();
    // veth0 leads to the far end, wan0 nowhere.
    lab.kernel.veth(&far, Subnet(77), 1500).unwrap();
    for line in [
        "address add 10.77.0.9/24 dev veth0",
        "address add fd4d::9/64 dev veth0 nodad",
        "link add wan0 type veth peer name wan1",
        "link set wan0 up",
        "link set wan1 up",
        "address add 10.78.0.9/24 dev wan0",
        "address add fd78::9/64 dev wan0 nodad",
        // A guest has IPv6 if this host has.
        "route add default via fd4d::1",
        "route add 203.0.113.0/24 dev wan0 metric 1",
        "route add 203.0.113.0/24 via 10.77.0.1 metric 2",
        "route add 2001:db8::/64 dev wan0 metric 1",
        "route add 2001:db8::/64 via fd4d::1 metric 2",
    ] {
        lab.kernel.run(&format!("ip {line}")).unwrap();
    }
    lab.kernel.set_sysctl("ping_group_range", "0 2147483647").unwrap();
    for line in [
        "address add 203.0.113.1/32 dev lo",
        "address add 2001:db8::1/128 dev lo nodad",
        "route add 10.78.0.0/24 via 10.77.0.2",
        "route add fd78::/64 via fd4d::2",
        // By default, flows come from there: no answer arrives.
        "route add blackhole 10.77.0.2/32",
    ] {
        far.run(&format!("ip {line}")).unwrap();
    }
    let seen = Arc::<Mutex<BTreeSet<String>>>::default();
    for at in ["10.77.0.1", "fd4d::1", "203.0.113.1", "2001:db8::1"] {
        noting(&far, at, &seen);
    }
    let taken = || std::mem::take(&mut *seen.lock().unwrap()).into_iter().collect::<Vec<_>>();
    // Connections, datagrams, a ping, queries to the name server.
    let all = "python3 -c \"$0\" 10.77.0.1 fd4d::1; ping -q -c 1 -W 20 10.77.0.1 >&2 && echo ' ping'; \
               for how in +notcp +tcp; do dig $how +tries=1 +time=20 @169.254.1.1 www.example | grep -o 'status.*,'; done";
    let words = ["pasta", "-o", "10.77.0.9", "-o", "fd4d::9", "--no-map-gw", "--dns-forward", "169.254.1.1"];
    let words = [&words[..], &["--dns-host", "10.77.0.1:7000", "--", "sh", "-c", all, SEND]].concat();
    let output = lab.output(taut(&words).stdin(Stdio::null()));
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(text, "xxxx ping\nstatus: REFUSED,\nstatus: REFUSED,\n", "{}", said(&output));
    assert_eq!(taken(), ["10.77.0.9", "fd4d::9"]);
    // The address of an interface, and still the route's way.
    let namespace = Namespace::new(&lab, "netns-3");
    let mut slirp = taut(&["slirp4netns", "--outbound-addr=wan0", "--outbound-addr6=wan0", "--enable-ipv6"]);
    let mut running = lab.spawn(slirp.arg(&namespace.0).arg("tap0").stdin(Stdio::null()));
    let sent = format!("python3 -c \"{SEND}\" 10.77.0.1 fd4d::1");
    eventually("the gateway serves", || namespace.run(&sent) == "xxxx");
    assert_eq!(taken(), ["10.78.0.9", "fd78::9"]);
    namespace.remove();
    assert_eq!(running.wait(), Some(0));
    // An interface, where routes say another one.
    far.run("ip route delete blackhole 10.77.0.2/32").unwrap();
    let words =
        ["pasta", "--outbound-if4", "veth0", "--outbound-if6", "veth0", "--no-map-gw", "--", "python3", "-c"];
    let words = [&words[..], &[SEND, "203.0.113.1", "2001:db8::1"]].concat();
    let output = lab.output(taut(&words).stdin(Stdio::null()));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "xxxx", "{}", said(&output));
    let own = ["10.77.0.2", "10.77.0.9", "fd4d::2", "fd4d::9"];
    assert!(taken().iter().all(|from| own.contains(&from.as_str())));
    // One that this host has not, and another way out.
    std::fs::create_dir(lab.dir.join("taut")).unwrap();
    std::fs::write(lab.dir.join("taut/gateway.toml"), "out = \"socks5://127.0.0.1:1\"\n").unwrap();
    for (words, home, why) in [
        (["-o", "192.0.2.77"], "/nonexistent", "192.0.2.77: "),
        (["--outbound-if6", "nowhere0"], "/nonexistent", "nowhere0: "),
        (["-o", "10.77.0.9"], lab.dir.to_str().unwrap(), "configuration file"),
    ] {
        let words = [&["pasta"][..], &words, &["--", "true"]].concat();
        let output = lab.output(taut(&words).env("XDG_CONFIG_HOME", home).stdin(Stdio::null()));
        assert_eq!(output.status.code(), Some(1), "{words:?}");
        assert!(said(&output).contains(why), "{words:?}: {}", said(&output));
    }
}

/// A program that makes a TAP, has slirp4netns serve it, and configures it, as rootlesskit does.
#[test]
fn gw_224_a_tap_that_is_there_is_served_as_it_is() {
    let Some(lab) = lab("drop-in-tap", &["unshare", "nsenter", "umount", "python3", "dig"]) else { return };
    lab.kernel.run("ip address add 2001:db8::1/128 dev lo nodad").unwrap();
    let seen = Arc::<Mutex<BTreeSet<String>>>::default();
    noting(&lab.kernel, SERVER, &seen);
    noting(&lab.kernel, "2001:db8::1", &seen);
    let bulk = lab.kernel.enter(|| TcpListener::bind((SERVER, 0))).unwrap().unwrap();
    let port = bulk.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in bulk.incoming().map_while(Result::ok) {
            std::thread::spawn(move || std::io::copy(&mut &stream, &mut &stream));
        }
    });
    let namespace = Namespace::new(&lab, "netns-4");
    assert_eq!(namespace.run("ip tuntap add name tap0 mode tap && ip link set tap0 up"), "");
    let log = lab.dir.join("log");
    let words = ["--mtu=65520", "--enable-ipv6", "--disable-host-loopback"];
    let mut slirp = taut(&[&["slirp4netns"][..], &words].concat());
    slirp.arg(&namespace.0).arg("tap0").stdin(Stdio::null()).stderr(std::fs::File::create(&log).unwrap());
    let mut running = lab.spawn(&mut slirp);
    eventually("it serves", || std::fs::read_to_string(&log).unwrap().contains("the gateway is at"));
    assert_eq!(namespace.run("ip -o address show tap0 scope global"), "");
    for line in [
        "link set tap0 mtu 65520",
        "address add 10.0.2.100/24 dev tap0",
        "route add default via 10.0.2.2",
        "address add fd00::100/64 dev tap0 nodad",
        "route add default via fd00::2",
    ] {
        assert_eq!(namespace.run(&format!("ip {line}")), "", "{line}");
    }
    let sent = format!("python3 -c \"{SEND}\" {SERVER} 2001:db8::1");
    assert_eq!(namespace.run(&sent), "xxxx");
    // Its name server is another address of the link; the host has none.
    for server in ["10.0.2.3", "fd00::3"] {
        let query = format!("dig +tries=1 +time=20 @{server} gateway.home.arpa A +short");
        assert_eq!(namespace.run(&query), "10.0.2.2\n");
    }
    let there_and_back = "import socket,sys,threading\n\
        s=socket.create_connection((sys.argv[1],int(sys.argv[2])),20); data=bytes(range(251))*80000\n\
        threading.Thread(target=lambda: (s.sendall(data),s.shutdown(1))).start()\n\
        back=b''.join(iter(lambda: s.recv(1<<20),b'')); print(back==data)";
    assert_eq!(namespace.run(&format!("python3 -c \"{there_and_back}\" {SERVER} {port}")), "True\n");
    let mut second = taut(&["slirp4netns"]);
    let output = lab.output(second.arg(&namespace.0).arg("tap0").stdin(Stdio::null()));
    assert!(output.status.code() == Some(1) && said(&output).contains("already in use"), "{}", said(&output));
    namespace.remove();
    assert_eq!(running.wait(), Some(0));
}
