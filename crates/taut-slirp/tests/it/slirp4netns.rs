//! Debian's slirp4netns and vde_plug, unmodified, with this library in place of libslirp: what a command in
//! the guest's namespace sees.
//!
//! ```text
//!   guest's namespace ── tap0 ─┬─ slirp4netns ──────────── this library ── the host's namespace ── servers
//!                              └─ vde_plug, libvdeslirp ──┘
//! ```

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use taut_testbed::{Kernel, Meter, Noise, PATIENCE, Scratch, eventually, live};

use crate::symbols::library;

const BYTES: usize = 16 << 20;
const DEBIANS: &str = "/usr/lib/x86_64-linux-gnu";
/// On a busy machine, Debian's library once opened a connection to a port where nothing listened.
const DEBIANS_ATTEMPTS: u32 = 10;

struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

/// A host's namespace, and a guest's that a program serves with the library of this folder.
struct World {
    _slirp: Ended,
    _holder: Ended,
    host: Kernel,
    guest: Kernel,
}

/// The two namespaces, and a process in the guest's.
fn namespaces() -> (Kernel, Kernel, Ended) {
    let (host, guest) = (Kernel::new().unwrap(), Kernel::new().unwrap());
    let holder = guest.namespace.spawn(Command::new("sleep").arg("1000")).unwrap();
    (host, guest, Ended(holder))
}

impl World {
    fn new(folder: &Path, settings: Option<&Path>) -> Self {
        let (host, guest, holder) = namespaces();
        let mut slirp = Command::new("slirp4netns");
        slirp.args(["--configure", "--mtu=1500", &holder.0.id().to_string(), "tap0"]);
        slirp.env("LD_LIBRARY_PATH", folder).stdout(Stdio::null()).stderr(Stdio::null());
        if let Some(settings) = settings {
            slirp.env("TAUT_SLIRP_CONFIG", settings);
        }
        let slirp = Ended(host.namespace.spawn(&mut slirp).unwrap());
        eventually("the guest has its address", || {
            guest.run("ip -4 address show dev tap0").is_ok_and(|text| text.contains("10.0.2.100"))
        });
        Self { _slirp: slirp, _holder: holder, host, guest }
    }

    /// By vde_plug, whose interface moves to the guest.
    fn by_vde_plug(folder: &Path) -> Self {
        let (host, guest, holder) = namespaces();
        let mut plug = Command::new("vde_plug");
        plug.args(["tap://tap0", "slirp://"]).env("LD_LIBRARY_PATH", folder);
        plug.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let plug = Ended(host.namespace.spawn(&mut plug).unwrap());
        let (maps, library) = (format!("/proc/{}/maps", plug.0.id()), folder.join("libslirp.so.0"));
        eventually("vde_plug has loaded the library", || {
            std::fs::read_to_string(&maps).unwrap().contains(library.to_str().unwrap())
                && host.run("ip link show dev tap0").is_ok()
        });
        host.run(&format!("ip link set dev tap0 netns {}", holder.0.id())).unwrap();
        for line in
            ["link set dev tap0 up", "address add 10.0.2.15/24 dev tap0", "route add default via 10.0.2.2"]
        {
            guest.run(&format!("ip {line}")).unwrap();
        }
        Self { _slirp: plug, _holder: holder, host, guest }
    }

    fn listen(&self) -> TcpListener {
        self.host.enter(|| TcpListener::bind("127.0.0.1:0")).unwrap().unwrap()
    }

    fn connect(&self, port: u16) -> std::io::Result<std::net::TcpStream> {
        let stream = self.guest.enter(|| std::net::TcpStream::connect(("10.0.2.2", port))).unwrap()?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(stream)
    }
}

fn hash(stream: &std::net::TcpStream) -> [u8; 32] {
    Meter::of(stream).unwrap().finish()
}

fn sum(bytes: &[u8]) -> [u8; 32] {
    let mut meter = Meter::default();
    meter.update(bytes);
    meter.finish()
}

/// A client's view of a good server, of ends, of refusals: of the first of so many attempts that is refused.
fn sees(world: &World, attempts: u32) -> Vec<String> {
    let mut seen = Vec::new();
    let (up, down) = (Noise::new(1).bytes(BYTES).to_vec(), Noise::new(2).bytes(BYTES).to_vec());
    let listener = world.listen();
    let port = listener.local_addr().unwrap().port();
    let (mut guest, (host, _)) = (world.connect(port).unwrap(), listener.accept().unwrap());
    let expected = (sum(&up), sum(&down));
    let sending = std::thread::spawn(move || {
        guest.write_all(&up).unwrap();
        guest.shutdown(Shutdown::Write).unwrap();
        guest
    });
    assert_eq!(hash(&host), expected.0);
    let guest = sending.join().unwrap();
    // After the guest's end, the host still sends.
    let sending = std::thread::spawn({
        let mut host = host.try_clone().unwrap();
        move || {
            host.write_all(&down).unwrap();
            host.shutdown(Shutdown::Write).unwrap();
        }
    });
    assert_eq!(hash(&guest), expected.1);
    sending.join().unwrap();
    seen.push("bytes both ways, one half after the other".to_owned());
    drop((guest, host));
    // A reset of the host's.
    let (mut guest, (host, _)) = (world.connect(port).unwrap(), listener.accept().unwrap());
    socket2::SockRef::from(&host).set_linger(Some(Duration::ZERO)).unwrap();
    drop(host);
    seen.push(format!("reset: {:?}", guest.read(&mut [0]).unwrap_err().kind()));
    drop(listener);
    let refused = (0..attempts).find_map(|_| world.connect(port).err());
    seen.push(format!("refused: {:?}", refused.unwrap().kind()));
    let ping = world.guest.run("ping -c 1 -W 5 10.0.2.2").is_ok();
    seen.push(format!("ping: {ping}"));
    seen
}

#[test]
fn slirp_02_debians_slirp4netns_with_this_library_and_with_its_own() {
    if !live::ready(&["slirp4netns", "ip", "ping"]) {
        return;
    }
    let scratch = Scratch::new("slirp4netns");
    let all = [(library(&scratch), 1), (PathBuf::from(DEBIANS), DEBIANS_ATTEMPTS)]
        .map(|(folder, attempts)| sees(&World::new(&folder, None), attempts));
    assert_eq!(all[0], all[1]);
    println!("{:#?}", all[0]);
}

/// libvdeslirp's instance is on a thread of its own.
#[test]
fn slirp_40_debians_vde_plug_with_this_library_and_with_its_own() {
    if !live::ready(&["vde_plug", "ip", "ping"]) {
        return;
    }
    if !Path::new(DEBIANS).join("vdeplug/libvdeplug_slirp.so").exists() {
        return live::skip("not installed: libvdeplug-slirp (run make setup)");
    }
    let scratch = Scratch::new("vde_plug");
    let all =
        [(library(&scratch), 1), (PathBuf::from(DEBIANS), DEBIANS_ATTEMPTS)].map(|(folder, attempts)| {
            println!("by the library of {}", folder.display());
            sees(&World::by_vde_plug(&folder), attempts)
        });
    assert_eq!(all[0], all[1]);
    println!("{:#?}", all[0]);
}

/// Unsent bytes of the sockets in this namespace, as `ss` has them.
fn unsent(text: &str) -> u64 {
    let of = |word: &str| word.strip_prefix("notsent:")?.parse().ok();
    text.split_whitespace().filter_map(of).max().unwrap_or(0)
}

#[test]
fn slirp_27_a_slow_line_has_small_rooms_before_it() {
    const RATE: u64 = 20_000_000;
    if !live::ready(&["slirp4netns", "ip", "ss", "tc"]) {
        return;
    }
    let scratch = Scratch::new("slirp4netns-slow");
    let world = World::new(&library(&scratch), None);
    world.host.run("ip link set lo mtu 1500").unwrap();
    world.host.limit_rate("lo", RATE, 16_000, 250_000).unwrap();
    let listener = world.listen();
    let port = listener.local_addr().unwrap().port();
    let (mut guest, (mut host, _)) = (world.connect(port).unwrap(), listener.accept().unwrap());
    let sending = std::thread::spawn(move || {
        // It ends when the other side is dropped.
        while guest.write_all(&[7; 16_384]).is_ok() {}
    });
    let (mut arrived, mut samples, mut part) = (0, Vec::new(), vec![0; 65_536]);
    while arrived < 6 << 20 {
        arrived += host.read(&mut part).unwrap();
        if arrived > 1 << 20 {
            // The server's socket sends nothing: the other one is the library's.
            samples.push(unsent(&world.host.run("ss -Htin state established").unwrap()));
        }
    }
    drop(host);
    sending.join().unwrap();
    samples.sort_unstable();
    // 4 ms of the rate are 10,000 bytes, and a piece as long may lie above.
    let median = samples[samples.len() / 2];
    assert!(median <= 40_000, "{samples:?}");
}

/// RFC 1035 §4.1: the question, and one address, 192.0.2 and this.
fn answer(question: &[u8], last: u8) -> Vec<u8> {
    let end = 12 + question[12..].iter().position(|byte| *byte == 0).unwrap() + 5;
    let mut answer = question[..end].to_vec();
    (answer[2], answer[3]) = (answer[2] | 0x80, 0x80);
    answer[6..12].copy_from_slice(&[0, 1, 0, 0, 0, 0]);
    answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 192, 0, 2, last]);
    answer
}

#[test]
fn slirp_08_names_are_the_name_servers() {
    if !live::ready(&["slirp4netns", "ip", "dig"]) {
        return;
    }
    let scratch = Scratch::new("slirp4netns-names");
    let settings = scratch.join("settings");
    let log = scratch.join("log");
    // The first server is closed; the rule is for another name.
    let text = format!(
        "name-server 127.0.0.1:5301\nname-server 127.0.0.1:5302\nrule deny secret.example\nlog {}\n",
        log.display()
    );
    std::fs::write(&settings, text).unwrap();
    let world = World::new(&library(&scratch), Some(&settings));
    let server = world.host.enter(|| std::net::UdpSocket::bind("127.0.0.1:5302")).unwrap().unwrap();
    std::thread::spawn(move || {
        let mut message = [0; 512];
        while let Ok((len, from)) = server.recv_from(&mut message) {
            _ = server.send_to(&answer(&message[..len], 7), from);
        }
    });
    let listener = world.host.enter(|| TcpListener::bind("127.0.0.1:5302")).unwrap().unwrap();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let mut len = [0; 2];
            stream.read_exact(&mut len).unwrap();
            let mut question = vec![0; u16::from_be_bytes(len).into()];
            stream.read_exact(&mut question).unwrap();
            let answer = answer(&question, 8);
            // Its length, and the rest in pieces.
            stream.write_all(&(answer.len() as u16).to_be_bytes()).unwrap();
            answer.chunks(5).for_each(|piece| stream.write_all(piece).unwrap());
        }
    });
    let dig =
        |name: &str| world.guest.run(&format!("dig +short +time=5 +tries=1 @10.0.2.3 {name} A")).unwrap();
    assert_eq!(dig("files.example").trim(), "192.0.2.7");
    // libslirp has no name of its own; taut's gateway has.
    assert_eq!(dig("host.home.arpa").lines().collect::<Vec<_>>(), ["10.0.2.2", "10.0.2.3"]);
    assert_eq!(dig("secret.example").trim(), "");
    // On a connection, several one after the other.
    let ask = "dig +tcp +keepopen +short +time=5 +tries=1 @10.0.2.3";
    let names = "files.example A secret.example A host.home.arpa A files.example A";
    let told = world.guest.run(&format!("{ask} {names}")).unwrap();
    assert_eq!(told.lines().collect::<Vec<_>>(), ["192.0.2.8", "10.0.2.2", "10.0.2.3", "192.0.2.8"]);
    assert!(std::fs::read_to_string(&log).unwrap().contains("secret.example"));
}

/// A name server at this port of the host's loopback: it answers with this code of RFC 1035 §4.1.1, or with
/// the address 192.0.2.7.
fn serve_names(world: &World, port: u16, code: u8) {
    let server = world.host.enter(|| std::net::UdpSocket::bind(("127.0.0.1", port))).unwrap().unwrap();
    std::thread::spawn(move || {
        let mut message = [0; 512];
        while let Ok((len, from)) = server.recv_from(&mut message) {
            let mut answer = answer(&message[..len], 7);
            if code > 0 {
                answer.truncate(answer.len() - 16);
                (answer[3], answer[7]) = (0x80 | code, 0);
            }
            _ = server.send_to(&answer, from);
        }
    });
}

#[test]
fn slirp_30_a_rule_that_allows_a_name_means_that_name() {
    if !live::ready(&["slirp4netns", "ip", "dig"]) {
        return;
    }
    let scratch = Scratch::new("slirp4netns-first-bytes");
    let (settings, log) = (scratch.join("settings"), scratch.join("log"));
    let text = format!(
        "name-server 127.0.0.1:5301\nname-server 127.0.0.1:5302\nrule allow files.example\nrule deny any\nlog {}\n",
        log.display()
    );
    std::fs::write(&settings, text).unwrap();
    let world = World::new(&library(&scratch), Some(&settings));
    // The first server answers SERVFAIL.
    serve_names(&world, 5_301, 2);
    serve_names(&world, 5_302, 0);
    world.host.run("ip address add 192.0.2.7/32 dev lo").unwrap();
    let listen = |port| world.host.enter(|| TcpListener::bind(("192.0.2.7", port))).unwrap().unwrap();
    let (strict, other) = (listen(80), listen(8_080));
    let connect = |port: u16| {
        let stream = world.guest.enter(|| std::net::TcpStream::connect(("192.0.2.7", port))).unwrap()?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok::<_, std::io::Error>(stream)
    };
    assert!(connect(80).is_err(), "no name has the address yet");
    let told = world.guest.run("dig +short +time=5 +tries=1 @10.0.2.3 files.example A").unwrap();
    assert_eq!(told.trim(), "192.0.2.7");
    let pair = |listener: &TcpListener| {
        let guest = connect(listener.local_addr().unwrap().port()).unwrap();
        let (host, _) = listener.accept().unwrap();
        host.set_read_timeout(Some(PATIENCE)).unwrap();
        (guest, host)
    };
    // Its head in pieces, a body that is longer than any buffer, and the answer.
    let (mut guest, mut host) = pair(&strict);
    let (head, body) =
        (b"POST / HTTP/1.1\r\nHost: files.example\r\n\r\n", Noise::new(1).bytes(1 << 20).to_vec());
    let expected = sum(&[&head[..], &body].concat());
    let sending = std::thread::spawn(move || {
        head.chunks(7).for_each(|piece| guest.write_all(piece).unwrap());
        guest.write_all(&body).unwrap();
        guest.shutdown(Shutdown::Write).unwrap();
        guest
    });
    assert_eq!(hash(&host), expected);
    host.write_all(b"answer").unwrap();
    drop(host);
    let mut got = Vec::new();
    sending.join().unwrap().read_to_end(&mut got).unwrap();
    assert_eq!(got, b"answer");
    // Another name, no name, half of one, and a server that speaks first: none of their bytes passes.
    for (said, ends) in [
        (&b"GET / HTTP/1.1\r\nHost: secret.example\r\n\r\n"[..], false),
        (b"SSH-2.0-x\r\n", false),
        (b"GET / HT", true),
    ] {
        let (mut guest, mut host) = pair(&strict);
        guest.write_all(said).unwrap();
        if ends {
            guest.shutdown(Shutdown::Write).unwrap();
        }
        let kinds = [guest.read(&mut [0]), host.read(&mut [0])].map(|end| end.map_err(|error| error.kind()));
        assert_eq!(kinds, [Err(std::io::ErrorKind::ConnectionReset); 2], "{said:?}");
    }
    let (mut guest, mut host) = pair(&strict);
    host.write_all(b"220 hello\r\n").unwrap();
    assert_eq!(guest.read(&mut [0]).unwrap_err().kind(), std::io::ErrorKind::ConnectionReset);
    // At other ports a server may.
    let (mut guest, mut host) = pair(&other);
    host.write_all(b"220 hello\r\n").unwrap();
    let mut got = [0; 11];
    guest.read_exact(&mut got).unwrap();
    guest.write_all(b"HELO\r\n").unwrap();
    host.read_exact(&mut got[..6]).unwrap();
    assert_eq!(&got, b"HELO\r\nllo\r\n");
    let log = std::fs::read_to_string(&log).unwrap();
    assert!(log.contains("it is for secret.example") && log.contains("its server speaks first"), "{log}");
}
