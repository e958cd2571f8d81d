//! Ctrl-C, SIGTERM and a closed terminal: the command ends at once, but first closes what it opened.
//!
//! Called by every command that takes longer than a moment.

use std::io;

/// Exit code of a command that Ctrl-C ended, as in shells: 128 + SIGINT.
pub(crate) const EXIT_CODE: u8 = 130;

/// The error of a command that was interrupted; `main` turns it into exit code 130.
#[derive(Debug)]
pub(crate) struct Interrupted;

impl std::fmt::Display for Interrupted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("interrupted")
    }
}

impl std::error::Error for Interrupted {}

/// Watches for the signals that end a process, from this call on. The future is ready when one has come. Call
/// it before the process reports that it runs.
///
/// # Errors
/// When the signals cannot be watched.
pub(crate) fn asked_to_end() -> io::Result<impl Future<Output = ()> + Send> {
    use tokio::signal::unix::{SignalKind, signal};
    let (mut int, mut term) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    let mut hangup = (!ignores_hangup()).then(|| signal(SignalKind::hangup())).transpose()?;
    Ok(async move {
        let hung_up = async {
            match &mut hangup {
                Some(hangup) => hangup.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! { _ = int.recv() => {}, _ = term.recv() => {}, _ = hung_up => {} }
    })
}

/// Whether `nohup` started this process, so that it survives its terminal.
pub(crate) fn ignores_hangup() -> bool {
    /// SIGHUP is signal 1, and so the lowest bit.
    const HANGUP: u64 = 1;
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & HANGUP != 0)
}

/// Runs `work`; drops it when the process is asked to end.
///
/// # Errors
/// Those of the work, and [`Interrupted`].
pub(crate) fn or_interrupted<R>(work: impl Future<Output = anyhow::Result<R>>) -> anyhow::Result<R> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let result = runtime.block_on(async {
        let asked = asked_to_end()?;
        tokio::select! {
            done = work => done,
            () = asked => Err(Interrupted.into()),
        }
    });
    // A read of standard input may wait forever; the process ends without waiting for it.
    runtime.shutdown_background();
    result
}

/// Calls `then` on a separate thread when the process is asked to end: for work that cannot be abandoned
/// half-way.
///
/// # Errors
/// When the signals cannot be watched.
pub(crate) fn when_asked(then: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let asked = runtime.block_on(async { asked_to_end() })?;
    std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        runtime.block_on(asked);
        then();
    })?;
    Ok(())
}
