//! Files over HTTP: curl on the kernel's TCP from `taut serve`, and `taut get` from nginx on the kernel's
//! TCP.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::process::{Command, Stdio};

use crate::end_to_end::support::{KERNEL, Lab, TAUT, drain, live_bytes, taut};

const IPV6: [&str; 4] = ["--address", "10.9.0.2/24", "--address", "fd09::2/64"];

fn curl(url: &str) -> Command {
    let mut curl = Command::new("curl");
    curl.args(["--silent", "--show-error", "--fail", "--max-time", "120", url]);
    curl
}

/// Fetches with curl; length and SHA-256.
fn fetch(lab: &Lab, url: &str) -> (u64, String) {
    let mut client = lab.spawn(curl(url).stdout(Stdio::piped()));
    let got = drain(client.stdout());
    assert_eq!(client.wait(), Some(0));
    got
}

#[test]
fn kernel_curl_fetches_a_large_file_from_taut_serve() {
    let Some(lab) = Lab::new("curl", &["curl"]) else { return };
    let bytes = live_bytes();
    let sha256 = lab.file("large", bytes);
    let mut server = lab.taut(&["serve", "."], "serving");
    assert_eq!(fetch(&lab, &format!("http://{TAUT}/large")), (bytes, sha256));
    server.interrupt();
    assert_eq!(server.wait(), Some(0));
}

#[test]
fn many_curls_at_once_are_served_by_two_shards() {
    const CLIENTS: usize = 16;
    let Some(lab) = Lab::new("shards", &["curl"]) else { return };
    let sha256 = lab.file("medium", 20_000_000);
    let socket = lab.dir.join("control").display().to_string();
    let mut server = lab.taut(&["serve", ".", "--shards", "2", "--control", &socket], "serving");
    let url = format!("http://{TAUT}/medium");
    for _ in 0..2 {
        let mut clients: Vec<_> =
            (0..CLIENTS).map(|_| lab.spawn(curl(&url).stdout(Stdio::piped()))).collect();
        std::thread::scope(|scope| {
            let drains: Vec<_> = clients
                .iter_mut()
                .map(|client| {
                    let out = client.stdout();
                    scope.spawn(move || drain(out))
                })
                .collect();
            for drained in drains {
                assert_eq!(drained.join().unwrap(), (20_000_000, sha256.clone()));
            }
        });
        assert!(clients.iter_mut().all(|client| client.wait() == Some(0)));
    }
    // An observer sees the two shards as one stack.
    let asked = lab.output(&mut taut(&["nstat", "-asz", "--json", "--socket", &socket]));
    let said = String::from_utf8_lossy(&asked.stderr);
    let counters: serde_json::Value = serde_json::from_slice(&asked.stdout).expect(&said);
    let count =
        |name: &str| counters["taut"][name].as_u64().unwrap_or_else(|| panic!("{name}: {counters:#}"));
    assert_eq!(count("TcpPassiveOpens"), 2 * CLIENTS as u64);
    assert_eq!((count("TautSteeredLost"), count("TcpOutRsts")), (0, 0));
    let listening = lab.output(&mut taut(&["ss", "--socket", &socket, "--listening"]));
    let listening = String::from_utf8(listening.stdout).unwrap();
    assert_eq!(listening.lines().filter(|line| line.contains("LISTEN")).count(), 1, "{listening}");
    server.interrupt();
    assert_eq!(server.wait(), Some(0));
}

#[test]
fn taut_serve_answers_ranges_and_keeps_to_its_directory_over_ipv6_too() {
    let Some(lab) = Lab::new("ranges", &["curl"]) else { return };
    std::fs::create_dir(lab.dir.join("root")).unwrap();
    let sha256 = lab.file("root/medium", 20_000_000);
    lab.file("outside", 10);
    let mut args = vec!["serve", "root", "--json", "--port", "8080"];
    args.extend(IPV6);
    let mut server = lab.taut(&args, "[fd09::2]:8080");
    for host in [TAUT, "[fd09::2]"] {
        assert_eq!(fetch(&lab, &format!("http://{host}:8080/medium")), (20_000_000, sha256.clone()));
        let range = lab.output(curl(&format!("http://{host}:8080/medium")).args(["--range", "100-104"]));
        assert_eq!(range.stdout.len(), 5);
        let outside = lab.output(curl(&format!("http://{host}:8080/../outside")).arg("--path-as-is"));
        // curl's code for a status of 400 and above, with --fail.
        assert_eq!(outside.status.code(), Some(22));
    }
    server.interrupt();
    let stdout = server.stdout();
    assert_eq!(server.wait(), Some(0));
    let log = std::io::read_to_string(stdout).unwrap();
    let entries: Vec<serde_json::Value> =
        log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(entries.len(), 6, "{log}");
    assert!(entries.iter().all(|entry| entry["complete"] == true), "{log}");
    assert!(entries.iter().any(|entry| entry["status"] == 206 && entry["bytes"] == 5), "{log}");
}

/// Answers each request by its path until the lab ends.
fn scripted(lab: &Lab, port: u16) {
    let listener = lab.kernel.enter(|| TcpListener::bind(("0.0.0.0", port)).unwrap()).unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            std::thread::spawn(move || {
                let mut reader = BufReader::new(stream);
                let mut request = String::new();
                _ = reader.read_line(&mut request);
                let to = |status: &str, to: &str| {
                    format!("HTTP/1.1 {status}\r\nLocation: {to}\r\nContent-Length: 0\r\n\r\n")
                };
                let whole =
                    |body: &str| format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len());
                let answer = match request.split(' ').nth(1).unwrap_or_default() {
                    "/old/a" => to("302 Found", "../new?b"),
                    "/new?b" => to("307 Temporary Redirect", &format!("//{KERNEL}:{port}/end")),
                    "/end" => whole("the end"),
                    "/loop" => to("301 Moved", "/loop"),
                    "/tls" => to("301 Moved", "https://example.com/"),
                    "/large" => whole(&"x".repeat(4 << 20)),
                    // More is promised than comes.
                    _ => "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nsome".to_owned(),
                };
                _ = reader.get_mut().write_all(answer.as_bytes());
                // Until the client ends the connection.
                _ = reader.read_to_end(&mut Vec::new());
            });
        }
    });
}

#[test]
fn taut_get_follows_redirects_and_keeps_its_times() {
    let Some(lab) = Lab::new("get-options", &[]) else { return };
    scripted(&lab, 8_000);
    let get = |args: &[&str], path: &str| {
        let url = format!("http://{KERNEL}:8000{path}");
        let output = lab.output(&mut taut(&[&["get", "--control", "none", &url], args].concat()));
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    };
    let (code, body, said) = get(&["-L"], "/old/a");
    assert_eq!((code, &*body), (Some(0), "the end"), "{said}");
    for (args, path, error) in [
        (&[][..], "/old/a", "answered 302 Found: it is at ../new?b; -L follows redirects"),
        (&["-L"], "/loop", "loop: more than 10 redirects, the last to"),
        (&["-L"], "/tls", "redirects to https://example.com/: TLS is not supported"),
        (&["--max-time", "0.5"], "/stalls", "not complete within 0.5 s (--max-time)"),
    ] {
        let (code, _, said) = get(args, path);
        assert!(code == Some(1) && said.contains(error), "{path}: {code:?}, {said}");
    }
    // An address of the link that no host has.
    let args = ["get", "--control", "none", "--connect-timeout", "0.5", "http://10.9.0.77/"];
    let output = lab.output(&mut taut(&args));
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        said.contains("cannot connect to 10.9.0.77:80: no answer within 0.5 s (--connect-timeout)"),
        "{said}"
    );

    // Its output has no reader any more.
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut get = taut(&["get", "--control", "none", &format!("http://{KERNEL}:8000/large")]);
    let output = lab.spawn(get.stdout(writer).stderr(Stdio::piped())).output();
    assert_eq!((output.status.code(), &*String::from_utf8_lossy(&output.stderr)), (Some(0), ""));
}

#[test]
fn kernel_nginx_serves_a_large_file_to_taut_get() {
    let Some(lab) = Lab::new("nginx", &["nginx"]) else { return };
    let bytes = live_bytes();
    let sha256 = lab.file("large", bytes);
    let nginx = lab.nginx("listen 80;");
    let url = format!("http://{KERNEL}/large");
    let output =
        lab.output(&mut crate::end_to_end::support::taut(&["get", &url, "--output", "copy", "--json"]));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let summary: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((summary["bytes"].as_u64(), summary["sha256"].as_str()), (Some(bytes), Some(&*sha256)));
    let copy = std::fs::File::open(lab.dir.join("copy")).unwrap();
    assert_eq!(drain(copy), (bytes, sha256));
    // A file that nginx does not have.
    let missing =
        lab.output(&mut crate::end_to_end::support::taut(&["get", &format!("http://{KERNEL}/missing")]));
    assert_eq!(missing.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&missing.stderr).contains("404"));
    drop(nginx);
    // Nothing listens there any more.
    let refused = lab.output(&mut crate::end_to_end::support::taut(&["get", &url]));
    assert_eq!(refused.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("refused"));
}
