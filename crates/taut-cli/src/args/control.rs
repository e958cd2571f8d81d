//! `--control`: the socket through which a command's stack can be observed, and `--dash`, a page of what is
//! seen through it; `--socket`: the stack to observe.
//!
//! Called by every command that runs a stack, and by those that show or change one, such as `ss`, `qdisc` and
//! `addr`.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, anyhow, bail};
use clap::Args;
use taut_control::place::{self, Running};
use taut_control::{Client, ClientError};
use taut_gateway::sandbox::Caller;

use crate::dash::PageArgs;
use crate::dash::watch::Which;
use crate::shared::log::{self, Level};

/// The control socket of a stack that a command runs.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Control")]
pub(crate) struct ControlArgs {
    /// Control socket for `taut ss` and others, or none [default: PID.sock]
    #[arg(long, value_name = "PATH")]
    pub control: Option<PathBuf>,
    /// A live page of the stack.
    #[command(flatten)]
    pub page: PageArgs,
    /// In a sandbox, the process outside makes the socket.
    #[arg(skip)]
    pub outside: Option<Arc<Caller>>,
}

impl ControlArgs {
    /// The socket's place, for the process outside of a sandbox.
    pub(crate) fn place(&self) -> Option<Option<PathBuf>> {
        match &self.control {
            Some(path) if path == Path::new("none") => None,
            place => Some(place.clone()),
        }
    }

    /// Shows the page of `--dash`, and gives a builder the socket.
    ///
    /// # Errors
    /// When the page cannot be shown.
    pub(crate) fn apply(&self, builder: taut::StackBuilder) -> io::Result<taut::StackBuilder> {
        self.show_page()?;
        self.open_socket(builder)
    }

    /// Gives a builder the socket. If the default place cannot be used, prints a warning and continues
    /// without a socket, because the command can do its work without it.
    ///
    /// # Errors
    /// When the place that was asked for cannot be used.
    pub(crate) fn open_socket(&self, builder: taut::StackBuilder) -> io::Result<taut::StackBuilder> {
        let Some(place) = self.place() else { return Ok(builder) };
        let without = |builder, error: io::Error| {
            log::notice(Level::Warn, "no-control-socket", &format!("no control socket: {error}"));
            Ok(builder)
        };
        if let Some(outside) = &self.outside {
            return match (outside.control_socket(), place) {
                (Ok(Some(socket)), _) => Ok(builder.control_socket(socket)),
                (Ok(None), _) => Ok(builder),
                (Err(error), None) => without(builder, error),
                (Err(error), Some(_)) => Err(error),
            };
        }
        match (place, place::default_directory()) {
            (Some(path), _) => Ok(builder.control(path)),
            (None, Ok(_)) => Ok(builder.control_default()),
            (None, Err(error)) => without(builder, error),
        }
    }

    /// Shows the page of `--dash`, if given, until the process ends.
    ///
    /// # Errors
    /// When its address cannot be used, or the stack will have no control socket.
    pub(crate) fn show_page(&self) -> io::Result<()> {
        if self.page.dash.is_none() {
            return Ok(());
        }
        let refuse =
            |why: &str| io::Error::other(format!("--dash reads the stack through its control socket: {why}"));
        let which = match &self.control {
            place if self.outside.is_some() && place.as_deref() != Some(Path::new("none")) => {
                self.outside.clone().map_or(Which::All, Which::Outside)
            }
            Some(path) if path == Path::new("none") => return Err(refuse("leave out --control none")),
            Some(path) => Which::Socket(path.clone()),
            None => {
                place::default_directory().map_err(|error| refuse(&error.to_string()))?;
                Which::Process(place::process())
            }
        };
        self.page.show(which).map_err(|error| io::Error::other(format!("{error:#}")))
    }

    /// The same option for a second stack in the process: only one stack can use a given path.
    #[must_use]
    pub(crate) fn for_another(&self) -> Self {
        let control = self.control.as_ref().map(|_| PathBuf::from("none"));
        Self { control, ..Self::default() }
    }
}

/// The stack that a command observes.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Stack")]
pub struct SocketArgs {
    /// Control socket or process ID of the stack [default: the only one]
    #[arg(long, value_name = "PATH|PID")]
    pub socket: Option<String>,
}

impl SocketArgs {
    /// Connects to the chosen stack.
    ///
    /// # Errors
    /// When no stack is running, or several are; the error then lists them.
    pub fn open(&self) -> anyhow::Result<Client> {
        let path = match self.socket.as_deref().map(|text| (text, text.parse::<u32>())) {
            Some((_, Ok(pid))) => {
                let of_pid = place::running()?.into_iter().filter(|running| running.pid == pid).collect();
                the_only(of_pid, || format!("no stack is running in process {pid}"))?
            }
            Some((path, Err(_))) => PathBuf::from(path),
            None => the_only(place::running()?, none_runs)?,
        };
        Client::connect(&path).map_err(|error| explain(error, &path))
    }

    /// Connects to the stack that sends over the device `name`.
    ///
    /// # Errors
    /// When none does, or several do.
    pub fn open_device(&self, name: &str) -> anyhow::Result<Client> {
        let device = |client: &mut Client| anyhow::Ok(asked(client.identity())?.device);
        if self.socket.is_some() {
            let mut client = self.open()?;
            let device = device(&mut client)?;
            if device != name {
                bail!("that stack sends over {device}, not {name}; leave out dev {name}, or --socket");
            }
            return Ok(client);
        }
        let mut found = Vec::new();
        let mut others = Vec::new();
        for running in place::running()? {
            let Ok(mut client) = Client::connect(&running.path) else { continue };
            match device(&mut client)? {
                device if device == name => found.push((running, client)),
                device => others.push(device),
            }
        }
        if found.len() > 1 {
            let list: String =
                found.iter().map(|(running, _)| format!("\n  {}", running.path.display())).collect();
            bail!("several stacks send over {name}; choose one with --socket PATH:{list}");
        }
        match found.pop() {
            Some((_, client)) => Ok(client),
            None if others.is_empty() => Self::default().open(),
            None => Err(anyhow!("there are stacks on {}", others.join(", ")))
                .with_context(|| format!("no stack of this user sends over {name}")),
        }
    }
}

fn none_runs() -> String {
    let places: Vec<_> = place::directories().iter().map(|dir| dir.display().to_string()).collect();
    format!(
        "this user has no running stack: there is no socket in {}\n  Start one, for example `taut serve .`, or give \
         its socket with --socket PATH. Only root and the stack's own user can observe a stack.",
        places.join(", ")
    )
}

/// The path of the only stack found; an error if there is none or more than one.
fn the_only(found: Vec<Running>, none: impl FnOnce() -> String) -> anyhow::Result<PathBuf> {
    match <[Running; 1]>::try_from(found) {
        Ok([running]) => Ok(running.path),
        Err(none_found) if none_found.is_empty() => Err(anyhow!(none())),
        Err(several) => {
            let list: String = several.iter().map(|running| format!("\n  {}", described(running))).collect();
            let of_one_process = several.windows(2).all(|pair| pair[0].pid == pair[1].pid);
            let by = if of_one_process { "PATH" } else { "PID, or PATH" };
            bail!("several stacks are running; choose one with --socket {by}:{list}")
        }
    }
}

/// A line that describes a stack, for a list to choose from.
fn described(running: &Running) -> String {
    let path = running.path.display();
    match Client::connect(&running.path).and_then(|mut client| client.identity()) {
        Ok(who) => {
            format!("{:<8} {:<8} {:<8} {}  {path}", who.pid, who.program, who.device, who.addresses.join(" "))
        }
        Err(error) => format!("{:<8} {path} ({error})", running.pid),
    }
}

fn explain(error: ClientError, path: &Path) -> anyhow::Error {
    use std::io::ErrorKind;
    let advice = match &error {
        ClientError::Io(io) => match io.kind() {
            ErrorKind::NotFound => {
                "there is no such socket: the stack has ended, or was given another path; without --socket, running \
                 stacks are found"
            }
            ErrorKind::ConnectionRefused if is_socket(path) => {
                "the stack has ended and left its socket behind; start it again"
            }
            ErrorKind::ConnectionRefused => {
                "this is not a socket; give --socket the control socket of a stack, or its process ID"
            }
            ErrorKind::PermissionDenied => "the stack belongs to another user; try as that user, or as root",
            _ => "cannot communicate with the stack",
        },
        _ => "cannot communicate with the stack",
    };
    anyhow::Error::new(error).context(format!("{}: {advice}", path.display()))
}

fn is_socket(path: &Path) -> bool {
    use std::os::unix::fs::FileTypeExt as _;
    std::fs::metadata(path).is_ok_and(|file| file.file_type().is_socket())
}

/// Adds context to an error of a request.
///
/// # Errors
/// The same error, with the context.
pub(crate) fn asked<T>(result: Result<T, ClientError>) -> anyhow::Result<T> {
    match result {
        Err(error @ ClientError::Refused { .. }) => Err(error.into()),
        other => other.context("the stack did not answer; without --socket, running stacks are found"),
    }
}
