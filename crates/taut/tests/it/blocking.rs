//! The blocking sockets against the kernel's TCP.

use crate::net;

use std::io::{self, IoSlice, Read, Write};
use std::net::Shutdown;
use std::thread;
use std::time::Duration;

use net::{KERNEL, Net, STACK, digest_of, echo, send_noise, serve};
use taut::blocking::{TcpListener, TcpStream};
use taut_testbed::{Meter, PATIENCE, now};

const BULK: usize = 64 << 20;

#[test]
fn echo_both_ways_on_both_families() {
    let net = Net::new();
    for family in [0, 1] {
        let (listener, address) = net.listener(family);
        let server = serve(listener, echo);
        let mut stream = TcpStream::connect(&net.stack, address).unwrap();
        assert_eq!(stream.peer_addr().unwrap(), address);
        stream.write_all(b"hello").unwrap();
        let mut five = [0; 5];
        stream.read_exact(&mut five).unwrap();
        assert_eq!(&five, b"hello");
        stream.shutdown(Shutdown::Write).unwrap();
        assert_eq!(stream.read(&mut five).unwrap(), 0);
        server.join().unwrap();

        let listener = TcpListener::bind(&net.stack, format!("{}:0", STACK[family])).unwrap();
        let mut kernel = net.connect(listener.local_addr().unwrap());
        let (mut accepted, peer) = listener.accept().unwrap();
        assert_eq!(peer, kernel.local_addr().unwrap());
        kernel.write_all(b"hello").unwrap();
        accepted.read_exact(&mut five).unwrap();
        accepted.write_all(&five).unwrap();
        drop(accepted);
        let mut all = Vec::new();
        kernel.read_to_end(&mut all).unwrap();
        assert_eq!(all, b"hello");
    }
}

#[test]
fn bulk_to_the_kernel_arrives_whole() {
    let net = Net::new();
    for family in [0, 1] {
        let (listener, address) = net.listener(family);
        let server = serve(listener, digest_of);
        let stream = TcpStream::connect(&net.stack, address).unwrap();
        let sent = send_noise(&stream, BULK, 7);
        drop(stream);
        assert_eq!(server.join().unwrap(), (BULK, sent));
    }
}

#[test]
fn bulk_from_the_kernel_arrives_whole() {
    let net = Net::new();
    for family in [0, 1] {
        let (listener, address) = net.listener(family);
        let server = serve(listener, |stream| send_noise(stream, BULK, 9));
        let stream = TcpStream::connect(&net.stack, address).unwrap();
        let got = digest_of(&stream);
        assert_eq!(got, (BULK, server.join().unwrap()));
    }
}

/// Reads of 1 byte to 1 MB; alone, and beside another reader whose packets come between.
#[test]
fn place_3_a_reader_has_what_the_device_put_at_its_memory() {
    let net = Net::new();
    let read = |family: usize| {
        let (listener, address) = net.listener(family);
        let server = serve(listener, |stream| send_noise(stream, BULK, 9));
        let mut stream = TcpStream::connect(&net.stack, address).unwrap();
        let (mut meter, mut buffer, mut room) = (Meter::default(), vec![0; 1 << 20], 1 << 17);
        while let count @ 1.. = stream.read(&mut buffer[..room]).unwrap() {
            meter.update(&buffer[..count]);
            room = (room * 7919 + 12_345) % (1 << 20) + 1;
        }
        assert_eq!((meter.bytes() as usize, meter.finish()), (BULK, server.join().unwrap()));
    };
    for family in [0, 1] {
        let before = net.stack.counters().placed;
        read(family);
        assert!(net.stack.counters().placed > before, "no packet was placed");
        thread::scope(|scope| {
            scope.spawn(|| read(0));
            read(1);
        });
    }
}

#[test]
fn bulk_both_ways_at_once() {
    let net = Net::new();
    let (listener, address) = net.listener(0);
    let server = serve(listener, |stream| {
        let reader = stream.try_clone().unwrap();
        let reading = thread::spawn(move || digest_of(reader));
        let sent = send_noise(&stream, BULK / 2, 3);
        stream.shutdown(Shutdown::Write).unwrap();
        (sent, reading.join().unwrap())
    });
    let stream = TcpStream::connect(&net.stack, address).unwrap();
    let reader = stream.try_clone().unwrap();
    let reading = thread::spawn(move || digest_of(&reader));
    let sent = send_noise(&stream, BULK / 2, 5);
    stream.shutdown(Shutdown::Write).unwrap();
    let (theirs, got) = server.join().unwrap();
    assert_eq!(got, (BULK / 2, sent));
    assert_eq!(reading.join().unwrap(), (BULK / 2, theirs));
}

#[test]
fn between_two_stacks_over_a_pipe() {
    let caps = taut_caps();
    let (here, there) = taut::device::pipe(caps, 1 << 20).unwrap();
    let client = taut::Stack::builder().device(here).address("10.6.0.1/24").build().unwrap();
    let server = taut::Stack::builder().device(there).address("10.6.0.2/24").build().unwrap();
    let listener = TcpListener::bind(&server, "10.6.0.2:80").unwrap();
    let receiving = thread::spawn(move || digest_of(listener.accept().unwrap().0));
    let stream = TcpStream::connect(&client, "10.6.0.2:80").unwrap();
    let sent = send_noise(&stream, BULK, 11);
    drop(stream);
    assert_eq!(receiving.join().unwrap(), (BULK, sent));
}

fn taut_caps() -> taut::device::LinkCaps {
    taut::device::LinkCaps::offloading(1500)
}

#[test]
fn vectored_writes_keep_their_order() {
    let net = Net::new();
    let (listener, address) = net.listener(0);
    let server = serve(listener, |mut stream| {
        let mut all = Vec::new();
        stream.read_to_end(&mut all).unwrap();
        all
    });
    let mut stream = TcpStream::connect(&net.stack, address).unwrap();
    let pieces = [IoSlice::new(b"one "), IoSlice::new(b""), IoSlice::new(b"two "), IoSlice::new(b"three")];
    assert_eq!(stream.write_vectored(&pieces).unwrap(), 13);
    drop(stream);
    assert_eq!(server.join().unwrap(), b"one two three");
}

#[test]
fn a_refused_connection_says_so() {
    let net = Net::new();
    for kernel in KERNEL {
        let error = TcpStream::connect(&net.stack, format!("{kernel}:9")).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused, "{error}");
        let source = error.get_ref().and_then(|source| source.downcast_ref::<taut::ConnError>());
        assert_eq!(source, Some(&taut::ConnError::Refused));
    }
}

#[test]
fn the_kernel_is_refused_where_nobody_listens() {
    let net = Net::new();
    let refused = net.kernel.enter(|| std::net::TcpStream::connect("10.7.0.2:9")).unwrap().unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
}

#[test]
fn a_reset_is_reported_to_reader_and_writer() {
    let net = Net::new();
    let (listener, address) = net.listener(0);
    let server = serve(listener, |mut stream| {
        let mut one = [0];
        stream.read_exact(&mut one).unwrap();
        // Closing with unread data resets.
    });
    let mut stream = TcpStream::connect(&net.stack, address).unwrap();
    stream.write_all(b"ab").unwrap();
    let error = stream.read(&mut [0; 8]).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
    server.join().unwrap();
    let error = stream.write(b"x").unwrap_err();
    assert!(matches!(error.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe), "{error}");
    assert_eq!(stream.take_error().unwrap().unwrap().kind(), io::ErrorKind::ConnectionReset);
    assert!(stream.take_error().unwrap().is_none(), "reported once");
}

#[test]
fn linger_zero_resets_the_peer() {
    let net = Net::new();
    let (listener, address) = net.listener(0);
    let server = serve(listener, |mut stream| stream.read(&mut [0; 8]).map_err(|error| error.kind()));
    let stream = TcpStream::connect(&net.stack, address).unwrap();
    stream.set_linger(Some(Duration::ZERO)).unwrap();
    drop(stream);
    assert_eq!(server.join().unwrap(), Err(io::ErrorKind::ConnectionReset));
}

#[test]
fn half_closed_still_receives() {
    let net = Net::new();
    let (listener, address) = net.listener(0);
    let server = serve(listener, |mut stream| {
        let mut all = Vec::new();
        stream.read_to_end(&mut all).unwrap();
        thread::sleep(Duration::from_millis(50));
        stream.write_all(&all).unwrap();
    });
    let mut stream = TcpStream::connect(&net.stack, address).unwrap();
    stream.write_all(b"ask").unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(stream.write(b"more").unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    let mut all = Vec::new();
    stream.read_to_end(&mut all).unwrap();
    assert_eq!(all, b"ask");
    server.join().unwrap();
}

#[test]
fn timeouts_and_nonblocking() {
    let net = Net::new();
    let (listener, address) = net.listener(0);
    let (end, ended) = std::sync::mpsc::channel::<()>();
    let server = serve(listener, move |stream| {
        let _ = ended.recv();
        drop(stream);
    });
    let mut stream = TcpStream::connect(&net.stack, address).unwrap();
    assert_eq!(
        stream.set_read_timeout(Some(Duration::ZERO)).unwrap_err().kind(),
        io::ErrorKind::InvalidInput
    );
    stream.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    let started = now();
    assert_eq!(stream.read(&mut [0]).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    assert!(started.elapsed() >= Duration::from_millis(50));
    let twin = stream.try_clone().unwrap();
    twin.set_nonblocking(true).unwrap();
    assert_eq!(stream.read(&mut [0]).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    twin.set_nonblocking(false).unwrap();
    stream.set_read_timeout(None).unwrap();
    drop(end);
    assert_eq!(stream.read(&mut [0]).unwrap(), 0);
    server.join().unwrap();
    // The queue fills up, because the data is not read.
    let (_listener, address) = net.listener(0);
    let mut stream = TcpStream::connect(&net.stack, address).unwrap();
    stream.set_write_timeout(Some(Duration::from_millis(50))).unwrap();
    let chunk = vec![0; 1 << 20];
    let error = (0..1000).find_map(|_| stream.write(&chunk).err()).unwrap();
    assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
}

/// With a spin without end, a timeout of its own ends a wait, and so does a packet.
#[test]
fn dev_21_a_reader_that_spins_has_its_bytes_and_its_timeout() {
    let net = Net::with(|builder| builder.busy_poll(PATIENCE).build());
    let (listener, address) = net.listener(0);
    let server = serve(listener, echo);
    let mut stream = TcpStream::connect(&net.stack, address).unwrap();
    for byte in 0..100 {
        let mut back = [0];
        stream.write_all(&[byte]).unwrap();
        stream.read_exact(&mut back).unwrap();
        assert_eq!(back, [byte]);
    }
    stream.set_read_timeout(Some(Duration::from_millis(5))).unwrap();
    let started = now();
    assert_eq!(stream.read(&mut [0]).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    assert!(started.elapsed() < PATIENCE / 2);
    drop(stream);
    server.join().unwrap();
}

#[test]
fn connecting_to_nowhere_is_bounded() {
    let net = Net::new();
    let nowhere = "10.7.0.77:80".parse().unwrap();
    let error = TcpStream::connect_timeout(&net.stack, &nowhere, Duration::from_millis(200)).unwrap_err();
    assert!(matches!(error.kind(), io::ErrorKind::TimedOut | io::ErrorKind::HostUnreachable), "{error}");
    assert!(net.stack.drain(PATIENCE), "the attempt was given up");
}

#[test]
fn addresses_are_checked() {
    let net = Net::new();
    let first = TcpListener::bind(&net.stack, "10.7.0.2:80").unwrap();
    let error = TcpListener::bind(&net.stack, "10.7.0.2:80").unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    drop(first);
    TcpListener::bind(&net.stack, "10.7.0.2:80").unwrap();
    let error = TcpListener::bind(&net.stack, "192.0.2.1:80").unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::AddrNotAvailable);
    let error = TcpStream::connect(&net.stack, "10.7.0.1:0").unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    let error = taut::Stack::builder().address("10.0.0.2/99").build().unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
}

#[test]
fn many_streams_at_once() {
    let net = Net::new();
    let (listener, address) = net.listener(0);
    let server = thread::spawn(move || {
        let streams = (0..100).map(|_| listener.accept().unwrap().0);
        let threads: Vec<_> = streams.map(|stream| thread::spawn(move || echo(stream))).collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
    let clients: Vec<_> = (0..100)
        .map(|seed| {
            let stack = net.stack.clone();
            thread::spawn(move || {
                let mut stream = TcpStream::connect(&stack, address).unwrap();
                let sent = send_noise(&stream, 50_000, seed);
                stream.shutdown(Shutdown::Write).unwrap();
                assert_eq!(digest_of(&mut stream), (50_000, sent));
            })
        })
        .collect();
    clients.into_iter().for_each(|client| client.join().unwrap());
    server.join().unwrap();
}

#[test]
fn ping_pong_from_several_threads() {
    let net = Net::new();
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let (listener, address) = net.listener(0);
            let server = serve(listener, |stream| {
                stream.set_nodelay(true).unwrap();
                echo(stream);
            });
            let stack = net.stack.clone();
            thread::spawn(move || {
                let mut stream = TcpStream::connect(&stack, address).unwrap();
                stream.set_nodelay(true).unwrap();
                let mut byte = [0];
                for round in 0..2000 {
                    stream.write_all(&[round as u8]).unwrap();
                    stream.read_exact(&mut byte).unwrap();
                    assert_eq!(byte[0], round as u8);
                }
                drop(stream);
                server.join().unwrap();
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

#[test]
fn options_and_info() {
    let net = Net::new();
    let (listener, address) = net.listener(0);
    let server = serve(listener, echo);
    let mut stream = TcpStream::connect(&net.stack, address).unwrap();
    stream.set_nodelay(true).unwrap();
    assert!(stream.nodelay().unwrap());
    stream.set_quickack(true).unwrap();
    stream.set_notsent_lowat(65_536).unwrap();
    stream.set_sndbuf(100_000).unwrap();
    stream.set_rcvbuf(100_000).unwrap();
    stream.set_max_pacing_rate(100_000_000).unwrap();
    stream.set_congestion("reno").unwrap();
    stream.set_user_timeout(Some(Duration::from_secs(5))).unwrap();
    stream.set_keepalive(None).unwrap();
    stream.set_cork(true).unwrap();
    stream.write_all(b"x").unwrap();
    stream.set_cork(false).unwrap();
    stream.read_exact(&mut [0]).unwrap();
    let info = stream.info().unwrap();
    assert_eq!(info.state, taut::observe::State::Established);
    assert_eq!(info.congestion, taut::Algorithm::reno());
    assert_eq!((info.bytes_received, info.peer), (1, address));
    assert!(info.rtt.is_some());
    drop(stream);
    server.join().unwrap();
}

#[test]
fn settings_change_under_a_running_stack() {
    let net = Net::new();
    assert_eq!(net.stack.sysctl("tcp_autocorking").unwrap(), "1");
    net.stack.set_sysctl("net.ipv4.tcp_autocorking", "0").unwrap();
    assert_eq!(net.stack.sysctl("net.ipv4.tcp_autocorking").unwrap(), "0");
    let error = net.stack.set_sysctl("net.ipv4.tcp_min_tso_segs", "0").unwrap_err();
    assert!(error.to_string().contains("1 to 255"), "{error}");
    assert!(net.stack.sysctls().contains(&("net.ipv4.tcp_min_tso_segs", "2".to_owned())));
}

#[test]
fn what_held_a_connection_back_is_known() {
    let net = Net::new();
    let (listener, address) = net.listener(0);
    let server = serve(listener, digest_of);
    let stream = TcpStream::connect(&net.stack, address).unwrap();
    // 2 MB at 10 MB/s: 0.2 s of pacing.
    stream.set_option(taut::SetOption::MaxPacingRate(10_000_000)).unwrap();
    let start = now();
    send_noise(&stream, 2_000_000, 3);
    let report = loop {
        let report = stream.report().unwrap();
        if report.queues.iter().all(|queue| queue.bytes == 0) || start.elapsed() > PATIENCE {
            break report;
        }
        thread::sleep(Duration::from_millis(5));
    };
    let paced = report
        .shares
        .iter()
        .find(|(gate, _)| *gate == taut::observe::Gate::Pacing)
        .map(|(_, share)| share.as_millis());
    assert!(paced >= Some(100), "{report:?}");
    assert!(paced <= Some(start.elapsed().as_millis() as u64 + 1));
    assert!(report.queues.iter().all(|queue| queue.bytes == 0 && queue.sojourn.count() > 0), "{report:?}");
    let whole = net.stack.report();
    assert!(whole.queues[2].sojourn.count() >= report.queues[2].sojourn.count());
    assert!(stream.info().unwrap().busy_time.as_millis() >= 100);
    drop(stream);
    server.join().unwrap();
}

#[test]
fn more_to_come_is_held_back() {
    let net = Net::new();
    let (listener, address) = net.listener(0);
    let server = serve(listener, digest_of);
    let mut stream = TcpStream::connect(&net.stack, address).unwrap();
    let before = net.stack.counters().tcp_orig_data_sent;
    for _ in 0..10 {
        stream.try_write_with(b"0123456789", taut::WriteFlags { more: true, eor: false }).unwrap();
    }
    stream.write_all(b"end").unwrap();
    assert_eq!(net.stack.counters().tcp_orig_data_sent - before, 1, "one packet");
    drop(stream);
    assert_eq!(server.join().unwrap().0, 103);
}

#[test]
fn dropping_the_stack_ends_what_waits() {
    let net = Net::new();
    let (listener, address) = net.listener(0);
    // It stays open, and says nothing.
    let (_open, ended) = std::sync::mpsc::channel::<()>();
    let _server = serve(listener, move |stream| {
        let _ = ended.recv();
        drop(stream);
    });
    let mut stream = TcpStream::connect(&net.stack, address).unwrap();
    let acceptor = TcpListener::bind(&net.stack, "10.7.0.2:80").unwrap();
    let mut twin = stream.try_clone().unwrap();
    let reading = thread::spawn(move || twin.read(&mut [0]).unwrap_err().kind());
    let accepting = thread::spawn(move || acceptor.accept().unwrap_err().kind());
    thread::sleep(Duration::from_millis(50));
    drop(net);
    assert_eq!(reading.join().unwrap(), io::ErrorKind::NotConnected);
    assert_eq!(accepting.join().unwrap(), io::ErrorKind::NotConnected);
    assert_eq!(stream.write(b"x").unwrap_err().kind(), io::ErrorKind::NotConnected);
}

#[test]
fn drain_waits_for_what_was_dropped() {
    let net = Net::new();
    let (listener, address) = net.listener(0);
    let server = serve(listener, |stream| {
        thread::sleep(Duration::from_millis(100));
        digest_of(stream)
    });
    let stream = TcpStream::connect(&net.stack, address).unwrap();
    let sent = send_noise(&stream, 1 << 20, 1);
    drop(stream);
    assert!(net.stack.drain(PATIENCE));
    drop(net);
    assert_eq!(server.join().unwrap(), (1 << 20, sent));
}

#[test]
fn pacing_keeps_to_its_rate() {
    const RATE: u64 = 4 << 20;
    let net = Net::new();
    let (listener, address) = net.listener(0);
    let server = serve(listener, digest_of);
    let options = taut::ConnOptions { max_pacing_rate: Some(RATE), ..taut::ConnOptions::default() };
    let stream = TcpStream::connect_with(&net.stack, address, &options, None).unwrap();
    let started = now();
    let sent = send_noise(&stream, 2 << 20, 13);
    drop(stream);
    assert_eq!(server.join().unwrap(), (2 << 20, sent));
    // Half a second at that rate, less the ten segments that are never paced.
    assert!(started.elapsed() > Duration::from_millis(450), "{:?}", started.elapsed());
}

/// Time that this process has spent on the driver's thread.
fn driver_ticks() -> u64 {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let stats = tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("stat")).ok());
    let ours = stats.filter(|stat| stat.contains("(idle-stack)"));
    let ticks = ours.map(|stat| {
        // proc_pid_stat(5): fields 14 and 15, counted after the name.
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
        fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
    });
    ticks.sum()
}

#[test]
fn an_idle_stack_does_not_spin() {
    let net = Net::with(|builder| builder.thread_name("idle-stack").build());
    let (listener, address) = net.listener(0);
    let mut stream = TcpStream::connect(&net.stack, address).unwrap();
    let (mut kernel, _) = listener.accept().unwrap();
    // Both with and without a timer armed: the kernel has acknowledged this, and delays the ACK of a small
    // one.
    stream.write_all(b"x").unwrap();
    kernel.read_exact(&mut [0]).unwrap();
    kernel.write_all(b"x").unwrap();
    stream.read_exact(&mut [0]).unwrap();
    let before = driver_ticks();
    thread::sleep(Duration::from_millis(500));
    let ticks = driver_ticks() - before;
    assert!(ticks <= 5, "{ticks} of 50 ticks");
}
