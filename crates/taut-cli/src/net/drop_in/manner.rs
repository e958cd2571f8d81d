//! How `taut gateway` begins and ends: ready when a descriptor or the service manager gets a line, over when
//! its namespace is gone; where it stands in for pasta, passt or slirp4netns, also in the background, with a
//! file for its number, ready when its caller's process ends, and over with a descriptor. A confined process
//! cannot open these, so they are opened here. Called by `gateway.rs`, before there is a second thread.
//!
//! ```text
//!   caller ── waits for ── this process ── copies standard error, waits for a byte ── ends with code 0
//!                             └─ fork ─▶ the gateway, in a session of its own ── serves: a byte
//! ```

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{self, PipeReader, Read as _, Write as _};
use std::mem::MaybeUninit;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{OwnedFd, RawFd};
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use anyhow::Context as _;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::inotify::{CreateFlags, Reader, WatchFlags, add_watch, init};
use rustix::io::{Errno, retry_on_intr};
use rustix::process::{Pid, PidfdFlags, WaitOptions, pidfd_open, setsid, waitpid};
use rustix::stdio::{dup2_stderr, dup2_stdin, dup2_stdout};
use taut::device::Cidr;
use taut::device::sys::{Forked, exit_now, fork_alone, inherited};
use taut_gateway::sandbox::{Caller, Notify};
use taut_gateway::{HostSockets, listen_at};
use tokio::sync::oneshot;

/// Clients of the API that may wait.
const API_BACKLOG: i32 = 128;

/// The manner of a gateway.
#[derive(Debug, Default)]
pub(crate) struct Manner {
    /// Addresses at which the gateway's name server answers, beside its own.
    pub dns_at: Vec<IpAddr>,
    /// Addresses of the guest's network that are others of the host's.
    pub mapped: Vec<(IpAddr, IpAddr)>,
    /// From where flows leave this host.
    pub by: HostSockets,
    /// The file of the user namespace that is entered before the guest's network namespace.
    pub user: Option<String>,
    /// The namespace whose end is the gateway's.
    pub place: Option<String>,
    /// It has another end.
    pub stays: bool,
    pub background: bool,
    /// It ends with the first machine.
    pub one_off: bool,
    pub pid_file: Option<PathBuf>,
    pub log_file: Option<PathBuf>,
    pub exit_fd: Option<RawFd>,
    /// Where forwards are added and removed.
    pub api: Option<PathBuf>,
    held: Mutex<Held>,
}

/// The descriptors that were opened.
#[derive(Debug, Default)]
struct Held {
    /// A line for each says that the gateway serves.
    ready: Vec<File>,
    notify: Option<Notify>,
    ends: Vec<Watch>,
    api: Option<UnixListener>,
}

/// Something whose end is the gateway's.
#[derive(Debug)]
enum Watch {
    /// A process or a pipe: it can be read at its end.
    Descriptor(OwnedFd),
    /// A file in a directory.
    File(OwnedFd, OsString),
}

impl Manner {
    /// Opens what the manner needs. In the background, the caller's process waits here until the gateway
    /// serves, and ends. `ready` is the number of a descriptor.
    ///
    /// # Errors
    /// A descriptor, file or namespace cannot be opened: the error names it.
    pub(crate) fn begin(&self, ready: Option<RawFd>) -> anyhow::Result<()> {
        let mut held = Held { notify: Notify::from_environment(), ..Held::default() };
        if self.background {
            held.ready.push(background().context("the background")?);
        }
        if let Some(path) = &self.log_file {
            let file = OpenOptions::new().append(true).create(true).mode(0o600).open(path);
            dup2_stderr(file.with_context(|| format!("the log file {}", path.display()))?)?;
        }
        if let Some(path) = &self.pid_file {
            std::fs::write(path, format!("{}\n", std::process::id()))
                .with_context(|| format!("the file for the process's number, {}", path.display()))?;
        }
        if let Some(number) = ready {
            held.ready.push(inherited(number).with_context(|| format!("descriptor {number}"))?.into());
        }
        if let Some(number) = self.exit_fd {
            let end = inherited(number).with_context(|| format!("descriptor {number}"))?;
            held.ends.push(Watch::Descriptor(end));
        }
        if let Some(place) = self.place.as_deref().filter(|_| !self.stays) {
            held.ends.push(watch(place).with_context(|| format!("the namespace {place}"))?);
        }
        if let Some(path) = &self.api {
            held.api = Some(listen_at(path, API_BACKLOG).context("the API socket")?);
        }
        *self.held() = held;
        Ok(())
    }

    /// The addresses of a gateway that stand for it on a link of Ethernet.
    pub(crate) fn on_link(&self, pairs: &[(Cidr, Cidr)]) -> Vec<Cidr> {
        let others = self.dns_at.iter().filter_map(|at| Cidr::new(*at, if at.is_ipv4() { 32 } else { 128 }));
        pairs.iter().map(|(_, own)| *own).chain(others).collect()
    }

    fn held(&self) -> std::sync::MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends with this namespace, too, unless it has one. One that cannot be watched is served nevertheless.
    pub(crate) fn ends_with(&self, place: Option<&str>) {
        let end = place.filter(|_| self.place.is_none()).and_then(|place| watch(place).ok());
        self.held().ends.extend(end);
    }

    /// The gateway serves. With a process outside, that one reports it to the service manager.
    pub(crate) fn ready(&self, outside: Option<&Caller>) {
        let mut held = self.held();
        for mut to in std::mem::take(&mut held.ready) {
            // One that does not wait for it needs none.
            _ = to.write_all(b"1\n");
        }
        held.notify.iter().for_each(Notify::ready);
        outside.into_iter().for_each(Caller::ready);
    }

    /// The gateway ends.
    pub(crate) fn stopping(&self) {
        self.held().notify.iter().for_each(Notify::stopping);
    }

    /// The way to the service manager, for the process outside.
    pub(crate) fn take_notify(&self) -> Option<Notify> {
        self.held().notify.take()
    }

    /// The socket of the API; none the second time.
    pub(crate) fn take_api(&self) -> Option<UnixListener> {
        self.held().api.take()
    }

    /// Waits for the first end. To be called once, in a tokio runtime.
    pub(crate) async fn ended(&self) {
        let ends = std::mem::take(&mut self.held().ends);
        if ends.is_empty() {
            return std::future::pending().await;
        }
        // A thread of its own, for which no runtime waits: processes and directories are no sockets. One that
        // cannot be watched any more is gone.
        let (gone, is_gone) = oneshot::channel::<()>();
        std::thread::spawn(move || {
            _ = first_of(&ends);
            drop(gone);
        });
        _ = is_gone.await;
    }
}

/// Returns when one of them is gone.
fn first_of(ends: &[Watch]) -> io::Result<()> {
    loop {
        let mut all: Vec<PollFd<'_>> =
            ends.iter().map(|end| PollFd::new(end.descriptor(), PollFlags::IN)).collect();
        retry_on_intr(|| poll(&mut all, None))?;
        let found: Vec<bool> = all.iter().map(|one| !one.revents().is_empty()).collect();
        for (end, _) in ends.iter().zip(found).filter(|(_, is_there)| *is_there) {
            if end.is_gone()? {
                return Ok(());
            }
        }
    }
}

impl Watch {
    const fn descriptor(&self) -> &OwnedFd {
        match self {
            Self::Descriptor(end) | Self::File(end, _) => end,
        }
    }

    /// After it could be read.
    fn is_gone(&self) -> io::Result<bool> {
        let Self::File(directory, name) = self else { return Ok(true) };
        let mut space = [MaybeUninit::uninit(); 4_096];
        let mut reader = Reader::new(directory, &mut space);
        loop {
            let event = match reader.next() {
                Err(Errno::WOULDBLOCK) => return Ok(false),
                event => event?,
            };
            // Without a name it is about the directory itself.
            if event.file_name().is_none_or(|own| own.to_bytes() == name.as_encoded_bytes()) {
                return Ok(true);
            }
        }
    }
}

/// The end of a namespace that is named by a process or a file.
fn watch(place: &str) -> anyhow::Result<Watch> {
    let of_process = place.strip_prefix("/proc/").and_then(|rest| rest.strip_suffix("/ns/net"));
    if let Ok(pid) = of_process.unwrap_or(place).parse() {
        let pid = Pid::from_raw(pid).context("no process has this number")?;
        return Ok(Watch::Descriptor(pidfd_open(pid, PidfdFlags::empty())?));
    }
    let path = Path::new(place);
    let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else {
        anyhow::bail!("it is not a file in a directory")
    };
    let events = init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
    add_watch(&events, directory, WatchFlags::DELETE | WatchFlags::MOVED_FROM | WatchFlags::DELETE_SELF)?;
    // It may have gone before.
    path.metadata()?;
    Ok(Watch::File(events, name.to_owned()))
}

/// Goes into the background, and returns there what says that the gateway serves. Standard error goes to the
/// caller's process until then, and nowhere afterwards.
fn background() -> io::Result<File> {
    let ((ready, says), (said, errors)) = (io::pipe()?, io::pipe()?);
    match fork_alone()? {
        Forked::Child => {
            drop((ready, said));
            setsid()?;
            let null = OpenOptions::new().read(true).write(true).open("/dev/null")?;
            dup2_stdin(&null)?;
            dup2_stdout(&null)?;
            dup2_stderr(&errors)?;
            Ok(File::from(OwnedFd::from(says)))
        }
        Forked::Parent(gateway) => {
            drop((says, errors));
            let code = wait(ready, said, gateway).unwrap_or(1);
            exit_now(code)
        }
    }
}

/// The caller's process: its exit code, when the gateway serves or has failed.
fn wait(mut ready: PipeReader, mut said: PipeReader, gateway: Pid) -> io::Result<i32> {
    let mut is_silent = false;
    loop {
        let mut ends = vec![PollFd::new(&ready, PollFlags::IN)];
        ends.extend((!is_silent).then(|| PollFd::new(&said, PollFlags::IN)));
        retry_on_intr(|| poll(&mut ends, None))?;
        let [is_ready, is_said] = [0, 1].map(|at| ends.get(at).is_some_and(|end| !end.revents().is_empty()));
        if is_said {
            let mut text = [0; 4_096];
            let len = said.read(&mut text)?;
            is_silent = len == 0;
            _ = io::stderr().write_all(&text[..len]);
        } else if is_ready {
            return match ready.read(&mut [0])? {
                1 => Ok(0),
                _ => {
                    // It has failed, and says why.
                    _ = io::copy(&mut said, &mut io::stderr());
                    let status = retry_on_intr(|| waitpid(Some(gateway), WaitOptions::empty()))?;
                    Ok(status.and_then(|(_, status)| status.exit_status()).unwrap_or(1).max(1))
                }
            };
        }
    }
}

/// This host's own address of the same family, from which it would reach the network. Sends nothing.
pub(super) fn host_address(like: IpAddr) -> Option<IpAddr> {
    let [any, far]: [SocketAddr; 2] = match like {
        IpAddr::V4(_) => [([0, 0, 0, 0], 0).into(), ([192, 0, 2, 1], 9).into()],
        IpAddr::V6(_) => [([0_u16; 8], 0).into(), ([0x2000, 0, 0, 0, 0, 0, 0, 1_u16], 9).into()],
    };
    let socket = UdpSocket::bind(any).ok()?;
    socket.connect(far).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd as _;

    use taut_testbed::Scratch;

    use super::*;

    fn is_over(manner: &Manner, act: impl FnOnce()) -> bool {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let ended = manner.ended();
            let mut ended = std::pin::pin!(ended);
            let waits = std::time::Duration::from_millis(200);
            let before = tokio::time::timeout(waits, &mut ended).await.is_ok();
            act();
            let after = tokio::time::timeout(waits * 100, ended).await.is_ok();
            !before && after
        })
    }

    #[test]
    fn gw_191_the_end_of_a_process_or_a_file_is_noticed() {
        let by_file = |pid: u32| format!("/proc/{pid}/ns/net");
        for place in [|pid: u32| pid.to_string(), by_file as fn(u32) -> String] {
            let mut sleeper = std::process::Command::new("sleep").arg("100").spawn().unwrap();
            let manner = Manner { place: Some(place(sleeper.id())), ..Manner::default() };
            manner.begin(None).unwrap();
            assert!(is_over(&manner, || {
                sleeper.kill().unwrap();
                sleeper.wait().unwrap();
            }));
        }
        let scratch = Scratch::new("manner");
        let file = scratch.join("netns");
        std::fs::write(&file, "").unwrap();
        std::fs::write(scratch.join("other"), "").unwrap();
        let place = Some(file.display().to_string());
        let manner = Manner { place: place.clone(), ..Manner::default() };
        manner.begin(None).unwrap();
        std::fs::remove_file(scratch.join("other")).unwrap();
        assert!(is_over(&manner, || std::fs::remove_file(&file).unwrap()));
        // One that is gone already, and no process.
        let gone = Manner { place, ..Manner::default() };
        assert!(gone.begin(None).is_err());
        assert!(Manner { place: Some("0".to_owned()), ..Manner::default() }.begin(None).is_err());
        let manner = Manner { place: Some("/no/such/file".to_owned()), stays: true, ..Manner::default() };
        manner.begin(None).unwrap();
    }

    #[test]
    fn gw_192_a_descriptor_is_an_end_and_another_is_told() {
        let (mut told, says) = io::pipe().unwrap();
        let (ends, other) = io::pipe().unwrap();
        let manner = Manner { exit_fd: Some(ends.as_raw_fd()), ..Manner::default() };
        manner.begin(Some(says.as_raw_fd())).unwrap();
        manner.ready(None);
        let mut line = [0; 2];
        told.read_exact(&mut line).unwrap();
        assert_eq!(&line, b"1\n");
        assert!(is_over(&manner, || drop(other)));
    }
}
