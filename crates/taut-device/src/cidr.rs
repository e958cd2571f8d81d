//! An address with the prefix length of its network, such as `10.0.0.2/24`.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// An address, and the number of its leading bits that identify the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cidr {
    address: IpAddr,
    prefix: u8,
}

/// The text is not a [`Cidr`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CidrError(String);

impl Cidr {
    /// `address/prefix`; `None` when the prefix is longer than the address.
    #[must_use]
    pub fn new(address: IpAddr, prefix: u8) -> Option<Self> {
        (prefix <= bits(address)).then_some(Self { address, prefix })
    }

    /// The address, including its host bits.
    #[must_use]
    pub const fn address(self) -> IpAddr {
        self.address
    }

    /// The length of the network's prefix, in bits.
    #[must_use]
    pub const fn prefix(self) -> u8 {
        self.prefix
    }

    /// The network: the same with the host bits zero.
    #[must_use]
    pub fn network(self) -> Self {
        let host = u32::from(bits(self.address) - self.prefix);
        let address = match self.address {
            IpAddr::V4(v4) => IpAddr::V4((v4.to_bits() & u32::MAX.checked_shl(host).unwrap_or(0)).into()),
            IpAddr::V6(v6) => IpAddr::V6((v6.to_bits() & u128::MAX.checked_shl(host).unwrap_or(0)).into()),
        };
        Self { address, prefix: self.prefix }
    }
}

const fn bits(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(_) => 32,
        IpAddr::V6(_) => 128,
    }
}

impl From<IpAddr> for Cidr {
    /// The network that consists of this one address.
    fn from(address: IpAddr) -> Self {
        Self { address, prefix: bits(address) }
    }
}

impl FromStr for Cidr {
    type Err = CidrError;

    /// Reads `address/prefix`, or an address alone.
    fn from_str(text: &str) -> Result<Self, CidrError> {
        let wrong = || CidrError(text.to_owned());
        match text.split_once('/') {
            None => text.parse::<IpAddr>().map(Self::from).map_err(|_| wrong()),
            Some((address, prefix)) => {
                let address = address.parse().map_err(|_| wrong())?;
                let prefix = prefix.parse().map_err(|_| wrong())?;
                Self::new(address, prefix).ok_or_else(wrong)
            }
        }
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

impl fmt::Display for CidrError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is not an address with a prefix length, such as 10.0.0.2/24 or fd00::2/64", self.0)
    }
}

impl std::error::Error for CidrError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_and_prints() {
        for text in ["10.0.0.2/24", "fd00::2/64", "0.0.0.0/0", "::/0", "10.0.0.2/32"] {
            assert_eq!(text.parse::<Cidr>().unwrap().to_string(), text);
        }
        assert_eq!("10.0.0.2".parse::<Cidr>().unwrap().prefix(), 32);
        for text in ["10.0.0.2/33", "10.0.0/8", "fd00::/129", "x", "10.0.0.2/", "/8"] {
            assert!(text.parse::<Cidr>().is_err(), "{text}");
        }
    }

    #[test]
    fn network_clears_the_host_bits() {
        let network = |text: &str| text.parse::<Cidr>().unwrap().network().to_string();
        assert_eq!(network("10.1.2.3/24"), "10.1.2.0/24");
        assert_eq!(network("10.1.2.3/0"), "0.0.0.0/0");
        assert_eq!(network("10.1.2.3/32"), "10.1.2.3/32");
        assert_eq!(network("fd00::1:2/64"), "fd00::/64");
        assert_eq!(network("fd00::1/0"), "::/0");
    }
}
