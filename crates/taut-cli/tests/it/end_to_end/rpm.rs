//! `taut rpm` beside its own server: RPM-3 and RPM-4 of `docs/spec/observe.md`.

use super::support::{Lab, taut};

#[test]
fn rpm_3_by_the_hosts_sockets_and_by_a_stack() {
    let Some(lab) = Lab::new("rpm", &[]) else { return };
    let server = lab.taut(&["rpm", "--serve", "7010"], "serving at");
    for (args, direction) in [
        (&["127.0.0.1:7010", "--only", "down"][..], "down"),
        (&["10.9.0.1:7010", "--only", "up", "--stack", "--control", "none"], "up"),
    ] {
        let output = lab.output(&mut taut(&[&["rpm", "--json", "--max-time", "4"], args].concat()));
        assert!(output.status.success(), "{output:?}");
        let found: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let found = &found[direction];
        assert!(found["rpm"].as_f64().unwrap() > 0.0, "{found}");
        assert!(found["bits_per_second"].as_f64().unwrap() > 1e6, "{found}");
        assert!(found["connections"].as_u64().unwrap() >= 1, "{found}");
        assert_eq!(found["idle"]["count"], 10, "{found}");
        assert!(found["fault"].is_string(), "{found}");
    }
    server.interrupt();
    // Interrupted, as every command that has no other end.
    assert_eq!(server.output().status.code(), Some(130));
}

#[test]
fn rpm_4_no_server_or_another_one_is_an_error_that_says_what_to_do() {
    let Some(lab) = Lab::new("rpm-none", &[]) else { return };
    let web = lab.kernel.enter(|| std::net::TcpListener::bind("127.0.0.1:0")).unwrap().unwrap();
    let other = web.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for mut stream in web.incoming().map_while(Result::ok) {
            _ = std::io::Write::write_all(&mut stream, b"HTTP/1.1 400 Bad Request\r\n\r\n");
        }
    });
    for (server, error) in [("127.0.0.1:7010", "is `taut rpm --serve` there?"), (&other, "gave no answer")] {
        let output = lab.output(&mut taut(&["rpm", server, "--max-time", "4"]));
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(1) && said.contains(error), "{server}: {output:?}");
    }
}
