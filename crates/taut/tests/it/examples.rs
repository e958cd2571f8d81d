//! Every example runs and shows what its documentation says. `cargo test` builds the examples together with
//! this test.
#![cfg(all(feature = "control", feature = "tokio"))]

use std::io::{self, BufRead, BufReader, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, PoisonError};

use custom_device::{Outcome, Sample, WORKER_BPS, transfer};
use taut::device::LinkCaps;
use taut_testbed::{Kernel, live};

#[path = "../../examples/custom_device.rs"]
#[allow(dead_code, reason = "its `main` runs as a program")]
mod custom_device;

/// One at a time: they measure rates.
static TURN: Mutex<()> = Mutex::new(());

/// The path of an example's program, which `cargo test` has built.
fn program(name: &str) -> Command {
    let test = std::env::current_exe().unwrap();
    let program = test.parent().unwrap().parent().unwrap().join("examples").join(name);
    assert!(program.exists(), "{} is not built: `cargo test -p taut` builds it", program.display());
    Command::new(program)
}

/// The output of an example.
fn run(name: &str, args: &[&str]) -> String {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let output = program(name).args(args).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name} {args:?}: {}, {error}", output.status);
    String::from_utf8(output.stdout).unwrap()
}

/// Its error message for these arguments.
fn error(name: &str, args: &[&str]) -> String {
    let output = program(name).args(args).output().unwrap();
    assert!(!output.status.success(), "{name} {args:?} succeeded");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn the_first_example_is_that_of_the_readme() {
    assert_eq!(run("hello", &[]), "hello\n");
    let readme = concat!(env!("CARGO_MANIFEST_DIR"), "/../../README.md");
    let readme = std::fs::read_to_string(readme).unwrap();
    let (_, program) = include_str!("../../examples/hello.rs").split_once("\n\n").unwrap();
    assert!(
        readme.contains(&format!("```rust\n{program}```\n")),
        "README.md shows another program than examples/hello.rs"
    );
}

#[test]
fn client_fetches_a_page_over_a_channel() {
    let said = run("client", &[]);
    assert!(said.starts_with("HTTP/1.0 200 OK\r\n\r\nHello, 10.9.0.2:") && said.ends_with(".\n"), "{said:?}");
    assert!(error("client", &["taut0"]).contains("ADDRESS:PORT"));
}

#[test]
fn echo_server_sends_back_what_it_gets() {
    let said = run("echo_server", &[]);
    assert!(
        said.starts_with("sent \"hello\", got \"hello\" back\nsent \"goodbye\", got \"goodbye\" back\n"),
        "{said:?}"
    );
}

#[test]
fn web_server_answers_over_tls() {
    let said = run("web_server", &[]);
    assert_eq!(said.matches("HTTP/1.1 200 OK\r\n").count(), 2, "{said:?}");
    assert!(said.contains("\r\n\r\nHello.\n") && said.contains("\r\n\r\n144\n"), "{said:?}");
}

/// docs/guide/adapters.md has a line of each; those of examples/adapters are tested there.
#[test]
fn other_libraries_run_over_a_stack() {
    for (name, expected) in [
        ("futures_io", "5 bytes echoed: hello\n"),
        ("http_client", "200 OK: b\"hello\"\n"),
        ("tower_timeout", "hello\nrequest timed out\n"),
        ("websocket", "101 Switching Protocols: hello\n"),
    ] {
        assert_eq!(run(name, &[]), expected, "{name}");
    }
}

/// A server, and its output. It ends when dropped.
struct Server {
    child: Child,
    /// Read no further, but open: the server panics when it cannot print.
    _printed: BufReader<ChildStdout>,
}

impl Server {
    /// In the namespace, and it listens.
    fn start(kernel: &Kernel, name: &str) -> Self {
        let mut command = program(name);
        let mut child = kernel.namespace.spawn(command.arg("taut0").stdout(Stdio::piped())).unwrap();
        let (mut line, mut printed) = (String::new(), BufReader::new(child.stdout.take().unwrap()));
        printed.read_line(&mut line).unwrap();
        assert!(line.starts_with("listening at "), "{line:?}");
        Self { child, _printed: printed }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The same programs on a TUN, with the kernel's TCP at the other end.
#[test]
fn on_a_tun() {
    if !live::ready(&["curl"]) {
        return;
    }
    let kernel = match Kernel::new() {
        Ok(kernel) => kernel,
        Err(error) => return live::skip(&format!("no network namespace: {error}")),
    };
    let server = Server::start(&kernel, "web_server");
    assert_eq!(kernel.run("curl --silent --insecure https://10.9.0.2/square/9").unwrap(), "81\n");
    drop(server);
    let server = Server::start(&kernel, "echo_server");
    let echoed = kernel.enter(|| {
        let mut stream = TcpStream::connect("10.9.0.2:7")?;
        stream.write_all(b"over a TUN")?;
        stream.shutdown(Shutdown::Write)?;
        io::read_to_string(stream)
    });
    assert_eq!(echoed.unwrap().unwrap(), "over a TUN");
    drop(server);
    let page = kernel.enter(|| TcpListener::bind("0.0.0.0:8000")).unwrap().unwrap();
    let client =
        kernel.thread("client", || program("client").args(["taut0", "10.9.0.1:8000", "/page"]).output());
    let (stream, from) = page.accept().unwrap();
    assert_eq!(from.ip().to_string(), "10.9.0.2");
    let mut request = BufReader::new(stream);
    let mut line = String::new();
    request.read_line(&mut line).unwrap();
    assert_eq!(line, "GET /page HTTP/1.0\r\n");
    request.into_inner().write_all(b"the page").unwrap();
    // The connection ends with `stream`.
    let output = client.unwrap().join().unwrap().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "the page", "{output:?}");
}

/// What the small queue holds at most just after it has let a packet through: less than its limit before,
/// max(two packets, rate >> 10), and that packet. The rate is the pacing rate (Linux:
/// `tcp_small_queue_check`, `sk_pacing_shift` 10), and at most 9/8 of the delivery rate. Retransmissions have
/// twice the limit; none are needed here.
fn bound(truesize: u64, rate: u64) -> u64 {
    (2 * truesize).max(rate / 1_024) + truesize
}

/// Samples with more below TCP than the rule allowed at any time of the 50 before, from which such bytes may
/// be.
fn above(samples: &[Sample], truesize: u64) -> usize {
    let is_above = |&end: &usize| {
        let lately = &samples[end.saturating_sub(50)..=end];
        let rate = lately.iter().map(|sample| sample.rate).max().unwrap();
        samples[end].charged > bound(truesize, rate)
    };
    (0..samples.len()).filter(is_above).count()
}

#[track_caller]
fn assert_kept_short(outcome: &Outcome, truesize: u64) {
    let Outcome { whole_bps, samples, charged_at_end, tickets, .. } = outcome;
    // How much of the rate is left depends on who else has the processors.
    assert!(*whole_bps < 1.01 * WORKER_BPS, "{whole_bps} bit/s");
    assert!(samples.len() > 500, "{} samples", samples.len());
    let above = above(samples, truesize);
    assert!(above * 100 <= samples.len(), "{above} of {} samples are above the limit", samples.len());
    // Short, but not so short that the worker has none to work on while the next one comes.
    let most = samples.iter().map(|sample| sample.charged).max().unwrap();
    assert!(most >= 2 * truesize, "{most}");
    assert_eq!(*charged_at_end, 0, "bytes whose tickets are lost");
    let (out, back) = (tickets.out.load(Relaxed), tickets.back.load(Relaxed));
    assert_eq!(out, back, "tickets out and back");
}

#[test]
fn custom_device_keeps_a_short_queue_of_packets() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let outcome = transfer(LinkCaps::plain(1_500), 20_000_000, "delivered").unwrap();
    // 1,500 bytes less headers of IP (20) and TCP (20) and timestamps (12), and what a packet is charged in
    // addition.
    assert_kept_short(&outcome, 1_500 - 52 + 1_024);
    let (overtaken, back) = (outcome.tickets.overtaken.load(Relaxed), outcome.tickets.back.load(Relaxed));
    assert!(overtaken * 4 > back, "{overtaken} of {back} tickets came back after a newer one");
}

#[test]
fn custom_device_keeps_a_short_queue_of_super_packets() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let outcome = transfer(LinkCaps::offloading(1_500), 20_000_000, "delivered").unwrap();
    // 45 segments of 1,448 bytes: as many as fit into 65,536 bytes less 320 for headers, and one.
    assert_kept_short(&outcome, 45 * 1_448 + 1_024);
    assert!(outcome.tickets.overtaken.load(Relaxed) > 0);
}

/// No more payload is below TCP than the measured limit, in super-packets, too. How long that lasts depends
/// on who else has the processors, because tickets are late then.
#[test]
fn custom_device_measures_its_own_completions() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    for caps in [LinkCaps::plain(1_500), LinkCaps::offloading(1_500)] {
        let outcome = transfer(caps, 20_000_000, "auto").unwrap();
        let Outcome { samples, charged_at_end, tickets, .. } = outcome;
        let limits: Vec<u64> = samples.iter().filter_map(|sample| sample.measured).map(|of| of.0).collect();
        assert_eq!(limits.len(), samples.len(), "measured from the first moment");
        // A packet leaves if half of it fits; the limit may have risen and fallen between two samples.
        let most = limits.iter().max().unwrap() + tickets.largest.load(Relaxed) / 2;
        let above = samples.iter().filter(|sample| sample.payload > most).count();
        assert!(above * 100 <= samples.len(), "{above} of {} samples are above {most}", samples.len());
        assert_eq!(charged_at_end, 0, "bytes whose tickets are lost");
    }
}

#[test]
fn custom_device_prints_its_figures() {
    let said = run("custom_device", &["2"]);
    for words in [
        "2 MB in packets, no small queue (taut.tsq=off):",
        "2 MB in packets, measured (taut.tsq=auto):",
        "2 MB in super-packets, a constant of a millisecond (taut.tsq=delivered):",
        "completions take",
        "goodput",
        "below TCP",
        "ms of the worker's rate",
        "small queue",
    ] {
        assert!(said.contains(words), "no {words:?} in\n{said}");
    }
    assert_eq!(said.matches("at the end       0 bytes charged").count(), 6, "{said}");
}
