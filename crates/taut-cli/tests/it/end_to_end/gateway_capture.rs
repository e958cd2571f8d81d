//! `taut gateway --capture`, and `-p` of pasta and passt, read by tshark: GW-277 to 279 of
//! `docs/spec/gateway.md`.

use std::io::Read as _;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use rustix::time::{ClockId, clock_gettime};
use taut::blocking::UdpSocket;
use taut_testbed::{Scratch, eventually};

use super::drop_in::hello;
use super::gateway_machines::machine;
use super::gateway_operations::{Gateway, SERVER, lab};
use super::support::{Lab, taut};

/// Bytes each way.
const BYTES: usize = 300_000;

/// Sends the bytes, and compares those that come back.
const TALK: &str = "import socket,sys,threading\n\
    data=bytes(i*31%251 for i in range(300000)); s=socket.create_connection((sys.argv[1],int(sys.argv[2])),20)\n\
    t=threading.Thread(target=lambda: s.sendall(data)); t.start(); back=b''\n\
    while len(back)<len(data):\n\
    \x20more=s.recv(1<<20)\n\
    \x20if not more: break\n\
    \x20back+=more\n\
    t.join(); print('same' if back==data else len(back))\n";

/// A server that sends back what comes.
fn echo(lab: &Lab) -> u16 {
    let listener = lab.kernel.enter(|| TcpListener::bind((SERVER, 0))).unwrap().unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            std::thread::spawn(move || std::io::copy(&mut &stream, &mut &stream));
        }
    });
    port
}

/// The output of tshark, which reads a capture to its end.
fn tshark(file: &Path, args: &[&str]) -> String {
    let mut tshark = Command::new("tshark");
    let output = tshark.arg("-nr").arg(file).args(args).stdin(Stdio::null()).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{args:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

/// A field of each packet that `filter` selects.
fn fields(file: &Path, filter: &str, field: &str) -> Vec<String> {
    let lines = tshark(file, &["-Y", filter, "-T", "fields", "-e", field]);
    lines.lines().map(str::to_owned).collect()
}

/// The bytes of the first connection, from its client and to it.
fn bytes(file: &Path) -> [Vec<u8>; 2] {
    let (text, mut ways) = (tshark(file, &["-q", "-z", "follow,tcp,raw,0"]), [Vec::new(), Vec::new()]);
    for line in text.lines() {
        let digits = line.trim_start_matches('\t');
        if !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            let byte = |at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap();
            ways[usize::from(line.starts_with('\t'))].extend((0..digits.len()).step_by(2).map(byte));
        }
    }
    ways
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

fn now_s() -> f64 {
    clock_gettime(ClockId::Realtime).tv_sec as f64
}

#[test]
fn gw_277_a_capture_has_each_byte_of_both_directions() {
    let Some(lab) = lab("capture-run", &["python3", "tshark"]) else { return };
    let (port, file) = (echo(&lab).to_string(), lab.dir.join("guest.pcapng"));
    let path = file.to_str().unwrap();
    let data: Vec<u8> = (0..BYTES).map(|at| (at * 31 % 251) as u8).collect();
    for options in [
        &["gateway", "--mtu", "1500", "--capture", path, "--run"][..],
        &["gateway", "--mtu", "1500", "--capture", path, "--no-sandbox", "--run"],
        &["pasta", "-m", "1500", "-p", path],
        &["pasta", "-m1500", &format!("--pcap={path}")],
    ] {
        let (was_there, begin) = (file.exists(), now_s());
        let args = [options, &["--", "python3", "-c", TALK, SERVER, &port]].concat();
        let output = lab.output(taut(&args).stdin(Stdio::null()));
        assert!(said(&output).starts_with("same\n"), "{options:?}: {}", said(&output));
        // It is whole when the gateway has ended.
        let [up, down] = bytes(&file);
        assert!(up == data && down == data, "{options:?}: {} up, {} down", up.len(), down.len());
        // IP packets, of the guest and for it; those that the guest or the gateway have not cut.
        let kinds = fields(&file, "tcp", "frame.protocols");
        assert!(kinds.iter().all(|kind| kind.starts_with("raw:ip:tcp")), "{options:?}: {:?}", kinds.first());
        for from in ["10.0.2.15", SERVER] {
            let long = fields(&file, &format!("ip.src == {from} && frame.len > 1500"), "frame.len");
            assert!(!long.is_empty(), "{options:?}: {from}");
        }
        let times: Vec<f64> =
            fields(&file, "frame", "frame.time_epoch").iter().map(|time| time.parse().unwrap()).collect();
        assert!(times.iter().all(|time| (begin..now_s() + 1.0).contains(time)), "{begin} {times:?}");
        // A new file is its user's alone; one that is there is overwritten, and keeps its mode.
        let mode = if was_there { 0o640 } else { 0o600 };
        assert_eq!(file.metadata().unwrap().mode() & 0o777, mode, "{options:?}");
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o640)).unwrap();
    }
}

#[test]
fn gw_277_a_capture_ends_with_the_gateway_and_is_no_guests() {
    let Some(lab) = lab("capture-end", &["ping", "tshark", "sleep"]) else { return };
    let file = lab.dir.join("guest.pcapng");
    let path = file.to_str().unwrap();
    // The kernel as the guest, which pings the gateway.
    lab.kernel.run("ip address add 10.0.2.15/32 dev lo").unwrap();
    let mut gateway = lab.taut(&["gateway", "--tun", "cap0", "--capture", path], "the gateway is at");
    lab.kernel.run("ping -c 3 -i 0.2 -W 20 -I 10.0.2.15 10.0.2.2").unwrap();
    gateway.signal("TERM");
    assert_eq!(gateway.wait(), Some(0));
    for (kind, from) in [(8, "10.0.2.15"), (0, "10.0.2.2")] {
        let numbers = fields(&file, &format!("icmp.type == {kind} && ip.src == {from}"), "icmp.seq");
        assert_eq!(numbers, ["1", "2", "3"], "{kind}");
    }
    // The guest's processes, isolated or not, do not have its descriptor.
    for options in [&["--isolate", "-t", "7090:80"][..], &["-t", "7090:80"]] {
        let args = [&["--capture", path], options].concat();
        let mut gateway = Gateway::run(&lab, "log", &args, "echo ready >&2; exec sleep 1000");
        gateway.says("ready");
        let own = [gateway.running.id(), gateway.running.worker()];
        let holds = |process: u32| {
            let all = std::fs::read_dir(format!("/proc/{process}/fd")).into_iter().flatten().flatten();
            all.into_iter().any(|open| std::fs::read_link(open.path()).is_ok_and(|to| to == file))
        };
        eventually("the gateway's two processes have it, and no other", || {
            let all = std::fs::read_dir("/proc").unwrap().flatten();
            let all = all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
            let holders: Vec<u32> = all.filter(|process| holds(*process)).collect();
            holders.contains(&own[1]) && holders.iter().all(|one| own.contains(one))
        });
        gateway.running.signal("TERM");
        gateway.running.wait();
    }
    for (place, why) in [("/nonexistent/x", "--capture /nonexistent/x"), ("/dev/full", "No space left")] {
        let args = ["gateway", "--run", "--capture", place, "--", "echo", "began"];
        let output = lab.output(taut(&args).stdin(Stdio::null()));
        let said = said(&output);
        assert!(output.status.code() == Some(1) && said.contains(why) && !said.contains("began"), "{said}");
    }
}

#[test]
fn gw_278_a_capture_of_machines_has_their_frames() {
    let Some(lab) = lab("capture-machines", &["tshark"]) else { return };
    let (place, folder) = (hello(&lab, SERVER), Scratch::new("capture-machines"));
    let (socket, file) = (folder.join("net"), folder.join("machines.pcapng"));
    let [net, path] = [&socket, &file].map(|path| path.to_str().unwrap());
    for (options, count) in [
        (&["gateway", "--qemu", net, "--capture", path][..], 2),
        (&["passt", "-f", "--no-map-gw", "-s", net, "-p", path], 2),
        (&["passt", "-f", "--no-map-gw", "-1", "-s", net, "-p", path], 1),
    ] {
        let mut gateway = Gateway::by(&lab, "log", &mut taut(options));
        gateway.says("waiting for virtual machines at");
        let first = machine(&socket, "52:54:00:12:34:57", "10.0.2.15");
        let mut text = String::new();
        taut::blocking::TcpStream::connect(&first, place).unwrap().read_to_string(&mut text).unwrap();
        assert_eq!(text, "hello");
        let second = (count == 2).then(|| machine(&socket, "52:54:00:12:34:58", "10.0.2.16"));
        if let Some(second) = &second {
            let to: SocketAddr = "10.0.2.16:7777".parse().unwrap();
            let (from, at) = (UdpSocket::bind(&first, "0.0.0.0:0"), UdpSocket::bind(second, to));
            let (from, at) = (from.unwrap(), at.unwrap());
            for number in 0..5_u8 {
                from.send_to(&[number; 100], to).unwrap();
                assert_eq!(at.recv_from(&mut [0; 200]).unwrap().0, 100);
            }
        }
        drop((first, second));
        gateway.running.signal("TERM");
        assert_eq!(gateway.running.wait(), Some(0), "{options:?}: {}", gateway.said());
        // Frames of Ethernet, also those of the link layer: leases and ARP.
        let kinds = fields(&file, "frame", "frame.protocols");
        assert!(kinds.iter().all(|kind| kind.starts_with("eth:ethertype:")), "{options:?}: {kinds:?}");
        for kind in ["1", "2", "3", "5"] {
            let found = fields(&file, &format!("dhcp.option.dhcp == {kind}"), "frame.number");
            assert!(found.len() >= count, "{options:?}: {kind}: {found:?}");
        }
        for filter in ["arp.opcode == 1", "arp.opcode == 2"] {
            assert!(!fields(&file, filter, "frame.number").is_empty(), "{options:?}: {filter}");
        }
        assert_eq!(bytes(&file), [Vec::new(), b"hello".to_vec()], "{options:?}");
        // From one machine to the other once.
        let passed = fields(&file, "udp.dstport == 7777 && data.len == 100", "frame.number");
        assert_eq!(passed.len(), if count == 2 { 5 } else { 0 }, "{options:?}");
    }
}

#[test]
fn gw_279_a_capture_that_cannot_be_continued_ends_and_the_gateway_serves() {
    let Some(lab) = lab("capture-full", &["python3", "tshark"]) else { return };
    let (port, file) = (echo(&lab).to_string(), lab.dir.join("guest.pcapng"));
    for options in [&[][..], &["--no-sandbox"]] {
        let args =
            [&["gateway", "--capture", file.to_str().unwrap()], options, &["--run", "--", "python3", "-c"]];
        let own = taut(&[&args.concat()[..], &[TALK, SERVER, &port]].concat());
        // Files of 100 blocks of 512 bytes (POSIX.1, ulimit).
        let mut shell = Command::new("sh");
        shell.args(["-c", "ulimit -f 100; exec \"$@\"", "sh"]).arg(own.get_program()).args(own.get_args());
        let output = lab.output(shell.env("XDG_CONFIG_HOME", "/nonexistent").stdin(Stdio::null()));
        let said = said(&output);
        assert!(said.starts_with("same\n") && output.status.success(), "{options:?}: {said}");
        assert_eq!(said.matches("has ended: File too large").count(), 1, "{options:?}: {said}");
        // Whole packets, up to the limit.
        let frames = fields(&file, "tcp", "frame.number").len();
        let len = file.metadata().unwrap().len();
        assert!(frames > 0 && len <= 51_200, "{options:?}: {frames} frames, {len} bytes");
    }
    // A pipe whose reader has gone.
    let fifo = lab.dir.join("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let place = fifo.clone();
    let reader = std::thread::spawn(move || {
        let mut first = [0; 4];
        std::fs::File::open(place).unwrap().read_exact(&mut first).unwrap();
        first
    });
    let args =
        ["gateway", "--run", "--capture", fifo.to_str().unwrap(), "--", "python3", "-c", TALK, SERVER, &port];
    let output = lab.output(taut(&args).stdin(Stdio::null()));
    assert!(said(&output).starts_with("same\n"), "{}", said(&output));
    assert_eq!(said(&output).matches("has ended: Broken pipe").count(), 1, "{}", said(&output));
    // draft-ietf-opsawg-pcapng: the type of a section header.
    assert_eq!(reader.join().unwrap(), [0x0a, 0x0d, 0x0d, 0x0a]);
}
