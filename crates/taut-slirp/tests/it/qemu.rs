//! Debian's QEMU, unmodified, with this library in place of libslirp, and Debian's kernel 6.12 as its guest.
//!
//! ```text
//!   guest: busybox, its DHCP client ── virtio-net ── QEMU, -netdev user ── this library ── servers
//! ```

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::process::{Command, Stdio};
use std::time::Duration;

use taut_testbed::{Digest, Guest, Meter, Noise, Scratch, eventually, guest};

use crate::symbols::library;

/// How long a guest may take on a machine that is busy with other things.
pub(crate) const PATIENCE: Duration = Duration::from_secs(1_500);
/// Bytes each way if `TAUT_GUEST_BYTES` does not say.
const BYTES: u64 = 16_000_000;

/// Runs in the guest.
const SCRIPT: &str = r#"
lease || exit 1
echo "v4: $(ip -4 addr show dev eth0 | grep -o 'inet [^ ]*')"
echo "resolv.conf: $(tr '\n' ' ' </etc/resolv.conf)"
for second in $(seq 30); do
  ip -6 addr show dev eth0 | grep 'fec0' | grep -vq tentative && break
  sleep 1
done
echo "v6: $(ip -6 addr show dev eth0 | grep -o 'inet6 fec0[^ ]*')"
echo "name: $(nslookup -type=a files.example 10.0.2.3 | grep -o 'Address: 192.*')"
echo "down: $(wget -q -O - http://10.0.2.2:$web/ | sha256sum)"
mkfifo /tmp/copy
sha256sum </tmp/copy >/tmp/sum &
echo "taken: $(head -c $bytes /dev/urandom | tee /tmp/copy | nc 10.0.2.2 $sink)"
wait
echo "up: $(cat /tmp/sum)"
ping -c 3 -W 10 10.0.2.2 | grep received
wget -q -O /dev/null http://10.0.2.2:9/ && echo "an open port 9" || echo "refused: $?"
tftp -g -r file -l /tmp/file 10.0.2.2 && echo "tftp: $(sha256sum </tmp/file)"
nc -l -p 80 -e /bin/cat &
wget -q -O /dev/null http://10.0.2.2:$web/ready
wait
"#;

#[test]
#[ignore = "the part of another test that runs in a guest"]
fn inside_machine() {
    guest::inside::shell(SCRIPT);
}

fn hex(digest: &[u8]) -> String {
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The hash of so many bytes of noise, each of which `take` gets.
fn noise(bytes: u64, mut take: impl FnMut(&[u8])) -> String {
    let (mut noise, mut left, mut meter) = (Noise::new(1), bytes, Meter::default());
    while left > 0 {
        let block = noise.bytes(left.min(1 << 20) as usize);
        take(&block);
        meter.update(&block);
        left -= block.len() as u64;
    }
    let digest: Digest = meter.finish();
    hex(&digest)
}

/// A web server with noise, a sink that says the hash, a name server; the guest says when it is ready.
struct Servers {
    web: u16,
    sink: u16,
    names: u16,
}

fn serve(bytes: u64, is_ready: std::sync::mpsc::Sender<()>) -> Servers {
    let listener = || TcpListener::bind("127.0.0.1:0").unwrap();
    let (web, sink, names) = (listener(), listener(), UdpSocket::bind("127.0.0.1:0").unwrap());
    let port = |listener: &TcpListener| listener.local_addr().unwrap().port();
    let servers = Servers { web: port(&web), sink: port(&sink), names: names.local_addr().unwrap().port() };
    std::thread::spawn(move || {
        for mut stream in web.incoming().map_while(Result::ok) {
            let mut request = [0; 1_000];
            let len = stream.read(&mut request).unwrap_or(0);
            if request[..len].starts_with(b"GET /ready") {
                _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
                is_ready.send(()).unwrap();
                continue;
            }
            _ = write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {bytes}\r\nConnection: close\r\n\r\n");
            noise(bytes, |block| _ = stream.write_all(block));
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
        while let Ok((len, from)) = names.recv_from(&mut message) {
            // RFC 1035 §4.1: the question, and one address.
            let end = 12 + message[12..len].iter().position(|byte| *byte == 0).unwrap() + 5;
            let mut answer = message[..end].to_vec();
            (answer[2], answer[3]) = (answer[2] | 0x80, 0x80);
            answer[6..12].copy_from_slice(&[0, 1, 0, 0, 0, 0]);
            answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 192, 0, 2, 7]);
            _ = names.send_to(&answer, from);
        }
    });
    servers
}

/// The text that is printed behind the word.
pub(crate) fn line<'a>(printed: &'a str, word: &str) -> &'a str {
    let found = printed.lines().find_map(|line| line.strip_prefix(word));
    found.unwrap_or_else(|| panic!("no {word} in:\n{printed}")).trim()
}

#[test]
fn slirp_03_debians_qemu_with_this_library() {
    let Some(guest) = Guest::new(&[]).and_then(Guest::busybox) else { return };
    let bytes = std::env::var("TAUT_GUEST_BYTES").map_or(BYTES, |text| text.parse().unwrap());
    let (ready, is_ready) = std::sync::mpsc::channel();
    let servers = serve(bytes, ready);
    let scratch = Scratch::new("slirp-qemu");
    let settings = scratch.join("settings");
    std::fs::write(&settings, format!("name-server 127.0.0.1:{}\n", servers.names)).unwrap();
    let files = scratch.join("files");
    std::fs::create_dir_all(&files).unwrap();
    let mut file = std::fs::File::create(files.join("file")).unwrap();
    let sent_file = noise(1_000_000, |block| file.write_all(block).unwrap());
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let options = format!(",tftp={},hostfwd=tcp:127.0.0.1:{port}-:80", files.display());
    let mut guest = guest.user_network_with(&options).environment("LD_LIBRARY_PATH", &library(&scratch));
    guest = guest.environment("TAUT_SLIRP_CONFIG", &settings).set("bytes", &bytes.to_string());
    guest = guest.set("web", &servers.web.to_string()).set("sink", &servers.sink.to_string());
    // A client of the forwarded port, when the guest says that it is there.
    let client = std::thread::spawn(move || {
        is_ready.recv_timeout(PATIENCE).unwrap();
        let mut got = Vec::new();
        // The service may come a moment later: its port is closed until then.
        eventually("the guest's service answers", || {
            let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
            stream.write_all(b"hello").unwrap();
            _ = stream.shutdown(std::net::Shutdown::Write);
            got.clear();
            stream.read_to_end(&mut got).is_ok_and(|_| got == b"hello")
        });
    });
    let printed = guest.run("qemu::inside_machine", PATIENCE);
    println!("{printed}");
    client.join().unwrap();
    assert_eq!(line(&printed, "v4: "), "inet 10.0.2.15/24");
    assert_eq!(line(&printed, "resolv.conf: "), "nameserver 10.0.2.3");
    // The station 02:00:00:00:02:00 with its bit of scope turned (RFC 4291 appendix A).
    assert_eq!(line(&printed, "v6: "), "inet6 fec0::ff:fe00:200/64");
    assert_eq!(line(&printed, "name: "), "Address: 192.0.2.7");
    assert_eq!(line(&printed, "down: "), format!("{}  -", noise(bytes, |_| ())));
    assert_eq!(line(&printed, "up: "), format!("{}  -", line(&printed, "taken: ")));
    assert!(line(&printed, "3 packets").contains("3 packets received"), "{printed}");
    assert_eq!(line(&printed, "refused: "), "1");
    assert_eq!(line(&printed, "tftp: "), format!("{sent_file}  -"));
}

#[test]
fn slirp_48_a_machine_boots_a_kernel_by_tftp() {
    let Some(guest) = Guest::new(&["timeout"]) else { return };
    let scratch = Scratch::new("slirp-boot");
    let files = scratch.join("files");
    std::fs::create_dir_all(&files).unwrap();
    std::fs::copy(guest.kernel(), files.join("vmlinuz")).unwrap();
    // The card's ROM is iPXE. The kernel finds no root, and ends the machine, as a boot that fails does.
    let script = "#!ipxe\nkernel vmlinuz console=ttyS0 panic=-1\nboot\n";
    std::fs::write(files.join("boot.ipxe"), script).unwrap();
    let network = format!("user,id=net,tftp={},bootfile=boot.ipxe", files.display());
    let mut qemu = Command::new("timeout");
    qemu.arg(PATIENCE.as_secs().to_string()).args(["qemu-system-x86_64", "-no-reboot", "-m", "256"]);
    qemu.args(["-machine", "graphics=off", "-display", "none", "-monitor", "none", "-serial", "stdio"]);
    qemu.args(["-boot", "order=n,reboot-timeout=1000", "-device", "virtio-net-pci,netdev=net"]);
    qemu.args(["-netdev", &network]);
    let output = qemu.env("LD_LIBRARY_PATH", library(&scratch)).stdin(Stdio::null()).output().unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(printed.contains("Linux version "), "{printed}");
}
