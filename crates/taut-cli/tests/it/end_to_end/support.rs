//! Namespaces, files and child processes that clean up after themselves.

use std::io::{BufRead as _, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, mpsc};

use taut_cli::text::hex;
use taut_testbed::{Kernel, Meter, Noise, PATIENCE, eventually, live};

/// The stack's address and the kernel's, which are the command's defaults.
pub(crate) const TAUT: &str = "10.9.0.2";
pub(crate) const KERNEL: &str = "10.9.0.1";

/// Of the tests that move gigabytes, one at a time: two would only slow each other down.
static TURN: Mutex<()> = Mutex::new(());

/// The environment of a live test: its turn, a namespace, and a directory.
pub(crate) struct Lab {
    pub(crate) kernel: Kernel,
    pub(crate) dir: PathBuf,
    _turn: Option<MutexGuard<'static, ()>>,
}

impl Lab {
    /// `None`, with a message, if live tests cannot run.
    pub(crate) fn new(name: &str, programs: &[&str]) -> Option<Self> {
        // A test that failed during its turn has nevertheless cleaned up.
        Self::in_turn(name, programs, Some(TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner)))
    }

    /// The same for a test that moves little and mostly waits: it runs beside one that has its turn.
    pub(crate) fn without_turn(name: &str, programs: &[&str]) -> Option<Self> {
        Self::in_turn(name, programs, None)
    }

    fn in_turn(name: &str, programs: &[&str], turn: Option<MutexGuard<'static, ()>>) -> Option<Self> {
        if !live::ready(programs) {
            return None;
        }
        let kernel = match Kernel::new() {
            Ok(kernel) => kernel,
            Err(error) => {
                live::skip(&error.to_string());
                return None;
            }
        };
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        Some(Self { kernel, dir, _turn: turn })
    }

    /// Writes a file of pseudo-random bytes; returns its SHA-256.
    pub(crate) fn file(&self, name: &str, bytes: u64) -> String {
        use std::io::Write as _;
        const BLOCK: u64 = 16 << 20;
        let mut file = std::fs::File::create(self.dir.join(name)).unwrap();
        let (mut meter, mut noise) = (Meter::default(), Noise::new(1));
        while meter.bytes() < bytes {
            let block = noise.bytes(BLOCK.min(bytes - meter.bytes()) as usize);
            file.write_all(&block).unwrap();
            meter.update(&block);
        }
        hex(&meter.finish())
    }

    /// Starts nginx, which serves the files of the lab's directory. `listens` says where, in its language.
    pub(crate) fn nginx(&self, listens: &str) -> Running {
        let dir = self.dir.display();
        let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|kind| format!("{kind}_temp_path {dir}/{kind};"))
            .concat();
        // One process, so that killing it ends it.
        let config = format!(
            "daemon off; master_process off; pid {dir}/pid; error_log {dir}/error.log; events {{}} http {{ \
             access_log off; sendfile on; {temporary} server {{ {listens} root {dir}; }} }}"
        );
        let path = self.dir.join("nginx.conf");
        std::fs::write(&path, config).unwrap();
        let mut nginx = Command::new("/usr/sbin/nginx");
        nginx.arg("-e").arg(self.dir.join("error.log")).arg("-c").arg(path);
        let running = self.spawn(nginx.stdin(Stdio::null()));
        eventually("nginx has its pid file", || self.dir.join("pid").exists());
        running
    }

    /// Starts a program in the namespace.
    pub(crate) fn spawn(&self, command: &mut Command) -> Running {
        let what = format!("{command:?}");
        let child = self.kernel.namespace.spawn(command.current_dir(&self.dir)).expect(&what);
        // A stuck child is killed, so that the test gets the end of its pipes and fails.
        let (over, running) = mpsc::channel::<()>();
        let pid = child.id();
        std::thread::spawn(move || {
            if running.recv_timeout(PATIENCE * 2) == Err(mpsc::RecvTimeoutError::Timeout) {
                signal(pid, "KILL");
            }
        });
        Running { child, what, over: Some(over) }
    }

    /// Runs a program in the namespace to its end.
    pub(crate) fn output(&self, command: &mut Command) -> Output {
        self.spawn(command.stdout(Stdio::piped()).stderr(Stdio::piped())).output()
    }

    /// Starts `taut` with its standard error in a file; returns the file.
    pub(crate) fn logged(&self, args: &[&str], log: &str) -> (Running, PathBuf) {
        let path = self.dir.join(log);
        let file = std::fs::File::create(&path).unwrap();
        let mut command = taut(args);
        (self.spawn(command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(file)), path)
    }

    /// Starts `taut`, and waits until it prints `ready` on standard error.
    pub(crate) fn taut(&self, args: &[&str], ready: &str) -> Running {
        let mut running =
            self.spawn(taut(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()));
        running.wait_for(ready);
        running
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// The command under test.
pub(crate) fn taut(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_taut"));
    // Without the configuration of whoever runs the tests.
    command.args(args).env("XDG_CONFIG_HOME", "/nonexistent");
    command
}

/// Bytes of the large files: `TAUT_LIVE_BYTES`, 1 GB without it.
pub(crate) fn live_bytes() -> u64 {
    match std::env::var("TAUT_LIVE_BYTES") {
        Ok(text) => text.parse().expect("TAUT_LIVE_BYTES is a number of bytes"),
        Err(_) => 1_000_000_000,
    }
}

/// Reads to the end; length and SHA-256.
pub(crate) fn drain(from: impl Read) -> (u64, String) {
    let meter = Meter::of(from).unwrap();
    (meter.bytes(), hex(&meter.finish()))
}

fn signal(pid: u32, name: &str) -> bool {
    Command::new("kill").args(["-s", name, &pid.to_string()]).status().is_ok_and(|status| status.success())
}

/// The confined child of a gateway or proxy, or the process itself if it has none.
pub(crate) fn worker_of(process: u32) -> u32 {
    let children = std::fs::read_to_string(format!("/proc/{process}/task/{process}/children"));
    let mut children =
        children.iter().flat_map(|text| text.split_whitespace()).filter_map(|pid| pid.parse().ok());
    let is_confined = |pid: &u32| {
        let numbers = |pid: u32| {
            let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
            let line = status.lines().find_map(|line| line.strip_prefix("NSpid:")).map(str::to_owned);
            line.map_or(0, |line| line.split_whitespace().count())
        };
        numbers(*pid) > numbers(process)
    };
    children.find(is_confined).unwrap_or(process)
}

/// A child process that is killed when the test is over.
pub(crate) struct Running {
    child: Child,
    what: String,
    /// Dropped when the child need not be watched any more.
    over: Option<mpsc::Sender<()>>,
}

impl Running {
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// The process that does the work: in a sandbox, the one with a number of its own inside.
    pub(crate) fn worker(&self) -> u32 {
        worker_of(self.child.id())
    }

    pub(crate) fn stdout(&mut self) -> std::process::ChildStdout {
        self.child.stdout.take().expect("standard output is piped")
    }

    pub(crate) fn stdin(&mut self) -> std::process::ChildStdin {
        self.child.stdin.take().expect("standard input is piped")
    }

    /// Reads standard error until a line contains `text`. The rest of it is read by a thread: a full pipe
    /// would block the child.
    pub(crate) fn wait_for(&mut self, text: &str) -> std::thread::JoinHandle<String> {
        let mut lines = BufReader::new(self.child.stderr.take().expect("standard error is piped")).lines();
        let mut said = String::new();
        loop {
            match lines.next() {
                Some(Ok(line)) if line.contains(text) => break,
                Some(Ok(line)) => said += &format!("{line}\n"),
                _ => panic!("{} ended without printing {text:?}; it printed:\n{said}", self.what),
            }
        }
        std::thread::spawn(move || lines.map_while(Result::ok).map(|line| line + "\n").collect())
    }

    pub(crate) fn runs(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Ends it as Ctrl-C does.
    pub(crate) fn interrupt(&self) {
        self.signal("INT");
    }

    /// Whether the process handles SIGHUP, SIGINT and SIGTERM by now, according to the kernel.
    pub(crate) fn catches_signals(&self) -> bool {
        const ALL: u64 = 1 | 1 << (2 - 1) | 1 << (15 - 1);
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
        u64::from_str_radix(caught.trim(), 16).unwrap() & ALL == ALL
    }

    /// The nice values of its threads.
    pub(crate) fn nice_values(&self) -> Vec<i64> {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.worker())).unwrap();
        let nice = |task: std::io::Result<std::fs::DirEntry>| {
            let stat = std::fs::read_to_string(task.ok()?.path().join("stat")).ok()?;
            // After the name, which is in brackets: the seventeenth word (proc(5), field 19).
            stat.rsplit_once(')')?.1.split_whitespace().nth(16)?.parse().ok()
        };
        tasks.filter_map(nice).collect()
    }

    /// Sends it a signal.
    pub(crate) fn signal(&self, name: &str) {
        assert!(signal(self.child.id(), name));
    }

    /// Sends a signal to the process that does the work.
    pub(crate) fn signal_worker(&self, name: &str) {
        assert!(signal(self.worker(), name));
    }

    /// Waits for its end; returns its exit code.
    pub(crate) fn wait(&mut self) -> Option<i32> {
        let mut status = None;
        eventually(&format!("the end of {}", self.what), || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        status.and_then(|status| status.code())
    }

    /// Waits for its end, and returns its output.
    pub(crate) fn output(mut self) -> Output {
        let read = |from: Option<Box<dyn Read + Send>>| {
            std::thread::spawn(move || {
                let mut out = Vec::new();
                from.map(|mut from| from.read_to_end(&mut out)).transpose().unwrap();
                out
            })
        };
        let out = read(self.child.stdout.take().map(|pipe| Box::new(pipe) as _));
        let err = read(self.child.stderr.take().map(|pipe| Box::new(pipe) as _));
        self.wait();
        let status = self.child.wait().unwrap();
        Output { status, stdout: out.join().unwrap(), stderr: err.join().unwrap() }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.over.take());
        _ = self.child.kill();
        _ = self.child.wait();
    }
}
