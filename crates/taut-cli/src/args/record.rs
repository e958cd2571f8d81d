//! `--record`: a file for the inputs of a command's stack. Called by every command that runs a stack.

use std::path::PathBuf;

use clap::Args;

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

/// Warns when a recording ended before its stack.
pub(crate) fn warn(stack: &taut::Stack) {
    for record in stack.recordings() {
        if let Some(why) = record.ended {
            eprintln!(
                "taut: {}: the recording ended early: {why}; {} inputs were recorded, {} were not",
                record.path.display(),
                record.inputs,
                record.missed
            );
        }
    }
}
