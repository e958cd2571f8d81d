//! The sandbox around a gateway and a proxy: what a running one of them does not need, it gives up
//! (`taut-gateway`'s `sandbox.rs`). Called by `gateway.rs` and `proxy.rs` before there is a second thread.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use taut_control::place;
use taut_gateway::sandbox::{self, CapabilitySet};

use crate::args::control::ControlArgs;
use crate::shared::log::{self, Level};

/// What the command needs while it runs, beside sockets, `resolv.conf` and the control socket.
#[derive(Debug)]
pub(crate) struct Needs {
    /// Directories whose files are read.
    pub read: Vec<PathBuf>,
    /// Directories whose files are written or made.
    pub write: Vec<PathBuf>,
    /// Capabilities.
    pub keep: CapabilitySet,
}

/// The directory of a file.
pub(crate) fn directory(of: &Path) -> Option<PathBuf> {
    let parent = of.parent()?;
    // A name alone is a file here.
    Some(if parent.as_os_str().is_empty() { PathBuf::from(".") } else { parent.to_path_buf() })
}

/// Closes the sandbox for this thread and those that it starts from now on.
///
/// # Errors
/// The kernel refuses what it claims to have.
pub(crate) fn close(control: &ControlArgs, needs: Needs) -> anyhow::Result<()> {
    let Needs { mut read, mut write, keep } = needs;
    write.extend(control.control.as_deref().and_then(directory));
    write.extend(place::default_directory());
    read.extend(sandbox::directories_of_resolver());
    // The kernel's settings, which a stack looks at when it begins.
    read.extend(["/dev/urandom", "/proc/sys/net"].map(PathBuf::from));
    sandbox::drop_capabilities(keep)
        .context("cannot give up capabilities; --no-sandbox runs without the sandbox")?;
    let confined = sandbox::confine(&read, &write).context("the sandbox; --no-sandbox runs without it")?;
    if !confined.files {
        let why = "this kernel has no landlock: this process may open this user's files";
        log::event(Level::Warn, "no-landlock", why, serde_json::Map::new());
    }
    Ok(())
}
