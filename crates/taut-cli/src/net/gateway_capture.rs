//! `taut gateway --capture`: all that passes between the guest and the gateway, in a file for Wireshark.
//! Called by `gateway.rs` before the sandbox closes: a confined gateway opens none, and writes to this one.

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;

use anyhow::Context as _;
use clap::Args;
use rustix::process::Signal;
use taut::device::CaptureFile;
use tokio::signal::unix::{SignalKind, signal};

use crate::net::gateway_log::say;
use crate::shared::log::Level;

/// The capture of a gateway.
#[derive(Args, Debug)]
#[command(next_help_heading = "Operation")]
pub(crate) struct CaptureArgs {
    /// Record the guest's packets for Wireshark; super-packets stay whole
    #[arg(long, value_name = "OUT.pcapng")]
    capture: Option<PathBuf>,
}

impl CaptureArgs {
    /// Begins the capture if `--capture` is given. A file that exists is overwritten.
    ///
    /// # Errors
    /// The file cannot be opened or written.
    pub(crate) fn begin(&self) -> anyhow::Result<Option<CaptureFile>> {
        let Some(path) = &self.capture else { return Ok(None) };
        // It contains payload.
        let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path);
        let name = path.display().to_string();
        let ended = move |error: &std::io::Error| {
            let sentence = format!("the capture {name} has ended: {error}; the gateway serves without it");
            say(Level::Warn, "capture-ended", &sentence);
        };
        let begun = file.and_then(|file| CaptureFile::begin(file, ended));
        begun.map(Some).with_context(|| format!("--capture {}", path.display()))
    }

    /// A file that may not grow any more (`ulimit -f`) is an error of the write, and not the end of this
    /// process. Must be called in a tokio runtime.
    ///
    /// # Errors
    /// The runtime takes no signal.
    pub(crate) fn survive_limit(&self) -> std::io::Result<()> {
        if self.capture.is_some() {
            // The handler stays when the stream is dropped.
            _ = signal(SignalKind::from_raw(Signal::XFSZ.as_raw()))?;
        }
        Ok(())
    }
}
