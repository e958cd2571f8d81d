//! The TCP Fast Open option (RFC 7413 §4.1.1), and its experimental form (RFC 6994): kind 254 with the
//! identifier 0xF989.
//!
//! Only a SYN carries it. So it is no field of [`TcpOptions`](crate::TcpOptions), which every segment has: it
//! is searched for among the options of a SYN, and appended to the header of one.

use crate::tcp::{HEADER_LEN, HEADER_MAX_LEN};

const END: u8 = 0;
const NOP: u8 = 1;
const FAST_OPEN: u8 = 34;
const EXPERIMENT: u8 = 254;
const EXPERIMENT_ID: [u8; 2] = [0xf9, 0x89];

/// A cookie: 4 to 16 bytes, an even number of them (RFC 7413 §4.1.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cookie {
    /// Zero from `len` on, so that equal cookies compare equal.
    bytes: [u8; Cookie::MAX],
    len: u8,
}

impl Cookie {
    /// The shortest cookie.
    pub const MIN: usize = 4;
    /// The longest cookie.
    pub const MAX: usize = 16;

    /// These bytes, if their number is allowed.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Option<Self> {
        let is_allowed = (Self::MIN..=Self::MAX).contains(&bytes.len()) && bytes.len().is_multiple_of(2);
        if !is_allowed {
            return None;
        }
        let mut cookie = Self { bytes: [0; Self::MAX], len: bytes.len() as u8 };
        cookie.bytes[..bytes.len()].copy_from_slice(bytes);
        Some(cookie)
    }

    /// Its bytes.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.len)).unwrap_or_default()
    }
}

/// The option.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FastOpen {
    /// The cookie; without one, a client asks for it.
    pub cookie: Option<Cookie>,
    /// The experimental form.
    pub experimental: bool,
}

impl FastOpen {
    /// Searches the options of a SYN: the bytes between the fixed header and the data offset. Of an option
    /// given twice, the last one counts. One of a length that is not allowed is ignored.
    #[must_use]
    pub fn find(mut options: &[u8]) -> Option<Self> {
        let mut found = None;
        loop {
            options = match *options {
                [NOP, ref rest @ ..] => rest,
                [kind, len, ..] if kind != END && len >= 2 => {
                    let Some((option, rest)) = options.split_at_checked(usize::from(len)) else {
                        return found;
                    };
                    found = Self::read(kind, &option[2..]).or(found);
                    rest
                }
                _ => return found,
            };
        }
    }

    fn read(kind: u8, value: &[u8]) -> Option<Self> {
        let (cookie, experimental) = match (kind, value) {
            (FAST_OPEN, cookie) => (cookie, false),
            (EXPERIMENT, [a, b, cookie @ ..]) if [*a, *b] == EXPERIMENT_ID => (cookie, true),
            _ => return None,
        };
        if cookie.is_empty() {
            return Some(Self { cookie: None, experimental });
        }
        Some(Self { cookie: Some(Cookie::new(cookie)?), experimental })
    }

    /// Its length, with the NOPs behind it.
    #[must_use]
    pub fn emitted_len(&self) -> usize {
        self.len().next_multiple_of(4)
    }

    fn len(&self) -> usize {
        let cookie = self.cookie.map_or(0, |cookie| usize::from(cookie.len));
        cookie + if self.experimental { 4 } else { 2 }
    }

    /// Appends it to the TCP header of `header_len` bytes that [`emit`](crate::TcpHeader::emit) wrote to the
    /// start of `buf`, and returns the new length. If there is no room for it among 40 bytes of options,
    /// nothing changes.
    ///
    /// # Panics
    /// If `buf` is shorter than the returned length.
    #[must_use]
    pub fn append(&self, buf: &mut [u8], header_len: usize) -> usize {
        let end = header_len + self.emitted_len();
        if header_len < HEADER_LEN || end > HEADER_MAX_LEN {
            return header_len;
        }
        let place = &mut buf[header_len..end];
        place.fill(NOP);
        // At most 20.
        place[1] = self.len() as u8;
        let value = if self.experimental {
            place[0] = EXPERIMENT;
            place[2..4].copy_from_slice(&EXPERIMENT_ID);
            4
        } else {
            place[0] = FAST_OPEN;
            2
        };
        if let Some(cookie) = &self.cookie {
            let bytes = cookie.as_slice();
            place[value..value + bytes.len()].copy_from_slice(bytes);
        }
        buf[12] = buf[12] & 0x0f | (end as u8 / 4) << 4;
        end
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::bytes;
    use crate::{Flags, TcpHeader};
    use proptest::prelude::*;
    use std::vec::Vec;

    fn cookie(len: u8) -> Cookie {
        Cookie::new(&(1..=len).collect::<Vec<_>>()).unwrap()
    }

    fn appended(option: &FastOpen) -> (TcpHeader, Vec<u8>) {
        let header = TcpHeader { src_port: 1, flags: Flags::SYN | Flags::AE, ..TcpHeader::default() };
        let mut buf = [0xee; 60];
        let len = header.emit(&mut buf);
        let len = option.append(&mut buf, len);
        let (parsed, parsed_len) = TcpHeader::parse(&buf).unwrap();
        assert_eq!((parsed, parsed_len), (header, len), "the data offset counts the option, the flags stay");
        (header, buf[20..len].to_vec())
    }

    #[test]
    fn layout() {
        // RFC 7413 §4.1.1, and appendix A of its drafts for the experimental form.
        let option = |cookie, experimental| FastOpen { cookie, experimental };
        for (option, bytes) in [
            (option(None, false), &[34, 2, 1, 1][..]),
            (option(Some(cookie(4)), false), &[34, 6, 1, 2, 3, 4, 1, 1]),
            (option(Some(cookie(6)), false), &[34, 8, 1, 2, 3, 4, 5, 6]),
            (option(None, true), &[254, 4, 0xf9, 0x89]),
            (option(Some(cookie(4)), true), &[254, 8, 0xf9, 0x89, 1, 2, 3, 4]),
        ] {
            assert_eq!(appended(&option).1, bytes);
            assert_eq!(FastOpen::find(bytes), Some(option));
        }
    }

    #[test]
    fn a_cookie_has_an_even_number_of_4_to_16_bytes() {
        for len in 0..=20_u8 {
            let option: Vec<u8> = [34, len + 2].into_iter().chain(1..=len).collect();
            let allowed = [4, 6, 8, 10, 12, 14, 16].contains(&len);
            let found = FastOpen::find(&option).map(|option| option.cookie);
            assert_eq!(
                found,
                if len == 0 { Some(None) } else { allowed.then(|| Some(cookie(len))) },
                "{len}"
            );
        }
    }

    #[test]
    fn it_is_found_between_others_and_another_experiment_is_none() {
        let options = [1, 2, 4, 5, 0xb4, 34, 2, 3, 3, 7];
        assert_eq!(FastOpen::find(&options), Some(FastOpen::default()));
        assert_eq!(FastOpen::find(&[254, 4, 0xf9, 0x88]), None);
        assert_eq!(FastOpen::find(&[254, 3, 0xf9]), None);
        assert_eq!(FastOpen::find(&[0, 34, 2]), None, "nothing follows the end");
        // Of two, the last; unless it is not valid.
        assert_eq!(
            FastOpen::find(&[34, 2, 254, 4, 0xf9, 0x89]).map(|option| option.experimental),
            Some(true)
        );
        assert_eq!(FastOpen::find(&[34, 2, 34, 3, 9]), Some(FastOpen::default()));
    }

    #[test]
    fn what_does_not_fit_is_left_out() {
        let option = FastOpen { cookie: Some(cookie(16)), experimental: true };
        let mut buf = [0; 64];
        assert_eq!(option.append(&mut buf, 40), 60);
        let before = buf;
        assert_eq!(option.append(&mut buf, 44), 44);
        assert_eq!(buf, before);
    }

    proptest! {
        #[test]
        fn any_bytes_are_searched_without_a_panic(options in bytes(40)) {
            let _ = FastOpen::find(&options);
        }

        #[test]
        fn what_is_appended_is_found(len in 2_u8..=8, experimental: bool, has_cookie: bool) {
            let option = FastOpen { cookie: has_cookie.then(|| cookie(2 * len)), experimental };
            prop_assert_eq!(FastOpen::find(&appended(&option).1), Some(option));
        }
    }
}
