//! The part of a test that runs in a guest, as its first process. Called by ignored tests.

use std::ffi::CStr;
use std::fs;
use std::io;
use std::process::{self, Command};
use std::thread;
use std::time::Duration;

use rustix::mount::{MountFlags, mount};
use rustix::system::{RebootCommand, init_module, reboot};

use super::PASSED;

/// In front of each script: busybox's programs, the card, and `lease`, a client of DHCP that configures it.
const SETUP: &str = r#"
export PATH=/bin
busybox --install -s /bin
mkdir -p /etc
cat >/tmp/dhcp <<'END'
#!/bin/sh
[ "$1" = bound ] || exit 0
[ -z "$mtu" ] || ip link set dev $interface mtu $mtu
ip addr add $ip/$mask dev $interface
ip route add default via $router
for server in $dns; do echo nameserver $server; done >/etc/resolv.conf
[ -z "$search" ] || echo search $search >>/etc/resolv.conf
END
chmod 755 /tmp/dhcp
lease() { udhcpc -i eth0 -n -q -f -t 10 -T 1 -O mtu -O search -s /tmp/dhcp "$@"; }
ip link set lo up
ip link set eth0 up
"#;

/// Runs a script of busybox's shell as the guest's part ([`run`]).
///
/// # Panics
/// When the script fails, and as [`run`].
pub fn shell(script: &str) {
    run(|| {
        let mut shell = Command::new("/bin/busybox");
        let status = shell.args(["sh", "-c", &format!("{SETUP}{script}")]).status();
        assert!(status.unwrap_or_else(|error| panic!("busybox: {error}")).success());
    });
}

/// Runs `part` in the guest, and turns the guest off. If `part` panics, the first process ends, and with it
/// the guest.
///
/// # Panics
/// When this is no guest: the test was started by hand.
pub fn run(part: impl FnOnce()) {
    assert_eq!(process::id(), 1, "this is the part of another test that runs in a guest");
    prepare().unwrap_or_else(|error| panic!("cannot prepare the guest: {error}"));
    part();
    println!("\n{PASSED}");
    // The serial line is slow.
    thread::sleep(Duration::from_millis(200));
    let error = reboot(RebootCommand::PowerOff);
    panic!("the guest cannot be turned off: {error:?}");
}

fn prepare() -> io::Result<()> {
    for (kind, place) in [("proc", "/proc"), ("sysfs", "/sys"), ("devtmpfs", "/dev"), ("tmpfs", "/tmp")] {
        fs::create_dir_all(place)?;
        mount(kind, place, kind, MountFlags::empty(), None::<&CStr>)?;
    }
    load_modules()
}

/// Loads all modules. One that needs another is loaded after it: each round loads at least one more.
fn load_modules() -> io::Result<()> {
    let mut left: Vec<Vec<u8>> = Vec::new();
    for file in fs::read_dir("/modules")? {
        left.push(fs::read(file?.path())?);
    }
    while !left.is_empty() {
        let (before, mut why) = (left.len(), None);
        left.retain(|image| match init_module(image, c"") {
            Ok(()) => false,
            Err(error) => {
                why = Some(error);
                true
            }
        });
        if left.len() == before {
            return Err(why.map_or_else(|| io::ErrorKind::Other.into(), io::Error::from));
        }
    }
    Ok(())
}
