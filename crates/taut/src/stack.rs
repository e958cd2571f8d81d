//! The handle to a running stack.

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::task::Poll;
use std::time::Duration;

use taut_core::StackConfig;
use taut_driver::{Access, Interest, Shard};
use taut_replay::{RecordHandle, RecordReport};

use crate::wait::{block_until, until};

/// A running TCP/IP stack. Clones are handles to the same stack.
///
/// When the last handle is dropped, the stack stops immediately: sockets that are still open fail with
/// [`NotConnected`](std::io::ErrorKind::NotConnected), and data that was written but not delivered is lost.
/// Call [`drain`](Self::drain) first if that matters.
///
/// ```
/// use std::time::Duration;
/// use taut::device::{LinkCaps, pipe};
///
/// let (near, far) = pipe(LinkCaps::plain(1500), 1 << 20)?;
/// let stack = taut::Stack::builder().device(near).address("10.0.0.1/24").build()?;
/// stack.set_sysctl("tcp_congestion_control", "bbr").unwrap();
/// println!("{} connections, {} segments out", stack.connections(), stack.counters().out_segs);
/// assert!(stack.drain(Duration::from_secs(1)));
/// # drop(far);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Stack(Arc<Running>);

/// A handle that does not keep the stack running.
#[derive(Clone, Debug)]
pub(crate) struct WeakStack(Weak<Running>);

impl WeakStack {
    pub(crate) const fn none() -> Self {
        Self(Weak::new())
    }

    pub(crate) fn upgrade(&self) -> Option<Stack> {
        self.0.upgrade().map(Stack)
    }
}

#[derive(Debug)]
struct Running {
    shards: Arc<[Arc<Shard>]>,
    /// The shard that begins the next connection, round robin.
    next: AtomicUsize,
    config: Arc<StackConfig>,
    resolver: crate::dns::Resolver,
    tun: Option<String>,
    /// Each stops its thread when dropped; none if a runtime drives the stack.
    _threads: Vec<Thread>,
    /// One for each shard, if the builder requested recordings.
    records: Vec<RecordHandle>,
    /// Answers `taut ss` and similar commands until dropped, if the builder requested it.
    #[cfg(all(feature = "control", target_os = "linux"))]
    control: std::sync::OnceLock<taut_control::Server>,
}

/// Drives a shard until it is dropped.
pub(crate) type Thread = Box<dyn std::fmt::Debug + Send + Sync>;

impl Drop for Running {
    fn drop(&mut self) {
        for shard in &*self.shards {
            shard.close();
        }
    }
}

impl Stack {
    pub(crate) fn running(
        shards: Arc<[Arc<Shard>]>,
        config: Arc<StackConfig>,
        resolver: crate::dns::Resolver,
        tun: Option<String>,
        threads: Vec<Thread>,
        records: Vec<RecordHandle>,
    ) -> Self {
        #[cfg(feature = "tracing")]
        tracing::info!(addresses = ?config.addresses, shards = shards.len(), "stack built");
        Self(Arc::new(Running {
            shards,
            next: AtomicUsize::new(0),
            config,
            resolver,
            tun,
            _threads: threads,
            records,
            #[cfg(all(feature = "control", target_os = "linux"))]
            control: std::sync::OnceLock::new(),
        }))
    }

    /// Opens the control socket that the builder requested.
    #[cfg(all(feature = "control", target_os = "linux"))]
    pub(crate) fn controlled(self, control: crate::control::Control) -> std::io::Result<Self> {
        if let Some(server) = control.open(&self.0.shards, self.tun_name())? {
            // Set only once, by the builder.
            _ = self.0.control.set(server);
        }
        Ok(self)
    }

    /// The control socket, if the builder opened one.
    #[cfg(all(feature = "control", target_os = "linux"))]
    #[must_use]
    pub fn control_path(&self) -> Option<&std::path::Path> {
        self.0.control.get().map(taut_control::Server::path)
    }

    pub(crate) fn downgrade(&self) -> WeakStack {
        WeakStack(Arc::downgrade(&self.0))
    }

    pub(crate) fn shards(&self) -> &[Arc<Shard>] {
        &self.0.shards
    }

    /// The shard that begins a connection: its owner, if the local port decides that.
    pub(crate) fn shard_for(&self, to: SocketAddr, bind: Option<SocketAddr>) -> &Arc<Shard> {
        let shards = &self.0.shards;
        let index = match bind {
            Some(bind) if bind.port() != 0 && shards.len() > 1 => {
                shards[0].access(|access| access.stack.owner_of_connect(to, Some(bind)))
            }
            _ => None,
        };
        let index = index.unwrap_or_else(|| self.0.next.fetch_add(1, Ordering::Relaxed));
        &shards[index % shards.len()]
    }

    /// Calls `f` in every shard, one after the other.
    fn each<R>(&self, mut f: impl FnMut(&mut Access<'_>) -> R) -> impl Iterator<Item = R> {
        self.0.shards.iter().map(move |shard| shard.access(&mut f))
    }

    /// The number of shards of this stack: [`StackBuilder::shards`](crate::StackBuilder::shards).
    #[must_use]
    pub fn shard_count(&self) -> usize {
        self.0.shards.len()
    }

    /// [`counters`](Self::counters) of each shard.
    #[must_use]
    pub fn shard_counters(&self) -> Vec<taut_core::Counters> {
        self.each(|access| *access.stack.counters()).collect()
    }

    /// How the recordings of the shards are going, if the builder requested any.
    #[must_use]
    pub fn recordings(&self) -> Vec<RecordReport> {
        self.0.records.iter().map(RecordHandle::report).collect()
    }

    /// The recordings of the shards. They outlive the stack: the last write can fail, too.
    #[must_use]
    pub fn recording_handles(&self) -> Vec<RecordHandle> {
        self.0.records.clone()
    }

    /// Changes the stack's addresses, its routes or its MTU, in every shard.
    ///
    /// On Ethernet, an address is checked first (RFC 5227, RFC 4862), which takes four to eight seconds, for
    /// IPv6 one to two. The stack has it after that, or never if another station has it:
    /// [`wait_for_address`](Self::wait_for_address).
    ///
    /// # Errors
    /// See [`NetworkError`](taut_core::NetworkError); after an error nothing has changed.
    pub fn change_network(&self, change: taut_core::NetworkChange) -> Result<(), taut_core::NetworkError> {
        self.0.shards[0].change_network(change)?;
        // They are alike, so what one takes all take; what is to go may have gone, because the first has told
        // them.
        for shard in &self.0.shards[1..] {
            match shard.change_network(change) {
                Err(taut_core::NetworkError::NotFound) => {}
                result => result?,
            }
        }
        Ok(())
    }

    /// Waits until all shards have this address, or without one any that is not link-local. Returns it if
    /// that happened within `timeout`. Blocks the thread.
    #[must_use]
    pub fn wait_for_address(&self, address: Option<IpAddr>, timeout: Duration) -> Option<IpAddr> {
        let is_local = |ip: IpAddr| match ip {
            IpAddr::V4(v4) => v4.is_link_local(),
            IpAddr::V6(v6) => v6.is_unicast_link_local(),
        };
        let is_it = |ip: &IpAddr| address.map_or(!is_local(*ip), |address| *ip == address);
        block_until(self.shards(), timeout, || self.everywhere().into_iter().find(is_it))
    }

    /// The addresses that all shards have: each learns by itself.
    fn everywhere(&self) -> Vec<IpAddr> {
        let mut lists =
            self.each(|access| access.stack.networks().map(|own| own.address).collect::<Vec<_>>());
        let mut first = lists.next().unwrap_or_default();
        for list in lists {
            first.retain(|own| list.contains(own));
        }
        first
    }

    /// The stack's addresses, each with its network.
    #[must_use]
    pub fn networks(&self) -> Vec<taut_core::Network> {
        self.0.shards[0].access(|access| access.stack.networks().collect())
    }

    /// The routes that were added or learnt, those with longer prefixes first.
    #[must_use]
    pub fn routes(&self) -> Vec<taut_core::Route> {
        self.0.shards[0].access(|access| access.stack.routes().copied().collect())
    }

    /// Name servers that the link told, which [`Resolver::Servers`](crate::dns::Resolver) asks.
    #[must_use]
    pub fn name_servers(&self) -> Vec<IpAddr> {
        self.0.shards[0].access(|access| access.stack.name_servers().to_vec())
    }

    /// Where names are looked up.
    #[must_use]
    pub fn resolver(&self) -> &crate::dns::Resolver {
        &self.0.resolver
    }

    /// The address that a server of DHCP has leased, and how long from now.
    #[must_use]
    pub fn lease(&self) -> Option<taut_core::Lease> {
        self.0.shards[0].access(|access| access.stack.lease(access.now))
    }

    /// The configuration with which the stack was built; [`sysctl`](Self::sysctl) has the current values.
    #[must_use]
    pub fn config(&self) -> &StackConfig {
        &self.0.config
    }

    /// What the device can do, such as cutting super-packets of TCP and of UDP, and its MTU as it is now.
    #[must_use]
    pub fn caps(&self) -> crate::device::LinkCaps {
        self.0.shards[0].access(|access| *access.stack.caps())
    }

    /// Name of the TUN or Ethernet interface, if the builder opened one.
    #[must_use]
    pub fn tun_name(&self) -> Option<&str> {
        self.0.tun.as_deref()
    }

    /// The number of connections, including those that are still closing.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.each(|access| access.stack.connections()).sum()
    }

    /// Counters since the stack began, by the names that `nstat` prints.
    #[must_use]
    pub fn counters(&self) -> taut_core::Counters {
        let mut all = taut_core::Counters::default();
        for counters in self.shard_counters() {
            all.add(&counters);
        }
        all
    }

    /// A report on the queue in front of the device, if [`StackBuilder::link`](crate::StackBuilder::link) put
    /// one there; with several shards, on the first one's.
    #[must_use]
    pub fn link_report(&self) -> Option<crate::qdisc::LinkReport> {
        self.0.shards[0].link_report()
    }

    /// The last reason why the device did not take a packet: for example, the packet was too large for it.
    /// Such a packet counts as lost; the counter `TautDeviceErrors` is the number of such packets. With
    /// several shards, this is the reason of the first shard that has one. A device that is gone for good
    /// [ends](Self::closed) the stack instead.
    #[must_use]
    pub fn last_device_error(&self) -> Option<std::io::Error> {
        self.0.shards.iter().find_map(|shard| shard.last_device_error())
    }

    /// The queue disciplines in front of the device, the root first; none if packets go straight to the
    /// device. With several shards, those of one shard after the other.
    #[must_use]
    pub fn qdiscs(&self) -> Vec<crate::qdisc::QdiscEntry> {
        self.0.shards.iter().flat_map(|shard| shard.qdiscs()).collect()
    }

    /// Puts a queue discipline in front of the device while the stack runs, in the syntax of `tc`: `fq`,
    /// `netem delay 50ms loss 1%`, `tbf rate 100mbit burst 32kb | fq_codel`. It replaces the present one and
    /// takes over the packets that wait in it, in order and without loss. Each shard has a queue discipline
    /// of its own. While the root is `fq`, it paces the packets, and the stack needs no timers for that.
    ///
    /// # Errors
    /// The wrong word in `text`; after an error nothing has changed.
    pub fn set_qdisc(&self, text: &str) -> Result<(), crate::qdisc::QdiscSpecError> {
        let spec = text.parse()?;
        for shard in &*self.0.shards {
            shard.set_qdisc(Some(&spec));
        }
        Ok(())
    }

    /// Removes the queue discipline that [`set_qdisc`](Self::set_qdisc) put there. The queue of
    /// [`StackBuilder::link`](crate::StackBuilder::link), if there was one, is then in force again.
    pub fn reset_qdisc(&self) {
        for shard in &*self.0.shards {
            shard.set_qdisc(None);
        }
    }

    /// What held connections back since the stack began, and the bytes in its queues now.
    #[must_use]
    pub fn report(&self) -> taut_core::Report {
        let mut reports = self.each(|access| access.stack.report(access.now));
        // There is at least one shard.
        let mut all = reports.next().unwrap_or_default();
        for report in reports {
            all.add(&report);
        }
        all
    }

    /// Every socket with the numbers that `taut ss` shows, and what `taut nstat` and `taut explain` show: the
    /// same values, without a control socket. The stack's lock is held for a few dozen connections at a time.
    ///
    /// ```
    /// # use taut::device::{LinkCaps, pipe};
    /// # let (near, far) = pipe(LinkCaps::plain(1_500), 1 << 20)?;
    /// let stack = taut::Stack::builder().device(near).address("10.0.0.1/24").build()?;
    /// # let far = taut::Stack::builder().device(far).address("10.0.0.2/24").build()?;
    /// # let listener = taut::blocking::TcpListener::bind(&far, "10.0.0.2:80")?;
    /// let stream = taut::blocking::TcpStream::connect(&stack, "10.0.0.2:80")?;
    /// for conn in stack.snapshot().connections {
    ///     println!("{} {} → {}: {:?} ns", conn.state, conn.local, conn.peer, conn.rtt_ns);
    /// }
    /// # assert_eq!(stack.snapshot().connections[0].state, "ESTAB");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[cfg(feature = "observe")]
    #[must_use]
    pub fn snapshot(&self) -> crate::observe::StackSnapshot {
        let shards = self.shards();
        crate::observe::StackSnapshot::of(shards.len(), |shard, copy| {
            shards[shard].access(|access| copy(access.stack, access.now));
        })
    }

    /// The congestion control that a text names, such as `bbr`, or with parameters `mine:gain=2.5`, for
    /// [`ConnOptions::congestion`](taut_core::ConnOptions::congestion): a built-in one, or one that was given
    /// to [`StackBuilder::controller`](crate::StackBuilder::controller).
    ///
    /// # Errors
    /// [`AlgorithmError`](taut_core::congestion::AlgorithmError) lists the known algorithms, or the
    /// algorithm's parameters.
    pub fn algorithm(
        &self,
        text: &str,
    ) -> Result<taut_core::Algorithm, taut_core::congestion::AlgorithmError> {
        self.config().congestion.registry.algorithm(text)
    }

    /// The value of a setting, by its `sysctl` name (`net.ipv4.` may be left out).
    ///
    /// # Errors
    /// [`SysctlError::Unknown`](taut_core::SysctlError::Unknown).
    pub fn sysctl(&self, name: &str) -> Result<String, taut_core::SysctlError> {
        self.0.shards[0].access(|access| access.stack.sysctl(name))
    }

    /// Changes a setting while the stack runs. Settings that a connection copies when it begins apply to
    /// later connections only.
    ///
    /// # Errors
    /// See [`SysctlError`](taut_core::SysctlError); after an error nothing has changed.
    pub fn set_sysctl(&self, name: &str, value: &str) -> Result<(), taut_core::SysctlError> {
        // A value that one shard refuses is refused by all, beginning with the first.
        self.each(|access| access.stack.set_sysctl(name, value)).collect()
    }

    /// Name and value of every setting, in the order of their names.
    #[must_use]
    pub fn sysctls(&self) -> Vec<(&'static str, String)> {
        self.0.shards[0].access(|access| access.stack.sysctls().collect())
    }

    /// Why the stack has ended, if it has: its device is gone
    /// ([`NetworkDown`](std::io::ErrorKind::NetworkDown)), for example because the TUN interface was deleted,
    /// or the stack was shut down. Every socket fails with the same error, and every waiting task and thread
    /// is woken.
    #[must_use]
    pub fn closed(&self) -> Option<std::io::Error> {
        self.0.shards.iter().find_map(|shard| shard.closed())
    }

    /// Waits until the stack has [ended](Self::closed), and returns the reason. For a program that would
    /// otherwise wait only for something else, such as its standard input. Any runtime may poll it.
    pub async fn until_closed(&self) -> std::io::Error {
        // The shards end together.
        let shard = &self.0.shards[0];
        match until::<Infallible>(shard, Interest::End, |_| Poll::Pending).await {
            Ok(never) => match never {},
            Err(why) => why,
        }
    }

    /// Waits until every connection is over, including those that were dropped with data still to be
    /// delivered. Returns whether that happened within `timeout`. Blocks the thread.
    #[must_use]
    pub fn drain(&self, timeout: Duration) -> bool {
        let until = self.0.shards[0].clock().now() + timeout.into();
        let is_idle = |access: &mut Access<'_>| match access.stack.connections() {
            0 => Poll::Ready(Ok(())),
            _ => Poll::Pending,
        };
        // A shard may have new connections by the time when the last one has none.
        while self.connections() > 0 {
            let mut waits =
                self.shards().iter().map(|shard| shard.wait(Interest::Idle, Some(until), is_idle));
            if !waits.all(|waited| matches!(waited, Some(Ok(())))) {
                return false;
            }
        }
        true
    }
}
