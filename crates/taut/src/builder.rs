//! From a description to a running stack: device, interface, configuration, driver.

use std::error::Error;
use std::fs::File;
use std::io::{self, Read};
use std::str::FromStr;
use std::sync::Arc;

use taut_core::StackConfig;
use taut_core::congestion::Definition;
use taut_device::{Cidr, Priority, Tun, TunOptions};
use taut_driver::{Device, DriverThread, Shard};
use taut_link::{LinkSpec, QdiscSpec};

use crate::stack::Stack;

/// The largest number of queues of a TUN interface. Linux: `MAX_TAP_QUEUES`.
const SHARDS_MAX: u16 = 256;

/// Describes a [`Stack`]: its device, its addresses, its configuration.
#[derive(Default)]
pub struct StackBuilder {
    devices: Vec<Device>,
    tun: Option<String>,
    tun_options: TunOptions,
    link: Option<LinkSpec>,
    qdisc: Option<QdiscSpec>,
    addresses: Vec<Cidr>,
    host_addresses: Vec<Cidr>,
    config: StackConfig,
    seed: Option<[u8; 32]>,
    thread_name: Option<String>,
    priority: Option<Priority>,
    shards: Option<u16>,
    #[cfg(feature = "control")]
    control: crate::control::Control,
    /// The first mistake, for `build` to report.
    mistake: Option<io::Error>,
}

/// The shards of a stack, before anything drives them.
struct Shards {
    shards: Arc<[Arc<Shard>]>,
    config: Arc<StackConfig>,
    tun: Option<String>,
}

impl StackBuilder {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Creates a TUN interface with that name, in the network namespace of the thread that calls `build`, and
    /// sends and receives over it. `taut%d` takes the first free number; this is the default.
    #[must_use]
    pub fn tun(mut self, name: &str) -> Self {
        self.tun = Some(name.to_owned());
        self
    }

    /// How to open the TUN interface.
    #[must_use]
    pub fn tun_options(mut self, options: TunOptions) -> Self {
        self.tun_options = options;
        self
    }

    /// Sends and receives over this device.
    #[must_use]
    pub fn device(mut self, device: impl Into<Device>) -> Self {
        self.devices = vec![device.into()];
        self
    }

    /// Sends and receives over these queues of one device, each with a [shard](Self::shards) of its own. A packet may
    /// arrive on any of them; the packets of a connection all leave by the same one.
    #[must_use]
    pub fn queues(mut self, queues: impl IntoIterator<Item = impl Into<Device>>) -> Self {
        self.devices = queues.into_iter().map(Into::into).collect();
        self
    }

    /// Puts a queue in front of the device, with the given rate and limit. Packets then wait in this queue, and not
    /// uncounted in the device or in the network beyond it.
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

    /// Gives the stack an address, with the prefix of the network that is routed to it, such as `10.0.0.2/24` or
    /// `fd00::2/64`. Call it again for further addresses.
    #[must_use]
    pub fn address(mut self, address: &str) -> Self {
        let parsed = self.parsed::<Cidr>(address);
        self.addresses.extend(parsed);
        self
    }

    /// Gives the kernel an address on the TUN interface. Without one, the stack's networks are routed to the
    /// interface, and the kernel uses one of its addresses on other interfaces.
    #[must_use]
    pub fn host_address(mut self, address: &str) -> Self {
        let parsed = self.parsed::<Cidr>(address);
        self.host_addresses.extend(parsed);
        self
    }

    /// Sets the MTU of the TUN interface, in bytes; 1500 by default.
    #[must_use]
    pub fn mtu(mut self, bytes: u16) -> Self {
        self.tun_options.mtu = bytes;
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

    /// Adds a congestion control of your own, which is then available by name: as `tcp_congestion_control`, and for
    /// single sockets.
    #[must_use]
    pub fn controller(mut self, definition: Definition) -> Self {
        let added = self.config.congestion.registry.add(definition);
        self.checked(added);
        self
    }

    /// Sets the seed of all randomness. Use it only for repeatable runs: an attacker who knows it can forge packets.
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

    /// Sets the name of the stack's thread; `taut` by default. Threads of further shards have their number appended.
    #[must_use]
    pub fn thread_name(mut self, name: &str) -> Self {
        self.thread_name = Some(name.to_owned());
        self
    }

    /// Gives the stack's threads a priority, so that they wake up in time on a busy machine: paced packets leave when they
    /// are due, and ACKs are answered. Off by default. Other threads keep theirs, and a thread that blocks in a read no
    /// longer does the work of the stack's thread meanwhile.
    ///
    /// A real-time priority comes before that of all ordinary threads: a stack that is never idle keeps a core to itself,
    /// up to the kernel's limit (`kernel.sched_rt_runtime_us`).
    #[must_use]
    pub fn priority(mut self, priority: Priority) -> Self {
        self.priority = Some(priority);
        self
    }

    /// Opens a Unix socket at this path, through which the stack's owner and root can read and control the
    /// stack from other processes: with `taut ss --socket PATH` and similar commands, or
    /// [`taut_control::Client`]. Other users are refused. The file is removed when the stack ends.
    #[cfg(feature = "control")]
    #[must_use]
    pub fn control(mut self, path: impl Into<std::path::PathBuf>) -> Self {
        self.control.place = crate::control::SocketPlace::Path(path.into());
        self
    }

    /// Like [`control`](Self::control), at the default place, where `taut ss` finds it: [`taut_control::place`].
    #[cfg(feature = "control")]
    #[must_use]
    pub fn control_default(mut self) -> Self {
        self.control.place = crate::control::SocketPlace::Default;
        self
    }

    /// Sets the name by which the control socket calls the device; by default the name of the TUN interface, if the
    /// builder opens one.
    #[cfg(feature = "control")]
    #[must_use]
    pub fn device_name(mut self, name: &str) -> Self {
        self.control.device_name = Some(name.to_owned());
        self
    }

    /// Starts the stack on a thread of its own.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidInput`] for an invalid address, link, setting or controller; those of [`Tun::open`] and
    /// of the control socket; or the reason why a thread could not be started;
    /// [`io::ErrorKind::PermissionDenied`] if the kernel refuses the [`priority`](Self::priority).
    pub fn build(mut self) -> io::Result<Stack> {
        let (name, priority) = (self.thread_name.take(), self.priority);
        #[cfg(feature = "control")]
        let control = self.control.with_addresses(&self.addresses, &self.config.addresses);
        let Shards { shards, config, tun } = self.running_shards()?;
        let name = name.as_deref().unwrap_or("taut");
        let spawn = |(index, shard): (usize, &Arc<Shard>)| {
            let numbered = format!("{name}-{index}");
            let (shard, name) = (Arc::clone(shard), if index == 0 { name } else { &numbered });
            match priority {
                Some(priority) => DriverThread::spawn_prepared(shard, name, move || priority.apply()),
                None => DriverThread::spawn(shard, name),
            }
        };
        let threads = shards.iter().enumerate().map(spawn).collect::<io::Result<_>>()?;
        let stack = Stack::running(shards, config, tun, threads);
        #[cfg(feature = "control")]
        let stack = stack.controlled(control)?;
        Ok(stack)
    }

    /// Starts the stack as a task of the current tokio runtime.
    ///
    /// # Errors
    /// Those of [`build`](Self::build), or [`io::ErrorKind::Unsupported`] outside a runtime, or with a
    /// [`priority`](Self::priority): a task has its runtime's.
    #[cfg(feature = "tokio")]
    pub fn build_tokio(self) -> io::Result<Stack> {
        if self.priority.is_some() {
            let message =
                "a stack that runs as a task has its runtime's priority: use `build`, or no `priority`";
            return Err(io::Error::new(io::ErrorKind::Unsupported, message));
        }
        #[cfg(feature = "control")]
        let control = self.control.with_addresses(&self.addresses, &self.config.addresses);
        let runtime = tokio::runtime::Handle::try_current()
            .map_err(|error| io::Error::new(io::ErrorKind::Unsupported, error))?;
        let Shards { shards, config, tun } = self.running_shards()?;
        for shard in &*shards {
            runtime.spawn(taut_driver::tokio::run(Arc::clone(shard)));
        }
        let stack = Stack::running(shards, config, tun, Vec::new());
        #[cfg(feature = "control")]
        let stack = stack.controlled(control)?;
        Ok(stack)
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
        let (devices, tun) = if given.is_empty() {
            self.tun_options.multi_queue |= count > 1;
            let tun = self.open_tun()?;
            let name = tun.name().to_owned();
            let more: Vec<_> = (1..count).map(|_| tun.open_queue()).collect::<io::Result<_>>()?;
            let all = std::iter::once(tun).chain(more).map(Device::from);
            (all.collect(), Some(name))
        } else {
            (given, None)
        };
        let seed = match self.seed {
            Some(seed) => seed,
            None => random_seed()?,
        };
        let config = Arc::new(self.config);
        let mut shards = Vec::with_capacity(devices.len());
        for (index, device) in devices.into_iter().enumerate() {
            // The randomness of one shard must reveal nothing about that of another.
            let own =
                if index == 0 || self.seed.is_some() { numbered_seed(seed, index) } else { random_seed()? };
            let stack = taut_core::Stack::new(Arc::clone(&config), device.caps, own);
            let shard = Shard::with_link(stack, device, self.link)?;
            if let Some(spec) = &self.qdisc {
                shard.set_qdisc(Some(spec));
            }
            shards.push(Arc::new(shard));
        }
        Shard::set_peers(&shards, &numbered_seed(seed, usize::from(u16::MAX)));
        Ok(Shards { shards: shards.into(), config, tun })
    }

    fn open_tun(&self) -> io::Result<Tun> {
        let tun = Tun::open(self.tun.as_deref().unwrap_or("taut%d"), &self.tun_options)?;
        if !self.tun_options.configure {
            return Ok(tun);
        }
        let interface = tun.interface()?;
        for &address in &self.host_addresses {
            interface.add_address(address)?;
        }
        for address in &self.addresses {
            // The kernel adds routes to its own networks by itself.
            let routed = self.host_addresses.iter().any(|host| host.network() == address.network());
            if !routed {
                interface.add_route(*address, None)?;
            }
        }
        Ok(tun)
    }
}

impl std::fmt::Debug for StackBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Without the seed, which is secret.
        f.debug_struct("StackBuilder")
            .field("tun", &self.tun)
            .field("tun_options", &self.tun_options)
            .field("link", &self.link)
            .field("qdisc", &self.qdisc)
            .field("addresses", &self.addresses)
            .field("host_addresses", &self.host_addresses)
            .field("config", &self.config)
            .field("priority", &self.priority)
            .finish_non_exhaustive()
    }
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
    File::open("/dev/urandom")?.read_exact(&mut seed)?;
    Ok(seed)
}
