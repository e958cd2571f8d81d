//! From a description to a running stack: device, interface, configuration, driver.

#[cfg(target_os = "linux")]
mod tun;

use std::error::Error;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use taut_core::congestion::Definition;
use taut_core::{FastOpenKeys, StackConfig};
use taut_device::Cidr;
use taut_driver::{Device, DriverThread, Shard};
use taut_link::{LinkSpec, QdiscSpec};
use taut_replay::{RecordFile, RecordHandle, Taped};

use crate::dns::Resolver;
use crate::stack::{Stack, Thread};

/// The largest number of queues of a TUN interface. Linux: `MAX_TAP_QUEUES`.
const SHARDS_MAX: u16 = 256;

/// Describes a [`Stack`]: its device, its addresses, its configuration.
///
/// ```no_run
/// let stack = taut::Stack::builder()
///     .tun("taut0")
///     .address("10.0.0.2/24")
///     .host_address("10.0.0.1/24")
///     .qdisc("netem delay 20ms")
///     .set_sysctl("tcp_congestion_control", "bbr")
///     .build()?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Default)]
pub struct StackBuilder {
    devices: Vec<Device>,
    #[cfg(target_os = "linux")]
    tun: tun::Tunnel,
    link: Option<LinkSpec>,
    qdisc: Option<QdiscSpec>,
    busy_poll: taut_core::Duration,
    resolver: Resolver,
    addresses: Vec<Cidr>,
    config: StackConfig,
    seed: Option<[u8; 32]>,
    thread_name: Option<String>,
    #[cfg(target_os = "linux")]
    priority: Option<taut_device::Priority>,
    portable: bool,
    shards: Option<u16>,
    record: Option<PathBuf>,
    /// The recordings' files, and the name of the interface, if they are open already.
    opened: (Vec<RecordFile>, Option<String>),
    #[cfg(all(feature = "control", target_os = "linux"))]
    control: crate::control::Control,
    /// The first mistake, for `build` to report.
    mistake: Option<io::Error>,
}

/// The shards of a stack, before anything drives them.
struct Shards {
    shards: Arc<[Arc<Shard>]>,
    config: Arc<StackConfig>,
    resolver: Resolver,
    tun: Option<String>,
    records: Vec<RecordHandle>,
}

impl Stack {
    /// A builder for a stack.
    #[must_use]
    pub fn builder() -> StackBuilder {
        StackBuilder::default()
    }
}

impl StackBuilder {
    /// Sends and receives over this device.
    #[must_use]
    pub fn device(mut self, device: impl Into<Device>) -> Self {
        self.devices = vec![device.into()];
        self
    }

    /// Sends and receives over these queues of one device, each with a [shard](Self::shards) of its own. A
    /// packet may arrive on any of them; the packets of a connection all leave by the same one.
    #[must_use]
    pub fn queues(mut self, queues: impl IntoIterator<Item = impl Into<Device>>) -> Self {
        self.devices = queues.into_iter().map(Into::into).collect();
        self
    }

    /// Puts a queue in front of the device, with the given rate and limit. Packets then wait in this queue,
    /// and not uncounted in the device or in the network beyond it.
    #[must_use]
    pub fn link(mut self, spec: LinkSpec) -> Self {
        self.link = Some(spec);
        self
    }

    /// [`link`](Self::link) in the syntax of `tc`, such as `rate 100mbit limit 64kb delay 20ms`.
    #[must_use]
    pub fn link_from(mut self, text: &str) -> Self {
        self.link = self.parsed(text).or(self.link);
        self
    }

    /// Puts a queue discipline in front of the device, in the syntax of `tc`, as [`Stack::set_qdisc`] does on
    /// a running stack. With a [`link`](Self::link), it replaces that link's queue; the link's delay stays.
    #[must_use]
    pub fn qdisc(mut self, text: &str) -> Self {
        self.qdisc = self.parsed(text);
        self
    }

    /// Chooses where names in `connect`, `bind` and `send_to` are looked up: by the system unless this says
    /// otherwise, which on a VPN tells every name to the network outside.
    #[must_use]
    pub fn resolver(mut self, resolver: Resolver) -> Self {
        self.resolver = resolver;
        self
    }

    /// Sets for how long packets are looked for again and again before a thread sleeps; zero by default. That
    /// keeps a processor busy, and saves the wake-up, which takes tens of microseconds.
    ///
    /// A thread that blocks counts from the beginning of its wait, as with SO_BUSY_POLL. With
    /// [`build_tokio`](Self::build_tokio) the stack's task counts from the last packet, and other tasks run
    /// meanwhile. Where the packets of several threads arrive by turns, none of them looks.
    #[must_use]
    pub fn busy_poll(mut self, most: Duration) -> Self {
        self.busy_poll = most.into();
        self
    }

    /// Gives the stack an address, with the prefix of the network that is routed to it, such as `10.0.0.2/24`
    /// or `fd00::2/64`. Call it again for further addresses.
    #[must_use]
    pub fn address(mut self, address: &str) -> Self {
        let parsed = self.parsed::<Cidr>(address);
        self.addresses.extend(parsed);
        self
    }

    /// Replaces the configuration, apart from addresses given with [`address`](Self::address).
    #[must_use]
    pub fn config(mut self, config: StackConfig) -> Self {
        self.config = config;
        self
    }

    /// Changes fields of the configuration.
    #[must_use]
    pub fn configure(mut self, change: impl FnOnce(&mut StackConfig)) -> Self {
        change(&mut self.config);
        self
    }

    /// Changes a setting by its `sysctl` name (`net.ipv4.` may be left out), as [`Stack::set_sysctl`] does on
    /// a running stack.
    #[must_use]
    pub fn set_sysctl(mut self, name: &str, value: &str) -> Self {
        let set = self.config.set_sysctl(name, value);
        self.checked(set);
        self
    }

    /// Adds a congestion control of your own, which is then available by name: as `tcp_congestion_control`,
    /// and for single sockets.
    #[must_use]
    pub fn controller(mut self, definition: Definition) -> Self {
        let added = self.config.congestion.registry.add(definition);
        self.checked(added);
        self
    }

    /// Sets the seed of all randomness. Use it only for repeatable runs: an attacker who knows it can forge
    /// packets.
    #[must_use]
    pub fn seed(mut self, seed: [u8; 32]) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Divides the stack into `count` shards, each with a queue of the TUN interface, a thread and a lock of
    /// its own; 1 by default. A connection belongs to the same shard for its whole life. Listeners accept
    /// connections of all shards. Limits such as `max_connections` and a listener's backlog apply to each
    /// shard.
    #[must_use]
    pub fn shards(mut self, count: u16) -> Self {
        if count == 0 || count > SHARDS_MAX {
            self.checked(Err::<(), _>(format!("{count} shards: the number must be from 1 to {SHARDS_MAX}")));
        }
        self.shards = Some(count);
        self
    }

    /// [`shards`](Self::shards), with one shard for each processor available to this process.
    #[must_use]
    pub fn shards_per_core(self) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        self.shards(u16::try_from(cores).unwrap_or(SHARDS_MAX).min(SHARDS_MAX))
    }

    /// Sets the name of the stack's thread; `taut` by default. Threads of further shards have their number
    /// appended.
    #[must_use]
    pub fn thread_name(mut self, name: &str) -> Self {
        self.thread_name = Some(name.to_owned());
        self
    }

    /// Records all inputs of the stack in this file, for `taut replay`. Each further shard has a file of its
    /// own, whose name ends in `.1`, `.2` and so on. The file can be read only by its owner, because it
    /// contains payload and the stack's secrets: with them, packets can be forged. If the disk is too slow,
    /// the recording ends, and the stack goes on: [`Stack::recordings`].
    #[must_use]
    pub fn record(mut self, path: impl Into<PathBuf>) -> Self {
        self.record = Some(path.into());
        self
    }

    /// Opens a Unix socket at this path, through which the stack's owner and root can read and control the
    /// stack from other processes: with `taut ss --socket PATH` and similar commands, or
    /// [`taut_control::Client`]. Other users are refused. The file is removed when the stack ends.
    #[cfg(all(feature = "control", target_os = "linux"))]
    #[must_use]
    pub fn control(mut self, path: impl Into<std::path::PathBuf>) -> Self {
        self.control.place = crate::control::SocketPlace::Path(path.into());
        self
    }

    /// Like [`control`](Self::control), at a socket that listens already.
    #[cfg(all(feature = "control", target_os = "linux"))]
    #[must_use]
    pub fn control_socket(mut self, socket: taut_control::place::Bound) -> Self {
        self.control.place = crate::control::SocketPlace::Bound(socket);
        self
    }

    /// Like [`control`](Self::control), at the default place, where `taut ss` finds it:
    /// [`taut_control::place`].
    #[cfg(all(feature = "control", target_os = "linux"))]
    #[must_use]
    pub fn control_default(mut self) -> Self {
        self.control.place = crate::control::SocketPlace::Default;
        self
    }

    /// The rooms of the connections that this program relays, for `taut explain`. The function runs on the
    /// control socket's thread, at each request.
    #[cfg(all(feature = "control", target_os = "linux"))]
    #[must_use]
    pub fn control_rooms(
        mut self,
        rooms: impl Fn() -> Vec<taut_control::rooms::FlowRooms> + Send + Sync + 'static,
    ) -> Self {
        self.control.relayed = crate::control::Relayed(Some(std::sync::Arc::new(rooms)));
        self
    }

    /// Lists and changes of the gateway that this program is, for `taut gateway ctl`. The function runs on
    /// the control socket's thread, at each request.
    #[cfg(all(feature = "control", target_os = "linux"))]
    #[must_use]
    pub fn control_gateway(
        mut self,
        act: impl Fn(
            &taut_control::gateway::GatewayVerb,
        ) -> Result<Vec<taut_control::gateway::GatewayItem>, String>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        self.control.gateway = crate::control::Verbs(Some(std::sync::Arc::new(act)));
        self
    }

    /// The state of the device, for `taut wg show`. The function runs on the control socket's thread, at each
    /// request.
    #[cfg(all(feature = "control", target_os = "linux"))]
    #[must_use]
    pub fn control_device(
        mut self,
        state: impl Fn() -> taut_control::protocol::DeviceReport + Send + Sync + 'static,
    ) -> Self {
        self.control.state = crate::control::DeviceState(Some(std::sync::Arc::new(state)));
        self
    }

    /// Sets the name by which the control socket calls the device; by default the name of the TUN interface,
    /// if the builder opens one.
    #[cfg(all(feature = "control", target_os = "linux"))]
    #[must_use]
    pub fn device_name(mut self, name: &str) -> Self {
        self.control.device_name = Some(name.to_owned());
        self
    }

    /// Opens the interface and the files of the recording now and not in `build`: before the process gives up
    /// the rights to.
    ///
    /// # Errors
    /// Those of `Tun::open` and of making files.
    pub fn open(mut self) -> io::Result<Self> {
        if let Some(mistake) = self.mistake.take() {
            return Err(mistake);
        }
        if self.devices.is_empty() {
            (self.devices, self.opened.1) = self.open_interface(self.shards.map_or(1, usize::from))?;
        }
        if let Some(path) = &self.record {
            let numbers = 0..u16::try_from(self.devices.len()).unwrap_or(u16::MAX);
            let files = numbers.map(|number| RecordFile::create(&numbered_path(path, number)));
            self.opened.0 = files.collect::<io::Result<_>>()?;
        }
        Ok(self)
    }

    /// Starts the stack on a thread of its own.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidInput`] for an invalid address, link, setting or controller; those of
    /// `Tun::open` and of the control socket; or the reason why a thread could not be started;
    /// [`io::ErrorKind::PermissionDenied`] if the kernel refuses the [`priority`](Self::priority).
    pub fn build(mut self) -> io::Result<Stack> {
        let (name, starter) = (self.thread_name.take(), self.starter());
        #[cfg(all(feature = "control", target_os = "linux"))]
        let control = std::mem::take(&mut self.control);
        #[cfg(all(feature = "control", target_os = "linux"))]
        let control = control.with_addresses(&self.addresses, &self.config.addresses);
        let Shards { shards, config, resolver, tun, records } = self.running_shards()?;
        let name = name.as_deref().unwrap_or("taut");
        let spawn = |(index, shard): (usize, &Arc<Shard>)| {
            let numbered = format!("{name}-{index}");
            let (shard, name) = (Arc::clone(shard), if index == 0 { name } else { &numbered });
            starter.start(shard, name)
        };
        let threads = shards.iter().enumerate().map(spawn).collect::<io::Result<_>>()?;
        let stack = Stack::running(shards, config, resolver, tun, threads, records);
        #[cfg(all(feature = "control", target_os = "linux"))]
        let stack = stack.controlled(control)?;
        Ok(stack)
    }

    /// Starts the stack as a task of the current tokio runtime.
    ///
    /// # Errors
    /// Those of [`build`](Self::build), or [`io::ErrorKind::Unsupported`] outside a runtime, or with a
    /// [`priority`](Self::priority): a task has its runtime's.
    #[cfg(feature = "tokio")]
    #[cfg_attr(
        not(all(feature = "control", target_os = "linux")),
        allow(unused_mut, reason = "only a control socket is taken out")
    )]
    pub fn build_tokio(mut self) -> io::Result<Stack> {
        #[cfg(target_os = "linux")]
        if self.priority.is_some() {
            let message =
                "a stack that runs as a task has its runtime's priority: use `build`, or no `priority`";
            return Err(io::Error::new(io::ErrorKind::Unsupported, message));
        }
        #[cfg(all(feature = "control", target_os = "linux"))]
        let control = std::mem::take(&mut self.control);
        #[cfg(all(feature = "control", target_os = "linux"))]
        let control = control.with_addresses(&self.addresses, &self.config.addresses);
        let runtime = tokio::runtime::Handle::try_current()
            .map_err(|error| io::Error::new(io::ErrorKind::Unsupported, error))?;
        let portable = self.portable;
        let Shards { shards, config, resolver, tun, records } = self.running_shards()?;
        for shard in shards.iter().cloned() {
            if portable {
                runtime.spawn(taut_driver::tokio::run_portable(shard));
            } else {
                runtime.spawn(taut_driver::tokio::run(shard));
            }
        }
        let stack = Stack::running(shards, config, resolver, tun, Vec::new(), records);
        #[cfg(all(feature = "control", target_os = "linux"))]
        let stack = stack.controlled(control)?;
        Ok(stack)
    }

    /// Drives the stack as on a system without epoll and timerfd. For tests of that on Linux.
    #[doc(hidden)]
    #[must_use]
    pub fn portable_driver(mut self) -> Self {
        self.portable = true;
        self
    }

    const fn starter(&self) -> Starter {
        Starter {
            #[cfg(target_os = "linux")]
            priority: self.priority,
            portable: self.portable,
        }
    }

    #[cfg(not(target_os = "linux"))]
    fn open_interface(&mut self, _queues: usize) -> io::Result<(Vec<Device>, Option<String>)> {
        let message = "there is no TUN interface for this system: give the stack a device (`device`)";
        Err(io::Error::new(io::ErrorKind::Unsupported, message))
    }

    /// The value of a result. An error is kept for `build` to report.
    fn checked<T>(&mut self, meant: Result<T, impl Into<Box<dyn Error + Send + Sync>>>) -> Option<T> {
        let kept = |error| io::Error::new(io::ErrorKind::InvalidInput, error);
        meant.map_err(|error| _ = self.mistake.get_or_insert_with(|| kept(error.into()))).ok()
    }

    fn parsed<T: FromStr<Err: Into<Box<dyn Error + Send + Sync>>>>(&mut self, text: &str) -> Option<T> {
        let meant = text.parse();
        self.checked(meant)
    }

    fn running_shards(mut self) -> io::Result<Shards> {
        if let Some(mistake) = self.mistake.take() {
            return Err(mistake);
        }
        let given = std::mem::take(&mut self.devices);
        let count = self.shards.map_or(given.len().max(1), usize::from);
        if (!given.is_empty() && count != given.len()) || (count > 1 && self.link.is_some()) {
            let message = "several shards need a device with as many queues, and no link in front of it, which would be \
                           one for all";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        self.config.addresses.extend(self.addresses.iter().map(|cidr| cidr.address()));
        let (files, opened) = std::mem::take(&mut self.opened);
        let mut files = files.into_iter();
        let (devices, tun) = if given.is_empty() { self.open_interface(count)? } else { (given, opened) };
        let seed = match self.seed {
            Some(seed) => seed,
            None => random_seed()?,
        };
        // One key for all shards: a client's next connection may belong to another one.
        self.config
            .fast_open
            .keys
            .get_or_insert_with(|| FastOpenKeys::from_seed(&numbered_seed(seed, usize::from(u16::MAX) - 1)));
        let config = Arc::new(self.config);
        let mut shards = Vec::with_capacity(devices.len());
        let (count, mut records) = (u16::try_from(devices.len()).unwrap_or(u16::MAX), Vec::new());
        for (index, device) in devices.into_iter().enumerate() {
            // The randomness of one shard must reveal nothing about that of another.
            let own =
                if index == 0 || self.seed.is_some() { numbered_seed(seed, index) } else { random_seed()? };
            let stack = match &self.record {
                None => Taped::from(taut_core::Stack::new(Arc::clone(&config), device.caps, own)),
                Some(path) => {
                    let number = u16::try_from(index).unwrap_or(u16::MAX);
                    let file = files.next();
                    let file = file.map_or_else(|| RecordFile::create(&numbered_path(path, number)), Ok)?;
                    let config = Arc::clone(&config);
                    let (stack, handle) =
                        taut_replay::record_in(file, config, device.caps, own, (number, count))?;
                    records.push(handle);
                    stack
                }
            };
            let shard = Shard::with_link(stack, device, self.link)?.busy_poll(self.busy_poll);
            if let Some(spec) = &self.qdisc {
                shard.set_qdisc(Some(spec));
            }
            shards.push(Arc::new(shard));
        }
        Shard::set_peers(&shards, &numbered_seed(seed, usize::from(u16::MAX)));
        Ok(Shards { shards: shards.into(), config, resolver: self.resolver, tun, records })
    }
}

/// How to start the threads.
#[derive(Clone, Copy)]
struct Starter {
    #[cfg(target_os = "linux")]
    priority: Option<taut_device::Priority>,
    portable: bool,
}

impl Starter {
    fn start(self, shard: Arc<Shard>, name: &str) -> io::Result<Thread> {
        if self.portable {
            return Ok(Box::new(taut_driver::portable::spawn(shard, name)?));
        }
        #[cfg(target_os = "linux")]
        if let Some(priority) = self.priority {
            return Ok(Box::new(DriverThread::spawn_prepared(shard, name, move || priority.apply())?));
        }
        Ok(Box::new(DriverThread::spawn(shard, name)?))
    }
}

impl std::fmt::Debug for StackBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Without the seed, which is secret.
        let mut all = f.debug_struct("StackBuilder");
        #[cfg(target_os = "linux")]
        all.field("tun", &self.tun).field("priority", &self.priority);
        all.field("link", &self.link)
            .field("qdisc", &self.qdisc)
            .field("addresses", &self.addresses)
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}

/// The recording of a shard.
fn numbered_path(path: &Path, number: u16) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    if number > 0 {
        name.push(format!(".{number}"));
    }
    name.into()
}

/// A seed for each of several uses; that of number 0 is the given one.
fn numbered_seed(mut seed: [u8; 32], number: usize) -> [u8; 32] {
    for (byte, number) in seed.iter_mut().zip(number.to_le_bytes()) {
        *byte ^= number;
    }
    seed
}

fn random_seed() -> io::Result<[u8; 32]> {
    let mut seed = [0; 32];
    getrandom::fill(&mut seed).map_err(io::Error::other)?;
    Ok(seed)
}
