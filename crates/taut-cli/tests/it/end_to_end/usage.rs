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
    ] {
        let (code, stderr) = fails(args);
        assert_eq!(code, Some(1), "{args:?}: {stderr}");
        assert!(stderr.starts_with("taut: ") && stderr.contains(said), "{args:?}: {stderr}");
    }
}

#[test]
fn help_has_an_example() {
    for command in ["compare", "send", "recv", "serve", "get", "ss", "nstat", "sysctl", "explain"] {
        let output = taut(&[command, "--help"]).output().unwrap();
        assert!(output.status.success());
        assert!(String::from_utf8_lossy(&output.stdout).contains("Example"), "{command}");
    }
}
