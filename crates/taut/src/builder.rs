//! From a description to a running stack: device, interface, configuration, driver.

use std::fs::File;
use std::io::{self, Read};
use std::sync::Arc;

use taut_core::StackConfig;
use taut_device::{Cidr, Device, Tun, TunOptions};
use taut_driver::{DriverThread, Shard};
use taut_link::{LinkSpec, QdiscSpec};

use crate::socket::AnyShard;
use crate::stack::Stack;

/// Describes a [`Stack`]: where its packets go, its addresses, its configuration.
#[derive(Default)]
pub struct Builder {
    device: Option<Box<dyn Device>>,
    tun: Option<String>,
    tun_options: TunOptions,
    link: Option<LinkSpec>,
    qdisc: Option<QdiscSpec>,
    addresses: Vec<Cidr>,
    host_addresses: Vec<Cidr>,
    config: StackConfig,
    seed: Option<[u8; 32]>,
    thread_name: Option<String>,
    #[cfg(feature = "control")]
    control: crate::control::Control,
    /// The first mistake, for `build` to report.
    mistake: Option<io::Error>,
}

impl Builder {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Sends and receives over the TUN interface of that name, which is created, in the network namespace of the
    /// thread that builds. `taut%d` takes the first number that is free. This is the default.
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
    pub fn device(mut self, device: impl Device + 'static) -> Self {
        self.device = Some(Box::new(device));
        self
    }

    /// Puts a queue of this stack's own in front of the device: packets then wait here, at the rate and up to the limit
    /// given, and not in a device or a network beyond it where nobody can count them.
    #[must_use]
    pub fn link(mut self, spec: LinkSpec) -> Self {
        self.link = Some(spec);
        self
    }

    /// [`link`](Self::link) in the words of `tc`, as in `rate 100mbit limit 64kb delay 20ms`.
    #[must_use]
    pub fn link_from(mut self, text: &str) -> Self {
        match text.parse() {
            Ok(spec) => self.link = Some(spec),
            Err(error) => {
                self.mistake.get_or_insert(io::Error::new(io::ErrorKind::InvalidInput, error));
            }
        }
        self
    }

    /// Puts a queue discipline in front of the device, in the words of `tc`, as [`Stack::set_qdisc`] does later. With a
    /// [`link`](Self::link) it takes the place of that one's queue; its wire stays.
    #[must_use]
    pub fn qdisc(mut self, text: &str) -> Self {
        match text.parse() {
            Ok(spec) => self.qdisc = Some(spec),
            Err(error) => {
                self.mistake.get_or_insert(io::Error::new(io::ErrorKind::InvalidInput, error));
            }
        }
        self
    }

    /// Gives the stack an address, with the prefix of the network that is routed to it, as in `10.0.0.2/24` or
    /// `fd00::2/64`. Call it again for more.
    #[must_use]
    pub fn address(mut self, address: &str) -> Self {
        self.addresses.extend(parsed(&mut self.mistake, address));
        self
    }

    /// Gives the kernel an address on the TUN interface. Without any, the stack's networks are routed to the
    /// interface, and the kernel uses an address that it has elsewhere.
    #[must_use]
    pub fn host_address(mut self, address: &str) -> Self {
        self.host_addresses.extend(parsed(&mut self.mistake, address));
        self
    }

    /// Largest IP packet of the TUN interface, in bytes; 1500 by default.
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

    /// Changes the configuration, as with `sysctl`.
    #[must_use]
    pub fn sysctl(mut self, change: impl FnOnce(&mut StackConfig)) -> Self {
        change(&mut self.config);
        self
    }

    /// What all randomness comes from. Only for runs to be repeated: who knows it can forge packets.
    #[must_use]
    pub fn seed(mut self, seed: [u8; 32]) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Name of the stack's thread; `taut` by default.
    #[must_use]
    pub fn thread_name(mut self, name: &str) -> Self {
        self.thread_name = Some(name.to_owned());
        self
    }

    /// Lets its owner, and root, read and steer the stack from other processes, through a Unix socket at this path:
    /// with `taut ss --socket PATH` and its like, or [`taut_control::Client`]. Who else may reach the path is refused.
    /// The file vanishes with the stack.
    #[cfg(feature = "control")]
    #[must_use]
    pub fn control(mut self, path: impl Into<std::path::PathBuf>) -> Self {
        self.control.place = crate::control::Place::Path(path.into());
        self
    }

    /// As [`control`](Self::control), where `taut ss` looks by itself: [`taut_control::place`].
    #[cfg(feature = "control")]
    #[must_use]
    pub fn control_default(mut self) -> Self {
        self.control.place = crate::control::Place::Default;
        self
    }

    /// What the control socket calls the device; the TUN interface's name where the builder opens one.
    #[cfg(feature = "control")]
    #[must_use]
    pub fn device_name(mut self, name: &str) -> Self {
        self.control.device_name = Some(name.to_owned());
        self
    }

    /// Starts the stack on a thread of its own.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidInput`] for an address or a link that is none, those of [`Tun::open`] and of the control
    /// socket, or no thread left.
    pub fn build(mut self) -> io::Result<Stack> {
        let name = self.thread_name.take();
        #[cfg(feature = "control")]
        let control = self.control.with_addresses(&self.addresses, &self.config.addresses);
        let (shard, config, tun) = self.shard()?;
        let thread = DriverThread::spawn(Arc::clone(&shard), name.as_deref().unwrap_or("taut"))?;
        let stack = Stack::running(shard, config, tun, Some(thread));
        #[cfg(feature = "control")]
        let stack = stack.controlled(control)?;
        Ok(stack)
    }

    /// Starts the stack as a task of the tokio runtime that this is called in.
    ///
    /// # Errors
    /// Those of [`build`](Self::build), or [`io::ErrorKind::Unsupported`] outside a runtime.
    #[cfg(feature = "tokio")]
    pub fn build_tokio(self) -> io::Result<Stack> {
        #[cfg(feature = "control")]
        let control = self.control.with_addresses(&self.addresses, &self.config.addresses);
        let runtime = tokio::runtime::Handle::try_current()
            .map_err(|error| io::Error::new(io::ErrorKind::Unsupported, error))?;
        let (shard, config, tun) = self.shard()?;
        runtime.spawn(taut_driver::tokio::run(Arc::clone(&shard)));
        let stack = Stack::running(shard, config, tun, None);
        #[cfg(feature = "control")]
        let stack = stack.controlled(control)?;
        Ok(stack)
    }

    fn shard(mut self) -> io::Result<(Arc<AnyShard>, Arc<StackConfig>, Option<String>)> {
        if let Some(mistake) = self.mistake.take() {
            return Err(mistake);
        }
        self.config.addresses.extend(self.addresses.iter().map(|cidr| cidr.address()));
        let (device, name) = match self.device.take() {
            Some(device) => (device, None),
            None => {
                let tun = self.open_tun()?;
                let name = tun.name().to_owned();
                (Box::new(tun) as Box<dyn Device>, Some(name))
            }
        };
        let seed = match self.seed {
            Some(seed) => seed,
            None => random_seed()?,
        };
        let config = Arc::new(self.config);
        let stack = taut_core::Stack::new(Arc::clone(&config), device.caps(), seed);
        let shard = Shard::with_link(stack, device, self.link)?;
        if let Some(spec) = &self.qdisc {
            shard.set_qdisc(Some(spec));
        }
        Ok((Arc::new(shard), config, name))
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
            // The kernel routes its own networks by itself.
            let routed = self.host_addresses.iter().any(|host| host.network() == address.network());
            if !routed {
                interface.add_route(*address, None)?;
            }
        }
        Ok(tun)
    }
}

impl std::fmt::Debug for Builder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Not the seed.
        f.debug_struct("Builder")
            .field("tun", &self.tun)
            .field("tun_options", &self.tun_options)
            .field("link", &self.link)
            .field("qdisc", &self.qdisc)
            .field("addresses", &self.addresses)
            .field("host_addresses", &self.host_addresses)
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}

fn parsed(mistake: &mut Option<io::Error>, address: &str) -> Option<Cidr> {
    match address.parse() {
        Ok(cidr) => Some(cidr),
        Err(error) => {
            mistake.get_or_insert(io::Error::new(io::ErrorKind::InvalidInput, error));
            None
        }
    }
}

fn random_seed() -> io::Result<[u8; 32]> {
    let mut seed = [0; 32];
    File::open("/dev/urandom")?.read_exact(&mut seed)?;
    Ok(seed)
}
