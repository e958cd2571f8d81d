//! Values as bytes: numbers, addresses, texts, and by two macros the structures and choices that are made of
//! them. Called by `input.rs`, `values.rs` and `header.rs`.
//!
//! A number is a varint: seven bits a byte, the lowest first, and the highest bit says that more follow. What
//! is read is not trusted: a length is compared with what there is before anything is allocated.

use std::net::{IpAddr, SocketAddr};

use taut_core::congestion::Registry;
use taut_core::{ConnId, DatagramId, Duration, FlowId, Instant, ListenerId};

/// Why bytes could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// There are too few: more of the file must be read first.
    Short,
    /// They mean nothing.
    Wrong(String),
}

impl Trouble {
    pub(crate) fn wrong<T>(what: impl Into<String>) -> Result<T, Self> {
        Err(Self::Wrong(what.into()))
    }
}

pub(crate) fn put_number(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// A number that may be below zero, small ones short.
pub(crate) fn put_signed(out: &mut Vec<u8>, number: i64) {
    put_number(out, (number << 1 ^ number >> 63) as u64);
}

pub(crate) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_number(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// A value that is written and read. Structures and choices get it from [`fields!`] and [`choices!`].
pub(crate) trait Coded<'a>: Sized {
    fn put(&self, out: &mut Vec<u8>);

    fn get(cursor: &mut Cursor<'a>) -> Result<Self, Trouble>;

    /// Bytes that come behind all others of an input: they are copied only once, into the file's block.
    fn payload(&self) -> &'a [u8] {
        &[]
    }
}

/// Structures: each field in turn. One that is left out here does not compile.
///
/// ```text
/// fields! { Keepalive { idle, interval, count } }
/// ```
macro_rules! fields {
    ($($type:ident { $($field:ident),* $(,)? })*) => { $(
        impl<'a> $crate::codec::Coded<'a> for $type {
            fn put(&self, out: &mut Vec<u8>) {
                let Self { $($field),* } = self;
                $($crate::codec::Coded::put($field, out);)*
            }

            fn get(cursor: &mut $crate::codec::Cursor<'a>) -> Result<Self, $crate::codec::Trouble> {
                Ok(Self { $($field: $crate::codec::Coded::get(cursor)?),* })
            }
        }
    )* };
}

/// Choices: a number, and then what the choice holds. One that has no number here is written as 255, and not
/// read again.
///
/// ```text
/// choices! { SetOption, "socket option" { 0 = Nodelay(on); 1 = Cork(on); } }
/// ```
macro_rules! choices {
    ($($type:ident, $what:literal {
        $($number:literal = $choice:ident $(($value:ident))? $({ $($field:ident),* })?;)*
    })*) => { $(
        impl<'a> $crate::codec::Coded<'a> for $type {
            #[allow(unreachable_patterns, reason = "lists that are open to others have one more")]
            fn put(&self, out: &mut Vec<u8>) {
                match self {
                    $(Self::$choice $(($value))? $({ $($field),* })? => {
                        out.push($number);
                        $($crate::codec::Coded::put($value, out);)?
                        $($($crate::codec::Coded::put($field, out);)*)?
                    })*
                    _ => out.push(u8::MAX),
                }
            }

            fn get(cursor: &mut $crate::codec::Cursor<'a>) -> Result<Self, $crate::codec::Trouble> {
                Ok(match cursor.byte()? {
                    $($number => {
                        $(let $value = $crate::codec::Coded::get(cursor)?;)?
                        $($(let $field = $crate::codec::Coded::get(cursor)?;)*)?
                        Self::$choice $(($value))? $({ $($field),* })?
                    })*
                    other => {
                        return $crate::codec::Trouble::wrong(format!(concat!("the unknown ", $what, " {}"), other));
                    }
                })
            }
        }
    )* };
}

pub(crate) use {choices, fields};

/// Values whose writing and reading are a call each.
macro_rules! coded {
    ($($type:ty: $put:expr, $get:expr;)*) => { $(
        impl<'a> Coded<'a> for $type {
            fn put(&self, out: &mut Vec<u8>) {
                let put: fn(&Self, &mut Vec<u8>) = $put;
                put(self, out);
            }

            fn get(cursor: &mut Cursor<'a>) -> Result<Self, Trouble> {
                let get: fn(&mut Cursor<'a>) -> Result<Self, Trouble> = $get;
                get(cursor)
            }
        }
    )* };
}

coded! {
    u8: |byte, out| out.push(*byte), |cursor| cursor.byte();
    bool: |on, out| out.push((*on).into()), |cursor| cursor.flag();
    u16: |number, out| put_number(out, (*number).into()), |cursor| cursor.small();
    u32: |number, out| put_number(out, (*number).into()), |cursor| cursor.small();
    u64: |number, out| put_number(out, *number), |cursor| cursor.number();
    usize: |number, out| put_number(out, *number as u64), |cursor| cursor.small();
    [u8; 32]: |bytes, out| out.extend(bytes), |cursor| cursor.array();
    &'a str: |text, out| put_bytes(out, text.as_bytes()), |cursor| cursor.text();
    IpAddr: |ip, out| put_ip(out, *ip), |cursor| cursor.ip();
    SocketAddr: |addr, out| put_addr(out, *addr), |cursor| cursor.addr();
    Duration: |span, out| put_number(out, span.as_nanos()), |cursor| cursor.number().map(Duration::from_nanos);
    Instant: |at, out| put_number(out, at.as_nanos()), |cursor| cursor.number().map(Instant::from_nanos);
    ConnId: |id, out| put_number(out, id.to_bits()), |cursor| cursor.number().map(ConnId::from_bits);
    ListenerId: |id, out| put_number(out, id.to_bits()), |cursor| cursor.number().map(ListenerId::from_bits);
    FlowId: |id, out| put_number(out, id.to_bits()), |cursor| cursor.number().map(FlowId::from_bits);
    DatagramId: |id, out| put_number(out, id.to_bits()), |cursor| cursor.number().map(DatagramId::from_bits);
}

impl<'a, T: Coded<'a>> Coded<'a> for Option<T> {
    fn put(&self, out: &mut Vec<u8>) {
        out.push(self.is_some().into());
        if let Some(value) = self {
            value.put(out);
        }
    }

    fn get(cursor: &mut Cursor<'a>) -> Result<Self, Trouble> {
        if cursor.flag()? { T::get(cursor).map(Some) } else { Ok(None) }
    }
}

fn put_ip(out: &mut Vec<u8>, ip: IpAddr) {
    match ip {
        IpAddr::V4(ip) => {
            out.push(4);
            out.extend(ip.octets());
        }
        IpAddr::V6(ip) => {
            out.push(6);
            out.extend(ip.octets());
        }
    }
}

fn put_addr(out: &mut Vec<u8>, addr: SocketAddr) {
    put_ip(out, addr.ip());
    put_number(out, addr.port().into());
}

/// Bytes that are being read.
#[derive(Clone, Debug)]
pub(crate) struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
    /// What names of congestion controls mean.
    pub(crate) registry: &'a Registry,
}

impl<'a> Cursor<'a> {
    pub(crate) const fn new(bytes: &'a [u8], registry: &'a Registry) -> Self {
        Self { bytes, at: 0, registry }
    }

    /// How many bytes were read.
    pub(crate) const fn at(&self) -> usize {
        self.at
    }

    pub(crate) fn take(&mut self, count: usize) -> Result<&'a [u8], Trouble> {
        let end = self.at.checked_add(count).ok_or(Trouble::Short)?;
        let bytes = self.bytes.get(self.at..end).ok_or(Trouble::Short)?;
        self.at = end;
        Ok(bytes)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], Trouble> {
        self.take(N).map(|bytes| bytes.try_into().unwrap_or([0; N]))
    }

    pub(crate) fn byte(&mut self) -> Result<u8, Trouble> {
        self.array::<1>().map(|[byte]| byte)
    }

    pub(crate) fn number(&mut self) -> Result<u64, Trouble> {
        let mut number = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Trouble::wrong("a number of more than 64 bits")
    }

    pub(crate) fn signed(&mut self) -> Result<i64, Trouble> {
        self.number().map(|number| (number >> 1) as i64 ^ -((number & 1) as i64))
    }

    /// A number that fits into a smaller type.
    pub(crate) fn small<T: TryFrom<u64>>(&mut self) -> Result<T, Trouble> {
        let number = self.number()?;
        T::try_from(number).or_else(|_| Trouble::wrong(format!("the number {number} is too large here")))
    }

    fn flag(&mut self) -> Result<bool, Trouble> {
        match self.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            other => Trouble::wrong(format!("{other} is neither yes nor no")),
        }
    }

    /// Bytes with their length in front, at most `max`.
    pub(crate) fn bytes(&mut self, max: usize) -> Result<&'a [u8], Trouble> {
        let len = self.small::<usize>()?;
        if len > max { Trouble::wrong(format!("a length of {len}, above {max}")) } else { self.take(len) }
    }

    pub(crate) fn text(&mut self) -> Result<&'a str, Trouble> {
        const TEXT_MAX: usize = 1 << 16;
        let bytes = self.bytes(TEXT_MAX)?;
        std::str::from_utf8(bytes).or_else(|_| Trouble::wrong("a text that is not UTF-8"))
    }

    fn ip(&mut self) -> Result<IpAddr, Trouble> {
        match self.byte()? {
            4 => self.array::<4>().map(IpAddr::from),
            6 => self.array::<16>().map(IpAddr::from),
            other => Trouble::wrong(format!("an address of the unknown family {other}")),
        }
    }

    fn addr(&mut self) -> Result<SocketAddr, Trouble> {
        Ok(SocketAddr::new(self.ip()?, self.small()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_addresses_come_back() {
        let mut out = Vec::new();
        let numbers = [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX];
        let signed = [0, -1, 1, -64, 64, i64::MIN, i64::MAX];
        let addresses: [SocketAddr; 2] = ["10.0.0.1:80".parse().unwrap(), "[fd00::1]:65535".parse().unwrap()];
        numbers.iter().for_each(|&number| put_number(&mut out, number));
        signed.iter().for_each(|&number| put_signed(&mut out, number));
        addresses.iter().for_each(|&addr| put_addr(&mut out, addr));
        let registry = Registry::default();
        let mut cursor = Cursor::new(&out, &registry);
        assert!(numbers.iter().all(|&number| cursor.number() == Ok(number)));
        assert!(signed.iter().all(|&number| cursor.signed() == Ok(number)));
        assert!(addresses.iter().all(|&addr| cursor.addr() == Ok(addr)));
        assert_eq!(cursor.at(), out.len());
        assert_eq!(cursor.byte(), Err(Trouble::Short));
        assert!(matches!(Cursor::new(&[0xff; 11], &registry).number(), Err(Trouble::Wrong(_))));
        assert_eq!(Cursor::new(&[0xff; 9], &registry).number(), Err(Trouble::Short));
        assert!(matches!(Cursor::new(&[200, 1], &registry).bytes(100), Err(Trouble::Wrong(_))));
    }
}
