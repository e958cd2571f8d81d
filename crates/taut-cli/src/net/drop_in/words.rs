//! Command lines in the manner of getopt_long(3): `-x VALUE`, `-xVALUE`, `-xyz`, `--long VALUE`,
//! `--long=VALUE`, up to `--` or the first word that is no option. Each option is a row of a table, which has
//! its meaning for `taut gateway`. Called by `pasta.rs`, `passt.rs` and
//! `slirp4netns.rs`.

use std::net::IpAddr;

use anyhow::{Context as _, bail};

use super::manner::Manner;

/// An option of another program.
pub(super) struct Row {
    pub(super) short: Option<char>,
    pub(super) long: &'static str,
    pub(super) to: To,
    /// A row of the page and of `--help`.
    pub(super) help: &'static str,
}

/// Its meaning for `taut gateway`.
pub(super) enum To {
    /// These words.
    Words(&'static [&'static str]),
    /// An option with the same value.
    Option(&'static str),
    /// A function of its value.
    Value(fn(&mut Translated, &str) -> anyhow::Result<()>),
    /// A function.
    Flag(fn(&mut Translated)),
    /// Nothing: the gateway always does it, or has no need of it.
    Nothing,
    /// The same, with a value.
    NothingWithValue,
}

impl To {
    const fn takes_value(&self) -> bool {
        matches!(self, Self::Option(_) | Self::Value(_) | Self::NothingWithValue)
    }
}

/// A command line in the words of `taut gateway`.
#[derive(Debug, Default)]
pub(super) struct Translated {
    /// The options.
    pub(super) words: Vec<String>,
    pub(super) manner: Manner,
    /// The words behind the options.
    pub(super) rest: Vec<String>,
    /// The guest's addresses, with a prefix or without.
    pub(super) addresses: Vec<String>,
    pub(super) prefix: Option<u8>,
    pub(super) netns: Option<String>,
    /// Where a machine is.
    pub(super) socket: Option<String>,
    /// Only this family.
    pub(super) only_v4: bool,
    pub(super) only_v6: bool,
    pub(super) no_host_loopback: bool,
    /// Addresses that stand for the host's loopback.
    pub(super) loopback_at: Vec<IpAddr>,
    pub(super) no_dns: bool,
    pub(super) foreground: bool,
    pub(super) quiet: bool,
}

impl Translated {
    pub(super) fn user(&mut self, path: &str) -> anyhow::Result<()> {
        self.manner.user = Some(path.to_owned());
        Ok(())
    }

    /// Flows leave from this address: of each family, the last one that is given.
    pub(super) fn leave_from(&mut self, own: IpAddr) {
        self.manner.by.addresses.retain(|other| other.is_ipv4() != own.is_ipv4());
        self.manner.by.addresses.push(own);
    }

    pub(super) fn add(&mut self, words: &[&str]) {
        self.words.extend(words.iter().map(ToString::to_string));
    }
}

/// Translates the options of `program`.
///
/// # Errors
/// An option that has no row, by its name, or a value that is missing or wrong.
pub(super) fn translate(
    program: &str,
    tables: &[&'static [Row]],
    args: &[String],
) -> anyhow::Result<Translated> {
    let mut found = Translated::default();
    let mut args = args.iter();
    let find = |is: &dyn Fn(&Row) -> bool| tables.iter().copied().flatten().find(|row| is(row));
    while let Some(word) = args.next() {
        if word == "--" {
            found.rest.extend(args.by_ref().cloned());
        } else if let Some(long) = word.strip_prefix("--") {
            let (name, value) =
                long.split_once('=').map_or((long, None), |(name, value)| (name, Some(value)));
            let row = find(&|row| row.long == name);
            let row = row.with_context(|| unknown(program, &format!("--{name}")))?;
            let value = match (row.to.takes_value(), value) {
                (true, None) => {
                    Some(args.next().with_context(|| format!("--{name} needs a value"))?.as_str())
                }
                (false, Some(_)) => bail!("--{name} takes no value"),
                (_, value) => value,
            };
            apply(row, value, &mut found)?;
        } else if word.len() > 1 && word.starts_with('-') {
            for (at, letter) in word[1..].char_indices() {
                let row = find(&|row| row.short == Some(letter));
                let row = row.with_context(|| unknown(program, &format!("-{letter}")))?;
                if !row.to.takes_value() {
                    apply(row, None, &mut found)?;
                    continue;
                }
                let joined = &word[1 + at + letter.len_utf8()..];
                let mut next = || args.next().with_context(|| format!("-{letter} needs a value"));
                let value = if joined.is_empty() { next()?.as_str() } else { joined };
                apply(row, Some(value), &mut found)?;
                break;
            }
        } else {
            found.rest.push(word.clone());
            found.rest.extend(args.by_ref().cloned());
        }
    }
    Ok(found)
}

fn unknown(program: &str, option: &str) -> String {
    format!(
        "{program}'s option {option} has no equivalent in taut; `taut {program} --help` lists those that have one"
    )
}

fn apply(row: &Row, value: Option<&str>, found: &mut Translated) -> anyhow::Result<()> {
    let value = value.unwrap_or_default();
    match &row.to {
        To::Words(words) => found.add(words),
        To::Option(option) => {
            // An option with one value: the last one counts.
            let is_single = ["--mtu", "--interface"].contains(option);
            if let Some(at) = found.words.iter().position(|word| word == option).filter(|_| is_single) {
                found.words.drain(at..at + 2);
            }
            found.add(&[option, value]);
        }
        To::Value(of) => of(found, value).with_context(|| format!("--{}", row.long))?,
        To::Flag(of) => of(found),
        To::Nothing | To::NothingWithValue => {}
    }
    Ok(())
}

/// The rows, for `--help`.
pub(super) fn help(usage: &str, tables: &[&[Row]]) -> String {
    let line = |row: &Row| {
        let short = row.short.map_or_else(|| "    ".to_owned(), |letter| format!("-{letter}, "));
        let value = if row.to.takes_value() { "=VALUE" } else { "" };
        format!("  {short}--{:<30} {}\n", format!("{}{value}", row.long), row.help)
    };
    format!("{usage}\n\n{}", tables.iter().copied().flatten().map(line).collect::<String>())
}

/// The arguments of a test's command line.
#[cfg(test)]
pub(super) fn split(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_owned).collect()
}
