//! Names of DNS as bytes (RFC 1035 §3.1), where DHCP and routers tell hosts which domains to search (RFC
//! 3397, RFC 8106). Without compression, so that any list of names is a concatenation.

/// The longest name, its last byte included (RFC 1035 §2.3.4).
pub const NAME_MAX: usize = 255;
const LABEL_MAX: usize = 63;

/// Writes a name to the start of `buf`, and returns its length. `None` if it is no name of a host or domain
/// (RFC 952, RFC 1123 §2.1: letters, digits, hyphens; underscores, too), or if there is no room.
pub fn emit(buf: &mut [u8], name: &str) -> Option<usize> {
    let name = name.strip_suffix('.').unwrap_or(name);
    let mut at = 0;
    for label in name.split('.') {
        let is_letter = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        if label.is_empty() || label.len() > LABEL_MAX || !label.as_bytes().iter().all(is_letter) {
            return None;
        }
        let (length, rest) = buf.get_mut(at..)?.split_first_mut()?;
        *length = label.len() as u8;
        rest.get_mut(..label.len())?.copy_from_slice(label.as_bytes());
        at += 1 + label.len();
    }
    *buf.get_mut(at)? = 0;
    (at < NAME_MAX).then_some(at + 1)
}

/// The labels of the first name in a list that [`emit`] has written.
pub fn first_labels(names: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = names;
    core::iter::from_fn(move || {
        let (&len, behind) = rest.split_first()?;
        let (label, behind) = behind.split_at_checked(len.into())?;
        rest = behind;
        (len > 0).then_some(label)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    #[test]
    fn vm_01_names_byte_for_byte() {
        let mut buf = [0xaa; 300];
        // RFC 1035 §3.1, with the name of its §4.1.4.
        assert_eq!(emit(&mut buf, "F.ISI.ARPA"), Some(12));
        assert_eq!(&buf[..13], b"\x01F\x03ISI\x04ARPA\0\xaa");
        assert_eq!(emit(&mut buf, "a_b-1."), Some(7));
        assert_eq!(first_labels(b"\x01F\x03ISI\0\x01x\0").collect::<Vec<_>>(), [&b"F"[..], b"ISI"]);
        let long = "x".repeat(63);
        assert_eq!(emit(&mut buf, &long), Some(65));
        // Three times 64, 62 and the last byte are 255.
        let full = [long.as_str(), &long, &long, &"y".repeat(61)].join(".");
        assert_eq!(emit(&mut buf, &full), Some(255));
        for wrong in ["", ".", "a..b", "a b", "ä", "a/b", &"x".repeat(64), &(full + "y")] {
            assert_eq!(emit(&mut buf, wrong), None, "{wrong:?}");
        }
        assert_eq!(emit(&mut buf[..4], "abc"), None);
        assert_eq!(emit(&mut buf[..5], "abc"), Some(5));
    }
}
