//! Bad input: a clear message, and an exit code other than 0. Needs no network.

use crate::end_to_end::support::taut;

/// Exit code and standard error.
fn fails(args: &[&str]) -> (Option<i32>, String) {
    let output = taut(args).output().unwrap();
    assert!(output.stdout.is_empty(), "{args:?} printed {:?}", String::from_utf8_lossy(&output.stdout));
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    let reasons = stderr.matches("(os error").count();
    assert!(reasons <= 1, "{args:?} gives the system's reason {reasons} times: {stderr}");
    (output.status.code(), stderr)
}

#[test]
fn wrong_usage_exits_with_2_and_says_what_is_wrong() {
    for (args, said) in [
        (&["serve"][..], "DIR"),
        (&["send"], "HOST:PORT"),
        (&["recv"], "--listen"),
        (&["recv", "--listen", "0"], "not a port"),
        (&["recv", "--listen", "7000", "--address", "10.9.0.2"], "prefix"),
        (&["serve", ".", "--address", "10.9.0.300/24"], "10.9.0.300"),
        (&["serve", ".", "--port", "70000"], "70000"),
        (&["serve", ".", "--mtu", "67"], "68..=65521"),
        (&["serve", ".", "--mtu", "65522"], "68..=65521"),
        (&["get", "https://example.com/"], "TLS"),
        (&["compare", "--bytes", "lots"], "size"),
        (&["compare", "--seconds=-1"], "number of seconds"),
        (&["compare", "--rounds", "0"], "0 is not in 1..=1000"),
        (&["compare", "--rounds", "many"], "--rounds"),
        (&["nonsense"], "nonsense"),
    ] {
        let (code, stderr) = fails(args);
        assert_eq!(code, Some(2), "{args:?}: {stderr}");
        assert!(stderr.contains(said), "{args:?}: {stderr}");
    }
}

#[test]
fn what_cannot_work_exits_with_1_and_says_why() {
    for (args, said) in [
        (&["serve", "/no/such/directory"][..], "/no/such/directory"),
        (&["serve", "/dev/null"], "not a directory"),
        (&["ss", "--socket", "/no/such/socket"], "/no/such/socket: there is no such socket"),
        (&["ss", "--socket", "/dev/null"], "/dev/null: this is not a socket"),
        (&["nstat", "--socket", "4194305"], "no stack is running in process 4194305"),
        (&["send", "10.9.0.1"], "write HOST:PORT"),
        (
            &["serve", ".", "--address", "10.9.0.2/24", "--address", "10.8.0.2/24"],
            "one for IPv4 and one for IPv6",
        ),
        (&["serve", ".", "--tun", "a/b"], "\"a/b\" is not an interface name"),
        (&["serve", ".", "--tun", ".."], "\"..\" is not an interface name"),
        (&["serve", ".", "--tun", "eth0:1"], "\"eth0:1\" is not an interface name"),
        (&["serve", ".", "--tun", "taut%d"], "--tun taut%d is a pattern"),
        (&["recv", "--listen", "10.9.0.3:80"], "--listen 10.9.0.3:80: the stack has no such address"),
        (&["send", "[fd09::1]:7000"], "IPv6"),
        (&["compare", "--congestion", "vegas"], "vegas; choose one of reno, cubic, bbr, dctcp, prague"),
        (&["serve", ".", "--congestion", "vegas"], "vegas; choose one of reno, cubic, bbr, dctcp, prague"),
        (&["send", "10.9.0.1:7000", "--address", "10.9.0.2/32"], "leaves no address"),
        (&["send", "10.9.0.1:7000", "--peer-address", "10.8.0.1"], "not in the network of any --address"),
        // The next step.
        (&["serve", "/dev/null"], "give the directory that has the file"),
        (&["ss", "--socket", "/no/such/socket"], "without --socket, running stacks are found"),
        (&["serve", ".", "--tun", "taut7", "--gateway", "10.9.0.1"], "leave it out, or choose a --device"),
        (&["serve", ".", "--dhcp"], "choose one with --device"),
        (&["send", "10.9.0.1:7000", "--address", "10.9.0.2/32"], "use a shorter prefix, such as 10.9.0.2/24"),
        (&["send", "10.9.0.1:7000", "--peer-address", "10.8.0.1"], "leave it out, or add one of its network"),
        (&["send", "10.9.0.1:7000", "--peer-address", "10.9.0.2"], "choose another one in its network"),
        (&["serve", ".", "--device", "stream:/no/such/socket"], "start its peer first, or have taut make it"),
        (&["serve", ".", "--device", "stream-listen:/dev/null"], "is no socket; choose another path"),
        (&["gateway", "--tun", "taut7", "-t", "auto"], "give the ports, such as -t 8080:80"),
        (&["gateway", "--tun", "taut7", "--dns", "here"], "such as 192.0.2.53"),
        (&["gateway", "--tun", "taut7", "--search", "a.test"], "add `search a.test` there"),
        (&["gateway", "--tun", "taut7", "--", "sh", "-c"], "taut gateway --run -- sh -c"),
        (&["gateway"], "use one of --run -- COMMAND"),
        (&["gateway", "--guest", "fd00::15/48", "--qemu", "/tmp/x"], "write fd00::15/64"),
        (&["addr", "add", "default"], "use `taut route`"),
        (&["route", "add", "default", "by", "10.9.0.1"], "write PREFIX [via ROUTER]"),
        (&["dash", "192.0.2.1:9118"], "`ip addr` lists them"),
        (&["lab", "run", "tsq", "--set", "duration=9999999s"], "scenario tsq: interval: too short"),
        (&["lab", "run", "tsq", "--set", "duration=9999999s"], "(with --set duration=9999999s)"),
    ] {
        let (code, stderr) = fails(args);
        assert_eq!(code, Some(1), "{args:?}: {stderr}");
        assert!(stderr.starts_with("taut: ") && stderr.contains(said), "{args:?}: {stderr}");
    }
}

/// An address that is in use: the port, and how to choose another one.
#[test]
fn a_port_that_is_in_use_is_named_with_the_option() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let at = taken.local_addr().unwrap().to_string();
    for (args, option) in
        [(&["dash", &at][..], "taut dash [ADDRESS:]PORT"), (&["metrics", "--listen", &at], "--listen")]
    {
        let (code, stderr) = fails(args);
        assert_eq!(code, Some(1), "{args:?}: {stderr}");
        let next = format!("choose another port with {option}; `ss -ltnp` shows who has this one");
        assert!(stderr.contains(&format!("cannot listen on {at}")) && stderr.contains(&next), "{stderr}");
    }
}

#[test]
fn a_reader_that_has_gone_ends_a_command_quietly() {
    for args in [
        &["lab", "list"][..],
        &["lab", "list", "--json"],
        &["lab", "schema"],
        &["man"],
        &["completions", "bash"],
        &["metrics"],
        &["gateway", "--show-rules"],
        &["--help"],
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = taut(args).stdout(writer).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), &*stderr), (Some(0), ""), "{args:?}");
    }
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let output = taut(&["lab", "list"]).stdout(full).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr.starts_with("taut: cannot write to standard output: No space left"), "{stderr}");
}

#[test]
fn help_has_an_example() {
    for command in ["compare", "send", "recv", "serve", "get", "ss", "nstat", "sysctl", "explain"] {
        let output = taut(&[command, "--help"]).output().unwrap();
        assert!(output.status.success());
        assert!(String::from_utf8_lossy(&output.stdout).contains("Example"), "{command}");
    }
}
