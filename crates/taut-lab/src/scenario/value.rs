//! Values of a scenario's file: the units of `tc`, the names of `sysctl` and `ethtool`. Each is checked as it is read, so
//! that a mistake has a line. Called by serde.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;

use serde::de::{self, Deserialize, Deserializer, MapAccess, Visitor};
use taut_core::{Duration, LinkCaps, Stack, StackConfig};

/// A text that means something, as a rate; kept as it was written, too.
#[derive(Clone, Debug, PartialEq)]
pub struct Text<T> {
    /// What it means.
    pub value: T,
    /// As it was written.
    pub text: String,
}

/// What can be written as a text, or as a number of its basic unit.
pub trait Written: Sized {
    /// Reads it.
    ///
    /// # Errors
    /// What should have been written.
    fn read(text: &str) -> Result<Self, String>;

    /// What a bare number means, if it means anything.
    fn number(number: u64) -> Option<Self> {
        let _ = number;
        None
    }
}

impl<'de, T: Written> Deserialize<'de> for Text<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Read<T>(PhantomData<T>);
        impl<T: Written> Visitor<'_> for Read<T> {
            type Value = Text<T>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text in quotes")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Text<T>, E> {
                let value = T::read(text).map_err(E::custom)?;
                Ok(Text { value, text: text.to_owned() })
            }
            fn visit_i64<E: de::Error>(self, number: i64) -> Result<Text<T>, E> {
                let value = u64::try_from(number).ok().and_then(T::number);
                let wrong = || E::invalid_type(de::Unexpected::Signed(number), &self);
                Ok(Text { value: value.ok_or_else(wrong)?, text: number.to_string() })
            }
        }
        deserializer.deserialize_any(Read(PhantomData))
    }
}

impl Written for taut_link::Rate {
    fn read(text: &str) -> Result<Self, String> {
        Self::from_str(text).map_err(|error| error.to_string())
    }
}

impl Written for Duration {
    fn read(text: &str) -> Result<Self, String> {
        taut_link::parse_time(text).map_err(|error| error.to_string())
    }
}

impl Written for taut_link::QdiscSpec {
    fn read(text: &str) -> Result<Self, String> {
        Self::from_str(text).map_err(|error| error.to_string())
    }
}

/// A congestion control that taut has or the kernel may have. Which of them can run, the runners find out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Congestion(&'static str);

impl Congestion {
    /// Of Linux, whether or not taut has them.
    const LINUX: [&str; 4] = ["reno", "cubic", "bbr", "dctcp"];

    /// As taut has it, if it does.
    #[must_use]
    pub fn of_taut(self) -> Option<taut_core::Algorithm> {
        taut_core::congestion::Registry::default().algorithm(self.0).ok()
    }
}

impl Written for Congestion {
    fn read(text: &str) -> Result<Self, String> {
        let mut names = Self::LINUX.to_vec();
        names.push("prague");
        names.sort_unstable();
        names.dedup();
        let found = names.iter().find(|name| **name == text);
        found.map(|name| Self(name)).ok_or_else(|| format!("{text} is not {}", names.join(" or ")))
    }
}

/// Bytes: a number, or a text with `tc`'s units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bytes(pub u64);

impl Written for Bytes {
    fn read(text: &str) -> Result<Self, String> {
        taut_link::parse_size(text).map(|bytes| Self(bytes.into())).map_err(|error| error.to_string())
    }

    fn number(number: u64) -> Option<Self> {
        Some(Self(number))
    }
}

/// Byte queue limits: `on`, `off`, or a limit that does not move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BqlText {
    /// As Linux has them.
    On,
    /// None.
    Off,
    /// So many bytes.
    Fixed(u64),
}

impl Written for BqlText {
    fn read(text: &str) -> Result<Self, String> {
        match text {
            "on" => Ok(Self::On),
            "off" => Ok(Self::Off),
            _ => Bytes::read(text)
                .map(|Bytes(bytes)| Self::Fixed(bytes))
                .map_err(|_| format!("byte queue limits are on, off, or a size as 30kb, not {text}")),
        }
    }

    fn number(number: u64) -> Option<Self> {
        Some(Self::Fixed(number))
    }
}

/// Settings by name, as `sysctl` has them; `net.ipv4.` may be left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sysctls(pub BTreeMap<String, String>);

impl<'de> Deserialize<'de> for Sysctls {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Read;
        impl<'de> Visitor<'de> for Read {
            type Value = Sysctls;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("settings by name")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Sysctls, A::Error> {
                // A stack that is asked whether it would take them.
                let mut stack = Stack::new(StackConfig::default().into(), LinkCaps::plain(1_500), [0; 32]);
                let mut found = BTreeMap::new();
                while let Some(name) = map.next_key::<String>()? {
                    let checked = Setting { name: &name, stack: &mut stack };
                    let value = map.next_value_seed(checked)?;
                    found.insert(name, value);
                }
                Ok(Sysctls(found))
            }
        }
        deserializer.deserialize_map(Read)
    }
}

/// The value of a setting of this name.
struct Setting<'a> {
    name: &'a str,
    stack: &'a mut Stack,
}

impl<'de> de::DeserializeSeed<'de> for Setting<'_> {
    type Value = String;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<String, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl Setting<'_> {
    fn take<E: de::Error>(self, value: String) -> Result<String, E> {
        self.stack.set_sysctl(self.name, &value).map_err(E::custom)?;
        Ok(value)
    }
}

impl Visitor<'_> for Setting<'_> {
    type Value = String;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number or a text")
    }
    fn visit_str<E: de::Error>(self, text: &str) -> Result<String, E> {
        self.take(text.to_owned())
    }
    fn visit_i64<E: de::Error>(self, number: i64) -> Result<String, E> {
        self.take(number.to_string())
    }
    fn visit_bool<E: de::Error>(self, on: bool) -> Result<String, E> {
        self.take(u8::from(on).to_string())
    }
}
