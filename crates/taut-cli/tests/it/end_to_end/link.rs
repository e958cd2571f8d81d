//! The TUN of a command: interfaces that cannot be used, and one that root prepares for another user.

use std::process::{Command, Stdio};

use crate::end_to_end::support::{KERNEL, Lab, TAUT, taut};

fn ip(lab: &Lab, args: &str) {
    let output = lab.output(Command::new("ip").args(args.split_whitespace()));
    assert!(output.status.success(), "ip {args}: {}", String::from_utf8_lossy(&output.stderr));
}

/// The error message of a failing `taut`.
fn fails(lab: &Lab, args: &[&str]) -> String {
    let output = lab.output(taut(args).stdin(Stdio::null()));
    assert_eq!(output.status.code(), Some(1), "{args:?}");
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.matches("(os error").count() <= 1, "{args:?} gives a reason twice: {stderr}");
    stderr
}

#[test]
fn an_interface_that_cannot_be_used_is_named_with_the_reason() {
    let Some(lab) = Lab::new("link-refused", &["ip"]) else { return };
    ip(&lab, "tuntap add dev tap0 mode tap");
    ip(&lab, "tuntap add dev many mode tun multi_queue");
    ip(&lab, "tuntap add dev one mode tun");
    for (args, said) in [
        (&["--tun", "lo"][..], "taut: lo is not a TUN interface"),
        (&["--tun", "lo", "--mtu", "1500"], "taut: lo is not a TUN interface"),
        (&["--tun", "tap0"], "taut: tap0 is not a TUN interface"),
        (&["--tun", "many"], "many was made for several queues: use two shards or more"),
        (&["--tun", "one", "--shards", "2"], "one was made for one queue: use one shard"),
    ] {
        let stderr = fails(&lab, &[&["serve", "."], args].concat());
        assert!(stderr.contains(said), "{args:?}: {stderr}");
        assert!(!stderr.contains("root"), "{args:?}: permission was not the cause: {stderr}");
    }
    let _first = lab.taut(&["serve", "."], "serving");
    let stderr = fails(&lab, &["serve", "."]);
    assert!(stderr.contains("taut0 is already in use\n  ") && stderr.contains("--tun taut1"), "{stderr}");
}

#[test]
fn a_peer_that_does_not_listen_is_told_with_what_to_do() {
    let Some(lab) = Lab::new("link-refusing", &[]) else { return };
    let stderr = fails(&lab, &["send", &format!("{KERNEL}:7000")]);
    assert!(stderr.contains("connection refused\n  Nothing listens there"), "{stderr}");
}

/// Root without CAP_NET_ADMIN may open the device node, but may not change the network: like an ordinary user
/// on a machine where `/dev/net/tun` is open to all users.
fn without_privileges(args: &[&str]) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--bounding-set", "-net_admin", "--inh-caps", "-net_admin"]);
    command.arg(env!("CARGO_BIN_EXE_taut")).args(args);
    command
}

#[test]
fn the_commands_that_an_ordinary_user_is_told_make_it_work() {
    let Some(lab) = Lab::new("link-prepared", &["ip", "setpriv"]) else { return };
    let recv = ["recv", "--listen", "7000", "--address", "10.9.0.2/24", "--address", "fd09::2/64"];
    let output = lab.output(without_privileges(&recv).stdin(Stdio::null()));
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    let commands: Vec<&str> = stderr.lines().filter_map(|line| line.trim().strip_prefix("sudo ")).collect();
    assert_eq!(commands.len(), 4, "an interface, two addresses, and up: {stderr}");
    for command in commands {
        let output = lab.output(Command::new("sh").args(["-c", command]).env("USER", "root"));
        assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
    }
    for address in [TAUT, "fd09::2"] {
        let mut running = lab.spawn(
            without_privileges(&recv).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()),
        );
        running.wait_for("listening on [fd09::2]:7000");
        let said = lab.kernel.enter(|| {
            let mut to = std::net::TcpStream::connect((address, 7000)).unwrap();
            std::io::Write::write_all(&mut to, b"hello")
        });
        said.unwrap().unwrap();
        let mut got = String::new();
        std::io::Read::read_to_string(&mut running.stdout(), &mut got).unwrap();
        assert_eq!((running.wait(), got.as_str()), (Some(0), "hello"), "{address}");
    }
}
