//! Files over HTTP: curl on the kernel's TCP from `taut serve`, and `taut get` from nginx on the kernel's TCP.

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
    let mut server = lab.taut(&["serve", ".", "--quiet", "--shards", "2", "--control", &socket], "serving");
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
