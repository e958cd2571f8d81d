//! Nothing that the benchmark has started outlives it, also if it is killed.
//!
//! ```text
//!   this program ── a pipe ──▶ the same program, first process of a process namespace ──▶ gateways, guests, servers
//!        └ killed: the pipe ends ─▶ it ends ─▶ the kernel kills all the others in its namespace
//! ```
//!
//! A signal for the parent's death (`PR_SET_PDEATHSIG`) would not do: it comes when the thread ends that has
//! started the child, and a child in another network namespace is started on a thread of its own. Nor does it
//! reach the children's children.

use std::io::Read as _;
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context as _, Result};

/// Set for the inner one.
const INSIDE: &str = "TAUT_GATEWAYS_INSIDE";

/// Runs this program once more in a process namespace, and returns how that ended. `None` there: go on.
pub fn run() -> Result<Option<ExitCode>> {
    if std::env::var_os(INSIDE).is_some() {
        std::thread::spawn(|| {
            // Nothing is ever written: this ends with the other end.
            _ = std::io::stdin().read(&mut [0]);
            std::process::exit(1)
        });
        return Ok(None);
    }
    let mut child = Command::new("unshare")
        .args(["--pid", "--fork", "--kill-child", "--mount-proc", "--"])
        .arg(std::env::current_exe()?)
        .args(std::env::args_os().skip(1))
        .env(INSIDE, "1")
        .stdin(Stdio::piped())
        .spawn()
        .context("unshare (util-linux) does not start")?;
    let pipe = child.stdin.take();
    let status = child.wait()?;
    drop(pipe);
    let code = status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1);
    Ok(Some(ExitCode::from(code)))
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader};
    use std::process::Child;
    use std::time::{Duration, Instant};

    use super::*;

    const WORD: &str = "TAUT_GATEWAYS_WORD";

    /// The processes, as this namespace sees them, that sleep for that long.
    fn sleepers(word: &str) -> Vec<u32> {
        let entries = std::fs::read_dir("/proc").unwrap().flatten();
        let processes = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let sleeps = |process: &u32| {
            let line = std::fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
            line.starts_with(b"sleep\0") && line.windows(word.len()).any(|at| at == word.as_bytes())
        };
        processes.filter(sleeps).collect()
    }

    fn children(process: u32) -> Vec<u32> {
        let tasks = std::fs::read_dir(format!("/proc/{process}/task")).unwrap().flatten();
        let text: String =
            tasks.map(|task| std::fs::read_to_string(task.path().join("children")).unwrap()).collect();
        text.split_whitespace().map(|child| child.parse().unwrap()).collect()
    }

    /// The part of the benchmark in the test below: a child, and a child's child that is none of ours any
    /// more.
    #[test]
    #[ignore = "it is run by the other test"]
    fn runs_until_it_is_killed() {
        let Ok(word) = std::env::var(WORD) else { return };
        if run().unwrap().is_some() {
            return;
        }
        let _child = Command::new("sleep").arg(&word).stdin(Stdio::null()).spawn().unwrap();
        let line = format!("sleep {word} & setsid sleep {word} &");
        assert!(Command::new("sh").args(["-c", &line]).stdin(Stdio::null()).status().unwrap().success());
        println!("begun");
        std::thread::sleep(Duration::from_secs(100));
    }

    fn begin(word: &str) -> Child {
        let mut outer = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "together::tests::runs_until_it_is_killed", "--ignored", "--nocapture"])
            .env(WORD, word)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(outer.stdout.take().unwrap()).lines();
        let says = lines.by_ref().map_while(Result::ok).any(|line| line.ends_with("begun"));
        assert!(says, "needs root and unshare");
        become_so_many(word, 3);
        outer
    }

    fn become_so_many(word: &str, count: usize) {
        let begun = Instant::now();
        while sleepers(word).len() != count {
            assert!(begun.elapsed() < Duration::from_secs(5), "{:?}, not {count}", sleepers(word));
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    #[test]
    fn what_it_has_started_ends_with_it() {
        for (at, whom) in ["the program", "the inner one", "unshare"].into_iter().enumerate() {
            let word = format!("98{:09}{at}", std::process::id());
            let mut outer = begin(&word);
            let unshare = children(outer.id())[0];
            let killed = match whom {
                "the program" => outer.id(),
                "unshare" => unshare,
                _ => children(unshare)[0],
            };
            let killed = rustix::process::Pid::from_raw(killed.try_into().unwrap()).unwrap();
            rustix::process::kill_process(killed, rustix::process::Signal::KILL).unwrap();
            assert!(!outer.wait().unwrap().success(), "{whom}");
            become_so_many(&word, 0);
        }
    }
}
