//! `--congestion`: the congestion control of the connections that a command makes and accepts, by name.
//!
//! Called by every command that runs a stack.

use anyhow::Context as _;
use clap::Args;
use taut_core::StackConfig;
use taut_core::congestion::Registry;

/// The congestion control of a command's stack.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Connections")]
pub(crate) struct CongestionArgs {
    /// Congestion control, with parameters as NAME:PARAM=VALUE [default: cubic]
    #[arg(long, value_name = "NAME")]
    pub congestion: Option<String>,
}

impl CongestionArgs {
    /// The configuration of a stack that has these controllers and uses the chosen one.
    ///
    /// # Errors
    /// When there is no such congestion control, or it has no such parameters; the error lists the known
    /// ones.
    pub(crate) fn config(&self, controllers: &Registry) -> anyhow::Result<StackConfig> {
        let mut config = StackConfig::default();
        config.congestion.registry = controllers.clone();
        if let Some(text) = &self.congestion {
            let chosen = controllers.algorithm(text).with_context(|| format!("--congestion {text}"))?;
            config.congestion.control = chosen;
        }
        Ok(config)
    }
}
