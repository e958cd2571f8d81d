//! How `taut gateway` ends without a process outside (`--no-sandbox`): by a signal, or with its command.
//! Called by `gateway.rs`.

use futures_util::future::Either;
use taut_gateway::Namespace;
use tokio::signal::unix::{SignalKind, signal};

use crate::net::drop_in::manner::Manner;
use crate::shared::interrupt;

/// As [`interrupt::asked_to_end`], but a hangup does not end the process if it reloads the configuration.
pub(crate) fn ended_by_signal(hangup_is_ours: bool) -> std::io::Result<impl Future<Output = ()>> {
    if !hangup_is_ours {
        return interrupt::asked_to_end().map(Either::Left);
    }
    let [mut interrupt, mut terminate] = [signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?];
    Ok(Either::Right(async move {
        tokio::select! { _ = interrupt.recv() => {}, _ = terminate.recv() => {} }
    }))
}

/// Runs the command, and passes signals on that only this process has got: those of a terminal go to the
/// command, too.
pub(crate) async fn command_ended(
    namespace: Namespace,
    manner: &Manner,
    hangup_is_ours: bool,
) -> anyhow::Result<i32> {
    use std::os::unix::process::ExitStatusExt as _;
    // Before the command starts: a signal may come as soon as it does.
    let [mut interrupt, mut quit, mut terminate, mut hangup, mut first, mut second] = [
        signal(SignalKind::interrupt())?,
        signal(SignalKind::quit())?,
        signal(SignalKind::terminate())?,
        signal(SignalKind::hangup())?,
        signal(SignalKind::user_defined1())?,
        signal(SignalKind::user_defined2())?,
    ];
    manner.ready(None);
    let command = namespace.start()?;
    let pid = command.pid();
    let mut ended = tokio::task::spawn_blocking(move || command.wait());
    loop {
        let pass_on = tokio::select! {
            status = &mut ended => {
                let status = status??;
                // As a shell has it.
                return Ok(status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or_default()));
            }
            _ = interrupt.recv() => None,
            _ = quit.recv() => None,
            _ = terminate.recv() => Some(rustix::process::Signal::TERM),
            _ = first.recv() => Some(rustix::process::Signal::USR1),
            _ = second.recv() => Some(rustix::process::Signal::USR2),
            _ = hangup.recv() => (!hangup_is_ours).then_some(rustix::process::Signal::HUP),
        };
        if let Some(signal) = pass_on {
            // It may have ended just now.
            _ = rustix::process::kill_process(pid, signal);
        }
    }
}
