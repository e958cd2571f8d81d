//! Ctrl-C, SIGTERM and a closed terminal: a command ends immediately, but closes everything that it opened.
//!
//! Called by `send`, `recv`, `serve`, `get` and `demo`.

pub(crate) use taut_lab::command::interrupt::{EXIT_CODE, Interrupted, asked_to_end, when_asked};

/// Runs `work`; drops it when the process is asked to end.
///
/// # Errors
/// Those of the work, and [`Interrupted`].
pub(crate) fn or_interrupted<R>(work: impl Future<Output = anyhow::Result<R>>) -> anyhow::Result<R> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let result = runtime.block_on(async {
        tokio::select! {
            done = work => done,
            asked = asked_to_end() => Err(asked.err().map_or_else(|| Interrupted.into(), Into::into)),
        }
    });
    // A read of standard input may wait forever; the process ends without waiting for it.
    runtime.shutdown_background();
    result
}
