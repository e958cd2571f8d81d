//! How others notice that `taut gateway` serves or has failed: GW-218 to 221 of `docs/spec/gateway.md`.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _};
use std::mem::MaybeUninit;
use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixStream};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::io::retry_on_intr;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg, sockopt};
use taut_testbed::{PATIENCE, eventually};

use super::gateway_operations::{SERVER, lab};
use super::support::{Lab, Running, taut};

/// A gateway for each kind of guest, and the option of one without its sandbox.
fn kinds(lab: &Lab, guest: u32) -> Vec<Vec<String>> {
    let words = |text: String| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let at = |name: &str| lab.dir.join(name).display().to_string();
    let mut all: Vec<Vec<String>> = [
        "--run -t 8080:80".to_owned(),
        "--run --isolate".to_owned(),
        format!("--netns {guest}"),
        "--tun ready0".to_owned(),
        format!("--qemu {}", at("qemu")),
        format!("--passt {}", at("passt")),
        format!("--vfkit {}", at("vfkit")),
    ]
    .map(words)
    .into();
    for at in [0, 3, 4] {
        let with = [&["--no-sandbox".to_owned()], &all[at][..]].concat();
        all.push(with);
    }
    all
}

/// A namespace of another process's.
fn guest(lab: &Lab) -> Running {
    let mut sleep = Command::new("unshare");
    sleep.args(["--net", "sh", "-c", "echo ready >&2; exec sleep 1000"]);
    let mut guest = lab.spawn(sleep.stdin(Stdio::null()).stderr(Stdio::piped()));
    guest.wait_for("ready");
    guest
}

/// Starts a gateway with a command, if its guest is one. Its descriptor 4 is a fifo.
fn start(lab: &Lab, fifo: &str, options: &[String], command: &str) -> (Running, PathBuf) {
    let log = lab.dir.join("log");
    let mut args = vec!["gateway", "--control", "none", "--ready-fd", "4"];
    args.extend(options.iter().map(String::as_str));
    if args.contains(&"--run") {
        args.extend(["--", "sh", "-c", command]);
    }
    let own = taut(&args);
    let mut shell = Command::new("sh");
    shell.args(["-c", "exec 4>\"$0\"; exec \"$@\"", fifo]).arg(own.get_program()).args(own.get_args());
    shell.env("XDG_CONFIG_HOME", "/nonexistent").stdin(Stdio::null()).stdout(Stdio::piped());
    (lab.spawn(shell.stderr(File::create(&log).unwrap())), log)
}

const LASTS: &str = "exec sleep 1000";

fn fifo(lab: &Lab) -> String {
    let fifo = lab.dir.join("fifo").display().to_string();
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    fifo
}

#[test]
fn gw_218_a_descriptor_gets_a_line_when_the_guest_can_connect() {
    let Some(lab) = lab("ready-fd", &["mkfifo", "unshare", "nsenter", "python3"]) else { return };
    let listener = lab.kernel.enter(|| TcpListener::bind((SERVER, 0))).unwrap().unwrap();
    let connect = format!(
        "python3 -c 'import socket; socket.create_connection((\"{SERVER}\",{}),20)'",
        listener.local_addr().unwrap().port()
    );
    let (fifo, guest) = (fifo(&lab), guest(&lab));
    for options in kinds(&lab, guest.id()) {
        // The command does not get the descriptor.
        let command = format!("( : >&4 ) 2>/dev/null && echo open; {connect} && echo connected; {LASTS}");
        let (mut running, _) = start(&lab, &fifo, &options, &command);
        let mut said = BufReader::new(File::open(&fifo).unwrap());
        let mut line = String::new();
        said.read_line(&mut line).unwrap();
        assert_eq!(line, "1\n", "{options:?}");
        let place = options.last().unwrap();
        if options.contains(&"--run".to_owned()) {
            let mut line = String::new();
            BufReader::new(running.stdout()).read_line(&mut line).unwrap();
            assert_eq!(line, "connected\n", "{options:?}");
        } else if options.contains(&"--netns".to_owned()) {
            let inside = format!("--net=/proc/{place}/ns/net");
            let connected = Command::new("nsenter").args([&inside, "sh", "-c", &connect]).status();
            assert!(connected.unwrap().success());
        } else if options.contains(&"--tun".to_owned()) {
            lab.kernel.run(&format!("ip link show {place}")).unwrap();
        } else if options.contains(&"--vfkit".to_owned()) {
            UnixDatagram::unbound().unwrap().connect(place).unwrap();
        } else {
            UnixStream::connect(place).unwrap();
        }
        running.signal("TERM");
        running.wait();
        // Nothing but the line.
        let mut rest = String::new();
        said.read_to_string(&mut rest).unwrap();
        assert_eq!(rest, "", "{options:?}");
        _ = std::fs::remove_file(place);
    }
    // One that does not serve does not say so.
    let busy = lab.kernel.enter(|| TcpListener::bind("127.0.0.1:0")).unwrap().unwrap();
    let port = busy.local_addr().unwrap().port().to_string();
    let options = ["--run", "-t", &format!("{port}:80")].map(str::to_owned);
    let (mut running, _) = start(&lab, &fifo, &options, LASTS);
    assert_eq!(std::fs::read_to_string(&fifo).unwrap(), "");
    assert_eq!(running.wait(), Some(1));
    let output = lab.output(taut(&["gateway", "--ready-fd", "77", "--tun", "ready1"]).stdin(Stdio::null()));
    assert!(String::from_utf8_lossy(&output.stderr).contains("descriptor 77"), "{output:?}");
}

/// The next message to a service manager, and the process that has sent it.
fn message(manager: &UnixDatagram) -> (String, u32) {
    let (mut bytes, mut space) = ([0; 100], [MaybeUninit::uninit(); rustix::cmsg_space!(ScmCredentials(1))]);
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let read = &mut [std::io::IoSliceMut::new(&mut bytes)];
    let received = retry_on_intr(|| recvmsg(manager, read, &mut control, RecvFlags::empty())).unwrap();
    let sender = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmCredentials(from) => Some(from.pid.as_raw_nonzero().get().unsigned_abs()),
        _ => None,
    });
    (String::from_utf8_lossy(&bytes[..received.bytes]).into_owned(), sender.unwrap())
}

#[test]
fn gw_219_the_process_that_a_service_manager_has_started_reports_its_start_and_its_end() {
    let Some(lab) = lab("ready-notify", &["sleep", "env"]) else { return };
    let manager = lab.dir.join("manager");
    let by_path = || (UnixDatagram::bind(&manager).unwrap(), manager.display().to_string());
    let by_name = || {
        let name = SocketAddr::from_abstract_name("taut-manager").unwrap();
        let socket = lab.kernel.enter(|| UnixDatagram::bind_addr(&name)).unwrap().unwrap();
        (socket, "@taut-manager".to_owned())
    };
    let socket = lab.dir.join("net").display().to_string();
    let qemu = ["gateway", "--control", "none", "--qemu", &socket];
    let run = ["gateway", "--control", "none", "--run", "--", "sh", "-c", "env >&2; exec sleep 1000"];
    let bare = [&qemu[..], &["--no-sandbox"]].concat();
    for (args, is_path) in [(&qemu[..], true), (&qemu, false), (&run, true), (&run, false), (&bare, true)] {
        _ = std::fs::remove_file(&manager);
        let (manager, place) = if is_path { by_path() } else { by_name() };
        sockopt::set_socket_passcred(&manager, true).unwrap();
        manager.set_read_timeout(Some(PATIENCE)).unwrap();
        let log = File::create(lab.dir.join("log")).unwrap();
        let mut running = lab.spawn(taut(args).env("NOTIFY_SOCKET", place).stdin(Stdio::null()).stderr(log));
        assert_eq!(message(&manager), ("READY=1".to_owned(), running.id()), "{args:?}");
        let said = || std::fs::read_to_string(lab.dir.join("log")).unwrap();
        eventually("the environment", || said().contains("XDG_CONFIG_HOME=") || !args.contains(&"--run"));
        running.signal("TERM");
        assert_eq!(message(&manager), ("STOPPING=1".to_owned(), running.id()), "{args:?}");
        running.wait();
        manager.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
        assert!(manager.recv(&mut [0; 100]).is_err(), "{args:?}");
        assert!(!said().contains("NOTIFY_SOCKET"), "{}", said());
    }
    // A manager that is gone stops no gateway.
    let mut gone = taut(&["gateway", "--run", "--", "true"]);
    assert!(lab.output(gone.env("NOTIFY_SOCKET", "/no/such/socket")).status.success());
}

#[test]
fn gw_220_a_quiet_gateway_prints_nothing_when_all_is_well() {
    let Some(lab) = lab("ready-quiet", &["mkfifo", "unshare"]) else { return };
    let (fifo, guest) = (fifo(&lab), guest(&lab));
    for options in kinds(&lab, guest.id()) {
        for quiet in ["--quiet", "--log=none"] {
            let (mut running, log) = start(&lab, &fifo, &[&[quiet.to_owned()], &options[..]].concat(), LASTS);
            // It serves, and has ended.
            BufReader::new(File::open(&fifo).unwrap()).read_line(&mut String::new()).unwrap();
            running.signal("TERM");
            running.wait();
            assert_eq!(std::fs::read_to_string(&log).unwrap(), "", "{quiet} {options:?}");
            _ = std::fs::remove_file(options.last().unwrap());
        }
    }
}

#[test]
fn gw_221_the_reason_why_a_gateway_does_not_serve_is_the_only_line() {
    let Some(lab) = lab("ready-error", &["mount", "unshare"]) else { return };
    // Else a warning comes first.
    lab.kernel.set_sysctl("ping_group_range", "0 2147483647").unwrap();
    let busy = lab.kernel.enter(|| TcpListener::bind("127.0.0.1:0")).unwrap().unwrap();
    let forward = format!("{}:80", busy.local_addr().unwrap().port());
    for options in [
        &["--run", "-t", &forward][..],
        &["--run", "--isolate", "-t", &forward],
        &["--run", "-u", "auto", "-t", &forward],
    ] {
        for more in [&[][..], &["--quiet"], &["--no-sandbox"], &["--log=json"]] {
            let args = [&["gateway"], options, more, &["--", "echo", "ran"]].concat();
            // All that any process of it prints, also after its end: the pipe is read to its end.
            let output = lab.output(taut(&args).stdin(Stdio::null()));
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(said.lines().count() == 1 && said.contains("Address already in use"), "{args:?}: {said}");
            assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0), "{args:?}");
        }
    }
}
