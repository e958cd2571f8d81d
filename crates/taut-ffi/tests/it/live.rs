//! Programs on a TUN, with the kernel at its other end: the echo server, and clients in Python and Go.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use taut_testbed::{Kernel, PATIENCE, live};

use crate::toolkit::{ALL, prefix, printed, program, succeeds};

/// A kernel in a namespace of its own, and what is installed. `None` if there can be none.
fn kernel(programs: &[&str]) -> Option<(Kernel, &'static Path)> {
    if !live::ready(programs) {
        return None;
    }
    let prefix = prefix()?;
    match Kernel::new() {
        Ok(kernel) => Some((kernel, prefix)),
        Err(error) => {
            live::skip(&format!("no network namespace: {error}"));
            None
        }
    }
}

#[test]
fn ffi_21_an_echo_server_on_a_tun() {
    for how in ALL {
        let Some((kernel, prefix)) = kernel(&[]) else { return };
        let mut command = program(prefix, "examples/echo_server.c", how);
        command.args(["taut0", "3"]).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut server = kernel.namespace.spawn(&mut command).unwrap();
        let mut line = String::new();
        let mut said = BufReader::new(server.stdout.take().unwrap());
        said.read_line(&mut line).unwrap();
        if line.is_empty() {
            printed(&command, &server.wait_with_output().unwrap());
            panic!("{how:?}: nothing was said");
        }
        assert!(line.starts_with("listening at 10.9.0.2"), "{line}");
        kernel.enter(|| three_clients("10.9.0.2:7")).unwrap();
        printed(&command, &server.wait_with_output().unwrap());
    }
}

/// Two at the same time, a datagram between them, and one that sends more than buffers hold before it reads.
fn three_clients(server: &str) {
    let mut first = TcpStream::connect(server).unwrap();
    let mut second = TcpStream::connect(server).unwrap();
    let udp = UdpSocket::bind("10.9.0.1:0").unwrap();
    udp.set_read_timeout(Some(PATIENCE)).unwrap();
    for stream in [&first, &second] {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
    }
    udp.send_to(b"datagram", server).unwrap();
    let mut bytes = [0; 16];
    let (len, _) = udp.recv_from(&mut bytes).unwrap();
    assert_eq!(&bytes[..len], b"datagram");
    for stream in [&mut second, &mut first] {
        stream.write_all(b"over a TUN").unwrap();
        stream.read_exact(&mut bytes[..10]).unwrap();
        assert_eq!(&bytes[..10], b"over a TUN");
    }
    drop((first, second));
    let bulk: Vec<u8> = (0..4_000_000_u32).map(|n| (n % 251) as u8).collect();
    let mut third = TcpStream::connect(server).unwrap();
    third.set_read_timeout(Some(PATIENCE)).unwrap();
    third.set_write_timeout(Some(PATIENCE)).unwrap();
    let mut reader = third.try_clone().unwrap();
    let got = std::thread::scope(|scope| {
        scope.spawn(|| {
            third.write_all(&bulk).unwrap();
            third.shutdown(Shutdown::Write).unwrap();
        });
        std::thread::sleep(Duration::from_millis(50));
        let mut got = Vec::new();
        reader.read_to_end(&mut got).unwrap();
        got
    });
    assert!(got == bulk, "{} of {} bytes", got.len(), bulk.len());
}

/// Runs a client in the namespace against a server of the kernel, and checks its request and its output.
fn fetches(kernel: &Kernel, path: &str, client: &mut Command) {
    let request = format!("GET {path} HTTP/1.0");
    let page = kernel.enter(|| TcpListener::bind("0.0.0.0:8000")).unwrap().unwrap();
    let server = std::thread::spawn(move || {
        let (mut stream, from) = page.accept().unwrap();
        assert_eq!(from.ip().to_string(), "10.9.0.2");
        let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
        assert_eq!(lines.next().unwrap().unwrap(), request);
        stream.write_all(b"HTTP/1.0 200 OK\r\n\r\nHello from the kernel\n").unwrap();
    });
    client.stdout(Stdio::piped()).stderr(Stdio::piped());
    let output = kernel.namespace.spawn(client).unwrap().wait_with_output().unwrap();
    let said = printed(client, &output);
    assert_eq!(said, "HTTP/1.0 200 OK\r\n\r\nHello from the kernel\n");
    server.join().unwrap();
}

/// Arguments of the clients in Python and Go.
const ARGUMENTS: [&str; 3] = ["taut0", "10.9.0.1:8000", "/page"];
const EXAMPLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples");

#[test]
fn ffi_22_a_client_in_python() {
    let Some((kernel, prefix)) = kernel(&["python3"]) else { return };
    let path = Path::new(EXAMPLES).join("client.py");
    assert!(std::fs::read_to_string(&path).unwrap().lines().count() <= 60);
    let mut client = Command::new("python3");
    fetches(&kernel, "/page", client.arg(path).args(ARGUMENTS).env("LD_LIBRARY_PATH", prefix.join("lib")));
}

/// `make ffi` runs it: it needs Go.
#[test]
#[ignore = "needs Go"]
fn ffi_23_a_client_in_go() {
    let Some((kernel, prefix)) = kernel(&["go"]) else { return };
    let path = Path::new(EXAMPLES).join("client.go");
    assert!(std::fs::read_to_string(&path).unwrap().lines().count() <= 60);
    let program = prefix.join("bin/client-go");
    let mut build = Command::new("go");
    build.arg("build").arg("-o").arg(&program).arg(path).env("CGO_ENABLED", "1");
    succeeds(build.env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig")));
    fetches(
        &kernel,
        "/page",
        Command::new(program).args(ARGUMENTS).env("LD_LIBRARY_PATH", prefix.join("lib")),
    );
}

/// The program of the guide, compiled by the command that the page shows.
#[test]
fn ffi_24_the_program_of_the_guide() {
    let Some((kernel, prefix)) = kernel(&[]) else { return };
    let page = include_str!("../../../../docs/guide/c.md");
    let fence = |kind: &str| {
        let (_, rest) = page.split_once(&format!("\n```{kind}")).unwrap();
        let rest = if kind.ends_with('\n') { rest } else { rest.split_once('\n').unwrap().1 };
        rest.split_once("```").unwrap().0
    };
    let folder = prefix.join("guide");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("fetch.c"), fence("c\n")).unwrap();
    let (compile, run) = fence("sh no-run: needs root").trim().split_once(" && sudo ").unwrap();
    let compile = compile.replace("cc ", "cc -Wall -Wextra -Werror ");
    let packages = prefix.join("lib/pkgconfig");
    let mut shell = Command::new("sh");
    succeeds(shell.args(["-c", &compile]).current_dir(&folder).env("PKG_CONFIG_PATH", packages));
    fetches(&kernel, "/", Command::new(folder.join(run)).env("LD_LIBRARY_PATH", prefix.join("lib")));
}
