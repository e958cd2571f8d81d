//! `--priority`: how soon the threads of a command's stack wake up on a busy machine. Called by every command
//! that runs a stack.

use clap::Args;
use taut_device::Priority;

/// The priority of a stack's threads.
#[derive(Args, Clone, Copy, Debug, Default)]
pub(crate) struct PriorityArgs {
    /// Thread priority, realtime:1 to 99 or nice:-20 to 19 (root)
    #[arg(long, value_name = "PRIORITY")]
    pub priority: Option<Priority>,
}

impl PriorityArgs {
    /// Applies the option to a builder.
    #[must_use]
    pub(crate) fn apply(self, builder: taut::StackBuilder) -> taut::StackBuilder {
        self.priority.into_iter().fold(builder, taut::StackBuilder::priority)
    }
}
