//! What the commands in backticks do to the stack. A script's commands set up a kernel: `sysctl`, a file
//! below `/proc/sys`, `tc` for the queue in front of the device, or a shell script beside it with more of
//! these. All of that has its counterpart here. A command that has none is an error, with its line.
//!
//! A setting that the stack does not have is an error, too, unless the wanted value is what the stack always
//! does ([`FIXED`]), or `sysctl -e` said that unknown names do not matter. Called by the runner.

mod shell;

use std::path::{Path, PathBuf};

use taut_core::{Duration, SysctlError};

use crate::host::Host;
use shell::Simple;

/// Scripts that call scripts.
const DEPTH_MAX: u32 = 5;

/// Settings of Linux that the stack has not: what it does about them in any case, as the values that say the
/// same.
const FIXED: [(&str, &[&str], &str); 8] = [
    ("net.ipv4.tcp_dsack", &["1"], "duplicates are always reported"),
    ("net.ipv4.tcp_fack", &["0"], "there is no FACK"),
    ("net.ipv4.tcp_reordering", &["3"], "the threshold of duplicates is 3"),
    ("net.ipv4.tcp_low_latency", &["0"], "there is no such mode"),
    ("net.ipv4.tcp_abort_on_overflow", &["0"], "a full listener drops"),
    ("net.ipv4.tcp_no_metrics_save", &["1"], "no metrics are saved"),
    ("net.ipv4.tcp_tw_reuse", &["1", "2"], "TIME-WAIT is reused if timestamps allow"),
    ("net.ipv4.tcp_rfc1337", &["1"], "a reset does not end TIME-WAIT"),
];

/// Something that the runner must do.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// `sleep 1`
    Sleep(Duration),
}

/// The commands of one script.
#[derive(Debug, Default)]
pub(crate) struct Commands {
    /// The folder of the script, where `./defaults.sh` is.
    folder: PathBuf,
    /// What `set_sysctls.py` changed: names and values before.
    saved: Vec<(String, String)>,
    /// What was taken without an effect, for `--verbose`.
    pub(crate) notes: Vec<String>,
}

impl Commands {
    pub(crate) fn of(file: &str) -> Self {
        let folder = Path::new(file).parent().unwrap_or(Path::new("")).to_owned();
        Self { folder, ..Self::default() }
    }

    /// Carries out a text.
    ///
    /// # Errors
    /// The line within the text, from 0, and why not.
    pub(crate) fn run(
        &mut self,
        host: &mut Host,
        text: &str,
        asked: &mut Vec<Asked>,
    ) -> Result<(), (u32, String)> {
        self.run_at(host, text, asked, 0)
    }

    fn run_at(
        &mut self,
        host: &mut Host,
        text: &str,
        asked: &mut Vec<Asked>,
        depth: u32,
    ) -> Result<(), (u32, String)> {
        let mut result = Ok(());
        for command in shell::split(text)? {
            if command.is_fallback {
                if result.is_ok() {
                    continue;
                }
                result = Ok(());
            }
            result?;
            result = self.one(host, &command, asked, depth).map_err(|what| (command.line, what));
        }
        result
    }

    fn one(
        &mut self,
        host: &mut Host,
        command: &Simple,
        asked: &mut Vec<Asked>,
        depth: u32,
    ) -> Result<(), String> {
        let words: Vec<&str> = command.words.iter().map(String::as_str).collect();
        let Some((&program, args)) = words.split_first() else { return Ok(()) };
        let (program, args) = match (program, args) {
            ("bash" | "sh" | "source" | ".", [script, rest @ ..]) => (*script, rest),
            _ => (program, args),
        };
        let name = program.rsplit('/').next().unwrap_or(program);
        match name {
            "true" | ":" => Ok(()),
            "sysctl" => self.sysctl(host, args),
            "echo" => match &command.to_file {
                Some(file) => self.set(host, &path_name(file)?, &args.join(" "), false),
                None => Ok(()),
            },
            "set_sysctls.py" => self.set_and_save(host, args),
            _ if name.starts_with("sysctl_restore_") => self.restore(host),
            "ip" => self.ip(args),
            "tc" => Self::tc(host, args),
            "sleep" => {
                let seconds = args
                    .first()
                    .and_then(|text| text.parse::<f64>().ok())
                    .filter(|s| (0.0..=1e6).contains(s));
                let seconds = seconds.ok_or("sleep needs a number of seconds")?;
                asked.push(Asked::Sleep(Duration::from_nanos((seconds * 1e9) as u64)));
                Ok(())
            }
            _ if name.ends_with(".sh") => self.file(host, program, asked, depth),
            _ => Err(format!(
                "`{}` cannot be honoured: no command is run, and those understood are sysctl, echo to /proc/sys, tc, \
                 ip tcp_metrics, sleep, true, and shell scripts of these",
                words.join(" ")
            )),
        }
    }

    fn file(
        &mut self,
        host: &mut Host,
        program: &str,
        asked: &mut Vec<Asked>,
        depth: u32,
    ) -> Result<(), String> {
        if depth == DEPTH_MAX {
            return Err(format!("{program}: scripts call scripts more than {DEPTH_MAX} deep"));
        }
        let path = self.folder.join(program);
        let text = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        self.run_at(host, &text, asked, depth + 1)
            .map_err(|(line, what)| format!("{}:{}: {what}", path.display(), line + 1))
    }

    fn sysctl(&mut self, host: &mut Host, args: &[&str]) -> Result<(), String> {
        let mut forgives = false;
        for arg in args {
            match *arg {
                "-e" | "--ignore" => forgives = true,
                "-q" | "--quiet" | "-w" | "--write" | "-n" => {}
                "-qe" | "-eq" => forgives = true,
                _ if arg.starts_with('-') => return Err(format!("sysctl {arg} is not understood")),
                _ => match arg.split_once('=') {
                    Some((name, value)) => self.set(host, &name.replace('/', "."), value, forgives)?,
                    None => {
                        host.stack.sysctl(arg).map_err(|error| error.to_string())?;
                    }
                },
            }
        }
        Ok(())
    }

    fn set_and_save(&mut self, host: &mut Host, args: &[&str]) -> Result<(), String> {
        for arg in args {
            let (file, value) = arg.split_once('=').ok_or_else(|| format!("{arg}: expected FILE=VALUE"))?;
            let name = path_name(file)?;
            if let Ok(before) = host.stack.sysctl(&name) {
                self.saved.push((name.clone(), before));
            }
            self.set(host, &name, value, false)?;
        }
        Ok(())
    }

    fn restore(&mut self, host: &mut Host) -> Result<(), String> {
        while let Some((name, value)) = self.saved.pop() {
            self.set(host, &name, &value, false)?;
        }
        Ok(())
    }

    fn set(&mut self, host: &mut Host, name: &str, value: &str, forgives: bool) -> Result<(), String> {
        let name = name.trim();
        let value = value.trim();
        match host.stack.set_sysctl(name, value) {
            Ok(()) => Ok(()),
            Err(SysctlError::Unknown(_)) => {
                let fixed = FIXED.iter().find(|(is, ..)| *is == name);
                match fixed {
                    Some((_, same, _)) if same.contains(&value) => Ok(()),
                    Some((_, _, does)) => Err(format!("{name} = {value} cannot be honoured: {does}")),
                    None if forgives => {
                        self.notes.push(format!("{name} = {value} has no effect"));
                        Ok(())
                    }
                    None => {
                        Err(format!("{name} = {value} cannot be honoured: the stack has no such setting"))
                    }
                }
            }
            Err(error) => Err(error.to_string()),
        }
    }

    fn ip(&mut self, args: &[&str]) -> Result<(), String> {
        match args {
            ["tcp_metrics", "flush", ..] => Ok(()),
            _ => Err(format!(
                "`ip {}` cannot be honoured: a script has one link and one route",
                args.join(" ")
            )),
        }
    }

    /// `tc qdisc add|replace|change dev tun0 root [handle 1:] KIND OPTIONS`, and `del`.
    fn tc(host: &mut Host, args: &[&str]) -> Result<(), String> {
        let what = args.join(" ");
        let wrong =
            || format!("`tc {what}` cannot be honoured: expected `qdisc replace dev tun0 root KIND OPTIONS`");
        let ["qdisc", action, rest @ ..] = args else { return Err(wrong()) };
        let rest = match rest {
            ["dev", _, rest @ ..] => rest,
            _ => rest,
        };
        let ["root", rest @ ..] = rest else { return Err(wrong()) };
        let rest = match rest {
            ["handle", _, rest @ ..] => rest,
            _ => rest,
        };
        match *action {
            "add" | "replace" | "change" => {
                host.set_qdisc(&rest.join(" ")).map_err(|error| format!("`tc {what}`: {error}"))
            }
            "del" | "delete" => {
                host.clear_qdisc();
                Ok(())
            }
            _ => Err(wrong()),
        }
    }
}

/// `/proc/sys/net/ipv4/tcp_ecn` as a name of a setting.
fn path_name(file: &str) -> Result<String, String> {
    let name = file.strip_prefix("/proc/sys/");
    name.map(|name| name.replace('/', ".")).ok_or_else(|| format!("{file} is no file below /proc/sys"))
}
