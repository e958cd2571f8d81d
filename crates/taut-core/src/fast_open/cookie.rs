//! Cookies: a keyed hash of the client's and the server's address. RFC 7413 §4.1.2; hash, order of the bytes
//! and notation of keys are Linux's (6.18), so that taut and a kernel behind one address, with one key,
//! accept each other's cookies. Called for SYNs at a listener, and by the settings.

use alloc::string::String;
use core::fmt;
use core::hash::Hasher;
use core::net::IpAddr;
use core::str::FromStr;

use siphasher::sip::SipHasher24;
use taut_wire::Cookie;

/// 128 bits.
type Key = [u8; 16];

/// The key of new cookies, and the one of cookies that are still accepted.
///
/// To replace a key without making clients ask again, let the old one be the backup for as long as clients
/// may keep their cookies. A client that brings an old cookie gets a new one.
///
/// As text, in the notation of Linux's `tcp_fastopen_key`: four words of eight hexadecimal digits, and behind
/// a comma those of the backup.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct FastOpenKeys {
    primary: Key,
    backup: Option<Key>,
}

/// Whose cookie it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Known {
    /// Made with the present key.
    Primary,
    /// Made with the backup key.
    Backup,
    /// Not ours, not this client's, or older.
    No,
}

impl FastOpenKeys {
    /// One key.
    #[must_use]
    pub const fn new(primary: [u8; 16]) -> Self {
        Self { primary, backup: None }
    }

    /// The same with a backup.
    #[must_use]
    pub const fn with_backup(self, backup: [u8; 16]) -> Self {
        Self { backup: Some(backup), ..self }
    }

    /// A key that reveals nothing about the seed from which it comes.
    #[must_use]
    pub fn from_seed(seed: &[u8; 32]) -> Self {
        let (key, rest) = seed.split_at(16);
        let half = |number: u8| {
            let mut hasher = SipHasher24::new_with_key(key.first_chunk().unwrap_or(&[0; 16]));
            hasher.write_u8(number);
            hasher.write(rest);
            hasher.finish().to_le_bytes()
        };
        let mut primary = [0; 16];
        for (place, byte) in primary.iter_mut().zip(half(0).into_iter().chain(half(1))) {
            *place = byte;
        }
        Self::new(primary)
    }

    /// The cookie of a client, with the present key.
    pub(crate) fn cookie(&self, client: IpAddr, server: IpAddr) -> Option<Cookie> {
        Cookie::new(&hash(&self.primary, client, server))
    }

    /// With which key a client's cookie was made.
    pub(crate) fn check(&self, cookie: &Cookie, client: IpAddr, server: IpAddr) -> Known {
        if cookie.as_slice() == hash(&self.primary, client, server) {
            return Known::Primary;
        }
        match &self.backup {
            Some(backup) if cookie.as_slice() == hash(backup, client, server) => Known::Backup,
            _ => Known::No,
        }
    }
}

fn hash(key: &Key, client: IpAddr, server: IpAddr) -> [u8; 8] {
    let mut hasher = SipHasher24::new_with_key(key);
    for ip in [client, server] {
        match ip {
            IpAddr::V4(ip) => hasher.write(&ip.octets()),
            IpAddr::V6(ip) => hasher.write(&ip.octets()),
        }
    }
    hasher.finish().to_le_bytes()
}

impl fmt::Display for FastOpenKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_key(f, &self.primary)?;
        let Some(backup) = &self.backup else { return Ok(()) };
        f.write_str(",")?;
        write_key(f, backup)
    }
}

fn write_key(f: &mut fmt::Formatter<'_>, key: &Key) -> fmt::Result {
    let (words, _) = key.as_chunks::<4>();
    for (number, &word) in words.iter().enumerate() {
        let dash = if number > 0 { "-" } else { "" };
        write!(f, "{dash}{:08x}", u32::from_le_bytes(word))?;
    }
    Ok(())
}

impl fmt::Debug for FastOpenKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // They are secret.
        f.debug_struct("FastOpenKeys").field("backup", &self.backup.is_some()).finish_non_exhaustive()
    }
}

impl FromStr for FastOpenKeys {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let keys = match text.split_once(',') {
            None => parse_key(text).map(Self::new),
            Some((primary, backup)) => {
                let backup = parse_key(backup);
                parse_key(primary).zip(backup).map(|(primary, backup)| Self::new(primary).with_backup(backup))
            }
        };
        keys.ok_or_else(|| {
            "must be a key of four words, such as 00112233-44556677-8899aabb-ccddeeff, and optionally a comma \
             and a backup key"
                .into()
        })
    }
}

fn parse_key(text: &str) -> Option<Key> {
    let mut key = [0; 16];
    let (places, _) = key.as_chunks_mut::<4>();
    let mut words = text.trim().split('-');
    for place in places {
        let word = words.next().filter(|word| (1..=8).contains(&word.len()))?;
        *place = u32::from_str_radix(word, 16).ok()?.to_le_bytes();
    }
    words.next().is_none().then_some(key)
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::string::ToString;

    /// The notation is the kernel's; the same text is read back.
    #[test]
    fn tfo_02_keys_are_written_as_linux_writes_them() {
        let key = *b"\x33\x22\x11\x00\x77\x66\x55\x44\xbb\xaa\x99\x88\xff\xee\xdd\xcc";
        let text = "00112233-44556677-8899aabb-ccddeeff";
        assert_eq!(FastOpenKeys::new(key).to_string(), text);
        assert_eq!(text.parse(), Ok(FastOpenKeys::new(key)));
        let both = std::format!("{text},1-2-3-4");
        let keys: FastOpenKeys = both.parse().unwrap();
        assert_eq!(keys.to_string(), std::format!("{text},00000001-00000002-00000003-00000004"));
        for wrong in
            ["", "1-2-3", "1-2-3-4-5", "1-2-3-g", "1-2-3-123456789", "1-2-3-4,", "1-2-3-4,5", "1--2-3"]
        {
            assert!(wrong.parse::<FastOpenKeys>().is_err(), "{wrong}");
        }
        assert!(!std::format!("{keys:?}").contains("33"), "a key is not printed by accident");
    }

    /// The vectors of 8 and 32 bytes of SipHash-2-4's reference implementation (Aumasson and Bernstein,
    /// 2012): the key and the input count up from 0.
    #[test]
    fn tfo_03_a_cookie_is_siphash_of_the_clients_and_the_servers_address() {
        let keys = FastOpenKeys::new(core::array::from_fn(|at| at as u8));
        let of = |client: IpAddr, server: IpAddr| keys.cookie(client, server).unwrap();
        let v4 = of([0, 1, 2, 3].into(), [4, 5, 6, 7].into());
        assert_eq!(v4.as_slice(), [0x62, 0x24, 0x93, 0x9a, 0x79, 0xf5, 0xf5, 0x93]);
        let v6 = |first: u8| IpAddr::from(core::array::from_fn::<u8, 16, _>(|at| first + at as u8));
        assert_eq!(of(v6(0), v6(16)).as_slice(), [0xce, 0x7c, 0xf2, 0x72, 0x2f, 0x51, 0x27, 0x71]);
        // Measured: what Linux 6.18 gives with this key, as `ip tcp_metrics` of its client shows it.
        let v4 = of([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
        assert_eq!(v4.as_slice(), [0x84, 0xdc, 0x7a, 0x7d, 0x3b, 0x3a, 0x47, 0x69]);
        let v6 = |last| IpAddr::from([0xfd00_u16, 0, 0, 0, 0, 0, 0, last]);
        assert_eq!(of(v6(1), v6(2)).as_slice(), [0x38, 0x27, 0x49, 0x44, 0x3a, 0x1e, 0x5d, 0xaa]);
        assert_eq!(keys.to_string(), "03020100-07060504-0b0a0908-0f0e0d0c", "as the kernel shows it");
    }

    #[test]
    fn keys_of_a_seed_differ_and_do_not_contain_it() {
        let (one, two) = (FastOpenKeys::from_seed(&[1; 32]), FastOpenKeys::from_seed(&[2; 32]));
        assert_ne!(one, two);
        assert!(!one.primary.contains(&1), "{:?}", one.primary);
    }
}
