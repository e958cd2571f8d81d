//! Arguments of system calls: values of the script to numbers, addresses and lengths. Called by `calls.rs`.

use std::net::{IpAddr, SocketAddr};

use super::Runner;
use crate::script::{Call, Value};

/// Longest buffer of a call, so that a script cannot take all memory.
const BUFFER_MAX: i64 = 1 << 30;

impl Runner {
    /// A number; `None` for `...`.
    pub(super) fn number(&self, value: &Value) -> Result<Option<i64>, String> {
        Ok(Some(match value {
            Value::Any => return Ok(None),
            Value::Int(value) => *value,
            Value::Name(name) => {
                self.config.number(name).ok_or_else(|| format!("{name} is no constant that is known here"))?
            }
            Value::Or(values) => {
                let mut all = 0;
                for value in values {
                    all |= self.number(value)?.ok_or("`...` cannot be a part of flags")?;
                }
                all
            }
            // The order of bytes is the wire's business, not the script's.
            Value::Apply(name, args) if matches!(name.as_str(), "htons" | "htonl" | "ntohs" | "ntohl") => {
                match &args[..] {
                    [value] => return self.number(value),
                    _ => return Err(format!("{name} takes one number")),
                }
            }
            Value::List(values) => match &values[..] {
                [value] => return self.number(value),
                _ => return Err(format!("{value} is not one number")),
            },
            other => return Err(format!("{other} is no number")),
        }))
    }

    pub(super) fn arg(&self, call: &Call, at: usize) -> Result<i64, String> {
        let value = call
            .args
            .get(at)
            .ok_or_else(|| format!("{} has {} arguments only", call.name, call.args.len()))?;
        self.number(value)?.ok_or_else(|| format!("{}: argument {} must be given", call.name, at + 1))
    }

    /// A number that may be left out, or be `...`.
    pub(super) fn arg_or(&self, call: &Call, at: usize, default: i64) -> Result<i64, String> {
        match call.args.get(at) {
            Some(value) => Ok(self.number(value)?.unwrap_or(default)),
            None => Ok(default),
        }
    }

    pub(super) fn fd(&self, call: &Call, at: usize) -> Result<i32, String> {
        let fd = self.arg(call, at)?;
        i32::try_from(fd).map_err(|_| format!("{fd} is no descriptor"))
    }

    pub(super) fn len(&self, call: &Call, at: usize) -> Result<usize, String> {
        length(self.arg(call, at)?)
    }

    /// The number of a new descriptor: what the script says that the call returns.
    pub(super) fn new_fd(&self, call: &Call) -> Result<i32, String> {
        match self.number(&call.result)? {
            Some(fd) if fd >= 0 => {
                let fd = i32::try_from(fd).map_err(|_| format!("{fd} is no descriptor"))?;
                if self.sockets.is_open(fd) {
                    Err(format!("descriptor {fd} is open already"))
                } else {
                    Ok(fd)
                }
            }
            // An error is expected; the number is not used if there is one.
            Some(_) => Ok(i32::MAX),
            None => Err(format!(
                "{}: its result is the descriptor's number here, so it must be written",
                call.name
            )),
        }
    }

    /// An address; `...` is `ip` with `port`.
    pub(super) fn address(&self, value: Option<&Value>, ip: IpAddr, port: u16) -> Result<SocketAddr, String> {
        let given @ Value::Struct(_) = value.unwrap_or(&Value::Any) else {
            return Ok(SocketAddr::new(ip, port));
        };
        let field = |names: [&str; 2]| names.into_iter().find_map(|name| given.field(name));
        let port =
            match field(["sin_port", "sin6_port"]).map(|value| self.number(value)).transpose()?.flatten() {
                Some(port) => u16::try_from(port).map_err(|_| format!("{port} is no port"))?,
                None => port,
            };
        let ip = match field(["sin_addr", "sin6_addr"]) {
            Some(Value::Apply(name, args)) if name == "inet_addr" || name == "inet_pton" => match args.last()
            {
                Some(Value::Text(text)) => text.parse().map_err(|_| format!("\"{text}\" is no address"))?,
                _ => return Err(format!("{name} takes an address in quotes")),
            },
            Some(value) if self.number(value)? == Some(0) => match ip {
                IpAddr::V4(_) => [0; 4].into(),
                IpAddr::V6(_) => [0; 16].into(),
            },
            Some(other) => return Err(format!("{other} is no address: write inet_addr(\"192.0.2.1\")")),
            None => ip,
        };
        Ok(SocketAddr::new(ip, port))
    }

    /// The bytes of `[{..., 1000}, {..., 500}]`.
    pub(super) fn iov_len(&self, value: Option<&Value>) -> Result<usize, String> {
        let Some(Value::List(parts)) = value else {
            return Err("an iovec is written as [{..., 1000}]".to_owned());
        };
        let mut total = 0_usize;
        for part in parts {
            let len = match part {
                Value::Struct(fields) => match &fields[..] {
                    [_, (_, len)] => self.number(len)?,
                    _ => None,
                },
                _ => None,
            };
            let len = len.ok_or_else(|| format!("{part} is no part of an iovec: write {{..., 1000}}"))?;
            total = length(len)?
                .checked_add(total)
                .filter(|&all| all as i64 <= BUFFER_MAX)
                .ok_or("the iovec is too long")?;
        }
        Ok(total)
    }
}

fn length(len: i64) -> Result<usize, String> {
    if (0..=BUFFER_MAX).contains(&len) {
        Ok(len as usize)
    } else {
        Err(format!("{len} bytes: a buffer has at most {BUFFER_MAX}"))
    }
}
