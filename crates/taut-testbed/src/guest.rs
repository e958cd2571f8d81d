//! A virtual machine with a Debian kernel 6.12, for tests of what this machine's kernel lacks: queue
//! disciplines such as `fq`, a network card with a ring of its own, timestamps as before Linux 6.13. Called
//! by tests.
//!
//! ```text
//!   test ─ Guest::run ─▶ initramfs: this test's program as /init, its libraries, modules ─▶ qemu
//!        ◀─ what it printed ─────────────────────────────────────── inside::run: its part in the guest
//! ```
//!
//! The guest is the test's own program, which the kernel starts as its first process: with the name of an
//! ignored test, which does the part inside. So a test and its guest are in one file, and need no second
//! build.
//!
//! **Time.** The guest's processor is emulated, and its clock counts instructions: one takes a nanosecond,
//! and time passes at once while there is nothing to do (`-icount shift=0,sleep=off`). So what a test
//! measures inside does not depend on how busy this machine is, nor on whether its `/dev/kvm` works. The
//! guest is a slow machine of one processor, or of several that take turns. A guest whose card is
//! [plugged](Guest::plug) into another program has this machine's time, because the other program has.
//!
//! `scripts/guest-kernel` fetches the kernel.

mod initramfs;
pub mod inside;

use std::env;
use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use crate::patience::now;
use crate::{Scratch, live};
use initramfs::Initramfs;

const QEMU: &str = "qemu-system-x86_64";
/// What the part inside prints at its end.
const PASSED: &str = "guest: passed";

/// How a guest is made.
#[derive(Clone, Debug)]
pub struct Guest {
    folder: PathBuf,
    cards: usize,
    processors: usize,
    /// Unix sockets of programs that carry a card's frames.
    plugs: Vec<PathBuf>,
    /// The last byte but one of those cards' stations.
    station: u8,
    /// Options of the network that QEMU makes for a card, if there is one.
    user_network: Option<String>,
    /// Of QEMU.
    environment: Vec<(String, PathBuf)>,
    arguments: Vec<String>,
    /// Programs of this machine, by their names in the guest.
    programs: Vec<(String, PathBuf)>,
    words: Vec<String>,
}

impl Guest {
    /// A guest with one processor, and with these programs of this machine. `None` if this machine cannot run
    /// one: that is reported as a skipped test.
    #[must_use]
    pub fn new(programs: &[&str]) -> Option<Self> {
        let Some(folder) = folder() else {
            live::skip("no kernel for a guest (run scripts/guest-kernel)");
            return None;
        };
        let mut missing: Vec<&str> = Vec::new();
        let mut found = Vec::new();
        for program in programs {
            match live::find(program) {
                Some(path) => found.push(((*program).to_owned(), path)),
                None => missing.push(program),
            }
        }
        missing.extend([QEMU, "ldd"].into_iter().filter(|program| live::find(program).is_none()));
        if !missing.is_empty() {
            live::skip(&format!("not installed: {} (run make setup)", missing.join(", ")));
            return None;
        }
        Some(Self {
            folder,
            cards: 0,
            processors: 1,
            plugs: Vec::new(),
            station: 1,
            user_network: None,
            environment: Vec::new(),
            arguments: Vec::new(),
            programs: found,
            words: Vec::new(),
        })
    }

    /// The file of its kernel.
    #[must_use]
    pub fn kernel(&self) -> PathBuf {
        self.folder.join("vmlinuz")
    }

    /// With busybox as `/bin/busybox`. `None` if it is not there: that is reported as a skipped test.
    #[must_use]
    pub fn busybox(mut self) -> Option<Self> {
        let path = self.folder.join("busybox");
        if !path.is_file() {
            live::skip("no busybox for a guest (run scripts/guest-kernel)");
            return None;
        }
        self.programs.push(("busybox".to_owned(), path));
        Some(self)
    }

    /// With a network card more, whose frames go over the stream socket that a program has at this path. The
    /// guest then has this machine's time.
    #[must_use]
    pub fn plug(mut self, socket: &Path) -> Self {
        self.plugs.push(socket.to_owned());
        self
    }

    /// With the stations `02:00:00:00:NUMBER:00`, `:01`, … of the cards that are plugged; the number is 1 by
    /// default.
    #[must_use]
    pub const fn station(mut self, number: u8) -> Self {
        self.station = number;
        self
    }

    /// With a network card more, whose network QEMU makes by itself, by libslirp. The guest then has this
    /// machine's time.
    #[must_use]
    pub fn user_network(mut self) -> Self {
        self.user_network = Some(String::new());
        self
    }

    /// The same with options, each with a comma in front, as in `,hostfwd=tcp::2222-:22`.
    #[must_use]
    pub fn user_network_with(mut self, options: &str) -> Self {
        self.user_network = Some(options.to_owned());
        self
    }

    /// Gives QEMU itself an environment variable, such as `LD_LIBRARY_PATH`.
    #[must_use]
    pub fn environment(mut self, name: &str, value: &Path) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Gives QEMU further arguments.
    #[must_use]
    pub fn arguments(mut self, more: &[&str]) -> Self {
        self.arguments.extend(more.iter().map(|&argument| argument.to_owned()));
        self
    }

    /// With this program of the project's own, as `/bin/` and its name.
    #[must_use]
    pub fn program(mut self, path: impl Into<PathBuf>) -> Self {
        let path = path.into();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        self.programs.push((name, path));
        self
    }

    /// With so many network cards (`virtio-net`), all on one wire: `eth0`, `eth1`, ….
    #[must_use]
    pub const fn cards(mut self, count: usize) -> Self {
        self.cards = count;
        self
    }

    /// With so many processors.
    #[must_use]
    pub const fn processors(mut self, count: usize) -> Self {
        self.processors = count;
        self
    }

    /// Gives the part inside an environment variable. The name must have no dot.
    #[must_use]
    pub fn set(mut self, name: &str, value: &str) -> Self {
        self.words.push(format!("{name}={value}"));
        self
    }

    /// Boots it, with the ignored test `test` of this program as its part inside, and returns what that
    /// printed.
    ///
    /// # Panics
    /// When the part inside fails, with what it printed; or when the guest takes longer than `limit` of this
    /// machine's time.
    #[must_use]
    pub fn run(&self, test: &str, limit: Duration) -> String {
        let scratch = Scratch::new(&format!("guest-{}", test.replace("::", "-")));
        let image = scratch.join("initramfs");
        self.write_image(&image).unwrap_or_else(|error| panic!("the guest's files: {error}"));
        let mut qemu =
            Qemu(self.command(&image, test).spawn().unwrap_or_else(|error| panic!("{QEMU}: {error}")));
        let printed = qemu.wait(limit);
        // The console ends lines as a terminal does.
        let printed = printed.replace('\r', "");
        match printed.split_once(PASSED) {
            Some((before, _)) => before.to_owned(),
            None => {
                // The end of the first process is the end of the kernel, at length.
                let printed = printed.split("Kernel panic").next().unwrap_or_default();
                panic!("the guest failed in {test}:\n{printed}")
            }
        }
    }

    fn write_image(&self, to: &Path) -> io::Result<()> {
        let mut image = Initramfs::default();
        image.program("init", &env::current_exe()?)?;
        for (name, program) in &self.programs {
            image.program(&format!("bin/{name}"), program)?;
        }
        for file in fs::read_dir(&self.folder)? {
            let file = file?.path();
            if file.extension().is_some_and(|extension| extension == "ko") {
                let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
                image.file(&format!("modules/{name}"), &fs::read(&file)?, false);
            }
        }
        fs::write(to, image.finish())
    }

    fn command(&self, image: &Path, test: &str) -> Command {
        let mut command = Command::new(QEMU);
        command.args(["-nodefaults", "-display", "none", "-no-reboot", "-machine", "q35", "-cpu", "max"]);
        command.args(["-accel", "tcg", "-m", "1024", "-serial", "stdio"]);
        if self.plugs.is_empty() && self.user_network.is_none() {
            command.args(["-icount", "shift=0,sleep=off"]);
        }
        command.args(["-smp", &self.processors.to_string()]);
        for card in 0..self.cards {
            let (id, mac) = (format!("wire{card}"), format!("02:00:00:00:00:{:02x}", card + 1));
            command.args(["-netdev", &format!("hubport,id={id},hubid=0")]);
            command.args(["-device", &format!("virtio-net-pci,netdev={id},mac={mac},romfile=")]);
        }
        for (number, socket) in self.plugs.iter().enumerate() {
            let path = socket.display();
            let netdev = format!("stream,id=plug{number},server=off,addr.type=unix,addr.path={path}");
            let mac = format!("02:00:00:00:{:02x}:{number:02x}", self.station);
            let device = format!("virtio-net-pci,netdev=plug{number},mac={mac},romfile=");
            command.args(["-netdev", &netdev, "-device", &device]);
        }
        if let Some(options) = &self.user_network {
            let device = "virtio-net-pci,netdev=user,mac=02:00:00:00:02:00,romfile=";
            command.args(["-netdev", &format!("user,id=user{options}"), "-device", device]);
        }
        command.args(&self.arguments).envs(self.environment.iter().map(|(name, value)| (name, value)));
        // No speculation to guard against, and a clock that needs no check against another one.
        let words = "console=ttyS0 quiet panic=-1 mitigations=off tsc=reliable net.ifnames=0";
        let words = format!("{words} {} -- --exact {test} --ignored --nocapture", self.words.join(" "));
        command.arg("-kernel").arg(self.kernel()).arg("-initrd").arg(image);
        command
            .args(["-append", &words])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit());
        command
    }
}

/// The running emulator, which ends with its test.
struct Qemu(Child);

impl Qemu {
    /// Waits for its end, and returns what came over the serial line.
    fn wait(&mut self, limit: Duration) -> String {
        let mut console = self.0.stdout.take().unwrap_or_else(|| panic!("{QEMU} has no output"));
        let reader = thread::spawn(move || {
            let mut bytes = Vec::new();
            // What was printed before an error is wanted, too.
            let _ = console.read_to_end(&mut bytes);
            String::from_utf8_lossy(&bytes).into_owned()
        });
        let begin = now();
        let mut is_late = false;
        while matches!(self.0.try_wait(), Ok(None)) && !is_late {
            thread::sleep(Duration::from_millis(20));
            is_late = now() - begin > limit;
        }
        _ = self.0.kill();
        let printed = reader.join().unwrap_or_default();
        assert!(!is_late, "the guest took longer than {limit:?}:\n{printed}");
        printed
    }
}

impl Drop for Qemu {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

/// The folder with the kernel: `$TAUT_GUEST`, or `guest` beside the build.
fn folder() -> Option<PathBuf> {
    let named = env::var_os("TAUT_GUEST").map(PathBuf::from);
    let beside = env::current_exe().ok().into_iter().flat_map(|program| {
        program.ancestors().skip(2).take(3).map(|folder| folder.join("guest")).collect::<Vec<_>>()
    });
    named.into_iter().chain(beside).find(|folder| folder.join("vmlinuz").is_file())
}
