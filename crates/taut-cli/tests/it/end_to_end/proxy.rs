//! `taut proxy` with curl: PX-14 to 17 and 19 of `docs/spec/proxy.md`, and its three worked cases over
//! emulated links.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use taut_device::TunOptions;
use taut_link::QdiscSpec;
use taut_testbed::{Emulator, Kernel, Port, Subnet, Watcher, Ways, eventually, now};

use super::support::{Lab, drain, taut};

const SERVER: &str = "198.51.100.1";

fn lab(name: &str) -> Option<Lab> {
    let lab = Lab::new(name, &["ip", "curl"])?;
    lab.kernel.run(&format!("ip address add {SERVER}/32 dev lo")).unwrap();
    Some(lab)
}

/// A server that takes what is uploaded, and answers with its length and its SHA-256; the test gets each
/// client's address.
fn server(kernel: &Kernel) -> (u16, Receiver<SocketAddr>) {
    let listener = kernel.enter(|| TcpListener::bind((SERVER, 0))).unwrap().unwrap();
    let port = listener.local_addr().unwrap().port();
    let (seen, clients) = channel();
    std::thread::spawn(move || {
        while let Ok((stream, from)) = listener.accept() {
            _ = seen.send(from);
            std::thread::spawn(move || {
                let mut reader = BufReader::new(stream);
                let (mut len, mut waits) = (0, false);
                loop {
                    let mut line = String::new();
                    if reader.read_line(&mut line).unwrap_or(0) == 0 {
                        return;
                    }
                    let line = line.trim().to_ascii_lowercase();
                    if let Some(value) = line.strip_prefix("content-length: ") {
                        len = value.parse().unwrap();
                    }
                    waits |= line == "expect: 100-continue";
                    if line.is_empty() {
                        break;
                    }
                }
                if waits {
                    _ = reader.get_mut().write_all(b"HTTP/1.1 100 Continue\r\n\r\n");
                }
                let (bytes, hash) = drain((&mut reader).take(len));
                let body = format!("{bytes} {hash}");
                let head =
                    format!("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {}\r\n\r\n", body.len());
                _ = reader.get_mut().write_all((head + &body).as_bytes());
            });
        }
    });
    (port, clients)
}

fn curl(lab: &Lab, options: &[&str], url: &str) -> (String, Option<i32>) {
    let mut command = Command::new("curl");
    command.args(["-sS", "--max-time", "60", "--noproxy", ""]).args(options).arg(url);
    let output = lab.output(command.stdin(Stdio::null()));
    (String::from_utf8_lossy(&output.stdout).into_owned(), output.status.code())
}

#[test]
fn px_14_curl_by_socks_and_http() {
    let Some(lab) = lab("proxy-curl") else { return };
    let (port, clients) = server(&lab.kernel);
    let hash = lab.file("file", 8 << 20);
    let url = format!("http://{SERVER}:{port}/");
    let args = ["proxy", "--congestion", "bbr", "--pacing-rate", "800mbit", "--control", "none", "--json"];
    let proxy = lab.taut(&args, "a proxy at 127.0.0.1:1080");
    let at = "127.0.0.1:1080";
    for options in [&["--socks5", at][..], &["--socks4a", at], &["--proxytunnel", "-x", at], &["-x", at]] {
        let (said, code) = curl(&lab, &[options, &["-T", "file"]].concat(), &url);
        assert_eq!((said, code), (format!("{} {hash}", 8 << 20), Some(0)), "{options:?}");
        assert_eq!(clients.recv().unwrap().ip().to_string(), "10.9.0.2");
    }
    // Denied by a rule: a reply, and a status.
    for (options, refused) in [(&["--socks5", at][..], 97), (&["--fail", "-x", at], 22)] {
        let (_, code) = curl(&lab, options, "http://127.0.0.1:80/");
        assert_eq!(code, Some(refused), "{options:?}");
    }
    proxy.interrupt();
    let output = proxy.output();
    let counters: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    for (name, count) in [("connections", 6), ("reached", 4), ("finished", 4), ("denied", 2)] {
        assert_eq!(counters[name], count, "{counters}");
    }
    assert!(counters["bytes_up"].as_u64().unwrap() > 32 << 20, "{counters}");
}

#[test]
fn px_15_over_the_link_and_out_by_the_host() {
    let Some(lab) = lab("proxy-link") else { return };
    let (port, clients) = server(&lab.kernel);
    let url = format!("http://{SERVER}:{port}/");
    let hash = lab.file("file", 8 << 20);
    let proxy = lab.taut(&["proxy", "--from-link", "1080", "--control", "none"], "a proxy at 10.9.0.2:1080");
    let (said, code) = curl(&lab, &["--proxytunnel", "-x", "10.9.0.2:1080", "-T", "file"], &url);
    assert_eq!((said, code), (format!("{} {hash}", 8 << 20), Some(0)));
    // The host's own socket.
    assert_eq!(clients.recv().unwrap().ip().to_string(), SERVER);
    proxy.interrupt();
    assert_eq!(proxy.output().status.code(), Some(0));
}

#[test]
fn px_19_no_rights_are_left_after_the_start() {
    let Some(lab) = lab("proxy-rights") else { return };
    let (port, _clients) = server(&lab.kernel);
    let url = format!("http://{SERVER}:{port}/");
    let hash = lab.file("file", 1 << 20);
    // The field of each thread, after a client was served.
    let status = |options: &[&str], at: &str, field: &str| -> Vec<u64> {
        let args = [&["proxy", "--shards", "2", "--record", "inputs"][..], options].concat();
        let proxy = lab.taut(&args, &format!("a proxy at {at}"));
        let (said, code) = curl(&lab, &["--socks5", at, "-T", "file"], &url);
        assert_eq!((said, code), (format!("{} {hash}", 1 << 20), Some(0)), "{options:?}");
        let tasks = std::fs::read_dir(format!("/proc/{}/task", proxy.worker())).unwrap();
        let of = |task: std::io::Result<std::fs::DirEntry>| {
            let text = std::fs::read_to_string(task.unwrap().path().join("status")).unwrap();
            let value = text.lines().find_map(|line| line.strip_prefix(field)).unwrap();
            u64::from_str_radix(value.trim_start_matches(':').trim(), 16).unwrap()
        };
        let all = tasks.map(of).collect();
        proxy.interrupt();
        assert_eq!(proxy.output().status.code(), Some(0));
        // Its files are where they were asked for.
        assert!(std::fs::metadata(lab.dir.join("inputs")).unwrap().len() > 1 << 20);
        std::fs::remove_file(lab.dir.join("inputs")).unwrap();
        all
    };
    let usual = "127.0.0.1:1080";
    let control = ["--control", "socket"];
    for field in ["CapEff", "CapPrm", "CapInh"] {
        let all = status(&control, usual, field);
        // The stack's two, and the runtime's.
        assert!(all.len() > 3 && all.iter().all(|set| *set == 0), "{field}: {all:x?}");
    }
    assert!(status(&control, usual, "Seccomp").iter().all(|mode| *mode == 2));
    assert!(status(&control, usual, "NoNewPrivs").iter().all(|is| *is == 1));
    // Only CAP_NET_BIND_SERVICE, number 10, is left: the proxy needs it to open a port below 1024.
    let low = status(&["--control", "none", "--listen", "127.0.0.1:81"], "127.0.0.1:81", "CapEff");
    assert!(low.iter().all(|set| *set == 1 << 10), "{low:x?}");
    // That the test can fail: with all rights.
    let all = status(&["--control", "none", "--no-sandbox"], usual, "CapEff");
    assert!(all.iter().all(|set| *set != 0), "{all:x?}");
}

/// That no thread of a process has a right left: the fields of its status.
fn has_given_up(process: u32) {
    let mut count = 0;
    for task in std::fs::read_dir(format!("/proc/{process}/task")).unwrap() {
        let status = std::fs::read_to_string(task.unwrap().path().join("status")).unwrap();
        for expected in
            ["CapEff:\t0000000000000000", "CapPrm:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2"]
        {
            assert!(status.lines().any(|line| line == expected), "{expected}: {status}");
        }
        count += 1;
    }
    assert!(count > 2, "{count} threads");
}

#[test]
fn px_19_it_serves_without_rights_over_every_kind_of_device() {
    const OWN: [&str; 6] = ["--address", "10.9.0.2/24", "--address", "fd09::2/64", "--control", "none"];
    const READY: &str = "a proxy at 127.0.0.1:1080";
    let Some(lab) = lab("proxy-devices") else { return };
    let hash = lab.file("file", 8 << 20);
    let proxy = |device: &str, more: &[&str]| {
        lab.taut(&[&["proxy", "--device", device], &OWN[..], more].concat(), READY)
    };
    // An Ethernet interface, whose other end is a kernel.
    let far = Kernel::new().unwrap();
    lab.kernel.veth(&far, Subnet(9), 1_500).unwrap();
    lab.kernel.run("ip address flush dev veth0").unwrap();
    far.run(&format!("ip address add {SERVER}/32 dev lo")).unwrap();
    let (port, _clients) = server(&far);
    for (device, shards) in [("packet:veth0", "1"), ("packet:veth0", "2"), ("xdp:veth0", "1")] {
        let proxy = proxy(device, &["--gateway", "10.9.0.1", "--shards", shards]);
        let args = ["--socks5", "127.0.0.1:1080", "-T", "file"];
        let (said, code) = curl(&lab, &args, &format!("http://{SERVER}:{port}/"));
        assert_eq!((said, code), (format!("{} {hash}", 8 << 20), Some(0)), "{device}, {shards}");
        has_given_up(proxy.worker());
        proxy.interrupt();
        assert_eq!(proxy.output().status.code(), Some(0), "{device}");
    }
    let mut two = taut(&[&["proxy", "--device", "xdp:veth0", "--shards", "2"], &OWN[..]].concat());
    let refused = lab.output(&mut two);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(said.contains("one queue; use one shard") && refused.status.code() == Some(1), "{said}");
    // Frames by a socket of Unix, to another stack; either one makes the socket.
    let peer = ["serve", ".", "--port", "8000", "--control", "none", "--address", "10.9.0.1/24"];
    let peer = [&peer[..], &["--address", "fd09::1/64", "--device"]].concat();
    for kind in ["stream", "dgram"] {
        for makes_it in [true, false] {
            let place = format!("{kind}-{makes_it}");
            let (listens, connects) = (format!("{kind}-listen:{place}"), format!("{kind}:{place}"));
            let first = |args: &[&str]| {
                let first = lab.spawn(taut(args).stdin(Stdio::null()).stderr(Stdio::piped()));
                eventually("the socket is there", || lab.dir.join(&place).exists());
                first
            };
            let (proxy, peer) = if makes_it {
                let mut proxy = first(&[&["proxy", "--device", &listens], &OWN[..]].concat());
                let peer = lab.taut(&[&peer[..], &[&connects]].concat(), "serving");
                proxy.wait_for(READY);
                (proxy, peer)
            } else {
                let mut peer = first(&[&peer[..], &[&listens]].concat());
                let proxy = proxy(&connects, &[]);
                peer.wait_for("serving");
                (proxy, peer)
            };
            let args = ["--socks5", "127.0.0.1:1080", "-o", "fetched"];
            assert_eq!(curl(&lab, &args, "http://10.9.0.1:8000/file").1, Some(0), "{place}");
            let [sent, fetched] = ["file", "fetched"].map(|name| std::fs::read(lab.dir.join(name)).unwrap());
            assert!(sent == fetched, "{place}");
            has_given_up(proxy.worker());
            proxy.interrupt();
            assert_eq!(proxy.output().status.code(), Some(0), "{place}");
            drop(peer);
        }
    }
}

#[test]
fn px_16_a_login_by_a_file_and_wrong_arguments() {
    let Some(lab) = lab("proxy-login") else { return };
    let (port, _clients) = server(&lab.kernel);
    let url = format!("http://{SERVER}:{port}/");
    std::fs::write(lab.dir.join("login"), "name:secret\n").unwrap();
    let args = ["proxy", "--listen", "127.0.0.1:3128", "--login", "login", "--control", "none"];
    let _proxy = lab.taut(&args, "a proxy at 127.0.0.1:3128");
    for (login, socks5, http) in
        [("name:secret@", Some(0), Some(0)), ("name:wrong@", Some(97), Some(56)), ("", Some(97), Some(56))]
    {
        let place = format!("{login}127.0.0.1:3128");
        assert_eq!(curl(&lab, &["-x", &format!("socks5://{place}")], &url).1, socks5, "{login}");
        assert_eq!(curl(&lab, &["--proxytunnel", "-x", &format!("http://{place}")], &url).1, http, "{login}");
    }
    std::fs::write(lab.dir.join("bad"), "name\n").unwrap();
    for (args, said) in [
        (&["--login", "bad"][..], "does not begin with NAME:PASSWORD"),
        (&["--login", "missing"], "cannot read missing"),
        (&["--rule", "allow"], "is not a rule"),
        (&["--from-link", "0"], "0 is not in 1..=65535"),
        (&["--from-link", "1080", "--listen", "127.0.0.1:1"], "cannot be used with"),
        (&["--pacing-rate", "fast"], "invalid value 'fast'"),
        (&["--congestion", "vegas"], "unknown congestion control vegas"),
        (
            &["--listen", "192.0.2.99:1", "--tun", "taut5", "--address", "10.99.0.2/24"],
            "cannot listen on 192.0.2.99:1",
        ),
    ] {
        let output = lab.output(&mut taut(&[&["proxy", "--control", "none"], args].concat()));
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(text.contains(said) && !output.status.success(), "{args:?}: {text}");
    }
}

#[test]
fn px_17_the_link_disappears_with_a_reason() {
    let Some(lab) = lab("proxy-gone") else { return };
    let mut proxy = lab.taut(&["proxy", "--control", "none"], "a proxy at");
    lab.kernel.run("ip link delete taut0").unwrap();
    assert_eq!(proxy.wait(), Some(1));
}

/// A line: its rate, its round-trip time, its loss on the way up, and the bytes that wait in front of it.
struct Case {
    name: &'static str,
    rate: &'static str,
    delay_ms: u32,
    loss: &'static str,
    queue: u32,
    options: &'static [&'static str],
}

/// The cases of `docs/spec/proxy.md`.
const CASES: [Case; 3] = [
    Case {
        name: "a satellite",
        rate: "20mbit",
        delay_ms: 300,
        loss: "0.5%",
        queue: 1_500_000,
        options: &["--congestion", "bbr", "--pacing-rate", "20mbit"],
    },
    Case {
        name: "a train",
        rate: "10mbit",
        delay_ms: 40,
        loss: "2%",
        queue: 250_000,
        options: &["--congestion", "bbr", "--notsent-lowat", "16384"],
    },
    Case {
        name: "a transatlantic copy",
        rate: "200mbit",
        delay_ms: 45,
        loss: "0.05%",
        queue: 2_250_000,
        options: &["--congestion", "bbr"],
    },
];

impl Case {
    /// The line between two namespaces; the near one's end is 10.8.0.2.
    fn line(&self, near: &Kernel, far: &Kernel) -> Emulator {
        let options = TunOptions::default();
        let net = Subnet(8);
        let open = |kernel: &Kernel, own: Vec<_>| {
            kernel.enter(|| {
                let tun = taut_device::Tun::open("line0", &options).unwrap();
                own.into_iter().try_for_each(|own| tun.interface().unwrap().add_address(own)).unwrap();
                tun
            })
        };
        let (here, there) = (open(near, net.near()).unwrap(), open(far, net.far()).unwrap());
        far.run("ip route add 10.9.0.0/24 via 10.8.0.2 dev line0").unwrap();
        near.set_sysctl("ip_forward", "1").unwrap();
        let parse = |text: String| text.parse::<QdiscSpec>().unwrap();
        let queue = || parse(format!("tbf rate {} burst 1 | bfifo limit {}", self.rate, self.queue));
        let wire = |loss: &str| parse(format!("netem limit 1000000 delay {}ms{loss}", self.delay_ms));
        let ways = Ways {
            there: vec![queue(), wire(&format!(" loss {}", self.loss))],
            back: vec![queue(), wire("")],
            is_network: true,
            seed: 3,
            ..Ways::default()
        };
        let nobody = || -> Watcher { Arc::new(Mutex::new(())) };
        Emulator::start(Port::Tun(here), Port::Tun(there), ways, [nobody(), nobody()]).unwrap()
    }
}

/// Bytes that a server has taken.
fn sink(far: &Kernel) -> (u16, Arc<Mutex<u64>>) {
    let listener = far.enter(|| TcpListener::bind((SERVER, 0))).unwrap().unwrap();
    let (port, taken) = (listener.local_addr().unwrap().port(), Arc::<Mutex<u64>>::default());
    let count = Arc::clone(&taken);
    std::thread::spawn(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            let count = Arc::clone(&count);
            std::thread::spawn(move || {
                let mut bytes = vec![0; 1 << 16];
                while let Ok(len @ 1..) = stream.read(&mut bytes) {
                    *count.lock().unwrap() += len as u64;
                }
            });
        }
    });
    (port, taken)
}

/// Each upload goes by the kernel with cubic, by the kernel with bbr where it has that, and by the proxy, for
/// twelve seconds of the same line.
#[test]
#[ignore = "two minutes: make proxy-cases"]
fn worked_cases_of_the_documentation() {
    const SPAN: Duration = Duration::from_secs(12);
    for case in CASES {
        let Some(lab) = Lab::new("proxy-case", &["ip", "curl"]) else { return };
        let far = Kernel::new().unwrap();
        far.run(&format!("ip address add {SERVER}/32 dev lo")).unwrap();
        let _line = case.line(&lab.kernel, &far);
        let (port, taken) = sink(&far);
        std::fs::File::create(lab.dir.join("file")).unwrap().set_len(400_000_000).unwrap();
        let url = format!("http://{SERVER}:{port}/");
        let rate = |kernel_control: &str, by_proxy: bool| {
            let route = format!("ip route replace {SERVER} via 10.8.0.1 dev line0 congctl {kernel_control}");
            lab.kernel.run(&route).unwrap();
            let args = [&["proxy", "--control", "none"], case.options].concat();
            let proxy = by_proxy.then(|| lab.taut(&args, "a proxy at"));
            let mut command = Command::new("curl");
            command.args(["-sS", "-o", "/dev/null", "-T", "file", "--noproxy", ""]);
            if by_proxy {
                command.args(["--socks5", "127.0.0.1:1080"]);
            }
            let mut upload = lab.spawn(command.arg(&url).stdin(Stdio::null()).stderr(Stdio::null()));
            let before = *taken.lock().unwrap();
            eventually("the first bytes", || *taken.lock().unwrap() > before);
            let (begun, first) = (now(), *taken.lock().unwrap());
            std::thread::sleep(SPAN);
            let bytes = *taken.lock().unwrap() - first;
            let rate = bytes as f64 * 8.0 / begun.elapsed().as_secs_f64() / 1e6;
            upload.signal("KILL");
            upload.wait();
            drop(proxy);
            // What waits in the line's queues is over.
            std::thread::sleep(Duration::from_secs(2));
            rate
        };
        let cubic = rate("cubic", false);
        let has_bbr = taut_testbed::available_congestion().unwrap().iter().any(|name| name == "bbr");
        let bbr = if has_bbr { format!("{:.1}", rate("bbr", false)) } else { "not there".to_owned() };
        let proxied = rate("cubic", true);
        println!(
            "{}: {} {} ms, {} lost, Mbit/s: the kernel with cubic {cubic:.1}, with bbr {bbr}; taut proxy {} {proxied:.1}",
            case.name,
            case.rate,
            2 * case.delay_ms,
            case.loss,
            case.options.join(" ")
        );
        assert!(proxied > 2.0 * cubic, "{}: {proxied} and {cubic}", case.name);
    }
}
