//! What a script that does not pass says: file, line, and both packets in the script's notation. And that the
//! runner does notice: each case is a script that passes, with one thing changed.

use taut_script::{Config, Failure, IpVersion, Passed, Script, run};

fn result(text: &str) -> Result<Passed, Failure> {
    Script::parse("t.pkt", text).and_then(|script| run(&script, &Config::default()))
}

#[track_caller]
fn failure(text: &str) -> String {
    result(text).unwrap_err().to_string()
}

/// A connection with the number 4, and 1000 bytes written at 0.1 s.
const WRITTEN: &str = "0 socket(..., SOCK_STREAM, IPPROTO_TCP) = 3
+0 bind(3, ..., ...) = 0
+0 listen(3, 1) = 0
+0 < S 0:0(0) win 32792 <mss 1000>
+0 > S. 0:0(0) ack 1 <mss 1460>
+.1 < . 1:1(0) ack 1 win 32792
+0 accept(3, ..., ...) = 4
+0 write(4, ..., 3000) = 3000
";

#[test]
fn the_script_passes_that_the_others_change() {
    assert_eq!(result(&format!("{WRITTEN}+0 > P. 1:3001(3000) ack 1\n")).unwrap().elapsed.as_millis(), 100);
}

#[test]
fn pkt_02_a_packet_that_differs_is_shown_beside_the_expected_one() {
    for (line, differs) in [
        ("+0 > . 1:3001(3000) ack 1", "flags"),
        ("+0 > P. 2:3002(3000) ack 1", "sequence number"),
        ("+0 > P. 1:3001(3000) ack 2", "ack"),
        ("+0 > P. 1:3001(3000) ack 1 win 1", "window"),
        ("+0 > [ect0] P. 1:3001(3000) ack 1", "ECN"),
        ("+0 > P. 1:3001(3000) ack 1 <nop,nop,TS val 1 ecr 1>", "options"),
        ("+0 > 1 > 2 P. 1:3001(3000) ack 1", "ports"),
        ("+0 > P. 1:3501(3500) ack 1", "length"),
        // One byte more than a segment is no place where a device cuts.
        ("+0 > P. 1:1002(1001) ack 1", "length"),
    ] {
        let failure = failure(&format!("{WRITTEN}{line}\n"));
        let first = format!("t.pkt:9: the packet differs in {differs}\n");
        assert!(failure.starts_with(&first), "{line}: {failure}");
    }
    assert_eq!(
        failure(&format!("{WRITTEN}+.1 > P. 1:3001(3000) ack 1 win 9\n")),
        "t.pkt:9: the packet differs in time, window\n  \
         expected: > P. 1:3001(3000) ack 1 win 9  at 0.200000\n  \
         actual:   > P. 1:3001(3000) ack 1 win 65535  at 0.100000"
    );
}

#[test]
fn pkt_03_time_is_compared_within_the_tolerance() {
    // The timeout is 300 ms: RFC 6298 §2.2 with one sample of 100 ms. The first packet is the write's.
    let script = |options: &str, time: &str| {
        let text = format!(
            "{options}`sysctl -q net.ipv4.tcp_early_retrans=0`\n{WRITTEN}+0 > P. 1:3001(3000) ack 1\n"
        );
        result(&format!("{text}{time} > . 1:1001(1000) ack 1\n"))
    };
    for passes in ["+.3", "+.304", "+.296", "+.2~+.4", "+.31~+.4", "*", "0.4", "0.3~0.5"] {
        let happened = script("", passes);
        assert_eq!(happened.is_ok(), passes != "+.31~+.4", "{passes}: {happened:?}");
    }
    for fails in ["+.305", "+.295", "0.405", "+.1~+.2"] {
        assert!(script("", fails).unwrap_err().what.contains("differs in time"), "{fails}");
    }
    assert!(script("--tolerance_usecs=10000\n", "+.309").is_ok());
    assert!(script("--tolerance_usecs=100\n", "+.301").is_err());
}

#[test]
fn pkt_04_segments_are_joined_and_cut_unless_they_are_strict() {
    let all = |options: &str, packets: &str| result(&format!("{options}{WRITTEN}{packets}"));
    let cut = "+0 > . 1:1001(1000) ack 1\n+0 > P. 1001:3001(2000) ack 1\n";
    assert!(all("", cut).is_ok());
    assert!(all("--strict_segments\n", cut).unwrap_err().what.contains("differs in flags, length"));
    // Two writes that leave one after the other, as one packet of the script.
    let more = "+0 setsockopt(4, SOL_TCP, TCP_NODELAY, [1], 4) = 0\n+0 write(4, ..., 100) = 100\n";
    let joined = format!("{more}+0 > P. 1:3101(3100) ack 1\n");
    assert!(all("", &joined).is_ok());
    assert!(all("--strict_segments\n", &joined).unwrap_err().what.contains("differs in length"));
}

#[test]
fn pkt_05_a_packet_that_never_comes_and_one_that_nobody_expects() {
    let base = format!("{WRITTEN}+0 > P. 1:3001(3000) ack 1\n+0 < . 1:1(0) ack 3001 win 32792\n");
    assert_eq!(
        failure(&format!("{base}+1 > . 3001:3001(0) ack 1\n")),
        "t.pkt:11: the stack sent no packet\n  expected: > . 3001:3001(0) ack 1  at 1.100000\n  \
         actual:   none; the connection is ESTAB, blocked: no-data"
    );
    // The ACK of this data was not mentioned: it meets the next expectation.
    let silent = failure(&format!(
        "{base}+0 < P. 1:101(100) ack 3001 win 32792\n+1 close(4) = 0\n+0 > R. 3001:3001(0) ack 101\n"
    ));
    assert!(silent.contains("actual:   > . 3001:3001(0) ack 101  at 0.1"), "{silent}");
}

#[test]
fn pkt_06_results_errors_and_what_calls_write_are_compared() {
    for (line, expected) in [
        ("+0 write(4, ..., 10) = 11", "write returned 10\n  expected: 11\n  actual:   10"),
        (
            "+0 recv(4, ..., 10, MSG_DONTWAIT) = -1 EINVAL (Invalid argument)",
            "recv returned -1 EAGAIN (Resource temporarily unavailable)\n  expected: -1 EINVAL\n  \
             actual:   -1 EAGAIN (Resource temporarily unavailable)",
        ),
        (
            "+0 read(4, ..., 10) = 10",
            "read would block; give it the time of its return, as in +0...0.1 read(…)",
        ),
        ("+0 getsockopt(4, SOL_SOCKET, SO_ERROR, [5], [4]) = 0", "getsockopt: SO_ERROR is 0, expected 5"),
        ("+0 ioctl(4, SIOCOUTQ, [1]) = 0", "ioctl: SIOCOUTQ gives 3000, expected 1"),
        (
            "+0 poll([{fd=4, events=POLLOUT, revents=POLLIN}], 1, 0) = 1",
            "poll: revents of 4 is POLLOUT, expected POLLIN",
        ),
        (
            "+0 setsockopt(4, SOL_TCP, TCP_MD5SIG, [1], 4) = 0",
            "setsockopt: the stack's sockets have no option TCP_MD5SIG",
        ),
        ("+0 send(4, ..., 1, MSG_OOB) = 1", "send: the stack's sockets have no MSG_OOB"),
        ("+0 mmap(4) = 0", "there is no call mmap here; docs/reference/packets.md has the list"),
        ("+0 read(4, ..., WHAT) = 0", "WHAT is no constant that is known here"),
        ("+0 read(4) = 0", "read has 1 arguments only"),
        ("+0 write(4, ..., 99999999999) = 0", "99999999999 bytes: a buffer has at most 1073741824"),
        ("+0 socket(..., SOCK_STREAM, 0) = 4", "descriptor 4 is open already"),
        (
            "+0 %{ assert tcpi_snd_cwnd == 11 }%",
            "assertion failed: assert tcpi_snd_cwnd == 11\n  tcpi_snd_cwnd is 10",
        ),
        ("+0 %{ assert tcpi_nothing == 1 }%", "the stack reports no tcpi_nothing"),
        (
            "+0 < . 1:1(0) ack 1 win 1 <mss 5,nop>",
            "the options take 5 bytes: a header has room for 40, in steps of 4; `nop` takes one byte",
        ),
        ("0.05 close(4) = 0", "time goes backwards: this event is before the one above"),
    ] {
        assert_eq!(failure(&format!("{WRITTEN}{line}\n")), format!("t.pkt:9: {expected}"), "{line}");
    }
}

#[test]
fn pkt_07_blocking_calls_must_return_in_time() {
    let script = |end: &str, at: &str| {
        result(&format!(
            "{WRITTEN}+0...{end} read(4, ..., 100) = 50\n{at} < P. 1:51(50) ack 1 win 32792\n+1 close(4) = 0\n"
        ))
    };
    assert_eq!(script("0.1", "+.1").map(|_| ()), Ok(()));
    let late = script("0.1", "+.2").unwrap_err();
    assert_eq!(
        late.to_string(),
        "t.pkt:10: line 9: read was to return at 0.200000, and returned at 0.300000"
    );
    let never = failure(&format!("{WRITTEN}+0...0.1 read(4, ..., 100) = 50\n+1 close(4) = 0\n"));
    assert_eq!(never, "t.pkt:10: read of line 9 has not returned by then");
    let early = failure(&format!("{WRITTEN}+0...0.1 write(4, ..., 100) = 100\n"));
    assert_eq!(early, "t.pkt:9: write was to return at 0.200000, and returned at once");
}

#[test]
fn pkt_08_commands_that_cannot_be_honoured_are_errors_with_their_line() {
    for (text, expected) in [
        (
            "`true\nmodprobe tun`",
            "t.pkt:2: `modprobe tun` cannot be honoured: no command is run, and those understood are sysctl, echo to \
             /proc/sys, tc, ip tcp_metrics, sleep, true, and shell scripts of these",
        ),
        (
            "`sysctl -q net.ipv4.tcp_nothing=1`",
            "t.pkt:1: net.ipv4.tcp_nothing = 1 cannot be honoured: the stack has no such setting",
        ),
        (
            "`sysctl -q net.ipv4.tcp_dsack=0`",
            "t.pkt:1: net.ipv4.tcp_dsack = 0 cannot be honoured: duplicates are always reported",
        ),
        ("`sysctl -q net.ipv4.tcp_ecn=9`", "t.pkt:1: net.ipv4.tcp_ecn = 9: must be one of 0, 1, 2, 3, 4, 5"),
        ("`./none.sh`", "t.pkt:1: ./none.sh: No such file or directory (os error 2)"),
        ("`tc qdisc add dev tun0 root nothing`", "t.pkt:1: `tc qdisc add dev tun0 root nothing`: "),
        (
            "`ip link set tun0 mtu 900`",
            "t.pkt:1: `ip link set tun0 mtu 900` cannot be honoured: a script has one link and one route",
        ),
        ("`echo 1 > /tmp/x`", "t.pkt:1: /tmp/x is no file below /proc/sys"),
    ] {
        let failure = failure(text);
        assert!(failure.starts_with(expected), "{text}: {failure}");
    }
    for honoured in [
        "`sysctl -q net.ipv4.tcp_dsack=1; sysctl -e -q net.ipv4.tcp_nothing=1`",
        "`sysctl -q net.ipv4.tcp_nothing=1 || true`",
        "`echo 0 > /proc/sys/net/ipv4/tcp_sack`\n%{ assert sysctl('tcp_sack') == 0 }%",
        "`sleep 2`\n%{ assert now == 2 }%",
        "`./set_sysctls.py /proc/sys/net/ipv4/tcp_sack=0`\n`/tmp/sysctl_restore_${PPID}.sh`\n%{ assert sysctl('tcp_sack') == 1 }%",
    ] {
        assert_eq!(result(honoured).map(|_| ()), Ok(()), "{honoured}");
    }
}

#[test]
fn pkt_09_code_prints_and_remembers_and_options_are_checked() {
    let printed = result(&format!(
        "{WRITTEN}+0 %{{ a = tcpi_unacked; print('in flight', a) }}%\n+0 %{{ print(a + 1) }}%\n"
    ));
    assert_eq!(printed.unwrap().output, "in flight 3\n4\n");
    assert_eq!(failure("--nonsense=1\n"), "t.pkt:1: --nonsense cannot be honoured: there is no such option");
    assert_eq!(failure("--mtu=9\n"), "t.pkt:1: --mtu=9: expected 68 to 65535");
    let script =
        Script::parse("t.pkt", "--define=SIZE=7\n0 socket(..., SOCK_STREAM, 0) = SIZE\n+0 close(7) = 0\n")
            .unwrap();
    assert!(run(&script, &Config::default().over(IpVersion::V6)).is_ok());
}

#[test]
fn pkt_10_the_same_script_always_gives_the_same_result() {
    let mut config = Config::default();
    config.verbose = true;
    let text = format!("{WRITTEN}+0 > P. 1:3001(3000) ack 1\n* > . 1:1001(1000) ack 1\n");
    let script = Script::parse("t.pkt", &text).unwrap();
    let first = run(&script, &config);
    assert!(first.as_ref().is_ok_and(|passed| passed.output.contains("> . 1:1001(1000) ack 1")), "{first:?}");
    assert_eq!(first, run(&script, &config));
}
