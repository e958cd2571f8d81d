//! `taut gateway --run` under load: many connections at once, and many short fetches over TLS, as a package
//! manager makes them: GW-74 and 75 of `docs/spec/gateway.md`. `make gateway-load` has ten thousand
//! connections.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use taut_testbed::{PATIENCE, Raise};

use super::support::{Lab, taut};

/// An address of the namespace of the test, which is neither loopback nor on a link.
const SERVER: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 1);
/// The part of the test that runs as the gateway's guest, and its settings.
const INSIDE: &str = "end_to_end::gateway_load::inside_many_connections";
const COUNT: &str = "TAUT_LOAD_COUNT";
const PORT: &str = "TAUT_LOAD_PORT";
/// Threads that open connections.
const AT_ONCE: usize = 16;

/// As many descriptors as this process may have.
fn raise_the_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).unwrap();
}

fn lab(name: &str, programs: &[&str]) -> Option<Lab> {
    let lab = Lab::without_turn(name, &[&["ip"], programs].concat())?;
    lab.kernel.run(&format!("ip address add {SERVER}/32 dev lo")).unwrap();
    Some(lab)
}

/// Sends back what clients send, eight bytes a time, in one thread: a client that waits keeps no other
/// waiting.
fn echo(listener: &TcpListener, stop: &AtomicBool) -> usize {
    use rustix::event::epoll;
    let waits = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
    let (readable, mut streams) = (epoll::EventFlags::IN, Vec::new());
    listener.set_nonblocking(true).unwrap();
    epoll::add(&waits, listener, epoll::EventData::new_u64(u64::MAX), readable).unwrap();
    let (mut most, mut open, mut free) = (0, 0, Vec::new());
    while !stop.load(Ordering::Relaxed) {
        let mut events = Vec::with_capacity(256);
        let patience = rustix::time::Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
        // A process that was stopped, and goes on, has waited long enough.
        match epoll::wait(&waits, rustix::buffer::spare_capacity(&mut events), Some(&patience)) {
            Err(rustix::io::Errno::INTR) => continue,
            waited => _ = waited.unwrap(),
        }
        for event in events {
            let epoll::Event { data, .. } = event;
            if data.u64() == u64::MAX {
                while let Ok((stream, _)) = listener.accept() {
                    let place = free.pop().unwrap_or(streams.len());
                    epoll::add(&waits, &stream, epoll::EventData::new_u64(place as u64), readable).unwrap();
                    streams.resize_with(streams.len().max(place + 1), || None);
                    streams[place] = Some(stream);
                    open += 1;
                    most = most.max(open);
                }
                continue;
            }
            let place = &mut streams[data.u64() as usize];
            let mut bytes = [0; 8];
            match place.as_ref().map(|mut stream| stream.read(&mut bytes)) {
                Some(Ok(8)) => place.as_ref().unwrap().write_all(&bytes).unwrap(),
                // Its end, or a reset.
                Some(Ok(0) | Err(_)) => {
                    *place = None;
                    free.push(data.u64() as usize);
                    open -= 1;
                }
                // Closed here; a program that is just being started still has a copy of the descriptor.
                None => {}
                other => panic!("{other:?}"),
            }
        }
    }
    most
}

fn many_connections(name: &str, count: usize) {
    let Some(lab) = lab(name, &[]) else { return };
    raise_the_limit();
    let listener = lab.kernel.enter(|| TcpListener::bind((SERVER, 0))).unwrap().unwrap();
    let port = listener.local_addr().unwrap().port();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let over = Raise(&stop);
        let server = scope.spawn(|| echo(&listener, &stop));
        let program = std::env::current_exe().unwrap().display().to_string();
        let args = ["gateway", "--run", "--", &program, INSIDE, "--exact", "--ignored", "--nocapture"];
        let output = lab.output(
            taut(&args).stdin(Stdio::null()).env(COUNT, count.to_string()).env(PORT, port.to_string()),
        );
        drop(over);
        let most = server.join().unwrap();
        let said =
            String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said.contains("each twice"), "{said}");
        println!("{}", said.lines().find(|line| line.contains("each twice")).unwrap());
        assert_eq!(most, count, "at once at the server");
    });
}

#[test]
#[ignore = "the part of another test that is a gateway's guest"]
fn inside_many_connections() {
    let number = |name: &str| std::env::var(name).unwrap().parse::<usize>().unwrap();
    let (count, to) = (number(COUNT), SocketAddr::from((SERVER, number(PORT) as u16)));
    raise_the_limit();
    let begin = taut_testbed::now();
    let ask = |stream: &TcpStream, text: u64| {
        let mut answer = [0; 8];
        (&mut &*stream).write_all(&text.to_be_bytes()).unwrap();
        (&mut &*stream).read_exact(&mut answer).unwrap();
        assert_eq!(u64::from_be_bytes(answer), text);
    };
    let streams: Vec<TcpStream> = thread::scope(|scope| {
        let openers: Vec<_> = (0..AT_ONCE)
            .map(|opener| {
                scope.spawn(move || {
                    let numbers = (opener..count).step_by(AT_ONCE);
                    let open = numbers.map(|number| {
                        let stream = TcpStream::connect(to).unwrap();
                        stream.set_read_timeout(Some(PATIENCE)).unwrap();
                        ask(&stream, number as u64);
                        stream
                    });
                    open.collect::<Vec<_>>()
                })
            })
            .collect();
        openers.into_iter().flat_map(|opener| opener.join().unwrap()).collect()
    });
    let opened = begin.elapsed();
    // All of them are open, and each still answers.
    for (number, stream) in streams.iter().enumerate() {
        ask(stream, !(number as u64));
    }
    println!("{} connections at once, opened in {opened:.1?}; each twice asked and answered", streams.len());
}

#[test]
fn gw_74_many_connections_at_once() {
    many_connections("gateway-many", 500);
}

/// `make gateway-load`.
#[test]
#[ignore = "takes minutes"]
fn ten_thousand_connections_at_once() {
    many_connections("gateway-ten-thousand", 10_000);
}

/// nginx with a certificate of its own, and curl as the guest: a connection and a handshake for each file.
fn fetches(name: &str, count: usize) {
    const FILES: usize = 50;
    let Some(lab) = lab(name, &["nginx", "curl", "openssl"]) else { return };
    let dir = lab.dir.display();
    let certificate = format!(
        "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=files -addext \
         subjectAltName=IP:{SERVER} -keyout {dir}/key.pem -out {dir}/cert.pem"
    );
    let made = Command::new("openssl").args(certificate.split_whitespace()).output().unwrap();
    assert!(made.status.success(), "{made:?}");
    let sums: Vec<_> =
        (0..FILES).map(|file| lab.file(&format!("file{file}"), 1_000 + 9_000 * file as u64)).collect();
    let _nginx = lab.nginx(&format!(
        "listen 443 ssl; ssl_certificate {dir}/cert.pem; ssl_certificate_key {dir}/key.pem;"
    ));
    // A list of what to fetch, for one curl that has sixteen transfers at a time.
    let mut list = File::create(lab.dir.join("list")).unwrap();
    for number in 0..count {
        writeln!(list, "url = https://{SERVER}/file{}\noutput = {dir}/copy{number}", number % FILES).unwrap();
    }
    let curl = format!(
        "curl --silent --show-error --fail --parallel --parallel-max 16 --header Connection:\\ close --no-keepalive \
         --cacert {dir}/cert.pem --config {dir}/list"
    );
    let begin = taut_testbed::now();
    let output = lab.output(taut(&["gateway", "--run", "--", "sh", "-c", &curl]).stdin(Stdio::null()));
    assert!(output.status.success(), "{output:?}");
    println!("{count} fetches over TLS in {:.1?}", begin.elapsed());
    for number in 0..count {
        let copy = File::open(lab.dir.join(format!("copy{number}"))).unwrap();
        assert_eq!(super::support::drain(copy).1, sums[number % FILES], "{number}");
    }
}

#[test]
fn gw_75_many_short_fetches_over_tls() {
    fetches("gateway-fetches", 200);
}

/// `make gateway-load`.
#[test]
#[ignore = "takes minutes"]
fn three_thousand_fetches_over_tls() {
    fetches("gateway-three-thousand", 3_000);
}

/// Bytes that the gateway's processes have to themselves: of `parent`, and of its children that are not the
/// guest.
fn own_bytes(parent: u32) -> u64 {
    let children =
        std::fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).unwrap_or_default();
    let children = children.split_whitespace().filter_map(|child| child.parse().ok());
    let is_gateway = |pid: &u32| {
        std::fs::read_link(format!("/proc/{pid}/exe"))
            .is_ok_and(|exe| exe == std::path::Path::new(env!("CARGO_BIN_EXE_taut")))
    };
    let own = |pid: u32| -> u64 {
        let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
        let private = text.lines().filter(|line| line.starts_with("Private_"));
        private.filter_map(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok()).sum::<u64>() * 1_024
    };
    std::iter::once(parent).chain(children.filter(is_gateway)).map(own).sum()
}

/// `make gateway-soak`: connections that come and go for so many minutes, and what the gateway holds
/// meanwhile.
#[test]
#[ignore = "takes an hour"]
fn an_hour_of_connections_leaves_nothing_behind() {
    let Some(lab) = lab("gateway-soak", &[]) else { return };
    let minutes: u64 =
        std::env::var("MINUTES").map_or(60, |minutes| minutes.parse().expect("MINUTES is a number"));
    // As many addresses as TIME-WAIT needs ports, of the guest's kernel and of the gateway's.
    lab.kernel.run("ip route add local 198.51.100.0/24 dev lo").unwrap();
    let listener = lab.kernel.enter(|| TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0))).unwrap().unwrap();
    let port = listener.local_addr().unwrap().port();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let over = Raise(&stop);
        scope.spawn(|| echo(&listener, &stop));
        let program = std::env::current_exe().unwrap().display().to_string();
        let inside = "end_to_end::gateway_load::inside_connections_come_and_go";
        let args = [
            "gateway",
            "--run",
            "--log",
            "none",
            "--",
            &program,
            inside,
            "--exact",
            "--ignored",
            "--nocapture",
        ];
        let mut gateway = taut(&args);
        gateway
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .env(COUNT, (minutes * 60).to_string())
            .env(PORT, port.to_string());
        // The lab ends what lasts longer than its patience.
        let mut gateway = lab.kernel.namespace.spawn(&mut gateway).unwrap();
        let (begin, mut held) = (taut_testbed::now(), Vec::new());
        while gateway.try_wait().unwrap().is_none() {
            thread::sleep(Duration::from_secs(1));
            held.push(own_bytes(super::support::worker_of(gateway.id())));
            if held.len() % 60 == 0 {
                println!("{:.0?}: {} KB", begin.elapsed(), held.last().unwrap() / 1_024);
            }
        }
        drop(over);
        let mut said = String::new();
        gateway.stdout.take().unwrap().read_to_string(&mut said).unwrap();
        assert!(gateway.wait().unwrap().success(), "{said}");
        println!("{}", said.lines().find(|line| line.contains("connections came and went")).unwrap());
        // Without the last seconds, in which the guest ends; and the first minute, in which pools fill.
        held.truncate(held.len() - 3);
        let held = held.split_off(60.min(held.len() / 10));
        let tenth = held.len() / 10;
        let mean = |part: &[u64]| part.iter().sum::<u64>() as f64 / part.len() as f64;
        let (first, last) = (mean(&held[..tenth]), mean(&held[held.len() - tenth..]));
        println!(
            "{:.1} KB in the first tenth, {:.1} in the last: {:+.3} %",
            first / 1_024.0,
            last / 1_024.0,
            100.0 * (last / first - 1.0)
        );
        assert!((last / first - 1.0).abs() < 0.01, "{held:?}");
    });
}

#[test]
#[ignore = "the part of another test that is a gateway's guest"]
fn inside_connections_come_and_go() {
    let number = |name: &str| std::env::var(name).unwrap().parse::<u64>().unwrap();
    let (lasts, port) = (Duration::from_secs(number(COUNT)), number(PORT) as u16);
    let nobody = SocketAddr::from((SERVER, 9));
    let begin = taut_testbed::now();
    let flows: u64 = thread::scope(|scope| {
        let clients: Vec<_> = (0..4_u64)
            .map(|client| {
                scope.spawn(move || {
                    let mut count = client;
                    while begin.elapsed() < lasts {
                        count += 4;
                        if count % 32 < 4 {
                            assert_eq!(
                                TcpStream::connect(nobody).unwrap_err().kind(),
                                std::io::ErrorKind::ConnectionRefused
                            );
                            continue;
                        }
                        let to = Ipv4Addr::new(198, 51, 100, 1 + (count / 4 % 250) as u8);
                        let mut stream = TcpStream::connect((to, port)).unwrap();
                        stream.set_read_timeout(Some(PATIENCE)).unwrap();
                        let mut answer = [0; 8];
                        stream.write_all(&count.to_be_bytes()).unwrap();
                        stream.read_exact(&mut answer).unwrap();
                        assert_eq!(u64::from_be_bytes(answer), count);
                        match count / 4 % 3 {
                            0 => socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap(),
                            1 => {
                                stream.shutdown(Shutdown::Write).unwrap();
                                assert_eq!(stream.read_to_end(&mut Vec::new()).unwrap(), 0);
                            }
                            _ => {}
                        }
                    }
                    count / 4
                })
            })
            .collect();
        clients.into_iter().map(|client| client.join().unwrap()).sum()
    });
    println!("{flows} connections came and went in {:.0?}", begin.elapsed());
}
