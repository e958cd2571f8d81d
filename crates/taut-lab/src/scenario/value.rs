//! Values of a scenario's file: the units of `tc`, the names of `sysctl` and `ethtool`. Each is checked when
//! it is read, so that a mistake has a line; `controllers.rs` checks those that depend on the stack's
//! congestion controls. Called by serde.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;

use serde::de::{self, Deserialize, Deserializer, Visitor};
use taut_core::Duration;

/// A value with the text that was written, such as a rate.
#[derive(Clone, Debug, PartialEq)]
pub struct Text<T> {
    /// The value.
    pub value: T,
    /// The text as written.
    pub text: String,
}

/// A value that can be written as text, or as a number of its basic unit.
pub trait Written: Sized {
    /// Parses the text.
    ///
    /// # Errors
    /// A description of what should have been written.
    fn read(text: &str) -> Result<Self, String>;

    /// The meaning of a bare number, if it has one.
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
                f.write_str("a string in quotes")
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

/// A share that is written as a number, or in percent: `0.5%`.
///
/// # Errors
/// When it is neither.
pub fn share<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    struct Read;
    impl Visitor<'_> for Read {
        type Value = f64;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a share from 0 to 1, or a text such as \"0.5%\"")
        }
        fn visit_f64<E: de::Error>(self, number: f64) -> Result<f64, E> {
            Ok(number)
        }
        fn visit_i64<E: de::Error>(self, number: i64) -> Result<f64, E> {
            Ok(number as f64)
        }
        fn visit_str<E: de::Error>(self, text: &str) -> Result<f64, E> {
            percent(text).map_err(E::custom)
        }
    }
    deserializer.deserialize_any(Read)
}

/// The share that a text says: `0.5%`, or a number.
///
/// # Errors
/// A description of what should have been written.
pub fn percent(text: &str) -> Result<f64, String> {
    let text = text.trim();
    let (number, of) = text.strip_suffix('%').map_or((text, 1.0), |number| (number.trim_end(), 100.0));
    let number = number.parse::<f64>().ok().filter(|number| number.is_finite());
    number.map(|number| number / of).ok_or_else(|| {
        format!("{text:?} is no share: write a number from 0 to 1, or one with %, such as \"0.5%\"")
    })
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

/// Byte queue limits: `on`, `off`, or a fixed limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BqlText {
    /// Adaptive, as in Linux.
    On,
    /// No limit.
    Off,
    /// A fixed number of bytes.
    Fixed(u64),
}

impl Written for BqlText {
    fn read(text: &str) -> Result<Self, String> {
        match text {
            "on" => Ok(Self::On),
            "off" => Ok(Self::Off),
            _ => Bytes::read(text).map(|Bytes(bytes)| Self::Fixed(bytes)).map_err(|_| {
                format!("byte queue limits must be on, off, or a size such as 30kb, not {text}")
            }),
        }
    }

    fn number(number: u64) -> Option<Self> {
        Some(Self::Fixed(number))
    }
}

/// Settings by name, as `sysctl` has them; `net.ipv4.` may be left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sysctls(pub BTreeMap<String, String>);

impl Sysctls {
    /// The value of a setting, by any of its names.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        let value = self.0.get(name).or_else(|| self.0.get(name.strip_prefix("net.ipv4.")?));
        value.map(String::as_str)
    }
}

impl<'de> Deserialize<'de> for Sysctls {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let values = BTreeMap::<String, Setting>::deserialize(deserializer)?;
        Ok(Self(values.into_iter().map(|(name, Setting(value))| (name, value)).collect()))
    }
}

/// The value of a setting, as text.
struct Setting(String);

impl<'de> Deserialize<'de> for Setting {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Read;
        impl Visitor<'_> for Read {
            type Value = Setting;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number or a string")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Setting, E> {
                Ok(Setting(text.to_owned()))
            }
            fn visit_i64<E: de::Error>(self, number: i64) -> Result<Setting, E> {
                Ok(Setting(number.to_string()))
            }
            fn visit_bool<E: de::Error>(self, on: bool) -> Result<Setting, E> {
                Ok(Setting(u8::from(on).to_string()))
            }
        }
        deserializer.deserialize_any(Read)
    }
}
