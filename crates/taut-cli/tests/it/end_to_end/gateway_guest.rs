//! `taut gateway --qemu` with Debian's kernel as its guest, in an emulated machine: VM-19 of
//! `docs/spec/gateway.md`.
//!
//! ```text
//!   guest: busybox, its DHCP client ── virtio-net ── QEMU ── Unix socket ── taut gateway, user 65534 ── servers
//!                                                                           └──── namespace of the test ─────┘
//! ```
//!
//! The gateway has no privilege at all, and nothing leaves the namespace.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use taut_cli::text::hex;
use taut_testbed::{Guest, Meter, Noise, Scratch, guest};

use super::support::Lab;

/// Addresses of the namespace of the test, which are neither loopback nor on a link.
pub(super) const SERVER: &str = "198.51.100.1";
const SERVER_V6: &str = "2001:db8::1";
/// A name that the namespace's name server knows.
const NAME: &str = "files.example";
/// How long a guest may take besides moving its bytes, on a machine that is busy with other things.
pub(super) const PATIENCE: Duration = Duration::from_secs(1_500);
/// The least that a guest must move, in bytes a second.
const SLOWEST: u64 = 500_000;
/// Bytes each way if `TAUT_GUEST_BYTES` does not say.
const BYTES: u64 = 16_000_000;
const UDP_SECONDS: u32 = 3;
const IPERF: u16 = 5_201;

/// Runs in the guest: a network from nothing but what the link tells, and what a user does with it.
const SCRIPT: &str = r#"
lease || exit 1
echo "v4: $(ip -4 addr show dev eth0 | grep -o 'inet [^ ]*') mtu $(cat /sys/class/net/eth0/mtu)"
echo "resolv.conf: $(tr '\n' ' ' </etc/resolv.conf)"
# A solicitation is answered within half a second, an address is checked for one.
for second in $(seq 30); do
  ip -6 addr show dev eth0 | grep global | grep -vq tentative && break
  sleep 1
done
echo "v6: $(ip -6 addr show dev eth0 | grep -o 'inet6 fd[^ ]*')"
echo "route: $(ip -6 route | grep default | grep -o 'via [^ ]*')"
echo "name: $(nslookup -type=a $name | grep -o 'Address: 198.*')"
echo "host: $(ping -4 -c 1 -W 1 host | grep -o '(10[^)]*)')"
since=$(date +%s)
echo "down: $(wget -q -O - http://$name:$web/ | sha256sum)"
echo "seconds down: $(($(date +%s) - since))"
since=$(date +%s)
mkfifo /tmp/copy
sha256sum </tmp/copy >/tmp/sum &
echo "taken: $(head -c $bytes /dev/urandom | tee /tmp/copy | nc $server $sink)"
wait
echo "up: $(cat /tmp/sum)"
echo "seconds up: $(($(date +%s) - since))"
ping -c 3 -W 10 $server | grep received
ping -c 3 -W 10 $server_v6 | grep received | sed 's/^/v6 /'
wget -q -O /dev/null http://$server:9/ && echo "an open port 9" || echo "refused: $?"
iperf3 -u -c $server -p $iperf -b 2M -t $seconds --connect-timeout 20000 -J >/tmp/iperf || cat /tmp/iperf
echo "iperf3: $(grep -o '"packets":[^,]*' /tmp/iperf | tail -n 1) $(grep -o '"lost_percent":[^,}]*' /tmp/iperf | tail -n 1)"
"#;

#[test]
#[ignore = "the part of another test that runs in a guest"]
fn inside_machine() {
    guest::inside::shell(SCRIPT);
}

/// The servers in the namespace: a web server with noise, a sink, a name server.
struct Servers {
    web: u16,
    sink: u16,
    dns: u16,
    /// The hash of what the web server sends.
    sent: String,
}

impl Servers {
    fn new(lab: &Lab, bytes: u64) -> Self {
        let listener = || lab.kernel.enter(|| TcpListener::bind((SERVER, 0))).unwrap().unwrap();
        let (web, sink) = (listener(), listener());
        let dns = lab.kernel.enter(|| UdpSocket::bind((SERVER, 0))).unwrap().unwrap();
        let ports = [&web, &sink].map(|listener| listener.local_addr().unwrap().port());
        let dns_port = dns.local_addr().unwrap().port();
        let mut meter = Meter::default();
        blocks(bytes, |block| meter.update(block));
        std::thread::spawn(move || {
            for mut stream in web.incoming().map_while(Result::ok) {
                _ = stream.read(&mut [0; 1_000]);
                _ = write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {bytes}\r\nConnection: close\r\n\r\n");
                blocks(bytes, |block| _ = stream.write_all(block));
            }
        });
        std::thread::spawn(move || {
            for mut stream in sink.incoming().map_while(Result::ok) {
                let taken = Meter::of(&stream).map(Meter::finish);
                _ = taken.map(|taken| stream.write_all(hex(&taken).as_bytes()));
            }
        });
        std::thread::spawn(move || {
            let mut message = [0; 512];
            while let Ok((len, from)) = dns.recv_from(&mut message) {
                _ = dns.send_to(&answer(&message[..len]), from);
            }
        });
        Self { web: ports[0], sink: ports[1], dns: dns_port, sent: hex(&meter.finish()) }
    }
}

fn blocks(bytes: u64, mut take: impl FnMut(&[u8])) {
    let (mut noise, mut left) = (Noise::new(1), bytes);
    while left > 0 {
        let block = noise.bytes(left.min(1 << 20) as usize);
        take(&block);
        left -= block.len() as u64;
    }
}

/// RFC 1035 §4.1: an address for the one name, for others that there is none.
fn answer(question: &[u8]) -> Vec<u8> {
    let name: Vec<u8> =
        NAME.split('.').flat_map(|label| [&[label.len() as u8], label.as_bytes()].concat()).collect();
    let is_known = question[12..].starts_with(&[&name[..], &[0, 0, 1]].concat());
    let mut answer = question.to_vec();
    // Only the question, whatever came with it.
    let end = 12 + question[12..].iter().position(|byte| *byte == 0).unwrap() + 5;
    answer.truncate(end);
    answer[2] |= 0x80;
    answer[3] = if is_known { 0x80 } else { 0x83 };
    answer[6..12].copy_from_slice(&[0, u8::from(is_known), 0, 0, 0, 0]);
    if is_known {
        answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4]);
        answer.extend(SERVER.parse::<Ipv4Addr>().unwrap().octets());
    }
    answer
}

/// The gateway, as a user without any privilege, at a socket in this folder.
pub(super) fn gateway(lab: &Lab, folder: &Path, dns: u16) -> Ended {
    // A copy, because nobody may look into the folder of the build.
    let program = folder.join("taut");
    std::fs::copy(env!("CARGO_BIN_EXE_taut"), &program).unwrap();
    let mut command = Command::new("setpriv");
    command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups", "--bounding-set", "-all"]);
    command.arg("--no-new-privs").arg(&program).args([
        "gateway",
        "--control",
        "none",
        "--search",
        "home.arpa",
    ]);
    command.arg("--qemu").arg(folder.join("net")).args(["--dns", &format!("{SERVER}:{dns}")]);
    command.args(["--guest", "10.0.2.15/24", "--guest", "fd74:6175:7400::15/64"]);
    let child = lab.kernel.namespace.spawn(command.stdin(Stdio::null()).stderr(Stdio::piped())).unwrap();
    let mut gateway = Ended(child);
    let mut lines = BufReader::new(gateway.0.stderr.take().unwrap()).lines();
    let waits =
        lines.by_ref().map_while(Result::ok).any(|line| line.contains("waiting for virtual machines"));
    assert!(waits, "the gateway ended");
    // Else a full pipe would make it wait.
    std::thread::spawn(move || lines.map_while(Result::ok).for_each(|line| eprintln!("{line}")));
    gateway
}

/// A process that ends with its test, however long that takes.
pub(super) struct Ended(pub(super) Child);

impl Drop for Ended {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

/// What is printed behind the word.
pub(super) fn line<'a>(printed: &'a str, word: &str) -> &'a str {
    let found = printed.lines().find_map(|line| line.strip_prefix(word));
    found.unwrap_or_else(|| panic!("no {word} in:\n{printed}")).trim()
}

fn number(text: &str) -> f64 {
    let digits: String =
        text.chars().skip_while(|c| !c.is_ascii_digit()).take_while(|c| !c.is_whitespace()).collect();
    digits.trim_end_matches('}').parse().unwrap_or_else(|_| panic!("no number in {text}"))
}

fn machine(boots: usize) {
    let Some(lab) = Lab::without_turn("gateway-guest", &["ip", "setpriv", "iperf3"]) else { return };
    let Some(guest) = Guest::new(&["iperf3"]).and_then(Guest::busybox) else { return };
    let bytes = std::env::var("TAUT_GUEST_BYTES").map_or(BYTES, |text| text.parse().unwrap());
    lab.kernel.run(&format!("ip address add {SERVER}/32 dev lo")).unwrap();
    lab.kernel.run(&format!("ip address add {SERVER_V6}/128 dev lo nodad")).unwrap();
    lab.kernel.set_sysctl("ping_group_range", "0 2147483647").unwrap();
    let servers = Servers::new(&lab, bytes);
    let mut iperf = Command::new("iperf3");
    iperf.args(["-s", "-B", SERVER, "-p", &IPERF.to_string()]).stdin(Stdio::null()).stdout(Stdio::null());
    let _iperf = Ended(lab.kernel.namespace.spawn(&mut iperf).unwrap());
    let folder = Scratch::new("gateway-guest");
    std::fs::set_permissions(&*folder, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    let mut gateway = gateway(&lab, &folder, servers.dns);
    let ports = [("web", servers.web), ("sink", servers.sink), ("iperf", IPERF)];
    let mut guest = guest.plug(&folder.join("net")).set("name", NAME).set("server", SERVER);
    guest = guest.set("server_v6", SERVER_V6).set("bytes", &bytes.to_string());
    guest = guest.set("seconds", &UDP_SECONDS.to_string());
    for (name, port) in ports {
        guest = guest.set(name, &port.to_string());
    }
    // The machine goes away and comes back: it is served like the first time.
    let limit = PATIENCE + Duration::from_secs(2 * bytes / SLOWEST);
    for _ in 0..boots {
        let printed = guest.run("end_to_end::gateway_guest::inside_machine", limit);
        println!("{printed}");
        assert_eq!(line(&printed, "v4: "), "inet 10.0.2.15/24 mtu 65520");
        assert_eq!(line(&printed, "resolv.conf: "), "nameserver 10.0.2.2 search home.arpa");
        // The station 02:00:00:00:01:00 with its bit of scope turned (RFC 4291 appendix A).
        assert_eq!(line(&printed, "v6: "), "inet6 fd74:6175:7400::ff:fe00:100/64");
        assert_eq!(line(&printed, "route: "), "via fe80::2");
        assert_eq!(line(&printed, "name: "), format!("Address: {SERVER}"));
        assert_eq!(line(&printed, "host: "), "(10.0.2.2)");
        assert_eq!(line(&printed, "down: "), format!("{}  -", servers.sent));
        assert_eq!(line(&printed, "up: "), format!("{}  -", line(&printed, "taken: ")));
        for family in ["3 packets", "v6 3 packets"] {
            assert!(line(&printed, family).contains("3 packets received"), "{printed}");
        }
        assert_eq!(line(&printed, "refused: "), "1");
        let (packets, lost) = line(&printed, "iperf3: ").split_once("\"lost").unwrap();
        // 2 Mbit/s in datagrams of 64 KB at most are 4 a second at least.
        assert!(number(packets) >= f64::from(4 * UDP_SECONDS) && number(lost) <= 10.0, "{packets} {lost}");
    }
    assert!(matches!(gateway.0.try_wait(), Ok(None)), "the gateway ended");
}

#[test]
fn vm_19_debians_kernel_configures_itself_and_uses_the_network_twice() {
    machine(2);
}
