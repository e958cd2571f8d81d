//! `controllers`: the congestion controls that a scenario may name, with their parameters. Called by
//! `mod.rs`.

use taut_core::congestion::{Param, Registry};

use crate::shared::output;

/// Prints the built-in controls, then the user's.
pub(super) fn list(controllers: &Registry, json: bool) -> anyhow::Result<()> {
    if json {
        let parameter = |param: &Param| {
            serde_json::json!({
                "name": param.name(), "default": param.default(), "help": param.help(),
                "least": param.range().start(), "most": param.range().end(),
            })
        };
        let objects = controllers.iter().map(|algorithm| {
            let parameters: Vec<_> = algorithm.params().iter().map(parameter).collect();
            serde_json::json!({ "name": algorithm.name(), "parameters": parameters })
        });
        return output::print_json(&objects.collect::<Vec<_>>());
    }
    let text: String = controllers
        .iter()
        .map(|algorithm| {
            let params: String = algorithm.params().iter().map(line).collect();
            format!("{}\n{params}", algorithm.name())
        })
        .collect();
    output::print(&text)
}

/// A line of the list, below the name of its control: `  gain=2  from 1 to 4: how much faster to send`.
fn line(param: &Param) -> String {
    let (least, most) = param.range().clone().into_inner();
    format!("  {}={}  from {least} to {most}: {}\n", param.name(), param.default(), param.help())
}
