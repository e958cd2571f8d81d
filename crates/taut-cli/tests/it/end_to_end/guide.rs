//! The commands of docs/guide, run as the pages show them: those of a page one after the other in one shell,
//! in a network of its own and an empty directory. A fence `text` behind them shows what they print.
//!
//! ````text
//! ```sh                each command must end well; one that fails is tried again, for fifteen seconds
//! ```sh no-run: WHY    is not run
//! ```text              each word of it without a digit is printed by the commands of the fence before it
//! ```text exact        all of it is, up to the first …
//! ````
//!
//! example.com is a web server of the test, with one Git repository, and so is github.com for `git`. `sudo`
//! runs the command as it is.

use std::fs;
use std::net::UdpSocket;
use std::ops::Range;
use std::path::Path;
use std::process::{Command, Stdio};

use super::support::Lab;

/// Commands of the shell before a page. A command in the background must last a second, or end well.
const BEFORE: &str = r#"
echo nameserver 198.51.100.53 > resolv.conf
mount --bind resolv.conf /etc/resolv.conf
git init -q -b main source
git -C source -c user.name=test -c user.email=test@example.com commit -q --allow-empty -m "A commit"
git clone -q --bare source me/project.git
git -C me/project.git update-server-info
python3 -m http.server --bind 198.51.100.1 80 > web.log 2>&1 &
job=$!
sudo() { "$@"; }
step() {
    for try in $(seq 60); do
        . ./command-$1 > output-$1 2>&1 && { alive; return; }
        sleep 0.25
    done
    fail "$(cat command-$1)"
}
alive() {
    [ "$!" = "$job" ] && return
    job=$!
    sleep 1
    kill -0 $job 2> /dev/null || wait $job || fail "in the background"
}
fail() {
    echo "failed: $1"
    tail -n 8 output-*
    exit 1
}
"#;
/// A page's commands, and what ranges of them print.
#[derive(Default)]
struct Page {
    commands: Vec<String>,
    shown: Vec<(Range<usize>, bool, String)>,
}

impl Page {
    fn read(name: &str, text: &str) -> Self {
        let mut page = Self::default();
        // The commands of the fence before, until a text has been compared with them.
        let mut before = 0..0;
        let mut lines = text.lines();
        while let Some(line) = lines.next() {
            let Some(kind) = line.strip_prefix("```") else { continue };
            let body: Vec<_> = lines.by_ref().take_while(|line| !line.starts_with("```")).collect();
            match kind {
                "sh" => {
                    let first = page.commands.len();
                    page.commands.extend(commands(&body));
                    before = first..page.commands.len();
                }
                "text" | "text exact" if !before.is_empty() => {
                    page.shown.push((std::mem::take(&mut before), kind == "text exact", body.join("\n")));
                }
                _ if kind.starts_with("sh") || kind.starts_with("console") => {
                    let why = kind.strip_prefix("sh no-run: ");
                    assert!(why.is_some_and(|why| why.len() > 10), "{name}: ```{kind} does not say why");
                    before = 0..0;
                }
                _ => {}
            }
        }
        page
    }

    /// Compares what the page shows with what was printed.
    fn compare(&self, name: &str, printed: &[String]) {
        for (range, is_exact, shown) in &self.shown {
            let printed = printed[range.clone()].concat();
            let at = format!("{name}: {:?} printed:\n{printed}", self.commands[range.end - 1]);
            if *is_exact {
                let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
                let shown = words(shown.split('…').next().unwrap_or_default());
                assert!(words(&printed).contains(&shown), "{at}\nand not:\n{shown}");
                continue;
            }
            for word in shown.split_whitespace().filter(|word| !word.contains(|c: char| c.is_ascii_digit())) {
                assert!(word == "…" || printed.contains(word), "{at}\nand not {word:?}");
            }
        }
    }
}

/// The commands of a fence: one a line, except a line that ends in `\` and a document behind `<<'END'`.
fn commands(lines: &[&str]) -> Vec<String> {
    let (mut all, mut command, mut end) = (Vec::new(), String::new(), None);
    for &line in lines {
        command += line;
        command.push('\n');
        end = match end {
            Some(end) if line != end => Some(end),
            Some(_) => None,
            None => line.split_once("<<'").and_then(|(_, rest)| rest.split_once('\'')).map(|(end, _)| end),
        };
        if end.is_none() && !line.ends_with('\\') {
            all.push(std::mem::take(&mut command));
        }
    }
    assert!(command.is_empty(), "{command:?} has no end");
    all.retain(|command| !command.trim().is_empty() && !command.starts_with('#'));
    all
}

/// A name server: every name has the address of the test's web server, of IPv4 alone.
fn answer(socket: &UdpSocket) {
    let mut question = [0; 512];
    while let Ok((len, from)) = socket.recv_from(&mut question) {
        let end = question[12..len].iter().position(|&byte| byte == 0).map_or(len, |at| 12 + at + 5);
        let is_v4 = question[..end].ends_with(&[0, 1, 0, 1]);
        let mut reply = question[..end].to_vec();
        reply[2..12].copy_from_slice(&[0x81, 0x80, 0, 1, 0, u8::from(is_v4), 0, 0, 0, 0]);
        if is_v4 {
            reply.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 198, 51, 100, 1]);
        }
        _ = socket.send_to(&reply, from);
    }
}

/// Runs a page; returns what each command printed.
fn run(name: &str, page: &Page) -> Option<Vec<String>> {
    let programs = ["curl", "git", "ip", "mount", "nft", "openssl", "python3", "unshare"];
    let lab = Lab::new(&format!("guide-{name}"), &programs)?;
    lab.kernel.run("ip address add 198.51.100.1/32 dev lo").unwrap();
    lab.kernel.run("ip address add 198.51.100.53/32 dev lo").unwrap();
    let socket = lab.kernel.enter(|| UdpSocket::bind("198.51.100.53:53")).unwrap().unwrap();
    std::thread::spawn(move || answer(&socket));
    let file = |name: &str| lab.dir.join(name);
    fs::write(file("index.html"), "Example Domain\n").unwrap();
    fs::write(file("README.md"), "# A file\n").unwrap();
    let mut script = BEFORE.to_owned();
    for (number, command) in page.commands.iter().enumerate() {
        fs::write(file(&format!("command-{number}")), command).unwrap();
        script += &format!("step {number}\n");
    }
    fs::write(file("page.sh"), script).unwrap();
    let taut = Path::new(env!("CARGO_BIN_EXE_taut")).parent().unwrap().display();
    let path = std::env::var("PATH").unwrap();
    let mut shell = Command::new("timeout");
    // Commands that still run are killed when the shell ends.
    shell.args("1800 unshare --mount --pid --fork --kill-child --mount-proc bash page.sh".split(' '));
    shell.current_dir(&lab.dir).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    shell
        .env("PATH", format!("{taut}:{path}"))
        .env("HOME", &lab.dir)
        .env("TAUT_CONTROL_DIR", file("control"));
    shell.env("GIT_CONFIG_COUNT", "1").env("GIT_CONFIG_KEY_0", "url.http://example.com/.insteadOf");
    shell.env("GIT_CONFIG_VALUE_0", "https://github.com/").env("no_proxy", "");
    for proxy in ["http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"] {
        shell.env_remove(proxy);
    }
    let output = lab.kernel.namespace.spawn(&mut shell).unwrap().wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "docs/guide/{name}.md: {}\n{said}", output.status);
    let printed =
        |number| String::from_utf8_lossy(&fs::read(file(&format!("output-{number}"))).unwrap()).into();
    Some((0..page.commands.len()).map(printed).collect())
}

#[test]
fn commands_of_the_guide_run_and_print_what_it_shows() {
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide");
    let (mut names, mut count) = (Vec::new(), 0);
    for entry in fs::read_dir(guide).unwrap() {
        names.push(entry.unwrap().path());
    }
    names.sort();
    for path in names {
        let name = path.file_stem().unwrap().to_str().unwrap();
        let page = Page::read(name, &fs::read_to_string(&path).unwrap());
        if page.commands.is_empty() {
            continue;
        }
        let Some(printed) = run(name, &page) else { return };
        page.compare(name, &printed);
        count += page.commands.len();
    }
    assert!(count > 90, "{count} commands");
}
