//! What the parser makes of each form of the notation, and what it says to what is none.

use taut_core::Duration;
use taut_wire::{Ecn, Flags, Unreachable};

use crate::script::{ACCECN0, ACCECN1, Call, Opt, Packet, Script, TcpSpec, Value, What, When};

fn events(text: &str) -> Vec<(When, What)> {
    let script = Script::parse("test.pkt", text).unwrap();
    script.events.into_iter().map(|event| (event.when, event.what)).collect()
}

fn one(text: &str) -> (When, What) {
    events(text).pop().unwrap()
}

#[track_caller]
fn segment(text: &str) -> TcpSpec {
    match one(text).1 {
        What::Inbound(Packet::Tcp(spec)) | What::Outbound(spec) => spec,
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn call(text: &str) -> Call {
    match one(text).1 {
        What::Call(call) => call,
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn error(text: &str) -> String {
    Script::parse("test.pkt", text).unwrap_err().to_string()
}

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

#[test]
fn times_in_every_form() {
    for (text, when) in [
        ("0", When::At(ms(0))),
        ("1.25", When::At(ms(1_250))),
        ("+0", When::After(ms(0))),
        ("+.1", When::After(ms(100))),
        ("+0.000001", When::After(Duration::from_micros(1))),
        ("+.3~+.310", When::AfterBetween(ms(300), ms(310))),
        ("1~2", When::Between(ms(1_000), ms(2_000))),
        ("*", When::Any),
    ] {
        assert_eq!(one(&format!("{text} > . 1:1(0) ack 1")).0, when, "{text}");
    }
}

#[test]
fn blocking_calls_have_an_end() {
    for (text, end) in [
        ("+0...0 f() = 0", When::After(ms(0))),
        ("+.1...0.25 f() = 0", When::After(ms(250))),
        ("+0...+.2 f() = 0", When::After(ms(200))),
        ("1.0...2.5 f() = 0", When::At(ms(2_500))),
    ] {
        assert_eq!(call(text).end, Some(end), "{text}");
    }
    assert_eq!(call("+0 f() = 0").end, None);
}

#[test]
fn a_segment_with_everything() {
    let text = "+0 < [ect1, ttl 5] 8080 > 5000 SFRPEWUA. 1:1001(1000) ack 7 win 257 urg 3 \
                <mss 1460,sackOK,nop,wscale 8,TS val 1 ecr 2,sack 1:2 4:9,eol>";
    let options = vec![
        Opt::Mss(1_460),
        Opt::SackPermitted,
        Opt::Nop,
        Opt::WindowScale(8),
        Opt::Timestamps { val: 1, ecr: 2 },
        Opt::Sack(vec![(1, 2), (4, 9)]),
        Opt::End,
    ];
    let expected = TcpSpec {
        ecn: Some(Ecn::Ect1),
        ttl: Some(5),
        ports: Some((8_080, 5_000)),
        flags: Flags::from_bits(0x1ff),
        seq: 1,
        len: 1_000,
        ack: Some(7),
        win: Some(257),
        urg: Some(3),
        options: Some(options),
    };
    assert_eq!(segment(text), expected);
    assert_eq!(
        expected.to_string(),
        "[ect1] 8080 > 5000 SFREAPWU. 1:1001(1000) ack 7 win 257 urg 3 \
         <mss 1460,sackOK,nop,wscale 8,TS val 1 ecr 2,sack 1:2 4:9,eol>"
    );
}

#[test]
fn what_is_not_written_is_not_expected() {
    let spec = segment("+0 > . 1:1(0) ack 1");
    assert_eq!((spec.ecn, spec.win, spec.ports, spec.options), (None, None, None, Some(vec![])));
    assert_eq!(segment("+0 > . 1:1(0) ack 1 <...>").options, None);
    assert_eq!(segment("+0 < - 1:1(0)").flags, Flags::NONE);
}

#[test]
fn accurate_ecn_in_its_forms() {
    // RFC 9768 §3.2.2: ACE is AE, CWR and ECE from the most significant bit on; 5 is AE and ECE.
    assert_eq!(segment("+0 > 5. 1:1(0) ack 1").flags, Flags::ACK | Flags::AE | Flags::ECE);
    assert_eq!(segment("+0 < SEWA 0:0(0)").flags, Flags::SYN | Flags::ECE | Flags::CWR | Flags::AE);
    let options = |text: &str| segment(&format!("+0 > . 1:1(0) ack 1 <{text}>")).options.unwrap();
    assert_eq!(options("ECN e1b 1 ceb 2 e0b 3,nop")[0], Opt::AccurateEcn(ACCECN1, vec![1, 2, 3]));
    assert_eq!(options("ECN e0b 9 ceb 8,nop")[0], Opt::AccurateEcn(ACCECN0, vec![9, 8]));
    assert_eq!(options("FO 0a1b,nop,nop")[0], Opt::FastOpen(vec![0x0a, 0x1b]));
    assert_eq!(options("FO,nop,nop")[0], Opt::FastOpen(vec![]));
    assert_eq!(options("FOEXP abcd")[0], Opt::FastOpenExperimental(vec![0xab, 0xcd]));
}

#[test]
fn icmp_errors_quote_a_segment() {
    let icmp = |text: &str| match one(&format!("+0 < icmp {text}")).1 {
        What::Inbound(Packet::Icmp(spec)) => (spec.code, spec.seq, spec.len),
        other => panic!("{other:?}"),
    };
    let big = Unreachable::FragmentationNeeded { mtu: 1_200 };
    assert_eq!(icmp("unreachable frag_needed mtu 1200 [1:1461(1460)]"), (big, 1, 1_460));
    assert_eq!(icmp("packet_too_big mtu 1200 [1:1461(1460)]"), (big, 1, 1_460));
    assert_eq!(icmp("unreachable host_unreachable [0:0(0)]"), (Unreachable::Host, 0, 0));
}

#[test]
fn calls_as_strace_prints_them() {
    let poll = call("+0 poll([{fd=4, events=POLLIN|POLLOUT, revents=POLLOUT}], 1, 0) = 1");
    assert_eq!((poll.name.as_str(), poll.result), ("poll", Value::Int(1)));
    assert_eq!(poll.args[0].to_string(), "[{fd=4, events=POLLIN|POLLOUT, revents=POLLOUT}]");
    let read = call("+0 read(4, ..., 1000) = -1 EAGAIN (Resource temporarily unavailable)");
    assert_eq!((read.result, read.errno.as_deref()), (Value::Int(-1), Some("EAGAIN")));
    let flags = call("+0 fcntl(3, F_GETFL) = 0x2 (flags O_RDWR)");
    assert_eq!(flags.result, Value::Int(2));
    let message = call(
        "+0 recvmsg(4, {msg_name(...)=...,\n msg_iov(1)=[{..., 2000}],\n msg_flags=0,\n msg_control=[{cmsg_level=SOL_TCP, \
         cmsg_data={ee_errno=0}}]}, 0) = 2000",
    );
    let message = &message.args[1];
    assert_eq!(message.field("msg_iov").unwrap().to_string(), "[{..., 2000}]");
    assert_eq!(
        message.field("msg_control").unwrap().to_string(),
        "[{cmsg_level=SOL_TCP, cmsg_data={ee_errno=0}}]"
    );
    let bind = call("+0 bind(3, {sa_family = AF_INET, sin_port = htons(80)}, 16) = 0");
    assert_eq!(bind.args[1].field("sin_port").unwrap().to_string(), "htons(80)");
    assert_eq!(
        call("+0 setsockopt(3, SOL_TCP, TCP_CONGESTION, \"reno\", 4) = 0").args[3].to_string(),
        "\"reno\""
    );
}

#[test]
fn options_comments_commands_and_code() {
    let text = "--tolerance_usecs=1000\n--strict_segments\n// a comment\n/* another\n one */ `sysctl -q a=b`\n\
                0 socket(..., SOCK_STREAM, 0) = 3 // behind\n# of a shell\n+0 %{ assert tcpi_x == 1\nprint(2) }%\n`end`\n";
    let script = Script::parse("test.pkt", text).unwrap();
    let options: Vec<_> =
        script.options.iter().map(|(line, name, value)| (*line, &**name, &**value)).collect();
    assert_eq!(options, [(1, "tolerance_usecs", "1000"), (2, "strict_segments", "")]);
    assert_eq!(script.events.iter().map(|event| event.line).collect::<Vec<_>>(), [5, 6, 8, 10]);
    assert!(matches!(&script.events[0].what, What::Shell(text) if text == "sysctl -q a=b"));
    assert!(
        matches!(&script.events[2].what, What::Code(text) if text.trim() == "assert tcpi_x == 1\nprint(2)")
    );
    assert_eq!(script.events[3].when, When::Unsaid);
}

#[test]
fn errors_name_the_place_and_what_was_expected() {
    for (text, expected) in [
        (
            "\n+0 > 1:1(0)",
            "test.pkt:2: expected flags: any of S F R P . U E W A, a digit for ACE, or -, found `1:1(0)`",
        ),
        (
            "+0 > Q 1:1(0)",
            "test.pkt:1: expected flags: any of S F R P . U E W A, a digit for ACE, or -, found `Q 1:1(0)`",
        ),
        ("+0 > . 1:5(3) ack 1", "test.pkt:1: 1:5 is not 3 bytes"),
        ("+0 > . 1:1(0)", "test.pkt:1: `ack N` and the flag `.` belong together"),
        ("+0 < . 1:1(0) ack 1 win 70000", "test.pkt:1: 70000 is out of range here"),
        ("+0 < udp (10)", "test.pkt:1: there is no UDP in this stack"),
        ("+0 < . 1:1(0) ack 1 <mss>", "test.pkt:1: expected a number, found `>`"),
        (
            "+0 < . 1:1(0) ack 1 <what>",
            "test.pkt:1: expected a TCP option: mss, wscale, sackOK, sack, TS, nop, eol, FO, FOEXP, ECN, md5 or kind, found `what>`",
        ),
        ("read(3) = 0", "test.pkt:1: an event begins with its time, such as +0 or +.1"),
        (
            "+0...1 > . 1:1(0) ack 1",
            "test.pkt:1: only a system call can last: `start...end` belongs to calls",
        ),
        ("+.2~+.1 > . 1:1(0) ack 1", "test.pkt:1: the time ends before it begins"),
        ("+0 read(3, ...", "test.pkt:1: expected `,` or `)`, found the end of the line"),
        ("+0 `never", "test.pkt:1: ``` is missing"),
        (
            "+0 ?",
            "test.pkt:1: expected a packet (< or >), a system call, `commands` or %{ code }%, found `?`",
        ),
        (
            "+.1234567890 > . 1:1(0) ack 1",
            "test.pkt:1: expected a time in seconds, with at most nine decimals, found `.1234567890 > . 1:1(0) ack 1`",
        ),
        ("0 socket() = 3\n--late", "test.pkt:2: an option belongs at the top, before the first event"),
    ] {
        assert_eq!(error(text), expected, "{text}");
    }
}

#[test]
fn pkt_11_no_text_makes_the_parser_panic() {
    assert!(
        error(&format!("0 f({}", "[".repeat(100_000))).ends_with("more than 20 values within each other")
    );
    // Every prefix of a script with all forms, and every single character left out.
    let text = "--a=b\n+0...1 f(..., [{a=1|B, c(2)=\"d\"}], -0x1f) = -1 E (x)\n+.1~.2 < [ce] 1 > 2 SA5. 0:9(9) ack 1 win 2 urg 3 \
                <mss 1,sack 1:2,TS val 1 ecr 2,FO ab,ECN e0b 1,kind 9 00>\n* > . 1:1(0) ack 1 <...>\n`x`\n%{ y }%\n\
                +0 < icmp unreachable frag_needed mtu 9 [1:2(1)]\n";
    assert!(Script::parse("test.pkt", text).is_ok());
    for cut in 0..text.len() {
        let _ = Script::parse("test.pkt", &text[..cut]);
        let _ = Script::parse("test.pkt", &format!("{}{}", &text[..cut], &text[cut + 1..]));
        let _ = Script::parse("test.pkt", &format!("{}é{}", &text[..cut], &text[cut..]));
    }
}
