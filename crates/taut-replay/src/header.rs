//! The beginning of a recording: what the stack was made of. Called by `tape.rs` and `recording.rs`.
//!
//! The configuration is written as settings by name, in the words of `taut sysctl`. Whether that is all of it
//! is checked when a recording begins: a value that no name expresses would not be there in a replay.

use std::net::IpAddr;
use std::sync::Arc;

use taut_core::congestion::Registry;
use taut_core::{LinkCaps, Stack, StackConfig, SysctlError};

use crate::codec::{Coded, Cursor, Trouble, fields};

/// What a stack is made of.
#[derive(Clone, Debug)]
pub(crate) struct Header {
    /// The version of the program that recorded.
    pub(crate) program: String,
    /// Which of the shards it is, and of how many.
    pub(crate) shard: (u16, u16),
    pub(crate) caps: LinkCaps,
    pub(crate) seed: [u8; 32],
    pub(crate) addresses: Vec<IpAddr>,
    pub(crate) settings: Vec<(String, String)>,
}

/// The most addresses and settings of a stack.
const COUNT_MAX: usize = 1 << 16;

impl Header {
    /// # Errors
    /// The configuration has a value that settings cannot express.
    pub(crate) fn new(
        config: &StackConfig,
        caps: LinkCaps,
        seed: [u8; 32],
        shard: (u16, u16),
    ) -> Result<Self, String> {
        let settings = config.sysctls().map(|(name, value)| (name.to_owned(), value)).collect();
        let addresses = config.addresses.clone();
        let program = env!("CARGO_PKG_VERSION").to_owned();
        let header = Self { program, shard, caps, seed, addresses, settings };
        let again = format!("{:?}", header.config(&config.congestion.registry)?);
        let whole = format!("{config:?}");
        if again == whole {
            return Ok(header);
        }
        let differs = whole.bytes().zip(again.bytes()).take_while(|(a, b)| a == b).count();
        let before = whole.get(..differs).unwrap_or_default();
        // The field's name: the last word before a colon.
        let field = before.rsplit_once(':').map_or("", |(before, _)| before).rsplit([' ', '{', '(']).next();
        Err(format!(
            "the stack's configuration cannot be recorded: no setting of `taut sysctl` has this value of {}",
            field.unwrap_or_default()
        ))
    }

    /// The configuration that the settings describe.
    ///
    /// # Errors
    /// A setting that this version, or this program with its congestion controls, does not have.
    pub(crate) fn config(&self, registry: &Registry) -> Result<StackConfig, String> {
        let mut config = StackConfig::default();
        config.congestion.registry = registry.clone();
        config.addresses.clone_from(&self.addresses);
        for (name, value) in &self.settings {
            match config.set_sysctl(name, value) {
                Ok(()) | Err(SysctlError::ReadOnly(_)) => {}
                Err(error) => return Err(error.to_string()),
            }
        }
        Ok(config)
    }

    /// The stack, as it was when the recording began.
    ///
    /// # Errors
    /// As [`config`](Self::config).
    pub(crate) fn stack(&self, registry: &Registry) -> Result<Stack, String> {
        Ok(Stack::new(Arc::new(self.config(registry)?), self.caps, self.seed))
    }

    pub(crate) fn put(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let Self { program, shard, caps, seed, addresses, settings } = self;
        program.as_str().put(&mut out);
        shard.0.put(&mut out);
        shard.1.put(&mut out);
        caps.put(&mut out);
        seed.put(&mut out);
        addresses.len().put(&mut out);
        addresses.iter().for_each(|ip| ip.put(&mut out));
        settings.len().put(&mut out);
        for text in settings.iter().flat_map(|(name, value)| [name, value]) {
            text.as_str().put(&mut out);
        }
        out
    }

    pub(crate) fn get(cursor: &mut Cursor<'_>) -> Result<Self, Trouble> {
        let program = cursor.text()?.to_owned();
        let shard = (cursor.small()?, cursor.small()?);
        let (caps, seed) = (LinkCaps::get(cursor)?, cursor.array()?);
        let count = |cursor: &mut Cursor<'_>| match cursor.small::<usize>()? {
            count @ ..=COUNT_MAX => Ok(count),
            count => Trouble::wrong(format!("a list of {count}")),
        };
        let addresses = (0..count(cursor)?).map(|_| IpAddr::get(cursor)).collect::<Result<_, _>>()?;
        let setting = |cursor: &mut Cursor<'_>| Ok((cursor.text()?.to_owned(), cursor.text()?.to_owned()));
        let settings = (0..count(cursor)?).map(|_| setting(cursor)).collect::<Result<_, _>>()?;
        Ok(Self { program, shard, caps, seed, addresses, settings })
    }
}

fields! {
    LinkCaps {
        mtu, gso_max_bytes, gso_max_segs, tx_checksum, udp_segments, paces, pacing_shift, completes_on_departure,
    }
}

#[cfg(test)]
mod tests {
    use taut_core::{Algorithm, Duration};

    use super::*;

    fn header(config: &StackConfig) -> Result<Header, String> {
        Header::new(config, LinkCaps::offloading(1_500), [7; 32], (1, 3))
    }

    #[test]
    fn replay_06_a_configuration_comes_back_whole_or_is_refused() {
        let config = StackConfig::default().with(|config| {
            config.addresses = vec!["10.0.0.1".parse().unwrap(), "fd00::1".parse().unwrap()];
            config.set_sysctl("tcp_ecn", "1").unwrap();
            config.set_sysctl("tcp_fastopen_key", "00000001-00000002-00000003-00000004").unwrap();
            config.congestion.control = Algorithm::bbr();
        });
        let bytes = header(&config).unwrap().put();
        let registry = Registry::default();
        let again = Header::get(&mut Cursor::new(&bytes, &registry)).unwrap();
        assert_eq!(format!("{:?}", again.config(&registry).unwrap()), format!("{config:?}"));
        assert_eq!((again.seed, again.shard, again.caps), ([7; 32], (1, 3), LinkCaps::offloading(1_500)));
        assert_eq!(again.config(&registry).unwrap().fast_open.keys, config.fast_open.keys);
        for end in 0..bytes.len() {
            assert_eq!(Header::get(&mut Cursor::new(&bytes[..end], &registry)).err(), Some(Trouble::Short));
        }
        // `tcp_fin_timeout` counts seconds.
        let odd = StackConfig::default().with(|config| config.tcp.fin_timeout = Duration::from_millis(1_500));
        let error = header(&odd).unwrap_err();
        assert!(error.ends_with("this value of fin_timeout"), "{error}");
    }
}
