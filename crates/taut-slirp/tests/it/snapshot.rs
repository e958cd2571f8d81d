//! Debian's QEMU, unmodified, saves and loads a running guest (`savevm`, `loadvm`) whose network is this
//! library.
//!
//! ```text
//!   guest: busybox ── virtio-net ── QEMU, -netdev user ── this library ─┬─ guestfwd: a socket ── a service
//!                                        ▲ savevm, loadvm               └─ this host's loopback ── servers
//! ```

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use taut_testbed::{Guest, Scratch, guest};

use crate::qemu::{PATIENCE, line};
use crate::symbols::library;

/// Runs in the guest. `3` and `4` are its two connections; the request for `/ready` is the third, during
/// which the machine is saved, and loaded again.
const SCRIPT: &str = r#"
ip addr add 10.0.2.15/24 dev eth0
ip route add default via 10.0.2.2
waits() { for second in $(seq 60); do "$@" && return 0; sleep 1; done; return 1; }
mkfifo /tmp/service /tmp/other
nc 10.0.2.100 90 </tmp/service >/tmp/said &
exec 3>/tmp/service
nc 10.0.2.2 $sink </tmp/other >/dev/null &
other=$!
exec 4>/tmp/other
echo one >&3
waits grep -q ONE /tmp/said || echo "no answer of the service"
echo one >&4
wget -q -O /dev/null http://10.0.2.2:$web/ready || echo "ended: a request"
waits eval "! kill -0 $other 2>/dev/null" && echo "ended: a connection"
echo two >&3
waits grep -q TWO /tmp/said
echo "service: $(tr '\n' ' ' </tmp/said)"
echo "new: $(wget -q -O - http://10.0.2.2:$web/again)"
"#;

#[test]
#[ignore = "the part of another test that runs in a guest"]
fn inside_machine() {
    guest::inside::shell(SCRIPT);
}

/// An empty disk of 64 MiB, whose file has room for snapshots: QEMU's docs/interop/qcow2, version 3.
fn disk(path: &Path) {
    const CLUSTER: usize = 1 << 16;
    let mut file = vec![0; 4 * CLUSTER];
    let mut put = |at: usize, bytes: &[u8]| file[at..at + bytes.len()].copy_from_slice(bytes);
    // Magic, version; 2^16 bytes a cluster; size; a table of level 1 with one entry, in cluster 3.
    put(0, &[b'Q', b'F', b'I', 0xfb, 0, 0, 0, 3]);
    put(20, &16_u32.to_be_bytes());
    put(24, &(64_u64 << 20).to_be_bytes());
    put(36, &1_u32.to_be_bytes());
    put(40, &(3 * CLUSTER as u64).to_be_bytes());
    // A table of references in cluster 1, one cluster long; the width of a count, 2^4 bits; the header's
    // length.
    put(48, &(CLUSTER as u64).to_be_bytes());
    put(56, &1_u32.to_be_bytes());
    put(96, &4_u32.to_be_bytes());
    put(100, &104_u32.to_be_bytes());
    // It says that the counts are in cluster 2, where each of the four is used once.
    put(CLUSTER, &(2 * CLUSTER as u64).to_be_bytes());
    put(2 * CLUSTER, &[0, 1, 0, 1, 0, 1, 0, 1]);
    std::fs::write(path, file).unwrap();
}

/// Gives QEMU's monitor a command, and returns what it says.
fn monitor(path: &Path, command: &str) -> String {
    let mut stream = UnixStream::connect(path).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let until_prompt = |stream: &mut UnixStream| {
        let (mut said, mut byte) = (String::new(), [0]);
        while !said.ends_with("(qemu) ") {
            stream.read_exact(&mut byte).unwrap();
            said.push(char::from(byte[0]));
        }
        said
    };
    until_prompt(&mut stream);
    writeln!(stream, "{command}").unwrap();
    until_prompt(&mut stream)
}

/// A web server. The answer to the first request for `/ready` is that the machine is saved, and loaded.
fn serve_web(listener: TcpListener, path: PathBuf) {
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let mut request = [0; 1_000];
            let len = stream.read(&mut request).unwrap_or(0);
            if request[..len].starts_with(b"GET /ready") {
                let said = monitor(&path, "savevm one");
                // The guest runs meanwhile, and so does its clock.
                std::thread::sleep(Duration::from_secs(2));
                println!("{said}{}", monitor(&path, "loadvm one"));
            } else {
                _ = stream
                    .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nagain");
            }
        }
    });
}

#[test]
fn slirp_36_debians_qemu_saves_and_loads_a_guest_with_connections() {
    let Some(guest) = Guest::new(&[]).and_then(Guest::busybox) else { return };
    let scratch = Scratch::new("slirp-snapshot");
    let [image, service, control] = ["disk", "service", "monitor"].map(|name| scratch.join(name));
    disk(&image);
    // The service, as QEMU connects to it: capital letters.
    let listener = UnixListener::bind(&service).unwrap();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            std::thread::spawn(move || {
                let mut bytes = [0; 1_000];
                while let Ok(len @ 1..) = stream.read(&mut bytes) {
                    _ = stream.write_all(&bytes[..len].to_ascii_uppercase());
                }
            });
        }
    });
    let listen = || TcpListener::bind("127.0.0.1:0").unwrap();
    let (web, sink) = (listen(), listen());
    let port = |listener: &TcpListener| listener.local_addr().unwrap().port().to_string();
    let (web_port, sink_port) = (port(&web), port(&sink));
    let kept = std::thread::spawn(move || sink.accept().map(|(stream, _)| stream));
    serve_web(web, control.clone());
    let drive = format!("file={},format=qcow2,if=none,id=disk", image.display());
    let chardev = format!("socket,id=service,path={}", service.display());
    let control = format!("unix:{},server=on,wait=off", control.display());
    let guest = guest
        .user_network_with(",guestfwd=tcp:10.0.2.100:90-chardev:service")
        .environment("LD_LIBRARY_PATH", &library(&scratch))
        .arguments(&["-drive", &drive, "-chardev", &chardev, "-monitor", &control])
        .set("web", &web_port)
        .set("sink", &sink_port);
    let printed = guest.run("snapshot::inside_machine", PATIENCE);
    println!("{printed}");
    drop(kept.join());
    assert_eq!(line(&printed, "service: "), "ONE TWO");
    assert!(printed.contains("ended: a request") && printed.contains("ended: a connection"), "{printed}");
    assert_eq!(line(&printed, "new: "), "again");
}
