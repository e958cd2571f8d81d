//! The priority of a stack's threads, as the kernel reports it.

use std::fs;
use std::io::{ErrorKind, Read as _, Write as _};
use std::thread;

use taut::Stack;
use taut::blocking::{TcpListener, TcpStream};
use taut::device::LinkCaps;
use taut::device::Priority;
use taut_testbed::live;

/// `SCHED_OTHER` and `SCHED_FIFO`.
const OTHER: &str = "0";
const FIFO: &str = "1";

/// Nice value, real-time priority and policy in a line of `/proc/self/task/*/stat`: fields 19, 40 and 41.
fn scheduling(stat: &str) -> [String; 3] {
    let fields: Vec<&str> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
    [19, 40, 41].map(|number| fields[number - 3].to_owned())
}

/// Those of this process's thread with that name.
fn of_thread(name: &str) -> [String; 3] {
    let stats = fs::read_dir("/proc/self/task").unwrap().filter_map(|entry| {
        let path = entry.unwrap().path();
        // A thread may end meanwhile.
        let comm = fs::read_to_string(path.join("comm")).ok()?;
        (comm.trim() == name).then(|| fs::read_to_string(path.join("stat")).ok())?
    });
    scheduling(&stats.last().unwrap_or_else(|| panic!("no thread is called {name}")))
}

fn own() -> [String; 3] {
    scheduling(&fs::read_to_string("/proc/thread-self/stat").unwrap())
}

/// A stack with that priority, and its peer; `None` if this user may not have it.
fn prioritized(name: &str, priority: Priority) -> Option<(Stack, Stack)> {
    let (near, far) = taut::device::pipe(LinkCaps::offloading(1500), 4 << 20).unwrap();
    let builder = Stack::builder().device(near).address("10.0.0.1/24").thread_name(name);
    match builder.priority(priority).build() {
        Ok(stack) => Some((stack, Stack::builder().device(far).address("10.0.0.2/24").build().unwrap())),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            live::skip(&error.to_string());
            None
        }
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn the_stack_s_thread_has_it_and_no_other() {
    // `nice make test` gives the test's threads another priority than 0.
    let usual = own();
    assert_eq!(usual[1..], ["0", OTHER]);
    let Some((near, far)) = prioritized("realtime-test", Priority::RealTime(7)) else { return };
    assert_eq!(of_thread("realtime-test"), [usual[0].as_str(), "7", FIFO]);
    assert_eq!(own(), usual, "the thread that built the stack");
    let child = thread::spawn(own).join().unwrap();
    assert_eq!(child, usual);
    let Some(nice) = prioritized("nice-test", Priority::Nice(-5)) else { return };
    assert_eq!(of_thread("nice-test"), ["-5", "0", OTHER]);
    drop((near, far, nice));
}

/// A waker, or anything else that runs on the stack's thread, may start a thread.
#[test]
fn threads_that_it_starts_have_the_ordinary_one() {
    for priority in [Priority::RealTime(1), Priority::Nice(-5)] {
        let child = thread::spawn(move || {
            priority.apply()?;
            assert_ne!(own(), ["0", "0", OTHER]);
            Ok::<_, std::io::Error>(thread::spawn(own).join().unwrap())
        });
        match child.join().unwrap() {
            Ok(child) => assert_eq!(child, ["0", "0", OTHER], "{priority}"),
            Err(error) => return live::skip(&error.to_string()),
        }
    }
}

#[test]
fn sockets_work_as_without_it() {
    let Some((near, far)) = prioritized("transfer-test", Priority::RealTime(1)) else { return };
    let listener = TcpListener::bind(&far, "10.0.0.2:7").unwrap();
    let echo = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut some = [0; 5];
        for _ in 0..100 {
            stream.read_exact(&mut some).unwrap();
            stream.write_all(&some).unwrap();
        }
    });
    let mut stream = TcpStream::connect(&near, "10.0.0.2:7").unwrap();
    let mut some = [0; 5];
    for _ in 0..100 {
        stream.write_all(b"hello").unwrap();
        stream.read_exact(&mut some).unwrap();
        assert_eq!(&some, b"hello");
    }
    echo.join().unwrap();
}

#[test]
fn a_refusal_is_an_error() {
    let (near, _far) = taut::device::pipe(LinkCaps::offloading(1500), 4 << 20).unwrap();
    // No user may have it: the largest is 99.
    let built =
        Stack::builder().device(near).address("10.0.0.1/24").priority(Priority::RealTime(100)).build();
    assert_eq!(built.err().map(|error| error.kind()), Some(ErrorKind::InvalidInput));
}
