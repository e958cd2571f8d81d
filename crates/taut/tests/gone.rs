//! The TUN interface is deleted under a running stack: every waiting thread and task gets the reason, and
//! nothing keeps running.
//!
//! A program of its own: it counts the processor time of its process.
#![allow(missing_docs, reason = "tests")]

#[path = "it/net/mod.rs"]
mod net;

use std::io::{self, Read, Write};
use std::sync::{Mutex, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

use net::Net;
use taut::blocking::{TcpListener, TcpStream};
use taut::device::Interface;

/// One at a time: they measure what this process burns.
static TURN: Mutex<()> = Mutex::new(());

/// Longer than anything here takes on a machine that is not stuck.
const PATIENCE: Duration = Duration::from_secs(60);

fn delete(net: &Net) {
    net.kernel.enter(|| Interface::open("taut0").unwrap().delete()).unwrap().unwrap();
}

#[track_caller]
fn assert_told(error: &io::Error) {
    assert_eq!(error.kind(), io::ErrorKind::NetworkDown, "{error}");
    assert!(error.to_string().contains("TUN interface taut0 was deleted"), "{error}");
}

/// CPU time that this process has used, in ticks of 10 ms: `proc_pid_stat(5)`, fields 14 and 15.
fn cpu_ticks() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

#[track_caller]
fn assert_quiet() {
    let before = cpu_ticks();
    thread::sleep(Duration::from_secs(1));
    let burnt = cpu_ticks() - before;
    assert!(burnt <= 5, "{} ms of CPU in a second of nothing to do", burnt * 10);
}

/// Threads that wait, by name; each reports how its wait ended.
struct Waiters {
    ends: mpsc::Receiver<(&'static str, io::Error)>,
    report: mpsc::Sender<(&'static str, io::Error)>,
    count: usize,
}

impl Waiters {
    fn new() -> Self {
        let (report, ends) = mpsc::channel();
        Self { ends, report, count: 0 }
    }

    fn thread(&mut self, name: &'static str, wait: impl FnOnce() -> io::Error + Send + 'static) {
        let report = self.report.clone();
        self.count += 1;
        thread::spawn(move || report.send((name, wait())));
    }

    /// All of them end as they should.
    fn assert_told(self) {
        for _ in 0..self.count {
            let (name, error) = self.ends.recv_timeout(PATIENCE).expect("all waits have ended");
            assert_eq!(error.kind(), io::ErrorKind::NetworkDown, "{name}: {error}");
            assert_told(&error);
        }
    }
}

fn everybody_is_told(build: impl FnOnce(taut::StackBuilder) -> io::Result<taut::Stack> + Send) {
    let net = Net::with(build);
    let (kernel, at) = net.listener(0);
    let mut waiters = Waiters::new();

    let mut reader = TcpStream::connect(&net.stack, at).unwrap();
    let _silent = kernel.accept().unwrap();
    waiters.thread("reader", move || reader.read(&mut [0]).unwrap_err());
    let mut writer = TcpStream::connect(&net.stack, at).unwrap();
    let _deaf = kernel.accept().unwrap();
    waiters.thread("writer", move || {
        loop {
            // Until the peer's window and all buffers are full.
            if let Err(error) = writer.write_all(&[0; 100_000]) {
                return error;
            }
        }
    });
    let listener = TcpListener::bind(&net.stack, "10.7.0.2:80").unwrap();
    waiters.thread("acceptor", move || listener.accept().unwrap_err());
    let stack = net.stack.clone();
    // That address is unused, so no answer comes.
    waiters.thread("connector", move || TcpStream::connect(&stack, "10.7.0.77:80").unwrap_err());

    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let (stack, report) = (net.stack.clone(), waiters.report.clone());
    let (connected, is_connected) = mpsc::channel();
    runtime.spawn(async move {
        use tokio::io::AsyncReadExt;
        let mut reader = taut::TcpStream::connect(&stack, at).await.unwrap();
        connected.send(()).unwrap();
        let error = reader.read(&mut [0]).await.unwrap_err();
        report.send(("asynchronous reader", error)).unwrap();
    });
    is_connected.recv_timeout(PATIENCE).unwrap();
    let (stack, report) = (net.stack.clone(), waiters.report.clone());
    runtime.spawn(async move {
        let listener = stack.listen("10.7.0.2:81".parse().unwrap()).unwrap();
        report.send(("asynchronous acceptor", listener.accept().await.unwrap_err())).unwrap();
    });
    let (stack, report) = (net.stack.clone(), waiters.report.clone());
    runtime.spawn(async move { report.send(("until_closed", stack.until_closed().await)).unwrap() });
    waiters.count += 3;

    thread::sleep(Duration::from_millis(300));
    assert!(net.stack.closed().is_none());
    assert!(waiters.ends.try_recv().is_err(), "all of them wait");
    delete(&net);
    waiters.assert_told();
    assert_told(&net.stack.closed().unwrap());
    // Later calls get it, too.
    assert_told(&TcpStream::connect(&net.stack, at).unwrap_err());
    assert_told(&TcpListener::bind(&net.stack, "10.7.0.2:82").unwrap_err());
    assert_told(&runtime.block_on(net.stack.until_closed()));
    assert_quiet();
}

#[test]
fn everybody_is_told_when_the_interface_is_deleted() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    everybody_is_told(taut::StackBuilder::build);
}

#[test]
fn everybody_is_told_of_every_shard() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    everybody_is_told(|builder| builder.shards(2).build());
}

#[test]
fn everybody_is_told_behind_a_queue() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    everybody_is_told(|builder| builder.link_from("rate 50mbit delay 5ms").build());
}

#[test]
fn everybody_is_told_by_a_task() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let handle = runtime.handle().clone();
    everybody_is_told(move |builder| {
        let _inside = handle.enter();
        builder.build_tokio()
    });
    assert_eq!(runtime.metrics().num_alive_tasks(), 0, "the driver's task has ended");
}

/// The interface may be down for a while, and be up again: nothing has ended.
#[test]
fn an_interface_that_is_down_is_not_gone() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let net = Net::new();
    let (kernel, at) = net.listener(0);
    let mut stream = TcpStream::connect(&net.stack, at).unwrap();
    let (mut accepted, _) = kernel.accept().unwrap();
    let set = |up: bool| {
        let change = || {
            let interface = Interface::open("taut0").unwrap();
            if up { interface.set_up() } else { interface.set_down() }
        };
        net.kernel.enter(change).unwrap().unwrap();
    };
    set(false);
    stream.write_all(b"lost for now").unwrap();
    assert_quiet();
    assert!(net.stack.closed().is_none());
    set(true);
    let mut got = [0; 12];
    accepted.set_read_timeout(Some(PATIENCE)).unwrap();
    accepted.read_exact(&mut got).unwrap();
    assert_eq!(&got, b"lost for now");
}
