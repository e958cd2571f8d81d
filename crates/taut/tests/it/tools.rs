//! The programs with which people look at a network, against a stack over a TUN and over a TAP, and beside
//! them against Linux over a pair of Ethernet interfaces: `ping`, `ping -f`, large pings with DF and without,
//! `arping`, `ndisc6`, `traceroute`. What they say must be the same.
#![cfg(target_os = "linux")]

use std::process::{Command, Stdio};

use taut::Stack;
use taut::device::{Frames, FramesOptions, Interface, TunOptions};
use taut_testbed::{Kernel, Subnet, eventually, live};

const NET: Subnet = Subnet(9);
const V4: &str = "10.9.0.2";
const V6: &str = "fd09::2";

/// Who answers.
enum Near {
    Linux(Kernel),
    /// Over a TUN, or a TAP.
    Taut(Stack),
}

/// A host at 10.9.0.2 and fd09::2, and the kernel that looks at it.
struct Pair {
    name: &'static str,
    /// The far kernel's interface to it.
    interface: &'static str,
    near: Near,
    far: Kernel,
}

fn linux() -> Pair {
    let (near, far) = (Kernel::new().unwrap(), Kernel::new().unwrap());
    near.veth(&far, NET, 1_500).unwrap();
    Pair { name: "Linux", interface: "veth0", near: Near::Linux(near), far }
}

fn with_addresses(builder: taut::StackBuilder) -> Stack {
    NET.near().iter().fold(builder, |builder, own| builder.address(&own.to_string())).build().unwrap()
}

fn tun() -> Pair {
    let far = Kernel::new().unwrap();
    let tun = far.tun(&NET.far(), &TunOptions::default()).unwrap();
    let near = Near::Taut(with_addresses(Stack::builder().device(tun)));
    Pair { name: "taut over a TUN", interface: "taut0", near, far }
}

fn tap() -> Pair {
    let far = Kernel::new().unwrap();
    let tap = far.enter(|| Frames::tap("tap0", &NET.near(), &FramesOptions::default())).unwrap().unwrap();
    let near = Near::Taut(with_addresses(Stack::builder().device(tap)));
    let configure = || {
        let interface = Interface::open("tap0").unwrap();
        interface.set_up().unwrap();
        NET.far().into_iter().for_each(|address| interface.add_address(address).unwrap());
    };
    far.enter(configure).unwrap();
    Pair { name: "taut over a TAP", interface: "tap0", near, far }
}

impl Pair {
    /// What a program says, errors included.
    fn says(&self, line: &str) -> String {
        let mut words = line.split_whitespace();
        let mut command = Command::new(words.next().unwrap());
        command.args(words).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = self.far.namespace.spawn(&mut command).unwrap();
        let output = child.wait_with_output().unwrap();
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
    }

    /// Waits until both ends know their addresses: Linux checks those of IPv6 first.
    fn wait(&self) {
        for to in [V4, V6] {
            eventually("it answers", || {
                self.says(&format!("ping -n -c 1 -W 1 {to}")).contains(" 0% packet loss")
            });
        }
        if let Near::Linux(near) = &self.near {
            assert!(near.run("ip address").unwrap().contains(V4));
        }
    }

    /// How many pings left and how many were answered; or why they did not leave.
    fn ping(&self, arguments: &str) -> String {
        let said = self.says(&format!("ping -n {arguments}"));
        let line = said.lines().find(|line| line.contains("packets transmitted"));
        let mut summary = line.unwrap_or_else(|| panic!("{arguments}: {said}")).split(", ");
        let mut counts: Vec<&str> = summary.by_ref().take(2).collect();
        // Until a deadline it sends more than `-c` says, if as many have not been answered.
        if let Some((wanted, _)) = arguments.split_once(" -w ") {
            let last =
                |text: &str| text.split(' ').filter_map(|word| word.parse::<u32>().ok()).next_back().unwrap();
            return format!("{} received", last(wanted).min(last(counts[1])));
        }
        // A stack's name for an error, and the MTU.
        counts.extend(said.lines().find_map(|line| line.split_once("rror: ")).map(|(_, why)| why));
        counts.join(", ")
    }

    /// What a traceroute shows: who answers at which hop, without the times.
    fn trace(&self, arguments: &str) -> String {
        let said = self.says(&format!("traceroute -n -q 1 -w 5 {arguments}"));
        let hops = said.lines().skip(1).map(|line| {
            let words = line.split_whitespace();
            words
                .filter(|word| *word != "ms" && !word.contains('.') || *word == V4)
                .collect::<Vec<_>>()
                .join(" ")
        });
        hops.collect::<Vec<_>>().join("; ")
    }
}

/// Everything that works on each link.
fn over_ip(pair: &Pair) -> Vec<(String, String)> {
    let mut said = Vec::new();
    for to in [V4, V6] {
        let pings = [
            "-c 5 -w 30 -i 0.1",
            "-f -c 3000 -w 30",
            "-c 3 -w 30 -i 0.1 -s 8000 -M dont",
            "-c 3 -i 0.1 -s 8000 -M do -W 1",
            "-c 3 -w 30 -i 0.1 -s 1400 -M do",
            "-c 3 -w 30 -i 0.1 -s 65000",
            "-c 3 -w 30 -i 0.1 -p ff00 -t 1",
        ];
        said.extend(pings.map(|arguments| {
            let line = format!("{arguments} {to}");
            (format!("ping {line}"), pair.ping(&line))
        }));
        // By UDP to closed ports, by echo requests, and by SYNs to a closed port.
        said.extend(["", "-I", "-T -p 9"].map(|how| {
            let line = format!("{how} {to}");
            (format!("traceroute {line}"), pair.trace(&line))
        }));
    }
    said
}

/// What belongs to Ethernet.
fn over_ethernet(pair: &Pair) -> Vec<(String, String)> {
    let interface = pair.interface;
    let station = |said: &str| {
        // The station is the host's own business.
        let is_station = |word: &&str| word.len() == 17 && word.matches(':').count() == 5;
        let clean = |word: &str| word.trim_matches(['[', ']']).to_owned();
        said.split_whitespace().map(clean).find(|word| is_station(&word.as_str()))
    };
    let count = |said: &str| said.matches("reply from").count();
    let asked = pair.says(&format!("arping -c 3 -w 5 -I {interface} {V4}"));
    let other = pair.says(&format!("arping -c 2 -w 2 -I {interface} 10.9.0.77"));
    // Somebody has it already.
    let taken = pair.says(&format!("arping -D -c 2 -w 3 -I {interface} {V4}"));
    let mut said = vec![
        ("arping".to_owned(), format!("{} replies, a station: {}", count(&asked), station(&asked).is_some())),
        ("arping of nobody".to_owned(), format!("{} replies", count(&other))),
        ("arping -D".to_owned(), format!("{} replies", count(&taken))),
    ];
    let found = pair.says(&format!("ndisc6 -r 3 -w 3000 {V6} {interface}"));
    let nobody = pair.says(&format!("ndisc6 -r 1 -w 1000 fd09::77 {interface}"));
    let answered =
        |said: &str| format!("station: {}, {}", station(said).is_some(), said.contains("from fd09::2"));
    said.push(("ndisc6".to_owned(), answered(&found)));
    said.push(("ndisc6 of nobody".to_owned(), answered(&nobody)));
    // Both programs saw the same station.
    let (by_arp, by_nd) = (station(&asked).unwrap(), station(&found).unwrap());
    assert!(by_arp.eq_ignore_ascii_case(&by_nd), "{by_arp}, {by_nd}");
    said
}

#[track_caller]
fn assert_same(ours: &Pair, said: &[(String, String)], linux: &[(String, String)]) {
    let differ: Vec<_> = said.iter().zip(linux).filter(|(ours, linux)| ours != linux).collect();
    assert!(differ.is_empty() && said.len() == linux.len(), "{}, and Linux: {differ:#?}", ours.name);
}

#[test]
fn a_stack_answers_ping_and_traceroute_as_linux_does() {
    if !live::ready(&["ping", "traceroute"]) {
        return;
    }
    let linux = linux();
    linux.wait();
    let expected = over_ip(&linux);
    expected.iter().for_each(|(line, said)| println!("{line}: {said}"));
    // The comparison would hold for hosts that do not answer, too.
    let of = |line: &str| expected.iter().find(|(other, _)| other.starts_with(line)).unwrap().1.clone();
    assert_eq!(of("ping -f -c 3000 -w 30 10"), "3000 received");
    assert_eq!(of("traceroute -I 10"), "1 10.9.0.2");
    for pair in [tun(), tap()] {
        pair.wait();
        assert_same(&pair, &over_ip(&pair), &expected);
        let Near::Taut(stack) = &pair.near else { panic!("a stack") };
        assert!(stack.counters().icmp_out_echo_reps > 6_000);
    }
}

#[test]
fn a_stack_answers_arping_and_ndisc6_as_linux_does() {
    if !live::ready(&["arping", "ndisc6"]) {
        return;
    }
    let linux = linux();
    linux.wait();
    let expected = over_ethernet(&linux);
    expected.iter().for_each(|(line, said)| println!("{line}: {said}"));
    assert_eq!(expected[0].1, "3 replies, a station: true");
    let tap = tap();
    tap.wait();
    assert_same(&tap, &over_ethernet(&tap), &expected);
}
