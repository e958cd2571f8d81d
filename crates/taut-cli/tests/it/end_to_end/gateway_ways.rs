//! `taut gateway` for guests that it has not started: `--netns`, `--tun`, and virtual machines at `--qemu`,
//! `--passt` and `--vfkit`, which stacks of taut's play. VM-20 and 21, GW-170, 197 and 253 of
//! `docs/spec/gateway.md`.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::Path;
use std::process::{Command, Stdio};

use taut::device::{Frames, FramesOptions};
use taut::{Stack, blocking};
use taut_testbed::{Kernel, PATIENCE, eventually};

use super::support::{Lab, taut};

/// An address of the namespace of the test, which is neither loopback nor on a link.
const SERVER: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 1);

fn lab(name: &str) -> Option<Lab> {
    let lab = Lab::without_turn(name, &["ip", "sleep"])?;
    lab.kernel.run(&format!("ip address add {SERVER}/32 dev lo")).unwrap();
    lab.kernel.set_sysctl("ping_group_range", "0 2147483647").unwrap();
    Some(lab)
}

/// A server that says hello to each client, and who the client is.
fn hello(kernel: &Kernel, address: Ipv4Addr) -> SocketAddr {
    let listener = kernel.enter(|| TcpListener::bind((address, 0))).unwrap().unwrap();
    let place = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            _ = write!(stream, "hello {}", stream.peer_addr().unwrap().ip());
        }
    });
    place
}

fn heard_by(kernel: &Kernel, place: SocketAddr) -> String {
    let mut stream = kernel.enter(|| TcpStream::connect(place)).unwrap().unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut said = String::new();
    stream.read_to_string(&mut said).unwrap();
    said
}

#[test]
fn vm_20_a_process_and_a_file_stand_for_a_namespace() {
    let Some(lab) = lab("gateway-netns") else { return };
    let place = hello(&lab.kernel, SERVER);
    let guest = Kernel::new().unwrap();
    let mut sleeper = guest.namespace.spawn(Command::new("sleep").arg("1000")).unwrap();
    // A service of the guest's, at a port of the host.
    let inner = hello(&guest, Ipv4Addr::UNSPECIFIED);
    let forward = format!("7080:{}", inner.port());
    for name in [sleeper.id().to_string(), format!("/proc/{}/ns/net", sleeper.id())] {
        let options = ["gateway", "--netns", &name, "--interface", "guest0", "--mtu", "9000", "-t", &forward];
        let running = lab.taut(&options, "the gateway is at 10.0.2.2");
        assert_eq!(heard_by(&guest, place), format!("hello {SERVER}"), "by {name}");
        let link = guest.run("ip -o link show guest0").unwrap();
        assert!(link.contains("mtu 9000"), "{link}");
        assert!(guest.run("ip -o -4 addr show guest0").unwrap().contains("10.0.2.15/24"));
        guest.run("ping -c 1 -W 30 198.51.100.1").unwrap();
        // The gateway is the client that the guest sees.
        let outer = SocketAddr::from(([127, 0, 0, 1], 7080));
        assert_eq!(heard_by(&lab.kernel, outer), "hello 10.0.2.2");
        running.interrupt();
        let output = running.output();
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        eventually("the interface is gone", || guest.run("ip link show guest0").is_err());
    }
    let none = lab.output(&mut taut(&["gateway", "--netns", "4000000000"]));
    assert_eq!(none.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&none.stderr).contains("/proc/4000000000/ns/user"), "{none:?}");
    _ = sleeper.kill();
    _ = sleeper.wait();
}

#[test]
fn gw_197_a_gateway_ends_with_its_namespace() {
    let Some(lab) = lab("gateway-ends") else { return };
    let guest = Kernel::new().unwrap();
    let mut sleeper = guest.namespace.spawn(Command::new("sleep").arg("1000")).unwrap();
    let name = sleeper.id().to_string();
    let mut running = lab.taut(&["gateway", "--netns", &name], "the gateway is at 10.0.2.2");
    sleeper.kill().unwrap();
    sleeper.wait().unwrap();
    assert_eq!(running.wait(), Some(0));
}

/// ```text
///   guest: 10.77.0.1 ── veth ── the gateway's namespace, all packets to the TUN ── veth ── server: 10.78.0.1
/// ```
#[test]
fn vm_20_what_is_routed_to_a_tun_goes_through_the_gateway() {
    let Some(lab) = lab("gateway-tun") else { return };
    let (guest, far) = (Kernel::new().unwrap(), Kernel::new().unwrap());
    for (name, other, network) in [("near0", &guest, 77), ("far0", &far, 78)] {
        lab.kernel.namespace.connect(name, &other.namespace, "veth0").unwrap();
        lab.kernel.run(&format!("ip address add 10.{network}.0.2/24 dev {name}")).unwrap();
        lab.kernel.run(&format!("ip link set {name} up")).unwrap();
        other.run(&format!("ip address add 10.{network}.0.1/24 dev veth0")).unwrap();
        other.run("ip link set veth0 up").unwrap();
    }
    // Nobody in the far network knows the way to the guest: only the gateway's own address is answered.
    guest.run("ip route add default via 10.77.0.2").unwrap();
    for setting in ["ip_forward", "net.ipv4.conf.all.forwarding"] {
        lab.kernel.set_sysctl(setting, "1").unwrap();
    }
    for setting in ["net.ipv4.conf.all.rp_filter", "net.ipv4.conf.default.rp_filter"] {
        lab.kernel.set_sysctl(setting, "0").unwrap();
    }
    let place = hello(&far, Ipv4Addr::new(10, 78, 0, 1));
    let guests = ["--guest", "10.0.2.15/24", "--guest", "10.77.0.0/24"];
    let running =
        lab.taut(&[&["gateway", "--tun", "way0"], &guests[..]].concat(), "the gateway is at 10.0.2.2");
    lab.kernel.run("ip route add default dev way0 table 7").unwrap();
    lab.kernel.run("ip rule add iif near0 lookup 7").unwrap();
    assert_eq!(heard_by(&guest, place), "hello 10.78.0.2");
    guest.run("ping -c 1 -W 30 10.78.0.1").unwrap();
    running.interrupt();
    let output = running.output();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(guest.run("ping -c 1 -W 1 10.78.0.1").is_err(), "the way was the gateway");
}

/// A guest that chooses a source of its own: in a namespace, and behind a TUN.
#[test]
fn gw_170_a_source_outside_the_guests_networks_reaches_nobody() {
    let Some(lab) = lab("gateway-sources") else { return };
    let place = hello(&lab.kernel, SERVER);
    let fetch = |source: &str| {
        format!(
            "import socket;s=socket.socket();s.settimeout(20);s.bind(('{source}',0));s.connect(('{SERVER}',{}));\
             print(s.recv(5).decode())",
            place.port()
        )
    };
    let add = "ip address add 192.0.2.9/32 dev taut0";
    let script = format!("{add}; python3 -c \"$0\"; python3 -c \"$1\" || echo refused");
    let [own, other] = ["10.0.2.15", "192.0.2.9"].map(fetch);
    let output =
        lab.output(taut(&["gateway", "--run", "--", "sh", "-c", &script, &own, &other]).stdin(Stdio::null()));
    let log = String::from_utf8_lossy(&output.stderr);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "hello\nrefused\n", "{log}");
    assert!(log.contains("denied: tcp from 192.0.2.9") && log.contains("outside --guest"), "{log}");
    // All of a TUN's networks are named.
    let running = lab.taut(&["gateway", "--tun", "way1", "--guest", "10.66.0.1/24"], "the gateway is at");
    lab.kernel.run("ip address add 10.66.0.1/32 dev lo").unwrap();
    lab.kernel.run("ip address add 10.67.0.1/32 dev lo").unwrap();
    lab.kernel.run("ip route add 203.0.113.0/24 dev way1").unwrap();
    let connect = |source: [u8; 4]| {
        lab.kernel
            .enter(|| {
                let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None)?;
                socket.bind(&SocketAddr::from((source, 0)).into())?;
                socket.connect(&SocketAddr::from(([203, 0, 113, 1], 80)).into())
            })
            .unwrap()
            .unwrap_err()
    };
    // RFC 1812's code 13, which a kernel takes for an unreachable host.
    assert_eq!(connect([10, 67, 0, 1]).kind(), std::io::ErrorKind::HostUnreachable);
    running.interrupt();
    let output = running.output();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
}

/// A machine at this socket, which configures itself.
pub(super) fn machine(option: &str, socket: &Path, own: &Path) -> Stack {
    // At a datagram socket the address belongs to the station, also when the machine comes again.
    let mac = Some("02:00:00:00:01:00".parse().unwrap());
    let options = FramesOptions { dhcp: true, slaac: true, mac, ..FramesOptions::default() };
    let frames = if option == "--vfkit" {
        let cable = UnixDatagram::bind(own).unwrap();
        cable.connect(socket).unwrap();
        Frames::datagrams(cable, &[], &options).unwrap()
    } else {
        Frames::stream(UnixStream::connect(socket).unwrap(), &[], &options).unwrap()
    };
    configured(frames)
}

fn configured(frames: Frames) -> Stack {
    let stack = Stack::builder().device(frames).build().unwrap();
    let address: IpAddr = "10.0.2.15".parse().unwrap();
    assert_eq!(stack.wait_for_address(Some(address), PATIENCE), Some(address));
    stack
}

#[test]
fn gw_253_a_machine_at_an_inherited_socket_is_served_to_its_end() {
    let Some(lab) = lab("gateway-inherited") else { return };
    let place = hello(&lab.kernel, SERVER);
    let (ours, theirs) = UnixStream::pair().unwrap();
    let cable = ours.try_clone().unwrap();
    let mut gateway = taut(&["gateway", "--passt", "fd:0"]);
    let mut running = lab.spawn(gateway.stdin(std::os::fd::OwnedFd::from(theirs)));
    // It has a copy of the other end.
    drop(gateway);
    let options = FramesOptions { dhcp: true, slaac: true, ..FramesOptions::default() };
    let stack = configured(Frames::stream(ours, &[], &options).unwrap());
    let mut said = String::new();
    blocking::TcpStream::connect(&stack, place).unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(said, format!("hello {SERVER}"));
    cable.shutdown(std::net::Shutdown::Both).unwrap();
    assert_eq!(running.wait(), Some(0));
    for (number, why) in [("77", "--passt fd:77"), ("0", "--passt fd:0"), ("x", "not a descriptor's number")]
    {
        let output = lab.output(taut(&["gateway", "--passt", &format!("fd:{number}")]).stdin(Stdio::null()));
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(1) && said.contains(why), "{number}: {said}");
    }
}

#[test]
fn vm_21_a_virtual_machine_by_each_kind_of_socket() {
    let Some(lab) = lab("gateway-machines") else { return };
    let place = hello(&lab.kernel, SERVER);
    for (number, option) in ["--qemu", "--passt", "--vfkit"].into_iter().enumerate() {
        let folder = taut_testbed::Scratch::new(&format!("machines{number}"));
        let socket = folder.join("net");
        let at = socket.to_str().unwrap();
        let options = ["gateway", option, at, "--search", "example.org", "-t", "7081:7081"];
        let log = folder.join("log");
        let stderr = std::fs::File::create(&log).unwrap();
        let running = lab.spawn(taut(&options).stdin(Stdio::null()).stderr(stderr));
        let says = |text, times| {
            eventually(text, || std::fs::read_to_string(&log).unwrap().matches(text).count() >= times);
        };
        says("waiting for virtual machines at", 1);
        for round in 0..2 {
            if round > 0 {
                says("virtual machine is gone", round);
            }
            let stack = machine(option, &socket, &folder.join(format!("own{round}")));
            // The gateway looks twice a second whether a machine is at a datagram socket.
            says("a virtual machine is there", round + 1);
            let mut stream = blocking::TcpStream::connect(&stack, place).unwrap();
            let mut said = String::new();
            stream.read_to_string(&mut said).unwrap();
            assert_eq!(said, format!("hello {SERVER}"), "{option}");
            // A port of the host that leads to the machine.
            let listener = blocking::TcpListener::bind(&stack, "10.0.2.15:7081").unwrap();
            let outer = SocketAddr::from(([127, 0, 0, 1], 7081));
            let mut client = lab.kernel.enter(|| TcpStream::connect(outer)).unwrap().unwrap();
            let (mut inner, from) = listener.accept().unwrap();
            assert_eq!(from.ip(), "10.0.2.2".parse::<IpAddr>().unwrap());
            inner.write_all(b"from the machine").unwrap();
            let mut heard = [0; 16];
            client.read_exact(&mut heard).unwrap();
            assert_eq!(&heard, b"from the machine");
        }
        running.interrupt();
        assert_eq!(running.output().status.code(), Some(0));
    }
    // Words that make no sense, and places that are taken.
    let folder = taut_testbed::Scratch::new("machines-wrong");
    let file = folder.join("file");
    std::fs::write(&file, "").unwrap();
    let socket = folder.join("net");
    let _taken = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let (file, taken) = (file.to_str().unwrap(), socket.to_str().unwrap());
    for (options, why) in [
        (&["--qemu", file][..], "no socket"),
        (&["--passt", taken], "another program has this socket"),
        (&["--vfkit", "/no/such/folder/net"], "/no/such/folder/net"),
        (&["--qemu", "/tmp/x", "--search", "a b"], "--search a b"),
        (&["--netns", "1", "--search", "a"], "--search is for --run, --qemu, --vfkit and --passt"),
        (&["--qemu", "/tmp/x", "--guest", "fd00::15/48"], "64 bits"),
        (&["--qemu", "/tmp/x", "--vfkit", "/tmp/y"], "cannot be used with"),
    ] {
        let output = lab.output(&mut taut(&[&["gateway"], options].concat()));
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(why), "{options:?}: {said}");
    }
}
