//! `taut serve --dash`, `taut dash` and `taut top`, with a download that goes on.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::Stdio;

use serde_json::Value;
use taut_testbed::eventually;

use crate::end_to_end::observe::{Observer, slow_curl};
use crate::end_to_end::support::Lab;

/// One answer, in the lab's namespace: the whole text.
fn ask(lab: &Lab, port: u16, path: &str, header: &str) -> String {
    let request = format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n{header}\r\n");
    let exchange = || {
        let mut stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.write_all(request.as_bytes())?;
        let mut text = String::new();
        stream.read_to_string(&mut text).map(|_| text)
    };
    lab.kernel.enter(exchange).unwrap().unwrap()
}

fn sample(lab: &Lab, port: u16, header: &str) -> Value {
    let text = ask(lab, port, "/sample", header);
    serde_json::from_str(text.split_once("\r\n\r\n").unwrap().1)
        .unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// Whether a sample has the download, which its receiver slows down.
fn is_download(sample: &Value) -> bool {
    let row = &sample["rows"][0];
    row["local"] == "10.9.0.2:80"
        && row["goodput"].as_f64() > Some(100_000.0)
        && row["queues"]["unsent"].as_u64() > Some(0)
        && row["held"]["reason"] == "peer-window"
}

#[test]
fn dash_14_a_download_is_on_the_page_of_its_command_on_one_of_all_and_in_the_terminal() {
    let Some(lab) = Lab::without_turn("dash", &["curl"]) else { return };
    let observer = Observer::new("dash");
    // With a buffer of 6 MB, curl's kernel opens its window every four to five seconds; so, many times a
    // second.
    lab.kernel.set_sysctl("net.ipv4.tcp_rmem", "4096 65536 262144").unwrap();
    // At the rate below it takes 150 s: longer than a step of this test may.
    lab.file("large", 300_000_000);
    std::fs::write(lab.dir.join("token"), "correct-horse-battery\n").unwrap();
    let page = ["--dash", "9118", "--dash-token-file", "token"];
    let mut server = observer.start(&lab, &[&["serve", "."], &page[..]].concat(), "serving");
    let _slow = slow_curl(&lab, "2M");

    let token = "Authorization: Bearer correct-horse-battery\r\n";
    eventually("the download is on the command's own page", || is_download(&sample(&lab, 9118, token)));
    assert!(ask(&lab, 9118, "/sample", "").starts_with("HTTP/1.1 401"));
    let seen = sample(&lab, 9118, token);
    assert_eq!(seen["stacks"][0]["pid"].as_u64(), Some(server.id().into()));
    assert_eq!(seen["stacks"].as_array().map(Vec::len), Some(1));

    let mut dash =
        observer.start(&lab, &["dash", "127.0.0.1:9119"], "the dashboard is at http://127.0.0.1:9119/");
    eventually("the download is on the page of all stacks", || is_download(&sample(&lab, 9119, "")));
    assert!(ask(&lab, 9119, "/metrics", "").contains("\ntaut_connections{"));

    eventually("the download is in the terminal's sample", || {
        is_download(&observer.json(&["top", "--once", "--json", "--interval", "0.3"]))
    });
    eventually("the same in words", || {
        let text = observer.says(&["top", "--once"]);
        assert!(text.contains("10.9.0.2:80"), "{text}");
        text.contains("receiver's window")
    });
    // Without --once, a line for each sample.
    let mut stream = lab.spawn(
        observer
            .command(&["top", "--json", "--interval", "0.1"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped()),
    );
    let mut lines = BufReader::new(stream.stdout()).lines();
    for _ in 0..2 {
        let sample: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        assert_eq!(sample["stacks"][0]["pid"].as_u64(), Some(server.id().into()), "{sample}");
    }
    drop(lines);
    assert_eq!(stream.wait(), Some(0));
    let none = observer.says(&["top", "--once", "--filter", "nothing has this"]);
    assert!(none.ends_with("\nno connection contains \"nothing has this\" (--filter)\n"), "{none}");

    // What goes wrong is said.
    let mut refused = observer.command(&["dash", "9119"]);
    let said = lab.output(&mut refused);
    let said = String::from_utf8_lossy(&said.stderr).into_owned();
    assert!(
        said.contains("cannot listen on 127.0.0.1:9119")
            && said.contains("choose another port with taut dash"),
        "{said}"
    );
    assert!(observer.fails(&["top"]).contains("needs a terminal"));
    let mut without =
        observer.command(&["serve", ".", "--dash", "9120", "--control", "none", "--tun", "taut7"]);
    let said = lab.output(&mut without);
    let said = String::from_utf8_lossy(&said.stderr).into_owned();
    assert!(said.contains("leave out --control none"), "{said}");

    // The page goes with its command; the other says that there is none.
    server.interrupt();
    assert_eq!(server.wait(), Some(0));
    assert!(lab.kernel.enter(|| TcpStream::connect("127.0.0.1:9118")).unwrap().is_err());
    let none = sample(&lab, 9119, "");
    assert_eq!((none["stacks"].as_array().map(Vec::len), &none["all"]["connections"]), (Some(0), &0.into()));
    dash.interrupt();
    assert_eq!(dash.wait(), Some(130));
    assert!(observer.fails(&["top", "--once"]).contains("no running stack"));
}
