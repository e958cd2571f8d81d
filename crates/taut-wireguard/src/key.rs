//! Keys, as `wg genkey` and `wg pubkey` print them: 32 bytes in base64 (wg(8)). Called by `config.rs` and by
//! the command `taut wg`.
//!
//! Secret keys are wiped from memory when they are dropped, and have no text unless a program requests it.

use std::fmt;
use std::io;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use boringtun::x25519;
use zeroize::Zeroizing;

/// Bytes of a key.
pub const KEY_BYTES: usize = 32;

/// A text is not a key. Nothing of the text is repeated: it may be most of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyError;

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not a key: expected 44 characters of base64, as `taut wg genkey` prints them")
    }
}

impl std::error::Error for KeyError {}

/// The secret half of an identity.
#[derive(Clone)]
pub struct PrivateKey(pub(crate) x25519::StaticSecret);

/// The public half of an identity.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PublicKey(pub(crate) x25519::PublicKey);

/// A secret that two peers share besides.
#[derive(Clone)]
pub struct PresharedKey(pub(crate) Zeroizing<[u8; KEY_BYTES]>);

impl PrivateKey {
    /// A new one, from the system's randomness.
    ///
    /// # Errors
    /// The system has no randomness.
    pub fn generate() -> io::Result<Self> {
        let mut key = Zeroizing::new([0; KEY_BYTES]);
        getrandom::fill(&mut *key).map_err(io::Error::other)?;
        // RFC 7748 §5. Done at each use, too; a printed key is already in this form, as that of `wg genkey`.
        key[0] &= 248;
        key[KEY_BYTES - 1] = key[KEY_BYTES - 1] & 127 | 64;
        Ok(Self((*key).into()))
    }

    /// Its public half.
    #[must_use]
    pub fn public(&self) -> PublicKey {
        PublicKey((&self.0).into())
    }

    /// Its text, to be written to a file that only its owner can read.
    #[must_use]
    pub fn to_text(&self) -> Zeroizing<String> {
        let key = Zeroizing::new(self.0.to_bytes());
        Zeroizing::new(STANDARD.encode(*key))
    }
}

impl PublicKey {
    /// Its bytes.
    #[must_use]
    pub fn to_bytes(self) -> [u8; KEY_BYTES] {
        self.0.to_bytes()
    }
}

fn decode(text: &str) -> Result<Zeroizing<[u8; KEY_BYTES]>, KeyError> {
    // The decoder needs room for a whole group of three bytes.
    let mut bytes = Zeroizing::new([0; KEY_BYTES + 1]);
    match STANDARD.decode_slice(text, &mut *bytes) {
        Ok(KEY_BYTES) => {
            let mut key = Zeroizing::new([0; KEY_BYTES]);
            key.copy_from_slice(&bytes[..KEY_BYTES]);
            Ok(key)
        }
        _ => Err(KeyError),
    }
}

impl FromStr for PrivateKey {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        Ok(Self((*decode(text)?).into()))
    }
}

impl FromStr for PublicKey {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        Ok(Self((*decode(text)?).into()))
    }
}

impl FromStr for PresharedKey {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        decode(text).map(Self)
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&STANDARD.encode(self.0.as_bytes()))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(hidden)")
    }
}

impl fmt::Debug for PresharedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(hidden)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 7748 §6.1: Alice's keys, in base64.
    #[test]
    fn wg_1_a_public_key_is_that_of_rfc_7748() {
        let alice: PrivateKey = "dwdtCnMYpX08FsFyUbJmRd9ML4frwJkqsXf7pR25LCo=".parse().unwrap();
        assert_eq!(alice.public().to_string(), "hSDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbTmo=");
    }

    #[test]
    fn wg_2_a_new_key_is_clamped_and_hidden() {
        let (one, two) = (PrivateKey::generate().unwrap(), PrivateKey::generate().unwrap());
        assert_ne!(*one.to_text(), *two.to_text());
        let bytes = one.0.to_bytes();
        // RFC 7748 §5: the lowest three bits and the highest are zero, the second highest is one.
        assert_eq!((bytes[0] & 7, bytes[31] & 0xc0), (0, 0x40));
        assert_eq!(one.to_text().parse::<PrivateKey>().unwrap().to_text(), one.to_text());
        let psk: PresharedKey = one.to_text().parse().unwrap();
        assert!(!format!("{one:?} {psk:?}").contains(one.to_text().as_str()));
    }

    #[test]
    fn what_is_no_key_is_refused() {
        for text in [
            "",
            "x",
            "dwdtCnMYpX08FsFyUbJmRd9ML4frwJkqsXf7pR25LA==",
            "dwdtCnMYpX08FsFyUbJmRd9ML4frwJkqsXf7pR25LCoA",
        ] {
            assert_eq!(text.parse::<PublicKey>().unwrap_err(), KeyError, "{text}");
        }
    }
}
