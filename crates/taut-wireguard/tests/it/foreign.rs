//! Far ends that are not taut: `wireguard-go` and `boringtun-cli`, over a TUN in a namespace. `make
//! wireguard` gets and runs them.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream as KernelStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use taut::blocking::{TcpListener, TcpStream};
use taut_testbed::{Kernel, Peer, Service, Subnet, eventually, now};
use taut_wireguard::WireGuard;

use crate::support::{End, Host};

/// The programs, and the arguments in front of the interface's name.
const PROGRAMS: [(&str, &[&str]); 2] =
    [("wireguard-go", &["-f"]), ("boringtun-cli", &["-f", "--disable-drop-privileges"])];
const PSK: &str = "FpCyhws9cxwWoV4xELtfJvjJN+zQVRPISllRWgeopVE=";

/// The folder that `make wireguard-peers` fills.
fn folder() -> PathBuf {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/peers/bin");
    std::env::var_os("TAUT_WIREGUARD_PEERS").map_or(own, PathBuf::from)
}

fn hex(base64: &str) -> String {
    STANDARD.decode(base64).unwrap().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A running far end.
struct Foreign {
    child: Child,
    interface: String,
}

impl Foreign {
    /// Starts it, with the near end as its peer.
    fn start(kernel: &Kernel, program: (&str, &[&str]), own: &End, near: &End, interface: &str) -> Self {
        let mut command = Command::new(folder().join(program.0));
        command
            .args(program.1)
            .arg(interface)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let child =
            kernel.namespace.spawn(&mut command).unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let this = Self { child, interface: interface.to_owned() };
        let socket = this.socket();
        eventually("its socket is there", || UnixStream::connect(&socket).is_ok());
        let mut control = UnixStream::connect(&socket).unwrap();
        // https://www.wireguard.com/xplatform/
        let text = format!(
            "set=1\nprivate_key={}\nlisten_port=51820\npublic_key={}\npreshared_key={}\nendpoint={}:51821\n\
             allowed_ip=10.88.0.2/32\nallowed_ip=fd88::2/128\n\n",
            hex(&own.key.to_text()),
            hex(&near.key.public().to_string()),
            hex(PSK),
            Subnet(70).near_v4(),
        );
        control.write_all(text.as_bytes()).unwrap();
        let mut answer = [0; 64];
        let count = control.read(&mut answer).unwrap();
        assert!(answer[..count].starts_with(b"errno=0"), "{:?}", String::from_utf8_lossy(&answer[..count]));
        for line in [
            format!("ip address add 10.88.0.1/24 dev {interface}"),
            format!("ip address add fd88::1/64 dev {interface} nodad"),
            format!("ip link set dev {interface} mtu 1420 up"),
        ] {
            kernel.run(&line).unwrap();
        }
        this
    }

    fn socket(&self) -> PathBuf {
        PathBuf::from(format!("/var/run/wireguard/{}.sock", self.interface))
    }
}

impl Drop for Foreign {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
        _ = std::fs::remove_file(self.socket());
    }
}

/// Bytes to an echo and back.
fn echo(stream: &mut (impl Read + Write), bytes: usize) {
    let data: Vec<u8> = (0..bytes).map(|at| (at % 251) as u8).collect();
    // Less than what both ways hold at a time.
    for chunk in data.chunks(16 << 10) {
        stream.write_all(chunk).unwrap();
        let mut back = vec![0; chunk.len()];
        stream.read_exact(&mut back).unwrap();
        assert_eq!(back, chunk);
    }
}

fn with(program: (&str, &[&str])) {
    let (here, there) = (Kernel::new().unwrap(), Kernel::new().unwrap());
    here.veth(&there, Subnet(70), 1500).unwrap();
    let mut near = End::new("Address = 10.88.0.2/24, fd88::2/64\nListenPort = 51821");
    let far = End::new("");
    let endpoint = format!("Endpoint = {}:51820", Subnet(70).far_v4());
    near.trusts(
        &far.key,
        &format!(
            "AllowedIPs = 10.88.0.1, fd88::1\nPresharedKey = {PSK}\n{endpoint}\nPersistentKeepalive = 25"
        ),
    );
    let interface = format!("wgt{}", std::process::id() % 100_000);
    let foreign = Foreign::start(&there, program, &far, &near, &interface);
    let host = Host::of(here.enter(|| WireGuard::open(&near.config())).unwrap().unwrap());
    let _peer =
        Peer::start(&there, &[(7, Service::Echo), (9, Service::Sink), (19, Service::Source)]).unwrap();

    // From the stack to the kernel, and from the kernel to the stack, over both families.
    for to in ["10.88.0.1:7", "[fd88::1]:7"] {
        echo(&mut TcpStream::connect(&host.stack, to).unwrap(), 500_000);
    }
    for at in ["10.88.0.2:7", "[fd88::2]:7"] {
        let listener = TcpListener::bind(&host.stack, at).unwrap();
        let at: SocketAddr = at.parse().unwrap();
        let thread =
            there.thread("client", move || echo(&mut KernelStream::connect(at).unwrap(), 500_000)).unwrap();
        let mut stream = listener.accept().unwrap().0;
        let mut buffer = vec![0; 64 << 10];
        while let count @ 1.. = stream.read(&mut buffer).unwrap() {
            stream.write_all(&buffer[..count]).unwrap();
        }
        thread.join().unwrap();
    }
    let mut source = TcpStream::connect(&host.stack, "10.88.0.1:19").unwrap();
    source.read_exact(&mut vec![0; 20_000_000]).unwrap();
    drop(source);
    let mut sink = TcpStream::connect(&host.stack, "10.88.0.1:9").unwrap();
    sink.write_all(&vec![7; 20_000_000]).unwrap();
    eventually("all is acknowledged", || sink.info().unwrap().bytes_acked >= 20_000_000);
    let drops = host.monitor.status().drops;
    assert_eq!((drops.invalid, drops.source, drops.replayed), (0, 0, 0), "{drops:?}");

    // The near end moves to another address of its network: the far end answers there.
    let mut stream = TcpStream::connect(&host.stack, "10.88.0.1:7").unwrap();
    echo(&mut stream, 10_000);
    here.set_sysctl("net.ipv4.conf.veth0.promote_secondaries", "1").unwrap();
    here.run("ip address add 10.70.0.3/24 dev veth0").unwrap();
    here.run("ip address del 10.70.0.2/24 dev veth0").unwrap();
    echo(&mut stream, 100_000);
    here.run("ip address del 10.70.0.3/24 dev veth0").unwrap();
    here.run("ip address add 10.70.0.2/24 dev veth0").unwrap();
    echo(&mut stream, 10_000);

    // The far end loses all its keys under load: a connection of before continues with new ones.
    drop(foreign);
    let restarted = now();
    let _foreign = Foreign::start(&there, program, &far, &near, &interface);
    echo(&mut stream, 100_000);
    assert!(host.monitor.status().peers[0].since_handshake.unwrap() <= restarted.elapsed());
}

#[test]
#[ignore = "needs its far end: make wireguard"]
fn wg_25_wireguard_go_is_a_far_end() {
    with(PROGRAMS[0]);
}

#[test]
#[ignore = "needs its far end: make wireguard"]
fn wg_25_boringtun_cli_is_a_far_end() {
    with(PROGRAMS[1]);
}
