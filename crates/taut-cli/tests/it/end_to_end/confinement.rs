//! The sandbox of the gateway and the proxy, from outside: CONF of `docs/spec/confinement.md`. CONF-1, which
//! attacks it from within, needs the feature `hostile` (`make hostile`).

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use taut_testbed::eventually;

use super::gateway_operations::{Gateway, SERVER, lab};
use super::support::{Lab, Running, taut};

/// A field of `/proc/PID/status`, the rest of its line.
fn status(process: u32, field: &str) -> String {
    let text = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    line.unwrap_or_else(|| panic!("{field}: {text}")).trim().to_owned()
}

fn namespace(process: u32, kind: &str) -> u64 {
    std::fs::metadata(format!("/proc/{process}/ns/{kind}")).unwrap().ino()
}

/// A gateway of each kind of guest and a proxy, each with what it says when it serves.
fn kinds(lab: &Lab) -> Vec<(&'static str, Vec<String>, &'static str)> {
    let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let at = |name: &str| lab.dir.join(name).display().to_string();
    vec![
        ("run", words("gateway --run -t 8080:80 -- sh -c"), ""),
        ("tun", words("gateway --tun conf0"), "the gateway is at"),
        ("qemu", words(&format!("gateway --qemu {}", at("qemu"))), "waiting for virtual machines"),
        ("passt", words(&format!("gateway --passt {}", at("passt"))), "waiting for virtual machines"),
        ("vfkit", words(&format!("gateway --vfkit {}", at("vfkit"))), "waiting for virtual machines"),
        ("out", words("gateway --tun conf1 --out tun:conf2"), "the gateway is at"),
        ("proxy", words("proxy --tun conf3"), "a proxy at"),
    ]
}

/// Starts one of them, whose worker is confined then.
fn start(lab: &Lab, args: &[String], ready: &str) -> Running {
    start_as(lab, args, ready, taut).0
}

/// The same by a command that is made of the arguments; returns the log, too.
fn start_as(
    lab: &Lab,
    args: &[String],
    ready: &str,
    make: impl FnOnce(&[&str]) -> Command,
) -> (Running, PathBuf) {
    let mut args: Vec<&str> = args.iter().map(String::as_str).collect();
    if args.contains(&"--run") {
        args.push("echo serving >&2; exec sleep 100");
    }
    let mut command = make(&args);
    let log = lab.dir.join(format!("log-{}", args.join("-").replace(['/', ' ', '>', '&', ';'], "_")));
    let running = lab.spawn(command.stdin(Stdio::null()).stderr(File::create(&log).unwrap()));
    let said = || std::fs::read_to_string(&log).unwrap();
    let ready = if ready.is_empty() { "serving" } else { ready };
    eventually("it serves", || said().contains(ready));
    // The process outside confines itself while the other one begins.
    eventually("both are confined", || {
        let (outside, worker) = (running.id(), running.worker());
        let filters = |process| status(process, "Seccomp_filters").parse::<u32>().unwrap();
        worker != outside && filters(worker) >= 2 && filters(outside) >= 1
    });
    (running, log)
}

#[test]
fn conf_02_the_process_has_namespaces_of_its_own_and_no_file() {
    let Some(lab) = lab("confinement", &["sleep"]) else { return };
    let is_root = std::fs::metadata("/proc/self").unwrap().uid() == 0;
    for (name, args, ready) in kinds(&lab) {
        let running = start(&lab, &args, ready);
        let worker = running.worker();
        let has_paths = name == "vfkit";
        for kind in ["user", "mnt", "ipc", "uts", "cgroup"] {
            // One whose socket connects to paths keeps the host's mounts, if root has started it.
            let differs = namespace(worker, kind) != namespace(std::process::id(), kind);
            assert!(differs || has_paths, "{name}: {kind}");
        }
        assert_ne!(namespace(worker, "pid"), namespace(std::process::id(), "pid"), "{name}");
        // Its sockets are those of the process outside.
        assert_eq!(namespace(worker, "net"), namespace(running.id(), "net"), "{name}");
        if !has_paths {
            let root = std::fs::read_dir(format!("/proc/{worker}/root/")).unwrap();
            assert_eq!(root.count(), 0, "{name}");
            if is_root {
                // The host's tree is taken away, not only covered.
                let mounts = std::fs::read_to_string(format!("/proc/{worker}/mountinfo")).unwrap();
                assert!(mounts.lines().count() == 1 && mounts.contains(" - tmpfs "), "{name}: {mounts}");
                assert_eq!(status(worker, "Uid"), "65534\t65534\t65534\t65534", "{name}");
                assert_eq!(status(worker, "Groups"), "", "{name}");
            }
        }
        for set in ["CapEff", "CapPrm", "CapInh", "CapAmb", "CapBnd"] {
            assert_eq!(status(worker, set), "0000000000000000", "{name}: {set}");
        }
        for (process, field, expected) in [
            (worker, "NoNewPrivs", "1"),
            (worker, "Seccomp", "2"),
            (running.id(), "NoNewPrivs", "1"),
            (running.id(), "Seccomp", "2"),
            (running.id(), "CapEff", "0000000000000000"),
        ] {
            assert_eq!(status(process, field), expected, "{name}: {field}");
        }
        let limits = std::fs::read_to_string(format!("/proc/{worker}/limits")).unwrap();
        for limit in ["Max core file size", "Max msgqueue size"] {
            let line = limits.lines().find(|line| line.starts_with(limit)).unwrap();
            assert_eq!(line.split_whitespace().rev().nth(1), Some("0"), "{name}: {line}");
        }
    }
}

#[test]
fn conf_03_the_two_processes_end_together_with_the_right_code() {
    let Some(lab) = lab("confinement-ends", &["sleep"]) else { return };
    let alive = |process: u32| std::path::Path::new(&format!("/proc/{process}")).exists();
    let qemu = || {
        let (_, args, ready) = kinds(&lab).swap_remove(2);
        start(&lab, &args, ready)
    };
    // Its signals are the process outside's.
    for signal in ["TERM", "INT", "HUP"] {
        let mut running = qemu();
        let worker = running.worker();
        running.signal(signal);
        assert_eq!(running.wait(), Some(0), "{signal}");
        assert!(!alive(worker), "{signal}");
    }
    // Killed, it takes the gateway with it; and the other way round.
    let mut running = qemu();
    let worker = running.worker();
    running.signal("KILL");
    running.wait();
    eventually("the gateway has ended", || !alive(worker));
    let (_, args, ready) = kinds(&lab).swap_remove(0);
    let mut running = start(&lab, &args, ready);
    let children = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", running.id())).unwrap();
    let (worker, children) = (running.worker(), children.split_whitespace().map(str::to_owned));
    let command: Vec<u32> =
        children.filter_map(|pid| pid.parse().ok()).filter(|pid| *pid != worker).collect();
    running.signal_worker("KILL");
    assert_eq!(running.wait(), Some(128 + 9));
    eventually("the command has ended", || command.iter().all(|pid| !alive(*pid)));
    // The command's code, and signals that are passed on to it.
    for (script, code) in [("exit 7", 7), ("kill -9 $$", 128 + 9), ("true", 0)] {
        let mut command = taut(&["gateway", "--run", "--", "sh", "-c", script]);
        assert_eq!(lab.output(&mut command).status.code(), Some(code), "{script}");
    }
    for (signal, code) in [("TERM", 3), ("HUP", 4)] {
        let script = "trap 'exit 3' TERM; trap 'exit 4' HUP; echo ready >&2; while :; do sleep 0.1; done";
        let mut gateway = Gateway::run(&lab, "log-trap", &[], script);
        gateway.says("ready");
        gateway.running.signal(signal);
        assert_eq!(gateway.running.wait(), Some(code), "{signal}");
    }
}

#[test]
fn conf_04_no_unix_socket_of_the_host_is_in_reach_but_the_control_socket_works() {
    let Some(lab) = lab("confinement-control", &["sleep"]) else { return };
    let control = lab.dir.join("control");
    let options = ["--control", control.to_str().unwrap(), "--dash", "9561"];
    let gateway = Gateway::run(&lab, "log", &options, "echo ready >&2; exec sleep 100");
    gateway.says("ready");
    assert_eq!(std::fs::metadata(&control).unwrap().permissions().mode() & 0o777, 0o600);
    let said = lab.output(&mut taut(&["ss", "--socket", control.to_str().unwrap()]));
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    // The page's requests go through the process outside.
    let mut page = lab.kernel.enter(|| TcpStream::connect("127.0.0.1:9561")).unwrap().unwrap();
    page.write_all(b"GET /sample HTTP/1.1\r\nHost: 127.0.0.1:9561\r\n\r\n").unwrap();
    let mut text = String::new();
    page.read_to_string(&mut text).unwrap();
    assert!(text.contains(&format!("\"pid\":{}", gateway.running.id())), "{text}");
    // It is gone with the gateway.
    gateway.running.signal("TERM");
    eventually("the socket's file is removed", || !control.exists());
}

#[test]
fn conf_05_a_socket_for_machines_is_its_users_alone() {
    let Some(lab) = lab("confinement-machines", &[]) else { return };
    for (name, args, ready) in kinds(&lab).into_iter().skip(2).take(3) {
        let _running = start(&lab, &args, ready);
        let mode = std::fs::metadata(lab.dir.join(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
}

/// A guest that sends datagrams to a denied port for two seconds, each from a new port, and then fetches.
const FLOOD: &str = "import socket,time,sys\n\
    end=time.time()+2\n\
    count=0\n\
    while time.time()<end:\n\
    \x20s=socket.socket(socket.AF_INET,socket.SOCK_DGRAM)\n\
    \x20s.connect(('10.0.2.2',9))\n\
    \x20try: s.send(b'x')\n\
    \x20except OSError: pass\n\
    \x20s.close(); count+=1\n\
    s=socket.create_connection((sys.argv[1],int(sys.argv[2])),10)\n\
    print(count, s.recv(5).decode())\n";

#[test]
fn conf_21_a_flood_of_denials_is_a_few_lines_and_no_standard_error_stops_a_flow() {
    let Some(lab) = lab("confinement-log", &["python3"]) else { return };
    let listener = lab.kernel.enter(|| TcpListener::bind((SERVER, 0))).unwrap().unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    std::thread::spawn(move || {
        for mut client in listener.incoming().map_while(Result::ok) {
            _ = client.write_all(b"hello");
        }
    });
    let command = || taut(&["gateway", "--run", "--", "python3", "-c", FLOOD, SERVER, &port]);
    let check = |output: &std::process::Output, how: &str| {
        let said = String::from_utf8_lossy(&output.stdout);
        let (count, hello) = said.trim().split_once(' ').unwrap_or_else(|| panic!("{how}: {said}"));
        assert!(count.parse::<u32>().unwrap() > 100 && hello == "hello", "{how}: {said}");
        assert_eq!(output.status.code(), Some(0), "{how}");
    };
    let output = lab.output(&mut command());
    check(&output, "read");
    let log = String::from_utf8_lossy(&output.stderr);
    let denied = log.lines().filter(|line| line.contains("denied: udp")).count();
    // Ten, and one in each second from then on; the seconds of a slow machine are more than two.
    assert!((10..100).contains(&denied), "{denied} lines");
    let counted = log.lines().filter_map(|line| line.split_once(" more lines of the kind denied"));
    let counted =
        counted.filter_map(|(before, _)| before.rsplit_once(' ')?.1.parse::<usize>().ok()).sum::<usize>();
    assert!(counted > 0, "{log}");
    // Closed; an unread pipe; one whose reader has gone.
    let script = "exec \"$@\" 2>&-";
    let with_shell = |script: &str| {
        let inner = command();
        let mut shell = Command::new("sh");
        shell.args(["-c", script, "sh"]).arg(inner.get_program()).args(inner.get_args());
        shell.env("XDG_CONFIG_HOME", "/nonexistent").stdin(Stdio::null()).stdout(Stdio::piped());
        shell
    };
    check(&lab.spawn(&mut with_shell(script)).output(), "closed");
    let (reader, writer) = std::io::pipe().unwrap();
    check(&lab.spawn(with_shell("exec \"$@\"").stderr(writer.try_clone().unwrap())).output(), "unread");
    let mut full =
        with_shell("dd if=/dev/zero of=/dev/stderr bs=65536 count=1 2>/dev/null & sleep 0.2; exec \"$@\"");
    check(&lab.spawn(full.stderr(writer.try_clone().unwrap())).output(), "full");
    drop(reader);
    check(&lab.spawn(with_shell("exec \"$@\"").stderr(writer)).output(), "gone");
}

#[test]
fn conf_32_silent_connections_keep_nobody_from_the_dashboard() {
    let Some(lab) = lab("confinement-dash", &["sleep"]) else { return };
    let gateway = Gateway::run(&lab, "log", &["--dash", "9562"], "echo ready >&2; exec sleep 100");
    gateway.says("ready");
    let connect = || lab.kernel.enter(|| TcpStream::connect("127.0.0.1:9562")).unwrap().unwrap();
    // More than are served at the same time. Without a limit, the request would wait for ten seconds.
    let silent: Vec<_> = (0..100).map(|_| connect()).collect();
    let mut page = connect();
    page.set_read_timeout(Some(Duration::from_secs(9))).unwrap();
    page.write_all(b"GET /style.css HTTP/1.1\r\nHost: 127.0.0.1:9562\r\n\r\n").unwrap();
    let mut first = [0; 12];
    page.read_exact(&mut first).unwrap();
    assert_eq!(&first, b"HTTP/1.1 200");
    drop(silent);
}

#[test]
fn conf_33_silent_clients_leave_a_proxy_its_descriptors() {
    let Some(lab) = lab("confinement-silent", &["sh"]) else { return };
    let mut shell = Command::new("sh");
    let proxy = taut(&["proxy", "--tun", "conf4", "--control", "none"]);
    shell.args(["-c", "ulimit -n 64; exec \"$@\"", "sh"]).arg(proxy.get_program()).args(proxy.get_args());
    shell.env("XDG_CONFIG_HOME", "/nonexistent").stdin(Stdio::null()).stderr(Stdio::piped());
    let mut running = lab.spawn(&mut shell);
    running.wait_for("a proxy at");
    let connect = || lab.kernel.enter(|| TcpStream::connect("127.0.0.1:1080")).unwrap().unwrap();
    let mut silent: Vec<_> = (0..200).map(|_| connect()).collect();
    // Without a limit, a request would wait for ten seconds. It is refused: the address is special.
    let mut client = connect();
    client.set_read_timeout(Some(Duration::from_secs(9))).unwrap();
    client.write_all(b"CONNECT 127.0.0.1:1 HTTP/1.1\r\n\r\n").unwrap();
    let mut first = [0; 12];
    client.read_exact(&mut first).unwrap();
    assert_eq!(&first, b"HTTP/1.1 403");
    // The oldest has ended.
    silent[0].set_read_timeout(Some(Duration::from_secs(9))).unwrap();
    assert!(matches!(silent[0].read(&mut [0]), Ok(0)));
}

#[cfg(feature = "hostile")]
#[test]
fn conf_01_each_attack_from_within_is_refused() {
    let Some(lab) = lab("confinement-hostile", &["sleep", "setpriv", "unshare"]) else { return };
    let mut victim = lab.spawn(Command::new("sleep").arg("100"));
    let number = victim.id().to_string();
    std::fs::set_permissions(&lab.dir, std::fs::Permissions::from_mode(0o777)).unwrap();
    // Where the machine's TUN is closed to a user without any right, that one serves machines alone.
    let has_tun = std::fs::metadata("/dev/net/tun").unwrap().mode() & 0o006 == 0o006;
    for user in [false, true] {
        let make = |args: &[&str]| {
            let mut command = if user { unprivileged(args) } else { taut(args) };
            command.env("TAUT_HOSTILE", &number);
            command
        };
        let attacked = |name: &str, log: &std::path::Path| {
            let said = || std::fs::read_to_string(log).unwrap();
            eventually("the attacks are over", || said().contains("hostile: landlock"));
            let count = refused(name, &said());
            println!("{name}, {}: {count} attempts refused", if user { "a user" } else { "root" });
        };
        let mut container = unshared(&lab, user);
        let mut all = kinds(&lab);
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect();
        all.push(("isolate", words("gateway --run --isolate -t 8081:80 -- sh -c"), ""));
        all.push(("keep-user", words("gateway --run --isolate --keep-user -- sh -c"), ""));
        all.push(("low-port", words("gateway --run -t 80:80 -- sh -c"), ""));
        all.push(("netns", words(&format!("gateway --netns {}", container.id())), "the gateway is at"));
        let is_wanted = |name: &str| match name {
            "qemu" | "passt" | "vfkit" => true,
            "run" | "isolate" | "keep-user" | "netns" => !user || has_tun,
            _ => !user,
        };
        for (name, args, ready) in all.into_iter().filter(|(name, ..)| is_wanted(name)) {
            let (running, log) = start_as(&lab, &args, ready, make);
            attacked(name, &log);
            drop(running);
            _ = std::fs::remove_file(lab.dir.join(name));
        }
        // A machine at an inherited socket.
        let (_machine, socket) = std::os::unix::net::UnixStream::pair().unwrap();
        let log = lab.dir.join("log-inherited");
        let mut command = make(&["gateway", "--passt", "fd:0"]);
        let command = command.stdin(std::os::fd::OwnedFd::from(socket)).stderr(File::create(&log).unwrap());
        let running = lab.spawn(command);
        attacked("inherited", &log);
        drop(running);
        container.signal("KILL");
        container.wait();
    }
    assert!(std::path::Path::new(&format!("/proc/{number}")).exists());
    victim.signal("KILL");
    victim.wait();
}

/// A process with a network namespace of its own.
#[cfg(feature = "hostile")]
fn unshared(lab: &Lab, user: bool) -> Running {
    let words: &[&str] = if user {
        &[
            "setpriv",
            "--reuid=65534",
            "--regid=65534",
            "--clear-groups",
            "unshare",
            "--user",
            "--map-root-user",
        ]
    } else {
        &["unshare"]
    };
    let mut command = Command::new(words[0]);
    let running = lab.spawn(command.args(&words[1..]).args(["--net", "sleep", "1000"]).stdin(Stdio::null()));
    let comm = || std::fs::read_to_string(format!("/proc/{}/comm", running.id())).unwrap();
    eventually("it has its namespace", || comm() == "sleep\n");
    running
}

/// The command as user 65534 without any right.
#[cfg(feature = "hostile")]
fn unprivileged(args: &[&str]) -> Command {
    let taut = taut(args);
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--no-new-privs", "--"]);
    command.arg(taut.get_program()).args(taut.get_args()).env("XDG_CONFIG_HOME", "/nonexistent");
    command
}

/// Each attempt of a report was refused; how many there are.
#[cfg(feature = "hostile")]
fn refused(name: &str, said: &str) -> usize {
    let attempts: Vec<_> = said.lines().filter_map(|line| line.strip_prefix("hostile: ")).collect();
    assert!(attempts.len() >= 100, "{name}: {}", attempts.len());
    for attempt in &attempts {
        // By the filter; a file's status by the root, which has none.
        let by_filter = ["Operation not permitted (os error 1)", "Function not implemented (os error 38)"];
        let is_refused = by_filter.iter().any(|why| attempt.ends_with(&format!("refused {why}")));
        let by_root = attempt.starts_with("stat ") && attempt.contains("No such file");
        // It keeps the host's root.
        let has_root = name == "vfkit" && attempt.starts_with("stat ");
        assert!(is_refused || by_root || has_root, "{name}: {attempt}");
    }
    attempts.len()
}
