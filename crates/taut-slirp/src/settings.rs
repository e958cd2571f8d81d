//! The user's additions to the caller's configuration: the file that the environment's `TAUT_SLIRP_CONFIG`
//! names. A line has a word and its value; `#` begins a comment.
//!
//! ```text
//!   sysctl net.ipv4.tcp_congestion_control=bbr      settings of the stack
//!   rule deny 192.168.0.0/16                        rules, in order, before the caller's
//!   limit connections 1000                          connections, half-open, datagram-flows, questions, bytes
//!   name-server 192.0.2.53                          instead of those of the host's resolv.conf
//!   log /tmp/slirp.log                              denied flows, each with its rule
//! ```

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::Path;

use taut_gateway::{Amounts, Event, Limits, Rule, RuleError, name_server};

/// See the top of the file.
#[derive(Debug, Default)]
pub(crate) struct Settings {
    pub(crate) sysctls: Vec<(String, String)>,
    pub(crate) rules: Vec<String>,
    pub(crate) limits: Limits,
    pub(crate) name_servers: Vec<SocketAddr>,
    log: Option<File>,
}

impl Settings {
    /// Reads the environment's file; without one, the defaults.
    ///
    /// # Errors
    /// The first line that is none of the above, or why the file cannot be read.
    pub(crate) fn of_environment() -> Result<Self, String> {
        match std::env::var_os("TAUT_SLIRP_CONFIG") {
            Some(path) => {
                let named = |error: std::io::Error| format!("{}: {error}", Path::new(&path).display());
                Self::read(&std::fs::read_to_string(&path).map_err(named)?)
            }
            None => Ok(Self::default()),
        }
    }

    fn read(text: &str) -> Result<Self, String> {
        let (mut settings, mut all) = (Self::default(), Limits::default().all);
        for line in text.lines().map(|line| line.split_once('#').map_or(line, |(line, _)| line).trim()) {
            let wrong = || format!("TAUT_SLIRP_CONFIG: {line:?} is no setting");
            let (word, rest) = line.split_once(' ').map_or((line, ""), |(word, rest)| (word, rest.trim()));
            match word {
                "" => {}
                "sysctl" => {
                    let (name, value) = rest.split_once('=').ok_or_else(wrong)?;
                    settings.sysctls.push((name.trim().to_owned(), value.trim().to_owned()));
                }
                "rule" => settings.rules.push(rule(rest)?),
                "limit" => {
                    let (name, value) = rest.split_once(' ').ok_or_else(wrong)?;
                    limit(&mut all, name, value.trim()).ok_or_else(wrong)?;
                }
                "name-server" => settings.name_servers.push(name_server(rest).ok_or_else(wrong)?),
                "log" => {
                    let file = OpenOptions::new().create(true).append(true).open(rest);
                    settings.log = Some(file.map_err(|error| format!("{rest}: {error}"))?);
                }
                _ => return Err(wrong()),
            }
        }
        settings.limits = Limits::of(all);
        Ok(settings)
    }

    /// A line of the log.
    pub(crate) fn log(&self, event: &Event) {
        if let Some(mut log) = self.log.as_ref() {
            // A log that is full is no reason to stop.
            _ = writeln!(log, "{event:?}");
        }
    }
}

fn rule(text: &str) -> Result<String, String> {
    let wrong = |error: RuleError| format!("TAUT_SLIRP_CONFIG: rule {text}: {error}");
    let rule: Rule = text.parse().map_err(wrong)?;
    if rule.has_rate() || rule.has_class() {
        return Err(format!(
            "TAUT_SLIRP_CONFIG: rule {text}: rate and class need taut gateway; leave them out"
        ));
    }
    Ok(text.to_owned())
}

fn limit(all: &mut Amounts, name: &str, value: &str) -> Option<()> {
    let count = match name {
        "connections" => &mut all.connections,
        "half-open" => &mut all.half_open,
        "datagram-flows" => &mut all.datagram_flows,
        "questions" => &mut all.questions,
        "bytes" => {
            all.bytes = value.parse().ok()?;
            return Some(());
        }
        _ => return None,
    };
    *count = value.parse().ok()?;
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slirp_20_the_users_file() {
        let text = "# mine\nsysctl net.ipv4.tcp_congestion_control = bbr\n\nrule deny 192.168.0.0/16  # home\n\
                    rule allow *.example.com\nlimit connections 100\nlimit bytes 1000000\nname-server 192.0.2.53\n";
        let settings = Settings::read(text).unwrap();
        assert_eq!(settings.sysctls, [("net.ipv4.tcp_congestion_control".to_owned(), "bbr".to_owned())]);
        assert_eq!(settings.rules, ["deny 192.168.0.0/16", "allow *.example.com"]);
        // Three quarters for one guest, as in the gateway.
        assert_eq!((settings.limits.all.connections, settings.limits.guest.connections), (100, 75));
        assert_eq!(settings.limits.all.bytes, 1_000_000);
        assert_eq!(settings.name_servers, ["192.0.2.53:53".parse().unwrap()]);
        for wrong in [
            "sysctl",
            "sysctl a",
            "limit",
            "limit connections",
            "limit x 1",
            "rule x",
            "limit bytes x",
            "log",
            "x",
            "name-server x",
            "rule allow any rate 20mbit",
            "rule allow tcp any class bulk",
        ] {
            let error = Settings::read(wrong).unwrap_err();
            assert!(error.contains(wrong) || error.contains("No such file"), "{wrong}: {error}");
        }
    }
}
