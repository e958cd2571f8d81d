//! `--record`: a file for the inputs of a command's stack. Called by every command that runs a stack.

use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::Args;
use taut::observe::RecordHandle;

use crate::shared::log::{self, Level};

/// The recording of a stack.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct RecordArgs {
    /// Record every input, payload included, for `taut replay`
    #[arg(long, value_name = "FILE")]
    pub record: Option<PathBuf>,
}

impl RecordArgs {
    /// Applies the option to a builder.
    #[must_use]
    pub(crate) fn apply(&self, builder: taut::StackBuilder) -> taut::StackBuilder {
        self.record.iter().fold(builder, taut::StackBuilder::record)
    }
}

/// How long the end of a command waits for the tasks that hold its stack, and so for a slow disk.
pub(crate) const LONGEST_END: Duration = Duration::from_secs(10);
/// How often the recordings are checked: their disk can be full at any time.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Logs the early end of a recording when it happens; never ready.
pub(crate) async fn watch(stack: &taut::Stack) -> Infallible {
    static SAID: AtomicBool = AtomicBool::new(false);
    let records = stack.recording_handles();
    while !records.is_empty() {
        if let Some(why) = ended_early(&records)
            && !SAID.swap(true, Ordering::Relaxed)
        {
            log::notice(Level::Error, "recording-ended", &format!("{why}; the stack runs on without it"));
            break;
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    std::future::pending().await
}

/// Call it when the stack has ended: what is written last can fail, too.
///
/// # Errors
/// A recording ended before its stack.
pub(crate) fn check(records: &[RecordHandle]) -> anyhow::Result<()> {
    ended_early(records).map_or(Ok(()), |why| Err(anyhow::Error::msg(why)))
}

fn ended_early(records: &[RecordHandle]) -> Option<String> {
    records.iter().map(RecordHandle::report).find_map(|record| {
        let why = record.ended?;
        Some(format!(
            "--record {}: the recording ended early: {why}; {} inputs were recorded, {} were not. \
             Choose a place with more room or a faster disk",
            record.path.display(),
            record.inputs,
            record.missed
        ))
    })
}
