//! The handle on a running stack.

use std::sync::Arc;
use std::time::Duration;

use taut_core::StackConfig;
use taut_device::Device;
use taut_driver::DriverThread;

use crate::builder::Builder;
use crate::socket::AnyShard;

/// A running TCP/IP stack. Clones are handles on the same one.
///
/// When the last handle is dropped the stack stops at once: sockets that are still open fail with
/// [`NotConnected`](std::io::ErrorKind::NotConnected) and what was written but not delivered is lost. [`drain`](Self::drain) first
/// where that matters.
#[derive(Clone, Debug)]
pub struct Stack(Arc<Running>);

#[derive(Debug)]
struct Running {
    shard: Arc<AnyShard>,
    config: Arc<StackConfig>,
    tun: Option<String>,
    /// Stops the thread when dropped; `None` where a runtime drives.
    _thread: Option<DriverThread<Box<dyn Device>>>,
    /// Answers `taut ss` and its like until dropped, if that was asked for.
    #[cfg(feature = "control")]
    control: std::sync::OnceLock<taut_control::Server>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.shard.close();
    }
}

impl Stack {
    /// Describes a stack to be built.
    #[must_use]
    pub fn builder() -> Builder {
        Builder::new()
    }

    pub(crate) fn running(
        shard: Arc<AnyShard>,
        config: Arc<StackConfig>,
        tun: Option<String>,
        thread: Option<DriverThread<Box<dyn Device>>>,
    ) -> Self {
        Self(Arc::new(Running {
            shard,
            config,
            tun,
            _thread: thread,
            #[cfg(feature = "control")]
            control: std::sync::OnceLock::new(),
        }))
    }

    /// Opens the control socket that the builder was told of.
    #[cfg(feature = "control")]
    pub(crate) fn controlled(self, control: crate::control::Control) -> std::io::Result<Self> {
        if let Some(server) = control.open(&self.0.shard, self.tun_name())? {
            // Set once: by the builder.
            _ = self.0.control.set(server);
        }
        Ok(self)
    }

    /// The control socket, if the builder opened one.
    #[cfg(feature = "control")]
    #[must_use]
    pub fn control_path(&self) -> Option<&std::path::Path> {
        self.0.control.get().map(taut_control::Server::path)
    }

    pub(crate) fn shard(&self) -> &Arc<AnyShard> {
        &self.0.shard
    }

    /// How it was configured when it was built; [`sysctl`](Self::sysctl) tells what holds now.
    #[must_use]
    pub fn config(&self) -> &StackConfig {
        &self.0.config
    }

    /// Name of the TUN interface, if the builder opened one.
    #[must_use]
    pub fn tun_name(&self) -> Option<&str> {
        self.0.tun.as_deref()
    }

    /// Connections that the stack knows, those still closing included.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.0.shard.access(|access| access.stack.connections())
    }

    /// Counters since the stack began, by the names that `nstat` prints.
    #[must_use]
    pub fn counters(&self) -> taut_core::Counters {
        self.0.shard.access(|access| *access.stack.counters())
    }

    /// How the queue in front of the device is, if [`Builder::link`] put one there.
    #[must_use]
    pub fn link_report(&self) -> Option<crate::link::LinkReport> {
        self.0.shard.link_report()
    }

    /// The queue disciplines in front of the device, the root first; none when packets go there at once.
    #[must_use]
    pub fn qdiscs(&self) -> Vec<crate::link::QdiscEntry> {
        self.0.shard.qdiscs()
    }

    /// Puts a queue discipline in front of the device while the stack runs, in the words of `tc`: `fq`, `netem delay 50ms
    /// loss 1%`, `tbf rate 100mbit burst 32kb | fq_codel`. It takes the place of the one that is there, and takes over
    /// what waits in it, in order and without loss. While the root is `fq`, that paces, and the stack needs no timers for it.
    ///
    /// # Errors
    /// Which word is wrong; nothing changed then.
    pub fn set_qdisc(&self, text: &str) -> Result<(), crate::link::QdiscSpecError> {
        self.0.shard.set_qdisc(Some(&text.parse()?));
        Ok(())
    }

    /// Takes away what [`set_qdisc`](Self::set_qdisc) put there. The queue of [`Builder::link`] is back then, if there was
    /// one.
    pub fn reset_qdisc(&self) {
        self.0.shard.set_qdisc(None);
    }

    /// What held connections back since the stack began, and what waits in its queues now.
    #[must_use]
    pub fn report(&self) -> taut_core::Report {
        self.0.shard.access(|access| access.stack.report(access.now))
    }

    /// The value of a setting, by the name that `sysctl` knows (`net.ipv4.` may be left out).
    ///
    /// # Errors
    /// [`SysctlError::Unknown`](taut_core::SysctlError::Unknown).
    pub fn sysctl(&self, name: &str) -> Result<String, taut_core::SysctlError> {
        self.0.shard.access(|access| access.stack.sysctl(name))
    }

    /// Changes a setting while the stack runs. What a connection is born with holds for later ones.
    ///
    /// # Errors
    /// As [`SysctlError`](taut_core::SysctlError) says; nothing changed then.
    pub fn set_sysctl(&self, name: &str, value: &str) -> Result<(), taut_core::SysctlError> {
        self.0.shard.access(|access| access.stack.set_sysctl(name, value))
    }

    /// Name and value of every setting, by name.
    #[must_use]
    pub fn sysctls(&self) -> Vec<(&'static str, String)> {
        self.0.shard.access(|access| access.stack.sysctls().collect())
    }

    /// Waits until every connection is over, those too that were dropped with data still to be delivered. Says
    /// whether that came true within `timeout`. Blocks the thread.
    #[must_use]
    pub fn drain(&self, timeout: Duration) -> bool {
        const LOOK_EVERY: Duration = Duration::from_millis(1);
        let clock = self.0.shard.clock();
        let until = clock.now() + timeout.into();
        loop {
            if self.connections() == 0 {
                return true;
            }
            if clock.now() >= until || self.0.shard.is_closed() {
                return false;
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// [`TcpStream::connect`](crate::TcpStream::connect) to an address.
    ///
    /// # Errors
    /// Those of [`TcpStream::connect`](crate::TcpStream::connect).
    #[cfg(feature = "tokio")]
    pub async fn connect(&self, to: std::net::SocketAddr) -> std::io::Result<crate::TcpStream> {
        crate::TcpStream::connect_with(self, to, &taut_core::ConnOptions::default()).await
    }

    /// [`TcpListener::bind`](crate::TcpListener::bind) to an address, without the need to wait.
    ///
    /// # Errors
    /// Those of [`TcpListener::bind`](crate::TcpListener::bind).
    #[cfg(feature = "tokio")]
    pub fn listen(&self, at: std::net::SocketAddr) -> std::io::Result<crate::TcpListener> {
        crate::TcpListener::bind_with(self, at, taut_core::ListenOptions::default())
    }
}
