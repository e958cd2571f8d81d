//! `--priority`: how soon the threads of a command's stack wake up on a busy machine. Called by every command that
//! runs a stack.

use clap::Args;
use taut_device::Priority;

/// The priority of a stack's threads.
#[derive(Args, Clone, Copy, Debug, Default)]
pub(crate) struct PriorityArgs {
    /// Priority of the stack's threads on a busy machine: realtime:1 to realtime:99, or nice:-20 to nice:19; needs
    /// root or a limit (`ulimit -r`, `ulimit -e`)
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
